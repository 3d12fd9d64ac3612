//! Dead letters on their way back to a queue.

use super::SqliteQueues;
use super::clock::{micros, signed, time, unsigned};
use super::work::Work;
use crate::ids::{PartitionId, QueueId};
use crate::store::redrives::{
    MakeRedrive, Redrive, RedriveLetter, RedriveMark, RedriveProgress, RedriveState, filter_text,
    read_filter, readable,
};
use bytes::Bytes;
use rusqlite::{Connection, Params, Row, params};
use skep_policy::Time;
use skep_store::StoreError;

macro_rules! select {
    () => {
        "SELECT id, queue, queue_name, filter, target, rate, moved, skipped, state, next_at,
                position, upto, created_at, created_by, ended_at
         FROM skep_queue_redrives "
    };
}

pub(super) const BY_ID: &str = concat!(select!(), "WHERE id = ?1");
pub(super) const LIST: &str = concat!(select!(), "WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
pub(super) const DUE: &str =
    concat!(select!(), "WHERE state = 'running' AND next_at <= ?1 ORDER BY next_at LIMIT ?2");
pub(super) const UPTO: &str = "SELECT coalesce(max(id), 0) FROM skep_queue_dead WHERE queue = ?1";
const MAKE: &str = "INSERT INTO skep_queue_redrives
    (id, queue, queue_name, filter, target, rate, moved, skipped, state, next_at, position, upto,
     created_at, created_by)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 'running', ?7, 0, ?8, ?7, ?9)";
pub(super) const STOP: &str = "UPDATE skep_queue_redrives SET state = 'stopped', ended_at = ?2
    WHERE id = ?1 AND state = 'running'";
pub(super) const PROGRESS: &str = "UPDATE skep_queue_redrives
    SET position = ?4, next_at = ?5, moved = moved + ?6, skipped = skipped + ?7, state = ?8,
        ended_at = CASE WHEN ?8 = 'running' THEN NULL ELSE ?9 END
    WHERE id = ?1 AND position = ?2 AND next_at = ?3 AND state = 'running'";
pub(super) const LETTERS: &str = "
    SELECT d.id, p.name, d.partition, d.grp, d.failed_at, d.error, d.record
    FROM skep_queue_dead d CROSS JOIN skep_queue_partitions p ON p.id = d.partition
    WHERE d.queue = ?1 AND d.id > ?2 AND d.id <= ?3 ORDER BY d.id LIMIT ?4";
pub(super) const FORGET: &str = "DELETE FROM skep_queue_redrives WHERE id IN
    (SELECT id FROM skep_queue_redrives WHERE ended_at IS NOT NULL AND ended_at < ?1
     ORDER BY ended_at LIMIT ?2)";

impl SqliteQueues {
    /// Begins to move dead letters.
    pub async fn make_redrive(&self, wish: MakeRedrive) -> Result<Option<Redrive>, StoreError> {
        Ok(self.write(move |work| make(work, &wish)).await?.0)
    }

    /// A redrive by its number.
    pub async fn redrive(&self, id: i64) -> Result<Option<Redrive>, StoreError> {
        self.sqlite.read(move |db| by_id(db, id)).await
    }

    /// Redrives, newest first.
    pub async fn redrives(
        &self,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Redrive>, StoreError> {
        let before = before.unwrap_or(i64::MAX);
        self.sqlite.read(move |db| many(db, LIST, params![before, limit])).await
    }

    /// Stops a redrive that runs.
    pub async fn stop_redrive(&self, id: i64) -> Result<Option<Redrive>, StoreError> {
        let stop = move |work: &mut Work<'_>| {
            let stopped = work.db.prepare_cached(STOP)?.execute([id, micros(work.now)])?;
            if stopped > 0 {
                work.wrote();
            }
            by_id(work.db, id)
        };
        Ok(self.write(stop).await?.0)
    }

    /// Redrives that go on at `now` or before.
    pub async fn due_redrives(&self, now: Time, limit: u32) -> Result<Vec<Redrive>, StoreError> {
        self.sqlite.read(move |db| many(db, DUE, params![micros(now), limit])).await
    }

