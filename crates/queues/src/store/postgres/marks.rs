//! What somebody has locked for longer than a batch takes, as this node has met it.
//!
//! A node that hangs in a transaction, or somebody else's session, may hold rows for seconds.
//! Whoever runs into that waits a moment, marks it and does the rest; those who come after do not
//! wait at all. Many who take turns at a row are no reason for that, however long the line is: it
//! has to be the same transaction that holds it, after a moment, as before.

use super::desk::LaneKey;
use super::jobs::{items, messages, place_of};
use super::names::Names;
use crate::store::{Aside, Job};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a lock is waited for among others: many times what a commit takes.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);
/// And how often by one batch, where others take turns at it: longer each time.
pub(super) const WAITS_MAX: u32 = 8;
/// How long by those who hold nobody up.
pub(super) const LONG_PATIENCE: Duration = Duration::from_secs(1);
/// Nobody has met a mark for so long: it is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// At most so many are marked. What is not marked is met again, which costs a moment each time.
const MARKS_MAX: usize = 16_384;
/// A claim comes again after a quarter of the time that a lane was locked so far, within these.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(250);

/// Something that can be locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spot {
    /// What a push into a partition locks: its queue, if that has a maximum, itself, its lanes.
    Push(i64),
    /// What settling in a partition, for a group, locks.
    Settle(i64, Arc<str>),
    /// The lanes of a lease.
    Lease(u128),
    /// A lane, for claims.
    Claim(LaneKey),
    /// What claims of a group with limits lock.
    Grants(i64),
}

/// The transactions that hold the rows of a spot.
pub(super) type Holders = BTreeSet<String>;

#[derive(Clone)]
struct Mark {
    holders: Holders,
    since: Instant,
    seen: Instant,
    /// Whether the same have held it for so long that nobody should wait.
    lasts: bool,
    /// When one claim may wait for it again.
    turn_at: Instant,
}

impl Mark {
    fn counts(&self, now: Instant) -> bool {
        self.lasts && now < self.seen + FORGOTTEN
    }
}

pub(super) struct Marks {
    marks: Mutex<HashMap<Spot, Mark>>,
    /// How many there are, for those who only want to know whether there are any.
    count: AtomicUsize,
    /// One claim at a time waits for what is marked: the others' batches go on.
    turn: Arc<Semaphore>,
}

