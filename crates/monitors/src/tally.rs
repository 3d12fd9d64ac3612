//! What a node remembers about its reviews between two looks at it.

use crate::metrics::Held;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Points that are kept: an hour, at one in ten seconds.
const POINTS_MAX: usize = 360;

/// Reviews of this node since it started, and how the fleet was meanwhile.
#[derive(Default)]
pub(crate) struct Tally {
    done: AtomicU64,
    failed: AtomicU64,
    held: Mutex<HashMap<i64, (i64, Held)>>,
    points: Mutex<VecDeque<FleetPoint>>,
}

/// The fleet at one moment, as this node saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FleetPoint {
    /// In milliseconds since 1970.
    pub at: i64,
    /// Servers that are not paused.
    pub servers: u64,
    /// Those of them with fewer active monitors than they should have.
    pub below_target: u64,
    /// Assignments, by status.
    pub candidate: u64,
    /// The same.
    pub testing: u64,
    /// The same.
    pub active: u64,
    /// The same.
    pub paused: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    /// Counts a review.
    pub fn reviewed(&self, result: &'static str) {
        let counter = match result {
            "changed" | "unchanged" => &self.done,
            "failed" => &self.failed,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Reviews that came to an end, and reviews that failed.
    pub fn reviews(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Remembers how many monitors of a server are held back.
    pub fn hold(&self, server: i64, held: Held, now_ms: i64) {
        let mut known = lock(&self.held);
        if held == Held::default() {
            known.remove(&server);
        } else {
            known.insert(server, (now_ms, held));
        }
    }

    /// All of them together. What was seen before `since_ms` is forgotten: by then another node has
    /// reviewed the server, or it is gone.
    pub fn held(&self, since_ms: i64) -> Held {
        let mut known = lock(&self.held);
        known.retain(|_, (at_ms, _)| *at_ms >= since_ms);
        let mut all = Held::default();
        known.values().for_each(|(_, held)| all.add(held));
        all
    }

    /// Keeps a point.
    pub fn note(&self, point: FleetPoint) {
        let mut points = lock(&self.points);
        if points.len() == POINTS_MAX {
            points.pop_front();
        }
        points.push_back(point);
    }

    /// The points that are kept, the oldest first.
    pub fn points(&self) -> Vec<FleetPoint> {
        lock(&self.points).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_the_sum_over_servers_seen_lately() {
        let tally = Tally::default();
        let some = Held { blocked: [1, 0, 2, 0], grandfathered: [0, 0, 3, 0] };
        tally.hold(1, some, 100);
        tally.hold(2, some, 200);
        assert_eq!(tally.held(0).blocked, [2, 0, 4, 0]);
        assert_eq!(tally.held(150).grandfathered, [0, 0, 3, 0], "the first was forgotten");
        tally.hold(2, Held::default(), 300);
        assert_eq!(tally.held(0), Held::default());
    }

    #[test]
    fn only_the_last_hour_is_kept() {
        let tally = Tally::default();
        (0..1_000).for_each(|at| tally.note(FleetPoint { at, ..FleetPoint::default() }));
        let kept = tally.points();
        assert_eq!((kept.len(), kept[0].at, kept[359].at), (360, 640, 999));
    }
}
