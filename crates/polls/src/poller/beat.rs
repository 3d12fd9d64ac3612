//! A point for each second, for the plots of the dashboard.

use crate::probe::Outcome;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Points that are kept: ten minutes.
const KEPT: usize = 600;

/// Latenesses that are kept of one second; of more, every second one is forgotten.
const SAMPLES_MAX: usize = 4_096;

/// One second of polling.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Beat {
    /// When it ended, in milliseconds since 1970.
    pub at: i64,
    /// Polls that ended in it.
    pub polls: u64,
    /// Those of them that found something wrong.
    pub failures: u64,
    /// Slots that were missed.
    pub missed: u64,
    /// How late the latest hundredth of the polls began, in milliseconds.
    pub late_p99: f64,
    /// How late the latest began.
    pub late_max: f64,
    /// Endpoints of this node.
    pub owned: u64,
    /// Polls in progress.
    pub in_flight: u64,
}

/// The seconds so far.
#[derive(Debug, Default)]
pub struct Beats {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    now: Beat,
    late_us: Vec<u64>,
    kept: VecDeque<Beat>,
}

impl Beats {
    pub(super) fn polled(&self, outcome: &Outcome, late: Duration) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now.polls += 1;
        inner.now.failures += u64::from(!outcome.ok);
        if inner.late_us.len() >= SAMPLES_MAX {
            let mut keep = false;
            inner.late_us.retain(|_| {
                keep = !keep;
                keep
            });
        }
        inner.late_us.push(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn missed(&self, slots: u64) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).now.missed += slots;
    }

    /// Ends the second.
    pub fn end_second(&self, at_ms: i64, owned: usize, in_flight: usize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut late = std::mem::take(&mut inner.late_us);
        late.sort_unstable();
        let millis = |us: u64| us as f64 / 1_000.0;
        let at = |part: f64| {
            let place = (late.len().saturating_sub(1) as f64 * part).ceil() as usize;
            late.get(place).copied().map_or(0.0, millis)
        };
        let beat = Beat {
            at: at_ms,
            late_p99: at(0.99),
            late_max: at(1.0),
            owned: owned as u64,
            in_flight: in_flight as u64,
            ..std::mem::take(&mut inner.now)
        };
        inner.kept.push_back(beat);
        if inner.kept.len() > KEPT {
            inner.kept.pop_front();
        }
    }

    /// The last second.
    pub fn last(&self) -> Option<Beat> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).kept.back().cloned()
    }

    /// The seconds that are kept, oldest first.
    pub fn kept(&self) -> Vec<Beat> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.kept.iter().cloned().collect()
    }
}
