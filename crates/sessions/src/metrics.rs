//! What a node counts about sessions and workers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use skep_policy::sessions::{KindRow, Policy, Seat, Standing, rule};
use std::sync::atomic::AtomicU64;

/// The counters; clones are the same.
#[derive(Clone)]
pub struct SessionsMetrics {
    choices: Family<RuleLabels, Counter>,
    refusals: Family<WhyLabels, Counter>,
    workers: Family<StandingLabels, Gauge>,
    slots: Family<KindLabels, Gauge>,
    active: Family<KindLabels, Gauge>,
    waiting: Family<KindLabels, Gauge>,
    out: Family<KindLabels, Gauge>,
    out_max: Family<KindLabels, Gauge>,
    out_needed: Family<KindLabels, Gauge<f64, AtomicU64>>,
    recycled: Family<KindLabels, Gauge>,
    registrations: Counter,
    lifetimes: Histogram,
    rejoined: Counter,
    reaped: Counter,
    uncounted: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StandingLabels {
    kind: String,
    standing: &'static str,
}

/// Sessions in a life; the default limit and what lies around it.
const LIFETIME_BUCKETS: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 45.0, 50.0, 100.0, 1_000.0, 10_000.0];

impl Default for SessionsMetrics {
    fn default() -> Self {
        SessionsMetrics {
            choices: Family::default(),
            refusals: Family::default(),
            workers: Family::default(),
            slots: Family::default(),
            active: Family::default(),
            waiting: Family::default(),
            out: Family::default(),
            out_max: Family::default(),
            out_needed: Family::default(),
            recycled: Family::default(),
            registrations: Counter::default(),
            lifetimes: Histogram::new(LIFETIME_BUCKETS),
            rejoined: Counter::default(),
            reaped: Counter::default(),
            uncounted: Gauge::default(),
        }
    }
}

impl SessionsMetrics {
    /// Adds them to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "skep_session_choices",
            "Sessions that this node gave a worker, by the rule that chose it",
            self.choices.clone(),
        );
        registry.register(
            "skep_session_refusals",
            "Sessions that this node could give no worker, by why",
            self.refusals.clone(),
        );
        registry.register(
            "skep_session_workers",
            "Workers of the installation, by kind and standing; held ones wait for the budget",
            self.workers.clone(),
        );
        registry.register("skep_session_slots", "Slots of live workers", self.slots.clone());
        registry.register("skep_session_active", "Slots that are taken", self.active.clone());
        registry.register(
            "skep_session_waiting",
            "Sessions that wait for a worker",
            self.waiting.clone(),
        );
        registry.register(
            "skep_session_workers_out",
            "Workers that restart because they were told to",
            self.out.clone(),
        );
        registry.register(
            "skep_session_budget",
            "Workers that may restart at once",
            self.out_max.clone(),
        );
        registry.register(
            "skep_session_budget_needed",
            "Workers that would have to restart at once to keep up: sessions begun per second \
             over the last minute, divided by the limit, times the seconds a worker is away",
            self.out_needed.clone(),
        );
        registry.register(
            "skep_session_recycled",
            "Workers that came back from a restart they were told to make, since the table began",
            self.recycled.clone(),
        );
        registry.register(
            "skep_session_registrations",
            "Registrations of workers at this node",
            self.registrations.clone(),
        );
        registry.register(
            "skep_session_lifetime",
            "Sessions in the lives of workers that ended, as this node saw them",
            self.lifetimes.clone(),
        );
        registry.register(
            "skep_session_rejoined",
            "Times this gateway said again what it carries, because it could not know what became \
             of a question",
            self.rejoined.clone(),
        );
        registry.register(
            "skep_session_gateways_reaped",
            "Gateways that this one found dead, and whose sessions it took back",
            self.reaped.clone(),
        );
        registry.register(
            "skep_session_uncounted",
            "Sessions of this gateway whose worker the table does not know (yet)",
            self.uncounted.clone(),
        );
    }

    pub(crate) fn chosen(&self, policy: Policy, seat: &Seat) {
        let reason = rule(policy, seat.due);
        self.choices.get_or_create(&RuleLabels { reason }).inc();
    }

    pub(crate) fn refused(&self, why: &'static str) {
        self.refusals.get_or_create(&WhyLabels { why }).inc();
    }

    pub(crate) fn registered(&self) {
        self.registrations.inc();
    }

    pub(crate) fn life_ended(&self, lifetime: u32) {
        self.lifetimes.observe(f64::from(lifetime));
    }

    pub(crate) fn rejoined(&self) {
        self.rejoined.inc();
    }

    pub(crate) fn reaped(&self, count: u32) {
        self.reaped.inc_by(u64::from(count));
    }

    pub(crate) fn uncounted(&self, count: usize) {
        self.uncounted.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn kind(&self, row: &KindRow, needed: f64) {
        let labels = KindLabels { kind: row.kind.clone() };
        for standing in Standing::ALL {
            let labels = StandingLabels { kind: row.kind.clone(), standing: standing.name() };
            self.workers.get_or_create(&labels).set(i64::from(row.standings.of(standing)));
        }
        let set = |family: &Family<KindLabels, Gauge>, value: u64| {
            family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.slots, row.slots);
        set(&self.active, row.active);
        set(&self.waiting, u64::from(row.waiting));
        set(&self.out, u64::from(row.out));
        set(&self.out_max, u64::from(row.out_max));
        set(&self.recycled, row.recycled);
        self.out_needed.get_or_create(&labels).set(needed);
    }
}
