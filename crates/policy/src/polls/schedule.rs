//! When an endpoint is polled: a fixed grid of slots, the same on every node.
//!
//! ```text
//!   time   ──┬─────────┬─────────┬─────────┬─────────►
//!   slot     7         8         9        10
//!            ▲ phase, from the name        ▲ now: done up to 7, so 8 and 9 are missed,
//!                                            and 10 is caught up right away, once
//! ```
//!
//! The phase comes from the endpoint's name, so the endpoints of one interval spread evenly over
//! it. Who polls does not matter: a new owner that knows the last slot that was done goes on from
//! there. No slot is polled before its time and none twice, and after a gap of any length there is
//! one poll, not as many as were missed.
//!
//! Times are milliseconds on a clock that nodes agree on, such as that of their database.

use crate::rendezvous::fmix64;
use crate::{Decision, Reason};
use serde::Serialize;
use std::time::Duration;

/// Nobody waits longer than this for the first result of a new endpoint.
const FIRST_RESULT_MILLIS: i64 = 60_000;
/// Polls that are due at once spread over at most this.
const SPREAD_MILLIS_MAX: i64 = 1_000;
/// Keeps the phase independent of who owns the endpoint, and the spread of the phase.
const PHASE: u64 = 0x9E37_79B9_7F4A_7C15;
const SPREAD: u64 = 0xD1B5_4A32_D192_ED03;

/// The slots of one endpoint. Two grids are the same if they are equal; slot numbers of one mean
/// nothing in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    interval: i64,
    phase: i64,
    spread: i64,
}

/// The next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Due {
    /// The slot it is for.
    pub slot: i64,
    /// When to poll.
    pub at_ms: i64,
    /// Is the slot's time already past?
    pub catch_up: bool,
    /// How many slots since the last poll nobody will ever poll.
    pub missed: u64,
}

impl Grid {
    /// The grid of the key with this hash, polled at this interval. Frozen: every node and every
    /// version agrees on it. An interval below a millisecond counts as one.
    pub fn new(key_hash: u64, interval: Duration) -> Grid {
        let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
        let spread_max = SPREAD_MILLIS_MAX.min(interval / 4);
        let part = |salt: u64, of: i64| {
            ((u128::from(fmix64(key_hash ^ salt)) * of.unsigned_abs() as u128) >> 64) as i64
        };
        Grid { interval, phase: part(PHASE, interval), spread: part(SPREAD, spread_max + 1) }
    }

