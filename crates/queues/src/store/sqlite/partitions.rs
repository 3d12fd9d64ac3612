//! Partitions of a queue, kinds of queues, and the sums of everything.

use super::SqliteQueues;
use super::clock::unsigned;
use super::rows::{self, PartitionRow};
use super::segments::run_from;
use crate::ids::{GroupId, PartitionId, QueueId};
use crate::store::partitions::{KINDS_MAX, LANES_MAX, after_all};
use crate::store::{Kind, Overview, PartitionLane};
use rusqlite::{Connection, Row, params};
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

impl SqliteQueues {
    /// A page of a queue's partitions.
    pub(in crate::store) async fn partitions(
        &self,
        queue: &str,
        after: Option<PartitionId>,
        name_prefix: Option<&str>,
        limit: u32,
    ) -> Result<Vec<crate::store::PartitionRow>, StoreError> {
        let (queue, prefix, now) = (queue.to_owned(), name_prefix.map(str::to_owned), self.now());
        let read = move |db: &Connection| {
            let Some(queue) = rows::queue_by_name(db, &queue)? else { return Ok(Vec::new()) };
            let id = queue.info.id;
            let page = match &prefix {
                Some(prefix) => beginning_with(db, id, prefix, after, limit)?,
                None => rows::partitions_after(db, id, after.unwrap_or(PartitionId(0)), limit)?,
            };
            let groups = groups(db, id)?;
            let told = page.into_iter().map(|(id, row)| tell(db, id, row, &groups, now));
            Ok::<_, StoreError>(told.collect::<rusqlite::Result<_>>()?)
        };
        self.sqlite.read(read).await
    }

    /// Namespaces with their queues.
    pub async fn namespaces(&self) -> Result<Vec<Kind>, StoreError> {
        self.sqlite.read(|db| Ok(kinds(db, NAMESPACES)?)).await
    }

    /// Tasks with their queues.
    pub async fn tasks(&self) -> Result<Vec<Kind>, StoreError> {
        self.sqlite.read(|db| Ok(kinds(db, TASKS)?)).await
    }

    /// The sums of everything.
    pub async fn overview(&self) -> Result<Overview, StoreError> {
        let read = |db: &Connection| {
            let sums = db.prepare_cached(SUMS)?.query_row([], |row| {
                let number = |place: usize| row.get::<_, i64>(place).map(unsigned);
                Ok(Overview {
                    queues: number(0)?,
                    partitions: number(1)?,
                    messages: number(2)?,
                    pending: number(3)?,
                    dead: number(4)?,
                    groups: number(5)?,
                    later: number(6)?,
                })
            });
            Ok::<_, StoreError>(sums?)
        };
        self.sqlite.read(read).await
    }
}

/// Those whose names begin with `prefix`, by name, after that of `after`.
fn beginning_with(
    db: &Connection,
    queue: QueueId,
    prefix: &str,
    after: Option<PartitionId>,
    limit: u32,
) -> rusqlite::Result<Vec<(PartitionId, PartitionRow)>> {
    let after = match after {
        Some(id) => rows::partition_by_id(db, id)?.map(|(_, row)| (row.name, row.level)),
        None => None,
    };
    let end = after_all(prefix);
    let after = after.as_ref().map(|(name, level)| (&**name, *level));
    rows::partitions_named(db, queue, prefix, after, end.as_deref(), limit)
}

fn groups(db: &Connection, queue: QueueId) -> rusqlite::Result<Vec<(GroupId, Arc<str>)>> {
    let mut select = db.prepare_cached(super::browse::GROUPS)?;
    let group = |row: &Row<'_>| Ok((GroupId(row.get(0)?), row.get(1)?));
    select.query_map([queue.0, i64::from(LANES_MAX)], group)?.collect()
}

fn tell(
    db: &Connection,
    id: PartitionId,
    row: PartitionRow,
    groups: &[(GroupId, Arc<str>)],
    now: Time,
) -> rusqlite::Result<crate::store::PartitionRow> {
    let removed = run_from(db, id, 1)?.map_or(row.tail, |run| run.first - 1);
    let mut lanes = Vec::new();
    for (group, name) in groups {
        lanes.extend(rows::lane(db, id, *group)?.map(|found| PartitionLane {
            group: name.clone(),
            pending: row.tail - found.lane.cursor.max(removed).min(row.tail),
            leased_until: found.lane.live_lease(now).map(|lease| lease.until),
        }));
    }
    Ok(crate::store::PartitionRow {
        id,
        name: row.name,
        level: row.level,
        pushed: row.tail,
        kept: row.tail - removed,
        last_push: (row.tail > 0).then_some(row.last_push),
        created_at: row.created_at,
        lanes,
    })
}

fn kinds(db: &Connection, sql: &str) -> rusqlite::Result<Vec<Kind>> {
    let kind = |row: &Row<'_>| Ok(Kind { name: row.get(0)?, queues: unsigned(row.get(1)?) });
    db.prepare_cached(sql)?.query_map(params![KINDS_MAX], kind)?.collect()
}

pub(super) const NAMESPACES: &str = "SELECT namespace, count(*) FROM skep_queues
    WHERE deleted = 0 GROUP BY namespace ORDER BY namespace LIMIT ?1";
pub(super) const TASKS: &str = "SELECT task, count(*) FROM skep_queues
    WHERE deleted = 0 GROUP BY task ORDER BY task LIMIT ?1";
/// Sums of sums: a row for each queue, and for each of its groups.
const SUMS: &str = "SELECT count(*), coalesce(sum(q.partitions), 0),
        coalesce(sum(q.pushed - q.removed), 0),
        coalesce(sum(max(q.pushed - max(coalesce(g.settled, 0), q.removed), 0)), 0),
        coalesce(sum(q.dead), 0), coalesce(sum(g.count), 0), coalesce(sum(q.later), 0)
    FROM skep_queues q
    LEFT JOIN (SELECT queue, min(settled) AS settled, count(*) AS count FROM skep_queue_groups
               WHERE deleted = 0 GROUP BY queue) g ON g.queue = q.id
    WHERE q.deleted = 0";
