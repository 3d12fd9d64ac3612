//! What a run leaves behind: its failures, its figures, its timeline.

use serde::Serialize;
use skep_policy::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// The pools at one moment of virtual time, in the order critical, high, normal, low, shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// When, in milliseconds since the start.
    pub at_ms: u64,
    /// Workers that are there, abandoned ones not counted.
    pub workers: [u32; 5],
    /// Tasks that a worker could start. The shared pool has no queue.
    pub queue: [u32; 5],
}

/// Failures after which a run ends: one is a report, a hundred are noise.
const FAILURES_MAX: usize = 8;
/// Samples at most. With more, every second one goes and the time between two doubles, so that a
/// timeline fits a screen however long the run was.
const SAMPLES_MAX: usize = 480;

pub(crate) struct Story {
    seed: u64,
    /// Which pools of the run: some runs open and stop many, one after the other.
    pub life: u64,
    pub events: u64,
    pub failures: Vec<String>,
    pub timeline: Vec<Sample>,
    pub figures: BTreeMap<String, f64>,
    period: Duration,
    next_sample: Time,
    broken: bool,
}

impl Story {
    pub fn new(seed: u64, period: Duration) -> Self {
        Story {
            seed,
            life: 0,
            events: 0,
            failures: Vec::new(),
            timeline: Vec::new(),
            figures: BTreeMap::new(),
            period,
            next_sample: Time::ZERO,
            broken: false,
        }
    }

    /// Something went wrong that must not.
    pub fn fail(&mut self, now: Time, what: String) {
        let Story { seed, life, events, .. } = self;
        self.failures.push(format!("seed {seed}, life {life}, event {events}, at {now}: {what}"));
    }

    /// What comes next would mean nothing.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    pub fn is_broken(&self) -> bool {
        self.broken || self.failures.len() >= FAILURES_MAX
    }

    /// Counts something that the chaos is meant to reach.
    pub fn note(&mut self, what: &str) {
        self.add(what, 1.0);
    }

    pub fn add(&mut self, what: &str, more: f64) {
        match self.figures.get_mut(what) {
            Some(figure) => *figure += more,
            None => self.set(what, more),
        }
    }

    pub fn set(&mut self, what: &str, figure: f64) {
        self.figures.insert(what.to_owned(), figure);
    }

    /// The time of the next sample, if it is not after `to`.
    pub fn samples_at(&self, to: Time) -> Option<Time> {
        (self.next_sample <= to).then_some(self.next_sample)
    }

    pub fn sample(&mut self, at: Time, workers: [u32; 5], queue: [u32; 5]) {
        self.timeline.push(Sample { at_ms: at.as_millis(), workers, queue });
        if self.timeline.len() >= SAMPLES_MAX {
            let mut number = 0;
            self.timeline.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.period *= 2;
        }
        self.next_sample = at + self.period;
    }
}
