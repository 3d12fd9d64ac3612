//! What would be different if some numbers were others, or some monitors not there.
//!
//! Every server is planned twice, as things are and as they are supposed to be, and the two plans
//! are compared. Nothing is read and nothing is changed.

use super::flaw::{FLAWS_MAX, Flaw, no_such};
use super::fleet::{is_called, unknown};
use super::settings::with_settings;
use serde::Serialize;
use serde_json::{Map, Value};
use skep_policy::Time;
use skep_policy::monitors::{
    Assignment, Change, ChangeView, Counts, Id, Monitor, Plan, Roster, Server, Settings, Status,
    plan,
};
use std::collections::{BTreeMap, BTreeSet};

/// What is supposed. Ids are texts; a number is its digits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIf {
    /// Settings that are others.
    pub set: Map<String, Value>,
    /// Accounts that may have so many monitors active on one server.
    pub limits: BTreeMap<String, u32>,
    /// Accounts whose monitors are not there.
    pub drop_accounts: BTreeSet<String>,
    /// Monitors that are not there.
    pub drop_monitors: BTreeSet<String>,
}

/// These say how and when is measured and reviewed, and nothing about who is chosen then.
const OF_MEASURING: [&str; 7] = [
    "look_back",
    "silent_after",
    "review_unchanged",
    "review_changed",
    "measure_active",
    "measure_testing",
    "measure_candidate",
];

const FIELDS: [&str; 4] = ["set", "limits", "drop_accounts", "drop_monitors"];

