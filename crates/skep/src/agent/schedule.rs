//! When a server is measured next. Knows no clock and no socket: times are told, in milliseconds
//! since 1970.
//!
//! Every pair of a monitor and a server has its own grid of times ([`Grid`]), which follows from
//! their names. So the monitors of one server and the servers of one monitor spread over the
//! interval, also after a restart. What is new comes at once; what was late comes once.

use skep_policy::polls::schedule::Grid;
use skep_policy::rendezvous::hash_of;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Going back by less than this is the clock being kept, not set.
const BACK_MILLIS_MAX: i64 = 1_000;

/// What is due when.
#[derive(Debug, Default)]
pub struct Schedule {
    entries: HashMap<Arc<str>, Entry>,
    /// Those that are not being measured, by when they are due.
    order: BTreeSet<(i64, Arc<str>)>,
    latest_ms: i64,
}

#[derive(Debug)]
struct Entry {
    grid: Grid,
    /// When it was assigned, or planned anew.
    since_ms: i64,
    last: Option<Last>,
    /// The next measurement, while none is under way.
    slot: i64,
    at_ms: i64,
    busy: bool,
    /// False once it is not assigned any more and its last measurement still runs.
    wanted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    slot: i64,
    at_ms: i64,
}

impl Schedule {
    /// These are the servers of this monitor from now on, each with its interval.
    pub fn assign<'a>(
        &mut self,
        monitor: &str,
        servers: impl IntoIterator<Item = (&'a str, Duration)>,
        now_ms: i64,
    ) {
        self.look_at(now_ms);
        let mut kept = HashSet::new();
        for (server, interval) in servers {
            let name: Arc<str> = match self.entries.get_key_value(server) {
                Some((name, _)) => name.clone(),
                None => server.into(),
            };
            let grid = Grid::new(hash_of(&format!("{monitor}/{server}")), interval);
            self.assign_one(name.clone(), grid, now_ms);
            kept.insert(name);
        }
        let order = &mut self.order;
        self.entries.retain(|name, entry| {
            entry.wanted = kept.contains(name);
            if !entry.wanted && !entry.busy {
                order.remove(&(entry.at_ms, name.clone()));
            }
            entry.wanted || entry.busy
        });
    }

    fn assign_one(&mut self, name: Arc<str>, grid: Grid, now_ms: i64) {
        let known = self.entries.get_mut(&name);
        let last = match &known {
            Some(entry) if entry.grid == grid => return,
            // The time of the last one means the same on every grid, its number does not.
            Some(entry) => entry.last.map(|last| {
                let slot = grid.last_done_at(now_ms, last.at_ms, entry.since_ms);
                Last { slot, ..last }
            }),
            None => None,
        };
        if let Some(entry) = known.filter(|entry| entry.busy) {
            (entry.grid, entry.last) = (grid, last);
            return;
        }
        let fresh =
            Entry { grid, since_ms: now_ms, last, slot: 0, at_ms: 0, busy: false, wanted: true };
        if let Some(before) = self.entries.insert(name.clone(), fresh) {
            self.order.remove(&(before.at_ms, name.clone()));
        }
        self.plan(&name, now_ms);
    }

    /// A server that is due, if there is one: that for which it has been longest. It is not due
    /// again before [`Schedule::done`].
    pub fn take(&mut self, now_ms: i64) -> Option<Arc<str>> {
        self.look_at(now_ms);
        let (at_ms, _) = self.order.first()?;
        if *at_ms > now_ms {
            return None;
        }
        let (_, name) = self.order.pop_first()?;
        let entry = self.entries.get_mut(&name)?;
        entry.busy = true;
        // Later slots whose time has passed meanwhile are done with it too.
        let slot = entry.slot.max(entry.grid.slot_at(now_ms));
        entry.last = Some(Last { slot, at_ms: now_ms });
        Some(name)
    }

