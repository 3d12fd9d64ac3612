//! Whether the budget can keep up with the sessions that come.

use skep_policy::sessions::KindRow;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How far back the pace of arrivals is measured.
const SPAN: Duration = Duration::from_secs(60);

/// Sessions begun, over the last minute, by kind.
#[derive(Default)]
pub(crate) struct Pace {
    seen: BTreeMap<String, VecDeque<(Instant, u64)>>,
}

impl Pace {
    /// How many workers of the kind would have to be out at once.
    pub fn out_needed(&mut self, now: Instant, row: &KindRow) -> f64 {
        let seen = self.seen.entry(row.kind.clone()).or_default();
        if seen.back().is_some_and(|&(_, started)| started > row.started) {
            // The table began anew.
            seen.clear();
        }
        seen.push_back((now, row.started));
        while seen.front().is_some_and(|(then, _)| now.duration_since(*then) > SPAN) {
            seen.pop_front();
        }
        let Some(&(then, before)) = seen.front() else { return 0.0 };
        let seconds = now.duration_since(then).as_secs_f64();
        if seconds < 1.0 || row.recycled == 0 {
            return 0.0;
        }
        let arrivals_per_s = (row.started - before) as f64 / seconds;
        let away_s = row.out_ms as f64 / 1_000.0 / row.recycled as f64;
        row.rules.out_needed(arrivals_per_s, away_s)
    }
}
