//! What a gateway counts.

use crate::desk::EndedBy;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;

/// The counters; clones are the same.
#[derive(Clone)]
pub struct GatewayMetrics {
    pub(crate) connections: Gauge,
    pub(crate) sessions: Gauge,
    upgrades: Family<OutcomeLabels, Counter>,
    beginnings: Arc<Beginnings>,
    hedges: Counter,
    up: Counter,
    down: Counter,
    bytes: Family<DirectionLabels, Counter>,
    dial: Histogram,
    ended: Family<ByLabels, Counter>,
}

/// What is counted before there is a session; apart, because each session has a clone of the rest.
#[derive(Default)]
struct Beginnings {
    refusals: Family<CodeLabels, Counter>,
    dials: Family<WhyLabels, Counter>,
    tls_handshakes: Family<OutcomeLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLabels {
    by: &'static str,
}

/// What came of a client's wish for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Carried,
    Refused,
    /// The worker refused it.
    Answered,
    /// The client left before.
    Left,
}

impl Default for GatewayMetrics {
    fn default() -> Self {
        let bytes: Family<DirectionLabels, Counter> = Family::default();
        // Looked up once: they are counted while sessions are carried.
        let of = |direction| bytes.get_or_create(&DirectionLabels { direction }).clone();
        GatewayMetrics {
            connections: Gauge::default(),
            sessions: Gauge::default(),
            upgrades: Family::default(),
            beginnings: Arc::default(),
            hedges: Counter::default(),
            up: of("up"),
            down: of("down"),
            bytes,
            dial: Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            ended: Family::default(),
        }
    }
}

impl GatewayMetrics {
    /// Adds them to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "skep_gateway_connections",
            "Connections of clients, sessions among them",
            self.connections.clone(),
        );
        registry.register(
            "skep_gateway_sessions",
            "Sessions that are being carried",
            self.sessions.clone(),
        );
        registry.register(
            "skep_gateway_upgrades",
            "Wishes for a session, by what came of them: carried, refused, answered (the worker \
             refused it) or left (the client did not wait)",
            self.upgrades.clone(),
        );
        registry.register(
            "skep_gateway_refusals",
            "Refusals of the gateway and its desk, by code",
            self.beginnings.refusals.clone(),
        );
        registry.register(
            "skep_gateway_dial_failures",
            "Workers that gave no session, by why",
            self.beginnings.dials.clone(),
        );
        registry.register(
            "skep_gateway_hedges",
            "Workers that were dialled beside another that was slow or had failed",
            self.hedges.clone(),
        );
        registry.register(
            "skep_gateway_bytes",
            "Bytes carried: up from clients to workers, and down",
            self.bytes.clone(),
        );
        registry.register(
            "skep_gateway_dial_seconds",
            "From dialling a worker to its answer",
            self.dial.clone(),
        );
        registry.register(
            "skep_gateway_sessions_ended",
            "Sessions that have ended, by who or what ended them",
            self.ended.clone(),
        );
        registry.register(
            "skep_gateway_tls_handshakes",
            "TLS handshakes, by what came of them: done, failed, timeout, stopped (the gateway \
             was) or no_certificate (nobody has one)",
            self.beginnings.tls_handshakes.clone(),
        );
    }

    pub(crate) fn upgrade(&self, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Carried => "carried",
            Outcome::Refused => "refused",
            Outcome::Answered => "answered",
            Outcome::Left => "left",
        };
        self.upgrades.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    pub(crate) fn tls_handshake(&self, outcome: &'static str) {
        self.beginnings.tls_handshakes.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    pub(crate) fn refused(&self, code: &'static str) {
        self.beginnings.refusals.get_or_create(&CodeLabels { code }).inc();
    }

    pub(crate) fn dial_failed(&self, why: &'static str) {
        self.beginnings.dials.get_or_create(&WhyLabels { why }).inc();
    }

    pub(crate) fn dialled(&self, took: Duration) {
        self.dial.observe(took.as_secs_f64());
    }

    pub(crate) fn hedged(&self) {
        self.hedges.inc();
    }

    pub(crate) fn carried(&self, up: u64, down: u64) {
        self.up.inc_by(up);
        self.down.inc_by(down);
    }

    pub(crate) fn ended(&self, by: &EndedBy) {
        self.ended.get_or_create(&ByLabels { by: by.as_str() }).inc();
    }
}
