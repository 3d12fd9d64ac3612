//! How long things took.

use skep::report::Report;
use std::time::Duration;

/// Spans of time, in microseconds; negative where the second of two moments came first.
#[derive(Clone, Debug, Default)]
pub struct Spans(Vec<f64>);

impl Spans {
    pub fn add(&mut self, span: Duration) {
        self.0.push(span.as_secs_f64() * 1e6);
    }

    pub fn add_us(&mut self, micros: f64) {
        self.0.push(micros);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn append(&mut self, mut other: Spans) {
        self.0.append(&mut other.0);
    }

    /// What this part of them did not exceed.
    pub fn quantile_us(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get((part * last as f64) as usize).copied().unwrap_or(f64::NAN)
    }

    /// Half, 99 of 100 and all of them, in milliseconds.
    pub fn tell_ms(&self, report: &mut Report, start: &str) {
        for (name, part) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            report.figure(&format!("{start}_{name}_ms"), self.quantile_us(part) / 1e3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let mut spans = Spans::default();
        assert!(spans.quantile_us(0.5).is_nan());
        (0..=100).rev().for_each(|millis| spans.add(Duration::from_millis(millis)));
        assert_eq!(spans.quantile_us(0.5), 50_000.0);
        assert_eq!(spans.quantile_us(0.99), 99_000.0);
        assert_eq!(spans.quantile_us(1.0), 100_000.0);
    }
}
