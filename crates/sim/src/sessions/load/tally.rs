//! What a contender's decisions cost, over virtual time.

use super::desk::Where;
use super::traffic::Micros;
use super::{Contender, Options};
use serde::Serialize;
use std::collections::BTreeMap;

/// Lives of each worker that can be drawn; more would be a hatching.
const LIVES_DRAWN: u64 = 8;
/// Points that are drawn at most.
const TEETH_MAX: u64 = 200_000;

/// A point of the sawtooth: a worker's life is so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tooth {
    /// When, in milliseconds since the start.
    pub at_ms: u64,
    /// Which worker, from zero.
    pub worker: u32,
    /// Sessions in its life; none is the moment it went to restart.
    pub lifetime: Option<u32>,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Who chose.
    pub contender: Contender,
    /// Workers that may be away at once, where somebody asks.
    pub budget: u32,
    /// What was counted and measured; each name ends in its unit.
    pub figures: BTreeMap<&'static str, f64>,
    /// The first lives of all workers, in the order of time.
    pub teeth: Vec<Tooth>,
}

impl Outcome {
    /// A figure by its name; zero if there is none.
    pub fn figure(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or(0.0)
    }
}

/// Counts along.
pub(super) struct Tally {
    contender: Contender,
    budget: u32,
    lifetime: u32,
    until: Micros,
    elapsed: f64,
    stands: Vec<Where>,
    active: Vec<u32>,
    lifetimes: Vec<u32>,
    out: u32,
    held: u32,
    out_max: u32,
    held_max: u32,
    out_time: f64,
    held_time: f64,
    over_time: f64,
    spread_time: f64,
    pub began: u64,
    pub ended: u64,
    pub cut: u64,
    waited: u64,
    wait_total: f64,
    wait_max: Micros,
    restarts: u64,
    teeth: Vec<Tooth>,
    teeth_max: u64,
}

impl Tally {
    pub fn new(options: &Options, contender: Contender) -> Self {
        let workers = options.workers as usize;
        let lives = u64::from(options.workers) * u64::from(options.lifetime) * LIVES_DRAWN;
        Tally {
            contender,
            budget: options.budget.of(options.workers),
            lifetime: options.lifetime,
            until: 0,
            elapsed: 0.0,
            stands: vec![Where::Serves; workers],
            active: vec![0; workers],
            lifetimes: vec![0; workers],
            out: 0,
            held: 0,
            out_max: 0,
            held_max: 0,
            out_time: 0.0,
            held_time: 0.0,
            over_time: 0.0,
            spread_time: 0.0,
            began: 0,
            ended: 0,
            cut: 0,
            waited: 0,
            wait_total: 0.0,
            wait_max: 0,
            restarts: 0,
            teeth: Vec::new(),
            teeth_max: lives.min(TEETH_MAX),
        }
    }

    /// Time has passed with everybody as they were.
    pub fn pass(&mut self, now: Micros) {
        let passed = (now - self.until) as f64;
        if passed > 0.0 {
            self.until = now;
            self.elapsed += passed;
            self.out_time += f64::from(self.out) * passed;
            self.held_time += f64::from(self.held) * passed;
            self.over_time += if self.out > self.budget { passed } else { 0.0 };
            self.spread_time += f64::from(self.spread()) * passed;
        }
    }

    /// How far the fullest of those who serve is from the emptiest.
    fn spread(&self) -> u32 {
        let serving = self.stands.iter().zip(&self.active);
        let serving = serving.filter(|(stands, _)| **stands == Where::Serves);
        let (least, most) =
            serving.fold((u32::MAX, 0), |(least, most), (_, &one)| (least.min(one), most.max(one)));
        most.saturating_sub(least)
    }

    /// Everybody stands there now.
    pub fn stand(&mut self, stands: &[Where]) {
        self.stands.clear();
        self.stands.extend_from_slice(stands);
        let count = |what| stands.iter().filter(|one| **one == what).count() as u32;
        (self.out, self.held) = (count(Where::Out), count(Where::Held));
        self.out_max = self.out_max.max(self.out);
        self.held_max = self.held_max.max(self.held);
    }

    pub fn seated(&mut self, now: Micros, worker: usize, waited: Option<Micros>) {
        self.began += 1;
        self.active[worker] += 1;
        self.lifetimes[worker] += 1;
        if let Some(wait) = waited {
            self.waited += 1;
            self.wait_total += wait as f64;
            self.wait_max = self.wait_max.max(wait);
        }
        let lifetime = self.lifetimes[worker];
        assert!(lifetime <= self.lifetime, "worker {worker} has {lifetime} sessions in its life");
        self.tooth(now, worker, Some(lifetime));
    }

    pub fn ended(&mut self, worker: usize) {
        self.ended += 1;
        self.active[worker] -= 1;
    }

    pub fn restarts(&mut self, now: Micros, worker: usize) {
        assert_eq!(self.active[worker], 0, "worker {worker} restarts with sessions on it");
        self.restarts += 1;
        self.tooth(now, worker, None);
    }

    pub fn back(&mut self, now: Micros, worker: usize) {
        self.lifetimes[worker] = 0;
        self.tooth(now, worker, Some(0));
    }

    fn tooth(&mut self, now: Micros, worker: usize, lifetime: Option<u32>) {
        if self.began <= self.teeth_max {
            self.teeth.push(Tooth { at_ms: now / 1_000, worker: worker as u32, lifetime });
        }
    }

    pub fn outcome(self) -> Outcome {
        let time = self.elapsed.max(1.0);
        let sessions = self.began.max(1) as f64;
        let ideal = sessions / f64::from(self.lifetime.max(1));
        let figures = BTreeMap::from([
            ("virtual_seconds", time / 1e6),
            ("sessions", self.began as f64),
            ("ended", self.ended as f64),
            ("cut", self.cut as f64),
            ("out_max", f64::from(self.out_max)),
            ("out_mean", self.out_time / time),
            ("over_budget_percent", self.over_time / time * 100.0),
            ("held_mean", self.held_time / time),
            ("held_max", f64::from(self.held_max)),
            ("waited", self.waited as f64),
            ("waited_percent", self.waited as f64 / sessions * 100.0),
            ("wait_mean_ms", self.wait_total / sessions / 1e3),
            ("wait_max_ms", self.wait_max as f64 / 1e3),
            ("restarts", self.restarts as f64),
            ("restarts_per_ideal_ratio", self.restarts as f64 / ideal),
            ("imbalance_sessions", self.spread_time / time),
        ]);
        Outcome { contender: self.contender, budget: self.budget, figures, teeth: self.teeth }
    }
}
