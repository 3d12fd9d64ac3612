//! What a node counts about deciding and forwarding.

use crate::forward::{OutcomesNow, PeerNow};
use crate::metrics::PulseMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use skep_policy::breaker::Change;
use skep_policy::cluster::{Kind, Rule};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

type Ratio = Gauge<f64, AtomicU64>;

/// What a node counts about its cluster; clones are the same.
#[derive(Clone)]
pub struct ClusterMetrics {
    /// Of heartbeats and wakes.
    pub pulse: PulseMetrics,
    decisions: Family<RuleLabels, Counter>,
    /// One for each rule, so that a decision looks nothing up and takes no lock.
    by_rule: [Counter; Rule::ALL.len()],
    moved: Family<KindLabels, Counter>,
    breakers: Family<ChangeLabels, Counter>,
    refused: Family<ReasonLabels, Counter>,
    forwarded: Family<NodeLabels, Counter>,
    failed: Family<NodeLabels, Counter>,
    fell_back: Family<NodeLabels, Counter>,
    under_way: Family<NodeLabels, Gauge<i64, AtomicI64>>,
    connections: Family<NodeLabels, Gauge<i64, AtomicI64>>,
    score: Ratio,
    imbalance: Ratio,
    entries: Gauge,
    handed_over: Counter,
    outcomes: OutcomeMetrics,
    /// What was added to the counters of each node so far.
    added: Arc<Mutex<HashMap<String, [u64; 3]>>>,
}

/// What is remembered for nodes that ask again.
#[derive(Clone, Default)]
struct OutcomeMetrics {
    known: Gauge,
    bytes: Gauge,
    again: Counter,
    crowded_out: Counter,
}

impl OutcomeMetrics {
    fn register(&self, registry: &mut Registry) {
        let known = "Answers to requests of other nodes that are kept in case they ask again";
        registry.register("skep_cluster_outcomes", known, self.known.clone());
        let bytes = "Memory that these answers take";
        registry.register("skep_cluster_outcomes_bytes", bytes, self.bytes.clone());
        let again = "Requests of other nodes that got the answer of an earlier one";
        registry.register("skep_cluster_outcomes_repeated", again, self.again.clone());
        let crowded_out = "Answers that were forgotten before their time, for want of room";
        registry.register("skep_cluster_outcomes_crowded_out", crowded_out, {
            self.crowded_out.clone()
        });
    }

