//! Polls of real servers on real sockets.

mod http;
mod kit;
mod polling;
mod reuse;
mod store;
mod store_differential;
mod store_races;
mod tls;
