//! What comes in lists: queues with consumers, wakes, moves.

use super::bytes::{self, Malformed, Reader};
use super::{GROUPS_MAX, KEY_MAX, NAME_MAX};
use serde::Serialize;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// The consumer groups of a queue at one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// How many there are; none means that the queue has no consumers there.
    pub total: u32,
    /// Hashes of the first [`GROUPS_MAX`] of them, in order. They tell which groups of two nodes
    /// are the same.
    pub prints: Arc<[u32]>,
}

/// A queue, and its consumer groups at the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The queue; empty stands for all of them.
    pub queue: Arc<str>,
    /// Its groups.
    pub groups: Groups,
}

/// A key that has moved to another node. What it means is the business of who sends and hears it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveRecord {
    /// The hash of the key.
    pub key_hash: u64,
    /// The key, for people.
    pub key: Arc<str>,
    /// The node that it has left; may be empty.
    pub from: Arc<str>,
    /// The node that has it now.
    pub node: Arc<str>,
    /// The node that decided it.
    pub by: Arc<str>,
    /// The number of the move among those of the key.
    pub version: u64,
    /// When, on the clock of who decided.
    pub at: u64,
    /// When the key was last used, as far as the sender knows, on the same clock.
    pub used: u64,
    /// What kind of move.
    pub kind: u8,
    /// The load that it fled from, 0 to 1. This and the next two are told to four digits.
    pub load: f64,
    /// The load where it went to.
    pub best: f64,
    /// By how much that is better.
    pub improvement: f64,
}

/// One of a list.
pub trait Piece {
    /// How many bytes it takes.
    fn bytes(&self) -> usize;
    /// Writes it.
    fn put(&self, out: &mut Vec<u8>);
}

/// The list in pieces that fit into `room` bytes each. One that never fits is left out.
pub fn split<T: Piece>(list: &[T], room: usize) -> impl Iterator<Item = &[T]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        while rest.first().is_some_and(|first| first.bytes() > room) {
            rest = &rest[1..];
        }
        let mut used = 0;
        let fits = |piece: &&T| {
            used += piece.bytes();
            used <= room
        };
        let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
        rest = later;
        if now.is_empty() { None } else { Some(now) }
    })
}

pub fn put_list<T: Piece>(list: &[T], out: &mut Vec<u8>) {
    let count = u16::try_from(list.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    list.iter().take(usize::from(count)).for_each(|piece| piece.put(out));
}

impl Groups {
    /// The groups with these hashes.
    pub fn of(mut prints: Vec<u32>) -> Self {
        prints.sort_unstable();
        prints.dedup();
        let total = u32::try_from(prints.len()).unwrap_or(u32::MAX);
        prints.truncate(GROUPS_MAX);
        Groups { total, prints: prints.into() }
    }

    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.total == 0
    }
}

impl Line {
    /// The hash of the queue.
    pub fn hash(&self) -> u64 {
        xxh3_64(self.queue.as_bytes())
    }

    /// What this line adds to a node's digest.
    pub fn digest(&self) -> u64 {
        let mut bytes = Vec::with_capacity(self.bytes());
        self.put(&mut bytes);
        xxh3_64(&bytes)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let queue = reader.queue()?.into();
        let total = reader.u32()?;
        let count = usize::from(reader.u8()?);
        if count != GROUPS_MAX.min(total as usize) {
            return Err(Malformed);
        }
        let prints = (0..count).map(|_| reader.u32()).collect::<Result<Vec<_>, _>>()?;
        if !prints.is_sorted_by(|a, b| a < b) {
            return Err(Malformed);
        }
        Ok(Line { queue, groups: Groups { total, prints: prints.into() } })
    }
}

impl Piece for Line {
    fn bytes(&self) -> usize {
        2 + self.queue.len() + 4 + 1 + 4 * self.groups.prints.len()
    }

    fn put(&self, out: &mut Vec<u8>) {
        bytes::put_long(&self.queue, out);
        out.extend_from_slice(&self.groups.total.to_be_bytes());
        out.push(self.groups.prints.len() as u8);
        for print in &*self.groups.prints {
            out.extend_from_slice(&print.to_be_bytes());
        }
    }
}

impl Piece for &str {
    fn bytes(&self) -> usize {
        2 + self.len()
    }

    fn put(&self, out: &mut Vec<u8>) {
        bytes::put_long(self, out);
    }
}

/// Parts of one in which shares are told.
pub(super) const SHARE: f64 = 10_000.0;

impl MoveRecord {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let key_hash = reader.u64()?;
        let key = reader.long(KEY_MAX)?.into();
        let from = reader.short(NAME_MAX)?.into();
        let (node, by) = (reader.name()?.into(), reader.name()?.into());
        let (version, at, used, kind) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u8()?);
        let mut share = || match reader.u16()? {
            parts if f64::from(parts) <= SHARE => Ok(f64::from(parts) / SHARE),
            _ => Err(Malformed),
        };
        let (load, best, improvement) = (share()?, share()?, share()?);
        Ok(MoveRecord {
            key_hash,
            key,
            from,
            node,
            by,
            version,
            at,
            used,
            kind,
            load,
            best,
            improvement,
        })
    }
}

impl Piece for MoveRecord {
    fn bytes(&self) -> usize {
        let names = [&self.from, &self.node, &self.by].map(|name| 1 + name.len());
        8 + 2 + self.key.len().min(KEY_MAX) + names.iter().sum::<usize>() + 3 * 8 + 1 + 3 * 2
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key_hash.to_be_bytes());
        bytes::put_long(bytes::beginning(&self.key, KEY_MAX), out);
        for name in [&self.from, &self.node, &self.by] {
            bytes::put_short(bytes::beginning(name, NAME_MAX), out);
        }
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.at.to_be_bytes());
        out.extend_from_slice(&self.used.to_be_bytes());
        out.push(self.kind);
        for share in [self.load, self.best, self.improvement] {
            let parts = (share.clamp(0.0, 1.0) * SHARE).round() as u16;
            out.extend_from_slice(&parts.to_be_bytes());
        }
    }
}
