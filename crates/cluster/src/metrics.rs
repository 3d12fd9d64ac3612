//! What a node counts about the others.

use crate::membership::State;
use crate::wire::Refusal;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::collections::BTreeMap;

/// The counters of a [`Pulse`](crate::Pulse); clones are the same.
#[derive(Clone, Default)]
pub struct PulseMetrics {
    sent: Family<KindLabels, Counter>,
    received: Family<KindLabels, Counter>,
    rejected: Family<ReasonLabels, Counter>,
    members: Family<StateLabels, Gauge>,
    pub(crate) unsent: Counter,
    pub(crate) wakes_sent: Counter,
    pub(crate) wakes_received: Counter,
    pub(crate) wakes_dropped: Counter,
    pub(crate) moves_dropped: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// What was counted, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PulseCounts {
    /// Heartbeats.
    pub heartbeats: HeartbeatCounts,
    /// Wakes, one for each queue and node.
    pub wakes: WakeCounts,
}

/// Heartbeats, and datagrams that were not believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeartbeatCounts {
    /// Sent.
    pub sent: u64,
    /// Received and believed, greetings included.
    pub received: u64,
    /// Datagrams of any kind that could not be sent.
    pub unsent: u64,
    /// Datagrams of any kind that were not believed, by why.
    pub rejected: BTreeMap<&'static str, u64>,
}

/// Wakes, one for each queue and node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WakeCounts {
    /// Sent.
    pub sent: u64,
    /// Datagrams that these were sent in.
    pub datagrams: u64,
    /// Received.
    pub received: u64,
    /// Not sent, because too many waited.
    pub dropped: u64,
}

/// Every word for why a datagram is not believed.
const REASONS: [&str; 6] = ["crowded", "forged", "malformed", "replayed", "stale", "version"];

impl PulseMetrics {
    /// Adds them to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "skep_cluster_datagrams_sent",
            "Datagrams sent to other nodes, by kind",
            self.sent.clone(),
        );
        registry.register(
            "skep_cluster_datagrams_received",
            "Datagrams of other nodes that were believed, by kind",
            self.received.clone(),
        );
        registry.register(
            "skep_cluster_datagrams_rejected",
            "Datagrams that were not believed, by why",
            self.rejected.clone(),
        );
        registry.register(
            "skep_cluster_datagrams_unsent",
            "Datagrams that the system did not send",
            self.unsent.clone(),
        );
        registry.register(
            "skep_cluster_members",
            "Other nodes that this one knows, by state",
            self.members.clone(),
        );
        registry.register(
            "skep_cluster_wakes_sent",
            "Wakes sent to nodes with consumers, one for each queue and node",
            self.wakes_sent.clone(),
        );
        registry.register(
            "skep_cluster_wakes_received",
            "Wakes received, one for each queue",
            self.wakes_received.clone(),
        );
        registry.register(
            "skep_cluster_wakes_dropped",
            "Wakes that were not sent because too many waited",
            self.wakes_dropped.clone(),
        );
        registry.register(
            "skep_cluster_moves_dropped",
            "Moves of keys that were not told because too many waited",
            self.moves_dropped.clone(),
        );
    }

    /// What was counted, for people.
    pub fn counts(&self) -> PulseCounts {
        // One after the other: a counter that is held keeps others from being made.
        let of = |family: &Family<KindLabels, Counter>, kind| {
            let counter = family.get_or_create(&KindLabels { kind });
            counter.get()
        };
        let (sent, received) = (of(&self.sent, "heartbeat"), of(&self.received, "heartbeat"));
        let datagrams = of(&self.sent, "wake");
        let rejected = |reason| {
            let counter = self.rejected.get_or_create(&ReasonLabels { reason });
            (reason, counter.get())
        };
        let rejected = REASONS.into_iter().map(rejected).collect();
        let unsent = self.unsent.get();
        PulseCounts {
            heartbeats: HeartbeatCounts { sent, received, unsent, rejected },
            wakes: WakeCounts {
                sent: self.wakes_sent.get(),
                datagrams,
                received: self.wakes_received.get(),
                dropped: self.wakes_dropped.get(),
            },
        }
    }

    pub(crate) fn sent(&self, kind: &'static str) {
        self.sent.get_or_create(&KindLabels { kind }).inc();
    }

    pub(crate) fn received(&self, kind: &'static str) {
        self.received.get_or_create(&KindLabels { kind }).inc();
    }

    pub(crate) fn rejected(&self, refusal: Refusal) {
        self.rejected.get_or_create(&ReasonLabels { reason: refusal.as_str() }).inc();
    }

    pub(crate) fn members(&self, count: impl Fn(State) -> usize) {
        for state in State::ALL {
            let gauge = self.members.get_or_create(&StateLabels { state: state.as_str() });
            gauge.set(i64::try_from(count(state)).unwrap_or(i64::MAX));
        }
    }
}
