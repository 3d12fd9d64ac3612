//! Measuring a server once.
//!
//! ```text
//!   Ntp::ask ─► a socket of its own ─► packet::request ─► the server
//!                                                            │
//!   Found or Fault ◄── packet::hear ◄── datagrams ◄──────────┘   those that are not ours: ignored
//! ```
//!
//! NTP is here; HTTP and TCP are asked by the prober of the polls, and come to the same two ends:
//! [`Found`], or a [`Fault`] whose text says what the sample is worth.

mod ntp;
mod outcome;
mod packet;

pub use ntp::{Ntp, split_target};
pub use outcome::{Fault, Found};
