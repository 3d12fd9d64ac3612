//! Which monitors watch which server: what is known about them, what they measured, and what was
//! decided.
//!
//! ```text
//!   API ─► model (checked) ─► store: accounts, monitors, servers ─► pairs, made by themselves
//!                                                                        │
//!   agents ─► samples, scores ──────────────────────────────────────────►│
//!   reviews ◄─ claim, facts ◄────────────────────────────────────────────┘
//!      └─────► apply (fenced by the claim, refused if anything moved meanwhile) ─► history
//! ```
//!
//! Who is chosen is decided in [`skep_policy::monitors`], from facts alone. This crate keeps the
//! facts ([`store`]), reads what people write ([`model`]) and carries the decisions out.

pub mod flips;
mod handle;
pub mod measure;
mod metrics;
pub mod model;
mod news;
pub mod offline;
mod options;
mod posted;
mod review;
mod roster;
mod scorer;
mod service;
pub mod store;
mod tally;
mod work;

pub use handle::{ChangeError, ImportError, Monitors, Noun};
pub use metrics::MonitorsMetrics;
pub use model::{
    Account, AssignmentRow, Entity, Flags, HistoryRow, Monitor, NewAccount, NewAssignment,
    NewMonitor, NewServer, Probe, ProbeKind, Problem, ReviewTimes, SampleRow, Server, Tally,
};
pub use options::MonitorsOptions;
pub use posted::{Done, PlanError, PostedChange, PostedPlan};
pub use review::{Lens, Look, Reviewed};
pub use roster::Book;
pub use scorer::{Measurement, REPORTS_MAX, Refused, Scored};
pub use service::run;
pub use store::SCHEMA;
pub use tally::FleetPoint;
pub use work::Work;
