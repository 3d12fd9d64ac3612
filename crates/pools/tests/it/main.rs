//! The pools with real threads. One binary, because each would be linked again.

mod batch;
mod batch_faults;
mod deaths;
mod flood;
mod keys;
mod kit;
mod letters;
mod panics;
mod scaling;
mod shutdown;
mod starts;
mod submit;
mod system;
mod timeouts;
