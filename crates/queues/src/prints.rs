//! Which transaction ids have come lately.
//!
//! Every segment's row carries the prints of its messages, eight bytes each, so what is here can be
//! forgotten at any time and read again. Two things are kept: up to which number each partition is
//! known, and the prints of all partitions together, in generations. When the memory is full the
//! oldest generation is forgotten for good and [`Prints::floor`] moves on, so that nothing older is
//! read again: a bounded memory that had to be refilled from the store all the time would cost a
//! busy server more than the messages themselves. So an id is known again for its queue's window,
//! as long as no more than [`Prints::messages_max`] messages have come since.
//!
//! A print is only a hint: two ids may share one, and a message may never have been kept, so a find
//! has to be checked against the message.

use crate::ids::PartitionId;
use skep_policy::Time;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

/// What a print weighs, on average, in a map that grows by doubling.
const PRINT_BYTES: usize = 32;
/// What knowing a partition weighs.
const PARTITION_BYTES: usize = 32;
/// Generations that the memory is enough for.
const GENERATIONS: usize = 4;

/// The prints of many partitions.
#[derive(Debug)]
pub struct Prints {
    generation_max: usize,
    partitions_half: usize,
    /// The newest last; never empty.
    generations: VecDeque<Generation>,
    /// The longest window that a queue asked for.
    window: Duration,
    floor: Time,
    /// Up to which number partitions are known; looked at since the two were last exchanged.
    warm: HashMap<PartitionId, u64>,
    /// Not looked at since then: forgotten at the next exchange.
    cool: HashMap<PartitionId, u64>,
}

#[derive(Debug, Default)]
struct Generation {
    numbers: HashMap<u64, u64, BuildHasherDefault<AsItIs>>,
    /// When its first message was pushed, and its last.
    since: Time,
    until: Time,
}

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
    /// Uses about `bytes_max` of memory at most, a quarter of it for partitions.
    pub fn new(bytes_max: usize) -> Self {
        let fitting = bytes_max / 4 * 3 / PRINT_BYTES;
        Prints {
            generation_max: (fitting / GENERATIONS).max(1),
            partitions_half: (bytes_max / 4 / PARTITION_BYTES / 2).max(1),
            generations: VecDeque::from([Generation::default()]),
            window: Duration::ZERO,
            floor: Time::ZERO,
            warm: HashMap::new(),
            cool: HashMap::new(),
        }
    }

    /// How many messages are known at least, if so many came within their window; and how many of
    /// a partition are worth reading from the store.
    pub fn messages_max(&self) -> usize {
        self.generation_max * (GENERATIONS - 1)
    }

    /// What was pushed before this is not worth reading from the store: it would only push out what
    /// is newer.
    pub fn floor(&self) -> Time {
        self.floor
    }

    /// Up to which number the partition's ids are known; what follows has to be read and added
    /// before the next find. `None` if nothing is known, not even that there is nothing.
    pub fn known_through(&mut self, partition: PartitionId) -> Option<u64> {
        if let Some(known) = self.warm.get(&partition) {
            return Some(*known);
        }
        let known = self.cool.remove(&partition)?;
        self.know(partition, known);
        Some(known)
    }

    /// Says that the partition has nothing up to `tail` that is not here and worth knowing.
    pub fn begin(&mut self, partition: PartitionId, tail: u64) {
        self.know(partition, tail);
    }

    /// The last number that may have this print.
    pub fn find(&self, partition: PartitionId, print: u64) -> Option<u64> {
        let key = key_of(partition, print);
        self.generations.iter().rev().find_map(|generation| generation.numbers.get(&key)).copied()
    }

    /// Adds messages pushed at `at` with rising numbers from `first`, which must follow what is
    /// known of the partition, if anything is. `window` is how long the queue wants them to be
    /// known.
    pub fn add(
        &mut self,
        partition: PartitionId,
        first: u64,
        prints: impl ExactSizeIterator<Item = u64>,
        at: Time,
        window: Duration,
    ) {
        let count = prints.len() as u64;
        if count == 0 {
            return;
        }
        if self.known_through(partition).is_some() {
            self.know(partition, first + count - 1);
        }
        self.window = self.window.max(window);
        self.turn(at);
        if let Some(newest) = self.generations.back_mut() {
            newest.until = newest.until.max(at);
            let keys = prints.map(|print| key_of(partition, print));
            newest.numbers.extend(keys.zip(first..));
        }
    }

    /// Forgets how far one partition is known.
    pub fn forget(&mut self, partition: PartitionId) {
        self.warm.remove(&partition);
        self.cool.remove(&partition);
    }

    /// Forgets one message, because it was taken out and its id may come again.
    pub fn lose(&mut self, partition: PartitionId, print: u64, number: u64) {
        let key = key_of(partition, print);
        for generation in &mut self.generations {
            if generation.numbers.get(&key) == Some(&number) {
                generation.numbers.remove(&key);
            }
        }
    }

    /// Forgets everything, because what was added may never have been kept.
    pub fn clear(&mut self) {
        self.generations = VecDeque::from([Generation::default()]);
        self.floor = Time::ZERO;
        self.warm.clear();
        self.cool.clear();
    }

    fn know(&mut self, partition: PartitionId, tail: u64) {
        if self.warm.len() >= self.partitions_half && !self.warm.contains_key(&partition) {
            self.cool = std::mem::take(&mut self.warm);
        }
        self.warm.insert(partition, tail);
    }

    /// Begins a new generation if the newest is full or has been the newest for long, and forgets
    /// the oldest if the memory is full or its windows are over.
    fn turn(&mut self, at: Time) {
        let Some(newest) = self.generations.back_mut() else { return };
        if newest.numbers.is_empty() {
            newest.since = at;
        }
        let full = newest.numbers.len() >= self.generation_max;
        let long = at.since(newest.since) > self.window / GENERATIONS as u32;
        if !(full || long) {
            return;
        }
        // The next one is about as large; growing it step by step would hold pushes up.
        let room = newest.numbers.len();
        let mut next = Generation { since: at, until: at, ..Generation::default() };
        next.numbers.reserve(room);
        self.generations.push_back(next);
        while let Some(oldest) = self.generations.front() {
            let over = at.since(oldest.until) > self.window;
            let count: usize = self.generations.iter().map(|one| one.numbers.len()).sum();
            if self.generations.len() < 2
                || !(over || count > self.generation_max * (GENERATIONS - 1))
            {
                return;
            }
            if let Some(gone) = self.generations.pop_front() {
                self.floor = self.floor.max(gone.until);
            }
        }
    }
}

