//! The proxy over real sockets, with clients and upstreams that do not behave.

mod dice;
mod h2;
mod interim;
mod kit;
mod load;
mod memory;
mod mutations;
mod page;
mod requests;
mod retries;
mod reuse;
mod slow;
mod upstreams;
