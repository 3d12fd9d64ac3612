//! Many small writes become few large ones.
//!
//! Entries are collected and handed on together, by count or by age, as one task of a pool. Only
//! one batch is on its way at a time, so the order stays. A batch that fails for a passing reason
//! is tried again as a whole; one that fails for good is split until the entry at fault stands
//! alone, and only that one is given up.

use crate::handle::{Pools, SubmitError, WeakPools};
use crate::later::Alarm;
use crate::sync::{Mutex, lock};
use crate::task::{Context, Failure, Outcome, Task};
use skep_policy::Time;
use skep_policy::pools::Tier;
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// How entries are collected.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    /// The kind of the tasks that hand batches on.
    pub kind: &'static str,
    /// Their tier.
    pub tier: Tier,
    /// So many entries are handed on at once.
    pub entries: usize,
    /// After this time they are handed on even if they are fewer.
    pub age: Duration,
    /// The most entries of one batch, when many have piled up.
    pub entries_max: usize,
    /// Entries that may wait; what happens to more says [`Batcher::push`] or
    /// [`Batcher::push_or_drop`].
    pub capacity: usize,
    /// After so many failures in a row a batch is split, whatever the failures say.
    pub tries_as_a_whole: u32,
}

impl BatchOptions {
    /// A hundred entries or a tenth of a second, in the high tier.
    pub const fn new(kind: &'static str) -> Self {
        BatchOptions {
            kind,
            tier: Tier::High,
            entries: 100,
            age: Duration::from_millis(100),
            entries_max: 1_000,
            capacity: 20_000,
            tries_as_a_whole: 5,
        }
    }
}

/// Entries on their way.
pub struct Batch<T> {
    all: Arc<Vec<T>>,
    part: Range<usize>,
}

impl<T> Deref for Batch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all[self.part.clone()]
    }
}

type Writing = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Write<T> = Box<dyn Fn(Batch<T>) -> Writing + Send + Sync>;
type GiveUp<T> = Box<dyn Fn(&T, &Failure) + Send + Sync>;

/// Collects entries. Cheap to clone.
pub struct Batcher<T> {
    desk: Arc<Desk<T>>,
}

impl<T> Clone for Batcher<T> {
    fn clone(&self) -> Self {
        Batcher { desk: self.desk.clone() }
    }
}

/// What a batcher has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct BatchTotals {
    /// Entries that were taken.
    pub taken: u64,
    /// Entries that were handed on.
    pub written: u64,
    /// Batches that were handed on.
    pub batches: u64,
    /// Entries that were refused because too many waited.
    pub dropped: u64,
    /// Entries that were given up because they cannot be written.
    pub given_up: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Entries that wait now.
    pub waiting: u64,
}

struct Desk<T> {
    /// Not held: what the pools keep may itself collect entries.
    pools: WeakPools,
    options: BatchOptions,
    tray: Mutex<Tray<T>>,
    changed: Notify,
    write: Write<T>,
    give_up: GiveUp<T>,
    own: Weak<Desk<T>>,
}

struct Tray<T> {
    waiting: VecDeque<T>,
    /// When the oldest of them came.
    oldest: Time,
    /// The entries that are on their way, and those of them that are written or given up.
    current: Option<(Arc<Vec<T>>, usize)>,
    tries: u32,
    /// A task is on its way to hand entries on.
    going: bool,
    /// Somebody waits for everything to be handed on, whatever its age.
    hurry: bool,
    /// The pools have stopped.
    closed: bool,
    totals: BatchTotals,
}

