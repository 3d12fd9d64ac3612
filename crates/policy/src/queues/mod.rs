//! Which consumer gets which message, and when again.
//!
//! A queue has partitions, each an ordered lane of messages with rising numbers. A consumer group
//! reads every partition by itself; how far it is in one of them is a [`Lane`]:
//!
//! ```text
//!        settled          leased         waiting
//!   ├───────────────┼──────────────┼──────────────►  numbers
//!                 cursor      lease.through       tail
//!
//!            claim                 settle up to through
//!   ready ──────────► leased ───────────────────────────► ready, or drained at the tail
//!     ▲                 │  failed, retry: the rest comes again, after a failure with a delay
//!     └─────────────────┘  failed too often, dead: aside, the cursor passes
//! ```
//!
//! [`Lane::ready_at`] is when a lane can next be claimed: at once, when its lease runs out, when
//! its delay is over, or never (drained). A store keeps lanes in that order, so taking the one that
//! waits longest is taking the first, and leases, delays and retries need no timers of their own.

mod lane;
mod limits;
pub mod model;
mod rules;
mod settle;
#[cfg(test)]
mod tests;
mod tidying;

pub use lane::{Backlog, Claim, Claimed, Lane, Lease, LeaseId, Left, Run, Span};
pub use limits::{Grants, Limit, Limits, Rate, Room};
pub use rules::{Retry, Rules, Start};
pub use settle::{Ask, Refusal, Settled, Verdict};
pub use tidying::Pace;
