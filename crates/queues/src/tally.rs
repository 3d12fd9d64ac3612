//! What this node does in each queue, added up until it is written.
//!
//! Everybody who pushes or pops comes by here, so it costs a short lock of one of a few shards and
//! no allocation once a queue is known. A loop takes the sums every few seconds and adds them to
//! the store's; if that fails it puts them back.

use crate::store::{StatCounts, StatRow, minute_of};
use skep_policy::Time;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::xxh3_64;

/// Queues that are told apart between two writes; what happens in others counts only in the total.
pub const QUEUES_MAX: usize = 10_000;
/// Minutes that are told apart while nothing can be written; what is older counts for the oldest.
pub const MINUTES_MAX: usize = 15;
const SHARDS: usize = 16;

/// Sums of one queue, or of all, by minute; few, newest last.
type Minutes = Vec<(u64, StatCounts)>;

#[derive(Default)]
struct Shard {
    /// Of all queues of this shard, known or not.
    total: Minutes,
    queues: HashMap<Arc<str>, Minutes>,
}

/// What this node did and has not written.
pub struct Tally {
    shards: [Mutex<Shard>; SHARDS],
    /// Queues in all shards.
    queues: AtomicUsize,
    queues_max: usize,
}

impl Default for Tally {
    fn default() -> Self {
        Tally::new(QUEUES_MAX)
    }
}

impl Tally {
    /// Tells at most so many queues apart.
    pub fn new(queues_max: usize) -> Self {
        Tally { shards: Default::default(), queues: AtomicUsize::new(0), queues_max }
    }

    /// Adds what happened in a queue at a time by the store's clock.
    pub fn add(&self, queue: &Arc<str>, now: Time, counts: &StatCounts) {
        let minute = minute_of(now);
        let mut shard = self.shard(queue);
        add(&mut shard.total, minute, counts);
        self.add_to_queue(&mut shard, queue, minute, counts);
    }

    /// Everything that is not written, by queue and in total; it counts as written from here on.
    /// The total stands first, and the rest may be more than the store takes at once.
    pub fn take(&self) -> Vec<StatRow> {
        let mut total: BTreeMap<u64, StatCounts> = BTreeMap::new();
        let mut rows = Vec::new();
        for shard in &self.shards {
            let taken = std::mem::take(&mut *lock(shard));
            self.queues.fetch_sub(taken.queues.len(), Ordering::Relaxed);
            for (minute, counts) in taken.total {
                total.entry(minute).or_default().add(&counts);
            }
            for (queue, minutes) in taken.queues {
                let row = |(minute, counts)| StatRow { queue: Some(queue.clone()), minute, counts };
                rows.extend(minutes.into_iter().map(row));
            }
        }
        let row = |(minute, counts)| StatRow { queue: None, minute, counts };
        total.into_iter().map(row).chain(rows).collect()
    }

    /// Takes back rows that could not be written.
    pub fn put_back(&self, rows: Vec<StatRow>) {
        for row in rows {
            match &row.queue {
                None => add(&mut lock(&self.shards[0]).total, row.minute, &row.counts),
                Some(queue) => {
                    let mut shard = self.shard(queue);
                    self.add_to_queue(&mut shard, queue, row.minute, &row.counts);
                }
            }
        }
    }

