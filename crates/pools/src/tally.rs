//! What a worker counts.
//!
//! Every seat has counters of its own that only its worker writes, so that counting costs no
//! contention; whoever wants to know adds them up.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Spans below 2^FIRST nanoseconds are in the first bucket, those above 2^LAST in the last one.
const FIRST: u32 = 8;
const LAST: u32 = 42;
/// Buckets for each doubling: a percentile is right within a quarter.
const PARTS: usize = 4;
const BUCKETS: usize = (LAST - FIRST) as usize * PARTS + 1;

/// A histogram of spans that one thread writes and any reads.
pub struct Spans {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Spans {
    fn new() -> Self {
        Spans { buckets: std::array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }

    fn note(&self, nanos: u64) {
        add(&self.buckets[bucket(nanos)], 1);
        add(&self.nanos, nanos);
    }
}

fn bucket(nanos: u64) -> usize {
    let exponent = nanos.max(1).ilog2();
    if exponent < FIRST {
        return 0;
    }
    if exponent >= LAST {
        return BUCKETS - 1;
    }
    let part = (nanos >> (exponent - 2)) as usize & (PARTS - 1);
    (exponent - FIRST) as usize * PARTS + part
}

/// The largest span of a bucket.
fn upper_bound(bucket: usize) -> Duration {
    let exponent = FIRST + (bucket / PARTS) as u32;
    let part = (bucket % PARTS) as u64;
    Duration::from_nanos(((PARTS as u64 + part + 1) << (exponent - 2)) - 1)
}

/// Only one thread writes, so that no other can come between reading and writing.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The counters of one seat for one tier.
pub struct Tally {
    done: AtomicU64,
    wait: Spans,
    run: Spans,
}

impl Tally {
    pub fn new() -> Self {
        Tally { done: AtomicU64::new(0), wait: Spans::new(), run: Spans::new() }
    }

    /// An attempt started after this wait. In nanoseconds, like the clock: converting twice for
    /// every task can be measured.
    pub fn started(&self, wait_nanos: u64) {
        self.wait.note(wait_nanos);
    }

    /// An attempt ended after this time.
    pub fn ended(&self, run_nanos: u64) {
        self.run.note(run_nanos);
    }

    /// A task was done.
    pub fn done(&self) {
        add(&self.done, 1);
    }
}

/// Spans of many workers, added up.
#[derive(Clone)]
pub struct Distribution {
    buckets: Box<[u64; BUCKETS]>,
    nanos: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution { buckets: Box::new([0; BUCKETS]), nanos: 0 }
    }
}

impl Distribution {
    fn add(&mut self, spans: &Spans) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&spans.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        self.nanos = self.nanos.wrapping_add(spans.nanos.load(Ordering::Relaxed));
    }

    /// How many spans there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All spans together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// How many spans are at most `limit`.
    pub fn at_most(&self, limit: Duration) -> u64 {
        let fits = |bucket: &usize| upper_bound(*bucket) <= limit;
        (0..BUCKETS).take_while(fits).map(|bucket| self.buckets[bucket]).sum()
    }

    /// The span that `per_mille` thousandths of all do not pass, or zero if there are none.
    pub fn quantile(&self, per_mille: u64) -> Duration {
        let wanted = (self.count() * per_mille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_bound(bucket);
            }
        }
        Duration::ZERO
    }

    /// The usual percentiles.
    pub fn percentiles(&self) -> Percentiles {
        let micros = |per_mille| self.quantile(per_mille).as_nanos() as f64 / 1_000.0;
        Percentiles { p50: micros(500), p90: micros(900), p99: micros(990), p999: micros(999) }
    }
}

/// Percentiles of spans, in microseconds. They are right within a quarter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half are at most this.
    pub p50: f64,
    /// Nine of ten are at most this.
    pub p90: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// 999 of 1000 are at most this.
    pub p999: f64,
}

/// The counters of many seats, added up.
#[derive(Clone, Default)]
pub struct Totals {
    pub done: u64,
    pub wait: Distribution,
    pub run: Distribution,
}

impl Totals {
    pub fn add(&mut self, tally: &Tally) {
        self.done += tally.done.load(Ordering::Relaxed);
        self.wait.add(&tally.wait);
        self.run.add(&tally.run);
    }
}

/// The tasks done on a seat.
pub fn done_on(tally: &Tally) -> u64 {
    tally.done.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_right_within_a_quarter() {
        let tally = Tally::new();
        for micros in 1..=1_000 {
            tally.started(micros * 1_000);
        }
        let mut totals = Totals::default();
        totals.add(&tally);
        assert_eq!(totals.wait.count(), 1_000);
        assert_eq!(totals.wait.sum(), Duration::from_micros(500_500));
        let found = totals.wait.percentiles();
        for (found, exact) in [(found.p50, 500.0), (found.p90, 900.0), (found.p99, 990.0)] {
            assert!((exact..exact * 1.25).contains(&found), "{found} for {exact}");
        }
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Totals::default().wait.percentiles(), Percentiles::default());
    }

    proptest! {
        #[test]
        fn a_span_is_in_the_bucket_that_holds_it(nanos in 256_u64..1 << 42) {
            let place = bucket(nanos);
            prop_assert!(nanos <= upper_bound(place).as_nanos() as u64);
            prop_assert!(place == 0 || nanos > upper_bound(place - 1).as_nanos() as u64);
        }

        #[test]
        fn no_span_is_too_short_or_too_long_to_count(nanos: u64) {
            prop_assert!(bucket(nanos) < BUCKETS);
        }
    }
}
