//! Every answer to "who does it?", as a pure function.
//!
//! Skep has one question in several forms: which worker runs this task, which node polls this
//! endpoint, which monitors watch this server. The answers live here, side by side, one module a
//! question, with nothing around them that could make the same input give two outputs:
//!
//! ```text
//!   facts, options ──┐
//!   now: Time ───────┼──► policy ──► Decision { chosen, reason }
//!   chance: Chance ──┘                            │
//!                                                 └──► log, API, dashboard: the same value
//! ```
//!
//! The contract:
//! * **Time and chance are arguments.** [`Time`] is a point on a clock the caller reads, [`Chance`]
//!   a source of numbers the caller owns. A decision replays from its inputs.
//! * **A decision is a value.** [`Decision`] carries what was chosen and [`Reason`], the rule, the
//!   numbers and what was rejected. Explaining is rendering that value, never deciding twice.
//! * **No I/O.** No sockets, files, threads, environment. `clippy.toml` beside this crate says so
//!   to the compiler.
//!
//! ```
//! use skep_policy::{backoff, SeededChance};
//! use std::time::Duration;
//!
//! let (base, cap) = (Duration::from_millis(100), Duration::from_secs(5));
//! let mut chance = SeededChance::new(42);
//! let wait = backoff::wait_before_attempt(3, &backoff::Options { base, cap }, &mut chance);
//! assert!(wait.chosen <= 4 * base);
//! assert_eq!(wait.reason.rule, "full-jitter");
//! ```

pub mod backoff;
pub mod breaker;
mod chance;
pub mod cluster;
pub mod explain;
mod flaw;
mod id;
pub mod monitors;
pub mod ownership;
pub mod polls;
pub mod pools;
pub mod problem;
pub mod queues;
pub mod reach;
mod reason;
pub mod rendezvous;
pub mod routes;
pub mod secrets;
pub mod sessions;
pub mod span;
pub mod throttle;
mod time;
pub mod troubles;
mod words;

pub use chance::{Chance, SeededChance};
pub use flaw::Flaw;
pub use id::{BadName, DecisionId, NAME_LENGTH_MAX, Name};
pub use reason::{Decision, Number, Reason, Rejected};
pub use time::{Clock, Time};
pub use words::many_of;
