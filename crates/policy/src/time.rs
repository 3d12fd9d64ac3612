//! Time as an argument.

use serde::Serialize;
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on a clock that the caller chose: nanoseconds since that clock's origin.
///
/// Points of two clocks do not compare; a policy is told by its caller which clock it gets.
/// Arithmetic saturates, because a decision at the end of time is better than a panic there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Time {
    nanos: u64,
}

impl Time {
    /// The clock's origin.
    pub const ZERO: Time = Time { nanos: 0 };

    /// The point `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time { nanos }
    }

    /// The point `millis` milliseconds after the clock's origin.
    pub const fn from_millis(millis: u64) -> Self {
        Time { nanos: millis.saturating_mul(1_000_000) }
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.nanos
    }

    /// Whole milliseconds since the clock's origin.
    pub const fn as_millis(self) -> u64 {
        self.nanos / 1_000_000
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, span: Duration) -> Time {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Time { nanos: self.nanos.saturating_add(nanos) }
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, span: Duration) -> Time {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Time { nanos: self.nanos.saturating_sub(nanos) }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.nanos / 1_000_000_000, self.nanos / 1_000_000 % 1_000)
    }
}

/// Where the crates that act read the time. Policies never see this, only the [`Time`] it gives.
pub trait Clock: Send + Sync {
    /// Now. Never goes back.
    fn now(&self) -> Time;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        let end = Time::from_nanos(u64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(Time::ZERO.since(end), Duration::ZERO);
    }

    #[test]
    fn since_is_the_inverse_of_add() {
        let start = Time::from_millis(7);
        let span = Duration::from_micros(1_234);
        assert_eq!((start + span).since(start), span);
    }
}
