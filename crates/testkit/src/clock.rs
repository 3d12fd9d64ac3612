//! A clock that a test moves.

use skep_policy::{Clock, Time};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Stands still until it is moved.
#[derive(Debug, Default)]
pub struct FakeClock {
    nanos: AtomicU64,
}

impl FakeClock {
    /// A clock that shows `now`.
    pub fn at(now: Time) -> Self {
        FakeClock { nanos: AtomicU64::new(now.as_nanos()) }
    }

    /// Lets `span` pass at once.
    pub fn advance(&self, span: Duration) {
        let moved = |nanos| Some((Time::from_nanos(nanos) + span).as_nanos());
        // Cannot fail: the closure always gives a value.
        let _ = self.nanos.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.nanos.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_only_when_told() {
        let clock = FakeClock::at(Time::from_millis(5));
        assert_eq!(clock.now(), Time::from_millis(5));
        clock.advance(Duration::from_millis(7));
        assert_eq!(clock.now(), Time::from_millis(12));
    }
}
