//! Which node of the cluster serves this request?
//!
//! Any node takes any request and every node could serve it. It is cheapest where the same key was
//! served before, so each key has an *owner*, and the owner is found without asking anybody:
//!
//! ```text
//!   key ──► moved? ──► the node it was moved to ─┐
//!            └ no ───► first of its ranking ─────┴► owner ──► has room ──► there
//!                      (rendezvous, those who serve)            │ a part, beyond its bound
//!                                                               ▼
//!                           here, unless the next of its ranking is better by more than 0.1
//! ```
//!
//! * **Same members, same owner**, on every node: hashing decides, and [`Moves`] that all nodes
//!   share. Load decides only what overflows and what moves.
//! * **Overflow** is a part of the requests, not a switch: loads are a second old, and a switch
//!   would throw everything from one node to the other and back. Each [`View`] follows the one
//!   before it and corrects the part a little, until nobody is above the bound.
//! * **Moves** are proposed by the owner alone ([`Moves::consider`]), who knows its own load best:
//!   so two nodes never move one key at once, and each move is announced by one who would know.
//! * **Writes** go where consumers wait ([`producer`]).
//!
//! A [`View`] is an immutable snapshot; deciding reads it and takes no lock.

mod balance;
mod circuits;
mod decide;
mod explain;
mod keys;
mod load;
mod moves;
mod options;
mod overrides;
#[cfg(test)]
mod tests;
mod uses;
mod view;

pub use crate::flaw::Flaw;
pub use balance::{Balance, balance};
pub use circuits::{Circuits, Failure, breaker_options};
pub use decide::{Avoiding, Choice, Place, Rule, Traffic, consumer, producer};
pub use explain::{explain_consumer, explain_producer};
pub use keys::Ask;
pub use load::{Sample, Smoothed, score};
pub use moves::{Kind, Move, Moves};
pub use options::Options;
pub use overrides::Overrides;
pub use uses::{Use, Uses};
pub use view::{Member, View};
