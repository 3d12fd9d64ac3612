//! The choice made plainly: everybody is looked at, and told why not.

use super::{Policy, Rules, Seat, Shape, Standing, WorkerRow, is_due, rank, rule};
use crate::{Decision, Reason};

/// A worker as the choice sees it.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub number: u64,
    pub name: &'a str,
    pub shape: &'a Shape,
    pub standing: Standing,
    pub lifetime: u32,
    pub active: u32,
    pub slots: u32,
    pub due_at: Option<u32>,
    /// It asked to be recycled.
    pub reported: bool,
}

impl<'a> From<&'a WorkerRow> for Candidate<'a> {
    fn from(row: &'a WorkerRow) -> Self {
        Candidate {
            number: row.number,
            name: &row.name,
            shape: &row.shape,
            standing: row.standing,
            lifetime: row.lifetime,
            active: row.active,
            slots: row.slots,
            due_at: row.due_at,
            reported: row.due_by.is_some(),
        }
    }
}

/// Chooses among `workers` of one kind, and says of everybody else why not.
pub fn scan(rules: &Rules, want: &super::Want, workers: &[Candidate<'_>]) -> Decision<Option<u64>> {
    let place = |worker: &Candidate<'_>| {
        let due = is_due(rules, worker.due_at, worker.lifetime, worker.reported);
        let rank = rank(rules.policy, due, worker.lifetime, worker.active, worker.slots);
        (due, rank, worker.number)
    };
    let open = |worker: &&Candidate<'_>| worker.standing.is_open() && want.fits(worker.shape);
    let Some(best) = workers.iter().filter(open).min_by_key(|worker| place(worker)) else {
        let rejected = workers.iter().map(|worker| (worker.name, not_open(want, worker)));
        let reason = Reason::new("nobody-free").with("workers", workers.len() as u64);
        let all = |reason: Reason, (who, rule): (&str, _)| reason.rejecting(who, rule);
        return rejected.fold(reason, all).choose(None);
    };
    let (due, ..) = place(best);
    let mut reason = Reason::new(rule(rules.policy, due))
        .with("lifetime", best.lifetime)
        .with("lifetime_max", rules.lifetime_max)
        .with("active", best.active)
        .with("slots", best.slots);
    for worker in workers.iter().filter(|worker| worker.number != best.number) {
        let rule = if open(&worker) {
            behind(rules.policy, place(worker).0, due)
        } else {
            not_open(want, worker)
        };
        reason = reason.rejecting(worker.name, rule);
    }
    reason.choose(Some(best.number))
}

fn not_open(want: &super::Want, worker: &Candidate<'_>) -> &'static str {
    if want.fits(worker.shape) { worker.standing.name() } else { "does-not-fit" }
}

/// Why a worker that could have been chosen was not.
fn behind(policy: Policy, due: bool, best_due: bool) -> &'static str {
    match policy {
        Policy::LifetimeFirst if due && !best_due => "within-margin",
        Policy::LifetimeFirst => "lower-lifetime-or-more-active",
        Policy::Budgeted if due && !best_due => "due",
        Policy::Budgeted if best_due => "emptier-or-nearer-to-its-limit",
        Policy::Budgeted => "more-loaded-or-lower-lifetime",
        Policy::LeastLoaded => "more-loaded",
    }
}

/// The decision behind a seat, from the numbers that came with it.
pub fn why(rules: &Rules, seat: &Seat) -> Decision<String> {
    let numbers = Reason::new(rule(rules.policy, seat.due))
        .with("lifetime", seat.lifetime - 1)
        .with("lifetime_max", rules.lifetime_max)
        .with("active", seat.active - 1)
        .with("slots", seat.slots);
    let counted = |reason: Reason, standing: Standing| match seat.standings.of(standing) {
        0 => reason,
        count => reason.with(standing.name(), count),
    };
    Standing::ALL.into_iter().fold(numbers, counted).choose(seat.name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::Want;

    /// A worker's name, lifetime, active sessions.
    type Line = (&'static str, u32, u32);

    fn chosen(lifetime_max: u32, fleet: &[Line]) -> Decision<Option<u64>> {
        let rules = Rules { policy: Policy::LifetimeFirst, lifetime_max, ..Rules::default() };
        let shape = Shape::default();
        let workers: Vec<Candidate<'_>> = fleet
            .iter()
            .zip(1..)
            .map(|(&(name, lifetime, active), number)| Candidate {
                number,
                name,
                shape: &shape,
                standing: match () {
                    () if lifetime >= lifetime_max => Standing::Held,
                    () if active >= rules.slots => Standing::Full,
                    () => Standing::Ready,
                },
                lifetime,
                active,
                slots: rules.slots,
                due_at: rules.due_at(number, false, u32::try_from(fleet.len()).expect("few")),
                reported: false,
            })
            .collect();
        scan(&rules, &Want::default(), &workers)
    }

    #[test]
    fn scenario_1_normal_operation_takes_the_longest_serving_below_the_margin() {
        let decision = chosen(20, &[("A", 18, 2), ("B", 12, 1), ("C", 8, 0), ("D", 3, 1)]);
        assert_eq!(decision.chosen, Some(2));
        assert_eq!(
            decision.reason.to_string(),
            "highest-lifetime: lifetime 12, lifetime_max 20, active 1, slots 5; not A \
             (within-margin), C (lower-lifetime-or-more-active), D (lower-lifetime-or-more-active)"
        );
    }

    #[test]
    fn scenario_2_a_small_cluster_under_load_falls_back_to_the_longest_serving() {
        let decision = chosen(10, &[("A", 8, 3), ("B", 7, 2)]);
        assert_eq!(decision.chosen, Some(1));
        assert_eq!(decision.reason.rule, "highest-lifetime-within-margin");
    }

    #[test]
    fn scenario_3_a_worker_alone_is_always_a_fallback() {
        let decision = chosen(4, &[("A", 2, 0)]);
        assert_eq!(decision.chosen, Some(1));
        assert_eq!(decision.reason.rule, "highest-lifetime-within-margin");
    }

    #[test]
    fn scenario_4_a_worker_one_below_its_limit_is_left_alone_while_others_can() {
        let all = [("A", 9, 1), ("B", 7, 2), ("C", 5, 0)];
        assert_eq!(chosen(10, &all).chosen, Some(3));
        assert_eq!(chosen(10, &[("A", 9, 1), ("B", 7, 2), ("C", 5, 5)]).chosen, Some(1));
        let without_c = chosen(10, &all[..2]);
        assert_eq!(without_c.chosen, Some(1));
        assert_eq!(without_c.reason.rule, "highest-lifetime-within-margin");
        assert_eq!(chosen(10, &[("A", 10, 1), ("B", 7, 2)]).chosen, Some(2));
    }

    #[test]
    fn nobody_free_says_of_everybody_why() {
        let decision = chosen(10, &[("A", 10, 0), ("B", 10, 1)]);
        assert_eq!(decision.chosen, None);
        assert_eq!(decision.reason.to_string(), "nobody-free: workers 2; not A (held), B (held)");
    }
}
