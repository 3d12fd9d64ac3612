//! What consumers tell about messages while they work on them.

use super::PostgresQueues;
use super::rows::{micros, time, unsigned};
use crate::ids::PartitionId;
use crate::record::print_of;
use crate::store::traces::{NewTrace, TRACES_MAX, Trace, TraceName};
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

macro_rules! columns {
    () => {
        "t.id, t.partition, t.transaction_id, t.grp, t.event_type, t.data, t.worker, t.created_at,
         ARRAY(SELECT m.name FROM skep_queue_trace_names m WHERE m.trace = t.id ORDER BY m.name) "
    };
}

pub(super) const WRITE: &str = "
    WITH new AS (
        INSERT INTO skep_queue_traces
            (partition, print, transaction_id, grp, event_type, worker, created_at, data)
        VALUES ($1, $2, $3, $4, $5, $6,
                (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $7)
        RETURNING id, created_at),
    named AS (
        INSERT INTO skep_queue_trace_names (name, trace, created_at)
        SELECT m.name, new.id, new.created_at FROM new, unnest($8::text[]) AS m (name))
    SELECT id FROM new";
pub(super) const OF_MESSAGE: &str = concat!(
    "SELECT ",
    columns!(),
    "FROM skep_queue_traces t WHERE t.partition = $1 AND t.print = $2 AND t.transaction_id = $3
     ORDER BY t.partition, t.print, t.id LIMIT $4"
);
pub(super) const NAMED: &str = concat!(
    "SELECT ",
    columns!(),
    "FROM skep_queue_trace_names n
     CROSS JOIN LATERAL (SELECT * FROM skep_queue_traces WHERE id = n.trace LIMIT 1) t
     WHERE n.name = $1 AND n.trace < $2 ORDER BY n.name DESC, n.trace DESC LIMIT $3"
);
/// From name to name: the traces of one are passed over, not walked, because there may be many.
pub(super) const NAMES: &str = "
    WITH RECURSIVE walk (name, place) AS (
        (SELECT name, 1::bigint FROM skep_queue_trace_names WHERE name > $1 ORDER BY name LIMIT 1)
        UNION ALL
        SELECT next.name, w.place + 1
        FROM walk w
        CROSS JOIN LATERAL (
            SELECT n.name FROM skep_queue_trace_names n WHERE n.name > w.name
            ORDER BY n.name LIMIT 1) next
        WHERE w.place < $2)
    SELECT w.name,
           (SELECT count(*) FROM (SELECT 1 FROM skep_queue_trace_names c
                                  WHERE c.name = w.name LIMIT $3) few),
           (SELECT l.created_at FROM skep_queue_trace_names l WHERE l.name = w.name
            ORDER BY l.name DESC, l.trace DESC LIMIT 1)
    FROM walk w WHERE w.place <= $2 ORDER BY w.place";
/// Numbers rise with time, so the oldest are the first.
pub(super) const FORGET: &str = "
    WITH old AS MATERIALIZED (
        SELECT id FROM (SELECT id, created_at FROM skep_queue_traces ORDER BY id LIMIT $2) first
        WHERE created_at < $1),
    names AS (
        DELETE FROM skep_queue_trace_names WHERE trace = ANY(ARRAY(SELECT id FROM old))),
    gone AS (
        DELETE FROM skep_queue_traces WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING 1)
    SELECT count(*) FROM gone";

impl PostgresQueues {
    /// Keeps a trace.
    pub(in crate::store) async fn write_trace(&self, trace: NewTrace) -> Result<i64, StoreError> {
        let print = print_of(&trace.transaction).cast_signed();
        let (group, worker) = (trace.group.as_deref(), trace.worker.as_deref());
        let names: Vec<&str> = trace.names.iter().map(|name| &**name).collect();
        let values: [&(dyn ToSql + Sync); 8] = [
            &trace.partition.0,
            &print,
            &&*trace.transaction,
            &group,
            &&*trace.event_type,
            &worker,
            &&*trace.data,
            &names,
        ];
        let rows = self.shared.ask(WRITE, &values).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    /// Traces of a message, oldest first.
    pub(in crate::store) async fn traces_of(
        &self,
        partition: PartitionId,
        transaction: &str,
        limit: u32,
    ) -> Result<Vec<Trace>, StoreError> {
        let (print, limit) = (print_of(transaction).cast_signed(), i64::from(limit));
        let values: [&(dyn ToSql + Sync); 4] = [&partition.0, &print, &transaction, &limit];
        Ok(self.shared.ask(OF_MESSAGE, &values).await?.iter().map(trace).collect())
    }

    /// Traces of a name, newest first.
    pub(in crate::store) async fn traces_named(
        &self,
        name: &str,
        before: i64,
        limit: u32,
    ) -> Result<Vec<Trace>, StoreError> {
        let rows = self.shared.ask(NAMED, &[&name, &before, &i64::from(limit)]).await?;
        Ok(rows.iter().map(trace).collect())
    }

    /// Names after `after`.
    pub(in crate::store) async fn trace_names(
        &self,
        after: &str,
        limit: u32,
    ) -> Result<Vec<TraceName>, StoreError> {
        let (limit, most) = (i64::from(limit), i64::from(TRACES_MAX));
        let rows = self.shared.ask(NAMES, &[&after, &limit, &most]).await?;
        let name = |row: &Row| TraceName {
            name: Arc::from(row.get::<_, &str>(0)),
            count: unsigned(row.get(1)),
            last_at: time(row.get::<_, Option<i64>>(2).unwrap_or(0)),
        };
        Ok(rows.iter().map(name).collect())
    }

    /// Forgets the oldest traces.
    pub(in crate::store) async fn forget_traces(
        &self,
        before: Time,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let rows = self.shared.ask(FORGET, &[&micros(before), &i64::from(limit)]).await?;
        Ok(rows.first().map_or(0, |row| unsigned(row.get(0))))
    }
}

fn trace(row: &Row) -> Trace {
    let text = |column: usize| row.get::<_, Option<&str>>(column).map(Arc::from);
    Trace {
        id: row.get(0),
        partition: PartitionId(row.get(1)),
        transaction: text(2).unwrap_or_default(),
        group: text(3),
        event_type: text(4).unwrap_or_default(),
        data: text(5).unwrap_or_default(),
        worker: text(6),
        names: row.get::<_, Vec<&str>>(8).into_iter().map(Arc::from).collect(),
        created_at: time(row.get(7)),
    }
}
