//! What a queue's owner decided about its messages.

use crate::{Chance, Time};
use std::time::Duration;

/// The part of a queue's options that decides about claims and settlements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long a claim holds.
    pub lease: Duration,
    /// So many failures bring a message back; the next one sets it aside.
    pub retry_limit: u32,
    /// The wait after the first failure, at most; it doubles with each.
    pub retry_delay: Duration,
    /// No wait after a failure is longer.
    pub retry_delay_max: Duration,
    /// A message is not handed out earlier than so long after it was pushed.
    pub delay: Duration,
    /// A partition is not handed out until so long after its last push.
    pub window: Duration,
    /// A message is not handed out later than so long after it was pushed; the smaller of the
    /// queue's time to live and its longest wait, where they are set.
    pub lifetime: Option<Duration>,
    /// Messages pushed before this time are not handed out: the queue was cleared then.
    pub floor: Time,
}

/// What a message says about its failures, where its queue shall not decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// Instead of [`Rules::retry_limit`].
    pub limit: Option<u32>,
    /// Instead of [`Rules::retry_delay`].
    pub delay: Option<Duration>,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            lease: Duration::from_secs(300),
            retry_limit: 3,
            retry_delay: Duration::from_millis(1_000),
            retry_delay_max: Duration::from_secs(3_600),
            delay: Duration::ZERO,
            window: Duration::ZERO,
            lifetime: None,
            floor: Time::ZERO,
        }
    }
}

impl Rules {
    /// The wait after failure number `failures` (the first is 1): between half and all of the
    /// delay doubled for each failure before. Never less than half, because whoever asks for a
    /// delay wants one; jittered, because those who failed together should not come back together.
    pub fn wait_after(&self, failures: u32, chance: &mut impl Chance) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let most = self.retry_delay.saturating_mul(factor).min(self.retry_delay_max);
        let half = most / 2;
        let nanos = u64::try_from((most - half).as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(chance.up_to(nanos))
    }

    /// Messages pushed before this time are too old to be handed out, or were cleared away.
    pub fn expired_before(&self, now: Time) -> Option<Time> {
        let oldest = self.lifetime.map_or(Time::ZERO, |lifetime| now - lifetime).max(self.floor);
        (oldest > Time::ZERO).then_some(oldest)
    }

    /// The rules for a message that has its own.
    pub fn with(&self, own: &Retry) -> Rules {
        Rules {
            retry_limit: own.limit.unwrap_or(self.retry_limit),
            retry_delay: own.delay.unwrap_or(self.retry_delay),
            ..*self
        }
    }
}

/// Where a group that was never seen before begins to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the first message that is kept.
    #[default]
    All,
    /// At the first message pushed at this time or later.
    From(Time),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededChance;
    use proptest::prelude::*;

    #[test]
    fn waits_double_from_the_delay_to_its_maximum() {
        struct Most;
        impl Chance for Most {
            fn bits(&mut self) -> u64 {
                u64::MAX
            }
        }
        let rules = Rules { retry_delay_max: Duration::from_secs(5), ..Rules::default() };
        let millis: Vec<u128> =
            (1..=5).map(|failures| rules.wait_after(failures, &mut Most).as_millis()).collect();
        assert_eq!(millis, [1_000, 2_000, 4_000, 5_000, 5_000]);
    }

    #[test]
    fn without_a_delay_there_is_no_wait() {
        let rules = Rules { retry_delay: Duration::ZERO, ..Rules::default() };
        assert_eq!(rules.wait_after(9, &mut SeededChance::new(1)), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn a_wait_is_between_half_and_all_of_its_step(failures in 1_u32..40, seed: u64) {
            let rules = Rules::default();
            let step = rules.retry_delay.saturating_mul(1_u32.checked_shl(failures - 1)
                .unwrap_or(u32::MAX)).min(rules.retry_delay_max);
            let wait = rules.wait_after(failures, &mut SeededChance::new(seed));
            prop_assert!(wait >= step / 2 && wait <= step);
        }
    }
}