/// Prints of all partitions are together, so the partition is part of the key.
fn key_of(partition: PartitionId, print: u64) -> u64 {
    let number = u64::try_from(partition.0).unwrap_or(0);
    print ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
        let mut prints = Prints::new(1 << 20);
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
    fn an_id_is_known_for_its_whole_window_and_not_for_long_after() {
        let mut prints = Prints::new(1 << 20);
        prints.begin(ONE, 0);
        for second in 0..400 {
            prints.add(ONE, second + 1, [second].into_iter(), at(second), WINDOW);
            assert!(prints.find(ONE, second.saturating_sub(99)).is_some(), "{second}");
        }
        assert_eq!(prints.find(ONE, 400 - 250), None);
    }

    #[test]
    fn the_last_ids_are_known_whatever_their_partition_and_the_memory_is_bounded() {
        let mut prints = Prints::new(4_000 * PRINT_BYTES / 3 * 4 + 16);
        let partition = |number: u64| PartitionId(i64::try_from(number % 7).unwrap());
        for number in 1..=100_000_u64 {
            prints.add(partition(number), number, [number].into_iter(), at(number), WINDOW * 9_999);
        }
        let known = |number: &u64| prints.find(partition(*number), *number) == Some(*number);
        let least = prints.messages_max() as u64;
        assert_eq!(least, 3_000);
        assert!((100_001 - least..=100_000).all(|number| known(&number)));
        let count: usize = prints.generations.iter().map(|one| one.numbers.len()).sum();
        assert!(count <= 4_001, "{count}");
        let floor = prints.floor();
        assert!(
            (at(95_999)..=at(97_001)).contains(&floor),
            "what is older is not read again: {floor}"
        );
    }

    #[test]
    fn partitions_that_were_not_looked_at_are_forgotten_first() {
        let mut prints = Prints::new(800 * PARTITION_BYTES);
        for number in 0..10_000 {
            prints.begin(PartitionId(number), 1);
            assert_eq!(
                prints.known_through(PartitionId(0)),
                Some(1),
                "it is looked at all the time"
            );
            assert!(prints.warm.len() + prints.cool.len() <= 201);
        }
        assert_eq!(prints.known_through(PartitionId(5_000)), None);
        prints.clear();
        assert_eq!(prints.known_through(PartitionId(0)), None);
    }
}
