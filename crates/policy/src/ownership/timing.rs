//! How long trust lasts, and how long one waits before calling another dead.

use serde::Serialize;
use std::time::Duration;

/// The spans of time that ownership rests on. All nodes of an installation must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// How long a session lives after a renewal.
    pub ttl: Duration,
    /// How often it is renewed.
    pub tick: Duration,
    /// What is left between the end of one node's trust and the beginning of another's, for the
    /// time between a check and what it allowed.
    pub margin: Duration,
    /// How much faster or slower than true time a clock may run: 0.005 is half a percent.
    pub drift: f64,
    /// How many renewals a node that has come waits before it takes work.
    pub observe_ticks: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            ttl: Duration::from_secs(15),
            tick: Duration::from_secs(1),
            margin: Duration::from_millis(500),
            drift: 0.005,
            observe_ticks: 3,
        }
    }
}

/// Spans that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTiming {
    /// Which one to change.
    pub field: &'static str,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl Timing {
    /// How long after the moment before a renewal was sent a node may trust it.
    pub fn trust(&self) -> Duration {
        self.ttl.mul_f64(1.0 - self.drift).saturating_sub(self.margin)
    }

    /// How long a number must stand still before its node is dead.
    pub fn silence(&self) -> Duration {
        self.ttl.mul_f64(1.0 + self.drift) + self.margin
    }

    /// The longest piece of work, in whole milliseconds: one that still fits when two renewals in a
    /// row came late.
    pub fn work_max(&self) -> Duration {
        let left = self.ttl.mul_f64(1.0 - self.drift).saturating_sub(self.reserved());
        // What a multiplication loses is less than a microsecond.
        let millis = (left + Duration::from_micros(1)).as_millis();
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// The `ttl` that work of this length would need, rounded up to a tenth of a second, so that it
    /// is a number one can put into the settings.
    pub fn ttl_for(&self, work: Duration) -> Duration {
        let needed = (work + self.reserved()).div_f64(1.0 - self.drift).as_secs_f64();
        Duration::from_millis((needed * 10.0 - 1e-6).ceil().max(0.0) as u64 * 100)
    }

    fn reserved(&self) -> Duration {
        2 * self.margin + 2 * self.tick
    }

    /// How long one call to the store may take: a call that is stuck must not eat the trust that a
    /// second one could have saved.
    pub fn call_limit(&self) -> Duration {
        (self.ttl / 10).min(Duration::from_secs(1))
    }

    /// What does not go together, all of it.
    pub fn validate(&self) -> Vec<BadTiming> {
        let mut found = Vec::new();
        let mut say = |field, problem| found.push(BadTiming { field, problem });
        let (ttl, tick, margin) = (self.ttl, self.tick, self.margin);
        if tick.is_zero() || 3 * tick > ttl {
            say(
                "tick",
                format!(
                    "{tick:?} does not go with a ttl of {ttl:?}: a session must be renewed at \
                     least three times in it; give at most {:?}",
                    ttl / 3
                ),
            );
        }
        if !(0.0..=0.1).contains(&self.drift) {
            say("drift", format!("{} is not allowed; give 0 to 0.1", self.drift));
        } else if self.work_max() < MIN_WORK {
            say(
                "margin",
                format!(
                    "{margin:?} leaves no time for work: ttl * (1 - drift) - 2 * margin - 2 * tick \
                     must be at least {MIN_WORK:?}, and is {:?} with a ttl of {ttl:?} and a tick \
                     of {tick:?}; give less, or a longer ttl",
                    self.work_max()
                ),
            );
        }
        found
    }
}

/// Less than this is no time to do anything over a network.
const MIN_WORK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_defaults_give_the_documented_spans() {
        let timing = Timing::default();
        assert_eq!(timing.trust(), secs(14.425));
        assert_eq!(timing.silence(), secs(15.575));
        assert_eq!(timing.work_max(), secs(11.925));
        assert_eq!(timing.call_limit(), secs(1.0));
        assert_eq!(timing.validate(), []);
    }

    #[test]
    fn thirty_seconds_renewed_every_ten_are_valid() {
        let timing = Timing { ttl: secs(30.0), tick: secs(10.0), ..Timing::default() };
        assert_eq!(timing.validate(), []);
        assert_eq!(timing.work_max(), secs(8.85));
    }

    #[test]
    fn the_ttl_a_long_piece_of_work_needs_makes_it_fit() {
        let timing = Timing::default();
        let ttl = timing.ttl_for(secs(20.0));
        assert_eq!(ttl, secs(23.2));
        assert!(Timing { ttl, ..timing }.work_max() >= secs(20.0));
        assert!(Timing { ttl: ttl - secs(0.1), ..timing }.work_max() < secs(20.0));
        let short = Timing { ttl: secs(2.0), ..timing };
        assert_eq!(short.work_max(), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn the_named_ttl_is_long_enough(millis in 1_u64..10_000_000, drift in 0.0_f64..0.1) {
            let (work, timing) = (Duration::from_millis(millis), Timing::default());
            let timing = Timing { drift, ..timing };
            let enough = Timing { ttl: timing.ttl_for(work), ..timing };
            prop_assert!(enough.work_max() >= work);
        }
    }

    #[test]
    fn spans_that_do_not_go_together_are_all_named() {
        let timing = Timing { tick: secs(6.0), margin: secs(2.0), ..Timing::default() };
        let fields: Vec<_> = timing.validate().into_iter().map(|bad| bad.field).collect();
        assert_eq!(fields, ["tick", "margin"]);
        let drifting = Timing { drift: 0.5, ..Timing::default() };
        assert_eq!(drifting.validate()[0].field, "drift");
        let still = Timing { tick: Duration::ZERO, ..Timing::default() };
        assert_eq!(still.validate()[0].field, "tick");
    }

    #[test]
    fn trust_ends_before_silence_is_long_enough_even_if_both_clocks_err() {
        for ttl in [0.5, 2.0, 15.0, 30.0, 600.0] {
            let timing = Timing { ttl: secs(ttl), tick: secs(ttl / 4.0), ..Timing::default() };
            let longest_trust = timing.trust().div_f64(1.0 - timing.drift);
            let shortest_wait = timing.silence().div_f64(1.0 + timing.drift);
            assert!(longest_trust + timing.margin < shortest_wait, "{ttl}");
        }
    }
}
