//! The lifetimes of workers over the last minutes, for whoever wants to see the sawtooth.

use serde::Serialize;
use skep_policy::sessions::{Standing, WorkerRow};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Workers whose lives are drawn; in a larger fleet, those with the lowest numbers.
pub const WORKERS_MAX: usize = 60;
/// Points that are kept: ten minutes at one each second.
pub const POINTS_MAX: usize = 600;
/// Restarts that are kept.
const RESTARTS_MAX: usize = 200;

/// What can be drawn.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// When each point was taken, in milliseconds since 1970.
    pub at_ms: Vec<i64>,
    /// Each worker's lifetimes, the last for the last time; shorter if it came later.
    pub workers: BTreeMap<String, Line>,
    pub restarts: Vec<Restart>,
}

/// One worker's life.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    pub lifetime: Vec<u32>,
    pub active: Vec<u32>,
    pub out: Vec<bool>,
}

/// A worker began a new life.
#[derive(Clone, Debug, Serialize)]
pub struct Restart {
    pub at_ms: i64,
    pub worker: String,
    /// Sessions in the life that ended.
    pub lifetime: u32,
}

#[derive(Default)]
pub(crate) struct History {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    points: VecDeque<(i64, BTreeMap<String, Point>)>,
    restarts: VecDeque<Restart>,
}

#[derive(Clone, Copy)]
struct Point {
    incarnation: u64,
    lifetime: u32,
    active: u32,
    out: bool,
}

impl History {
    /// Takes a point.
    pub fn take(&self, at_ms: i64, workers: &[WorkerRow]) {
        let point = |row: &WorkerRow| Point {
            incarnation: row.incarnation,
            lifetime: row.lifetime,
            active: row.active,
            out: matches!(row.standing, Standing::Draining | Standing::Restarting),
        };
        let points: BTreeMap<String, Point> = workers
            .iter()
            .take(WORKERS_MAX)
            .map(|row| (row.name.to_string(), point(row)))
            .collect();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let restarts = match kept.points.back() {
            Some((_, before)) => restarts(at_ms, before, &points),
            None => Vec::new(),
        };
        kept.restarts.extend(restarts);
        let excess = kept.restarts.len().saturating_sub(RESTARTS_MAX);
        kept.restarts.drain(..excess);
        if kept.points.len() == POINTS_MAX {
            kept.points.pop_front();
        }
        kept.points.push_back((at_ms, points));
    }

    pub fn series(&self) -> Series {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut series =
            Series { restarts: kept.restarts.iter().cloned().collect(), ..Series::default() };
        for (at_ms, points) in &kept.points {
            series.at_ms.push(*at_ms);
            for (name, point) in points {
                let line = series.workers.entry(name.clone()).or_default();
                // Whoever was not there at a time in between has nothing to show for it.
                line.lifetime.push(point.lifetime);
                line.active.push(point.active);
                line.out.push(point.out);
            }
        }
        series
    }
}

fn restarts(
    at_ms: i64,
    before: &BTreeMap<String, Point>,
    now: &BTreeMap<String, Point>,
) -> Vec<Restart> {
    let began = |(name, point): (&String, &Point)| {
        let last = before.get(name).filter(|last| last.incarnation != point.incarnation)?;
        Some(Restart { at_ms, worker: name.clone(), lifetime: last.lifetime })
    };
    now.iter().filter_map(began).collect()
}
