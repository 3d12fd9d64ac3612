//! Many small writes become few large ones.
//!
//! Entries are collected and handed on together, by count or by age, as one task of a pool. Only
//! one batch is on its way at a time, so the order stays. A batch that fails for a passing reason
//! is tried again, for as long as it takes; one that fails for good, or brings down whoever writes
//! it, is split until the entry at fault stands alone, and only that one is given up.

mod tray;

use crate::guard::{drop_quietly, quietly};
use crate::handle::{Pools, SubmitError, WeakPools};
use crate::later::Alarm;
use crate::sync::{Mutex, lock};
use crate::task::{Failure, Outcome, Task};
use skep_policy::Time;
use skep_policy::pools::Tier;
use std::ops::{Deref, Range};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tray::{Current, Tray};

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
    /// After so many failures a batch is split, whatever the failures say. An entry that is alone
    /// and brings its writer down so often in a row is given up.
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

/// Collects entries. Cheap to clone; when the last clone is gone, what waits is handed on.
pub struct Batcher<T: Send + Sync + 'static> {
    holder: Arc<Holder<T>>,
}

impl<T: Send + Sync + 'static> Clone for Batcher<T> {
    fn clone(&self) -> Self {
        Batcher { holder: self.holder.clone() }
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

/// Those outside who collect entries, without the tasks and alarms that hand them on.
struct Holder<T: Send + Sync + 'static> {
    desk: Arc<Desk<T>>,
}

impl<T: Send + Sync + 'static> Drop for Holder<T> {
    fn drop(&mut self) {
        lock(&self.desk.tray).orphaned = true;
        self.desk.hurry();
    }
}

struct Desk<T> {
    /// Not held: what the pools keep may itself collect entries. Never upgraded while the tray is
    /// locked: whoever lets go of the last handle drains the pools, and that may ring here.
    pools: WeakPools,
    options: BatchOptions,
    tray: Mutex<Tray<T>>,
    changed: Notify,
    write: Write<T>,
    give_up: GiveUp<T>,
    own: Weak<Desk<T>>,
}

/// What is to be done next.
enum Step<T> {
    Write(Batch<T>),
    GiveUp(Arc<Vec<T>>, usize, Failure),
}

/// What became of a task that is to hand entries on.
enum Sent {
    Yes,
    Later,
    Never,
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
        let options = BatchOptions {
            entries: options.entries.max(1),
            entries_max: options.entries_max.max(1),
            capacity: options.capacity.max(1),
            tries_as_a_whole: options.tries_as_a_whole.max(1),
            ..options
        };
        let desk = Arc::new_cyclic(|own| Desk {
            pools: pools.downgrade(),
            options,
            tray: Mutex::new(Tray::new()),
            changed: Notify::new(),
            write: Box::new(move |batch| Box::pin(write(batch))),
            give_up: Box::new(give_up),
            own: own.clone(),
        });
        Batcher { holder: Arc::new(Holder { desk }) }
    }

    fn desk(&self) -> &Desk<T> {
        &self.holder.desk
    }

    /// Takes an entry, unless too many wait; then it is dropped and counted.
    pub fn push_or_drop(&self, entry: T) -> bool {
        let refused = self.desk().take(entry);
        if refused.is_some() {
            lock(&self.desk().tray).totals.dropped += 1;
        }
        refused.is_none()
    }

    /// Takes an entry; waits while too many wait. `false` if the pools have stopped and nobody will
    /// ever make room.
    pub async fn push(&self, entry: T) -> bool {
        let desk = self.desk();
        let mut entry = entry;
        loop {
            let mut changed = pin!(desk.changed.notified());
            changed.as_mut().enable();
            let mut gone = pin!(desk.pools.gone());
            gone.as_mut().enable();
            entry = match desk.take(entry) {
                None => return true,
                Some(entry) => entry,
            };
            if desk.is_closed() {
                lock(&desk.tray).totals.dropped += 1;
                return false;
            }
            either(changed, gone).await;
        }
    }

    /// Hands on what waits, without waiting for its age, and returns when all of it has been;
    /// `false` if the pools stopped before that.
    pub async fn flush(&self) -> bool {
        let desk = self.desk();
        let wanted = lock(&desk.tray).totals.taken;
        loop {
            let mut changed = pin!(desk.changed.notified());
            changed.as_mut().enable();
            let mut gone = pin!(desk.pools.gone());
            gone.as_mut().enable();
            if lock(&desk.tray).ended() >= wanted {
                return true;
            }
            desk.hurry();
            if desk.is_closed() {
                return false;
            }
            either(changed, gone).await;
        }
    }

    /// Takes out what still waits, for whoever writes it when the pools have ended.
    pub fn take_left(&self) -> Vec<T>
    where
        T: Clone,
    {
        let (current, waiting) = {
            let mut tray = lock(&self.desk().tray);
            tray.left += tray.unfinished() as u64;
            let current = tray.current.take();
            let waiting = std::mem::take(&mut tray.waiting);
            (current, waiting)
        };
        self.desk().changed.notify_waiters();
        let on_the_way = current.iter().flat_map(|one| one.all[one.done..].iter().cloned());
        on_the_way.chain(waiting).collect()
    }

    /// What it has done so far.
    pub fn totals(&self) -> BatchTotals {
        let tray = lock(&self.desk().tray);
        BatchTotals { waiting: tray.unfinished() as u64, ..tray.totals }
    }
}

