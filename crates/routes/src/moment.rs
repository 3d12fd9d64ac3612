//! The clock of the proxy's policies, and the wall's for its records.

use skep_policy::Time;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// When the proxy was made; times of its policies count from a little before then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    start: Instant,
}

impl Moment {
    pub fn new() -> Self {
        Moment { start: Instant::now() }
    }

    pub fn now(&self) -> Time {
        self.at(Instant::now())
    }

    /// The same moment for a policy.
    pub fn at(&self, instant: Instant) -> Time {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since 1970, for people.
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
