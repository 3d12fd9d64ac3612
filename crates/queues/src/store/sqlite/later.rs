//! Messages that wait for their time.

use super::SqliteQueues;
use super::clock::{micros, time};
use super::rows::queue_by_name;
use super::work::Work;
use crate::ids::{PartitionId, QueueId};
use crate::record::{Damaged, Records};
use crate::store::{Due, DueMessage, LaterMessage, NewMessage, Take, WorkError};
use bytes::Bytes;
use rusqlite::{Connection, Row, params};
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// A message that is to wait and is not written yet.
#[derive(Debug)]
pub(super) struct LaterRow {
    pub(super) queue: QueueId,
    pub(super) partition: PartitionId,
    pub(super) due: Time,
    pub(super) print: u64,
    pub(super) record: Bytes,
}

/// Messages of this batch that are to wait.
#[derive(Debug, Default)]
pub(super) struct Laters {
    rows: Vec<LaterRow>,
    /// Where the prints of each partition are.
    places: HashMap<(PartitionId, u64), Vec<usize>>,
}

impl Laters {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn push(&mut self, row: LaterRow) {
        let places = self.places.entry((row.partition, row.print)).or_default();
        places.push(self.rows.len());
        self.rows.push(row);
    }

    /// Forgets those that came after the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        for row in self.rows.drain(count.min(self.rows.len())..) {
            if let Some(places) = self.places.get_mut(&(row.partition, row.print)) {
                places.retain(|place| *place < count);
            }
        }
    }

    fn with_print(&self, partition: PartitionId, print: u64) -> impl Iterator<Item = &Bytes> {
        let places = self.places.get(&(partition, print)).into_iter().flatten();
        places.filter_map(|place| self.rows.get(*place)).map(|row| &row.record)
    }

    /// Tells whether there was anything to write.
    pub(super) fn write(&self, db: &Connection) -> rusqlite::Result<bool> {
        for row in &self.rows {
            let sql = "INSERT INTO skep_queue_later (queue, partition, due, print, record)
                       VALUES (?1, ?2, ?3, ?4, ?5)";
            db.prepare_cached(sql)?.execute(params![
                row.queue.0,
                row.partition.0,
                micros(row.due),
                kept_print(row.print),
                &row.record[..],
            ])?;
        }
        Ok(!self.rows.is_empty())
    }
}

/// The database has no numbers without a sign: the same bits with one.
fn kept_print(print: u64) -> i64 {
    i64::from_le_bytes(print.to_le_bytes())
}

