//! What is counted while servers are reviewed.

use super::watch::Recovery;
use super::weather::{TICK, TICKS_A_DAY, Weather};
use super::{Options, Scenario};
use serde::Serialize;
use skep_policy::monitors::Plan;
use std::collections::BTreeMap;

/// A new fleet has so long to find its monitors.
const SETTLES_DAYS: usize = 5;
const QUARTER: usize = TICKS_A_DAY / 4;
/// As many runs as nobody has.
pub(super) const NEVER: u64 = 1_000_000;
/// So many broken promises are told.
const BROKEN_MAX: usize = 5;

/// Six hours of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quarter {
    /// Reviews.
    pub runs: u64,
    /// Changes.
    pub changes: u64,
    /// Reviews after which fewer were active than should be.
    pub below_target: u64,
    /// Active monitors, summed over the reviews.
    pub active: u64,
    /// Monitors of the fleet.
    pub monitors: u64,
}

impl Quarter {
    /// Active monitors of a server.
    pub fn active_mean(&self) -> f64 {
        self.active as f64 / self.runs.max(1) as f64
    }

    /// How many of a hundred reviews left a server with too few.
    pub fn below_percent(&self) -> f64 {
        100.0 * self.below_target as f64 / self.runs.max(1) as f64
    }

    /// Changes a server and run.
    pub fn churn(&self) -> f64 {
        self.changes as f64 / self.runs.max(1) as f64
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What happened.
    pub scenario: Scenario,
    /// What was counted and measured.
    pub figures: BTreeMap<String, f64>,
    /// Six hours each.
    pub timeline: Vec<Quarter>,
    /// What did not hold.
    pub failures: Vec<String>,
}

impl Outcome {
    pub(super) fn refused(options: &Options, why: String) -> Outcome {
        let (figures, timeline) = (BTreeMap::new(), Vec::new());
        Outcome { scenario: options.scenario, figures, timeline, failures: vec![why] }
    }

    /// A figure; 0 if there is none of that name.
    pub fn figure(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or(0.0)
    }
}

/// The runs that servers needed to have so many active again.
#[derive(Clone, Copy, Default)]
struct Regained {
    servers: u64,
    runs: u64,
    most: u64,
    /// Of those that had enough left.
    most_of_able: u64,
    never: u64,
}

impl Regained {
    fn note(&mut self, runs: Option<u32>, able: bool) {
        self.servers += 1;
        match runs.map(u64::from) {
            Some(runs) => {
                self.runs += runs;
                self.most = self.most.max(runs);
                self.most_of_able = self.most_of_able.max(if able { runs } else { 0 });
            }
            None => {
                self.never += 1;
                self.most_of_able = if able { NEVER } else { self.most_of_able };
            }
        }
    }

    fn merge(&mut self, other: Regained) {
        self.servers += other.servers;
        self.runs += other.runs;
        self.most = self.most.max(other.most);
        self.most_of_able = self.most_of_able.max(other.most_of_able);
        self.never += other.never;
    }
}

pub(super) struct Tally {
    settled: usize,
    target: u32,
    timeline: Vec<Quarter>,
    /// Since everything has settled.
    runs: u64,
    changes: u64,
    below: u64,
    below_five: u64,
    none: u64,
    first_ticks: u64,
    first_most: u64,
    below_at_end: u64,
    five: Regained,
    seven: Regained,
    broken: Vec<(usize, usize, String)>,
}

impl Tally {
    pub fn new(options: &Options) -> Self {
        Tally {
            settled: SETTLES_DAYS * TICKS_A_DAY,
            target: options.settings.target_active,
            timeline: vec![Quarter::default(); (options.days * TICKS_A_DAY).div_ceil(QUARTER)],
            runs: 0,
            changes: 0,
            below: 0,
            below_five: 0,
            none: 0,
            first_ticks: 0,
            first_most: 0,
            below_at_end: 0,
            five: Regained::default(),
            seven: Regained::default(),
            broken: Vec::new(),
        }
    }

