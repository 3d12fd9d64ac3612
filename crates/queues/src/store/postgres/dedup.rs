//! Transaction ids that come again.
//!
//! What this node remembers of a partition's ids holds if it reaches to the partition's tail, read
//! under the partition's lock; what other nodes have pushed since is read from the segments.

use super::Shared;
use super::link::{Fail, Link};
use super::rows::{micros, time, unsigned};
use crate::bodies::BodyKey;
use crate::ids::PartitionId;
use crate::prints::Prints;
use crate::record::{Records, part};
use bytes::Bytes;
use skep_policy::Time;
use std::collections::{HashMap, HashSet};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// Segments read with one statement.
const PAGE: i64 = 4_096;

/// A message that was pushed before with the same print.
#[derive(Clone, Debug)]
pub(super) struct Original {
    pub number: u64,
    pub at: Time,
    /// Whether somebody took it out: it is known only to those who push it again.
    pub deleted: bool,
    /// Its id and its transaction id; nothing if the message is too old to be kept. Then the print
    /// has to do.
    pub named: Option<(Uuid, String)>,
    /// The message itself, if it is kept.
    pub record: Option<Bytes>,
}

impl Original {
    pub(super) fn is(&self, transaction: &str) -> bool {
        self.named.as_ref().is_none_or(|(_, own)| own == transaction)
    }
}

/// Ids to look for in one partition.
#[derive(Debug)]
pub(super) struct Search {
    pub partition: i64,
    pub tail: u64,
    pub window: Duration,
    pub prints: Vec<u64>,
}

/// By partition and print.
pub(super) type Originals = HashMap<(i64, u64), Original>;

struct Segment {
    first: u64,
    at: Time,
    prints: Vec<u64>,
}

const LOAD: &str = "
    SELECT first, at, prints FROM skep_queue_segments
    WHERE partition = $1 AND first > $2 AND first < $3 ORDER BY first DESC LIMIT $4";
const LOCATE: &str = "
    SELECT w.partition, w.number, s.first, s.count, s.at, s.deleted
    FROM unnest($1::bigint[], $2::bigint[]) AS w (partition, number)
    CROSS JOIN LATERAL (
        SELECT first, count, at, deleted FROM skep_queue_segments
        WHERE partition = w.partition AND first <= w.number ORDER BY first DESC LIMIT 1) s";
const BODIES: &str = "
    SELECT s.partition, s.first, s.body
    FROM unnest($1::bigint[], $2::bigint[]) AS w (partition, first)
    CROSS JOIN LATERAL (
        SELECT partition, first, body FROM skep_queue_segments
        WHERE partition = w.partition AND first = w.first AND body IS NOT NULL LIMIT 1) s";

impl Shared {
    pub(super) fn prints(&self) -> MutexGuard<'_, Prints> {
        self.prints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The messages that have one of the prints and are within their window.
    pub(super) async fn originals(
        &self,
        link: &mut Link,
        now: Time,
        searches: &[Search],
    ) -> Result<Originals, Fail> {
        let mut numbers = Vec::new();
        for search in searches.iter().filter(|one| one.tail > 0 && !one.window.is_zero()) {
            let found = self.search(link, now, search).await?;
            numbers.extend(found.into_iter().map(|(print, number)| (search, print, number)));
        }
        if numbers.is_empty() {
            return Ok(Originals::new());
        }
        let partitions: Vec<i64> = numbers.iter().map(|one| one.0.partition).collect();
        let wanted: Vec<i64> = numbers.iter().map(|one| super::rows::signed(one.2)).collect();
        let rows = link.ask(LOCATE, vec![&partitions, &wanted]).await?;
        let mut places = HashMap::new();
        for row in &rows {
            let (number, first) = (unsigned(row.get(1)), unsigned(row.get(2)));
            let count: i32 = row.get(3);
            if number < first + u64::try_from(count).unwrap_or(0) {
                let partition: i64 = row.get(0);
                places.insert((partition, number), (first, time(row.get(4)), row.get(5)));
            }
        }
        let keys = places.iter().map(|((partition, _), (first, ..))| (*partition, *first));
        let bodies = self.bodies_of(link, keys.collect()).await?;
        let mut originals = Originals::new();
        for (search, print, number) in numbers {
            let Some((first, at, deleted)) = places.get(&(search.partition, number)) else {
                continue;
            };
            if *at + search.window <= now {
                continue;
            }
            let body = bodies.get(&(PartitionId(search.partition), *first));
            let record = body.and_then(|body| {
                let skip = usize::try_from(number - first).ok()?;
                part(body, skip, 1).ok()
            });
            let named = record.as_ref().and_then(|record| {
                let record = Records::of(record).next()?.ok()?;
                Some((record.id, record.transaction.into_owned()))
            });
            let original = Original { number, at: *at, deleted: *deleted, named, record };
            originals.insert((search.partition, print), original);
        }
        Ok(originals)
    }

