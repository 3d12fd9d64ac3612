//! What happened in queues, by the minute.

use super::SqliteQueues;
use super::clock::{signed, unsigned};
use super::rows::queue_by_name;
use super::work::Work;
use crate::ids::QueueId;
use crate::store::stats::{StatCounts, StatPoint, StatRows, minute_start};
use rusqlite::{Connection, params};
use skep_store::StoreError;
use std::collections::HashMap;

pub(super) const ADD: &str = "INSERT INTO skep_queue_stats
    (queue, minute, pushed, bytes, popped, acked, failed, dead, expired, pending_max)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (queue, minute) DO UPDATE SET
        pushed = pushed + excluded.pushed, bytes = bytes + excluded.bytes,
        popped = popped + excluded.popped, acked = acked + excluded.acked,
        failed = failed + excluded.failed, dead = dead + excluded.dead,
        expired = expired + excluded.expired,
        pending_max = max(pending_max, excluded.pending_max)";
pub(super) const RANGE: &str = "SELECT minute, pushed, bytes, popped, acked, failed, dead, expired,
        pending_max
    FROM skep_queue_stats WHERE queue = ?1 AND minute >= ?2 AND minute < ?3 ORDER BY minute";
pub(super) const FORGET: &str = "DELETE FROM skep_queue_stats WHERE (queue, minute) IN
    (SELECT queue, minute FROM skep_queue_stats WHERE minute < ?1 ORDER BY minute LIMIT ?2)";

impl SqliteQueues {
    /// Adds to what is known.
    pub(in crate::store) async fn add_stats(&self, rows: StatRows) -> Result<(), StoreError> {
        let add = move |work: &mut Work<'_>| {
            for ((queue, minute), counts) in &rows {
                let queue = match queue {
                    None => 0,
                    Some(name) => match work.queue_named(name)? {
                        Some(row) => row.info.id.0,
                        None => continue,
                    },
                };
                let [pushed, bytes, popped, acked, failed, dead, expired] =
                    counts.sums().map(signed);
                work.db.prepare_cached(ADD)?.execute(params![
                    queue,
                    signed(*minute),
                    pushed,
                    bytes,
                    popped,
                    acked,
                    failed,
                    dead,
                    expired,
                    signed(counts.pending_max)
                ])?;
                work.wrote();
            }
            Ok(())
        };
        self.write(add).await?;
        Ok(())
    }

    /// What happened from minute `from` until before `to`.
    pub(in crate::store) async fn stats(
        &self,
        queue: Option<&str>,
        from: u64,
        to: u64,
        bucket: u64,
    ) -> Result<Vec<StatPoint>, StoreError> {
        let queue = queue.map(str::to_owned);
        let read = move |db: &Connection| {
            let queue = match queue {
                None => 0,
                Some(name) => match queue_by_name(db, &name)? {
                    Some(row) => row.info.id.0,
                    None => return Ok(Vec::new()),
                },
            };
            Ok::<_, StoreError>(points(db, queue, from, to, bucket)?)
        };
        self.sqlite.read(read).await
    }

    /// What happened in one minute in each of these queues.
    pub(in crate::store) async fn minute_stats(
        &self,
        minute: u64,
        queues: &[QueueId],
    ) -> Result<HashMap<QueueId, StatCounts>, StoreError> {
        let queues = queues.to_vec();
        let read = move |db: &Connection| {
            let mut found = HashMap::new();
            for queue in queues {
                let points = points(db, queue.0, minute, minute + 1, 1)?;
                found.extend(points.first().map(|point| (queue, point.counts)));
            }
            Ok::<_, StoreError>(found)
        };
        self.sqlite.read(read).await
    }

    /// Forgets minutes before `before`.
    pub(in crate::store) async fn forget_stats(
        &self,
        before: u64,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let forget = move |work: &mut Work<'_>| {
            let gone = work.db.prepare_cached(FORGET)?.execute(params![signed(before), limit])?;
            if gone > 0 {
                work.wrote();
            }
            Ok(gone as u64)
        };
        Ok(self.write(forget).await?.0)
    }
}

/// Minutes come in order, so a bucket is over when the next one begins.
fn points(
    db: &Connection,
    queue: i64,
    from: u64,
    to: u64,
    bucket: u64,
) -> rusqlite::Result<Vec<StatPoint>> {
    let mut range = db.prepare_cached(RANGE)?;
    let mut rows = range.query(params![queue, signed(from), signed(to)])?;
    let mut points: Vec<StatPoint> = Vec::new();
    while let Some(row) = rows.next()? {
        let minute = unsigned(row.get(0)?);
        let start = minute_start(minute / bucket * bucket);
        let mut columns = [0; 8];
        for (place, column) in columns.iter_mut().enumerate() {
            *column = unsigned(row.get(place + 1)?);
        }
        let counts = StatCounts::of_columns(|place| columns[place]);
        match points.last_mut() {
            Some(last) if last.from == start => last.counts.add(&counts),
            _ => points.push(StatPoint { from: start, counts }),
        }
    }
    Ok(points)
}
