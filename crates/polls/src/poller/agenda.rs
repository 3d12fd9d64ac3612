//! What is due when.

use skep_policy::ownership::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An entry: a poll of an endpoint for a slot. It is void if the endpoint is in another turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) at_ms: i64,
    pub(super) slot: i64,
    pub(super) turn: u64,
    pub(super) key: Key,
}

/// Entries by their time.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
}

impl Agenda {
    pub(super) fn add(&mut self, at_ms: i64, slot: i64, key: Key, turn: u64) {
        self.entries.push(Reverse(Entry { at_ms, slot, turn, key }));
    }

    /// The next entry whose time has come.
    pub(super) fn take_due(&mut self, now_ms: i64) -> Option<Entry> {
        if self.next_at()? > now_ms {
            return None;
        }
        self.entries.pop().map(|Reverse(entry)| entry)
    }

    /// When the next entry is due.
    pub(super) fn next_at(&self) -> Option<i64> {
        self.entries.peek().map(|Reverse(entry)| entry.at_ms)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_the_order_of_their_times_and_not_before() {
        let mut agenda = Agenda::default();
        for (at, name) in [(30, "c"), (10, "a"), (20, "b")] {
            agenda.add(at, at, name.into(), 1);
        }
        assert_eq!(agenda.take_due(9), None);
        assert_eq!(agenda.next_at(), Some(10));
        let due: Vec<i64> = std::iter::from_fn(|| agenda.take_due(20)).map(|e| e.at_ms).collect();
        assert_eq!(due, [10, 20]);
        agenda.clear();
        assert_eq!(agenda.next_at(), None);
    }
}
