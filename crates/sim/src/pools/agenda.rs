//! What is to happen, by time.

use skep_policy::{Chance, SeededChance, Time};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Something that happens. Worker and timer change their minds, so each of their entries names the
/// decision (`epoch`) it belongs to; an entry of an earlier one is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The thread on a seat goes on.
    Worker { seat: u32, epoch: u32 },
    /// The timer wakes up.
    Timer { epoch: u32 },
    /// Whoever drives the world has something to do.
    Input(u32),
}

struct Entry {
    at: Time,
    order: u64,
    what: What,
}

/// Everything that is to happen. The first comes out first; the seed decides between those of the
/// same instant, because nothing else does in a real process.
#[derive(Default)]
pub(crate) struct Agenda {
    entries: BinaryHeap<Entry>,
    added: u32,
}

impl Agenda {
    pub fn add(&mut self, at: Time, what: What, chance: &mut SeededChance) {
        self.added = self.added.wrapping_add(1);
        let order = chance.bits() & !u64::from(u32::MAX) | u64::from(self.added);
        self.entries.push(Entry { at, order, what });
    }

    /// When the next thing happens.
    pub fn first_at(&self) -> Option<Time> {
        self.entries.peek().map(|entry| entry.at)
    }

    pub fn take(&mut self) -> Option<(Time, What)> {
        self.entries.pop().map(|entry| (entry.at, entry.what))
    }

    /// Forgets what the driver wanted to do.
    pub fn drop_inputs(&mut self) {
        self.entries.retain(|entry| !matches!(entry.what, What::Input(_)));
    }
}

impl Entry {
    fn key(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

impl Ord for Entry {
    /// The heap gives its greatest, so the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}