impl<T: Send + Sync + 'static> Desk<T> {
    /// Takes an entry, or gives it back.
    fn take(&self, entry: T) -> Option<T> {
        let pools = self.pools.upgrade();
        let goes = {
            let mut tray = lock(&self.tray);
            if tray.waiting.len() >= self.options.capacity {
                return Some(entry);
            }
            tray.totals.taken += 1;
            tray.waiting.push_back(entry);
            if tray.waiting.len() == 1 {
                tray.oldest = self.pools.now();
                if !tray.going {
                    let at = tray.oldest + self.options.age;
                    self.look_at(&mut tray, at, pools.as_ref());
                }
            }
            // Where the queue was full, it is tried again soon, not with every entry.
            !tray.going && tray.waiting.len().is_multiple_of(self.options.entries)
        };
        if goes {
            self.go();
        }
        None
    }

    /// Has the timer ring at this time, unless it rings before.
    fn look_at(&self, tray: &mut Tray<T>, at: Time, pools: Option<&Pools>) {
        if tray.looks_at.is_some_and(|before| before <= at) && !tray.orphaned {
            return;
        }
        if let (Some(own), Some(pools)) = (self.own.upgrade(), pools) {
            tray.looks_at = Some(at);
            // Nobody else can save what an orphan has, so that the pools stay for it.
            let held = tray.orphaned.then(|| pools.clone());
            match held {
                Some(held) => pools.alarm(at, Arc::new(Orphan { desk: own, _pools: held })),
                None => pools.alarm(at, own),
            }
        }
    }

    /// Whether something is to be handed on now.
    fn is_due(&self, tray: &Tray<T>, pools: Option<&Pools>) -> bool {
        tray.current.is_some()
            || !tray.waiting.is_empty()
                && (tray.waiting.len() >= self.options.entries
                    || self.pools.now() >= tray.oldest + self.options.age
                    || tray.ended() < tray.hurry
                    || pools.is_none_or(Pools::is_stopping))
    }

    /// Hands on what waits, whatever its age.
    fn hurry(&self) {
        {
            let mut tray = lock(&self.tray);
            if tray.is_empty() {
                return;
            }
            tray.hurry = tray.totals.taken;
        }
        self.go();
    }

    /// Sends a task to hand entries on, if none is on its way.
    fn go(&self) {
        {
            let mut tray = lock(&self.tray);
            if tray.going || tray.closed {
                return;
            }
            tray.going = true;
        }
        if let Sent::Never = self.send() {
            // What waits is for `take_left`.
            let mut tray = lock(&self.tray);
            tray.going = false;
            tray.closed = true;
            drop(tray);
            self.changed.notify_waiters();
        }
    }

    /// Without the tray in hand: whoever submits a task may meet dead letters, and who keeps those
    /// may have a batcher for them.
    fn send(&self) -> Sent {
        let (Some(own), Some(pools)) = (self.own.upgrade(), self.pools.upgrade()) else {
            return Sent::Never;
        };
        let task = Task::future(self.options.kind, move |_| {
            let own = own.clone();
            async move { own.hand_on().await }
        })
        .retries(u32::MAX);
        match pools.try_submit(self.options.tier, task) {
            Ok(_) => Sent::Yes,
            Err(SubmitError::Stopped(_)) => Sent::Never,
            Err(SubmitError::Full(_)) => {
                let soon = self.pools.now() + (self.options.age / 4).max(OFFER_AGAIN_AFTER_MIN);
                let mut tray = lock(&self.tray);
                tray.going = false;
                self.look_at(&mut tray, soon, Some(&pools));
                Sent::Later
            }
        }
    }

    /// Hands on a batch, or a part of one, and leaves the next to another task: none may run for as
    /// long as there is work. When the pools take no tasks any more, this one goes on to the end.
    async fn hand_on(&self) -> Outcome {
        while let Some(step) = self.next() {
            match step {
                Step::Write(batch) => self.write(batch).await?,
                Step::GiveUp(all, entry, failure) => {
                    let over = {
                        let mut tray = lock(&self.tray);
                        tray.totals.given_up += 1;
                        tray.advance(1)
                    };
                    let _ = quietly(|| (self.give_up)(&all[entry], &failure));
                    drop_quietly((all, over.map(|one| one.all)));
                }
            }
            self.changed.notify_waiters();
            if self.is_left_to_another() {
                break;
            }
        }
        Ok(())
    }

    fn is_left_to_another(&self) -> bool {
        let pools = self.pools.upgrade();
        let due = self.is_due(&lock(&self.tray), pools.as_ref());
        due && !matches!(self.send(), Sent::Never)
    }

    /// What to do now; if nothing is due, the task ends.
    fn next(&self) -> Option<Step<T>> {
        let pools = self.pools.upgrade();
        let mut tray = lock(&self.tray);
        if !self.is_due(&tray, pools.as_ref()) {
            tray.going = false;
            if !tray.waiting.is_empty() {
                let at = tray.oldest + self.options.age;
                self.look_at(&mut tray, at, pools.as_ref());
            }
            return None;
        }
        if tray.current.as_ref().is_some_and(|one| one.unanswered) {
            let words = "whoever wrote it took too long, or was stopped".to_owned();
            tray.note_failure(self.options.tries_as_a_whole, Some(words));
        }
        if tray.current.is_none() {
            let count = tray.waiting.len().min(self.options.entries_max);
            let all = tray.waiting.drain(..count).collect();
            // What is left came after what is taken; its exact age is not known any more.
            tray.oldest = self.pools.now();
            tray.current = Some(Current::new(all));
            // There is room again.
            self.changed.notify_waiters();
        }
        let current = tray.current.as_mut()?;
        let (all, done) = (current.all.clone(), current.done);
        if current.size == 1 && current.crashes >= self.options.tries_as_a_whole {
            let failure = Failure::permanent(std::mem::take(&mut current.last_words));
            current.unanswered = false;
            return Some(Step::GiveUp(all, done, failure));
        }
        current.unanswered = true;
        Some(Step::Write(Batch { all, part: done..done + current.size }))
    }

    /// Writes a part of the current batch, and fails if it is to be tried again later.
    async fn write(&self, batch: Batch<T>) -> Outcome {
        let Batch { all, part } = &batch;
        let (all, part) = (all.clone(), part.clone());
        let outcome = attempt(|| (self.write)(batch)).await;
        let mut given_up = None;
        let mut tray = lock(&self.tray);
        let Some(current) = tray.current.as_mut().filter(|one| Arc::ptr_eq(&one.all, &all)) else {
            // Somebody has taken the entries out meanwhile.
            return Ok(());
        };
        current.unanswered = false;
        let tries = self.options.tries_as_a_whole;
        let (over, answer) = match outcome {
            Ok(Ok(())) => {
                tray.totals.written += part.len() as u64;
                tray.totals.batches += 1;
                (tray.advance(part.len()), Ok(()))
            }
            Ok(Err(failure)) if failure.retry => {
                tray.note_failure(tries, None);
                (None, Err(failure))
            }
            Ok(Err(failure)) => {
                tray.totals.failed += 1;
                if part.len() > 1 {
                    tray.current.as_mut().map(Current::halve);
                    (None, Ok(()))
                } else {
                    tray.totals.given_up += 1;
                    given_up = Some(failure);
                    (tray.advance(1), Ok(()))
                }
            }
            Err(panic) => {
                tray.note_failure(tries, Some(panic.clone()));
                (None, Err(Failure::retryable(panic)))
            }
        };
        drop(tray);
        if let Some(failure) = given_up {
            let _ = quietly(|| (self.give_up)(&all[part.start], &failure));
        }
        drop_quietly((all, over.map(|one| one.all)));
        answer
    }

    fn is_closed(&self) -> bool {
        lock(&self.tray).closed || self.pools.are_finished()
    }
}

