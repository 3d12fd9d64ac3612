//! The pools for Prometheus, counted when somebody asks.

use super::{AccessTotals, Alerts};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use skep_pools::{Distribution, PoolStats, Pools, Tier};
use std::sync::Arc;
use std::time::Duration;

/// The bounds of the histograms, in microseconds.
const BOUNDS_US: [u64; 10] =
    [10, 50, 250, 1_000, 5_000, 25_000, 100_000, 1_000_000, 10_000_000, 60_000_000];

/// Adds what the pools count to a registry.
pub struct PoolCollector {
    work: Arc<super::Work>,
}

impl PoolCollector {
    pub fn new(work: Arc<super::Work>) -> Self {
        PoolCollector { work }
    }
}

impl std::fmt::Debug for PoolCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PoolCollector")
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PoolLabel {
    pool: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PartLabels {
    pool: &'static str,
    #[prometheus(flatten)]
    part: Part,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Part {
    outcome: &'static str,
}

type Result = std::result::Result<(), std::fmt::Error>;

struct Sheet<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
    stats: &'a [PoolStats],
}

impl Sheet<'_, '_> {
    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&PoolStats) -> u64) -> Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for pool in self.stats {
            let labels = PoolLabel { pool: pool.name };
            let gauge = ConstGauge::new(i64::try_from(value(pool)).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Fn(&PoolStats) -> u64) -> Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for pool in self.stats {
            let labels = PoolLabel { pool: pool.name };
            ConstCounter::new(value(pool)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn outcomes(&mut self) -> Result {
        let help = "Tasks that ended, by how";
        let mut family =
            self.encoder.encode_descriptor("skep_pool_tasks", help, None, MetricType::Counter)?;
        for pool in self.stats.iter().filter(|pool| pool.name != "shared") {
            for (outcome, count) in [
                ("done", pool.total_processed),
                ("dead", pool.total_failed),
                ("rejected", pool.totals.rejected),
                ("cancelled", pool.totals.cancelled),
            ] {
                let labels = PartLabels { pool: pool.name, part: Part { outcome } };
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Collector for PoolCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result {
        let stats = self.work.pools.stats();
        let mut sheet = Sheet { encoder: &mut encoder, stats: &stats };
        let workers = "Workers of a pool, abandoned ones not counted";
        sheet.gauge("skep_pool_workers", workers, |pool| pool.active_workers.into())?;
        let idle = "Workers that have nothing to do";
        sheet.gauge("skep_pool_workers_idle", idle, |pool| pool.idle_workers.into())?;
        let most = "The most workers a pool may have";
        sheet.gauge("skep_pool_workers_max", most, |pool| pool.max_workers.into())?;
        let lost = "Threads that did not come back from a task and were replaced";
        sheet.gauge("skep_pool_workers_abandoned", lost, |pool| pool.totals.abandoned)?;
        let helping = "Shared workers that do a task of the pool";
        sheet.gauge("skep_pool_helping", helping, |pool| pool.shared_helping.into())?;
        let pending = "Tasks that wait to be started";
        sheet.gauge("skep_pool_queue_tasks", pending, |pool| pool.pending_tasks)?;
        let capacity = "Tasks that may wait";
        sheet.gauge("skep_pool_queue_capacity", capacity, |pool| pool.queue_capacity)?;
        let delayed = "Tasks that wait for a retry or for their serial key";
        sheet.gauge("skep_pool_delayed_tasks", delayed, |pool| pool.delayed_tasks)?;
        let running = "Tasks that are being done";
        sheet.gauge("skep_pool_running_tasks", running, |pool| pool.processing_tasks)?;
        let letters = "Dead letters in memory";
        sheet.gauge("skep_pool_dead_letters", letters, |pool| pool.failed_tasks)?;
        sheet.outcomes()?;
        let failed = "Attempts that failed, for whatever reason";
        sheet.counter("skep_pool_attempts_failed", failed, |pool| pool.totals.failed_attempts)?;
        let retried = "Attempts that were scheduled again";
        sheet.counter("skep_pool_retries", retried, |pool| pool.totals.retried)?;
        let timeouts = "Attempts whose time was over";
        sheet.counter("skep_pool_timeouts", timeouts, |pool| pool.totals.timed_out)?;
        let crashes = "Attempts that panicked, and workers that died";
        sheet.counter("skep_pool_crashes", crashes, |pool| {
            pool.totals.panicked + pool.totals.died
        })?;
        let stolen = "Tasks that shared workers did";
        sheet.counter("skep_pool_stolen", stolen, |pool| pool.totals.stolen)?;
        let spawned = "Workers that were started";
        sheet.counter("skep_pool_workers_started", spawned, |pool| pool.totals.spawned)?;
        let retired = "Workers that went";
        sheet.counter("skep_pool_workers_retired", retired, |pool| pool.totals.retired)?;
        let refused = "Workers whose thread the system did not start";
        sheet.counter("skep_pool_starts_failed", refused, |pool| pool.totals.start_failed)?;
        encode_spans(&mut encoder, &self.work.pools)?;
        encode_alerts(&mut encoder, &self.work.alerts, &stats)?;
        let totals = self.work.access_log.as_ref().map(|log| log.totals());
        encode_access(&mut encoder, totals.unwrap_or_default())
    }
}

fn encode_spans(encoder: &mut DescriptorEncoder<'_>, pools: &Pools) -> Result {
    let spans: Vec<_> = Tier::ALL.map(|tier| (tier.name(), pools.spans(tier))).into();
    type Which = fn(&skep_pools::Spans) -> &Distribution;
    let histograms: [(&str, &str, Which); 2] = [
        ("skep_pool_wait", "From submission, or from being due again, to start", |one| &one.wait),
        ("skep_pool_run", "How long attempts ran", |one| &one.run),
    ];
    for (name, help, which) in histograms {
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (pool, spans) in &spans {
            let spans = which(spans);
            let labels = PoolLabel { pool };
            let mut below = 0;
            let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(BOUNDS_US.len() + 1);
            for bound in BOUNDS_US {
                let bound = Duration::from_micros(bound);
                let at_most = spans.at_most(bound);
                buckets.push((bound.as_secs_f64(), at_most - below));
                below = at_most;
            }
            buckets.push((f64::MAX, spans.count() - below));
            family.encode_family(&labels)?.encode_histogram::<PoolLabel>(
                spans.sum().as_secs_f64(),
                spans.count(),
                &buckets,
                None,
            )?;
        }
    }
    Ok(())
}

fn encode_alerts(
    encoder: &mut DescriptorEncoder<'_>,
    alerts: &Alerts,
    stats: &[PoolStats],
) -> Result {
    let firing = alerts.firing();
    let help = "Alerts that fire about the pool";
    let mut family =
        encoder.encode_descriptor("skep_pool_alerts_firing", help, None, MetricType::Gauge)?;
    for pool in stats {
        let count = firing.iter().filter(|alert| alert.pool == pool.name).count();
        let labels = PoolLabel { pool: pool.name };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode_access(encoder: &mut DescriptorEncoder<'_>, totals: AccessTotals) -> Result {
    let (database, file) = (totals.database, totals.file);
    let entries = [
        ("taken", database.taken),
        ("written", database.written),
        ("dropped", database.dropped),
        ("given_up", database.given_up),
    ];
    let help = "Entries of the access log for the database, by what became of them";
    outcomes(encoder, "skep_access_log_entries", help, &entries)?;
    let help = "Transactions that wrote entries of the access log";
    counter(encoder, "skep_access_log_batches", help, database.batches)?;
    let help = "Entries of the access log that wait to be written";
    let waiting =
        encoder.encode_descriptor("skep_access_log_waiting", help, None, MetricType::Gauge)?;
    let count = i64::try_from(database.waiting + file.waiting).unwrap_or(i64::MAX);
    ConstGauge::new(count).encode(waiting)?;
    let lines = [
        ("taken", file.taken),
        ("written", file.written.saturating_sub(totals.file_lost)),
        ("dropped", file.dropped),
        ("given_up", file.given_up + totals.file_lost),
    ];
    let help = "Entries of the access log for its file, by what became of them";
    outcomes(encoder, "skep_access_log_file_entries", help, &lines)?;
    let help = "Bytes written to the file of the access log";
    counter(encoder, "skep_access_log_file_written_bytes", help, totals.file_bytes)?;
    let help = "Attempts to write to the file of the access log that failed";
    counter(encoder, "skep_access_log_file_errors", help, totals.file_errors)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> Result {
    let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(count).encode(family)
}

fn outcomes(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: &[(&'static str, u64)],
) -> Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (outcome, count) in counts {
        ConstCounter::new(*count).encode(family.encode_family(&Part { outcome })?)?;
    }
    Ok(())
}