    /// The time between two slots.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval.unsigned_abs())
    }

    /// The number of the last slot whose time has come.
    pub fn slot_at(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.phase).div_euclid(self.interval)
    }

    /// The time of a slot.
    pub fn time_of(&self, slot: i64) -> i64 {
        slot.saturating_mul(self.interval).saturating_add(self.phase)
    }

    /// The next poll of an endpoint whose last poll was for the slot `last_done`.
    ///
    /// `since_ms` is when this node became responsible for it: took it over, or learned of it.
    /// Polls that are late spread over a moment from then on, so that a node which takes over
    /// thousands at once does not poll them all at once. It stays the same from call to call;
    /// with a `since_ms` of now in every call, such a poll would be put off for ever.
    ///
    /// Keep the answer until its time has come. Ask again after the poll, or when an argument
    /// other than the time has changed.
    pub fn next(&self, now_ms: i64, last_done: Option<i64>, since_ms: i64) -> Decision<Due> {
        let since_ms = since_ms.min(now_ms);
        match last_done {
            Some(last) => self.following(now_ms, last, since_ms, "next-slot"),
            None if self.interval > FIRST_RESULT_MILLIS => {
                let before = self.slot_at(since_ms).saturating_sub(1);
                self.following(now_ms, before, since_ms, "first-poll")
            }
            None => self.following(now_ms, self.slot_at(since_ms), since_ms, "first-slot"),
        }
    }

    /// The next poll of an endpoint that was last polled at `last_at_ms` on another grid, because
    /// its interval was another: the first slot later than that, or the current one if that has
    /// passed. Slots of a grid that did not exist are not missed.
    pub fn after(&self, now_ms: i64, last_at_ms: i64, since_ms: i64) -> Decision<Due> {
        let last = self.slot_at(last_at_ms);
        let last = if last < self.slot_at(now_ms) { self.slot_at(now_ms) - 1 } else { last };
        self.following(now_ms, last, since_ms.min(now_ms), "interval-changed")
    }

    /// The last slot that was polled, in the numbers of this grid, for an endpoint that was polled
    /// at `last_at_ms` on another. What [`Grid::after`] says follows from it.
    pub fn last_done_at(&self, now_ms: i64, last_at_ms: i64, since_ms: i64) -> i64 {
        self.after(now_ms, last_at_ms, since_ms).chosen.slot.saturating_sub(1)
    }

    /// The poll after the slot `last`. `rule` is the name of the ordinary case.
    fn following(
        &self,
        now_ms: i64,
        last: i64,
        since_ms: i64,
        rule: &'static str,
    ) -> Decision<Due> {
        let current = self.slot_at(now_ms);
        let next = current.saturating_add(1);
        if last < current {
            return self.catching_up(now_ms, last, since_ms, rule);
        }
        let (slot, rule) = match last.saturating_sub(next) {
            // The node that polled has a clock slightly ahead of ours.
            0 => (next.saturating_add(1), "done-ahead"),
            1.. => (next, "clock-went-back"),
            _ => (next, rule),
        };
        let at_ms = self.time_of(slot);
        Reason::new(rule)
            .with("interval", self.interval())
            .with("wait", span(now_ms, at_ms))
            .choose(Due { slot, at_ms, catch_up: false, missed: 0 })
    }

    fn catching_up(
        &self,
        now_ms: i64,
        last: i64,
        since_ms: i64,
        rule: &'static str,
    ) -> Decision<Due> {
        let slot = self.slot_at(now_ms);
        let spread_end = since_ms.saturating_add(self.spread);
        let slot_end = self.time_of(slot.saturating_add(1)).saturating_sub(1);
        let at_ms = spread_end.min(slot_end).max(now_ms);
        let missed = slot.abs_diff(last) - 1;
        Reason::new(if rule.ends_with("-slot") { "catch-up" } else { rule })
            .with("interval", self.interval())
            .with("late", span(self.time_of(slot), now_ms))
            .with("wait", span(now_ms, at_ms))
            .with("missed", missed)
            .choose(Due { slot, at_ms, catch_up: true, missed })
    }
}

