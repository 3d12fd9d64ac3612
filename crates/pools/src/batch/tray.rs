//! The entries of a batcher: those that wait, and those on their way.

use super::BatchTotals;
use skep_policy::Time;
use std::collections::VecDeque;
use std::sync::Arc;

pub struct Tray<T> {
    pub waiting: VecDeque<T>,
    /// When the oldest of them came.
    pub oldest: Time,
    /// The entries that are on their way.
    pub current: Option<Current<T>>,
    /// A task is on its way to hand entries on.
    pub going: bool,
    /// When somebody will look whether entries are old enough.
    pub looks_at: Option<Time>,
    /// Of all entries that were ever taken, so many are to be handed on whatever their age.
    pub hurry: u64,
    /// Entries that somebody took out again.
    pub left: u64,
    /// The pools have stopped.
    pub closed: bool,
    /// Nobody collects entries any more.
    pub orphaned: bool,
    pub totals: BatchTotals,
}

/// A batch on its way. Its parts are written from the first to the last, and halved when they fail.
pub struct Current<T> {
    pub all: Arc<Vec<T>>,
    /// So many are written or given up.
    pub done: usize,
    /// So many of the others are written next.
    pub size: usize,
    /// The end of the part that failed last.
    pub suspect_until: usize,
    pub failures: u32,
    /// Attempts in a row that ended without an answer, and what was heard of the last one.
    pub crashes: u32,
    pub last_words: String,
    /// It was handed on, and nobody has said how that ended.
    pub unanswered: bool,
}

impl<T> Tray<T> {
    /// Nothing yet.
    pub fn new() -> Self {
        Tray {
            waiting: VecDeque::new(),
            oldest: Time::ZERO,
            current: None,
            going: false,
            looks_at: None,
            hurry: 0,
            left: 0,
            closed: false,
            orphaned: false,
            totals: BatchTotals::default(),
        }
    }

    /// Entries that wait, those on their way included.
    pub fn unfinished(&self) -> usize {
        self.waiting.len() + self.current.as_ref().map_or(0, Current::unfinished)
    }

    /// Entries that somebody has seen the end of.
    pub fn ended(&self) -> u64 {
        self.totals.written + self.totals.given_up + self.left
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }

    /// So many entries of the current batch have ended; returns the batch if that were all.
    pub fn advance(&mut self, count: usize) -> Option<Current<T>> {
        let current = self.current.as_mut()?;
        current.done += count;
        current.crashes = 0;
        current.size = match current.suspect_until.saturating_sub(current.done) {
            // The part that failed has been dealt with; the others may be all right.
            0 => current.unfinished(),
            // The first half of it was all right, so that the fault is in the other.
            suspects => (suspects / 2).max(1),
        };
        if current.size == 0 { self.current.take() } else { None }
    }

    /// An attempt failed for a reason that may pass, or was not answered.
    pub fn note_failure(&mut self, tries: u32, crash: Option<String>) {
        self.totals.failed += 1;
        let Some(current) = &mut self.current else { return };
        current.failures += 1;
        match crash {
            Some(last_words) => {
                current.crashes += 1;
                current.last_words = last_words;
            }
            None => current.crashes = 0,
        }
        if current.failures >= tries {
            current.halve();
        }
    }
}

impl<T> Current<T> {
    pub fn new(all: Vec<T>) -> Self {
        Current {
            size: all.len(),
            all: Arc::new(all),
            done: 0,
            suspect_until: 0,
            failures: 0,
            crashes: 0,
            last_words: String::new(),
            unanswered: false,
        }
    }

    pub fn unfinished(&self) -> usize {
        self.all.len() - self.done
    }

    pub fn halve(&mut self) {
        if self.size > 1 {
            self.suspect_until = self.done + self.size;
            self.size /= 2;
            self.crashes = 0;
        }
    }
}