impl WhatIf {
    /// Reads a request: `{"set", "limits", "drop_accounts", "drop_monitors"}`, each of which may be
    /// left out. All flaws are told.
    pub fn parse(body: &Value) -> Result<WhatIf, Vec<Flaw>> {
        let Value::Object(body) = body else {
            return Err(vec![Flaw::new("the body", body, "it must be an object")]);
        };
        let (mut found, mut flaws) = (WhatIf::default(), Vec::new());
        for (name, value) in body {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("set", Value::Object(set)) => found.set = set.clone(),
                ("limits", Value::Object(limits)) => {
                    for (account, limit) in limits {
                        match limit.as_u64().and_then(|limit| u32::try_from(limit).ok()) {
                            Some(limit) => {
                                found.limits.insert(account.clone(), limit);
                            }
                            None => {
                                let right = "it must be a whole number from 0";
                                flaws.push(Flaw::new(format!("limits.{account}"), limit, right));
                            }
                        }
                    }
                }
                ("drop_accounts", Value::Array(ids)) => {
                    found.drop_accounts = names("drop_accounts", ids, &mut flaws);
                }
                ("drop_monitors", Value::Array(ids)) => {
                    found.drop_monitors = names("drop_monitors", ids, &mut flaws);
                }
                ("set" | "limits", _) => {
                    flaws.push(Flaw::new(name, value, "it must be an object"));
                }
                ("drop_accounts" | "drop_monitors", _) => {
                    flaws.push(Flaw::new(name, value, "it must be a list of ids"));
                }
                _ => {
                    let right = no_such("field", name, FIELDS.into_iter());
                    flaws.push(Flaw::new(name, value, right));
                }
            }
        }
        flaws.truncate(FLAWS_MAX);
        if flaws.is_empty() { Ok(found) } else { Err(flaws) }
    }

    /// Whether nothing is supposed.
    pub fn is_empty(&self) -> bool {
        *self == WhatIf::default()
    }

    /// The monitors as they are supposed to be. Whoever is unknown is refused.
    pub fn suppose(&self, roster: &Roster) -> Result<Supposed, Vec<Flaw>> {
        let supposed = self.suppose_each(std::slice::from_ref(roster))?;
        Ok(supposed.into_iter().next().unwrap_or_else(|| Supposed::same(roster)))
    }

    /// The same for several rosters of one fleet; somebody must be known to one of them.
    pub(super) fn suppose_each(&self, rosters: &[Roster]) -> Result<Vec<Supposed>, Vec<Flaw>> {
        let mut flaws = self.unknown(rosters);
        let mut supposed = Vec::with_capacity(rosters.len());
        for roster in rosters {
            match self.settings(roster.settings()) {
                Ok(settings) => supposed.extend(self.apply(roster, settings)),
                Err(wrong) => {
                    flaws.extend(wrong);
                    break;
                }
            }
        }
        flaws.truncate(FLAWS_MAX);
        if flaws.is_empty() { Ok(supposed) } else { Err(flaws) }
    }

    fn settings(&self, base: &Settings) -> Result<Settings, Vec<Flaw>> {
        let mut flaws = Vec::new();
        for (name, value) in &self.set {
            if OF_MEASURING.contains(&name.trim_end_matches("_seconds")) {
                let right = "it says what is measured and when; what was measured already and who \
                             is chosen by it would be the same";
                flaws.push(Flaw::new(format!("set.{name}"), value, right));
            }
        }
        match with_settings(base, &self.set, "set") {
            Ok(settings) if flaws.is_empty() => Ok(settings),
            Ok(_) => Err(flaws),
            Err(more) => {
                flaws.extend(more);
                Err(flaws)
            }
        }
    }

    fn unknown(&self, rosters: &[Roster]) -> Vec<Flaw> {
        let all = || rosters.iter().flat_map(Roster::monitors);
        let mut flaws = Vec::new();
        let accounts = self.limits.keys().map(|name| ("limits", name));
        let accounts =
            accounts.chain(self.drop_accounts.iter().map(|name| ("drop_accounts", name)));
        for (field, name) in accounts {
            if !all().any(|one| one.account.as_ref().is_some_and(|id| is_called(id, name))) {
                let known: BTreeSet<&Id> = all().filter_map(|one| one.account.as_ref()).collect();
                let known: Vec<String> = known.into_iter().map(ToString::to_string).collect();
                let flaw = unknown("account", name, &known);
                flaws.push(Flaw { path: field.to_owned(), ..flaw });
            }
        }
        for name in &self.drop_monitors {
            if !all().any(|one| is_called(&one.id, name)) {
                let known: Vec<String> = all().map(|one| one.id.to_string()).collect();
                let flaw = unknown("monitor", name, &known);
                flaws.push(Flaw { path: "drop_monitors".to_owned(), ..flaw });
            }
        }
        flaws
    }

    fn apply(&self, roster: &Roster, settings: Settings) -> Option<Supposed> {
        let mut monitors = roster.monitors().to_vec();
        for monitor in &mut monitors {
            let Some(account) = &monitor.account else { continue };
            let limit = self.limits.iter().find(|(name, _)| is_called(account, name));
            if let Some((_, limit)) = limit {
                monitor.per_server_limit = Some(*limit);
            }
        }
        let gone: Vec<bool> = monitors.iter().map(|monitor| self.drops(monitor)).collect();
        // The monitors are those of a roster, and the settings were checked.
        let roster = Roster::new(monitors, settings).ok()?;
        let drops = gone.contains(&true);
        Some(Supposed { roster, gone, drops })
    }

    fn drops(&self, monitor: &Monitor) -> bool {
        let account = monitor.account.as_ref();
        let of_account = |name: &String| account.is_some_and(|id| is_called(id, name));
        self.drop_monitors.iter().any(|name| is_called(&monitor.id, name))
            || self.drop_accounts.iter().any(of_account)
    }
}

fn names(field: &str, ids: &[Value], flaws: &mut Vec<Flaw>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (place, id) in ids.iter().enumerate() {
        match id {
            Value::String(text) => {
                found.insert(text.clone());
            }
            Value::Number(number) if number.is_u64() => {
                found.insert(number.to_string());
            }
            other => {
                let right = "it must be an id: a text or a number";
                flaws.push(Flaw::new(format!("{field}[{place}]"), other, right));
            }
        }
    }
    found
}

/// The monitors and settings of a fleet as they are supposed to be.
#[derive(Clone, Debug)]
pub struct Supposed {
    roster: Roster,
    /// By place, the same as in the roster as it is.
    gone: Vec<bool>,
    drops: bool,
}

impl Supposed {
    fn same(roster: &Roster) -> Supposed {
        let gone = vec![false; roster.monitors().len()];
        Supposed { roster: roster.clone(), gone, drops: false }
    }

