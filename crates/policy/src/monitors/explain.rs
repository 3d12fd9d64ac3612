//! A verdict in words: the same value, never a second decision.

use super::facts::{Assignment, Id, Kind, Server, Status};
use super::plan::{Cause, Change, Outcome, Plan, Rule, State, Stay, Verdict};
use super::roster::Roster;
use super::score::{Health, Measured};
use super::view::{ViolationView, violations};
use crate::many_of;
use serde::Serialize;

/// Why one monitor is to one server what it is, and what would change that.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The server.
    pub server: Id,
    /// The monitor.
    pub monitor: Id,
    /// Its rank, from 1.
    pub rank: usize,
    /// Of how many.
    pub of: usize,
    /// What it is.
    pub status: Status,
    /// What it becomes.
    pub becomes: Status,
    /// What should become of it.
    pub state: State,
    /// Why it has that state.
    pub cause: String,
    /// How it does.
    pub measured: Measured,
    /// What it violates.
    pub violations: Vec<ViolationView>,
    /// The rule that changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Why it changes, or why it does not.
    pub reason: String,
    /// The nearest thing that would change the outcome.
    pub would_change: String,
    /// Changes a group that this run allows.
    pub budget: u32,
}

/// Explains one monitor of the server, by its place in the roster.
pub fn explain(
    roster: &Roster,
    server: &Server,
    assignments: &[Assignment],
    plan: &Plan,
    monitor: u32,
) -> Option<Explanation> {
    let (rank, verdict) = plan.verdict(monitor)?;
    let assignment = assignments.iter().find(|one| one.monitor == monitor)?;
    let words = Words { roster, plan };
    let rule = match verdict.outcome {
        Outcome::Changes(place) => Some(plan.changes[place as usize].rule),
        Outcome::Stays(_) => None,
    };
    Some(Explanation {
        server: server.id.clone(),
        monitor: roster.monitor(monitor).id.clone(),
        rank,
        of: plan.verdicts.len(),
        status: verdict.status,
        becomes: plan.status_after(verdict),
        state: verdict.state,
        cause: words.cause(verdict),
        measured: assignment.measured,
        violations: violations(roster, plan, verdict).collect(),
        rule,
        reason: words.reason(verdict),
        would_change: words.would_change(verdict, &assignment.measured),
        budget: plan.budget.each,
    })
}

/// Puts what a plan holds into words.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub roster: &'a Roster,
    pub plan: &'a Plan,
}

