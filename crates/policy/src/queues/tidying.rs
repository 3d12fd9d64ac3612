//! How hastily what is past its time is removed.
//!
//! Where one thread writes, whoever pushes waits for the round of removing that is under way. So
//! rounds are small and far between, and what is to be removed may wait a little: nobody sees it
//! any more. Only if removing falls far behind, because more comes than goes, it takes a larger
//! share, up to as much as everything else together.

use std::time::Duration;

/// What is not later than this has time.
const PATIENCE: Duration = Duration::from_secs(600);
/// Rows of a round that has time; and of one that has not.
const ROWS: u32 = 8;
const ROWS_LATE: u32 = 128;
/// A round that has time is followed by a rest of so many times its length.
const REST: u32 = 9;
/// The rest is at least so long, however short the round was.
const REST_MIN: Duration = Duration::from_millis(5);

/// The next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// It removes so many rows at most.
    pub rows: u32,
    /// It begins after so long.
    pub rest: Duration,
}

impl Pace {
    /// Of the first round.
    pub const FIRST: Pace = Pace { rows: ROWS, rest: Duration::ZERO };

    /// After a round that took so long and removed what should have gone `late` ago.
    pub fn after(took: Duration, late: Duration) -> Pace {
        match late > PATIENCE {
            true => Pace { rows: ROWS_LATE, rest: took },
            false => Pace { rows: ROWS, rest: took.saturating_mul(REST).max(REST_MIN) },
        }
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
        assert_eq!((calm.rows, calm.rest), (8, millis(18)));
        assert_eq!(Pace::after(Duration::ZERO, minutes(0)).rest, millis(5));
        let late = Pace::after(millis(20), minutes(11));
        assert_eq!((late.rows, late.rest), (128, millis(20)));
    }

    proptest! {
        #[test]
        fn removing_never_has_more_than_half_of_the_time(
            took in 0_u64..10_000, late in 0_u64..10_000,
        ) {
            let took = Duration::from_micros(took);
            let pace = Pace::after(took, Duration::from_secs(late));
            prop_assert!(pace.rows > 0 && pace.rest >= took);
        }
    }
}