impl<T: Send + Sync + 'static> Batcher<T> {
    /// A batcher that hands entries to `write`. It may be called again with the same entries, so
    /// writing twice must do no harm where an answer can be lost. `give_up` is told of entries that
    /// cannot be written.
    pub fn new<W>(
        pools: &Pools,
        options: BatchOptions,
        write: impl Fn(Batch<T>) -> W + Send + Sync + 'static,
        give_up: impl Fn(&T, &Failure) + Send + Sync + 'static,
    ) -> Self
    where
        W: Future<Output = Outcome> + Send + 'static,
    {
        let tray = Tray {
            waiting: VecDeque::new(),
            oldest: Time::ZERO,
            current: None,
            tries: 0,
            going: false,
            hurry: false,
            closed: false,
            totals: BatchTotals::default(),
        };
        let desk = Arc::new_cyclic(|own| Desk {
            pools: pools.downgrade(),
            options,
            tray: Mutex::new(tray),
            changed: Notify::new(),
            write: Box::new(move |batch| Box::pin(write(batch))),
            give_up: Box::new(give_up),
            own: own.clone(),
        });
        Batcher { desk }
    }

    /// Takes an entry, unless too many wait; then it is dropped and counted.
    pub fn push_or_drop(&self, entry: T) -> bool {
        let dropped = {
            let mut tray = lock(&self.desk.tray);
            let dropped = self.desk.take(&mut tray, entry).err();
            tray.totals.dropped += u64::from(dropped.is_some());
            dropped
        };
        dropped.is_none()
    }

    /// Takes an entry; waits while too many wait. `false` if the pools have stopped and nobody will
    /// ever make room.
    pub async fn push(&self, entry: T) -> bool {
        let mut entry = entry;
        loop {
            let mut changed = pin!(self.desk.changed.notified());
            changed.as_mut().enable();
            entry = {
                let mut tray = lock(&self.desk.tray);
                match self.desk.take(&mut tray, entry) {
                    Ok(()) => return true,
                    Err(_) if tray.closed => {
                        tray.totals.dropped += 1;
                        return false;
                    }
                    Err(entry) => entry,
                }
            };
            changed.await;
        }
    }

    /// Hands on what waits, without waiting for its age, and returns when nothing waits any more;
    /// `false` if the pools stopped before that.
    pub async fn flush(&self) -> bool {
        loop {
            let mut changed = pin!(self.desk.changed.notified());
            changed.as_mut().enable();
            {
                let mut tray = lock(&self.desk.tray);
                if tray.waiting.is_empty() && tray.current.is_none() {
                    return true;
                }
                tray.hurry = true;
                self.desk.go(&mut tray);
                if tray.closed {
                    return false;
                }
            }
            changed.await;
        }
    }

    /// Takes out what still waits, for whoever writes it when the pools have ended.
    pub fn take_left(&self) -> Vec<T>
    where
        T: Clone,
    {
        let mut tray = lock(&self.desk.tray);
        let current = tray.current.take();
        let on_the_way = current.iter().flat_map(|(all, done)| all[*done..].iter().cloned());
        let mut left: Vec<T> = on_the_way.collect();
        left.extend(tray.waiting.drain(..));
        left
    }

    /// What it has done so far.
    pub fn totals(&self) -> BatchTotals {
        let tray = lock(&self.desk.tray);
        let on_the_way = tray.current.as_ref().map_or(0, |(all, done)| all.len() - done);
        let waiting = (tray.waiting.len() + on_the_way) as u64;
        BatchTotals { waiting, ..tray.totals }
    }
}

