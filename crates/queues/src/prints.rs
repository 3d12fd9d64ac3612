//! Which transaction ids a partition has seen lately.
//!
//! Every segment's row carries the prints of its messages, eight bytes each, so what is here can be
//! forgotten at any time and read again. That bounds the memory: partitions that were not pushed to
//! for long are forgotten first. One partition is bounded too: it knows at least its last
//! [`Prints::messages_max`] ids, as long as they are within their window.
//!
//! A print is only a hint: two ids may share one, so a find has to be checked against the message.

use crate::ids::PartitionId;
use skep_policy::Time;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

/// What an entry weighs beside its prints.
const ENTRY_BYTES: usize = 200;
/// What a print weighs in a map that is half full.
const PRINT_BYTES: usize = 32;

/// The prints of many partitions.
#[derive(Debug)]
pub struct Prints {
    bytes_max: usize,
    messages_max: usize,
    /// Looked at since the two were last exchanged.
    warm: HashMap<PartitionId, Entry>,
    /// Not looked at since then: forgotten at the next exchange.
    cool: HashMap<PartitionId, Entry>,
    warm_bytes: usize,
}

#[derive(Debug, Default)]
struct Entry {
    /// Numbers up to here are known.
    tail: u64,
    recent: Map,
    recent_since: Time,
    older: Map,
}

type Map = HashMap<u64, u64, BuildHasherDefault<AsItIs>>;

/// Prints are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Prints {
    /// Uses `bytes_max` of memory at most, and knows `messages_max` ids of a partition at least.
    pub fn new(bytes_max: usize, messages_max: usize) -> Self {
        let (warm, cool) = (HashMap::new(), HashMap::new());
        Prints { bytes_max, messages_max, warm, cool, warm_bytes: 0 }
    }

    /// How many ids of a partition are worth reading from the store.
    pub fn messages_max(&self) -> usize {
        self.messages_max
    }

    /// Up to which number the partition's ids are known; what follows has to be read and added
    /// before the next find. `None` if nothing is known, not even that there is nothing.
    pub fn known_through(&mut self, partition: PartitionId) -> Option<u64> {
        self.entry(partition).map(|entry| entry.tail)
    }

    /// Says that the partition has nothing up to `tail` that is worth knowing.
    pub fn begin(&mut self, partition: PartitionId, tail: u64) {
        self.forget(partition);
        self.make_room(ENTRY_BYTES);
        self.warm.insert(partition, Entry { tail, ..Entry::default() });
        self.warm_bytes += ENTRY_BYTES;
    }

    /// The last number that may have this print.
    pub fn find(&mut self, partition: PartitionId, print: u64) -> Option<u64> {
        let entry = self.entry(partition)?;
        entry.recent.get(&print).or_else(|| entry.older.get(&print)).copied()
    }

    /// Adds messages pushed at `at` with rising numbers from `first`, which must follow what is
    /// known. `window` is how long the queue wants them to be known.
    pub fn add(
        &mut self,
        partition: PartitionId,
        first: u64,
        prints: impl ExactSizeIterator<Item = u64>,
        at: Time,
        window: Duration,
    ) {
        let weight = prints.len() * PRINT_BYTES;
        let messages_max = self.messages_max;
        self.make_room(weight);
        let Some(entry) = self.entry(partition) else { return };
        let mut freed = 0;
        if entry.recent.len() >= messages_max || at > entry.recent_since + window {
            freed = entry.older.len() * PRINT_BYTES;
            // If even the newest of them is past its window, they need not be kept as the older.
            entry.older = std::mem::take(&mut entry.recent);
            entry.recent_since = at;
        }
        let count = prints.len() as u64;
        entry.recent.extend(prints.zip(first..));
        entry.tail = entry.tail.max(first + count - u64::from(count > 0));
        self.warm_bytes = (self.warm_bytes + weight).saturating_sub(freed);
    }

    /// Forgets one partition.
    pub fn forget(&mut self, partition: PartitionId) {
        if let Some(entry) = self.warm.remove(&partition) {
            self.warm_bytes = self.warm_bytes.saturating_sub(entry.weight());
        }
        self.cool.remove(&partition);
    }

    /// Forgets everything, because what was added may never have been kept.
    pub fn clear(&mut self) {
        self.warm.clear();
        self.cool.clear();
        self.warm_bytes = 0;
    }

    fn entry(&mut self, partition: PartitionId) -> Option<&mut Entry> {
        if let Some(entry) = self.cool.remove(&partition) {
            self.make_room(entry.weight());
            self.warm_bytes += entry.weight();
            self.warm.insert(partition, entry);
        }
        self.warm.get_mut(&partition)
    }

    /// Half of the memory is for what was looked at lately; when that is full it becomes the other
    /// half, which is forgotten. So nothing has to be kept in the order of its use.
    fn make_room(&mut self, bytes: usize) {
        if self.warm_bytes + bytes > self.bytes_max / 2 && !self.warm.is_empty() {
            self.cool = std::mem::take(&mut self.warm);
            self.warm_bytes = 0;
        }
    }
}

impl Entry {
    fn weight(&self) -> usize {
        ENTRY_BYTES + (self.recent.len() + self.older.len()) * PRINT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(100);
    const ONE: PartitionId = PartitionId(1);

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    #[test]
    fn what_was_added_is_found_and_nothing_else() {
        let mut prints = Prints::new(1 << 20, 1_000);
        assert_eq!(prints.known_through(ONE), None);
        prints.begin(ONE, 4);
        prints.add(ONE, 5, [50, 60].into_iter(), at(1), WINDOW);
        assert_eq!(prints.known_through(ONE), Some(6));
        assert_eq!(prints.find(ONE, 50), Some(5));
        assert_eq!(prints.find(ONE, 60), Some(6));
        assert_eq!(prints.find(ONE, 70), None);
        assert_eq!(prints.find(PartitionId(2), 50), None);
    }

    #[test]
    fn an_id_is_known_for_its_whole_window_and_for_two_at_most() {
        let mut prints = Prints::new(1 << 20, 1_000);
        prints.begin(ONE, 0);
        for second in 0..400 {
            prints.add(ONE, second + 1, [second].into_iter(), at(second), WINDOW);
            assert!(prints.find(ONE, second.saturating_sub(99)).is_some(), "{second}");
        }
        assert_eq!(prints.find(ONE, 400 - 250), None);
    }

    #[test]
    fn a_partition_knows_its_last_ids_and_its_memory_is_bounded() {
        let mut prints = Prints::new(1 << 30, 1_000);
        prints.begin(ONE, 0);
        for number in 1..=100_000_u64 {
            prints.add(ONE, number, [number].into_iter(), at(1), WINDOW);
        }
        assert!((99_001..=100_000).all(|number| prints.find(ONE, number) == Some(number)));
        assert!(prints.warm_bytes <= ENTRY_BYTES + 2_000 * PRINT_BYTES);
    }

    #[test]
    fn partitions_that_were_not_looked_at_are_forgotten_first() {
        let mut prints = Prints::new(100 * (ENTRY_BYTES + PRINT_BYTES), 1_000);
        for number in 0..10_000 {
            let partition = PartitionId(number);
            prints.begin(partition, 0);
            prints.add(partition, 1, [7].into_iter(), at(1), WINDOW);
            assert_eq!(prints.find(PartitionId(0), 7), Some(1), "it is looked at all the time");
            assert!(prints.warm.len() + prints.cool.len() <= 101);
        }
        assert_eq!(prints.known_through(PartitionId(5_000)), None);
        prints.clear();
        assert_eq!(prints.known_through(PartitionId(0)), None);
    }
}
