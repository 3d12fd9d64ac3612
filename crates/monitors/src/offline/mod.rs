//! Plans and what-ifs without a store: a fleet comes from a document, or from whoever has it.
//!
//! ```text
//!   snapshot ──► Fleet ──► Plans, one for each server, with every reason
//!                  │
//!                  └─ WhatIf ──► Supposed ──► Difference of each server, Totals of the fleet
//! ```
//!
//! Everything here is a function of what is given: the same snapshot gives the same bytes.

mod compared;
mod document;
mod entry;
mod flaw;
mod fleet;
mod json;
mod known;
mod parts;
mod settings;
mod snapshot;
#[cfg(test)]
mod tests;
mod values;
pub mod what_if;

pub use compared::Compared;
pub use document::{PlanDocument, PlanTotals, Plans, ViolationDocument};
pub use flaw::{FLAWS_MAX, Flaw};
pub use fleet::{Fleet, Watched};
pub use settings::with_settings;
pub use snapshot::{Broken, Refused};
pub use what_if::{Difference, Supposed, Totals, WhatIf};

/// The names of all fields of a snapshot.
#[cfg(test)]
fn names() -> Vec<&'static str> {
    use json::Fields;
    let parts = [
        snapshot::Top::NAMES,
        parts::ServerPart::NAMES,
        parts::ServerEntry::NAMES,
        parts::AccountPart::NAMES,
        entry::Entry::NAMES,
        entry::Measurement::NAMES,
        entry::Challenger::NAMES,
    ];
    parts.concat()
}