impl<T: Send + Sync + 'static> Desk<T> {
    fn take(&self, tray: &mut Tray<T>, entry: T) -> Result<(), T> {
        if tray.waiting.len() >= self.options.capacity {
            return Err(entry);
        }
        tray.totals.taken += 1;
        tray.waiting.push_back(entry);
        if tray.waiting.len() == 1 {
            tray.oldest = self.pools.now();
            if !tray.going {
                self.look_at(tray.oldest + self.options.age);
            }
        }
        if tray.waiting.len() >= self.options.entries {
            self.go(tray);
        }
        Ok(())
    }

    fn look_at(&self, at: Time) {
        let own: Weak<dyn Alarm> = self.own.clone();
        if let Some(pools) = self.pools.upgrade() {
            pools.alarm(at, own);
        }
    }

    /// Sends a task to hand entries on, if none is on its way.
    fn go(&self, tray: &mut Tray<T>) {
        if tray.going {
            return;
        }
        let (Some(own), Some(pools)) = (self.own.upgrade(), self.pools.upgrade()) else {
            return self.close(tray);
        };
        let task = Task::future(self.options.kind, move |context| {
            let own = own.clone();
            async move { own.hand_on(context).await }
        })
        .retries(u32::MAX);
        match pools.try_submit(self.options.tier, task) {
            Ok(_) => tray.going = true,
            // The queue is full: the entries wait here, and are offered again soon.
            Err(SubmitError::Full(_)) => self.look_at(self.pools.now() + self.options.age / 4),
            Err(SubmitError::Stopped(_)) => self.close(tray),
        }
    }

    /// Nothing will be handed on any more; what waits is for [`Batcher::take_left`].
    fn close(&self, tray: &mut Tray<T>) {
        tray.closed = true;
        self.changed.notify_waiters();
    }

    /// Hands on batch after batch until there is nothing that cannot wait.
    async fn hand_on(&self, context: Context) -> Outcome {
        loop {
            let Some((all, done, tries)) = self.pick() else { return Ok(()) };
            let whole = done..all.len();
            let outcome = if tries <= self.options.tries_as_a_whole {
                let batch = Batch { all: all.clone(), part: whole.clone() };
                (self.write)(batch).await
            } else {
                Err(Failure::permanent("it failed too often as a whole"))
            };
            match outcome {
                Ok(()) => self.note(whole.len(), true),
                Err(failure) if failure.retry && !context.is_cancelled() => {
                    lock(&self.tray).totals.failed += 1;
                    return Err(failure);
                }
                Err(failure) => {
                    lock(&self.tray).totals.failed += 1;
                    self.split(&all, whole, failure).await?;
                }
            }
            lock(&self.tray).current = None;
            self.changed.notify_waiters();
        }
    }

    /// The entries to hand on now: those of an earlier try, or the next ones.
    fn pick(&self) -> Option<(Arc<Vec<T>>, usize, u32)> {
        let mut tray = lock(&self.tray);
        if tray.current.is_none() {
            let now = self.pools.now();
            let due = tray.waiting.len() >= self.options.entries
                || now >= tray.oldest + self.options.age
                || tray.hurry
                || self.pools.upgrade().is_none_or(|pools| pools.is_stopping());
            if tray.waiting.is_empty() || !due {
                tray.going = false;
                tray.hurry = false;
                if !tray.waiting.is_empty() {
                    self.look_at(tray.oldest + self.options.age);
                }
                return None;
            }
            let count = tray.waiting.len().min(self.options.entries_max);
            let batch: Vec<T> = tray.waiting.drain(..count).collect();
            // What is left came after what is taken; its exact age is not known any more.
            tray.oldest = now;
            tray.current = Some((Arc::new(batch), 0));
            tray.tries = 0;
        }
        tray.tries += 1;
        let tries = tray.tries;
        tray.current.as_ref().map(|(all, done)| (all.clone(), *done, tries))
    }

    /// Entries of the current batch are written, or given up.
    fn note(&self, count: usize, written: bool) {
        let mut tray = lock(&self.tray);
        if let Some((_, done)) = &mut tray.current {
            *done += count;
        }
        if written {
            tray.totals.written += count as u64;
            tray.totals.batches += 1;
        } else {
            tray.totals.given_up += count as u64;
        }
    }

    /// Finds the entries at fault: halves that fail are halved again, from the first to the last.
    async fn split(&self, all: &Arc<Vec<T>>, whole: Range<usize>, failure: Failure) -> Outcome {
        let mut parts = vec![(whole, failure)];
        while let Some((part, failure)) = parts.pop() {
            if part.len() == 1 {
                (self.give_up)(&all[part.start], &failure);
                self.note(1, false);
                continue;
            }
            let middle = part.start + part.len() / 2;
            let halves = [part.start..middle, middle..part.end];
            let mut failed = Vec::new();
            for half in halves {
                // What is not written in order waits for the part before it.
                if !failed.is_empty() {
                    failed.push((half, Failure::permanent("after a part that failed")));
                    continue;
                }
                let batch = Batch { all: all.clone(), part: half.clone() };
                match (self.write)(batch).await {
                    Ok(()) => self.note(half.len(), true),
                    Err(failure) if failure.retry => return Err(failure),
                    Err(failure) => failed.push((half, failure)),
                }
            }
            parts.extend(failed.into_iter().rev());
        }
        Ok(())
    }
}

impl<T: Send + Sync + 'static> Alarm for Desk<T> {
    fn ring(&self, now: Time) {
        let mut tray = lock(&self.tray);
        if tray.going || tray.waiting.is_empty() {
            return;
        }
        if now >= tray.oldest + self.options.age || tray.waiting.len() >= self.options.entries {
            self.go(&mut tray);
        } else {
            self.look_at(tray.oldest + self.options.age);
        }
    }
}