fn span(from_ms: i64, to_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::hash_of;
    use proptest::prelude::*;

    /// Slots at 3 s, 13 s, 23 s, ...; late polls wait for 400 ms.
    const TEN_SECONDS: Grid = Grid { interval: 10_000, phase: 3_000, spread: 400 };
    const DAY: Grid = Grid { interval: 86_400_000, phase: 3_000, spread: 400 };
    const LONG_AGO: i64 = -1_000_000;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_grid_of_a_key_never_changes() {
        let of = |name, interval| {
            let Grid { interval, phase, spread } = Grid::new(hash_of(name), interval);
            (interval, phase, spread)
        };
        assert_eq!(of("ep-00001", seconds(1)), (1_000, 805, 63));
        assert_eq!(of("ep-00001", seconds(60)), (60_000, 48_347, 253));
        assert_eq!(of("ep-00002", seconds(86_400)), (86_400_000, 37_886_108, 39));
    }

    #[test]
    fn slots_are_an_interval_apart_also_before_the_origin() {
        let table = [
            (-7_001, -2, -17_000),
            (-7_000, -1, -7_000),
            (0, -1, -7_000),
            (2_999, -1, -7_000),
            (3_000, 0, 3_000),
            (12_999, 0, 3_000),
            (13_000, 1, 13_000),
        ];
        for (now, slot, time) in table {
            assert_eq!(TEN_SECONDS.slot_at(now), slot, "{now}");
            assert_eq!(TEN_SECONDS.time_of(slot), time, "{now}");
        }
    }

    #[test]
    fn the_next_poll_is_as_the_table_says() {
        let late = |slot, at_ms, missed| Due { slot, at_ms, catch_up: true, missed };
        let later = |slot, at_ms| Due { slot, at_ms, catch_up: false, missed: 0 };
        // now, last done, responsible since, what is due, by which rule
        let table = [
            (5_000, Some(0), LONG_AGO, later(1, 13_000), "next-slot"),
            (3_000, Some(-1), LONG_AGO, late(0, 3_000, 0), "catch-up"),
            (13_000, Some(0), LONG_AGO, late(1, 13_000, 0), "catch-up"),
            (99_000, Some(0), LONG_AGO, late(9, 99_000, 8), "catch-up"),
            (99_000, Some(0), 99_000, late(9, 99_400, 8), "catch-up"),
            (99_100, Some(0), 99_000, late(9, 99_400, 8), "catch-up"),
            (99_000, Some(0), 99_900, late(9, 99_400, 8), "catch-up"),
            (102_900, Some(0), 102_900, late(9, 102_999, 8), "catch-up"),
            (5_000, Some(1), LONG_AGO, later(2, 23_000), "done-ahead"),
            (5_000, Some(2), LONG_AGO, later(1, 13_000), "clock-went-back"),
            (5_000, Some(i64::MAX), LONG_AGO, later(1, 13_000), "clock-went-back"),
            (5_000, None, 5_000, later(1, 13_000), "first-slot"),
            (14_000, None, 5_000, late(1, 14_000, 0), "catch-up"),
        ];
        for (now, last, since, due, rule) in table {
            let next = TEN_SECONDS.next(now, last, since);
            assert_eq!((next.chosen, next.reason.rule), (due, rule), "{now} {last:?} {since}");
        }
    }

    #[test]
    fn a_new_endpoint_with_a_long_interval_is_polled_soon_and_one_with_a_short_one_in_its_slot() {
        let next = DAY.next(50_000, None, 50_000);
        let due = Due { slot: 0, at_ms: 50_400, catch_up: true, missed: 0 };
        assert_eq!((next.chosen, next.reason.rule), (due, "first-poll"));
        let minute = Grid { interval: 60_000, ..DAY };
        assert_eq!(minute.next(50_000, None, 50_000).chosen.at_ms, 63_000);
    }

    #[test]
    fn after_a_change_of_the_interval_the_new_grid_goes_on_after_the_last_poll() {
        let table = [
            (5_000, 4_000, 1, 13_000, false, "interval-changed"),
            (5_000, 3_000, 1, 13_000, false, "interval-changed"),
            (5_000, 2_999, 0, 5_000, true, "interval-changed"),
            (99_000, 4_000, 9, 99_000, true, "interval-changed"),
            (12_900, 13_100, 2, 23_000, false, "done-ahead"),
            (12_900, 93_100, 1, 13_000, false, "clock-went-back"),
        ];
        for (now, last_at, slot, at_ms, catch_up, rule) in table {
            let next = TEN_SECONDS.after(now, last_at, LONG_AGO);
            let due = Due { slot, at_ms, catch_up, missed: 0 };
            assert_eq!((next.chosen, next.reason.rule), (due, rule), "{now} {last_at}");
            let last = TEN_SECONDS.last_done_at(now, last_at, LONG_AGO);
            assert_eq!(TEN_SECONDS.next(now, Some(last), LONG_AGO).chosen, due, "{now} {last_at}");
        }
    }

    #[test]
    fn a_decision_says_why() {
        assert_eq!(
            TEN_SECONDS.next(99_000, Some(0), 99_000).reason.to_string(),
            "catch-up: interval 10s, late 6s, wait 400ms, missed 8"
        );
        assert_eq!(
            TEN_SECONDS.next(5_000, Some(0), LONG_AGO).reason.to_string(),
            "next-slot: interval 10s, wait 8s"
        );
    }

    #[test]
    fn endpoints_with_sequential_names_spread_evenly_over_the_interval() {
        for interval in [1, 10, 60, 3_600, 86_400] {
            let (mut phases, mut spreads) = ([0_i32; 20], [0_i32; 10]);
            for number in 0..20_000 {
                let grid = Grid::new(hash_of(&format!("ep-{number:05}")), seconds(interval));
                phases[(grid.phase * 20 / grid.interval) as usize] += 1;
                let spread_max = 1_000.min(grid.interval / 4);
                spreads[(grid.spread * 10 / (spread_max + 1)) as usize] += 1;
            }
            let unevenness = |counts: &[i32]| {
                let mean = 20_000 / counts.len() as i32;
                let square = |count: &i32| f64::from((count - mean).pow(2)) / f64::from(mean);
                counts.iter().map(square).sum::<f64>()
            };
            // One in ten thousand even spreads has more than 51 (of 20 parts) and 34 (of 10).
            assert!(unevenness(&phases) < 51.0, "{interval} s: {phases:?}");
            assert!(unevenness(&spreads) < 34.0, "{interval} s: {spreads:?}");
        }
    }

    #[test]
    fn no_time_and_no_interval_panics() {
        let times = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        let intervals = [Duration::ZERO, Duration::from_nanos(1), seconds(1), Duration::MAX];
        for (now, other) in times.into_iter().flat_map(|now| times.map(|other| (now, other))) {
            for interval in intervals {
                let grid = Grid::new(u64::MAX, interval);
                grid.next(now, Some(other), other);
                grid.next(now, None, other);
                grid.after(now, other, other);
            }
        }
    }

    fn any_grid() -> impl Strategy<Value = Grid> {
        (any::<u64>(), 1_000_u64..=86_400_000)
            .prop_map(|(hash, millis)| Grid::new(hash, Duration::from_millis(millis)))
    }

    const TIMES: std::ops::Range<i64> = -(1 << 52)..1 << 52;

    proptest! {
        #[test]
        fn a_slot_contains_the_times_from_its_own_to_the_next(grid in any_grid(), now in TIMES) {
            let slot = grid.slot_at(now);
            prop_assert!(grid.time_of(slot) <= now && now < grid.time_of(slot + 1));
            prop_assert_eq!(grid.slot_at(grid.time_of(slot)), slot);
            prop_assert!((0..grid.interval).contains(&grid.phase));
            prop_assert!((0..=1_000.min(grid.interval / 4)).contains(&grid.spread));
        }

        #[test]
        fn no_poll_is_early_or_in_the_past_and_late_ones_are_soon(
            grid in any_grid(), now in TIMES,
            behind in -5_i64..50, known: bool, ago in 0_i64..5_000,
        ) {
            let last = known.then(|| grid.slot_at(now) - behind);
            let due = grid.next(now, last, now - ago).chosen;
            prop_assert!(due.at_ms >= now && due.at_ms >= grid.time_of(due.slot));
            prop_assert!(!due.catch_up || due.at_ms <= now + 1_000.min(grid.interval / 4));
            prop_assert!(due.catch_up || due.at_ms == grid.time_of(due.slot));
            prop_assert!(due.at_ms < grid.time_of(due.slot + 1));
        }

        #[test]
        fn slots_increase_and_a_gap_costs_one_late_poll(
            grid in any_grid(), start in TIMES,
            steps in prop::collection::vec((0_u8..8, 0_i64..1_000_000_000), 1..40),
        ) {
            let (mut now, mut since, mut last) = (start, start, None);
            let (mut accounted, mut first) = (0_u64, None);
            for (kind, length) in steps {
                if kind == 0 {
                    // Nobody polls for a while, then another node takes over.
                    now += length;
                    since = now;
                }
                let due = grid.next(now, last, since).chosen;
                prop_assert!(last.is_none_or(|last| due.slot > last));
                prop_assert!(!due.catch_up || due.slot == grid.slot_at(now));
                let lateness = if kind == 1 { length % 100 } else { 0 };
                now = due.at_ms + lateness;
                accounted += due.missed + u64::from(last.is_some());
                let first = *first.get_or_insert((due.slot, due.missed));
                prop_assert_eq!(due.slot.abs_diff(first.0) + first.1, accounted);
                last = Some(due.slot);
                let next = grid.next(now, last, since).chosen;
                let in_time = lateness < grid.interval / 2 && now < grid.time_of(due.slot + 1);
                prop_assert!(!in_time || !next.catch_up, "two late polls in a row");
            }
        }

        #[test]
        fn a_clock_that_jumps_is_followed(grid in any_grid(), now in TIMES, jump in TIMES) {
            let last = grid.slot_at(now);
            let after = now + jump;
            let due = grid.next(after, Some(last), now).chosen;
            // Never further away than the slot after the next, wherever the clock went.
            prop_assert!(due.at_ms >= after && due.at_ms <= after + 2 * grid.interval);
        }
    }
}