impl Work<'_> {
    /// The id of the message that waits in the partition with the transaction id of `message`.
    pub(super) fn waits_already(
        &self,
        partition: PartitionId,
        message: &NewMessage,
    ) -> Result<Option<Uuid>, WorkError> {
        let new = Records::of(&message.record).next().ok_or(Damaged)??;
        let same = |record: &[u8]| -> Result<Option<Uuid>, Damaged> {
            let known = Records::of(record).next().ok_or(Damaged)??;
            Ok((known.transaction == new.transaction).then_some(known.id))
        };
        for record in self.later.with_print(partition, message.print) {
            if let Some(id) = same(record)? {
                return Ok(Some(id));
            }
        }
        let mut select = self.db.prepare_cached(WITH_PRINT)?;
        let mut rows = select.query([partition.0, kept_print(message.print)])?;
        while let Some(row) = rows.next()? {
            let record: Vec<u8> = row.get(1)?;
            if !self.taken.has_later(row.get(0)?)
                && let Some(id) = same(&record)?
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}

impl SqliteQueues {
    /// Messages whose time has come.
    pub async fn due(&self, limit: u32) -> Result<Due, StoreError> {
        let now = self.now();
        let read = move |db: &Connection| {
            let values = [micros(now), i64::from(limit.max(1))];
            let mut select = db.prepare_cached(DUE)?;
            let rows = select.query_map(values, due_row)?;
            let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let next_at = match rows.len() < limit.max(1) as usize {
                true => db.prepare_cached(NEXT_DUE)?.query_row([micros(now)], |row| row.get(0))?,
                false => Some(micros(now)),
            };
            let messages = rows.into_iter().map(message_of).collect::<Result<_, _>>()?;
            Ok::<_, StoreError>(Due { messages, next_at: next_at.map(time), now })
        };
        self.sqlite.read(read).await
    }

    /// Messages of a queue that wait.
    pub async fn later(
        &self,
        queue: &str,
        after: Option<(Time, i64)>,
        limit: u32,
    ) -> Result<Vec<LaterMessage>, StoreError> {
        let queue = queue.to_owned();
        let read = move |db: &Connection| {
            let Some(queue) = queue_by_name(db, &queue)? else { return Ok(Vec::new()) };
            let (due, id) = after.map_or((-1, 0), |(due, id)| (micros(due), id));
            let mut select = db.prepare_cached(LATER)?;
            let values = [queue.info.id.0, due, id, i64::from(limit)];
            let messages = select.query_map(values, |row| {
                Ok(LaterMessage {
                    id: row.get(0)?,
                    partition: row.get(1)?,
                    due: time(row.get(2)?),
                    record: Bytes::from(row.get::<_, Vec<u8>>(3)?),
                })
            })?;
            Ok::<_, StoreError>(messages.collect::<rusqlite::Result<_>>()?)
        };
        self.sqlite.read(read).await
    }

    /// Deletes a message that waits.
    pub async fn delete_later(&self, id: i64) -> Result<bool, StoreError> {
        Ok(self.write(move |work| Ok(work.take(&Take::Later(id))?)).await?.0)
    }

    /// Makes everything that was pushed before now invisible. What waits for its time goes first,
    /// little by little, because nothing in its row tells when it was pushed.
    pub async fn clear(&self, queue: &str) -> Result<Option<Time>, StoreError> {
        let queue: Arc<str> = queue.into();
        let name = queue.clone();
        let last = move |db: &Connection| {
            let last: i64 = db.prepare_cached(LAST)?.query_row([], |row| row.get(0))?;
            let queue = queue_by_name(db, &name)?;
            Ok::<_, StoreError>(queue.map(|queue| (queue.info.id, last)))
        };
        let Some((id, last)) = self.sqlite.read(last).await? else { return Ok(None) };
        loop {
            let round = move |work: &mut Work<'_>| Ok(clear_some(work, id, last)?);
            match self.write(round).await?.0 {
                Round::Cleared(at) => return Ok(Some(at)),
                Round::Gone => return Ok(None),
                Round::More => {}
            }
        }
    }
}

/// What a round of clearing came to.
enum Round {
    More,
    Cleared(Time),
    Gone,
}

/// Messages that one round removes.
const CLEAR_ROUND: usize = 1_000;

fn clear_some(work: &mut Work<'_>, id: QueueId, last: i64) -> rusqlite::Result<Round> {
    if work.queue(id)?.is_none() {
        return Ok(Round::Gone);
    }
    let values = [id.0, last, CLEAR_ROUND as i64];
    let removed = work.db.prepare_cached(CLEAR)?.execute(values)?;
    work.wrote();
    work.change_queue(id, |row| row.later = row.later.saturating_sub(removed as u64));
    if removed == CLEAR_ROUND {
        return Ok(Round::More);
    }
    // Every batch has a time of its own: what was pushed before has an earlier one.
    let now = work.now;
    work.change_queue(id, |row| row.rules.floor = now);
    let sql = "UPDATE skep_queues SET cleared_at = ?2 WHERE id = ?1";
    work.db.prepare_cached(sql)?.execute([id.0, micros(now)])?;
    Ok(Round::Cleared(now))
}

/// A row and what it needs to be pushed.
type DueRow = (i64, Vec<u8>, Arc<str>, Arc<str>, u8);

fn due_row(row: &Row<'_>) -> rusqlite::Result<DueRow> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
}

fn message_of(row: DueRow) -> Result<DueMessage, StoreError> {
    let (id, record, queue, partition, level) = row;
    let damaged = |error: Damaged| StoreError::Damaged {
        target: format!("row {id} of skep_queue_later"),
        cause: error.to_string(),
    };
    let bytes = Bytes::from(record);
    let read = Records::of(&bytes).next().unwrap_or(Err(Damaged)).map_err(damaged)?;
    let message = NewMessage::of(queue, partition, &read, bytes.clone());
    Ok(DueMessage { id, message: NewMessage { level, due: None, ..message } })
}

pub(super) const WITH_PRINT: &str =
    "SELECT id, record FROM skep_queue_later WHERE partition = ?1 AND print = ?2";
/// The order of the tables is that of the names: the rows of the first come in their order.
pub(super) const DUE: &str = "SELECT l.id, l.record, q.name, p.name, p.level
    FROM skep_queue_later l
    CROSS JOIN skep_queues q ON q.id = l.queue
    CROSS JOIN skep_queue_partitions p ON p.id = l.partition
    WHERE l.due <= ?1 AND q.deleted = 0 ORDER BY l.due, l.id LIMIT ?2";
pub(super) const NEXT_DUE: &str = "SELECT min(due) FROM skep_queue_later WHERE due > ?1";
pub(super) const LATER: &str = "SELECT l.id, p.name, l.due, l.record
    FROM skep_queue_later l
    CROSS JOIN skep_queue_partitions p ON p.id = l.partition
    WHERE l.queue = ?1 AND (l.due, l.id) > (?2, ?3) ORDER BY l.due, l.id LIMIT ?4";
pub(super) const LAST: &str = "SELECT coalesce(max(id), 0) FROM skep_queue_later";
pub(super) const CLEAR: &str = "DELETE FROM skep_queue_later WHERE id IN
    (SELECT id FROM skep_queue_later WHERE queue = ?1 AND id <= ?2 LIMIT ?3)";
