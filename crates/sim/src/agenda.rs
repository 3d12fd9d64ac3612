//! What is to happen, by time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

struct Entry<At, What> {
    at: At,
    order: u64,
    what: What,
}

/// Everything that is to happen. The first comes out first, and of the same instant the one with
/// the lower order.
pub(crate) struct Agenda<At, What> {
    entries: BinaryHeap<Entry<At, What>>,
}

impl<At: Ord + Copy, What> Default for Agenda<At, What> {
    fn default() -> Self {
        Agenda { entries: BinaryHeap::new() }
    }
}

impl<At: Ord + Copy, What> Agenda<At, What> {
    pub fn add(&mut self, at: At, order: u64, what: What) {
        self.entries.push(Entry { at, order, what });
    }

    /// When the next thing happens.
    pub fn first_at(&self) -> Option<At> {
        self.entries.peek().map(|entry| entry.at)
    }

    pub fn take(&mut self) -> Option<(At, What)> {
        self.entries.pop().map(|entry| (entry.at, entry.what))
    }

    /// Forgets what does not have to be kept.
    pub fn retain(&mut self, keep: impl Fn(&What) -> bool) {
        self.entries.retain(|entry| keep(&entry.what));
    }
}

impl<At: Ord + Copy, What> Entry<At, What> {
    fn key(&self) -> (At, u64) {
        (self.at, self.order)
    }
}

impl<At: Ord + Copy, What> Ord for Entry<At, What> {
    /// The heap gives its greatest, so the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<At: Ord + Copy, What> PartialOrd for Entry<At, What> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<At: Ord + Copy, What> PartialEq for Entry<At, What> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<At: Ord + Copy, What> Eq for Entry<At, What> {}
