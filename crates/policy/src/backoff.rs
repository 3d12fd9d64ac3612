//! How long to wait before trying again.

use crate::{Chance, Decision, Reason};
use std::time::Duration;

/// How waits grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most that the wait before the first repetition can be.
    pub base: Duration,
    /// The most that any wait can be.
    pub cap: Duration,
}

/// The wait before attempt `attempt` (the first repetition is attempt 1): full jitter, a random
/// point between zero and `base` doubled for each attempt before it, at most `cap`.
///
/// Full jitter spreads many callers that failed together over the whole window, where a fixed or
/// half-fixed wait would bring them back together.
pub fn wait_before_attempt(
    attempt: u32,
    options: &Options,
    chance: &mut impl Chance,
) -> Decision<Duration> {
    let most = ceiling(attempt, options);
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    let wait = Duration::from_nanos(chance.up_to(nanos));
    Reason::new("full-jitter").with("attempt", attempt).with("at_most", most).choose(wait)
}

fn ceiling(attempt: u32, options: &Options) -> Duration {
    let doublings = attempt.saturating_sub(1);
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    options.base.saturating_mul(factor).min(options.cap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededChance;
    use proptest::prelude::*;

    const OPTIONS: Options =
        Options { base: Duration::from_millis(100), cap: Duration::from_secs(5) };

    /// The largest wait there is, to see the ceiling itself.
    struct Most;

    impl Chance for Most {
        fn bits(&mut self) -> u64 {
            u64::MAX
        }
    }

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let millis: Vec<u128> = (1..=8)
            .map(|attempt| wait_before_attempt(attempt, &OPTIONS, &mut Most).chosen.as_millis())
            .collect();
        assert_eq!(millis, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }

    #[test]
    fn waits_spread_over_the_whole_window() {
        let mut chance = SeededChance::new(5);
        let waits: Vec<Duration> =
            (0..1_000).map(|_| wait_before_attempt(4, &OPTIONS, &mut chance).chosen).collect();
        let below = |limit| waits.iter().filter(move |wait| **wait < Duration::from_millis(limit));
        assert!((200..300).contains(&below(200).count()));
        assert!((450..550).contains(&below(400).count()));
    }

    proptest! {
        #[test]
        fn no_wait_ever_passes_the_cap(attempt: u32, seed: u64, base_ms in 0_u64..1 << 40) {
            let options = Options { base: Duration::from_millis(base_ms), ..OPTIONS };
            let wait = wait_before_attempt(attempt, &options, &mut SeededChance::new(seed));
            prop_assert!(wait.chosen <= options.cap);
        }
    }
}
