//! Tests of the store on SQLite alone.

mod batches;
mod claims;
mod groups;
mod kit;
mod plans;
mod pushes;
mod settles;
mod tidying;
