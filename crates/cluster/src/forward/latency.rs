//! How long hops take, of late.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Four steps to each doubling, from a microsecond to about four minutes.
const STEPS: usize = 4 * 28;
/// After so many, the older half of what is known counts half.
const RECENT: u32 = 4_096;

/// Counts of durations, from which any quantile can be told to within a fifth.
pub struct Latency {
    counts: [AtomicU32; STEPS],
    total: AtomicU32,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { counts: [const { AtomicU32::new(0) }; STEPS], total: AtomicU32::new(0) }
    }
}

/// The step of a duration: its doubling, and the two bits after the first.
fn step_of(micros: u64) -> usize {
    let micros = micros.max(4);
    let doubling = 63 - micros.leading_zeros();
    let quarter = (micros >> (doubling - 2)) & 3;
    ((doubling as usize - 2) * 4 + quarter as usize).min(STEPS - 1)
}

/// The middle of a step, in microseconds.
fn middle_of(step: usize) -> u64 {
    let (doubling, quarter) = (step / 4, step as u64 % 4);
    let low = (4 + quarter) << doubling;
    low + (1_u64 << doubling) / 2
}

impl Latency {
    /// Counts one.
    pub fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[step_of(micros)].fetch_add(1, Ordering::Relaxed);
        if self.total.fetch_add(1, Ordering::Relaxed) + 1 == RECENT {
            self.halve();
        }
    }

    /// Others may count meanwhile; a few of theirs may be forgotten, which no quantile shows.
    fn halve(&self) {
        let mut left = 0;
        for count in &self.counts {
            let half = count.load(Ordering::Relaxed) / 2;
            count.store(half, Ordering::Relaxed);
            left += half;
        }
        self.total.store(left, Ordering::Relaxed);
    }

    /// What `part` (0 to 1) of the durations did not exceed, in microseconds; none without any.
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        let counts: Vec<u64> =
            self.counts.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).collect();
        let total: u64 = counts.iter().sum();
        let rank = (part.clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let step = counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle_of(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_fifth() {
        let latency = Latency::default();
        assert_eq!(latency.quantile_us(0.5), None);
        for micros in 1..=1_000 {
            latency.add(Duration::from_micros(micros));
        }
        for (part, exact) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let told = latency.quantile_us(part).expect("there are some") as f64;
            assert!((told / exact - 1.0).abs() < 0.2, "{part}: {told} for {exact}");
        }
    }

    #[test]
    fn every_step_contains_its_middle_and_extremes_have_a_place() {
        for step in 0..STEPS {
            assert_eq!(step_of(middle_of(step)), step);
        }
        assert_eq!(step_of(0), 0);
        assert_eq!(step_of(u64::MAX), STEPS - 1);
    }

    #[test]
    fn what_is_long_past_fades() {
        let latency = Latency::default();
        for _ in 0..RECENT {
            latency.add(Duration::from_micros(100_000));
        }
        for _ in 0..4 * RECENT {
            latency.add(Duration::from_micros(100));
        }
        assert!(latency.quantile_us(0.9).expect("there are some") < 130);
    }
}
