//! Which monitors watch this server, and why?
//!
//! Every monitor is something to every server: a *candidate* that measures seldom, on trial in
//! *testing*, *active* so that its results count, or *paused*. A review looks at one server and
//! moves a few of its monitors by a step:
//!
//! ```text
//!   samples ──► health, priority ──► rank ──► state: in, out, block, pending
//!                                               │
//!      1    block ──► paused                    ▼
//!      2    out: active ──► testing ──► candidate, down to the floors
//!      1.5  too many active ──► testing
//!      3    testing ──► active, into free places or for one that is worse
//!      5    candidate ──► testing, the same; some of them globally active
//!      2.5  too many in testing ──► candidate
//!      6    testing is empty: candidates ──► testing
//!           paused and the cause is gone ──► candidate
//! ```
//!
//! * **One working set.** Statuses, counts, what each account has and which networks are taken are
//!   kept in one place and follow every change; every check looks there. So two monitors that
//!   exclude each other are never promoted together, and nobody is moved twice in one run.
//! * **Little changes.** Budgets bound a run, floors bound removal, and a challenger must be better
//!   by a margin at several reviews in a row ([`Challenge`]: the one thing that is remembered).
//! * **Everything is explained.** [`Plan`] has a [`Verdict`] for every monitor, changed or not,
//!   small enough to keep for a whole fleet; [`explain()`] puts one into words.
//! * **Linear.** Accounts and networks are numbered once for the fleet ([`Roster`]); a server costs
//!   one sort and a few passes.

mod challenge;
mod explain;
mod facts;
mod plan;
mod roster;
mod rules;
mod score;
mod settings;
mod states;
#[cfg(test)]
mod tests;
mod view;
mod work;

pub use crate::flaw::Flaw;
pub use explain::{Explanation, explain};
pub use facts::{Assignment, Challenge, GlobalStatus, Id, Kind, Monitor, Server, Status, Stored};
pub use plan::{Budget, Cause, Change, Counts, Outcome, Plan, Rule, State, Stay, Verdict};
pub use roster::Roster;
pub use rules::plan;
pub use score::{Health, Measured, Sample, Seen, Summary, next_score, priority, step};
pub use settings::Settings;
pub use view::{ChangeView, StateView, View, ViolationView};