/// The least time after which a task is offered again that found no room.
const OFFER_AGAIN_AFTER_MIN: Duration = Duration::from_millis(1);

/// Runs a caller's future to its answer, or to its panic.
async fn attempt(start: impl FnOnce() -> Writing) -> Result<Outcome, String> {
    let mut writing = quietly(start)?;
    let answer = std::future::poll_fn(|cx| match quietly(|| writing.as_mut().poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(outcome)) => Poll::Ready(Ok(outcome)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await;
    drop_quietly(writing);
    answer
}

/// Waits for one of two signals.
async fn either(one: Pin<&mut Notified<'_>>, other: Pin<&mut Notified<'_>>) {
    let (mut one, mut other) = (one, other);
    std::future::poll_fn(|cx| {
        let heard = one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready();
        if heard { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A desk that nobody holds any more, with pools that nobody else may hold.
struct Orphan<T> {
    desk: Arc<Desk<T>>,
    _pools: Pools,
}

impl<T: Send + Sync + 'static> Alarm for Orphan<T> {
    fn ring(&self, now: Time) {
        self.desk.ring(now);
    }
}

impl<T: Send + Sync + 'static> Alarm for Desk<T> {
    fn ring(&self, now: Time) {
        let pools = self.pools.upgrade();
        let goes = {
            let mut tray = lock(&self.tray);
            if tray.looks_at.is_some_and(|at| at <= now) {
                tray.looks_at = None;
            }
            let due = self.is_due(&tray, pools.as_ref());
            if !tray.going && !due && !tray.waiting.is_empty() {
                let at = tray.oldest + self.options.age;
                self.look_at(&mut tray, at, pools.as_ref());
            }
            due
        };
        if goes {
            self.go();
        }
    }
}
