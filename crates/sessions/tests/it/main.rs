//! The table of sessions in every store, against real servers. One binary, because each would be
//! linked again.

mod common;
mod conformance;
mod crowd;
mod differential;
mod many_gateways;
mod postgres;
mod redis;
mod world;
