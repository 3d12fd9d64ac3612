//! Tasks that could not be done.

use crate::guard::{drop_quietly, quietly};
use crate::journal::wall_clock_ms;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::task::{Record, Task};
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_policy::pools::Tier;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a task was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Its last attempt failed.
    Failed,
    /// It said itself that trying again is no use.
    Permanent,
    /// Its last attempt did not end in time.
    TimedOut,
    /// Its last attempt panicked, or took its worker with it.
    Crashed,
    /// It did not start in time.
    Expired,
    /// The pools were stopped before it could be done.
    Shutdown,
}

impl Cause {
    /// The cause's name.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Failed => "failed",
            Cause::Permanent => "permanent",
            Cause::TimedOut => "timed-out",
            Cause::Crashed => "crashed",
            Cause::Expired => "expired",
            Cause::Shutdown => "shutdown",
        }
    }
}

/// A task that could not be done.
#[derive(Clone)]
pub struct Letter {
    /// Drawn by chance, so that it is unique also among the letters of other processes.
    pub id: u64,
    /// The id that the task had.
    pub task: u64,
    /// The tier it was submitted to.
    pub tier: Tier,
    /// Its kind.
    pub kind: &'static str,
    /// Why it was given up.
    pub cause: Cause,
    /// How often it was tried.
    pub attempts: u32,
    /// What went wrong, the first attempt first; not more than ten.
    pub errors: Vec<String>,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_at_ms: u64,
    /// When it was given up, in milliseconds since 1970.
    pub died_at_ms: u64,
    /// What is needed to build it anew.
    pub payload: Option<Arc<[u8]>>,
    /// It was a letter before, perhaps one that is still kept.
    again: bool,
    record: Record,
}

impl Letter {
    pub(crate) fn new(id: u64, tier: Tier, record: &Record, cause: Cause, now: Time) -> Self {
        let history = record.history();
        let submitted_at = history.as_ref().map_or(record.queued_at(), |one| one.submitted_at);
        let died_at_ms = wall_clock_ms();
        let age = now.since(submitted_at).as_millis() as u64;
        let history = history.unwrap_or_default();
        let again = history.letter.is_some();
        let id = history.letter.unwrap_or(id);
        record.set_letter(id);
        let wishes = record.wishes.as_ref();
        Letter {
            id,
            task: record.id(),
            tier,
            kind: record.kind,
            cause,
            attempts: history.failed_attempts,
            errors: history.errors,
            submitted_at_ms: died_at_ms.saturating_sub(age),
            died_at_ms,
            payload: wishes.and_then(|wishes| wishes.payload.clone()),
            again,
            record: record.clone(),
        }
    }

    /// The task, to be tried again.
    pub(crate) fn task(self) -> Task {
        self.record.forget_failures();
        Task { record: self.record }
    }
}

impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letter")
            .field("id", &self.id)
            .field("tier", &self.tier)
            .field("kind", &self.kind)
            .field("cause", &self.cause)
            .field("attempts", &self.attempts)
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}

/// Somebody who keeps dead letters beyond the life of the process. Called by workers, so it must
/// not wait for anything. A panic is nobody's but its own.
pub trait LetterBook: Send + Sync {
    /// A task was given up, perhaps again.
    fn died(&self, letter: &Letter);

    /// A task that had been given up was done after all.
    fn done_after_all(&self, letter: u64);
}

/// The dead letters of all tiers, bounded.
pub struct Letters {
    kept: [Mutex<VecDeque<Letter>>; 4],
    kept_max: usize,
    forgotten: AtomicU64,
    book: Mutex<Option<Arc<dyn LetterBook>>>,
}

impl Letters {
    pub(crate) fn new(kept_max: usize) -> Self {
        Letters {
            kept: std::array::from_fn(|_| Mutex::new(VecDeque::new())),
            kept_max,
            forgotten: AtomicU64::new(0),
            book: Mutex::new(None),
        }
    }

    /// Sets who keeps letters for longer.
    pub fn keep_in(&self, book: Option<Arc<dyn LetterBook>>) {
        let old = std::mem::replace(&mut *lock(&self.book), book);
        drop(old);
    }

    fn book(&self) -> Option<Arc<dyn LetterBook>> {
        lock(&self.book).clone()
    }

    pub(crate) fn bury(&self, letter: Letter) {
        if let Some(book) = self.book() {
            let _ = quietly(|| book.died(&letter));
        }
        let earlier = if letter.again { self.take(letter.id) } else { None };
        drop_quietly(earlier);
        let mut kept = lock(&self.kept[letter.tier.index()]);
        kept.push_back(letter);
        self.forget(kept);
    }

    /// Lets the oldest ones go, if there are too many.
    fn forget(&self, mut kept: MutexGuard<'_, VecDeque<Letter>>) {
        let too_many = kept.len().saturating_sub(self.kept_max);
        if too_many > 0 {
            let oldest: Vec<Letter> = kept.drain(..too_many).collect();
            drop(kept);
            self.forgotten.fetch_add(too_many as u64, Ordering::Relaxed);
            for letter in oldest {
                drop_quietly(letter);
            }
        }
    }

    pub(crate) fn done_after_all(&self, id: u64) {
        if let Some(book) = self.book() {
            let _ = quietly(|| book.done_after_all(id));
        }
    }

    /// The letters of a tier, the oldest first.
    pub fn of(&self, tier: Tier) -> Vec<Letter> {
        lock(&self.kept[tier.index()]).iter().cloned().collect()
    }

    /// How many letters of a tier there are.
    pub fn len(&self, tier: Tier) -> usize {
        lock(&self.kept[tier.index()]).len()
    }

    /// Takes a letter out.
    pub fn take(&self, id: u64) -> Option<Letter> {
        self.kept.iter().find_map(|kept| {
            let mut kept = lock(kept);
            let place = kept.iter().position(|letter| letter.id == id)?;
            kept.remove(place)
        })
    }

    /// Puts a letter back that could not be submitted.
    pub(crate) fn put_back(&self, letter: Letter) {
        let mut kept = lock(&self.kept[letter.tier.index()]);
        let place = kept.partition_point(|other| other.died_at_ms < letter.died_at_ms);
        kept.insert(place, letter);
        self.forget(kept);
    }

    /// Letters that went because there were too many.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }
}
