//! Limits of polling.

use std::time::Duration;

/// What a node that polls is told at its start.
#[derive(Clone, Debug)]
pub struct PollsOptions {
    /// Endpoints in the installation at most.
    pub endpoints_max: u64,
    /// Results kept for each endpoint.
    pub history: u32,
    /// Polls of this node at a time; more wait, and are late.
    pub concurrency: usize,
    /// Results that may wait to be written; the oldest of more are dropped and counted.
    pub waiting_max: usize,
    /// How long polls in progress may take to finish when the node stops.
    pub drain: Duration,
    /// Whether polls over HTTP say who asks: `x-skep-endpoint`, `x-skep-node`, `x-skep-token`.
    pub identify: bool,
}

impl Default for PollsOptions {
    fn default() -> Self {
        PollsOptions {
            endpoints_max: 100_000,
            history: 50,
            concurrency: 5_000,
            waiting_max: 50_000,
            drain: Duration::from_millis(500),
            identify: false,
        }
    }
}
