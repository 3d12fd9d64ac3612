//! Which node polls this endpoint, and when?
//!
//! * [`placement`]: who should own each endpoint. Every node computes it from the same facts and
//!   comes to the same answer, so nobody has to be in charge.
//! * [`schedule`]: when the owner polls. Each endpoint has a fixed grid of slots that depends on
//!   its name and interval alone, so a new owner goes on where the last one stopped.

pub mod placement;
pub mod schedule;
