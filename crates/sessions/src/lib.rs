//! Gives every session a worker, and every worn-out worker its turn to restart.
//!
//! ```text
//!   gateway ─► Sessions::checkout ─► TableStore, one atomic step ─► Placed, or a place in the line
//!   worker  ─► Sessions::heartbeat ◄─ order: serve, restart, …          │
//!   run: beats, news, probes ◄──── hints of all nodes ◄─────────────────┘
//! ```
//!
//! What is decided, and why, is [`skep_policy::sessions`]; this crate keeps the table where the
//! installation keeps its agreements, and tells everybody concerned what happened.
//!
//! A question whose answer is lost may or may not have been heard. Nobody guesses: the gateway
//! joins again under a new link and says everything it carries; what the table has beyond that is
//! void, and so is whatever was still on its way under the old link.

mod choices;
mod error;
mod handle;
mod history;
mod loads;
mod local;
mod metrics;
mod options;
mod pace;
mod probe;
mod service;
pub mod store;
mod workers;

pub use choices::Choice;
pub use error::{Refused, TableError};
pub use handle::{Placed, Sessions, Wish, parse_session_id, session_id};
pub use history::{Line, Restart, Series};
pub use loads::Load;
pub use metrics::SessionsMetrics;
pub use options::{CutOff, SessionsOptions};
pub use probe::Probing;
pub use service::run;
pub use store::{Heard, Hints, MemoryTable, PostgresTable, RedisTable, SCHEMA, TableStore};
pub use workers::{KINDS_MAX, Ordered, Registered};
