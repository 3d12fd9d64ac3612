//! What each route has done, counted on every thread apart and put together when asked.

use crate::view::Second;
use skep_policy::routes::rollup::{Exchange, Minute};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads that count apart; more share.
const SHARDS: usize = 8;

/// How far back the seconds go.
const SECONDS_KEPT_MS: i64 = 120_000;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
}

/// A route's counts.
#[derive(Default)]
pub(crate) struct Tally {
    shards: [Mutex<Minute>; SHARDS],
    seconds: Mutex<VecDeque<Second>>,
    /// Everything since the route came.
    total: Mutex<Minute>,
    /// Requests that are on their way.
    pub open: AtomicU64,
    pub retries: AtomicU64,
}

impl Tally {
    /// Counts a request that is over.
    pub fn note(&self, exchange: &Exchange) {
        let shard = &self.shards[SHARD.get()];
        shard.lock().unwrap_or_else(PoisonError::into_inner).note(exchange);
    }

    /// Ends a second: everything since the last call.
    pub fn take(&self, at_ms: i64) -> Minute {
        let mut all = Minute::default();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if shard.requests() > 0 {
                all.merge(&std::mem::take(&mut *shard));
            }
        }
        self.keep_second(at_ms, &all);
        if all.requests() > 0 {
            self.total.lock().unwrap_or_else(PoisonError::into_inner).merge(&all);
        }
        all
    }

    /// Everything up to the end of the last second.
    pub fn total(&self) -> Minute {
        self.total.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep_second(&self, at_ms: i64, all: &Minute) {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = at_ms - SECONDS_KEPT_MS;
        while seconds.front().is_some_and(|first| first.at_ms <= oldest) {
            seconds.pop_front();
        }
        if all.requests() > 0 {
            let quantile = |q| all.quantile(q).map(|span| span.as_secs_f64() * 1e3);
            seconds.push_back(Second {
                at_ms,
                requests: all.requests(),
                errors: all.answers[4],
                refused: all.refused,
                p50_ms: quantile(0.5),
                p99_ms: quantile(0.99),
                bytes_out: all.bytes_out,
            });
        }
    }

    /// The last seconds in which something happened.
    pub fn seconds(&self) -> Vec<Second> {
        let seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        seconds.iter().copied().collect()
    }
}

/// A request that is counted as on its way until it is dropped.
pub(crate) struct Open<'a>(&'a Tally);

impl<'a> Open<'a> {
    pub fn new(tally: &'a Tally) -> Self {
        tally.open.fetch_add(1, Ordering::Relaxed);
        Open(tally)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
