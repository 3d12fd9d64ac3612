//! What a node counts about its queues. Queues are not labels: there may be any number of them.

use crate::handle::kind_of;
use crate::keeper::Kept;
use crate::store::{Claimed, Pushed, Tidied};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use skep_policy::queues::Settled;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The counters; clones are the same.
#[derive(Clone)]
pub struct QueuesMetrics {
    pushed: Family<StatusLabels, Counter>,
    popped: Counter,
    pops: Family<ResultLabels, Counter>,
    settled: Family<ResultLabels, Counter>,
    overloaded: Family<KindLabels, Counter>,
    tidied: Counter,
    kept: Family<KindLabels, Counter>,
    buffered: Counter,
    batch_jobs: Histogram,
    batch_seconds: Histogram,
    parked: Gauge,
    waiting_jobs: Gauge,
    waiting_bytes: Gauge,
    buffer_messages: Gauge,
    maintenance: Family<SwitchLabels, Gauge>,
    batches: Arc<Batches>,
}

/// What the histograms of batches add up to.
#[derive(Default)]
struct Batches {
    batches: AtomicU64,
    requests: AtomicU64,
    micros: AtomicU64,
}

/// What a node's store had to do since the node started, and what waits for it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreWork {
    /// Requests that wait.
    pub waiting_requests: usize,
    /// Bytes of messages that wait.
    pub waiting_bytes: usize,
    /// Pops that wait for messages.
    pub parked: usize,
    /// Batches that were done.
    pub batches: u64,
    /// Requests that were done in them.
    pub requests: u64,
    /// Time that they took.
    pub took: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SwitchLabels {
    switch: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

impl Default for QueuesMetrics {
    fn default() -> Self {
        QueuesMetrics {
            pushed: Family::default(),
            popped: Counter::default(),
            pops: Family::default(),
            settled: Family::default(),
            overloaded: Family::default(),
            tidied: Counter::default(),
            kept: Family::default(),
            buffered: Counter::default(),
            batch_jobs: Histogram::new(exponential_buckets(1.0, 4.0, 6)),
            batch_seconds: Histogram::new(exponential_buckets(0.000_25, 4.0, 9)),
            parked: Gauge::default(),
            waiting_jobs: Gauge::default(),
            waiting_bytes: Gauge::default(),
            buffer_messages: Gauge::default(),
            maintenance: Family::default(),
            batches: Arc::default(),
        }
    }
}

impl QueuesMetrics {
    /// Adds them to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "skep_queue_pushed_messages",
            "Messages pushed through this node, by whether they were queued or had come before",
            self.pushed.clone(),
        );
        registry.register(
            "skep_queue_popped_messages",
            "Messages handed out by this node",
            self.popped.clone(),
        );
        registry.register(
            "skep_queue_claims",
            "Looks for messages by this node, by whether there were some; a pop that waits looks \
             each time it is woken",
            self.pops.clone(),
        );
        registry.register(
            "skep_queue_settled_messages",
            "Acknowledgements that came to this node, by what came of them",
            self.settled.clone(),
        );
        registry.register(
            "skep_queue_overloaded",
            "Requests refused because too many waited for the store, by kind",
            self.overloaded.clone(),
        );
        registry.register(
            "skep_queue_tidied_messages",
            "Messages that this node deleted for their age",
            self.tidied.clone(),
        );
        registry.register(
            "skep_queue_due_messages",
            "Messages that this node let into their partitions when their time had come, by kind: \
             delayed, scheduled, redriven",
            self.kept.clone(),
        );
        registry.register(
            "skep_queue_buffered_messages",
            "Messages written to the local buffer: the database was away, or they were held back",
            self.buffered.clone(),
        );
        registry.register(
            "skep_queue_batch_jobs",
            "Requests that the store did together",
            self.batch_jobs.clone(),
        );
        registry.register(
            "skep_queue_batch_seconds",
            "Time that the store took for requests it did together",
            self.batch_seconds.clone(),
        );
        registry.register("skep_queue_parked", "Pops that wait", self.parked.clone());
        registry.register(
            "skep_queue_waiting_jobs",
            "Requests that wait for the store",
            self.waiting_jobs.clone(),
        );
        registry.register(
            "skep_queue_waiting_bytes",
            "Bytes of messages that wait for the store",
            self.waiting_bytes.clone(),
        );
        registry.register(
            "skep_queue_buffer_messages",
            "Messages in the local buffer that the database does not have yet",
            self.buffer_messages.clone(),
        );
        registry.register(
            "skep_queues_maintenance",
            "Whether pushes are held back (`push`) or nobody gets messages (`pop`)",
            self.maintenance.clone(),
        );
        // They show from the start; what they are is set by whoever has the queues.
        for switch in ["push", "pop"] {
            let _ = self.maintenance.get_or_create(&SwitchLabels { switch });
        }
    }

    pub(crate) fn maintenance(&self, switch: &'static str, is_on: bool) {
        self.maintenance.get_or_create(&SwitchLabels { switch }).set(i64::from(is_on));
    }

    pub(crate) fn pushed(&self, pushed: &[Pushed]) {
        let duplicates = pushed.iter().filter(|one| one.duplicate).count() as u64;
        let queued = pushed.len() as u64 - duplicates;
        self.pushed.get_or_create(&StatusLabels { status: "queued" }).inc_by(queued);
        if duplicates > 0 {
            self.pushed.get_or_create(&StatusLabels { status: "duplicate" }).inc_by(duplicates);
        }
    }

    pub(crate) fn popped(&self, claimed: &Claimed) {
        let parts = claimed.lanes.iter().flat_map(|lane| &lane.parts);
        let messages: u64 = parts.map(|part| u64::from(part.count)).sum();
        self.popped.inc_by(messages);
        let result = if messages > 0 { "messages" } else { "empty" };
        self.pops.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn settled(&self, settled: &Settled) {
        self.settled.get_or_create(&ResultLabels { result: kind_of(settled) }).inc();
    }

    pub(crate) fn overloaded(&self, kind: &'static str) {
        self.overloaded.get_or_create(&KindLabels { kind }).inc();
    }

    pub(crate) fn batch(&self, jobs: usize, took: Duration) {
        let add = |sum: &AtomicU64, more: u64| {
            sum.fetch_add(more, Ordering::Relaxed);
        };
        add(&self.batches.batches, 1);
        add(&self.batches.requests, jobs as u64);
        add(&self.batches.micros, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.batch_jobs.observe(jobs as f64);
        self.batch_seconds.observe(took.as_secs_f64());
    }

    /// What was done so far; what waits is not known here.
    pub(crate) fn done(&self) -> StoreWork {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        StoreWork {
            batches: read(&self.batches.batches),
            requests: read(&self.batches.requests),
            took: Duration::from_micros(read(&self.batches.micros)),
            ..StoreWork::default()
        }
    }

    pub(crate) fn buffered(&self, messages: usize) {
        self.buffered.inc_by(messages as u64);
    }

    pub(crate) fn kept(&self, kept: &Kept) {
        let kinds =
            [("delayed", kept.moved), ("scheduled", kept.fired), ("redriven", kept.redriven)];
        for (kind, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
            self.kept.get_or_create(&KindLabels { kind }).inc_by(count);
        }
    }

    pub(crate) fn tidied(&self, tidied: &Tidied) {
        self.tidied.inc_by(tidied.messages);
    }

    pub(crate) fn waiting(&self, parked: usize, jobs: usize, bytes: usize, buffered: u64) {
        let signed = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.buffer_messages.set(i64::try_from(buffered).unwrap_or(i64::MAX));
        self.parked.set(signed(parked));
        self.waiting_jobs.set(signed(jobs));
        self.waiting_bytes.set(signed(bytes));
    }
}
