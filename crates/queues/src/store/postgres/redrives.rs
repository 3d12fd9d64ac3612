//! Dead letters on their way back to a queue.

use super::PostgresQueues;
use super::rows::{micros, signed, time, unsigned};
use crate::ids::{PartitionId, QueueId};
use crate::store::redrives::{
    MakeRedrive, Redrive, RedriveLetter, RedriveMark, RedriveProgress, RedriveState, filter_text,
    read_filter, readable,
};
use bytes::Bytes;
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

macro_rules! columns {
    () => {
        "id, queue, queue_name, filter, target, rate, moved, skipped, state, next_at, position,
         upto, created_at, created_by, ended_at "
    };
}
macro_rules! select {
    () => {
        concat!("SELECT ", columns!(), "FROM skep_queue_redrives ")
    };
}
macro_rules! now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}

pub(super) const BY_ID: &str = concat!(select!(), "WHERE id = $1");
pub(super) const LIST: &str = concat!(select!(), "WHERE id < $1 ORDER BY id DESC LIMIT $2");
pub(super) const DUE: &str =
    concat!(select!(), "WHERE state = 'running' AND next_at <= $1 ORDER BY next_at LIMIT $2");
pub(super) const MAKE: &str = concat!(
    "INSERT INTO skep_queue_redrives
         (queue, queue_name, filter, target, rate, next_at, upto, created_at, created_by)
     SELECT q.id, q.name, $2, $3, $4, n.now,
            coalesce((SELECT max(d.id) FROM skep_queue_dead d WHERE d.queue = q.id), 0),
            n.now, $5
     FROM skep_queues q, (SELECT ",
    now!(),
    " AS now) n WHERE q.name = $1 AND NOT q.deleted RETURNING ",
    columns!()
);
pub(super) const STOP: &str = concat!(
    "UPDATE skep_queue_redrives SET state = 'stopped', ended_at = ",
    now!(),
    " WHERE id = $1 AND state = 'running' RETURNING ",
    columns!()
);
pub(super) const PROGRESS: &str = concat!(
    "UPDATE skep_queue_redrives
     SET position = $4, next_at = $5, moved = moved + $6, skipped = skipped + $7, state = $8::text,
         ended_at = CASE WHEN $8::text = 'running' THEN NULL ELSE ",
    now!(),
    " END
     WHERE id = $1 AND position = $2 AND next_at = $3 AND state = 'running' RETURNING id"
);
pub(super) const LETTERS: &str = "
    SELECT d.id, p.name, d.partition, d.grp, d.failed_at, d.error, d.record
    FROM skep_queue_dead d
    CROSS JOIN LATERAL (SELECT name FROM skep_queue_partitions WHERE id = d.partition LIMIT 1) p
    WHERE d.queue = $1 AND d.id > $2 AND d.id <= $3 ORDER BY d.queue, d.id LIMIT $4";
pub(super) const FORGET: &str = "
    WITH gone AS (
        DELETE FROM skep_queue_redrives WHERE id = ANY(ARRAY(
            SELECT id FROM skep_queue_redrives WHERE ended_at IS NOT NULL AND ended_at < $1
            ORDER BY ended_at LIMIT $2))
        RETURNING 1)
    SELECT count(*) FROM gone";

impl PostgresQueues {
    /// Begins to move dead letters.
    pub async fn make_redrive(&self, wish: MakeRedrive) -> Result<Option<Redrive>, StoreError> {
        let (queue, by, target) = (&*wish.queue, &*wish.by, wish.target.as_deref());
        let (filter, rate) = (filter_text(&wish.filter), wish.rate.map(i64::from));
        let rows = self.shared.ask(MAKE, &[&queue, &filter, &target, &rate, &by]).await?;
        rows.first().map(redrive).transpose()
    }

    /// A redrive by its number.
    pub async fn redrive(&self, id: i64) -> Result<Option<Redrive>, StoreError> {
        let rows = self.shared.ask(BY_ID, &[&id]).await?;
        rows.first().map(redrive).transpose()
    }

    /// Redrives, newest first.
    pub async fn redrives(
        &self,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Redrive>, StoreError> {
        let before = before.unwrap_or(i64::MAX);
        let rows = self.shared.ask(LIST, &[&before, &i64::from(limit)]).await?;
        Ok(rows.iter().filter_map(|row| readable(redrive(row))).collect())
    }

    /// Stops a redrive that runs.
    pub async fn stop_redrive(&self, id: i64) -> Result<Option<Redrive>, StoreError> {
        match self.shared.ask(STOP, &[&id]).await?.first() {
            Some(row) => redrive(row).map(Some),
            None => self.redrive(id).await,
        }
    }

    /// Redrives that go on at `now` or before.
    pub async fn due_redrives(&self, now: Time, limit: u32) -> Result<Vec<Redrive>, StoreError> {
        let rows = self.shared.ask(DUE, &[&micros(now), &i64::from(limit)]).await?;
        Ok(rows.iter().filter_map(|row| readable(redrive(row))).collect())
    }

    /// Dead letters of a queue by their numbers.
    pub(in crate::store) async fn dead_after(
        &self,
        queue: QueueId,
        after: i64,
        upto: i64,
        limit: u32,
    ) -> Result<Vec<RedriveLetter>, StoreError> {
        let limit = i64::from(limit);
        let rows = self.shared.ask(LETTERS, &[&queue.0, &after, &upto, &limit]).await?;
        Ok(rows.iter().map(letter).collect())
    }

    /// Moves a running redrive on.
    pub async fn progress_redrive(
        &self,
        id: i64,
        was: RedriveMark,
        done: RedriveProgress,
    ) -> Result<bool, StoreError> {
        let (was_at, next_at) = (micros(was.next_at), micros(done.mark.next_at));
        let (moved, skipped) = (signed(done.moved), signed(done.skipped));
        let state = done.state.text();
        let values: [&(dyn ToSql + Sync); 8] =
            [&id, &was.position, &was_at, &done.mark.position, &next_at, &moved, &skipped, &state];
        Ok(!self.shared.ask(PROGRESS, &values).await?.is_empty())
    }

    /// Forgets redrives that ended before a time.
    pub async fn forget_redrives(&self, before: Time, limit: u32) -> Result<u64, StoreError> {
        let rows = self.shared.ask(FORGET, &[&micros(before), &i64::from(limit)]).await?;
        Ok(rows.first().map_or(0, |row| unsigned(row.get(0))))
    }
}

fn redrive(row: &Row) -> Result<Redrive, StoreError> {
    let id = row.get(0);
    let rate: Option<i64> = row.get(5);
    Ok(Redrive {
        id,
        queue: QueueId(row.get(1)),
        queue_name: Arc::from(row.get::<_, &str>(2)),
        filter: read_filter(id, row.get(3))?,
        target: row.get::<_, Option<&str>>(4).map(Arc::from),
        rate: rate.map(|rate| u32::try_from(rate).unwrap_or(u32::MAX)),
        moved: unsigned(row.get(6)),
        skipped: unsigned(row.get(7)),
        state: RedriveState::of(row.get(8)),
        mark: RedriveMark { next_at: time(row.get(9)), position: row.get(10) },
        upto: row.get(11),
        created_at: time(row.get(12)),
        created_by: Arc::from(row.get::<_, &str>(13)),
        ended_at: row.get::<_, Option<i64>>(14).map(time),
    })
}

fn letter(row: &Row) -> RedriveLetter {
    RedriveLetter {
        id: row.get(0),
        partition: Arc::from(row.get::<_, &str>(1)),
        partition_id: PartitionId(row.get(2)),
        group: Arc::from(row.get::<_, &str>(3)),
        failed_at: time(row.get(4)),
        error: row.get::<_, Option<&str>>(5).map(Arc::from),
        record: Bytes::copy_from_slice(row.get::<_, &[u8]>(6)),
    }
}
