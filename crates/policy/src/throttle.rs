//! May this happen now, or has it happened too often?

use crate::{Decision, Reason, Time};
use std::time::Duration;

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// So many at once.
    pub burst: u32,
    /// And then one each time this has passed.
    pub every: Duration,
}

/// How much of the burst is used up, as of a time. A fresh one has used nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// When everything used so far will have been paid back.
    paid_back_at: Time,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Allowed,
    /// Not before this time has passed.
    Wait(Duration),
}

impl Bucket {
    /// Whether one more may happen at `now`. Changes nothing: see [`Bucket::spend`].
    pub fn ask(&self, now: Time, options: &Options) -> Decision<Verdict> {
        let owed = self.paid_back_at.since(now);
        let most = options.every * options.burst.saturating_sub(1);
        let reason = Reason::new("burst-then-steady").with("owed", owed).with("at_most", most);
        if owed <= most {
            reason.choose(Verdict::Allowed)
        } else {
            reason.choose(Verdict::Wait(owed - most))
        }
    }

    /// Counts one that happened at `now`.
    pub fn spend(&mut self, now: Time, options: &Options) {
        self.paid_back_at = self.paid_back_at.max(now) + options.every;
    }

    /// Whether nothing is owed any more, so that the bucket can be forgotten.
    pub fn is_fresh(&self, now: Time) -> bool {
        self.paid_back_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: Options = Options { burst: 3, every: Duration::from_secs(10) };

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            assert_eq!(bucket.ask(at(100), &OPTIONS).chosen, Verdict::Allowed);
            bucket.spend(at(100), &OPTIONS);
        }
        let wait = bucket.ask(at(100), &OPTIONS);
        assert_eq!(wait.chosen, Verdict::Wait(Duration::from_secs(10)));
        assert_eq!(wait.reason.rule, "burst-then-steady");
        assert_eq!(bucket.ask(at(110), &OPTIONS).chosen, Verdict::Allowed);
        assert!(!bucket.is_fresh(at(110)));
        assert!(bucket.is_fresh(at(130)));
    }

    proptest! {
        #[test]
        fn no_window_ever_holds_more_than_burst_and_rate_allow(
            steps in prop::collection::vec(0_u64..5_000, 1..200),
        ) {
            let (mut bucket, mut now) = (Bucket::default(), Time::from_millis(1));
            let mut passed = Vec::new();
            for step in steps {
                now = now + Duration::from_millis(step);
                if bucket.ask(now, &OPTIONS).chosen == Verdict::Allowed {
                    bucket.spend(now, &OPTIONS);
                    passed.push(now);
                }
            }
            for (first, start) in passed.iter().enumerate() {
                for (last, end) in passed.iter().enumerate().skip(first) {
                    let steady = end.since(*start).as_millis() / OPTIONS.every.as_millis();
                    prop_assert!((last - first + 1) as u128 <= 3 + steady);
                }
            }
        }

        #[test]
        fn whoever_waits_as_told_is_allowed(spent in 0_u32..20) {
            let mut bucket = Bucket::default();
            for _ in 0..spent {
                bucket.spend(at(50), &OPTIONS);
            }
            let wait = match bucket.ask(at(50), &OPTIONS).chosen {
                Verdict::Allowed => Duration::ZERO,
                Verdict::Wait(wait) => wait,
            };
            prop_assert_eq!(bucket.ask(at(50) + wait, &OPTIONS).chosen, Verdict::Allowed);
        }
    }
}
