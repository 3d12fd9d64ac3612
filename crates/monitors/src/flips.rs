//! What would have to be otherwise for a monitor to become something else: the same decision again,
//! with one fact changed at a time.

use serde::Serialize;
use skep_policy::Time;
use skep_policy::monitors::{
    Assignment, Cause, Challenge, GlobalStatus, Health, Kind, Measured, Monitor, Outcome, Plan,
    Roster, Server, Status, Stay, Verdict, plan,
};

/// One fact that would change the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flip {
    /// What would have to be so.
    #[serde(rename = "if")]
    pub condition: String,
    /// What the monitor would become.
    pub becomes: Status,
}

/// What would make this monitor, by its place in the roster, become something else than the plan
/// makes of it. Nothing is said about facts that would make no difference.
pub fn flips(
    roster: &Roster,
    server: &Server,
    assignments: &[Assignment],
    now: Time,
    found: &Plan,
    monitor: u32,
) -> Vec<Flip> {
    let own = assignments.iter().position(|one| one.monitor == monitor);
    let (Some((_, verdict)), Some(own)) = (found.verdict(monitor), own) else { return Vec::new() };
    let mut trial = Trial {
        roster,
        server,
        assignments,
        now,
        monitor,
        own,
        before: found.status_after(verdict),
        flips: Vec::new(),
    };
    trial.health();
    trial.samples(verdict);
    trial.global();
    trial.company(verdict);
    trial.rank(verdict);
    trial.place(verdict);
    trial.time(found);
    trial.flips
}

struct Trial<'a> {
    roster: &'a Roster,
    server: &'a Server,
    assignments: &'a [Assignment],
    now: Time,
    monitor: u32,
    /// Its place among the assignments.
    own: usize,
    before: Status,
    flips: Vec<Flip>,
}

