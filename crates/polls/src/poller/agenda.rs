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

/// Void entries that may stay in any case.
const VOID_MAX: usize = 256;

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

    /// Forgets the entries that are not `alive`, if there are many more than `expected`. Otherwise
    /// those of endpoints with long intervals would stay until their time, however often such an
    /// endpoint is changed or given away. Rare enough to cost little for each entry.
    pub(super) fn compact(&mut self, expected: usize, alive: impl Fn(&Entry) -> bool) {
        if self.entries.len() > 2 * expected + VOID_MAX {
            self.entries.retain(|Reverse(entry)| alive(entry));
            self.entries.shrink_to(2 * expected + VOID_MAX);
        }
    }

    /// The entries of one endpoint.
    #[cfg(test)]
    pub(super) fn clone_of(&self, key: &Key) -> Vec<Entry> {
        let entries = self.entries.iter().map(|Reverse(entry)| entry);
        entries.filter(|entry| entry.key == *key).cloned().collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
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

    #[test]
    fn void_entries_are_forgotten_once_they_are_many_and_the_others_keep_their_order() {
        let mut agenda = Agenda::default();
        let most = 2 * 3 + VOID_MAX as u64;
        for turn in 0..most {
            let at = 1_000 - turn as i64;
            agenda.add(at, at, "a".into(), turn);
        }
        let newest = |entry: &Entry| entry.turn + 3 >= most;
        agenda.compact(3, newest);
        assert_eq!(agenda.len() as u64, most, "it is not worth it yet");
        agenda.add(5_000, 5_000, "a".into(), most);
        agenda.compact(3, newest);
        let left: Vec<u64> =
            std::iter::from_fn(|| agenda.take_due(9_000)).map(|e| e.turn).collect();
        assert_eq!(left, [most - 1, most - 2, most - 3, most]);
    }
}
