//! From samples to health and priority.
//!
//! What a sample is worth, its *step*:
//!
//! | what the monitor saw | step |
//! | --- | --- |
//! | a good answer, the clock off by at most 75 ms (or no clock to compare) | 1 |
//! | off by 75 ms to 750 ms | from 1 down to -2 in a straight line |
//! | off by more than 750 ms | -2 |
//! | off by more than 3 s | -4 |
//! | an answer that is wrong | -4 |
//! | no answer in time | -5 |
//!
//! The *score* of a monitor and a server is what remains of its steps: each new one is added to
//! 95 % of what was there, so that a perfect record tends to 20 and one timeout costs 5.

use super::settings::Settings;
use crate::Time;
use serde::{Deserialize, Serialize};

/// What one measurement saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen {
    /// A good answer; by how many seconds the clock was off, where there is one.
    Answer {
        /// Seconds, of either sign.
        offset: Option<f64>,
    },
    /// An answer, but a wrong one.
    Wrong,
    /// No answer in time.
    Timeout,
}

const PERFECT: f64 = 1.0;
const FAR_OFF: f64 = -2.0;
const HOPELESS: f64 = -4.0;
const TIMEOUT: f64 = -5.0;
const FINE_UP_TO: f64 = 0.075;
const FAR_FROM: f64 = 0.75;
const HOPELESS_FROM: f64 = 3.0;
const REMAINS: f64 = 0.95;

/// What a measurement is worth: 1 is perfect.
pub fn step(seen: Seen) -> f64 {
    match seen {
        Seen::Timeout => TIMEOUT,
        Seen::Wrong => HOPELESS,
        Seen::Answer { offset: None } => PERFECT,
        Seen::Answer { offset: Some(offset) } => match offset.abs() {
            off if off <= FINE_UP_TO => PERFECT,
            off if off <= FAR_FROM => {
                let along = (off - FINE_UP_TO) / (FAR_FROM - FINE_UP_TO);
                PERFECT + along * (FAR_OFF - PERFECT)
            }
            off if off <= HOPELESS_FROM => FAR_OFF,
            // Also what is not a number.
            _ => HOPELESS,
        },
    }
}

/// The score after one more step.
pub fn next_score(score: f64, step: f64) -> f64 {
    score * REMAINS + step
}

/// `round(rtt_ms * (1 + 2 * (1 - step)))`: perfect steps leave the round trip in milliseconds, a
/// mean step of 0 makes it three times that. Lower is better.
pub fn priority(rtt_ms: f64, step: f64) -> i64 {
    // Beyond the range it saturates, and what is not a number becomes 0.
    libm::round(rtt_ms * (1.0 + 2.0 * (1.0 - step))) as i64
}

/// How a monitor is doing with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Its mean step is not below 0, and it was heard lately.
    Healthy,
    /// It has no sample, and no time to have one yet.
    Unmeasured,
    /// Its mean step or its priority is below 0.
    Unhealthy,
    /// It was not heard for too long.
    Silent,
}

impl Health {
    /// Whether it does badly, which one that was not measured yet does not.
    pub const fn is_bad(self) -> bool {
        matches!(self, Health::Unhealthy | Health::Silent)
    }
}

/// What the samples of the look-back come to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// How it is doing.
    pub health: Health,
    /// Lower is better.
    pub priority: i64,
    /// The mean step.
    pub step: f32,
    /// The mean round trip, in milliseconds.
    pub rtt_ms: f32,
    /// How many samples.
    pub count: u32,
}

impl Measured {
    /// Nothing was heard yet, and that is no fault.
    pub const NOTHING: Measured =
        Measured { health: Health::Unmeasured, priority: 0, step: 0.0, rtt_ms: 0.0, count: 0 };

    /// What somebody else worked out. A priority below 0 is unhealthy whatever they say.
    pub fn given(healthy: bool, priority: i64, step: f64, rtt_ms: f64, count: u32) -> Measured {
        let fine = healthy && priority >= 0;
        let health = if fine { Health::Healthy } else { Health::Unhealthy };
        Measured { health, priority, step: step as f32, rtt_ms: rtt_ms as f32, count }
    }

    /// Whether it does well.
    pub const fn is_healthy(&self) -> bool {
        matches!(self.health, Health::Healthy)
    }
}

/// One measurement, as it is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// The round trip in milliseconds, where there was one. One that is kept as 0 counts as 0.
    pub rtt_ms: Option<f64>,
    /// What it was worth.
    pub step: f64,
}

/// Samples of one monitor and one server, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many samples.
    pub count: u32,
    /// The sum of their steps.
    pub steps: f64,
    /// How many had a round trip.
    pub rtts: u32,
    /// The sum of their round trips, in milliseconds.
    pub rtt_ms: f64,
    /// The latest.
    pub latest: Option<Time>,
}

