//! Gives every session a worker, and every worn-out worker its turn to restart.
//!
//! ```text
//!   gateway ─► Sessions ─► TableStore (one atomic step) ─► seat, or a place in the line
//!   worker  ─► heartbeat ◄─ order: serve, restart, …
//! ```
//!
//! What is decided, and why, is [`skep_policy::sessions`]; this crate keeps the table where the
//! installation keeps its agreements, and tells everybody concerned what happened.

pub mod store;

pub use store::{MemoryTable, TableStore};
