//! Three nodes as real processes with one PostgreSQL, and what goes wrong between them.

mod faults;
mod finding;
mod hops;
mod kit;
mod lane;
mod load;
mod lost;
mod set;
mod tls;
mod waits;
mod writes;
