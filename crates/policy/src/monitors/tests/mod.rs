//! One server at a time, in a few words each.

mod challenges;
mod churn;
mod constraints;
mod emergencies;
mod explanations;
mod properties;
mod rules;
mod states;

use super::*;
use crate::Time;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A server and its monitors, which can be reviewed again and again.
#[derive(Clone, Debug)]
struct Case {
    settings: Settings,
    server: Server,
    monitors: Vec<Monitor>,
    assignments: Vec<Assignment>,
    now: Time,
}

fn well(priority: i64) -> Measured {
    let health = Health::Healthy;
    Measured { health, priority, step: 1.0, rtt_ms: priority as f32, count: 100 }
}

fn ill(priority: i64) -> Measured {
    Measured { health: Health::Unhealthy, step: -1.0, ..well(priority) }
}

/// An address in the network of this number; no two numbers share a /20.
fn address(number: u64) -> IpAddr {
    Ipv4Addr::from_bits((10 << 24) | ((number as u32) << 12) | 7).into()
}

impl Case {
    fn new() -> Case {
        let ip = Some(IpAddr::from([192, 0, 2, 1]));
        Case {
            settings: Settings::default(),
            server: Server { id: "ntp".into(), account: Some("owner".into()), ip },
            monitors: Vec::new(),
            assignments: Vec::new(),
            now: Time::ZERO + Duration::from_secs(1_000_000),
        }
    }

    /// Monitors with these ids, each in a network and of an account of its own, globally active,
    /// healthy, with plenty of samples, and as far away as the id says.
    fn with(mut self, status: Status, ids: impl IntoIterator<Item = u64>) -> Case {
        for id in ids {
            self.monitors.push(Monitor {
                id: id.into(),
                account: Some((1_000 + id).into()),
                ip: Some(address(id)),
                global: GlobalStatus::Active,
                per_server_limit: None,
            });
            let place = self.assignments.len() as u32;
            self.assignments.push(Assignment::new(place, status, well(id as i64)));
        }
        self
    }

    fn place(&self, id: u64) -> usize {
        let found = self.monitors.iter().position(|monitor| monitor.id == id.into());
        found.expect("a monitor of the case")
    }

    fn monitor(&mut self, id: u64) -> &mut Monitor {
        let place = self.place(id);
        &mut self.monitors[place]
    }

    fn assignment(&mut self, id: u64) -> &mut Assignment {
        let place = self.place(id);
        &mut self.assignments[place]
    }

    fn measured(mut self, ids: impl IntoIterator<Item = u64>, measured: Measured) -> Case {
        for id in ids {
            self.assignment(id).measured = measured;
        }
        self
    }

    fn globally(mut self, status: GlobalStatus, ids: impl IntoIterator<Item = u64>) -> Case {
        for id in ids {
            self.monitor(id).global = status;
        }
        self
    }

    /// All of one account, with this limit.
    fn of_account(mut self, account: u64, limit: u32, ids: impl IntoIterator<Item = u64>) -> Case {
        for id in ids {
            let monitor = self.monitor(id);
            (monitor.account, monitor.per_server_limit) = (Some(account.into()), Some(limit));
        }
        self
    }

    /// All in the network of this number.
    fn in_network(mut self, number: u64, ids: impl IntoIterator<Item = u64>) -> Case {
        for id in ids {
            self.monitor(id).ip = Some(address(number));
        }
        self
    }

    fn roster(&self) -> Roster {
        Roster::new(self.monitors.clone(), self.settings).expect("a case that can be planned")
    }

    fn plan(&self) -> Plan {
        plan(&self.roster(), &self.server, &self.assignments, self.now)
    }

    /// What the store would do with a plan.
    fn apply(&mut self, plan: &Plan) {
        for verdict in &plan.verdicts {
            let monitor = verdict.monitor;
            let found = self.assignments.iter_mut().find(|one| one.monitor == monitor);
            let row = found.expect("every verdict has its assignment");
            row.status = plan.status_after(verdict);
            row.violation = verdict.violation;
            row.challenge = verdict.challenge;
            if verdict.checked {
                row.last_check = Some(self.now);
            }
        }
        let changed = !plan.changes.is_empty();
        self.now = self.settings.next_review(self.now, changed);
    }

    /// Reviews once, and applies.
    fn review(&mut self) -> Plan {
        let plan = self.plan();
        self.apply(&plan);
        plan
    }

    fn id(&self, place: u32) -> u64 {
        match self.monitors[place as usize].id {
            Id::Number(number) => number,
            Id::Text(_) => panic!("the cases have numbers"),
        }
    }

    /// Id, from, to and rule of each change.
    fn changes(&self, plan: &Plan) -> Vec<(u64, Status, Status, &'static str)> {
        let change = |one: &Change| (self.id(one.monitor), one.from, one.to, one.rule.as_str());
        plan.changes.iter().map(change).collect()
    }

    fn verdict(&self, plan: &Plan, id: u64) -> Verdict {
        *plan.verdict(self.place(id) as u32).expect("every monitor has a verdict").1
    }

    fn stay(&self, id: u64) -> Stay {
        match self.verdict(&self.plan(), id).outcome {
            Outcome::Stays(stay) => stay,
            Outcome::Changes(_) => panic!("{id} changes"),
        }
    }

    fn state(&self, id: u64) -> (State, Cause) {
        let verdict = self.verdict(&self.plan(), id);
        (verdict.state, verdict.cause)
    }
}

/// Seven active (1 to 7) and five in testing (11 to 15), as it should be.
fn settled() -> Case {
    Case::new().with(Status::Active, 1..=7).with(Status::Testing, 11..=15)
}

#[test]
fn a_settled_server_changes_nothing_and_says_why_for_everybody() {
    let case = settled().with(Status::Candidate, 21..=24);
    let plan = case.plan();
    assert_eq!(plan.changes, []);
    assert_eq!(plan.verdicts.len(), 16);
    assert_eq!(case.stay(7), Stay::Serving);
    assert_eq!(plan.before, plan.after);
    let counts = (plan.after.active, plan.after.testing, plan.after.candidate);
    assert_eq!(counts, (7, 5, 4));
    assert_eq!(plan.budget, Budget { each: 2, ..Budget::default() });
}

#[test]
fn twelve_good_candidates_become_seven_active_in_three_runs_and_five_testing_in_four() {
    let mut case = Case::new().with(Status::Candidate, 1..=12);
    let plans = [case.review(), case.review(), case.review()];
    let active: Vec<u32> = plans.iter().map(|plan| plan.after.active).collect();
    assert_eq!(active, [0, 4, 7]);
    assert_eq!(plans[2].after.testing, 5);
    assert_eq!(case.review().changes, []);
}

#[test]
fn a_server_with_one_candidate_makes_progress() {
    let mut case = Case::new().with(Status::Candidate, [1]);
    assert_eq!(case.review().after.testing, 1);
    assert_eq!(case.review().after.active, 1);
    assert_eq!(case.review().changes, []);
}

#[test]
fn a_server_without_monitors_has_an_empty_plan() {
    let plan = Case::new().plan();
    assert!(plan.changes.is_empty() && plan.verdicts.is_empty() && plan.emergency);
}

#[test]
fn after_the_loss_of_a_third_five_are_active_in_two_runs_and_seven_in_four() {
    let mut case = settled()
        .with(Status::Candidate, 21..=30)
        .globally(GlobalStatus::Paused, [1, 2, 3, 11, 12]);
    let active: Vec<u32> = (0..4).map(|_| case.review().after.active).collect();
    assert!(active[1] >= 5 && active[3] == 7, "{active:?}");
}
