//! How hastily what is past its time is removed.
//!
//! Where one thread writes, whoever pushes waits for the round of removing that is under way. So
//! rounds are small and far between, and what is to be removed may wait a little: nobody sees it
//! any more. Only if removing falls far behind, because more comes than goes, it takes a larger
//! share, up to as much as everything else together.

use std::time::Duration;

/// What is not later than this has time.
const PATIENCE: Duration = Duration::from_secs(600);
/// Rows of a round; time ends most of them earlier.
const ROWS: u32 = 128;
/// How long a round may take that has time; and one that has not.
const HOLD: Duration = Duration::from_micros(200);
const HOLD_LATE: Duration = Duration::from_millis(10);
/// A round that has time is followed by a rest of so many times its length.
const REST: u32 = 30;
/// The rest is at least so long, however short the round was.
const REST_MIN: Duration = Duration::from_millis(10);

/// The next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// It removes so many rows at most.
    pub rows: u32,
    /// It ends after so long, if there is more to remove.
    pub hold: Duration,
    /// It begins after so long.
    pub rest: Duration,
}

impl Pace {
    /// Of the first round.
    pub const FIRST: Pace = Pace { rows: ROWS, hold: HOLD, rest: Duration::ZERO };

    /// After a round that held others up for so long and removed what should have gone `late` ago.
    pub fn after(held: Duration, late: Duration) -> Pace {
        let (hold, rest) = match late > PATIENCE {
            true => (HOLD_LATE, held),
            false => (HOLD, held.saturating_mul(REST).max(REST_MIN)),
        };
        Pace { rows: ROWS, hold, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_has_time_is_removed_little_by_little_and_what_has_none_in_bulk() {
        let millis = Duration::from_millis;
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let calm = Pace::after(millis(2), minutes(10));
        assert_eq!((calm.hold, calm.rest), (Duration::from_micros(200), millis(60)));
        assert_eq!(Pace::after(Duration::ZERO, minutes(0)).rest, millis(10));
        let late = Pace::after(millis(20), minutes(11));
        assert_eq!((late.hold, late.rest), (millis(10), millis(20)));
    }

    proptest! {
        #[test]
        fn removing_never_has_more_than_half_of_the_time(
            took in 0_u64..10_000, late in 0_u64..10_000,
        ) {
            let took = Duration::from_micros(took);
            let pace = Pace::after(took, Duration::from_secs(late));
            prop_assert!(pace.rows > 0 && !pace.hold.is_zero() && pace.rest >= took);
        }
    }
}
