//! How long a poll may take, which follows from how long a node may be silent.

use std::time::Duration;

/// What the nodes' settings say about time.
///
/// A node that falls silent loses its endpoints to others after the ttl, so a poll must be over
/// before, even on a clock that drifts and with a tick missed. That bounds the timeout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// `nodes.ttl`: after so long without a sign a node counts as gone.
    pub ttl: Duration,
    /// How often a node looks at its clock.
    pub tick: Duration,
    /// What is kept free on each side for the way to the store and back.
    pub margin: Duration,
    /// How much a clock may run fast or slow, as a fraction.
    pub drift: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            ttl: Duration::from_secs(15),
            tick: Duration::from_secs(1),
            margin: Duration::from_millis(500),
            drift: 0.005,
        }
    }
}

impl Limits {
    /// The longest timeout that this ttl leaves room for; zero if none.
    pub fn timeout_max(&self) -> Duration {
        let millis = millis(self.ttl) * (1.0 - self.drift) - self.reserved_millis();
        // Whole milliseconds; the small addend undoes what the multiplication lost.
        Duration::from_millis((millis + 1e-6).floor().max(0.0) as u64)
    }

    /// The ttl that this timeout needs, rounded up to a tenth of a second, so that it is a number
    /// one can put into the settings.
    pub fn ttl_for(&self, timeout: Duration) -> Duration {
        let millis = (millis(timeout) + self.reserved_millis()) / (1.0 - self.drift);
        Duration::from_millis((millis / 100.0 - 1e-6).ceil().max(0.0) as u64 * 100)
    }

    fn reserved_millis(&self) -> f64 {
        2.0 * (millis(self.margin) + millis(self.tick))
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_defaults_leave_almost_twelve_seconds() {
        let limits = Limits::default();
        assert_eq!(limits.timeout_max(), Duration::from_millis(11_925));
        assert_eq!(limits.ttl_for(Duration::from_secs(20)), Duration::from_millis(23_200));
    }

    #[test]
    fn a_ttl_that_is_too_short_leaves_nothing() {
        let limits = Limits { ttl: Duration::from_secs(2), ..Limits::default() };
        assert_eq!(limits.timeout_max(), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn the_named_ttl_is_long_enough(millis in 1_u64..10_000_000, drift in 0.0_f64..0.2) {
            let (timeout, limits) = (Duration::from_millis(millis), Limits::default());
            let limits = Limits { drift, ..limits };
            let enough = Limits { ttl: limits.ttl_for(timeout), ..limits };
            prop_assert!(enough.timeout_max() >= timeout);
        }
    }
}