    /// The monitors as they are supposed to be; who is not there is not assigned.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Plans a server as things are and as they are supposed to be.
    ///
    /// `roster` is the one that this was made of, and places are its.
    pub fn compare(
        &self,
        roster: &Roster,
        server: &Server,
        assignments: &[Assignment],
        now: Time,
    ) -> Difference {
        let planned = plan(roster, server, assignments, now);
        let remaining: Vec<Assignment>;
        let supposed = if self.drops {
            let stays = |one: &&Assignment| !self.gone[one.monitor as usize];
            remaining = assignments.iter().filter(stays).copied().collect();
            plan(&self.roster, server, &remaining, now)
        } else {
            plan(&self.roster, server, assignments, now)
        };
        self.difference(roster, server, [&planned, &supposed])
    }

    fn difference(&self, roster: &Roster, server: &Server, plans: [&Plan; 2]) -> Difference {
        let [planned, supposed] = plans;
        let (mut gains, mut loses) = (Vec::new(), Vec::new());
        for monitor in self.touched(plans) {
            let of = |plan: &Plan| plan.verdict(monitor).map(|found| plan.status_after(found.1));
            let (one, other) = (of(planned), of(supposed));
            let id = || roster.monitor(monitor).id.clone();
            match merit(other).cmp(&merit(one)) {
                std::cmp::Ordering::Greater => {
                    gains.push(Shift { id: id(), planned: one, what_if: other });
                }
                std::cmp::Ordering::Less => {
                    loses.push(Shift { id: id(), planned: one, what_if: other });
                }
                std::cmp::Ordering::Equal => {}
            }
        }
        Difference {
            server: server.id.clone(),
            counts: Three { before: planned.before, after: planned.after, what_if: supposed.after },
            only_planned: only(planned, supposed, roster),
            only_what_if: only(supposed, planned, &self.roster),
            gains,
            loses,
            violations: Two { planned: violations(planned), what_if: violations(supposed) },
            changes: Two {
                planned: planned.changes.len() as u32,
                what_if: supposed.changes.len() as u32,
            },
        }
    }

    /// Whose status may differ after the two plans, in the order of their ids.
    fn touched(&self, [planned, supposed]: [&Plan; 2]) -> Vec<u32> {
        let changed = planned.changes.iter().chain(&supposed.changes).map(|one| one.monitor);
        let mut touched: Vec<u32> = changed.collect();
        if self.drops {
            // Candidates come and go; what counts is who was in service.
            let lost = planned.verdicts.iter().filter(|one| {
                self.gone[one.monitor as usize] && planned.status_after(one).in_service()
            });
            touched.extend(lost.map(|one| one.monitor));
        }
        touched.sort_unstable_by_key(|&place| &self.roster.monitor(place).id);
        touched.dedup();
        touched
    }
}

/// How much a status is worth to a monitor; not being there is worth least.
fn merit(status: Option<Status>) -> u8 {
    match status {
        None => 0,
        Some(Status::Paused) => 1,
        Some(Status::Candidate) => 2,
        Some(Status::Testing) => 3,
        Some(Status::Active) => 4,
    }
}

/// The changes of one plan that the other has not.
fn only(plan: &Plan, other: &Plan, roster: &Roster) -> Vec<ChangeView> {
    let key = |one: &Change| (one.monitor, one.from, one.to);
    let differs = |one: &Change| other.changes.iter().all(|same| key(same) != key(one));
    if !plan.changes.iter().any(differs) {
        return Vec::new();
    }
    let views = plan.changes_view(roster).into_iter().zip(&plan.changes);
    views.filter(|(_, change)| differs(change)).map(|(view, _)| view).collect()
}

/// Those of monitors in service; what candidates would violate hurts nobody.
fn violations(plan: &Plan) -> u32 {
    let in_service = plan.verdicts.iter().filter(|verdict| verdict.status.in_service());
    in_service.map(|verdict| verdict.violations().count() as u32).sum()
}

