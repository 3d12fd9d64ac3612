//! Endpoints, who may say something about them, and what was said, in either database.
//!
//! ```text
//!   registry   create, replace, import, set_paused, delete   each change has a version of its own
//!   follow     changes, find                                 copies that nodes keep up to date
//!   reports    announce, record                              guarded by tokens that only grow
//!   history    results, moves, states, summary
//! ```
//!
//! Every function is one atomic step. What a step decides is decided by the same code for both
//! databases, between reading under a lock and writing: `registry.rs` for endpoints, `reports.rs`
//! for tokens and results. The two modules named after a database only read and write.
//!
//! Locks are taken in one order, so nobody waits in a circle: the one row of `skep_polls`, then
//! rows of `skep_poll_state` by their numbers. A row of the latter is there as long as its endpoint
//! lives, so whoever holds it knows that the endpoint cannot be deleted meanwhile.

mod history;
mod postgres;
mod registry;
mod reports;
mod sqlite;

pub use history::{
    Changes, Seen, Summary, changes, failing, find, last_epoch, moves, next_epoch, results, states,
    summary,
};
pub use registry::{
    CreateError, ImportError, Imported, ReplaceError, ask_now, create, delete, forget_deleted,
    import, replace, set_paused,
};
pub use reports::{Announced, Grant, Last, Move, Recorded, ResultRow, State, announce, record};

use skep_store::Schema;

/// The tables.
pub const SCHEMA: Schema = skep_store::schema!("polls", 1 "0001_polls");

/// PostgreSQL says the new version here (`NOTIFY`) with each change of an endpoint.
pub const CHANNEL: &str = "skep_polls";

/// An endpoint keeps so many moves; the oldest go first.
pub const MOVES_MAX: i64 = 20;

/// An endpoint as somebody wants it to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEndpoint {
    /// Its name.
    pub id: String,
    /// What to ask and what to expect, as JSON; the store does not look into it.
    pub spec: String,
    /// Whether it is left alone for now.
    pub paused: bool,
}

/// An endpoint as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// Short for it. One that is created again gets another.
    pub number: i64,
    /// The version that created it. One that is created again has another.
    pub born: i64,
    /// The version that last changed it; no two endpoints have the same.
    pub version: i64,
    /// As JSON; empty once deleted.
    pub spec: String,
    /// Whether it is left alone for now.
    pub paused: bool,
    /// Whether it is gone; nodes learn of that by its version.
    pub deleted: bool,
    /// When it was created.
    pub created_at_ms: i64,
    /// When it was last changed.
    pub updated_at_ms: i64,
    /// When somebody last asked for a poll out of turn; zero if never.
    pub asked_at_ms: i64,
}

/// The databases count with a sign.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