    /// Which of the prints the partition has, and as which number.
    async fn search(
        &self,
        link: &mut Link,
        now: Time,
        search: &Search,
    ) -> Result<Vec<(u64, u64)>, Fail> {
        let partition = PartitionId(search.partition);
        let find = |prints: &Prints| {
            let numbered = |print: &u64| Some((*print, prints.find(partition, *print)?));
            search.prints.iter().filter_map(numbered).collect::<Vec<_>>()
        };
        // What is remembered may be forgotten while the rest is read; then all of it is read.
        let mut known = self.prints().known_through(partition);
        loop {
            if known.is_some_and(|known| known >= search.tail) {
                let mut prints = self.prints();
                if prints.known_through(partition).is_some_and(|known| known >= search.tail) {
                    return Ok(find(&prints));
                }
                known = None;
            }
            let segments = self.load(link, now, search, known).await?;
            let mut prints = self.prints();
            let same = prints.known_through(partition) == known;
            if same {
                let start = segments.first().map_or(search.tail, |one| one.first - 1);
                if known.is_none() {
                    prints.begin(partition, start);
                }
                for one in &segments {
                    prints.add(
                        partition,
                        one.first,
                        one.prints.iter().copied(),
                        one.at,
                        search.window,
                    );
                }
                // What follows the last segment is no longer kept.
                prints.begin(partition, search.tail);
                if prints.known_through(partition) == Some(search.tail) {
                    return Ok(find(&prints));
                }
            }
            if known.is_none() {
                let mut all = HashMap::new();
                for one in &segments {
                    all.extend(one.prints.iter().copied().zip(one.first..));
                }
                let numbered = |print: &u64| Some((*print, *all.get(print)?));
                return Ok(search.prints.iter().filter_map(numbered).collect());
            }
            known = None;
        }
    }

    /// The segments after `known` that are within the window, but not more than are worth knowing.
    async fn load(
        &self,
        link: &mut Link,
        now: Time,
        search: &Search,
        known: Option<u64>,
    ) -> Result<Vec<Segment>, Fail> {
        let after = super::rows::signed(known.unwrap_or(0));
        let mut before = super::rows::signed(search.tail) + 1;
        let (floor, enough) = {
            let prints = self.prints();
            (prints.floor(), prints.messages_max())
        };
        let oldest = micros((now - search.window).max(floor));
        let (mut segments, mut messages) = (Vec::new(), 0);
        loop {
            let values: super::link::Values<'_> = vec![&search.partition, &after, &before, &PAGE];
            let rows = link.ask(LOAD, values).await?;
            for row in &rows {
                let (first, at): (i64, i64) = (row.get(0), row.get(1));
                before = first;
                if at <= oldest || messages >= enough {
                    segments.reverse();
                    return Ok(segments);
                }
                let bytes: &[u8] = row.get(2);
                let print = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                let prints: Vec<u64> = bytes.chunks_exact(8).map(print).collect();
                messages += prints.len();
                segments.push(Segment { first: unsigned(first), at: time(at), prints });
            }
            if rows.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
                segments.reverse();
                return Ok(segments);
            }
        }
    }

    /// Bodies of segments, from memory where they are there. Those that are no longer kept are
    /// missing.
    pub(super) async fn bodies_of(
        &self,
        link: &mut Link,
        keys: HashSet<(i64, u64)>,
    ) -> Result<HashMap<BodyKey, Bytes>, Fail> {
        let mut bodies = HashMap::with_capacity(keys.len());
        let (mut partitions, mut firsts) = (Vec::new(), Vec::new());
        for (partition, first) in keys {
            let key = (PartitionId(partition), first);
            match self.bodies.get(key) {
                Some(body) => drop(bodies.insert(key, body)),
                None => {
                    partitions.push(partition);
                    firsts.push(super::rows::signed(first));
                }
            }
        }
        if partitions.is_empty() {
            return Ok(bodies);
        }
        for row in link.ask(BODIES, vec![&partitions, &firsts]).await? {
            let key = (PartitionId(row.get(0)), unsigned(row.get(1)));
            let body = Bytes::copy_from_slice(row.get(2));
            self.bodies.put(key, body.clone());
            bodies.insert(key, body);
        }
        Ok(bodies)
    }
}