    fn shard(&self, queue: &str) -> MutexGuard<'_, Shard> {
        let place = xxh3_64(queue.as_bytes()) % SHARDS as u64;
        lock(&self.shards[usize::try_from(place).unwrap_or(0)])
    }

    fn add_to_queue(&self, shard: &mut Shard, queue: &Arc<str>, minute: u64, counts: &StatCounts) {
        if let Some(minutes) = shard.queues.get_mut(queue) {
            return add(minutes, minute, counts);
        }
        if self.queues.fetch_add(1, Ordering::Relaxed) >= self.queues_max {
            self.queues.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        shard.queues.insert(queue.clone(), vec![(minute, *counts)]);
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // Sums that a panic interrupted are at worst one short.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(minutes: &mut Minutes, minute: u64, counts: &StatCounts) {
    // Nearly always the last one.
    let place = minutes.iter().rposition(|(known, _)| *known <= minute);
    match place {
        Some(place) if minutes[place].0 == minute => minutes[place].1.add(counts),
        // Full, and older than all that is kept: nothing may be lost.
        None if minutes.len() >= MINUTES_MAX => minutes[0].1.add(counts),
        place => minutes.insert(place.map_or(0, |place| place + 1), (minute, *counts)),
    }
    if minutes.len() > MINUTES_MAX {
        let (_, oldest) = minutes.remove(0);
        minutes[0].1.add(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pushed(pushed: u64) -> StatCounts {
        StatCounts { pushed, pending_max: pushed, ..StatCounts::default() }
    }

    fn minute(minute: u64) -> Time {
        Time::from_millis(minute * 60_000 + 59_999)
    }

    /// Queue, minute and pushes of each row, in order; "" is all queues.
    fn rows(tally: &Tally) -> Vec<(String, u64, u64)> {
        let name = |row: &StatRow| row.queue.as_deref().unwrap_or_default().to_owned();
        let taken = tally.take();
        let mut rows: Vec<_> =
            taken.iter().map(|row| (name(row), row.minute, row.counts.pushed)).collect();
        rows.sort();
        rows
    }

    fn row(queue: &str, minute: u64, pushed: u64) -> (String, u64, u64) {
        (queue.to_owned(), minute, pushed)
    }

    #[test]
    fn sums_are_kept_by_queue_and_minute_and_taken_once() {
        let tally = Tally::default();
        let (q, r): (Arc<str>, Arc<str>) = ("q".into(), "r".into());
        tally.add(&q, minute(1), &pushed(1));
        tally.add(&q, minute(1), &pushed(2));
        tally.add(&r, minute(1), &pushed(4));
        tally.add(&q, minute(2), &pushed(8));
        let expected =
            [row("", 1, 7), row("", 2, 8), row("q", 1, 3), row("q", 2, 8), row("r", 1, 4)];
        assert_eq!(rows(&tally), expected);
        assert_eq!(rows(&tally), []);
    }

    #[test]
    fn what_could_not_be_written_is_added_to_what_came_since() {
        let tally = Tally::default();
        let q: Arc<str> = "q".into();
        tally.add(&q, minute(1), &pushed(1));
        let taken = tally.take();
        assert_eq!(taken[0].counts.pending_max, 1, "the greatest is not added up");
        tally.add(&q, minute(1), &pushed(2));
        tally.put_back(taken);
        let taken = tally.take();
        assert_eq!(taken[0], StatRow { queue: None, minute: 1, counts: counts(3, 2) });
        assert_eq!(taken[1], StatRow { queue: Some(q), minute: 1, counts: counts(3, 2) });
    }

    fn counts(pushed: u64, pending_max: u64) -> StatCounts {
        StatCounts { pushed, pending_max, ..StatCounts::default() }
    }

    #[test]
    fn queues_beyond_the_limit_count_only_in_the_total() {
        let tally = Tally::new(2);
        for name in ["a", "b", "c", "c", "a"] {
            tally.add(&name.into(), minute(0), &pushed(1));
        }
        assert_eq!(rows(&tally), [row("", 0, 5), row("a", 0, 2), row("b", 0, 1)]);
        tally.add(&"c".into(), minute(0), &pushed(1));
        assert_eq!(rows(&tally), [row("", 0, 1), row("c", 0, 1)], "there is room again");
    }

    #[test]
    fn many_threads_lose_nothing() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tally = &tally;
                scope.spawn(move || {
                    let queue: Arc<str> = format!("q{}", thread % 2).into();
                    for _ in 0..10_000 {
                        tally.add(&queue, minute(0), &pushed(1));
                    }
                });
            }
        });
        assert_eq!(rows(&tally), [row("", 0, 40_000), row("q0", 0, 20_000), row("q1", 0, 20_000)]);
    }

    proptest! {
        #[test]
        fn however_long_nothing_is_written_nothing_is_lost_and_little_is_kept(
            minutes in proptest::collection::vec(0_u64..60, 1..200),
            failures in proptest::collection::vec(any::<bool>(), 200),
        ) {
            let tally = Tally::default();
            let q: Arc<str> = "q".into();
            for (at, fails) in minutes.iter().zip(failures) {
                tally.add(&q, minute(*at), &pushed(1));
                if fails {
                    tally.put_back(tally.take());
                }
            }
            let taken = tally.take();
            for queue in [None, Some(q)] {
                let of_it: Vec<&StatRow> = taken.iter().filter(|row| row.queue == queue).collect();
                let sum: u64 = of_it.iter().map(|row| row.counts.pushed).sum();
                prop_assert_eq!(sum, minutes.len() as u64);
                // The total is kept by shard, and put back to the first.
                prop_assert!(of_it.len() <= 2 * MINUTES_MAX);
                let sorted = of_it.windows(2).all(|pair| pair[0].minute < pair[1].minute);
                prop_assert!(sorted, "a minute stands once");
            }
        }
    }
}
