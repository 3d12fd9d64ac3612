//! What the actors have done so far, for whoever tells about it while they work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that only grow.
#[derive(Debug, Default)]
pub struct Tally {
    /// Messages whose push was acknowledged.
    pub pushed: AtomicU64,
    /// Messages that a group has acknowledged.
    pub consumed: AtomicU64,
    /// Sessions from beginning to end.
    pub sessions: AtomicU64,
    /// Polls that endpoints saw.
    pub polls: AtomicU64,
    /// Measurements that nodes took from agents.
    pub samples: AtomicU64,
    /// Background tasks that were asked for.
    pub tasks: AtomicU64,
    /// Requests that were answered over routes.
    pub requests: AtomicU64,
    /// Requests that got no answer of use and were repeated or given up.
    pub refused: AtomicU64,
}

/// Counts `more`.
pub fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// Sets a counter to what was counted elsewhere.
pub fn read_to(counter: &AtomicU64, counted: u64) {
    counter.store(counted, Ordering::Relaxed);
}

/// A counter now.
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
