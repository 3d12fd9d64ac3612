//! Nodes over real sockets on loopback, among friends and enemies.

mod common;
mod forward_exchange;
mod forward_faults;
mod forward_hop;
mod forward_journey;
mod forward_kit;
mod forward_outcomes;
mod hostile;
mod loopback;
