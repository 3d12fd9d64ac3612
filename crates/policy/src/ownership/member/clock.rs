//! What the store's wall clock says, learned from its answers.
//!
//! Schedules need a clock that nodes agree on; the store's is the one they all hear. An answer
//! gives it with an error of half the time the answer took, so a quicker answer is worth more, and
//! one that cannot be explained by errors means that the clock was set.

use crate::Time;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreClock {
    estimate: Option<Estimate>,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    at: Time,
    ms: i64,
    error_ms: i64,
}

impl StoreClock {
    /// Takes in what the store said in answer to a question of `sent`, received at `now`. An
    /// estimate gets worse with its age by as much as clocks may err.
    pub(super) fn hear(&mut self, sent: Time, now: Time, ms: i64, drift: f64) {
        let round_trip = now.since(sent);
        let at = sent + round_trip / 2;
        let error_ms = i64::try_from(round_trip.as_millis() / 2).unwrap_or(i64::MAX) + 1;
        if let (Some(estimate), Some(expected)) = (self.estimate, self.at(at)) {
            let age_ms = i64::try_from(at.since(estimate.at).as_millis()).unwrap_or(i64::MAX);
            let grown = estimate.error_ms.saturating_add((age_ms as f64 * drift) as i64);
            let explained = ms.abs_diff(expected) <= error_ms.saturating_add(grown).unsigned_abs();
            if explained && error_ms > grown {
                return;
            }
        }
        self.estimate = Some(Estimate { at, ms, error_ms });
    }

    /// The store's clock at a moment of ours.
    pub(super) fn at(&self, now: Time) -> Option<i64> {
        let Estimate { at, ms, .. } = self.estimate?;
        let (later, sign) = if now >= at { (now.since(at), 1) } else { (at.since(now), -1) };
        Some(ms + sign * i64::try_from(later.as_millis()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_quick_answer_is_worth_more_than_a_slow_one() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.at(at(0)), None);
        clock.hear(at(1_000), at(1_200), 50_100, 0.0005);
        assert_eq!(clock.at(at(2_100)), Some(51_100));
        clock.hear(at(2_000), at(2_002), 51_040, 0.0005);
        assert_eq!(clock.at(at(2_001)), Some(51_040));
        // Slower and explained by its error: ignored.
        clock.hear(at(3_000), at(3_100), 52_080, 0.0005);
        assert_eq!(clock.at(at(3_001)), Some(52_040));
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        let mut clock = StoreClock::default();
        clock.hear(at(1_000), at(1_002), 50_000, 0.0005);
        clock.hear(at(2_000), at(2_010), 500_000, 0.0005);
        assert_eq!(clock.at(at(2_005)), Some(500_000));
        clock.hear(at(3_000), at(3_010), 1_000, 0.0005);
        assert_eq!(clock.at(at(3_105)), Some(1_100));
    }

    #[test]
    fn an_old_estimate_gives_way_to_a_slower_answer() {
        let mut clock = StoreClock::default();
        clock.hear(at(0), at(0), 10_000, 0.0005);
        clock.hear(at(60_000), at(60_020), 70_030, 0.0005);
        assert_eq!(clock.at(at(60_010)), Some(70_030));
    }
}
