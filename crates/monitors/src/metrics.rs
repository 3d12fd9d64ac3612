//! What a node counts about its reviews and the samples it takes. No label names a server or a
//! monitor: those are in the API and in the log, and a registry must stay small.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use skep_policy::monitors::{Kind, Plan, Rule, State, Status};
use std::time::Duration;

/// The counters; clones are the same.
#[derive(Clone)]
pub struct MonitorsMetrics {
    changes: Family<ChangeLabels, Counter>,
    violations: Family<ViolationLabels, Counter>,
    grandfathered: Family<KindLabels, Gauge>,
    blocked: Family<KindLabels, Gauge>,
    took: Histogram,
    evaluated: Counter,
    applied: Counter,
    failed: Counter,
    pools: Family<StatusLabels, Gauge>,
    globally_active: Gauge,
    samples: Family<ResultLabels, Counter>,
    reviews: Family<ResultLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    from_status: &'static str,
    to_status: &'static str,
    rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ViolationLabels {
    constraint_type: &'static str,
    is_grandfathered: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    constraint_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// How many of one server's monitors are held back by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Blocked, by the order of [`Kind::ALL`].
    pub blocked: [u32; 4],
    /// In service beyond a limit that was lowered, the same.
    pub grandfathered: [u32; 4],
}

impl Held {
    /// What a plan leaves behind.
    pub fn of(plan: &Plan) -> Self {
        let mut held = Held::default();
        for verdict in &plan.verdicts {
            let Some(first) = verdict.violations().next() else { continue };
            if verdict.state == State::Block {
                held.blocked[first as usize] += 1;
            } else if first.is_grandfathered() && plan.status_after(verdict).in_service() {
                held.grandfathered[first as usize] += 1;
            }
        }
        held
    }

    /// Adds another server's.
    pub fn add(&mut self, other: &Held) {
        for place in 0..self.blocked.len() {
            self.blocked[place] += other.blocked[place];
            self.grandfathered[place] += other.grandfathered[place];
        }
    }
}

/// The changes that reviews make. They are counted from the start, so that none is missed.
const CHANGES: [(Status, Status, Rule); 13] = [
    (Status::Candidate, Status::Paused, Rule::Block),
    (Status::Testing, Status::Paused, Rule::Block),
    (Status::Active, Status::Paused, Rule::Block),
    (Status::Active, Status::Testing, Rule::Remove),
    (Status::Testing, Status::Candidate, Rule::Remove),
    (Status::Active, Status::Testing, Rule::ActiveExcess),
    (Status::Testing, Status::Active, Rule::ToActive),
    (Status::Active, Status::Testing, Rule::ToActive),
    (Status::Candidate, Status::Testing, Rule::ToTesting),
    (Status::Testing, Status::Candidate, Rule::ToTesting),
    (Status::Testing, Status::Candidate, Rule::TestingExcess),
    (Status::Candidate, Status::Testing, Rule::Bootstrap),
    (Status::Paused, Status::Candidate, Rule::Recheck),
];

impl Default for MonitorsMetrics {
    fn default() -> Self {
        MonitorsMetrics {
            changes: Family::default(),
            violations: Family::default(),
            grandfathered: Family::default(),
            blocked: Family::default(),
            took: Histogram::new(exponential_buckets(0.001, 2.0, 12)),
            evaluated: Counter::default(),
            applied: Counter::default(),
            failed: Counter::default(),
            pools: Family::default(),
            globally_active: Gauge::default(),
            samples: Family::default(),
            reviews: Family::default(),
        }
    }
}

impl MonitorsMetrics {
    /// Adds them to a node's registry.
    pub fn register(&self, registry: &mut Registry) {
        for kind in Kind::ALL {
            drop(self.violations.get_or_create(&violation(kind)));
            drop(self.grandfathered.get_or_create(&constraint(kind)));
            drop(self.blocked.get_or_create(&constraint(kind)));
        }
        for (from, to, rule) in CHANGES {
            drop(self.changes.get_or_create(&change(from, to, rule)));
        }
        for status in Status::ALL {
            drop(self.pools.get_or_create(&StatusLabels { status: status.as_str() }));
        }
        for result in ["changed", "unchanged", "fenced", "stale", "failed"] {
            drop(self.reviews.get_or_create(&ResultLabels { result }));
        }
        for result in ["accepted", "known", "refused"] {
            drop(self.samples.get_or_create(&ResultLabels { result }));
        }
        registry.register(
            "selector_status_changes",
            "Assignments that became something else, by what they were, what they became and the \
             rule",
            self.changes.clone(),
        );
        registry.register(
            "selector_constraint_violations",
            "Violations that began, by constraint and whether the assignment may leave gradually",
            self.violations.clone(),
        );
        registry.register(
            "selector_grandfathered_violations",
            "Assignments in service beyond a limit that was lowered, in the servers that this node \
             reviewed last",
            self.grandfathered.clone(),
        );
        registry.register(
            "selector_constraint_blocked_monitors",
            "Assignments that a constraint blocks, in the servers that this node reviewed last",
            self.blocked.clone(),
        );
        registry.register(
            "selector_process_duration_seconds",
            "How long the review of one server took",
            self.took.clone(),
        );
        registry.register(
            "selector_monitors_evaluated",
            "Assignments that reviews looked at",
            self.evaluated.clone(),
        );
        registry.register(
            "selector_changes_applied",
            "Changes that were applied, by reviews and by hand",
            self.applied.clone(),
        );
        registry.register(
            "selector_changes_failed",
            "Changes that were decided and not applied: another node was first, something had \
             changed, or the database failed",
            self.failed.clone(),
        );
        registry.register(
            "selector_monitor_pool_size",
            "Assignments of the installation, by status",
            self.pools.clone(),
        );
        registry.register(
            "selector_globally_active_monitors",
            "Monitors of the installation that are globally active",
            self.globally_active.clone(),
        );
        registry.register(
            "skep_monitor_samples",
            "Samples that monitors reported to this node, by what became of them",
            self.samples.clone(),
        );
        registry.register(
            "skep_monitor_reviews",
            "Reviews of servers by this node, by what came of them",
            self.reviews.clone(),
        );
    }

