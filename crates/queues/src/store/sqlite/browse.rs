//! Looking at messages.
//!
//! Segments are in the table in the order in which they were pushed, whatever their queue, so the
//! newest are found by walking it backwards. What was cut off a segment has a number of its own and
//! stands where the segment stood; the two walks are merged.

use super::SqliteQueues;
use super::clock::{micros, signed, time, unsigned};
use super::rows;
use super::segments::{PRINTS, read_body, run_at_or_before, run_of};
use crate::ids::{PartitionId, QueueId};
use crate::record::{PRIORITY_MAX, part_there, print_of};
use crate::store::browse::{
    BrowseError, GROUPS_MAX, Gathered, MessageFilter, MessageRow, MessagesPage, Page, Queues,
    Reach, Reader, Readers, SCAN_MAX, SEARCH_MAX, damaged, is_of, places_of, read_token, token,
};
use bytes::Bytes;
use rusqlite::{Connection, Row, Rows, params};
use skep_policy::Time;
use skep_policy::queues::Run;
use skep_store::StoreError;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Where walks through one partition go on.
const IN_PARTITION: char = 'p';
/// Where walks through the whole table go on.
const IN_TABLE: char = 's';

impl SqliteQueues {
    /// A page of messages, newest first.
    pub async fn messages(&self, filter: MessageFilter) -> Result<MessagesPage, BrowseError> {
        let now = self.now();
        self.sqlite.read(move |db| Look::new(db, now).messages(&filter)).await
    }

    /// The newest message of this transaction id.
    pub async fn message(
        &self,
        partition: PartitionId,
        transaction: &str,
    ) -> Result<Option<MessageRow>, StoreError> {
        let (transaction, now) = (transaction.to_owned(), self.now());
        let read = move |db: &Connection| {
            let mut look = Look::new(db, now);
            let Some(found) = look.find(partition, &transaction)? else { return Ok(None) };
            let Some((queue, _)) = look.partition(partition)? else { return Ok(None) };
            let Found { number, at, record } = found;
            let gathered = Gathered { queue: queue.0, partition: partition.0, number, at, record };
            Ok::<_, StoreError>(look.tell(vec![gathered])?.pop())
        };
        self.sqlite.read(read).await
    }
}

/// A message that was searched for.
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) at: Time,
    pub(super) record: Bytes,
}

/// A segment on the way, and where it stands.
struct Segment {
    place: i64,
    partition: PartitionId,
    run: Run,
}

/// One look, and the names it came by.
pub(super) struct Look<'db> {
    db: &'db Connection,
    now: Time,
    partitions: HashMap<PartitionId, Option<(QueueId, Arc<str>)>>,
    queues: HashMap<QueueId, Option<Arc<str>>>,
}

impl<'db> Look<'db> {
    pub(super) fn new(db: &'db Connection, now: Time) -> Self {
        Look { db, now, partitions: HashMap::new(), queues: HashMap::new() }
    }

    fn messages(&mut self, filter: &MessageFilter) -> Result<MessagesPage, BrowseError> {
        let mut page = filter.page();
        let ids = match &filter.queues {
            Queues::One(name) => {
                let queue = rows::queue_by_name(self.db, name).map_err(StoreError::from)?;
                queue.map(|row| row.info.id).into_iter().collect()
            }
            Queues::Matching { namespace, task } => {
                rows::queues_matching(self.db, namespace.as_deref(), task.as_deref())
                    .map_err(StoreError::from)?
            }
        };
        let (next, scanned) = match (&filter.partition, ids.first()) {
            // A wrong token is wrong whatever there is.
            (Some(name), queue) => {
                let place = match &filter.after {
                    Some(text) => read_token::<2>(IN_PARTITION, text)?,
                    None => [i64::from(PRIORITY_MAX), i64::MAX],
                };
                match queue {
                    None => (None, 0),
                    Some(queue) => self.walk_partition((*queue, name), place, filter, &mut page)?,
                }
            }
            (None, _) => {
                let start = match &filter.after {
                    Some(text) => read_token::<2>(IN_TABLE, text)?,
                    None => [i64::MAX; 2],
                };
                match ids.is_empty() {
                    true => (None, 0),
                    false => {
                        self.walk_table(&ids.into_iter().collect(), start, filter, &mut page)?
                    }
                }
            }
        };
        let messages = self.tell(page.messages)?;
        Ok(MessagesPage { messages, next, scanned })
    }

