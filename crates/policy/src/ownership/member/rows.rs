//! A node's copy of the rows, and how much each session owns by it.

use super::super::protocol::Key;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;

/// A row as last heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    pub session: u64,
    pub counter: u64,
    pub due: i64,
}

/// How many keys of each kind.
pub type Loads = BTreeMap<String, u64>;

/// The rows by key. How much each session owns is counted along: those who look on ask every
/// second, and there may be a hundred thousand rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    by_key: BTreeMap<Key, Owned>,
    loads: BTreeMap<u64, Loads>,
}

impl Rows {
    pub fn get(&self, key: &str) -> Option<&Owned> {
        self.by_key.get(key)
    }

    pub fn insert(&mut self, key: &Key, row: Owned) -> Option<Owned> {
        let before = self.by_key.insert(key.clone(), row);
        self.uncount(key, before);
        if row.session != 0 {
            let loads = self.loads.entry(row.session).or_default();
            match loads.get_mut(kind_of(key)) {
                Some(count) => *count += 1,
                None => drop(loads.insert(kind_of(key).to_owned(), 1)),
            }
        }
        before
    }

    pub fn remove(&mut self, key: &Key) -> Option<Owned> {
        let before = self.by_key.remove(key);
        self.uncount(key, before);
        before
    }

    pub fn clear(&mut self) {
        self.by_key.clear();
        self.loads.clear();
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Owned)> {
        self.by_key.iter()
    }

    /// The rows from a key on, in the order of their keys.
    pub fn from(&self, first: &Key) -> Range<'_, Key, Owned> {
        self.by_key.range(first.clone()..)
    }

    /// What a session owns.
    pub fn loads_of(&self, session: u64) -> Option<&Loads> {
        self.loads.get(&session)
    }

    fn uncount(&mut self, key: &Key, before: Option<Owned>) {
        let Some(loads) = before.and_then(|row| self.loads.get_mut(&row.session)) else { return };
        if let Some(count) = loads.get_mut(kind_of(key)) {
            *count -= 1;
        }
        loads.retain(|_, count| *count > 0);
        if let Some(row) = before.filter(|_| loads.is_empty()) {
            self.loads.remove(&row.session);
        }
    }
}

/// What comes before the slash.
pub(super) fn kind_of(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_counted_along_is_what_is_there(
            steps in prop::collection::vec((0..12_u8, prop::option::of(0..4_u64)), 0..200),
        ) {
            let mut rows = Rows::default();
            for (name, session) in steps {
                let kind = ["poll", "queue"][usize::from(name % 2)];
                let key: Key = format!("{kind}/{name}").into();
                match session {
                    Some(session) => drop(rows.insert(&key, Owned { session, counter: 1, due: 0 })),
                    None => drop(rows.remove(&key)),
                }
            }
            for session in 1..4 {
                let mut expected = Loads::new();
                for (key, _) in rows.iter().filter(|(_, row)| row.session == session) {
                    *expected.entry(kind_of(key).to_owned()).or_default() += 1;
                }
                prop_assert_eq!(rows.loads_of(session).cloned().unwrap_or_default(), expected);
            }
            prop_assert!(rows.loads_of(0).is_none());
        }
    }
}
