//! The clock that nodes live by.

use rustix::time::{ClockId, clock_gettime};
use skep_policy::{Clock, Time};

/// Time since the machine started, including time spent suspended.
///
/// A lease must run out while the machine sleeps, so the clock that stops in suspend
/// (`CLOCK_MONOTONIC`, which `Instant` reads) will not do; and the wall clock jumps.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Time {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }
}

/// Time since 1970, as this machine believes: for what several machines must understand alike. It
/// jumps, so whoever uses it bears that.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Time {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since 1970, as this machine believes: for schedules, for people, and for what is
/// kept. Never for deciding who may do something, because it jumps.
pub fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn it_advances_like_a_stopwatch_and_never_goes_back() {
        let (start, stopwatch) = (BootClock.now(), Instant::now());
        let mut last = start;
        while stopwatch.elapsed() < Duration::from_millis(20) {
            let now = BootClock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(BootClock.now().since(start) >= Duration::from_millis(19));
    }
}
