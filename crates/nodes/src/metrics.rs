//! What a node counts about sessions and ownership.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use skep_policy::Time;
use skep_policy::ownership::{Member, NewsKind, Standing};
use std::sync::atomic::AtomicU64;

/// The counters of a node; clones are the same.
#[derive(Clone, Default)]
pub struct NodesMetrics {
    events: Family<EventLabels, Counter>,
    calls: Family<CallLabels, Counter>,
    nodes: Gauge,
    owned: Gauge,
    epoch: Gauge,
    inside: Gauge,
    trust_seconds: Gauge<f64, AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    outcome: &'static str,
}

impl NodesMetrics {
    /// Adds them to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        for kind in NewsKind::ALL {
            drop(self.events.get_or_create(&EventLabels { event: kind.name() }));
        }
        registry.register(
            "skep_lease_events",
            "What happened to this node's session and to keys it owned, by event",
            self.events.clone(),
        );
        registry.register(
            "skep_lease_calls",
            "Calls to the store in which nodes agree on who owns what, by outcome",
            self.calls.clone(),
        );
        registry.register("skep_nodes", "Nodes with a session", self.nodes.clone());
        registry.register("skep_lease_owned", "Keys that this node owns", self.owned.clone());
        registry.register(
            "skep_lease_epoch",
            "The life of the ownership table; a new one begins when its store lost something",
            self.epoch.clone(),
        );
        registry.register(
            "skep_lease_inside",
            "Whether this node has a session: 1 or 0",
            self.inside.clone(),
        );
        registry.register(
            "skep_lease_trust_seconds",
            "How long this node trusts its session without another renewal; -1 while it is alone",
            self.trust_seconds.clone(),
        );
    }

    pub(crate) fn news(&self, kind: NewsKind) {
        self.events.get_or_create(&EventLabels { event: kind.name() }).inc();
    }

    pub(crate) fn called(&self, answered: bool) {
        let outcome = if answered { "answered" } else { "lost" };
        self.calls.get_or_create(&CallLabels { outcome }).inc();
    }

    pub(crate) fn refresh(&self, member: &Member, now: Time) {
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.nodes.set(whole(member.peers().count()));
        self.owned.set(whole(member.held_count()));
        self.epoch.set(i64::try_from(member.epoch().number).unwrap_or(i64::MAX));
        self.inside.set(i64::from(member.standing() == Standing::Inside));
        let trust = member.trust_until();
        let alone = trust.as_nanos() == u64::MAX;
        self.trust_seconds.set(if alone { -1.0 } else { trust.since(now).as_secs_f64() });
    }
}