    fn walk_partition(
        &mut self,
        (queue, name): (QueueId, &str),
        [level, below]: [i64; 2],
        filter: &MessageFilter,
        page: &mut Page,
    ) -> Result<(Option<String>, u64), StoreError> {
        let mut levels = self.db.prepare_cached(LEVELS)?;
        let levels = levels.query_map(params![queue.0, name, level], |row| {
            Ok((PartitionId(row.get(0)?), unsigned(row.get(1)?), row.get(2)?))
        })?;
        let levels: Vec<(PartitionId, u64, i64)> = levels.collect::<rusqlite::Result<_>>()?;
        let Some(&(id, tail, level)) = levels.first() else { return Ok((None, 0)) };
        // One level after the other, the highest first.
        let lower = levels.get(1).map(|lower| token(IN_PARTITION, &[lower.2, i64::MAX]));
        let mut below = unsigned(below);
        if let Some(to) = filter.to {
            below = below.min(first_at(self.db, id, tail, to)?);
        }
        let mut select = self.db.prepare_cached(DOWN)?;
        let mut found = select.query([id.0, signed(below)])?;
        let mut scanned = 0;
        while let Some(row) = found.next()? {
            let run = run_of(row)?;
            scanned += 1;
            if filter.from.is_some_and(|from| run.at < from) {
                return Ok((lower, scanned));
            }
            let last = self.add((queue, id), &run, below, page)?;
            if page.is_full() || scanned >= SCAN_MAX {
                let last = last.unwrap_or(run.first);
                return Ok((Some(token(IN_PARTITION, &[level, signed(last)])), scanned));
            }
        }
        Ok((lower, scanned))
    }

    fn walk_table(
        &mut self,
        queues: &HashSet<QueueId>,
        start: [i64; 2],
        filter: &MessageFilter,
        page: &mut Page,
    ) -> Result<(Option<String>, u64), StoreError> {
        let [mut from_place, below] = start;
        if let Some(to) = filter.to {
            from_place = from_place.min(last_before(self.db, to)?);
        }
        let mut own = self.db.prepare_cached(OWN_PLACES)?;
        let mut own = Walk::of(own.query([from_place])?)?;
        let mut cut = self.db.prepare_cached(CUT_OFF)?;
        let mut cut = Walk::of(cut.query([from_place])?)?;
        let mut scanned = 0;
        loop {
            let first = own.position() >= cut.position();
            let Some(segment) = (if first { own.take()? } else { cut.take()? }) else {
                return Ok((None, scanned));
            };
            scanned += 1;
            let Segment { place, partition, run } = segment;
            if filter.from.is_some_and(|from| run.at < from) {
                return Ok((None, scanned));
            }
            let mut last = None;
            let below = if place == start[0] { unsigned(below) } else { u64::MAX };
            let of = self.partition(partition)?;
            let late = filter.to.is_some_and(|to| run.at >= to);
            if let Some((queue, _)) = of.filter(|(queue, _)| queues.contains(queue) && !late) {
                last = self.add((queue, partition), &run, below, page)?;
            }
            if page.is_full() || scanned >= SCAN_MAX {
                let last = signed(last.unwrap_or(run.first).min(below));
                return Ok((Some(token(IN_TABLE, &[place, last])), scanned));
            }
        }
    }

    fn add(
        &self,
        (queue, partition): (QueueId, PartitionId),
        run: &Run,
        below: u64,
        page: &mut Page,
    ) -> Result<Option<u64>, StoreError> {
        if run.first >= below {
            return Ok(None);
        }
        let Some(body) = read_body(self.db, partition, run.first)? else { return Ok(None) };
        page.add((queue.0, partition.0), run, &body, below)
            .map_err(|error| damaged(partition.0, run.first, error))
    }

    /// The newest message of a transaction id, among those that are searched.
    pub(super) fn find(
        &mut self,
        partition: PartitionId,
        transaction: &str,
    ) -> Result<Option<Found>, StoreError> {
        let print = print_of(transaction);
        let mut left = SEARCH_MAX;
        let mut select = self.db.prepare_cached(PRINTS)?;
        let mut rows = select.query([partition.0])?;
        while left > 0
            && let Some(row) = rows.next()?
        {
            let run = run_of(row)?;
            let prints: Vec<u8> = row.get(3)?;
            let places = places_of(&prints, print);
            if !places.is_empty()
                && let Some(body) = read_body(self.db, partition, run.first)?
            {
                for place in places {
                    let part = part_there(&body, place, 1);
                    let (record, _) =
                        part.map_err(|error| damaged(partition.0, run.first, error))?;
                    if is_of(&record, transaction) {
                        let number = run.first + place as u64;
                        return Ok(Some(Found { number, at: run.at, record }));
                    }
                }
            }
            left = left.saturating_sub(u64::from(run.count));
        }
        Ok(None)
    }

    /// A partition's queue and name, unless the queue is deleted.
    fn partition(&mut self, id: PartitionId) -> rusqlite::Result<Option<(QueueId, Arc<str>)>> {
        if let Some(known) = self.partitions.get(&id) {
            return Ok(known.clone());
        }
        let mut found = rows::partition_by_id(self.db, id)?.map(|(_, row)| (row.queue, row.name));
        if let Some((queue, _)) = &found
            && self.queue(*queue)?.is_none()
        {
            found = None;
        }
        self.partitions.insert(id, found.clone());
        Ok(found)
    }

    fn queue(&mut self, id: QueueId) -> rusqlite::Result<Option<Arc<str>>> {
        if let Some(known) = self.queues.get(&id) {
            return Ok(known.clone());
        }
        let found = rows::queue_by_id(self.db, id)?.map(|row| row.info.name);
        self.queues.insert(id, found.clone());
        Ok(found)
    }