    /// A server was reviewed.
    pub fn run(&mut self, tick: usize, plan: &Plan) {
        let (changes, active) = (plan.changes.len() as u64, plan.after.active);
        let below = u64::from(active < self.target);
        let quarter = &mut self.timeline[tick / QUARTER];
        quarter.runs += 1;
        quarter.changes += changes;
        quarter.below_target += below;
        quarter.active += u64::from(active);
        if tick >= self.settled {
            self.runs += 1;
            self.changes += changes;
            self.below += below;
            self.below_five += u64::from(active < 5);
            self.none += u64::from(active == 0);
        }
    }

    /// A server is through.
    pub fn server(&mut self, recovery: &Recovery, first: Option<usize>, active: u32) {
        let first = first.unwrap_or(self.timeline.len() * QUARTER) as u64;
        self.first_ticks += first;
        self.first_most = self.first_most.max(first);
        self.below_at_end += u64::from(active < self.target);
        if recovery.happened() {
            self.five.note(recovery.five, recovery.could_have(5));
            self.seven.note(recovery.seven, recovery.could_have(7));
        }
    }

    /// Something does not hold.
    pub fn broken(&mut self, server: usize, tick: usize, what: String) {
        if self.broken.len() < BROKEN_MAX {
            self.broken.push((server, tick, what));
        }
    }

    pub fn merge(&mut self, other: Tally) {
        for (into, from) in self.timeline.iter_mut().zip(other.timeline) {
            into.runs += from.runs;
            into.changes += from.changes;
            into.below_target += from.below_target;
            into.active += from.active;
        }
        self.runs += other.runs;
        self.changes += other.changes;
        self.below += other.below;
        self.below_five += other.below_five;
        self.none += other.none;
        self.first_ticks += other.first_ticks;
        self.first_most = self.first_most.max(other.first_most);
        self.below_at_end += other.below_at_end;
        self.five.merge(other.five);
        self.seven.merge(other.seven);
        self.broken.extend(other.broken);
    }

    pub fn finish(mut self, options: &Options, weather: &Weather) -> Outcome {
        for (place, quarter) in self.timeline.iter_mut().enumerate() {
            quarter.monitors = weather.there(place * QUARTER) as u64;
        }
        let percent = |part: u64| 100.0 * part as f64 / self.runs.max(1) as f64;
        let hours = TICK.as_secs_f64() / 3_600.0;
        let servers = options.servers.max(1) as f64;
        let all: u64 = self.timeline.iter().map(|quarter| quarter.runs).sum();
        let mut figures: BTreeMap<String, f64> = [
            ("runs", all as f64),
            ("churn_per_run", self.changes as f64 / self.runs.max(1) as f64),
            ("changes_per_server_and_day", {
                let days = options.days.saturating_sub(SETTLES_DAYS).max(1) as f64;
                self.changes as f64 / servers / days
            }),
            ("below_target_percent", percent(self.below)),
            ("below_five_percent", percent(self.below_five)),
            ("none_active_percent", percent(self.none)),
            ("below_target_at_end", self.below_at_end as f64),
            ("seven_active_after_hours_mean", self.first_ticks as f64 / servers * hours),
            ("seven_active_after_hours_max", self.first_most as f64 * hours),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if weather.loss.is_some() {
            for (name, regained) in [("five", self.five), ("seven", self.seven)] {
                let back = (regained.servers - regained.never).max(1) as f64;
                for (what, value) in [
                    ("active_after_runs_mean", regained.runs as f64 / back),
                    ("active_after_runs_max", regained.most_of_able as f64),
                    ("active_after_runs_max_of_all", regained.most as f64),
                    ("active_never_servers", regained.never as f64),
                ] {
                    figures.insert(format!("{name}_{what}"), value);
                }
            }
        }
        self.broken.sort();
        self.broken.truncate(BROKEN_MAX);
        let told = |(server, tick, what): (usize, usize, String)| {
            format!("server {} on day {}: {what}", server + 1, tick / TICKS_A_DAY + 1)
        };
        Outcome {
            scenario: options.scenario,
            figures,
            timeline: self.timeline,
            failures: self.broken.into_iter().map(told).collect(),
        }
    }
}