impl Default for Marks {
    fn default() -> Self {
        let turn = Arc::new(Semaphore::new(1));
        Marks { marks: Mutex::default(), count: AtomicUsize::new(0), turn }
    }
}

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Notes that these are locked now, and by whom.
    pub(super) fn add(&self, spots: impl IntoIterator<Item = (Spot, Holders)>) {
        let now = Instant::now();
        self.change(|marks| {
            marks.retain(|_, mark| now < mark.seen + FORGOTTEN);
            for (spot, holders) in spots {
                let same = |mark: &&mut Mark| !mark.holders.is_disjoint(&holders);
                if let Some(mark) = marks.get_mut(&spot).filter(same) {
                    mark.lasts |= now - mark.since >= PATIENCE;
                    mark.turn_at = now + pause(now - mark.since);
                    (mark.holders, mark.seen) = (holders, now);
                } else if marks.len() < MARKS_MAX {
                    let (since, seen, turn_at) = (now, now, now);
                    let mark = Mark { holders, since, seen, lasts: false, turn_at };
                    marks.insert(spot, mark);
                }
            }
        });
    }

    /// Notes that these are not.
    pub(super) fn remove<'spot>(&self, spots: impl IntoIterator<Item = &'spot Spot>) {
        if !self.is_empty() {
            self.change(|marks| {
                for spot in spots {
                    marks.remove(spot);
                }
            });
        }
    }

    /// How long a claim should stay away from it, if it is marked.
    pub(super) fn pause(&self, spot: &Spot) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        let now = Instant::now();
        self.marks().get(spot).filter(|mark| mark.counts(now)).map(|mark| pause(now - mark.since))
    }

    /// Lets one claim wait for what is marked, now and then: where a lock changes hands all the
    /// time, whoever never stands in line for it never gets it.
    pub(super) fn turn(&self, spot: &Spot) -> Option<OwnedSemaphorePermit> {
        let now = Instant::now();
        self.marks().get(spot).filter(|mark| mark.turn_at <= now)?;
        self.turn.clone().try_acquire_owned().ok()
    }

    /// Jobs that meet nothing that is marked, and those that do.
    pub(super) fn part(&self, names: &Names, jobs: Vec<Aside>) -> (Vec<Aside>, Vec<Aside>) {
        if self.is_empty() {
            return (jobs, Vec::new());
        }
        let now = Instant::now();
        let wanted: Vec<HashSet<Spot>> = jobs.iter().map(|one| spots(names, &one.job)).collect();
        let marks = self.marks();
        let is_locked = |spot: &Spot| marks.get(spot).is_some_and(|mark| mark.counts(now));
        let (mut free, mut stuck) = (Vec::with_capacity(jobs.len()), Vec::new());
        for (job, wanted) in jobs.into_iter().zip(wanted) {
            let to = if wanted.iter().any(is_locked) { &mut stuck } else { &mut free };
            to.push(job);
        }
        (free, stuck)
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<Spot, Mark>)) {
        let mut marks = self.marks();
        change(&mut marks);
        self.count.store(marks.len(), Ordering::Release);
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<Spot, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pause(locked_for: Duration) -> Duration {
    (locked_for / 4).clamp(SOONEST, LATEST)
}

/// How long a lock is waited for that was not free in time so often. The second time tells whether
/// it lasts; after that there is a line, and who leaves it too soon never comes to its end.
pub(super) fn patience(waits: u32) -> Duration {
    PATIENCE * (1 << waits.saturating_sub(1).min(4))
}

/// What a job will lock, as far as this node knows.
pub(super) fn spots(names: &Names, job: &Job) -> HashSet<Spot> {
    let mut spots = HashSet::new();
    let mut last = None;
    for message in messages(job) {
        let place = place_of(message);
        if last.as_ref() != Some(&place) {
            spots.extend(names.partition(&place).map(|ids| Spot::Push(ids.1)));
            last = Some(place);
        }
    }
    for (group, item) in items(job) {
        spots.extend(item.partition.map(|id| Spot::Settle(id.0, group.clone())));
    }
    match job {
        Job::Transaction(job, _) => spots.extend(job.required.iter().map(|id| Spot::Lease(id.0))),
        Job::Extend { lease, .. } | Job::Release { lease, .. } => {
            spots.insert(Spot::Lease(lease.0));
        }
        _ => {}
    }
    spots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_marked_is_waited_for_by_one_at_a_time_and_less_often_the_longer_it_lasts() {
        let marks = Marks::default();
        let (lane, other) = (Spot::Claim((1, 2)), Spot::Claim((1, 3)));
        marks.add([held_by(&lane, "7"), held_by(&other, "7")]);
        assert_eq!(marks.pause(&lane), None, "anybody may be in a transaction for a moment");
        tokio::time::advance(PATIENCE).await;
        marks.add([held_by(&lane, "7"), held_by(&other, "7")]);
        assert_eq!(marks.pause(&lane), Some(PATIENCE / 4));
        assert!(marks.turn(&lane).is_none(), "it was met a moment ago");
        tokio::time::advance(PATIENCE).await;
        let turn = marks.turn(&lane);
        assert!(turn.is_some() && marks.turn(&other).is_none());
        drop(turn);
        assert!(marks.turn(&other).is_some());
        marks.add([held_by(&lane, "7")]);
        assert_eq!(marks.pause(&lane), Some(PATIENCE / 2));
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(marks.pause(&lane), Some(LATEST));
        marks.remove([&other]);
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!(marks.pause(&lane), None, "nobody has met it for a while");
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_many_take_turns_at_is_never_marked() {
        let (marks, lane) = (Marks::default(), Spot::Claim((1, 2)));
        for holder in ["7", "8", "9", "7"] {
            marks.add([held_by(&lane, holder)]);
            tokio::time::advance(PATIENCE).await;
            assert_eq!(marks.pause(&lane), None);
        }
        marks.add([held_by(&lane, "7")]);
        assert!(marks.pause(&lane).is_some());
    }

    fn held_by(spot: &Spot, holder: &str) -> (Spot, Holders) {
        (spot.clone(), BTreeSet::from([holder.to_owned()]))
    }
}
