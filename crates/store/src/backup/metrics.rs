//! What is counted about backups.

use crate::wall_ms;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Handles to what is counted; clones share their values.
#[derive(Clone)]
pub(crate) struct BackupMetrics {
    made: Family<OutcomeLabels, Counter>,
    last_success: Gauge,
    last_failure: Gauge,
    bytes: Gauge,
    seconds: Gauge<f64, AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// How a backup ended.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    /// Whoever reads it has all of it.
    Ok,
    /// It could not be made.
    Failed,
    /// Whoever wanted it went away before its end.
    Left,
}

impl Outcome {
    const ALL: [Outcome; 3] = [Outcome::Ok, Outcome::Failed, Outcome::Left];

    fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Failed => "failed",
            Outcome::Left => "left",
        }
    }
}

impl BackupMetrics {
    pub(crate) fn new() -> Self {
        let made = Family::default();
        for outcome in Outcome::ALL {
            // There from the start, so that the first failure is an increase.
            let _: Counter = made.get_or_create_owned(&labels(outcome));
        }
        BackupMetrics {
            made,
            last_success: Gauge::default(),
            last_failure: Gauge::default(),
            bytes: Gauge::default(),
            seconds: Gauge::default(),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "skep_backups",
            "Backups that ended, by outcome: ok, failed, left by whoever wanted it",
            self.made.clone(),
        );
        registry.register(
            "skep_backup_last_success_timestamp_seconds",
            "When the last whole backup was handed over, in seconds since 1970; 0 if there was \
             none since the start",
            self.last_success.clone(),
        );
        registry.register(
            "skep_backup_last_failure_timestamp_seconds",
            "When the last backup ended that did not become whole, in seconds since 1970; 0 if \
             there was none since the start",
            self.last_failure.clone(),
        );
        registry.register(
            "skep_backup_last_bytes",
            "Size of the last whole backup",
            self.bytes.clone(),
        );
        registry.register(
            "skep_backup_last_seconds",
            "How long the last whole backup took, from the question to its last byte",
            self.seconds.clone(),
        );
    }
}

fn labels(outcome: Outcome) -> OutcomeLabels {
    OutcomeLabels { outcome: outcome.as_str() }
}

/// A backup that is being made. Dropped before its end, it counts as left.
pub(super) struct Running {
    metrics: BackupMetrics,
    started: Instant,
    bytes: u64,
    over: bool,
}

impl Running {
    pub fn begin(metrics: BackupMetrics) -> Self {
        Running { metrics, started: Instant::now(), bytes: 0, over: false }
    }

    /// So many bytes were handed over.
    pub fn passed(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// It has ended; only the first time counts.
    pub fn end(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let metrics = &self.metrics;
        metrics.made.get_or_create(&labels(outcome)).inc();
        let now = wall_ms() / 1_000;
        match outcome {
            Outcome::Ok => {
                metrics.last_success.set(now);
                metrics.bytes.set(i64::try_from(self.bytes).unwrap_or(i64::MAX));
                metrics.seconds.set(self.started.elapsed().as_secs_f64());
            }
            Outcome::Failed | Outcome::Left => {
                metrics.last_failure.set(now);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Outcome::Left);
    }
}
