//! Plans as a public document.

use super::fleet::{Fleet, Watched};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use skep_policy::Time;
use skep_policy::monitors::{
    Budget, ChangeView, Counts, Id, Plan, Roster, Server, Settings, StateView, Status, View,
    ViolationView, plan,
};
use std::cell::Cell;

/// The plan of one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanDocument {
    /// The server.
    pub server: Id,
    /// When it was made, in milliseconds since 1970, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_at: Option<u64>,
    /// What changes, in order.
    pub changes: Vec<ChangeView>,
    /// Every monitor, best first.
    pub states: Vec<StateView>,
    /// Every violation, in the order of rank.
    pub violations: Vec<ViolationDocument>,
    /// The pools after the changes.
    pub counts: Counts,
    /// The pools before.
    pub counts_before: Counts,
    /// What was spent.
    pub budget: Budget,
    /// Whether nobody was active once the blocked ones were gone.
    pub emergency: bool,
}

/// A violation, and for how long it lasts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ViolationDocument {
    /// The violation.
    #[serde(flatten)]
    pub violation: ViolationView,
    /// For how many hours; known for the first violation of a monitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_hours: Option<f64>,
}

impl PlanDocument {
    /// The plan that was made of this server at that time. Where only spans are known (`dated` is
    /// false), no points in time are told.
    pub fn new(plan: &Plan, roster: &Roster, server: &Server, now: Time, dated: bool) -> Self {
        let View { server, changes, states, violations, counts, counts_before, budget, emergency } =
            plan.view(roster, server);
        let violation = |mut violation: ViolationView| {
            let lasts = violation.since.map(|since| now.since(since).as_secs_f64());
            // To the second: a double shows the rest of a division.
            let since_hours = lasts.map(|seconds| (seconds / 3.6).round() / 1_000.0);
            violation.since = violation.since.filter(|_| dated);
            ViolationDocument { violation, since_hours }
        };
        PlanDocument {
            server,
            made_at: dated.then(|| now.as_millis()),
            changes,
            states,
            violations: violations.into_iter().map(violation).collect(),
            counts,
            counts_before,
            budget,
            emergency,
        }
    }
}

/// What the plans of many servers come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanTotals {
    /// How many servers were planned.
    pub servers: u64,
    /// How many of them change.
    pub changing: u64,
    /// How many changes.
    pub changes: u64,
    /// How many of them lead up.
    pub promotions: u64,
    /// How many of them lead down by a step.
    pub demotions: u64,
    /// How many of them lead to a pause.
    pub blocked: u64,
    /// How many servers have fewer active monitors than they should, after the changes.
    pub below_target: u64,
    /// How many had none that was not blocked.
    pub emergencies: u64,
}

impl PlanTotals {
    /// Counts a plan.
    pub fn add(&mut self, plan: &Plan, settings: &Settings) {
        self.servers += 1;
        self.changing += u64::from(!plan.changes.is_empty());
        self.changes += plan.changes.len() as u64;
        for change in &plan.changes {
            match (change.from, change.to) {
                (_, Status::Paused) => self.blocked += 1,
                (_, Status::Active) | (Status::Candidate, Status::Testing) => self.promotions += 1,
                (Status::Active | Status::Testing, _) => self.demotions += 1,
                _ => {}
            }
        }
        self.below_target += u64::from(plan.after.active < settings.target_active);
        self.emergencies += u64::from(plan.emergency);
    }
}

/// The plans of a fleet. Each is made while it is written, so that a large fleet needs no room.
pub struct Plans<'a> {
    fleet: &'a Fleet,
    servers: &'a [Watched],
}

impl<'a> Plans<'a> {
    /// Those of all servers.
    pub fn all(fleet: &'a Fleet) -> Self {
        Plans { fleet, servers: fleet.servers() }
    }

    /// That of one server of the fleet.
    pub fn one(fleet: &'a Fleet, watched: &'a Watched) -> Self {
        Plans { fleet, servers: std::slice::from_ref(watched) }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    plans: List<'a>,
    settings: &'a Settings,
    totals: &'a Later,
}

struct List<'a> {
    of: &'a Plans<'a>,
    totals: &'a Later,
}

/// Known when the plans before it were written.
#[derive(Default)]
struct Later(Cell<PlanTotals>);

impl Serialize for Plans<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let totals = &Later::default();
        let document =
            Document { plans: List { of: self, totals }, settings: self.fleet.settings(), totals };
        document.serialize(serializer)
    }
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Plans { fleet, servers } = *self.of;
        let mut list = serializer.serialize_seq(Some(servers.len()))?;
        for watched in servers {
            let (roster, now) = (fleet.roster(watched), fleet.now());
            let found = plan(roster, &watched.server, &watched.assignments, now);
            let mut totals = self.totals.0.get();
            totals.add(&found, fleet.settings());
            self.totals.0.set(totals);
            let dated = fleet.is_dated();
            let document = PlanDocument::new(&found, roster, &watched.server, now, dated);
            list.serialize_element(&document)?;
        }
        list.end()
    }
}

impl Serialize for Later {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.get().serialize(serializer)
    }
}
