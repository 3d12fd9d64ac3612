//! When is this endpoint polled?
//!
//! [`schedule`]: each endpoint has a fixed grid of slots that depends on its name and interval
//! alone, so a new owner goes on where the last one stopped. Which node that is, for endpoints as
//! for any kind of key, is for [`crate::ownership`] to say.

pub mod schedule;
