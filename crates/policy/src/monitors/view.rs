//! A plan as it is shown: the public JSON of one server.

use super::explain::Words;
use super::facts::{Id, Kind, Server, Status};
use super::plan::{Budget, Change, Counts, Plan, Rule, State, Verdict};
use super::roster::Roster;
use crate::Time;
use serde::{Serialize, Serializer};

/// The plan of one server, with names instead of places.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// The server.
    pub server: Id,
    /// What changes, in order.
    pub changes: Vec<ChangeView>,
    /// Every monitor, best first.
    pub states: Vec<StateView>,
    /// Every violation, in the order of rank.
    pub violations: Vec<ViolationView>,
    /// The pools after the changes.
    pub counts: Counts,
    /// The pools before.
    pub counts_before: Counts,
    /// What was spent.
    pub budget: Budget,
    /// Whether nobody was active once the blocked ones were gone.
    pub emergency: bool,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeView {
    /// The monitor.
    pub id: Id,
    /// What it was.
    pub from: Status,
    /// What it becomes.
    pub to: Status,
    /// By which rule.
    pub rule: Rule,
    /// Why.
    pub reason: String,
}

/// Where a monitor stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateView {
    /// The monitor.
    pub id: Id,
    /// Its rank, from 1.
    pub rank: usize,
    /// What it is before the changes.
    pub status: Status,
    /// What should become of it.
    pub state: State,
    /// Why it has that state.
    pub cause: String,
    /// Why it changes, or why it does not.
    pub reason: String,
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ViolationView {
    /// The monitor.
    pub id: Id,
    /// Of what.
    pub kind: Kind,
    /// Since when; known for the first violation of a monitor. In JSON in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "millis")]
    pub since: Option<Time>,
    /// Whether it leaves gradually because it was within the limits once.
    pub grandfathered: bool,
    /// The monitor that causes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<Id>,
    /// The account that causes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Id>,
    /// In words.
    pub reason: String,
}

fn millis<S: Serializer>(time: &Option<Time>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(Time::as_millis).serialize(serializer)
}

/// The violations of one monitor.
pub(super) fn violations<'a>(
    roster: &'a Roster,
    plan: &'a Plan,
    verdict: &'a Verdict,
) -> impl Iterator<Item = ViolationView> + 'a {
    let words = Words { roster, plan };
    let monitor = roster.monitor(verdict.monitor);
    verdict.violations().map(move |kind| {
        let of_account = matches!(kind, Kind::Account | Kind::Limit);
        let peer = verdict.peer.filter(|_| kind == Kind::Diversity);
        ViolationView {
            id: monitor.id.clone(),
            kind,
            since: verdict.violation.filter(|one| one.kind == kind).map(|one| one.since),
            grandfathered: kind.is_grandfathered(),
            peer: peer.map(|peer| roster.monitor(peer).id.clone()),
            account: monitor.account.clone().filter(|_| of_account),
            reason: words.violation(verdict, kind),
        }
    })
}

impl Plan {
    /// The changes as they are shown.
    pub fn changes_view(&self, roster: &Roster) -> Vec<ChangeView> {
        let words = Words { roster, plan: self };
        let view = |change: &Change| {
            let (_, verdict) = self.verdict(change.monitor)?;
            let (from, to, rule) = (change.from, change.to, change.rule);
            let id = roster.monitor(change.monitor).id.clone();
            Some(ChangeView { id, from, to, rule, reason: words.change(change, verdict) })
        };
        self.changes.iter().filter_map(view).collect()
    }

    /// The plan as it is shown.
    pub fn view(&self, roster: &Roster, server: &Server) -> View {
        let words = Words { roster, plan: self };
        let states = (1..).zip(&self.verdicts).map(|(rank, verdict)| StateView {
            id: roster.monitor(verdict.monitor).id.clone(),
            rank,
            status: verdict.status,
            state: verdict.state,
            cause: words.cause(verdict),
            reason: words.reason(verdict),
        });
        let found = self.verdicts.iter().flat_map(|verdict| violations(roster, self, verdict));
        View {
            server: server.id.clone(),
            changes: self.changes_view(roster),
            states: states.collect(),
            violations: found.collect(),
            counts: self.after,
            counts_before: self.before,
            budget: self.budget,
            emergency: self.emergency,
        }
    }
}
