//! What happened in queues, by the minute.

use super::PostgresQueues;
use super::rows::{signed, unsigned};
use crate::ids::QueueId;
use crate::store::stats::{StatCounts, StatPoint, StatRows, minute_start};
use skep_store::StoreError;
use std::collections::HashMap;
use tokio_postgres::types::ToSql;

pub(super) const ADD: &str = "
    INSERT INTO skep_queue_stats AS s
        (queue, minute, pushed, bytes, popped, acked, failed, dead, expired, pending_max)
    SELECT coalesce(q.id, 0), n.minute, n.pushed, n.bytes, n.popped, n.acked, n.failed, n.dead,
           n.expired, n.pending_max
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
             AS n (name, minute, pushed, bytes, popped, acked, failed, dead, expired, pending_max)
    LEFT JOIN LATERAL (SELECT id FROM skep_queues WHERE name = n.name AND NOT deleted LIMIT 1) q
        ON TRUE
    WHERE n.name IS NULL OR q.id IS NOT NULL
    ORDER BY 1, 2
    ON CONFLICT (queue, minute) DO UPDATE SET
        pushed = s.pushed + excluded.pushed, bytes = s.bytes + excluded.bytes,
        popped = s.popped + excluded.popped, acked = s.acked + excluded.acked,
        failed = s.failed + excluded.failed, dead = s.dead + excluded.dead,
        expired = s.expired + excluded.expired,
        pending_max = greatest(s.pending_max, excluded.pending_max)";
pub(super) const RANGE: &str = "
    SELECT minute / $4 * $4, sum(pushed)::bigint, sum(bytes)::bigint, sum(popped)::bigint,
           sum(acked)::bigint, sum(failed)::bigint, sum(dead)::bigint, sum(expired)::bigint,
           max(pending_max)
    FROM skep_queue_stats WHERE queue = $1 AND minute >= $2 AND minute < $3
    GROUP BY 1 ORDER BY 1";
pub(super) const MINUTE: &str = "
    SELECT queue, pushed, bytes, popped, acked, failed, dead, expired, pending_max
    FROM skep_queue_stats WHERE queue = ANY($1) AND minute = $2";
pub(super) const QUEUE: &str = "SELECT id FROM skep_queues WHERE name = $1 AND NOT deleted";
pub(super) const FORGET: &str = "
    WITH gone AS (
        DELETE FROM skep_queue_stats s WHERE s.ctid = ANY(ARRAY(
            SELECT o.ctid FROM skep_queue_stats o WHERE o.minute < $1 ORDER BY o.minute LIMIT $2
            FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone";

impl PostgresQueues {
    /// Adds to what is known.
    pub(in crate::store) async fn add_stats(&self, rows: StatRows) -> Result<(), StoreError> {
        let names: Vec<Option<&str>> = rows.keys().map(|(name, _)| name.as_deref()).collect();
        let minutes: Vec<i64> = rows.keys().map(|(_, minute)| signed(*minute)).collect();
        let mut sums: [Vec<i64>; 7] = Default::default();
        for counts in rows.values() {
            for (column, sum) in sums.iter_mut().zip(counts.sums()) {
                column.push(signed(sum));
            }
        }
        let pending: Vec<i64> = rows.values().map(|counts| signed(counts.pending_max)).collect();
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&names, &minutes];
        values.extend(sums.iter().map(|column| column as &(dyn ToSql + Sync)));
        values.push(&pending);
        self.shared.ask(ADD, &values).await?;
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
        let queue: i64 = match queue {
            None => 0,
            Some(name) => match self.shared.ask(QUEUE, &[&name]).await?.first() {
                Some(row) => row.get(0),
                None => return Ok(Vec::new()),
            },
        };
        let values: [&(dyn ToSql + Sync); 4] =
            [&queue, &signed(from), &signed(to), &signed(bucket)];
        let rows = self.shared.ask(RANGE, &values).await?;
        let point = |row: &tokio_postgres::Row| StatPoint {
            from: minute_start(unsigned(row.get(0))),
            counts: StatCounts::of_columns(|place| unsigned(row.get(place + 1))),
        };
        Ok(rows.iter().map(point).collect())
    }

    /// What happened in one minute in each of these queues.
    pub(in crate::store) async fn minute_stats(
        &self,
        minute: u64,
        queues: &[QueueId],
    ) -> Result<HashMap<QueueId, StatCounts>, StoreError> {
        let queues: Vec<i64> = queues.iter().map(|queue| queue.0).collect();
        let rows = self.shared.ask(MINUTE, &[&queues, &signed(minute)]).await?;
        let counts = |row: &tokio_postgres::Row| {
            let counts = StatCounts::of_columns(|place| unsigned(row.get(place + 1)));
            (QueueId(row.get(0)), counts)
        };
        Ok(rows.iter().map(counts).collect())
    }

    /// Forgets minutes before `before`.
    pub(in crate::store) async fn forget_stats(
        &self,
        before: u64,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let rows = self.shared.ask(FORGET, &[&signed(before), &i64::from(limit)]).await?;
        Ok(rows.first().map_or(0, |row| unsigned(row.get(0))))
    }
}
