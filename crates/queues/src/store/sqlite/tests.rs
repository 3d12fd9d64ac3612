//! Tests of the store on SQLite alone.

mod batches;
mod browsing;
mod claims;
mod contention;
mod groups;
mod kit;
mod levels;
mod limits;
mod operations;
mod plans;
mod pushes;
mod settles;
mod tidying;
mod waiting;