    /// The groups of a queue.
    fn readers(&self, queue: i64) -> rusqlite::Result<Vec<Reader>> {
        let mut select = self.db.prepare_cached(GROUPS)?;
        let reader = |row: &Row<'_>| {
            let start: Option<i64> = row.get(2)?;
            Ok(Reader { id: row.get(0)?, name: row.get(1)?, start: start.map(time) })
        };
        select.query_map([queue, i64::from(GROUPS_MAX)], reader)?.collect()
    }

    /// Says what became of messages.
    fn tell(&mut self, gathered: Vec<Gathered>) -> Result<Vec<MessageRow>, StoreError> {
        let mut readers = Readers::default();
        for message in &gathered {
            let (queue, partition) = (message.queue, PartitionId(message.partition));
            let groups = match readers.groups.entry(queue) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.readers(queue)?),
            };
            for group in groups.iter().map(|group| group.id) {
                let key = (message.partition, group);
                if readers.lanes.contains_key(&key) {
                    continue;
                }
                let lane = rows::lane(self.db, partition, crate::ids::GroupId(group))?;
                readers.lanes.extend(lane.map(|row| {
                    let lease = row.lane.lease.map(|lease| (lease.until, lease.through));
                    (key, Reach { cursor: row.lane.cursor, lease })
                }));
            }
        }
        let mut told = Vec::with_capacity(gathered.len());
        for message in gathered {
            let partition_id = PartitionId(message.partition);
            let Some((queue, partition)) = self.partition(partition_id)? else { continue };
            let Some(queue) = self.queue(queue)? else { continue };
            let standing = readers.standing(self.now, &message);
            let Gathered { number, at, record, .. } = message;
            told.push(MessageRow { queue, partition, partition_id, number, at, record, standing });
        }
        Ok(told)
    }
}

/// Segments in the order of their places, the next one at hand.
struct Walk<'rows> {
    rows: Rows<'rows>,
    next: Option<Segment>,
}

impl<'rows> Walk<'rows> {
    fn of(rows: Rows<'rows>) -> rusqlite::Result<Self> {
        let mut walk = Walk { rows, next: None };
        walk.take()?;
        Ok(walk)
    }

    /// Where the next one stands; nothing is before everything.
    fn position(&self) -> Option<(i64, u64)> {
        self.next.as_ref().map(|segment| (segment.place, segment.run.first))
    }

    fn take(&mut self) -> rusqlite::Result<Option<Segment>> {
        let next = match self.rows.next()? {
            None => None,
            Some(row) => Some(Segment {
                place: row.get(3)?,
                partition: PartitionId(row.get(4)?),
                run: run_of(row)?,
            }),
        };
        Ok(std::mem::replace(&mut self.next, next))
    }
}

/// The last place of what was pushed before `to`. Times rise with places, so it is found by
/// halving.
fn last_before(db: &Connection, to: Time) -> rusqlite::Result<i64> {
    let mut select = db.prepare_cached(PLACE_BEFORE)?;
    let mut at_or_before = |place: i64| {
        let mut rows = select.query([place])?;
        Ok::<_, rusqlite::Error>(match rows.next()? {
            Some(row) => Some((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
            None => None,
        })
    };
    let Some((newest, at)) = at_or_before(i64::MAX)? else { return Ok(i64::MAX) };
    if at < micros(to) {
        return Ok(i64::MAX);
    }
    let (mut before, mut after) = (0, newest);
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        match at_or_before(middle)? {
            Some((place, at)) if at >= micros(to) => after = place,
            _ => before = middle,
        }
    }
    Ok(before)
}

/// The first number of a partition that was not pushed before `to`.
pub(super) fn first_at(
    db: &Connection,
    partition: PartitionId,
    tail: u64,
    to: Time,
) -> rusqlite::Result<u64> {
    let (mut before, mut after) = (0, tail + 1);
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        match run_at_or_before(db, partition, middle)? {
            Some(run) if run.at >= to => after = run.first,
            _ => before = middle,
        }
    }
    Ok(after)
}

pub(super) const OWN_PLACES: &str = "SELECT first, count, at, id, partition
    FROM skep_queue_segments WHERE id <= ?1 AND place IS NULL ORDER BY id DESC";
pub(super) const CUT_OFF: &str = "SELECT first, count, at, place, partition
    FROM skep_queue_segments WHERE place IS NOT NULL AND place <= ?1
    ORDER BY place DESC, first DESC";
pub(super) const PLACE_BEFORE: &str = "SELECT id, at FROM skep_queue_segments
    WHERE id <= ?1 AND place IS NULL ORDER BY id DESC LIMIT 1";
pub(super) const LEVELS: &str = "SELECT id, tail, level FROM skep_queue_partitions
    WHERE queue = ?1 AND name = ?2 AND level <= ?3 ORDER BY level DESC LIMIT 2";
pub(super) const DOWN: &str = "SELECT first, count, at FROM skep_queue_segments
    WHERE partition = ?1 AND first < ?2 ORDER BY first DESC";
pub(super) const GROUPS: &str = "SELECT id, name, start FROM skep_queue_groups
    WHERE queue = ?1 AND deleted = 0 ORDER BY name LIMIT ?2";