impl Words<'_> {
    fn id(&self, place: u32) -> &Id {
        &self.roster.monitor(place).id
    }

    /// Why it has its state.
    pub fn cause(&self, verdict: &Verdict) -> String {
        let text = match verdict.cause {
            Cause::GloballyPending => "the monitor is globally pending",
            Cause::GloballyPaused => "the monitor is globally paused",
            Cause::GloballyDeleted => "the monitor is deleted",
            Cause::Inconsistent => "it is active here but globally only in testing",
            Cause::Violation(kind) => return self.violation(verdict, kind),
            Cause::Unhealthy(Health::Silent) => "it was not heard for too long",
            Cause::Unhealthy(_) => "it is unhealthy",
            Cause::Unmeasured => "it has not measured yet",
            Cause::GloballyTesting => "it is globally in testing, and stays in testing here",
            Cause::Fine => "nothing speaks against it",
        };
        text.to_owned()
    }

    /// What is violated, and by whom.
    pub fn violation(&self, verdict: &Verdict, kind: Kind) -> String {
        let settings = self.roster.settings();
        let monitor = self.roster.monitor(verdict.monitor);
        let is_v4 = monitor.ip.is_some_and(|ip| ip.to_canonical().is_ipv4());
        let length = |v4, v6| if is_v4 { v4 } else { v6 };
        let account = monitor.account.as_ref().map_or_else(String::new, ToString::to_string);
        match kind {
            Kind::Network => {
                let length = length(settings.subnet_v4, settings.subnet_v6);
                format!("it is in the server's own /{length}")
            }
            Kind::Account => format!("it is of the server's own account {account}"),
            Kind::Limit => {
                let limit = monitor.per_server_limit.unwrap_or(settings.per_server_limit);
                let together = limit.saturating_add(1);
                format!(
                    "account {account} has more than its {limit} active or {together} active and \
                     testing on this server, and better ones than this"
                )
            }
            Kind::Diversity => {
                let length = length(settings.diversity_v4, settings.diversity_v6);
                match verdict.peer {
                    Some(peer) => {
                        format!("monitor {} of the same /{length} ranks better", self.id(peer))
                    }
                    None => format!("a monitor of the same /{length} ranks better"),
                }
            }
        }
    }

    /// Why it changes, or why it does not.
    pub fn reason(&self, verdict: &Verdict) -> String {
        match verdict.outcome {
            Outcome::Changes(place) => self.change(&self.plan.changes[place as usize], verdict),
            Outcome::Stays(stay) => self.stay(verdict, stay),
        }
    }

    /// Why it changes.
    pub fn change(&self, change: &Change, verdict: &Verdict) -> String {
        let settings = self.roster.settings();
        let text = match (change.rule, change.partner.map(|place| self.id(place))) {
            (Rule::Block, _) => format!("blocked: {}", self.cause(verdict)),
            (Rule::Remove, _) => format!("gradual removal: {}", self.cause(verdict)),
            (Rule::ActiveExcess, _) => {
                format!("more than {} are active, and it ranks last", settings.target_active)
            }
            (Rule::TestingExcess, _) => {
                "more than the target are in testing, and it ranks last".to_owned()
            }
            (Rule::ToActive | Rule::ToTesting, Some(other)) => match (change.from, change.to) {
                (Status::Active, _) | (_, Status::Candidate) => {
                    format!("makes way for monitor {other}")
                }
                (_, to) => format!("replaces monitor {other} in {to}"),
            },
            (Rule::ToActive, None) => "a place in active is free".to_owned(),
            (Rule::ToTesting, None) => "a place in testing is free".to_owned(),
            (Rule::Bootstrap, _) => "testing was empty".to_owned(),
            (Rule::Recheck, _) => "what paused it is gone".to_owned(),
        };
        if change.emergency {
            format!("emergency, nobody is active: {text}, account limits and networks ignored")
        } else {
            text
        }
    }

    fn stay(&self, verdict: &Verdict, stay: Stay) -> String {
        match stay {
            Stay::Serving => "it is active, as it should be".to_owned(),
            Stay::OnTrial => "it stays in testing while it is globally in testing".to_owned(),
            Stay::AtFloor { floor } => {
                let cause = self.cause(verdict);
                let pool = verdict.status;
                format!("it should leave ({cause}), but removal leaves at least {floor} in {pool}")
            }
            Stay::KeptForEmergency => {
                format!("it should leave ({}), but nobody was active", self.cause(verdict))
            }
            Stay::StillBlocked => format!("paused: {}", self.cause(verdict)),
            Stay::RecheckLater => "what paused it is gone, the re-check is not due yet".to_owned(),
            Stay::NotEligible => self.cause(verdict),
            Stay::TooFewSamples { has, needs } => {
                format!("it has {} and needs {needs}", many_of(u64::from(has), "sample"))
            }
            Stay::AccountFull { active, testing, limit } => {
                let account = self.roster.monitor(verdict.monitor).account.as_ref();
                let account = account.map_or_else(String::new, ToString::to_string);
                format!(
                    "account {account} has {active} others active and {testing} in testing here; \
                     its limit is {limit} active, {} together",
                    limit.saturating_add(1)
                )
            }
            Stay::NetworkTaken { peer } => {
                format!("monitor {} of the same network watches this server", self.id(peer))
            }
            Stay::PoolFull { worst: Some(worst) } => format!(
                "no place is free, and it is not better than the worst there, monitor {}, by the \
                 margin",
                self.id(worst)
            ),
            Stay::PoolFull { worst: None } => "no place is free".to_owned(),
            Stay::Challenging => match verdict.challenge {
                Some(challenge) => format!(
                    "it is better than monitor {} at {} reviews in a row; {} are needed, \
                     fewer if it is clearly better",
                    self.id(challenge.incumbent),
                    challenge.reviews,
                    self.roster.settings().confirmations
                ),
                None => "it is better than one above, but not for long enough".to_owned(),
            },
            Stay::BudgetSpent { budget } => {
                format!("this run has made its {budget} changes of that sort")
            }
        }
    }

    /// The nearest thing that would change the outcome.
    fn would_change(&self, verdict: &Verdict, measured: &Measured) -> String {
        let settings = self.roster.settings();
        let Outcome::Stays(stay) = verdict.outcome else {
            return "applying this plan".to_owned();
        };
        match stay {
            Stay::Serving => {
                let worse = measured.priority.saturating_add(i64::from(settings.better_by_points));
                format!(
                    "a mean step below 0, a silence of {} minutes, or one in testing that is \
                     better by {} points and {} % at {} reviews in a row (its priority is {}, so \
                     {worse} would be worse)",
                    settings.silent_after.as_secs() / 60,
                    settings.better_by_points,
                    settings.better_by_percent,
                    settings.confirmations,
                    measured.priority
                )
            }
            Stay::OnTrial => "approving the monitor as globally active".to_owned(),
            Stay::AtFloor { .. } => "one more in its pool, or its cause gone".to_owned(),
            Stay::KeptForEmergency => "an active monitor on this server".to_owned(),
            Stay::StillBlocked | Stay::NotEligible => match verdict.cause {
                Cause::GloballyPending | Cause::GloballyPaused | Cause::GloballyDeleted => {
                    "another global status of the monitor".to_owned()
                }
                Cause::Violation(Kind::Network) => "another address".to_owned(),
                Cause::Violation(Kind::Account) => "another account".to_owned(),
                _ => "a mean step of at least 0 and a sample lately".to_owned(),
            },
            Stay::RecheckLater => format!(
                "time: a paused monitor is looked at every {} minutes",
                settings.recheck_after.as_secs() / 60
            ),
            Stay::TooFewSamples { has, needs } => {
                format!("{} more samples", needs.saturating_sub(has))
            }
            Stay::AccountFull { .. } => "a higher limit of its account, or one less".to_owned(),
            Stay::NetworkTaken { peer } => format!("monitor {} leaving", self.id(peer)),
            Stay::PoolFull { worst } => {
                let name = worst.map_or_else(String::new, |worst| format!(" {}", self.id(worst)));
                format!(
                    "a free place, or a priority better than that of monitor{name} by {} points \
                     and {} %",
                    settings.better_by_points, settings.better_by_percent
                )
            }
            Stay::Challenging => "being as much better at the next reviews".to_owned(),
            Stay::BudgetSpent { .. } => "the next review".to_owned(),
        }
    }
}
