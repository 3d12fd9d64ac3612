//! What a node's monitors are told at its start.

use skep_policy::monitors::Settings;
use std::time::Duration;

/// Numbers of the selection, and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorsOptions {
    /// By which numbers monitors are selected.
    pub policy: Settings,
    /// How long a review may take before another node may begin it anew.
    pub review_lease: Duration,
    /// Servers that are reviewed at a time.
    pub review_batch: u32,
    /// How often servers that are due are looked for.
    pub review_check: Duration,
    /// How long samples are kept.
    pub samples_keep: Duration,
    /// How long it is kept what changed and why.
    pub history_keep: Duration,
    /// Monitors in the installation at most.
    pub monitors_max: u64,
    /// Servers in the installation at most.
    pub servers_max: u64,
}

impl Default for MonitorsOptions {
    fn default() -> Self {
        let days = |count: u64| Duration::from_secs(count * 86_400);
        MonitorsOptions {
            policy: Settings::default(),
            review_lease: Duration::from_secs(30),
            review_batch: 20,
            review_check: Duration::from_secs(3),
            samples_keep: days(3),
            history_keep: days(30),
            monitors_max: 10_000,
            servers_max: 100_000,
        }
    }
}
