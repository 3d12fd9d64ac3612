//! The queues with consumers at one node.

use crate::wire::{Groups, Line, Piece};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Queues by the hash of their name, so that every node cuts the same pages. Of two queues with one
/// hash the later is kept: the other loses wakes, nothing else.
#[derive(Debug, Default)]
pub struct Table {
    lines: BTreeMap<u64, Kept>,
    digest: u64,
    number: u64,
}

#[derive(Debug)]
struct Kept {
    line: Line,
    number: u64,
    digest: u64,
}

/// A page, and the hash with which the next one begins.
#[derive(Debug, PartialEq)]
pub struct Page {
    /// The newest change when it was made.
    pub number: u64,
    /// The first hash it is about.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Everything in between.
    pub lines: Vec<Line>,
    /// Where the next begins; none after the last.
    pub next: Option<u64>,
}

impl Table {
    /// A sum over everything: two tables with the same one hold the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The newest change.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many queues have consumers.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// The consumers of a queue.
    pub fn groups(&self, hash: u64) -> Option<(&Arc<str>, &Groups)> {
        self.lines.get(&hash).map(|kept| (&kept.line.queue, &kept.line.groups))
    }

    /// The hashes of all queues.
    pub fn hashes(&self) -> impl Iterator<Item = u64> {
        self.lines.keys().copied()
    }

    /// Says what holds for a queue, as a change of its own. False if that is nothing new.
    pub fn set(&mut self, line: Line) -> bool {
        let number = self.number + 1;
        let is_new = self.put(line, number, usize::MAX).is_some();
        if is_new {
            self.number = number;
        }
        is_new
    }

    /// Takes over what another node says about some queues, at most `max` in all. Gives the hashes
    /// of those that changed.
    pub fn apply(&mut self, number: u64, lines: Vec<Line>, max: usize) -> Vec<u64> {
        self.number = self.number.max(number);
        lines.into_iter().filter_map(|line| self.put(line, number, max)).collect()
    }

    /// Takes over everything that another node says about a range of hashes.
    pub fn replace(
        &mut self,
        number: u64,
        range: std::ops::RangeInclusive<u64>,
        lines: Vec<Line>,
        max: usize,
    ) -> Vec<u64> {
        let mut named: Vec<u64> = lines.iter().map(Line::hash).collect();
        named.sort_unstable();
        let gone = |(hash, kept): (&u64, &Kept)| {
            let is_gone = kept.number <= number && named.binary_search(hash).is_err();
            is_gone.then(|| kept.line.queue.clone())
        };
        let gone: Vec<Arc<str>> = self.lines.range(range).filter_map(gone).collect();
        let gone = gone.into_iter().map(|queue| Line { queue, groups: Groups::default() });
        let all = gone.chain(lines).collect();
        self.apply(number, all, max)
    }

    /// What lies from the hash `first` on, as much as fits into `room` bytes.
    pub fn page(&self, first: u64, room: usize) -> Page {
        let mut used = 0;
        let mut lines = Vec::new();
        let mut next = None;
        for (hash, kept) in self.lines.range(first..) {
            used += kept.line.bytes();
            if used > room {
                next = Some(*hash);
                break;
            }
            lines.push(kept.line.clone());
        }
        let last = next.map_or(u64::MAX, |next| next - 1);
        Page { number: self.number, first, last, lines, next }
    }

    fn put(&mut self, line: Line, number: u64, max: usize) -> Option<u64> {
        let hash = line.hash();
        let before = self.lines.get(&hash);
        // What was said later may be heard earlier.
        if before.is_some_and(|kept| kept.number > number || kept.line == line) {
            return None;
        }
        if before.is_none() && (line.groups.is_none() || self.lines.len() >= max) {
            return None;
        }
        if let Some(before) = self.lines.remove(&hash) {
            self.digest = self.digest.wrapping_sub(before.digest);
        }
        if !line.groups.is_none() {
            let digest = line.digest();
            self.digest = self.digest.wrapping_add(digest);
            self.lines.insert(hash, Kept { line, number, digest });
        }
        Some(hash)
    }
}
