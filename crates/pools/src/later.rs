//! What is to happen at a time: retries, checks, flushes.

use crate::sync::{Mutex, lock};
use crate::task::Record;
use skep_policy::Time;
use skep_policy::pools::Tier;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that wants to be called at a time.
pub trait Alarm: Send + Sync {
    /// The time has come.
    fn ring(&self, now: Time);
}

pub enum Due {
    /// A task's next attempt.
    Retry(Tier, Record),
    /// Look at a tier again, because a thread could not be started.
    Check(Tier),
    /// Call somebody.
    Alarm(Arc<dyn Alarm>),
}

/// Everything that waits for its time. One thread sleeps until the first of it.
pub struct Later {
    due: Mutex<BTreeMap<(Time, u64), Due>>,
    sequence: AtomicU64,
    /// When the timer wakes up by itself.
    wakes_at: AtomicU64,
}

impl Later {
    pub fn new() -> Self {
        Later {
            due: Mutex::new(BTreeMap::new()),
            sequence: AtomicU64::new(0),
            wakes_at: AtomicU64::new(u64::MAX),
        }
    }

    pub fn add(&self, at: Time, due: Due) {
        let key = (at, self.sequence.fetch_add(1, Ordering::Relaxed));
        lock(&self.due).insert(key, due);
    }

    /// Must the timer be woken, because it would sleep past `at`? Ask after what happens then is
    /// visible to it.
    pub fn would_sleep_past(&self, at: Time) -> bool {
        // Almost always false: tasks of a tier end in the order they start, and the timer wakes for
        // the first one.
        at.as_nanos() < self.wakes_at.load(Ordering::SeqCst)
            && at.as_nanos() < self.wakes_at.fetch_min(at.as_nanos(), Ordering::SeqCst)
    }

    /// The timer starts to look: whoever adds something from now on wakes it.
    pub fn begin_look(&self) {
        self.wakes_at.store(u64::MAX, Ordering::SeqCst);
    }

    /// The timer has looked, and sleeps until the time that is returned.
    pub fn end_look(&self, next: Option<Time>) -> Option<Time> {
        let next = next.map_or(u64::MAX, Time::as_nanos);
        let earlier = self.wakes_at.fetch_min(next, Ordering::SeqCst).min(next);
        (earlier < u64::MAX).then(|| Time::from_nanos(earlier))
    }

    /// Takes out what is due, and with `all_retries` those that are not due too.
    pub fn take_due(&self, now: Time, all_retries: bool) -> Vec<Due> {
        let mut taken: Vec<Due> = {
            let mut due = lock(&self.due);
            let rest = due.split_off(&(Time::from_nanos(now.as_nanos().saturating_add(1)), 0));
            std::mem::replace(&mut *due, rest).into_values().collect()
        };
        if all_retries {
            let retries = self.take_retries().into_iter();
            taken.extend(retries.map(|(tier, record)| Due::Retry(tier, record)));
        }
        taken
    }

    /// Takes out all retries, and leaves what others wait for.
    pub fn take_retries(&self) -> Vec<(Tier, Record)> {
        let mut due = lock(&self.due);
        let (retries, others) = std::mem::take(&mut *due)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, due)| matches!(due, Due::Retry(..)));
        *due = others;
        let record = |due| match due {
            Due::Retry(tier, record) => Some((tier, record)),
            Due::Check(_) | Due::Alarm(_) => None,
        };
        retries.into_values().filter_map(record).collect()
    }

    /// Forgets what nobody will ever come to do. Tasks are not forgotten.
    pub fn clear(&self) {
        let forgotten = {
            let mut due = lock(&self.due);
            let keep = |due: &Due| matches!(due, Due::Retry(..));
            let (kept, forgotten) = std::mem::take(&mut *due)
                .into_iter()
                .partition::<BTreeMap<_, _>, _>(|(_, one)| keep(one));
            *due = kept;
            forgotten
        };
        // Not under the lock: with an alarm may go the last handle of the pools.
        drop(forgotten);
    }

    pub fn first(&self) -> Option<Time> {
        lock(&self.due).keys().next().map(|(at, _)| *at)
    }
}
