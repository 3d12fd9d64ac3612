//! Which worker gets this session? And when may a worn-out worker restart?
//!
//! Workers wear out: a browser leaks, a licence ends. Each may have `lifetime_max` sessions in its
//! life and is then restarted. Choosing and recycling are one decision, because a fleet whose
//! workers reach their limit together stands still together.
//!
//! ```text
//!                 ┌────────────────────── Fleet, one atomic step each ─────────────────────┐
//!   gateways ────►│ checkout, close ─► settle ─► ready │ due │ full │ held │ …  ─► seat     │
//!   workers  ────►│ register, heartbeat   │            line: fair, first come, per kind     │
//!   operators ───►│ drain, end, remove    └─► permits: idle and due, at most the budget     │
//!                 └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! * [`Rules`] say how much a worker may carry, when it is worn out, how many may be away.
//! * [`Fleet`] is what must be agreed on: an exact description of every store's behaviour, and the
//!   store itself where one process is the only gateway.
//! * [`scan`](fn@scan) is the same choice made plainly, by looking at everybody. It explains, and a
//!   property test holds the two equal.
//!
//! What never happens, whatever the order of events:
//! * A worker has more sessions at once than slots, or more in its life than the limit.
//! * More than the budget are out because Skep sent them ([`Policy::Budgeted`]).
//! * A session waits or is refused while a slot that fits it is free.
//! * A count is wrong for longer than its gateway is thought alive: the records are the counts.
//!
//! Decisions of the budgeted policy:
//! * A permit goes to a worker that is *due and idle*, the longest serving first. A permit for one
//!   that still carries sessions would block the budget while they last; in simulation that
//!   doubles the number of workers away and, at high load, every wait. Due workers are the last
//!   to be chosen, so they become idle by themselves.
//! * At its limit a worker without permit is *held*: it takes nothing and is not out. When
//!   `drain_max` has passed and the budget allows, it gets its permit and its sessions are ended.
//! * A worker that can start its successor first gets its permit while it serves, and never is out.

pub mod alerts;
mod fleet;
mod protocol;
mod rank;
mod rules;
mod scan;
mod want;

pub use fleet::{Fleet, Reply};
pub use protocol::*;
pub use rank::{Standing, Standings, is_due, rank, rule};
pub use rules::{Budget, LIFETIME_DEFAULT, LIFETIME_MAX, Policy, Rules, SLOTS_DEFAULT, SLOTS_MAX};
pub use scan::{Candidate, scan, why};
pub use want::{Shape, Version, Want};