    /// Its measurement is over. Whether the server is still one of ours.
    pub fn done(&mut self, server: &str, now_ms: i64) -> bool {
        self.look_at(now_ms);
        let Some((name, entry)) = self.entries.get_key_value(server) else { return false };
        let (name, wanted) = (name.clone(), entry.wanted);
        if !wanted {
            self.entries.remove(&name);
            return false;
        }
        if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.busy) {
            entry.busy = false;
            self.plan(&name, now_ms);
        }
        true
    }

    /// When the next is due, if none is taken or done before.
    pub fn next_at(&self) -> Option<i64> {
        self.order.first().map(|(at_ms, _)| *at_ms)
    }

    fn plan(&mut self, name: &Arc<str>, now_ms: i64) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let last = entry.last.map(|last| last.slot);
        let due = entry.grid.next(now_ms, last, entry.since_ms).chosen;
        (entry.slot, entry.at_ms) = (due.slot, due.at_ms);
        self.order.insert((due.at_ms, name.clone()));
    }

    /// Notices a clock that was set back: what is due by the old time would not come for long.
    fn look_at(&mut self, now_ms: i64) {
        let back = now_ms < self.latest_ms.saturating_sub(BACK_MILLIS_MAX);
        self.latest_ms = if back { now_ms } else { self.latest_ms.max(now_ms) };
        if !back {
            return;
        }
        self.order.clear();
        let names: Vec<Arc<str>> = self.entries.keys().cloned().collect();
        for name in names {
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            entry.since_ms = entry.since_ms.min(now_ms);
            if let Some(last) = &mut entry.last {
                last.at_ms = last.at_ms.min(now_ms);
            }
            if !entry.busy {
                self.plan(&name, now_ms);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;
    const NOON: i64 = 1_800_000_000_000;

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    fn of(servers: &[(&str, u64)]) -> Schedule {
        let mut schedule = Schedule::default();
        assign(&mut schedule, servers, NOON);
        schedule
    }

    fn assign(schedule: &mut Schedule, servers: &[(&str, u64)], now_ms: i64) {
        let servers = servers.iter().map(|(name, interval)| (*name, minutes(*interval)));
        schedule.assign("monitor", servers, now_ms);
    }

    /// Measures what is due from one time to another, each in no time; when which was.
    fn measured(schedule: &mut Schedule, from_ms: i64, to_ms: i64) -> Vec<(i64, String)> {
        let mut found = Vec::new();
        let mut now_ms = from_ms;
        while now_ms <= to_ms {
            while let Some(name) = schedule.take(now_ms) {
                schedule.done(&name, now_ms);
                found.push((now_ms, name.to_string()));
            }
            now_ms = schedule.next_at().unwrap_or(i64::MAX).max(now_ms + 1);
        }
        found
    }

    #[test]
    fn a_new_server_is_measured_at_once_and_then_at_its_interval() {
        let mut schedule = of(&[("a", 9)]);
        let times: Vec<i64> =
            measured(&mut schedule, NOON, NOON + 60 * MINUTE).iter().map(|one| one.0).collect();
        assert!(times[0] <= NOON + 1_000, "{}", times[0] - NOON);
        assert!((7..=8).contains(&times.len()), "{times:?}");
        assert!(times[1] - times[0] <= 9 * MINUTE);
        assert!(times[1..].windows(2).all(|two| two[1] - two[0] == 9 * MINUTE), "{times:?}");
    }

    #[test]
    fn servers_spread_over_the_interval_and_keep_their_times_after_a_restart() {
        let names: Vec<String> = (0..900).map(|number| format!("server-{number}")).collect();
        let servers: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 9)).collect();
        let later = NOON + 60 * MINUTE;
        let times = |start: i64| {
            let mut schedule = Schedule::default();
            assign(&mut schedule, &servers, start);
            measured(&mut schedule, start, start + 10 * MINUTE);
            let mut found = measured(&mut schedule, later, later + 9 * MINUTE - 1);
            // The first of a server here makes up for what was left out in between.
            found.retain(|(at, _)| *at > later + 2_000);
            found.sort();
            found
        };
        let first = times(NOON);
        assert_eq!(first, times(NOON + 7_777));
        let mut by_minute = [0; 9];
        first.iter().for_each(|(at, _)| by_minute[((at - later) / MINUTE) as usize] += 1);
        assert!(by_minute.iter().all(|count| (65..=135).contains(count)), "{by_minute:?}");
    }

    #[test]
    fn two_monitors_measure_a_server_at_different_times() {
        let at = |monitor: &str| {
            let mut schedule = Schedule::default();
            schedule.assign(monitor, [("a", minutes(90))], NOON);
            measured(&mut schedule, NOON, NOON + MINUTE);
            schedule.next_at().expect("a next one")
        };
        assert_ne!(at("one"), at("other"));
    }

    #[test]
    fn a_server_is_not_due_again_while_it_is_measured() {
        let mut schedule = of(&[("a", 9)]);
        let name = schedule.take(NOON + 1_000).expect("due");
        assert_eq!(schedule.take(NOON + 60 * MINUTE), None);
        assert_eq!(schedule.next_at(), None);
        assert!(schedule.done(&name, NOON + 60 * MINUTE));
        assert_eq!(schedule.take(NOON + 60 * MINUTE).as_deref(), Some("a"), "late, and once");
        schedule.done("a", NOON + 60 * MINUTE);
        assert_eq!(schedule.take(NOON + 60 * MINUTE), None);
    }

    #[test]
    fn after_a_gap_or_a_clock_set_forward_each_server_is_due_once() {
        let mut schedule = of(&[("a", 9), ("b", 30)]);
        measured(&mut schedule, NOON, NOON + MINUTE);
        let day = NOON + 24 * 60 * MINUTE;
        let found = measured(&mut schedule, day, day);
        let names: BTreeSet<&str> = found.iter().map(|one| one.1.as_str()).collect();
        assert_eq!((found.len(), names.len()), (2, 2), "{found:?}");
    }

    #[test]
    fn a_clock_set_back_does_not_stop_measuring() {
        let mut schedule = of(&[("a", 9), ("b", 30)]);
        measured(&mut schedule, NOON, NOON + 40 * MINUTE);
        let before = NOON - 24 * 60 * MINUTE;
        let found = measured(&mut schedule, before, before + 31 * MINUTE);
        let count = |name: &str| found.iter().filter(|one| one.1 == name).count();
        assert!((3..=4).contains(&count("a")), "{found:?}");
        assert!((1..=2).contains(&count("b")), "{found:?}");
    }

    #[test]
    fn a_clock_that_goes_back_a_moment_measures_nothing_twice() {
        let mut schedule = of(&[("a", 9)]);
        let found = measured(&mut schedule, NOON, NOON + 20 * MINUTE);
        let last = found.last().expect("measured").0;
        assert!(measured(&mut schedule, last - 500, last + 500).is_empty());
    }

    #[test]
    fn a_changed_interval_counts_from_the_last_measurement() {
        let mut schedule = of(&[("a", 90)]);
        measured(&mut schedule, NOON, NOON + MINUTE);
        assign(&mut schedule, &[("a", 9)], NOON + 2 * MINUTE);
        let next = schedule.next_at().expect("a next one") - NOON;
        assert!(next <= 11 * MINUTE, "{next}");
        let found = measured(&mut schedule, NOON + 2 * MINUTE, NOON + 62 * MINUTE);
        assert!((6..=8).contains(&found.len()), "{found:?}");
        // And back: no extra measurement because of it.
        let last = found.last().expect("measured").0;
        assign(&mut schedule, &[("a", 90)], last + 1);
        let found = measured(&mut schedule, last + 1, last + 89 * MINUTE);
        assert!(found.len() <= 1, "{found:?}");
    }

    #[test]
    fn an_interval_that_changes_during_a_measurement_is_kept_after_it() {
        let mut schedule = of(&[("a", 90)]);
        let name = schedule.take(NOON + 1_000).expect("due");
        assign(&mut schedule, &[("a", 9)], NOON + 1_500);
        assert_eq!(schedule.take(NOON + 2_000), None, "it is still being measured");
        assert!(schedule.done(&name, NOON + 2_000));
        let found = measured(&mut schedule, NOON + 2_000, NOON + 56 * MINUTE);
        assert!((6..=7).contains(&found.len()), "{found:?}");
    }

    #[test]
    fn the_same_assignments_again_change_nothing() {
        let mut schedule = of(&[("a", 9), ("b", 30)]);
        measured(&mut schedule, NOON, NOON + MINUTE);
        let next = schedule.next_at();
        assign(&mut schedule, &[("b", 30), ("a", 9)], NOON + 2 * MINUTE);
        assert_eq!(schedule.next_at(), next);
    }

    #[test]
    fn a_removed_server_is_measured_no_more_and_its_running_measurement_is_nobodys() {
        let mut schedule = of(&[("a", 9), ("b", 9)]);
        let running = schedule.take(NOON + 1_000).expect("due");
        assign(&mut schedule, &[], NOON + 2_000);
        assert!(!schedule.done(&running, NOON + 3_000));
        assert!(measured(&mut schedule, NOON + 3_000, NOON + 60 * MINUTE).is_empty());
        assert!(!schedule.done("never there", NOON));
    }

    #[test]
    fn one_that_comes_back_during_its_measurement_is_not_measured_twice_at_once() {
        let mut schedule = of(&[("a", 9)]);
        let running = schedule.take(NOON + 1_000).expect("due");
        assign(&mut schedule, &[], NOON + 2_000);
        assign(&mut schedule, &[("a", 9)], NOON + 3_000);
        assert_eq!(schedule.take(NOON + 4_000), None);
        assert!(schedule.done(&running, NOON + 5_000));
        assert!(schedule.next_at().expect("a next one") > NOON + 5_000);
    }
}
