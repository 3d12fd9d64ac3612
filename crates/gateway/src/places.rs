//! How many connections there may be, and which thread has how many.

use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Handing a connection over wakes another thread, so being a little ahead is cheaper.
fn ahead_at_most(least: usize) -> usize {
    least + least / 4 + 4
}

/// The connections of clients.
pub(crate) struct Places {
    max: usize,
    taken: AtomicUsize,
    by_thread: Vec<AtomicUsize>,
    shown: Gauge,
}

/// One connection's place; given back when dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    thread: usize,
}

impl Places {
    pub fn new(max: usize, threads: usize, shown: Gauge) -> Arc<Self> {
        let by_thread = (0..threads).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Places { max, taken: AtomicUsize::new(0), by_thread, shown })
    }

    pub fn max(&self) -> usize {
        self.max
    }

    /// A place for a connection that `thread` has accepted, at the thread that should serve it:
    /// the kernel deals connections out by a hash, which is uneven for a few of them.
    pub fn take(self: &Arc<Self>, thread: usize) -> Option<Place> {
        let free = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).ok()?;
        let load = |at: usize| self.by_thread[at].load(Ordering::Relaxed);
        let least = (0..self.by_thread.len()).min_by_key(|at| load(*at)).unwrap_or(thread);
        let thread = if load(thread) > ahead_at_most(load(least)) { least } else { thread };
        self.by_thread[thread].fetch_add(1, Ordering::Relaxed);
        self.shown.inc();
        Some(Place { places: self.clone(), thread })
    }
}

impl Place {
    /// The thread it is counted at.
    pub fn thread(&self) -> usize {
        self.thread
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.by_thread[self.thread].fetch_sub(1, Ordering::Relaxed);
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
        self.places.shown.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_places_as_there_may_be() {
        let places = Places::new(2, 1, Gauge::default());
        let (one, two) = (places.take(0), places.take(0));
        assert!(one.is_some() && two.is_some() && places.take(0).is_none());
        drop(one);
        assert!(places.take(0).is_some());
    }

    #[test]
    fn a_thread_that_is_ahead_hands_connections_over() {
        let places = Places::new(100, 2, Gauge::default());
        let taken: Vec<Place> = (0..50).filter_map(|_| places.take(0)).collect();
        let second = taken.iter().filter(|place| place.thread() == 1).count();
        assert_eq!(second, 20);
    }
}
