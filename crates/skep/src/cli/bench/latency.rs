//! How long requests took.

use crate::cli::cells::bars;

/// Bars of a histogram: the first is up to 64 µs, each next one twice as long.
const BUCKETS: usize = 18;
const FIRST_MICROS: u64 = 64;

/// Times of requests, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    micros: Vec<u64>,
}

impl Latency {
    pub fn add(&mut self, micros: u64) {
        self.micros.push(micros);
    }

    pub fn extend(&mut self, more: Latency) {
        self.micros.extend(more.micros);
    }

    /// The median, the 90th and the 99th of a hundred, and the longest.
    pub fn told(&self) -> [f64; 4] {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let Some(last) = sorted.len().checked_sub(1) else { return [0.0; 4] };
        let at =
            |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).clamp(1, last + 1) - 1];
        [at(50), at(90), at(99), sorted[last]].map(|micros| micros as f64)
    }

    /// How many took how long, as bars: short ones to the left.
    pub fn histogram(&self) -> String {
        let mut counts = [0; BUCKETS];
        for micros in &self.micros {
            let doublings = micros.div_ceil(FIRST_MICROS).max(1).next_power_of_two().ilog2();
            counts[(doublings as usize).min(BUCKETS - 1)] += 1;
        }
        bars(&counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_requests() {
        let mut latency = Latency::default();
        assert_eq!(latency.told(), [0.0; 4]);
        latency.add(7);
        assert_eq!(latency.told(), [7.0; 4]);
        let mut more = Latency::default();
        (1..=100).rev().filter(|micros| *micros != 7).for_each(|micros| more.add(micros));
        latency.extend(more);
        assert_eq!(latency.told(), [50.0, 90.0, 99.0, 100.0]);
    }

    #[test]
    fn every_request_is_in_the_histogram() {
        let mut latency = Latency::default();
        for micros in [0, 64, 65, 128, 129, u64::from(u32::MAX)] {
            latency.add(micros);
        }
        let drawn = latency.histogram();
        assert_eq!(drawn.chars().count(), BUCKETS);
        assert_eq!(drawn.chars().filter(|bar| *bar != ' ').count(), 4, "{drawn:?}");
        assert!(drawn.starts_with("██▄") && drawn.ends_with('▄'), "{drawn:?}");
    }
}
