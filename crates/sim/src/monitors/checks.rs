//! What must hold: after every review, and of the run as a whole.

use super::tally::NEVER;
use super::{Options, Outcome, Scenario};
use skep_policy::monitors::{
    Assignment, Counts, Monitor, Outcome as Verdicts, Plan, Roster, Rule, State, Status,
};
use std::net::IpAddr;

/// Changes a server and run once everything has settled, at 5 % and at 10 % of noise.
const CHURN_AT_5: f64 = 0.02;
const CHURN_AT_10: f64 = 0.05;
/// After a loss so many runs until five are active, and until seven are.
const RUNS_TO_FIVE: u32 = 2;
const RUNS_TO_SEVEN: u32 = 4;

/// What of a plan does not hold; the assignments are those after it.
pub(super) fn invariants(
    roster: &Roster,
    plan: &Plan,
    assignments: &[Assignment],
) -> Option<String> {
    for (place, change) in plan.changes.iter().enumerate() {
        if plan.changes[..place].iter().any(|other| other.monitor == change.monitor) {
            return Some(format!("monitor {} is changed twice", roster.monitor(change.monitor).id));
        }
    }
    let budget = plan.budget;
    let spent = [budget.active_removals, budget.testing_removals, budget.promotions];
    if spent.iter().any(|spent| *spent > budget.each) {
        return Some(format!("more was changed than the budget allows: {budget:?}"));
    }
    for verdict in &plan.verdicts {
        if verdict.state == State::Block && plan.status_after(verdict).in_service() {
            return Some(format!("blocked monitor {} serves", roster.monitor(verdict.monitor).id));
        }
        if let Verdicts::Changes(place) = verdict.outcome
            && plan.changes.get(place as usize).map(|one| one.monitor) != Some(verdict.monitor)
        {
            return Some("a verdict names the change of another monitor".to_owned());
        }
    }
    let mut counts = Counts { globally_active_in_testing: 0, ..Counts::default() };
    for one in assignments {
        match one.status {
            Status::Active => counts.active += 1,
            Status::Testing => counts.testing += 1,
            Status::Candidate => counts.candidate += 1,
            Status::Paused => counts.paused += 1,
        }
    }
    let told = Counts { globally_active_in_testing: 0, ..plan.after };
    if counts != told {
        return Some(format!("the plan counts {told:?}, there are {counts:?}"));
    }
    let promoted = plan.changes.iter().filter(|one| {
        matches!(one.rule, Rule::ToActive | Rule::ToTesting | Rule::Bootstrap)
            && !one.emergency
            && (one.to == Status::Active || one.from == Status::Candidate)
    });
    promoted.filter_map(|one| crowded(roster, one.monitor, assignments)).next()
}

/// What a monitor that was just promoted violates.
fn crowded(roster: &Roster, promoted: u32, assignments: &[Assignment]) -> Option<String> {
    let one = roster.monitor(promoted);
    let serving = assignments.iter().filter(|other| other.status.in_service());
    let (mut active, mut together) = (0, 0);
    for other in serving {
        let monitor = roster.monitor(other.monitor);
        if one.account.is_some() && one.account == monitor.account {
            together += 1;
            active += u32::from(other.status == Status::Active);
        }
        if other.monitor != promoted && share_a_network(one, monitor, roster) {
            let (one, other) = (&one.id, &monitor.id);
            return Some(format!("monitor {one} was promoted beside {other} of its network"));
        }
    }
    let limit = one.per_server_limit.unwrap_or(roster.settings().per_server_limit);
    let over = active > limit || together > limit + 1;
    over.then(|| {
        let id = &one.id;
        format!("monitor {id} was promoted: its account has {active} active, {together} together")
    })
}

fn share_a_network(one: &Monitor, other: &Monitor, roster: &Roster) -> bool {
    let shift = 32 - u32::from(roster.settings().diversity_v4);
    match (one.ip, other.ip) {
        (Some(IpAddr::V4(one)), Some(IpAddr::V4(other))) => {
            one.to_bits() >> shift == other.to_bits() >> shift
        }
        _ => false,
    }
}

/// What of the run as a whole does not hold.
pub(super) fn goals(options: &Options, outcome: &Outcome) -> Vec<String> {
    let figure = |name: &str| outcome.figure(name);
    let mut failures = Vec::new();
    let below = figure("below_target_at_end");
    if below > 0.0 {
        let target = options.settings.target_active;
        failures.push(format!("{below} servers end with fewer than {target} active monitors"));
    }
    let churn = figure("churn_per_run");
    let most = match options.scenario {
        Scenario::Calm => Some(0.0),
        Scenario::Noise5 => Some(CHURN_AT_5),
        Scenario::Noise10 => Some(CHURN_AT_10),
        Scenario::Loss | Scenario::Storm => None,
    };
    if let Some(most) = most.filter(|most| churn > *most) {
        failures.push(format!("{churn:.4} changes a server and run, not {most}"));
    }
    for (name, active, most) in [("five", 5, RUNS_TO_FIVE), ("seven", 7, RUNS_TO_SEVEN)] {
        let runs = figure(&format!("{name}_active_after_runs_max"));
        if runs >= NEVER as f64 {
            failures.push(format!("a server never had {active} active again"));
        } else if runs > f64::from(most) {
            failures.push(format!("a server needed {runs} runs until {active} were active"));
        }
    }
    failures
}