impl Trial<'_> {
    fn settings(&self) -> &skep_policy::monitors::Settings {
        self.roster.settings()
    }

    fn measured(&self) -> Measured {
        self.assignments[self.own].measured
    }

    /// Decides again, and keeps what comes of it if that is something else.
    fn decide(&mut self, text: String, roster: &Roster, assignments: &[Assignment], now: Time) {
        let plan = plan(roster, self.server, assignments, now);
        let Some((_, verdict)) = plan.verdict(self.monitor) else { return };
        let becomes = plan.status_after(verdict);
        if becomes != self.before {
            self.flips.push(Flip { condition: text, becomes });
        }
    }

    fn with_own(&mut self, text: String, change: impl FnOnce(&mut Assignment)) {
        let mut assignments = self.assignments.to_vec();
        change(&mut assignments[self.own]);
        self.decide(text, self.roster, &assignments, self.now);
    }

    fn with_monitors(&mut self, text: String, change: impl Fn(u32, &mut Monitor)) {
        let mut monitors = self.roster.monitors().to_vec();
        (0..).zip(&mut monitors).for_each(|(place, monitor)| change(place, monitor));
        // The monitors had ids of their own before, and have them still.
        if let Ok(roster) = Roster::new(monitors, *self.settings()) {
            self.decide(text, &roster, self.assignments, self.now);
        }
    }

    fn health(&mut self) {
        let measured = self.measured();
        if measured.is_healthy() {
            let bad = Measured { health: Health::Unhealthy, ..measured };
            let text = "its mean step were below 0".to_owned();
            self.with_own(text, |own| own.measured = bad);
            let hours = self.settings().silent_after.as_secs_f64() / 3_600.0;
            let silent = Measured { health: Health::Silent, ..measured };
            let text = format!("it were silent for more than {hours} h");
            self.with_own(text, |own| own.measured = silent);
        } else {
            let fine = self.fine(measured.count);
            let text = "its mean step were at least 0 and it were heard lately".to_owned();
            self.with_own(text, |own| own.measured = fine);
        }
    }

    /// As it is measured, but well.
    fn fine(&self, count: u32) -> Measured {
        let measured = self.measured();
        if measured.is_healthy() {
            return Measured { count, ..measured };
        }
        let rtt = f64::from(measured.rtt_ms);
        Measured::given(true, skep_policy::monitors::priority(rtt, 1.0), 1.0, rtt, count)
    }

    fn samples(&mut self, verdict: &Verdict) {
        let Outcome::Stays(Stay::TooFewSamples { needs, .. }) = verdict.outcome else { return };
        let enough = self.fine(needs);
        self.with_own(format!("it had {needs} samples"), |own| own.measured = enough);
    }

    fn global(&mut self) {
        let global = self.roster.monitor(self.monitor).global;
        let own = self.monitor;
        for status in [GlobalStatus::Testing, GlobalStatus::Active, GlobalStatus::Paused] {
            if status != global {
                let text = format!("it were globally {status}");
                self.with_monitors(text, |place, monitor| {
                    if place == own {
                        monitor.global = status;
                    }
                });
            }
        }
    }

    /// Others of its account or its network.
    fn company(&mut self, verdict: &Verdict) {
        let full = matches!(verdict.outcome, Outcome::Stays(Stay::AccountFull { .. }));
        if full || verdict.violations().any(|kind| kind == Kind::Limit) {
            let account = self.roster.monitor(self.monitor).account.clone();
            let limit = self.roster.monitor(self.monitor).per_server_limit;
            let raised = limit.unwrap_or(self.settings().per_server_limit).saturating_add(1);
            let text = format!("the limit of its account were {raised} a server");
            self.with_monitors(text, |_, monitor| {
                if monitor.account == account {
                    monitor.per_server_limit = Some(raised);
                }
            });
        }
        let taken = match verdict.outcome {
            Outcome::Stays(Stay::NetworkTaken { peer }) => Some(peer),
            _ => verdict.peer,
        };
        if let Some(peer) = taken.filter(|peer| (*peer as usize) < self.roster.monitors().len()) {
            let text = format!("monitor {} did not watch here", self.roster.monitor(peer).id);
            let without = |one: &&Assignment| one.monitor != peer;
            let rest: Vec<Assignment> = self.assignments.iter().filter(without).copied().collect();
            self.decide(text, self.roster, &rest, self.now);
        }
    }

    /// Being better than the one that is in its way.
    fn rank(&mut self, verdict: &Verdict) {
        let incumbent = match verdict.outcome {
            Outcome::Stays(Stay::PoolFull { worst: Some(worst) }) => worst,
            Outcome::Stays(Stay::Challenging) => match verdict.challenge {
                Some(challenge) => challenge.incumbent,
                None => return,
            },
            _ => return,
        };
        let Some(worst) = self.assignments.iter().find(|one| one.monitor == incumbent) else {
            return;
        };
        let settings = *self.settings();
        let part = worst.measured.priority.saturating_mul(i64::from(settings.better_by_percent));
        // Rounded up: a part of a point less would not be enough.
        let by = i64::from(settings.better_by_points).max((part + 99) / 100);
        let priority = worst.measured.priority.saturating_sub(by).min(self.measured().priority);
        if priority < 0 {
            return;
        }
        let name = &self.roster.monitor(incumbent).id;
        let reviews = settings.confirmations;
        let text = format!(
            "its priority were {priority} or better at {reviews} reviews in a row, while that of \
             monitor {name} is {}",
            worst.measured.priority
        );
        let better = Measured { priority, ..self.fine(self.measured().count) };
        self.with_own(text, |own| {
            own.measured = better;
            own.challenge = Some(Challenge { incumbent, reviews });
        });
    }

    /// Another account or network than the server's.
    fn place(&mut self, verdict: &Verdict) {
        let own = self.monitor;
        if verdict.violations().any(|kind| kind == Kind::Network) {
            let text = "it had an address in another network than the server".to_owned();
            self.with_monitors(text, |place, monitor| {
                if place == own {
                    monitor.ip = None;
                }
            });
        }
        if verdict.violations().any(|kind| kind == Kind::Account) {
            let text = "it were of another account than the server".to_owned();
            self.with_monitors(text, |place, monitor| {
                if place == own {
                    monitor.account = None;
                }
            });
        }
    }

    /// Nothing but the next review.
    fn time(&mut self, found: &Plan) {
        let settings = *self.settings();
        let changed = !found.changes.is_empty();
        let mut now = settings.next_review(self.now, changed);
        let mut text = "nothing else changed until the next review".to_owned();
        if let Some((_, verdict)) = found.verdict(self.monitor)
            && verdict.outcome == Outcome::Stays(Stay::RecheckLater)
            && !matches!(verdict.cause, Cause::GloballyPaused | Cause::GloballyDeleted)
        {
            now = self.now + settings.recheck_after;
            text = "nothing else changed until the next re-check".to_owned();
        }
        let after = |one: &Assignment| {
            let mut one = *one;
            if let Some((_, verdict)) = found.verdict(one.monitor) {
                one.status = found.status_after(verdict);
                one.challenge = verdict.challenge;
                one.violation = verdict.violation;
                if verdict.checked {
                    one.last_check = Some(self.now);
                }
            }
            one
        };
        let assignments: Vec<Assignment> = self.assignments.iter().map(after).collect();
        self.decide(text, self.roster, &assignments, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::monitors::{Id, Settings};

    fn monitor(number: u64, account: u64) -> Monitor {
        Monitor {
            id: Id::from(number),
            account: Some(Id::from(account)),
            ip: format!("10.{number}.0.1").parse().ok(),
            global: GlobalStatus::Active,
            per_server_limit: None,
        }
    }

    fn server() -> Server {
        Server { id: Id::from("ntp1"), account: None, ip: "192.0.2.1".parse().ok() }
    }

    fn look(monitors: Vec<Monitor>, assignments: &[Assignment], monitor: u32) -> Vec<Flip> {
        let roster = Roster::new(monitors, Settings::default()).expect("fine");
        let now = Time::from_millis(1_000_000_000);
        let plan = plan(&roster, &server(), assignments, now);
        flips(&roster, &server(), assignments, now, &plan, monitor)
    }

    fn good(place: u32, status: Status, samples: u32) -> Assignment {
        let priority = 10 + 10 * i64::from(place);
        Assignment::new(place, status, Measured::given(true, priority, 1.0, 10.0, samples))
    }

    #[test]
    fn an_active_monitor_would_leave_if_it_were_silent_or_paused() {
        let monitors = (0..8).map(|number| monitor(number, number)).collect();
        let assignments: Vec<Assignment> =
            (0..8).map(|place| good(place, Status::Active, 100)).take(7).collect();
        let found = look(monitors, &assignments, 6);
        let silent = found.iter().find(|flip| flip.condition.contains("silent for more than 3 h"));
        assert_eq!(silent.expect("is told").becomes, Status::Testing, "{found:?}");
        let paused = found.iter().find(|flip| flip.condition == "it were globally paused");
        assert_eq!(paused.expect("is told").becomes, Status::Paused, "{found:?}");
    }

    #[test]
    fn a_third_monitor_of_an_account_would_be_promoted_under_a_higher_limit() {
        let monitors = (0..4).map(|number| monitor(number, 1)).collect();
        let mut assignments: Vec<Assignment> =
            (0..2).map(|place| good(place, Status::Active, 100)).collect();
        assignments.push(good(2, Status::Testing, 100));
        let found = look(monitors, &assignments, 2);
        let raised = found.iter().find(|flip| flip.condition.contains("were 3 a server"));
        assert_eq!(raised.expect("is told").becomes, Status::Active, "{found:?}");
    }

    #[test]
    fn one_that_lacks_samples_would_be_promoted_with_them() {
        let monitors = (0..4).map(|number| monitor(number, number)).collect();
        let assignments = [
            good(0, Status::Active, 100),
            good(1, Status::Testing, 40),
            good(2, Status::Testing, 5),
        ];
        let found = look(monitors, &assignments, 2);
        let samples = found.iter().find(|flip| flip.condition == "it had 32 samples");
        assert_eq!(samples.expect("is told").becomes, Status::Active, "{found:?}");
    }

    #[test]
    fn every_flip_is_something_else_than_the_plan_says() {
        let monitors: Vec<Monitor> = (0..12).map(|number| monitor(number, number / 2)).collect();
        let assignments: Vec<Assignment> =
            (0..12).map(|place| good(place, Status::Candidate, 40)).collect();
        let roster = Roster::new(monitors.clone(), Settings::default()).expect("fine");
        let now = Time::from_millis(1_000_000_000);
        let decided = plan(&roster, &server(), &assignments, now);
        for place in 0..12 {
            let (_, verdict) = decided.verdict(place).expect("has a verdict");
            let becomes = decided.status_after(verdict);
            let found = flips(&roster, &server(), &assignments, now, &decided, place);
            assert!(!found.is_empty() && found.iter().all(|flip| flip.becomes != becomes));
        }
    }
}