    /// Dead letters of a queue by their numbers.
    pub(in crate::store) async fn dead_after(
        &self,
        queue: QueueId,
        after: i64,
        upto: i64,
        limit: u32,
    ) -> Result<Vec<RedriveLetter>, StoreError> {
        let read = move |db: &Connection| {
            let mut find = db.prepare_cached(LETTERS)?;
            let found = find.query_map(params![queue.0, after, upto, limit], letter)?;
            Ok::<_, StoreError>(found.collect::<rusqlite::Result<_>>()?)
        };
        self.sqlite.read(read).await
    }

    /// Moves a running redrive on.
    pub async fn progress_redrive(
        &self,
        id: i64,
        was: RedriveMark,
        done: RedriveProgress,
    ) -> Result<bool, StoreError> {
        let progress = move |work: &mut Work<'_>| {
            let values = params![
                id,
                was.position,
                micros(was.next_at),
                done.mark.position,
                micros(done.mark.next_at),
                signed(done.moved),
                signed(done.skipped),
                done.state.text(),
                micros(work.now),
            ];
            let moved = work.db.prepare_cached(PROGRESS)?.execute(values)? > 0;
            if moved {
                work.wrote();
            }
            Ok(moved)
        };
        Ok(self.write(progress).await?.0)
    }

    /// Forgets redrives that ended before a time.
    pub async fn forget_redrives(&self, before: Time, limit: u32) -> Result<u64, StoreError> {
        let forget = move |work: &mut Work<'_>| {
            let values = params![micros(before), limit];
            let gone = work.db.prepare_cached(FORGET)?.execute(values)?;
            if gone > 0 {
                work.wrote();
            }
            Ok(gone as u64)
        };
        Ok(self.write(forget).await?.0)
    }
}

fn make(work: &mut Work<'_>, wish: &MakeRedrive) -> Result<Option<Redrive>, StoreError> {
    let Some(queue) = work.queue_named(&wish.queue)? else { return Ok(None) };
    let queue = queue.info.id.0;
    let upto: i64 = work.db.prepare_cached(UPTO)?.query_row([queue], |row| row.get(0))?;
    let (id, now) = (work.next_id(), micros(work.now));
    let filter = filter_text(&wish.filter);
    work.db.prepare_cached(MAKE)?.execute(params![
        id,
        queue,
        wish.queue,
        filter,
        wish.target,
        wish.rate,
        now,
        upto,
        wish.by
    ])?;
    work.wrote();
    by_id(work.db, id)
}

fn many(db: &Connection, sql: &str, values: impl Params) -> Result<Vec<Redrive>, StoreError> {
    let mut found = db.prepare_cached(sql)?;
    let mut rows = found.query(values)?;
    let mut redrives = Vec::new();
    while let Some(row) = rows.next()? {
        redrives.extend(readable(redrive(row)));
    }
    Ok(redrives)
}

fn by_id(db: &Connection, id: i64) -> Result<Option<Redrive>, StoreError> {
    let mut found = db.prepare_cached(BY_ID)?;
    found.query([id])?.next()?.map(redrive).transpose()
}

fn redrive(row: &Row<'_>) -> Result<Redrive, StoreError> {
    let id = row.get(0)?;
    Ok(Redrive {
        id,
        queue: QueueId(row.get(1)?),
        queue_name: row.get(2)?,
        filter: read_filter(id, &row.get::<_, String>(3)?)?,
        target: row.get(4)?,
        rate: row.get(5)?,
        moved: unsigned(row.get(6)?),
        skipped: unsigned(row.get(7)?),
        state: RedriveState::of(&row.get::<_, String>(8)?),
        mark: RedriveMark { next_at: time(row.get(9)?), position: row.get(10)? },
        upto: row.get(11)?,
        created_at: time(row.get(12)?),
        created_by: row.get(13)?,
        ended_at: row.get::<_, Option<i64>>(14)?.map(time),
    })
}

fn letter(row: &Row<'_>) -> rusqlite::Result<RedriveLetter> {
    Ok(RedriveLetter {
        id: row.get(0)?,
        partition: row.get(1)?,
        partition_id: PartitionId(row.get(2)?),
        group: row.get(3)?,
        failed_at: time(row.get(4)?),
        error: row.get(5)?,
        record: Bytes::from(row.get::<_, Vec<u8>>(6)?),
    })
}