impl Summary {
    /// Those of the samples that are within the look-back, added up.
    pub fn of<'a>(
        samples: impl IntoIterator<Item = &'a Sample>,
        now: Time,
        settings: &Settings,
    ) -> Summary {
        let mut summary = Summary::default();
        for sample in samples {
            if now.since(sample.at) <= settings.look_back {
                summary.add(sample);
            }
        }
        summary
    }

    /// Adds one.
    pub fn add(&mut self, sample: &Sample) {
        self.count += 1;
        self.steps += sample.step;
        if let Some(rtt_ms) = sample.rtt_ms {
            self.rtts += 1;
            self.rtt_ms += rtt_ms;
        }
        self.latest = self.latest.max(Some(sample.at));
    }

    /// What they come to. `since` is when the monitor got its present status for the server: one
    /// that has had no time to measure is not silent.
    pub fn measured(&self, since: Time, now: Time, settings: &Settings) -> Measured {
        let late = |from: Time| now.since(from) > settings.silent_after;
        if self.count == 0 {
            let health = if late(since) { Health::Silent } else { Health::Unmeasured };
            return Measured { health, ..Measured::NOTHING };
        }
        let step = self.steps / f64::from(self.count);
        let rtt_ms = self.rtt_ms / f64::from(self.rtts.max(1));
        let priority = priority(rtt_ms, step);
        let health = match self.latest {
            Some(latest) if late(latest) => Health::Silent,
            _ if step >= 0.0 && priority >= 0 => Health::Healthy,
            _ => Health::Unhealthy,
        };
        let (step, rtt_ms) = (step as f32, rtt_ms as f32);
        Measured { health, priority, step, rtt_ms, count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn off(seconds: f64) -> f64 {
        step(Seen::Answer { offset: Some(seconds) })
    }

    #[test]
    fn the_steps_are_those_of_the_table() {
        assert_eq!(step(Seen::Answer { offset: None }), 1.0);
        assert_eq!([off(0.0), off(-0.075), off(0.075)], [1.0; 3]);
        assert!((off(0.4125) - -0.5).abs() < 1e-9, "half way from 1 to -2");
        assert!((off(-0.75) - -2.0).abs() < 1e-9);
        assert_eq!([off(2.0), off(3.0), off(-3.1)], [-2.0, -2.0, -4.0]);
        assert_eq!(off(f64::NAN), -4.0);
        assert_eq!([step(Seen::Wrong), step(Seen::Timeout)], [-4.0, -5.0]);
    }

    #[test]
    fn a_perfect_score_tends_to_twenty_and_a_timeout_costs_five() {
        let perfect = (0..500).fold(0.0, |score, _| next_score(score, 1.0));
        assert!((perfect - 20.0).abs() < 1e-6);
        assert!((next_score(perfect, TIMEOUT) - 14.0).abs() < 1e-6, "95 % of 20, less 5");
    }

    #[test]
    fn priority_is_the_round_trip_weighted_by_the_steps() {
        assert_eq!(priority(37.0, 1.0), 37);
        assert_eq!(priority(37.0, 0.0), 111);
        assert_eq!(priority(10.0, 0.75), 15);
        assert_eq!(priority(0.0, -5.0), 0);
        assert_eq!(priority(0.5, 1.0), 1, "halves go up");
        assert_eq!(priority(f64::NAN, 1.0), 0);
    }

    fn measured(samples: &[(u64, f64, f64)], assigned_hours_ago: u64) -> Measured {
        let hour = Duration::from_secs(3_600);
        let now = Time::ZERO + 1_000 * hour;
        let sample = |&(minutes, rtt, step): &(u64, f64, f64)| Sample {
            at: now - Duration::from_secs(60 * minutes),
            rtt_ms: Some(rtt),
            step,
        };
        let samples: Vec<Sample> = samples.iter().map(sample).collect();
        let settings = Settings::default();
        let since = now - (assigned_hours_ago as u32) * hour;
        Summary::of(&samples, now, &settings).measured(since, now, &settings)
    }

    #[test]
    fn health_is_a_mean_step_of_at_least_zero_over_a_day() {
        let found = measured(&[(5, 20.0, 1.0), (14, 40.0, 1.0)], 100);
        assert_eq!((found.health, found.priority, found.count), (Health::Healthy, 30, 2));
        let zero = measured(&[(5, 20.0, 1.0), (6, 40.0, -1.0)], 100);
        assert_eq!((zero.health, zero.priority), (Health::Healthy, 90));
        let bad = measured(&[(5, 20.0, 1.0), (6, 0.0, -5.0)], 100);
        assert_eq!(bad.health, Health::Unhealthy);
        let old = measured(&[(5, 20.0, 1.0), (24 * 60 + 1, 0.0, -5.0)], 100);
        assert_eq!((old.health, old.count), (Health::Healthy, 1), "a day ago is forgotten");
    }

    #[test]
    fn a_monitor_silent_for_three_hours_is_unhealthy_and_one_just_assigned_is_not() {
        assert_eq!(measured(&[(180, 20.0, 1.0)], 100).health, Health::Healthy);
        assert_eq!(measured(&[(181, 20.0, 1.0)], 100).health, Health::Silent);
        assert_eq!(measured(&[], 4).health, Health::Silent);
        assert_eq!(measured(&[], 3).health, Health::Unmeasured);
    }

    #[test]
    fn a_priority_below_zero_is_unhealthy_and_zero_is_best() {
        assert_eq!(Measured::given(true, -1, 1.0, 5.0, 9).health, Health::Unhealthy);
        assert_eq!(Measured::given(true, 0, 1.0, 0.0, 9).health, Health::Healthy);
        assert_eq!(Measured::given(false, 7, 1.0, 7.0, 9).health, Health::Unhealthy);
        assert_eq!(measured(&[(5, -20.0, 1.0)], 9).health, Health::Unhealthy);
    }

    #[test]
    fn a_round_trip_that_was_not_measured_does_not_count() {
        let mut summary = Summary::default();
        let at = Time::from_millis(1);
        summary.add(&Sample { at, rtt_ms: Some(30.0), step: 1.0 });
        summary.add(&Sample { at, rtt_ms: None, step: 1.0 });
        let found = summary.measured(at, at, &Settings::default());
        assert_eq!((found.rtt_ms, found.count), (30.0, 2));
    }
}