/// What is different for one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The server.
    pub server: Id,
    /// The pools now, after the plan as things are, and after the plan as supposed.
    pub counts: Three<Counts>,
    /// Changes that only the plan as things are has.
    pub only_planned: Vec<ChangeView>,
    /// Changes that only the plan as supposed has.
    pub only_what_if: Vec<ChangeView>,
    /// Who would be more to the server than by the plan as things are.
    pub gains: Vec<Shift>,
    /// Who would be less.
    pub loses: Vec<Shift>,
    /// How many violations those have who are in service now.
    pub violations: Two<u32>,
    /// How many changes there are.
    pub changes: Two<u32>,
}

impl Difference {
    /// Whether nothing is different. That a candidate is not there makes none by itself.
    pub fn is_empty(&self) -> bool {
        let in_service = |counts: Counts| (counts.active, counts.testing);
        let same = self.violations.planned == self.violations.what_if
            && in_service(self.counts.after) == in_service(self.counts.what_if);
        let changes = self.only_planned.is_empty() && self.only_what_if.is_empty();
        same && changes && self.gains.is_empty() && self.loses.is_empty()
    }
}

/// One that would be something else; nothing if it is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shift {
    /// The monitor.
    pub id: Id,
    /// What it is after the plan as things are.
    pub planned: Option<Status>,
    /// What it is after the plan as supposed.
    pub what_if: Option<Status>,
}

/// A value as things are and as supposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Two<T> {
    /// By the plan as things are.
    pub planned: T,
    /// By the plan as supposed.
    pub what_if: T,
}

/// A value now, after the plan as things are, and after the plan as supposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Three<T> {
    /// Now.
    pub before: T,
    /// After the plan as things are.
    pub after: T,
    /// After the plan as supposed.
    pub what_if: T,
}

impl Three<u64> {
    fn add(&mut self, [before, after, what_if]: [u64; 3]) {
        self.before += before;
        self.after += after;
        self.what_if += what_if;
    }
}

/// What is different for the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// How many servers were compared.
    pub servers: u64,
    /// How many of them differ.
    pub differ: u64,
    /// How many changes there are.
    pub changes: Two<u64>,
    /// How often a monitor would be more to a server.
    pub gains: u64,
    /// How often a monitor would be less to a server.
    pub loses: u64,
    /// Active monitors of all servers.
    pub active: Three<u64>,
    /// Monitors in testing of all servers.
    pub testing: Three<u64>,
    /// Servers with fewer active monitors than they should have.
    pub below_target: Three<u64>,
    /// How many violations there are.
    pub violations: Two<u64>,
}

impl Totals {
    /// Counts a server; `settings` are those as things are.
    pub fn add(&mut self, one: &Difference, supposed: &Supposed, settings: &Settings) {
        self.servers += 1;
        self.differ += u64::from(!one.is_empty());
        self.changes.planned += u64::from(one.changes.planned);
        self.changes.what_if += u64::from(one.changes.what_if);
        self.gains += one.gains.len() as u64;
        self.loses += one.loses.len() as u64;
        let Three { before, after, what_if } = one.counts;
        let pools = [before, after, what_if];
        self.active.add(pools.map(|counts| u64::from(counts.active)));
        self.testing.add(pools.map(|counts| u64::from(counts.testing)));
        let target = settings.target_active;
        let below = |counts: Counts, target| u64::from(counts.active < target);
        let wanted = supposed.roster.settings().target_active;
        self.below_target.add([
            below(before, target),
            below(after, target),
            below(what_if, wanted),
        ]);
        self.violations.planned += u64::from(one.violations.planned);
        self.violations.what_if += u64::from(one.violations.what_if);
    }

    /// Counts what others counted.
    pub fn merge(&mut self, other: &Totals) {
        let three = |into: &mut Three<u64>, from: Three<u64>| {
            into.add([from.before, from.after, from.what_if]);
        };
        self.servers += other.servers;
        self.differ += other.differ;
        self.changes.planned += other.changes.planned;
        self.changes.what_if += other.changes.what_if;
        self.gains += other.gains;
        self.loses += other.loses;
        three(&mut self.active, other.active);
        three(&mut self.testing, other.testing);
        three(&mut self.below_target, other.below_target);
        self.violations.planned += other.violations.planned;
        self.violations.what_if += other.violations.what_if;
    }
}
