//! The ownership table in every store, against real servers. One binary, because each would be
//! linked again.

mod common;
mod conformance;
mod differential;
mod faults;
mod hints;
