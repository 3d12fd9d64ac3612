//! The store's clock.

use skep_policy::{Clock, Time};
use std::sync::Arc;

/// Wall time when the store was opened, and what a clock that never jumps has counted since: a wall
/// clock that is set while the store runs ends no lease early and keeps none alive.
#[derive(Clone)]
pub(super) struct StoreClock {
    opened_at: Time,
    counted_then: Time,
    clock: Arc<dyn Clock>,
}

impl StoreClock {
    /// Begins at `wall`, but after `last`, the last time that the database has seen.
    pub(super) fn new(clock: Arc<dyn Clock>, wall: Time, last: Time) -> Self {
        StoreClock { opened_at: wall.max(last), counted_then: clock.now(), clock }
    }

    /// Now, in whole microseconds, as it is kept.
    pub(super) fn now(&self) -> Time {
        let now = self.opened_at + self.clock.now().since(self.counted_then);
        Time::from_nanos(now.as_nanos() / 1_000 * 1_000)
    }
}

/// As the database keeps it. Rounded up: nothing is ready before its time.
pub(super) fn micros(time: Time) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// As the policy sees it.
pub(super) fn time(micros: i64) -> Time {
    Time::from_nanos(u64::try_from(micros).unwrap_or(0).saturating_mul(1_000))
}

/// The database counts with a sign.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
