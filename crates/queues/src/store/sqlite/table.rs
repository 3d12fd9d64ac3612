//! Rows in memory: those that a batch changed until they are written, and those used lately.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Rows by their key. Between batches it forgets what was not used lately.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    /// Used since the two were last exchanged.
    warm: HashMap<K, Entry<V>>,
    /// Not used since then: forgotten at the next exchange.
    cool: HashMap<K, Entry<V>>,
    /// Keys of rows that were changed; some may have been put back since.
    changed: Vec<K>,
}

/// A row and whether it has to be written.
#[derive(Clone, Debug)]
pub(super) struct Entry<V> {
    pub(super) value: V,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Clean,
    Changed,
    New,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { warm: HashMap::new(), cool: HashMap::new(), changed: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Table<K, V> {
    /// The row, if it is here.
    pub(super) fn get<Q>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.warm(key).map(|entry| &entry.value)
    }

    /// The row as it is, to put it back with [`Table::restore`].
    pub(super) fn entry(&mut self, key: &K) -> Option<Entry<V>> {
        self.warm(key).cloned()
    }

    /// The row, which will be written.
    pub(super) fn change(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.warm(key)?;
        let first = entry.state == State::Clean;
        if first {
            entry.state = State::Changed;
            self.changed.push(key.clone());
        }
        self.warm.get_mut(key).map(|entry| &mut entry.value)
    }

    /// Keeps a row that is in the database.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.warm.insert(key, Entry { value, state: State::Clean });
    }

    /// Keeps a row that is to be inserted.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.changed.push(key.clone());
        self.warm.insert(key, Entry { value, state: State::New });
    }

    /// Makes the row what it was.
    pub(super) fn restore(&mut self, key: K, before: Option<Entry<V>>) {
        match before {
            Some(entry) => drop(self.warm.insert(key, entry)),
            None => self.remove(&key),
        }
    }

    /// Forgets the row.
    pub(super) fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.warm.remove(key);
        self.cool.remove(key);
    }

    /// What has to be written now, and whether it is new. It counts as written from here on.
    pub(super) fn take_changed(&mut self) -> Vec<(K, V, bool)> {
        let mut rows = Vec::with_capacity(self.changed.len());
        for key in self.changed.drain(..) {
            let Some(entry) = self.warm.get_mut(&key) else { continue };
            let state = std::mem::replace(&mut entry.state, State::Clean);
            if state != State::Clean {
                rows.push((key, entry.value.clone(), state == State::New));
            }
        }
        rows
    }

    /// Rows that are to be inserted.
    pub(super) fn new_rows(&self) -> impl Iterator<Item = &V> {
        let entries = self.changed.iter().filter_map(|key| self.warm.get(key));
        entries.filter(|entry| entry.state == State::New).map(|entry| &entry.value)
    }

    /// Forgets what was not used lately, if there are more than `half` others. Only between
    /// batches.
    pub(super) fn age(&mut self, half: usize) {
        if self.warm.len() > half {
            self.cool = std::mem::take(&mut self.warm);
        }
    }

    fn warm<Q>(&mut self, key: &Q) -> Option<&mut Entry<V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if !self.cool.is_empty()
            && let Some((key, entry)) = self.cool.remove_entry(key)
        {
            self.warm.insert(key, entry);
        }
        self.warm.get_mut(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_rows_are_written_once_and_rows_put_back_are_not() {
        let mut table = Table::default();
        table.put(1, "one");
        table.put(2, "two");
        let before = table.entry(&2);
        *table.change(&1).unwrap() = "ONE";
        *table.change(&1).unwrap() = "One";
        *table.change(&2).unwrap() = "TWO";
        table.insert(3, "three");
        table.insert(4, "four");
        table.restore(2, before);
        table.restore(4, None);
        assert_eq!(table.take_changed(), [(1, "One", false), (3, "three", true)]);
        assert_eq!(table.take_changed(), []);
        assert_eq!(table.get(&2), Some(&"two"));
        assert_eq!(table.get(&4), None);
    }

    #[test]
    fn rows_that_are_not_used_are_forgotten() {
        let mut table = Table::default();
        for number in 0..1_000 {
            table.put(number, ());
            assert!(table.get(&0).is_some(), "it is used all the time");
            table.age(10);
            assert!(table.warm.len() + table.cool.len() <= 22);
        }
        assert!(table.get(&500).is_none());
    }
}
