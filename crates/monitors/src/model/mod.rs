//! Accounts, monitors, servers and what is between them: as people write them, checked, and as they
//! are kept.

mod import;
mod new;
mod probe;
mod read;
mod records;
#[cfg(test)]
mod tests;

pub use import::import;
pub use new::{Entity, NewAccount, NewAssignment, NewMonitor, NewServer};
pub use probe::{NTP_PORT, Probe, ProbeKind, split_address};
pub use read::is_id;
pub use records::{
    Account, AssignmentRow, Flags, HistoryRow, Monitor, ReviewTimes, SampleRow, Server, Tally,
};
pub use skep_policy::problem::{Problem, cut};
pub use skep_policy::span::{parse_span, write_span};
