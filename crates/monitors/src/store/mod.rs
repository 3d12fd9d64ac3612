//! What is known about monitors and servers, in either database.
//!
//! ```text
//!   accounts, monitors, servers, import   changes, one after another: each takes the one row
//!   pairs                                 what every monitor is to every server; made in that step
//!   samples                               what monitors measured, each sample once
//!   review                                claim, facts, apply: fenced, and refused if it is old
//!   history                               what was changed and why; counts; tidying
//! ```
//!
//! Every function is one atomic step, written once for both databases (`tx.rs`); the two modules
//! named after a database only read and write. Times come from the caller.
//!
//! Locks are taken in one order, so nobody waits in a circle: the one row of `skep_monitors`
//! (shared by those who apply a plan), then a server's row, then rows of monitors by number, then
//! assignments by server and monitor. Whoever writes to an assignment holds the row of its monitor
//! or of its server; a status changes only under both the one row and the server's. How many
//! assignments have which status stands in the rows of the server and of the monitor, changed in
//! the same step, so that a list need not count.

mod accounts;
mod book;
mod error;
mod facts;
mod history;
mod import;
mod lists;
mod monitors;
mod pairs;
mod postgres;
mod review;
mod rows;
mod samples;
mod servers;
mod sqlite;
#[cfg(test)]
mod tests;
mod tidy;
mod tx;

pub use accounts::{account, accounts, create_account, delete_account, replace_account};
pub use error::{ChangeError, ImportError, Limits};
pub use facts::{
    Facts, RosterFacts, assignment, assignments_of_monitor, assignments_of_server, facts, roster,
    roster_version, scores,
};
pub use history::{Fleet, HistoryOf, churn, fleet, history};
pub use import::{Created, Imported, import};
pub use lists::{Listed, MonitorFilter, Page, ServerFilter};
pub use monitors::{
    create_monitor, delete_monitor, monitor, monitor_ids, monitor_of_key, monitors, purge,
    replace_monitor, set_monitor_key, set_monitor_status,
};
pub use review::{Applied, Apply, Change, Claim, Mark, apply, claim, release};
pub use samples::{Recorded, Report, record, samples, summaries};
pub use servers::{
    create_server, delete_server, replace_server, review_now, server, server_by_number,
    server_numbers, servers, set_server_paused,
};
pub use tidy::tidy;

use skep_store::Schema;

/// The tables.
pub const SCHEMA: Schema = skep_store::schema!("monitors", 1 "0001_monitors");

/// PostgreSQL says here (`NOTIFY`) with each change of an account, a monitor or a server a number
/// that is higher than any before it.
pub const CHANNEL: &str = "skep_monitors";