    fn refresh(&self, now: &OutcomesNow) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.known.set(number(now.known));
        self.bytes.set(number(now.bytes));
        for (counter, now) in
            [(&self.again, now.answered_again), (&self.crowded_out, now.crowded_out)]
        {
            counter.inc_by(now.saturating_sub(counter.get()));
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    change: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

impl Default for ClusterMetrics {
    fn default() -> Self {
        let decisions = Family::<RuleLabels, Counter>::default();
        let of = |rule: Rule| decisions.get_or_create(&RuleLabels { rule: rule.as_str() }).clone();
        ClusterMetrics {
            by_rule: Rule::ALL.map(of),
            pulse: PulseMetrics::default(),
            moved: Family::default(),
            breakers: Family::default(),
            refused: Family::default(),
            forwarded: Family::default(),
            failed: Family::default(),
            fell_back: Family::default(),
            under_way: Family::default(),
            connections: Family::default(),
            score: Ratio::default(),
            imbalance: Ratio::default(),
            entries: Gauge::default(),
            handed_over: Counter::default(),
            outcomes: OutcomeMetrics::default(),
            added: Arc::default(),
            decisions,
        }
    }
}

impl ClusterMetrics {
    /// Adds them to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        self.pulse.register(registry);
        let mut add = |name: &str, help: &str, metric: &Family<NodeLabels, Counter>| {
            registry.register(name, help, metric.clone());
        };
        add("skep_cluster_forwarded", "Requests that another node answered", &self.forwarded);
        add("skep_cluster_forward_failures", "Exchanges without an answer", &self.failed);
        add(
            "skep_cluster_fell_back",
            "Requests meant for another node that were done elsewhere because it failed",
            &self.fell_back,
        );
        registry.register(
            "skep_cluster_decisions",
            "Where requests were served, by the rule that decided",
            self.decisions.clone(),
        );
        registry.register("skep_cluster_moves", "Keys that moved, by why", self.moved.clone());
        registry.register(
            "skep_cluster_breaker_changes",
            "What breakers of other nodes did",
            self.breakers.clone(),
        );
        registry.register(
            "skep_cluster_hops_refused",
            "Requests whose hop header was not believed, by why",
            self.refused.clone(),
        );
        registry.register(
            "skep_cluster_forwards_under_way",
            "Requests on their way to another node",
            self.under_way.clone(),
        );
        registry.register(
            "skep_cluster_connections_free",
            "Connections to another node that wait for a request",
            self.connections.clone(),
        );
        registry.register(
            "skep_cluster_load_score",
            "How busy this node is, from 0 to 1, smoothed",
            self.score.clone(),
        );
        registry.register(
            "skep_cluster_imbalance",
            "How much more the busiest healthy node has to do than the least busy one",
            self.imbalance.clone(),
        );
        registry.register(
            "skep_cluster_affinity_entries",
            "Keys that this node has seen lately",
            self.entries.clone(),
        );
        registry.register(
            "skep_cluster_pops_handed_over",
            "Pops that waited here and went on at another node when this one stopped",
            self.handed_over.clone(),
        );
        self.outcomes.register(registry);
    }

    pub(crate) fn decided(&self, rule: Rule) {
        self.by_rule[rule as usize].inc();
    }

    pub(crate) fn moved(&self, kind: Kind) {
        self.moved.get_or_create(&KindLabels { kind: kind.as_str() }).inc();
    }

    pub(crate) fn breaker(&self, change: &Change) {
        let change = match change {
            Change::Opened { .. } => "opened",
            Change::HalfOpened => "half-opened",
            Change::Closed => "closed",
        };
        self.breakers.get_or_create(&ChangeLabels { change }).inc();
    }

    /// A pop that waited here goes on waiting at another node, because this one stops.
    pub fn handed_over(&self) {
        self.handed_over.inc();
    }

    /// A hop header was not believed.
    pub fn refused_hop(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// What is remembered for nodes that ask again.
    pub(crate) fn remembers(&self, now: &OutcomesNow) {
        self.outcomes.refresh(now);
    }

    pub(crate) fn refresh(&self, score: f64, imbalance: f64, entries: u64, peers: &[PeerNow]) {
        self.score.set(score);
        self.imbalance.set(imbalance);
        self.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        for peer in peers {
            let node = NodeLabels { node: peer.name.to_string() };
            let before = added.entry(node.node.clone()).or_default();
            let counters = [
                (&self.forwarded, peer.forwarded),
                (&self.failed, peer.failed),
                (&self.fell_back, peer.fell_back),
            ];
            for ((family, now), before) in counters.into_iter().zip(before) {
                // A node that left and came back counts from the start again.
                let more = if now < *before { now } else { now - *before };
                family.get_or_create(&node).inc_by(more);
                *before = now;
            }
            self.under_way.get_or_create(&node).set(i64::from(peer.in_flight));
            let free = i64::try_from(peer.free).unwrap_or(i64::MAX);
            self.connections.get_or_create(&node).set(free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_the_counter_of_its_name() {
        let metrics = ClusterMetrics::default();
        for rule in Rule::ALL {
            metrics.decided(rule);
            let labels = RuleLabels { rule: rule.as_str() };
            assert_eq!(metrics.decisions.get_or_create(&labels).get(), 1, "{rule:?}");
        }
    }

    #[test]
    fn what_nodes_count_is_added_once_and_a_node_that_comes_back_counts_on() {
        let metrics = ClusterMetrics::default();
        let peer = |forwarded| PeerNow {
            name: "b".parse().expect("is a name"),
            url: "http://b:1".into(),
            in_flight: 3,
            free: 2,
            forwarded,
            failed: 0,
            fell_back: 0,
            connects: 1,
            hop_p50_us: None,
            hop_p99_us: None,
        };
        for forwarded in [5, 5, 7, 2] {
            metrics.refresh(0.5, 0.1, 9, &[peer(forwarded)]);
        }
        let node = NodeLabels { node: "b".into() };
        assert_eq!(metrics.forwarded.get_or_create(&node).get(), 9);
        assert_eq!(metrics.under_way.get_or_create(&node).get(), 3);
    }

    #[test]
    fn what_is_remembered_is_shown_and_what_happened_to_it_is_added_once() {
        let metrics = ClusterMetrics::default();
        for (known, answered_again) in [(3, 1), (2, 1), (0, 4)] {
            let bytes = 100 * known;
            metrics.remembers(&OutcomesNow { known, bytes, answered_again, ..Default::default() });
        }
        let told = &metrics.outcomes;
        assert_eq!((told.known.get(), told.bytes.get(), told.again.get()), (0, 0, 4));
        assert_eq!(told.crowded_out.get(), 0);
    }
}
