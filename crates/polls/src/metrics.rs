//! What a node counts about its polls.

use crate::probe::Verdict;
use crate::store::{Recorded, ResultRow};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// The counters; clones are the same.
#[derive(Clone)]
pub struct PollsMetrics {
    polls: Family<VerdictLabels, Counter>,
    late: Histogram,
    took: Histogram,
    missed: Family<WhyLabels, Counter>,
    results: Family<OutcomeLabels, Counter>,
    pub(crate) endpoints: Gauge,
    pub(crate) owned: Gauge,
    pub(crate) in_flight: Gauge,
    pub(crate) waiting: Gauge,
    pub(crate) unpublished: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// In seconds; fine around what is still good.
const LATE_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0];

impl Default for PollsMetrics {
    fn default() -> Self {
        PollsMetrics {
            polls: Family::default(),
            late: Histogram::new(LATE_BUCKETS),
            took: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            missed: Family::default(),
            results: Family::default(),
            endpoints: Gauge::default(),
            owned: Gauge::default(),
            in_flight: Gauge::default(),
            waiting: Gauge::default(),
            unpublished: Counter::default(),
        }
    }
}

impl PollsMetrics {
    /// Adds them to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "skep_poll_polls",
            "Polls this node has made, by what came of them",
            self.polls.clone(),
        );
        registry.register(
            "skep_poll_late_seconds",
            "How long after their time polls began",
            self.late.clone(),
        );
        registry.register("skep_poll_duration_seconds", "How long polls took", self.took.clone());
        registry.register(
            "skep_poll_missed",
            "Slots in which an endpoint of this node was not polled, by why",
            self.missed.clone(),
        );
        registry.register(
            "skep_poll_results",
            "Results by what became of them: accepted, fenced (somebody newer polls), gone (the \
             endpoint was deleted) or dropped (too many waited)",
            self.results.clone(),
        );
        registry.register(
            "skep_poll_endpoints",
            "Endpoints in the installation",
            self.endpoints.clone(),
        );
        registry.register("skep_poll_owned", "Endpoints that this node polls", self.owned.clone());
        registry.register(
            "skep_poll_in_flight",
            "Polls in progress on this node",
            self.in_flight.clone(),
        );
        registry.register(
            "skep_poll_results_waiting",
            "Results that wait to be written",
            self.waiting.clone(),
        );
        registry.register(
            "skep_poll_unpublished",
            "Results that could not be published to their queues",
            self.unpublished.clone(),
        );
    }

    pub(crate) fn polled(&self, verdict: Verdict, late: Duration, took: Duration) {
        self.polls.get_or_create(&VerdictLabels { verdict: verdict.as_str() }).inc();
        self.late.observe(late.as_secs_f64());
        self.took.observe(took.as_secs_f64());
    }

    pub(crate) fn missed(&self, why: &'static str, slots: u64) {
        if slots > 0 {
            self.missed.get_or_create(&WhyLabels { why }).inc_by(slots);
        }
    }

    pub(crate) fn recorded(&self, results: &[(ResultRow, Option<Recorded>)]) {
        for (_, recorded) in results {
            let outcome = match recorded {
                Some(Recorded::Accepted) => "accepted",
                Some(Recorded::Fenced) => "fenced",
                Some(Recorded::Gone) => "gone",
                None => "dropped",
            };
            self.results.get_or_create(&OutcomeLabels { outcome }).inc();
        }
    }

    pub(crate) fn dropped(&self, count: usize) {
        let dropped = self.results.get_or_create(&OutcomeLabels { outcome: "dropped" });
        dropped.inc_by(count as u64);
    }
}
