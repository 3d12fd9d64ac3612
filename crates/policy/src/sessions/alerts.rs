//! When does a fleet call for a person?
//!
//! | alert              | fires                                                     | clears     |
//! |--------------------|-----------------------------------------------------------|------------|
//! | `budget-too-small` | more would have to restart at once than may, for a minute | below 90 % |
//! | `workers-held`     | an idle worker waits for its restart for 30 seconds       | none waits |
//!
//! The budget is kept either way; these say what keeping it costs.

use super::KindRow;
use crate::Reason;
use serde::Serialize;

/// How long it must have been so.
const BUDGET_FOR_MS: u64 = 60_000;
const HELD_FOR_MS: u64 = 30_000;

/// What can be wrong with a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlertKind {
    /// Workers wear out faster than the budget lets them restart.
    BudgetTooSmall,
    /// Worn-out workers stand still.
    WorkersHeld,
}

impl AlertKind {
    /// The kind's name, the same in the log and the API.
    pub const fn name(self) -> &'static str {
        match self {
            AlertKind::BudgetTooSmall => "budget-too-small",
            AlertKind::WorkersHeld => "workers-held",
        }
    }
}

/// An alert that began or ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    pub kind: AlertKind,
    pub firing: bool,
    pub reason: Reason,
}

/// The alerts of one kind of worker.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    short_since: Option<u64>,
    held_since: Option<u64>,
    short: bool,
    held: bool,
}

impl Watch {
    /// Looks at the fleet; `needed` is how many would have to restart at once.
    pub fn observe(&mut self, now_ms: u64, row: &KindRow, needed: f64) -> Vec<Change> {
        let mut changes = Vec::new();
        let allowed = f64::from(row.out_max);
        let too_small = needed > allowed || (self.short && needed > 0.9 * allowed);
        let reason = || {
            Reason::new("budget")
                .with("needed", needed)
                .with("allowed", row.out_max)
                .with("held", row.standings.of(super::Standing::Held))
        };
        let lasts = lasting(&mut self.short_since, now_ms, too_small, BUDGET_FOR_MS);
        if lasts != self.short {
            self.short = lasts;
            let kind = AlertKind::BudgetTooSmall;
            changes.push(Change { kind, firing: lasts, reason: reason() });
        }
        let lasts = lasting(&mut self.held_since, now_ms, row.held_idle > 0, HELD_FOR_MS);
        if lasts != self.held {
            self.held = lasts;
            let reason = reason().with("idle", row.held_idle);
            changes.push(Change { kind: AlertKind::WorkersHeld, firing: lasts, reason });
        }
        changes
    }
}

/// Whether something has been so for long enough.
fn lasting(since: &mut Option<u64>, now_ms: u64, so: bool, long_ms: u64) -> bool {
    if !so {
        *since = None;
        return false;
    }
    now_ms.saturating_sub(*since.get_or_insert(now_ms)) >= long_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::{Rules, Standings};

    fn row(held_idle: u32) -> KindRow {
        KindRow {
            kind: "k".to_owned(),
            rules: Rules::default(),
            standings: Standings::default(),
            slots: 0,
            active: 0,
            free: 0,
            waiting: 0,
            out: 1,
            out_max: 1,
            held_idle,
            started: 0,
            recycled: 0,
            out_ms: 0,
        }
    }

    fn told(changes: &[Change]) -> Vec<(&'static str, bool)> {
        changes.iter().map(|change| (change.kind.name(), change.firing)).collect()
    }

    #[test]
    fn a_budget_that_cannot_keep_up_fires_after_a_minute_and_clears_below_its_edge() {
        let mut watch = Watch::default();
        assert_eq!(watch.observe(0, &row(0), 1.5), []);
        assert_eq!(watch.observe(59_999, &row(0), 1.5), []);
        let fired = watch.observe(60_000, &row(0), 1.5);
        assert_eq!(told(&fired), [("budget-too-small", true)]);
        assert_eq!(fired[0].reason.to_string(), "budget: needed 1.500, allowed 1, held 0");
        assert_eq!(watch.observe(61_000, &row(0), 0.95), [], "within the edge");
        assert_eq!(told(&watch.observe(62_000, &row(0), 0.85)), [("budget-too-small", false)]);
    }

    #[test]
    fn idle_workers_that_wait_for_their_restart_fire_after_half_a_minute() {
        let mut watch = Watch::default();
        assert_eq!(watch.observe(0, &row(2), 0.0), []);
        assert_eq!(watch.observe(10_000, &row(0), 0.0), []);
        assert_eq!(watch.observe(20_000, &row(1), 0.0), []);
        assert_eq!(told(&watch.observe(50_000, &row(1), 0.0)), [("workers-held", true)]);
        assert_eq!(told(&watch.observe(51_000, &row(0), 0.0)), [("workers-held", false)]);
    }
}