    pub(crate) fn changed(&self, from: Status, to: Status, rule: Rule) {
        self.changes.get_or_create(&change(from, to, rule)).inc();
        self.applied.inc();
    }

    pub(crate) fn began(&self, kind: Kind) {
        self.violations.get_or_create(&violation(kind)).inc();
    }

    pub(crate) fn reviewed(&self, result: &'static str, took: Duration) {
        self.reviews.get_or_create(&ResultLabels { result }).inc();
        self.took.observe(took.as_secs_f64());
    }

    pub(crate) fn evaluated(&self, assignments: usize) {
        self.evaluated.inc_by(assignments as u64);
    }

    pub(crate) fn not_applied(&self, changes: usize) {
        self.failed.inc_by(changes as u64);
    }

    pub(crate) fn sampled(&self, result: &'static str, count: u64) {
        if count > 0 {
            self.samples.get_or_create(&ResultLabels { result }).inc_by(count);
        }
    }

    pub(crate) fn set_held(&self, held: &Held) {
        for kind in Kind::ALL {
            let (blocked, grandfathered) =
                (held.blocked[kind as usize], held.grandfathered[kind as usize]);
            self.blocked.get_or_create(&constraint(kind)).set(blocked.into());
            self.grandfathered.get_or_create(&constraint(kind)).set(grandfathered.into());
        }
    }

    pub(crate) fn set_pool(&self, status: Status, size: u64) {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        self.pools.get_or_create(&StatusLabels { status: status.as_str() }).set(size);
    }

    pub(crate) fn set_globally_active(&self, count: u64) {
        self.globally_active.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

fn change(from: Status, to: Status, rule: Rule) -> ChangeLabels {
    let (from_status, to_status, rule) = (from.as_str(), to.as_str(), rule.as_str());
    ChangeLabels { from_status, to_status, rule }
}

fn constraint(kind: Kind) -> KindLabels {
    KindLabels { constraint_type: kind.as_str() }
}

fn violation(kind: Kind) -> ViolationLabels {
    let is_grandfathered = if kind.is_grandfathered() { "true" } else { "false" };
    ViolationLabels { constraint_type: kind.as_str(), is_grandfathered }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn whatever_happens_there_are_at_most_two_hundred_series() {
        let (metrics, mut registry) = (MonitorsMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        for from in Status::ALL {
            for to in Status::ALL.into_iter().filter(|to| *to != from) {
                for rule in Rule::ALL {
                    metrics.changed(from, to, rule);
                }
            }
        }
        Kind::ALL.into_iter().for_each(|kind| metrics.began(kind));
        let mut text = String::new();
        encode(&mut text, &registry).expect("writes");
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!((96..=200).contains(&series), "{series} series:\n{text}");
        for forbidden in ["server=", "monitor=", "server_id", "monitor_id"] {
            assert!(!text.contains(forbidden), "{text}");
        }
    }
}
