//! What the embedded store counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Handles to the writer's metrics. Clones share their values, so each node of a process can
/// register the one store they share.
#[derive(Clone)]
pub(super) struct WriterMetrics {
    commits: Counter,
    failed: Counter,
    calls: Counter,
    commit_seconds: Histogram,
    batch_calls: Histogram,
}

impl WriterMetrics {
    pub(super) fn new() -> Self {
        WriterMetrics {
            commits: Counter::default(),
            failed: Counter::default(),
            calls: Counter::default(),
            commit_seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 9)),
            batch_calls: Histogram::new(exponential_buckets(1.0, 4.0, 6)),
        }
    }

    pub(super) fn observe_commit(&self, calls: usize, took: Duration, committed: bool) {
        if !committed {
            self.failed.inc();
            return;
        }
        self.commits.inc();
        self.calls.inc_by(calls as u64);
        self.commit_seconds.observe(took.as_secs_f64());
        self.batch_calls.observe(calls as f64);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "skep_sqlite_commits",
            "Transactions committed by the writer; one fsync each, if they wrote something",
            self.commits.clone(),
        );
        registry.register(
            "skep_sqlite_commits_failed",
            "Transactions given up; their calls were answered with an error",
            self.failed.clone(),
        );
        registry.register(
            "skep_sqlite_writes",
            "Write calls that succeeded and are durable; divided by commits it is the mean batch",
            self.calls.clone(),
        );
        registry.register(
            "skep_sqlite_commit_seconds",
            "Time from the first statement of a transaction to its fsync",
            self.commit_seconds.clone(),
        );
        registry.register(
            "skep_sqlite_batch_writes",
            "Write calls that succeeded together in one transaction",
            self.batch_calls.clone(),
        );
    }
}
