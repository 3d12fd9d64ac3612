//! What consumers tell about messages while they work on them.

use super::SqliteQueues;
use super::clock::{micros, time, unsigned};
use super::work::Work;
use crate::ids::PartitionId;
use crate::record::print_of;
use crate::store::traces::{NewTrace, TRACES_MAX, Trace, TraceName};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

macro_rules! columns {
    () => {
        "t.id, t.partition, t.transaction_id, t.grp, t.event_type, t.data, t.worker, t.created_at "
    };
}

const WRITE: &str = "INSERT INTO skep_queue_traces
    (partition, print, transaction_id, grp, event_type, worker, created_at, data)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const WRITE_NAME: &str =
    "INSERT INTO skep_queue_trace_names (name, trace, created_at) VALUES (?1, ?2, ?3)";
pub(super) const OF_MESSAGE: &str = concat!(
    "SELECT ",
    columns!(),
    "FROM skep_queue_traces t WHERE t.partition = ?1 AND t.print = ?2 AND t.transaction_id = ?3
     ORDER BY t.id LIMIT ?4"
);
pub(super) const NAMED: &str = concat!(
    "SELECT ",
    columns!(),
    "FROM skep_queue_trace_names n CROSS JOIN skep_queue_traces t ON t.id = n.trace
     WHERE n.name = ?1 AND n.trace < ?2 ORDER BY n.trace DESC LIMIT ?3"
);
pub(super) const NAMES_OF: &str =
    "SELECT name FROM skep_queue_trace_names WHERE trace = ?1 ORDER BY name";
/// The traces of a name are passed over, not walked: there may be many.
pub(super) const NEXT_NAME: &str =
    "SELECT name FROM skep_queue_trace_names WHERE name > ?1 ORDER BY name LIMIT 1";
pub(super) const COUNT: &str = "SELECT count(*) FROM
    (SELECT 1 FROM skep_queue_trace_names WHERE name = ?1 LIMIT ?2)";
pub(super) const LAST: &str = "SELECT created_at FROM skep_queue_trace_names
    WHERE name = ?1 ORDER BY trace DESC LIMIT 1";
/// Numbers rise with time, so the oldest are the first.
pub(super) const OLD: &str =
    "SELECT id, created_at FROM skep_queue_traces WHERE id > 0 ORDER BY id LIMIT ?1";
pub(super) const FORGET_NAMES: &str = "DELETE FROM skep_queue_trace_names WHERE trace = ?1";
pub(super) const FORGET: &str = "DELETE FROM skep_queue_traces WHERE id = ?1";

impl SqliteQueues {
    /// Keeps a trace.
    pub(in crate::store) async fn write_trace(&self, trace: NewTrace) -> Result<i64, StoreError> {
        Ok(self.write(move |work| Ok(write(work, &trace)?)).await?.0)
    }

    /// Traces of a message, oldest first.
    pub(in crate::store) async fn traces_of(
        &self,
        partition: PartitionId,
        transaction: &str,
        limit: u32,
    ) -> Result<Vec<Trace>, StoreError> {
        let transaction = transaction.to_owned();
        let read = move |db: &Connection| {
            let print = print_of(&transaction).cast_signed();
            let values = params![partition.0, print, transaction, limit];
            Ok::<_, StoreError>(many(db, OF_MESSAGE, values)?)
        };
        self.sqlite.read(read).await
    }

    /// Traces of a name, newest first.
    pub(in crate::store) async fn traces_named(
        &self,
        name: &str,
        before: i64,
        limit: u32,
    ) -> Result<Vec<Trace>, StoreError> {
        let name = name.to_owned();
        self.sqlite.read(move |db| Ok(many(db, NAMED, params![name, before, limit])?)).await
    }

    /// Names after `after`.
    pub(in crate::store) async fn trace_names(
        &self,
        after: &str,
        limit: u32,
    ) -> Result<Vec<TraceName>, StoreError> {
        let after = after.to_owned();
        self.sqlite.read(move |db| Ok(names(db, after, limit)?)).await
    }

    /// Forgets the oldest traces.
    pub(in crate::store) async fn forget_traces(
        &self,
        before: Time,
        limit: u32,
    ) -> Result<u64, StoreError> {
        Ok(self.write(move |work| Ok(forget(work, micros(before), limit)?)).await?.0)
    }
}

fn write(work: &mut Work<'_>, trace: &NewTrace) -> rusqlite::Result<i64> {
    let now = micros(work.now);
    work.db.prepare_cached(WRITE)?.execute(params![
        trace.partition.0,
        print_of(&trace.transaction).cast_signed(),
        trace.transaction,
        trace.group,
        trace.event_type,
        trace.worker,
        now,
        trace.data,
    ])?;
    let id = work.db.last_insert_rowid();
    let mut write = work.db.prepare_cached(WRITE_NAME)?;
    for name in &trace.names {
        write.execute(params![name, id, now])?;
    }
    work.wrote();
    Ok(id)
}

fn many(db: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<Vec<Trace>> {
    let mut found = db.prepare_cached(sql)?;
    let mut traces = found.query_map(values, trace)?.collect::<rusqlite::Result<Vec<Trace>>>()?;
    let mut names = db.prepare_cached(NAMES_OF)?;
    for trace in &mut traces {
        let found = names.query_map([trace.id], |row| row.get(0))?;
        trace.names = found.collect::<rusqlite::Result<_>>()?;
    }
    Ok(traces)
}

fn trace(row: &Row<'_>) -> rusqlite::Result<Trace> {
    Ok(Trace {
        id: row.get(0)?,
        partition: PartitionId(row.get(1)?),
        transaction: row.get(2)?,
        group: row.get(3)?,
        event_type: row.get(4)?,
        data: row.get(5)?,
        worker: row.get(6)?,
        names: Vec::new(),
        created_at: time(row.get(7)?),
    })
}

fn names(db: &Connection, after: String, limit: u32) -> rusqlite::Result<Vec<TraceName>> {
    let (mut next, mut count) = (db.prepare_cached(NEXT_NAME)?, db.prepare_cached(COUNT)?);
    let mut last = db.prepare_cached(LAST)?;
    let (mut names, mut after): (Vec<TraceName>, Arc<str>) = (Vec::new(), after.into());
    while names.len() < limit as usize {
        let found = next.query_row([&after], |row| row.get(0)).optional()?;
        let Some(name): Option<Arc<str>> = found else { break };
        names.push(TraceName {
            count: unsigned(count.query_row(params![name, TRACES_MAX], |row| row.get(0))?),
            last_at: time(last.query_row([&name], |row| row.get(0))?),
            name: name.clone(),
        });
        after = name;
    }
    Ok(names)
}

fn forget(work: &mut Work<'_>, before: i64, limit: u32) -> rusqlite::Result<u64> {
    let mut old = work.db.prepare_cached(OLD)?;
    let old = old.query_map([limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let old = old.collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
    let (mut names, mut traces) =
        (work.db.prepare_cached(FORGET_NAMES)?, work.db.prepare_cached(FORGET)?);
    let mut gone = 0;
    for (id, _) in old.iter().take_while(|(_, told)| *told < before) {
        names.execute([id])?;
        traces.execute([id])?;
        gone += 1;
    }
    if gone > 0 {
        work.wrote();
    }
    Ok(gone)
}
