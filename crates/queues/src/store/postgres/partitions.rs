//! Partitions of a queue, kinds of queues, and the sums of everything.

use super::PostgresQueues;
use super::browse::{GROUPS, LANES, QUEUE};
use super::rows::{level, time, unsigned};
use crate::ids::PartitionId;
use crate::store::partitions::{KINDS_MAX, LANES_MAX, after_all};
use crate::store::{Kind, Overview, PartitionLane, PartitionRow};
use skep_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::Row;

macro_rules! partitions {
    ($which:literal) => {
        concat!(
            "SELECT p.id, p.name, p.tail, p.last_push, p.created_at, p.level,
                    (SELECT s.first FROM skep_queue_segments s
                     WHERE s.partition = p.id AND s.body IS NOT NULL ORDER BY s.first LIMIT 1)
             FROM skep_queue_partitions p WHERE p.queue = $1 AND ",
            $which
        )
    };
}
pub(super) const BY_AGE: &str = partitions!("p.id > $2 ORDER BY p.queue, p.id LIMIT $3");
/// By the letters of their names: from $2 on, after that of $3, before $4.
pub(super) const BY_NAME: &str = partitions!(
    "(p.name COLLATE \"C\") >= $2 AND (p.name COLLATE \"C\") < $4
     AND ((p.name COLLATE \"C\") > coalesce((SELECT a.name COLLATE \"C\"
              FROM skep_queue_partitions a WHERE a.id = $3), '')
          OR EXISTS (SELECT 1 FROM skep_queue_partitions a
                     WHERE a.id = $3 AND a.name = p.name AND a.level < p.level))
     ORDER BY p.queue, (p.name COLLATE \"C\"), p.level LIMIT $5"
);
pub(super) const BY_NAME_TO_THE_END: &str = partitions!(
    "(p.name COLLATE \"C\") >= $2
     AND ((p.name COLLATE \"C\") > coalesce((SELECT a.name COLLATE \"C\"
              FROM skep_queue_partitions a WHERE a.id = $3), '')
          OR EXISTS (SELECT 1 FROM skep_queue_partitions a
                     WHERE a.id = $3 AND a.name = p.name AND a.level < p.level))
     ORDER BY p.queue, (p.name COLLATE \"C\"), p.level LIMIT $4"
);
const NAMESPACES: &str = "
    SELECT namespace, count(*) FROM skep_queues WHERE NOT deleted
    GROUP BY namespace ORDER BY namespace COLLATE \"C\" LIMIT $1";
const TASKS: &str = "
    SELECT task, count(*) FROM skep_queues WHERE NOT deleted
    GROUP BY task ORDER BY task COLLATE \"C\" LIMIT $1";
/// Sums of sums: a few rows for each queue, and for each of its groups.
const SUMS: &str = "
    SELECT count(*), coalesce(sum(c.partitions), 0)::bigint,
           coalesce(sum(greatest(c.pushed - c.removed, 0)), 0)::bigint,
           coalesce(sum(greatest(c.pushed - greatest(coalesce(g.settled, 0), c.removed), 0)),
                    0)::bigint,
           coalesce(sum(c.dead), 0)::bigint, coalesce(sum(g.count), 0)::bigint,
           coalesce(sum(c.later), 0)::bigint
    FROM skep_queues q
    LEFT JOIN (
        SELECT queue, sum(partitions) AS partitions, sum(pushed) AS pushed,
               sum(removed) AS removed, sum(dead) AS dead, sum(later) AS later
        FROM skep_queue_counts GROUP BY queue) c ON c.queue = q.id
    LEFT JOIN (
        SELECT g.queue, count(*) AS count, min(coalesce(n.settled, 0)) AS settled
        FROM skep_queue_groups g
        LEFT JOIN (SELECT grp, sum(settled) AS settled FROM skep_queue_group_counts
                   GROUP BY grp) n ON n.grp = g.id
        WHERE NOT g.deleted GROUP BY g.queue) g ON g.queue = q.id
    WHERE NOT q.deleted";

impl PostgresQueues {
    /// A page of a queue's partitions.
    pub(in crate::store) async fn partitions(
        &self,
        queue: &str,
        after: Option<PartitionId>,
        name_prefix: Option<&str>,
        limit: u32,
    ) -> Result<Vec<PartitionRow>, StoreError> {
        let shared = &*self.shared;
        let rows = shared.ask(QUEUE, &[&queue]).await?;
        let Some(queue) = rows.first().map(|row| row.get::<_, i64>(0)) else {
            return Ok(Vec::new());
        };
        let (after, limit) = (after.map_or(0, |id| id.0), i64::from(limit));
        let page = match name_prefix.map(|prefix| (prefix, after_all(prefix))) {
            None => shared.ask(BY_AGE, &[&queue, &after, &limit]).await?,
            Some((prefix, Some(end))) => {
                shared.ask(BY_NAME, &[&queue, &prefix, &after, &end, &limit]).await?
            }
            Some((prefix, None)) => {
                shared.ask(BY_NAME_TO_THE_END, &[&queue, &prefix, &after, &limit]).await?
            }
        };
        if page.is_empty() {
            return Ok(Vec::new());
        }
        let now = shared.clock().await?;
        let groups = shared.ask(GROUPS, &[&vec![queue], &i64::from(LANES_MAX)]).await?;
        let groups: Vec<(i64, Arc<str>)> =
            groups.iter().map(|row| (row.get(1), row.get::<_, &str>(2).into())).collect();
        let ids: Vec<i64> = page.iter().map(|row| row.get(0)).collect();
        let group_ids: Vec<i64> = groups.iter().map(|group| group.0).collect();
        let mut lanes: HashMap<(i64, i64), (u64, Option<i64>)> = HashMap::new();
        for row in shared.ask(LANES, &[&ids, &group_ids]).await? {
            lanes.insert((row.get(0), row.get(1)), (unsigned(row.get(2)), row.get(3)));
        }
        let tell = |row: &Row| {
            let (id, tail): (i64, u64) = (row.get(0), unsigned(row.get(2)));
            let removed = row.get::<_, Option<i64>>(6).map_or(tail, |first| unsigned(first - 1));
            let lane = |(group, name): &(i64, Arc<str>)| {
                let (cursor, until) = lanes.get(&(id, *group))?;
                Some(PartitionLane {
                    group: name.clone(),
                    pending: tail - (*cursor).max(removed).min(tail),
                    leased_until: until.map(time).filter(|until| *until > now),
                })
            };
            PartitionRow {
                id: PartitionId(id),
                name: row.get::<_, &str>(1).into(),
                level: level(row.get(5)),
                pushed: tail,
                kept: tail - removed,
                last_push: Some(row.get::<_, i64>(3)).filter(|push| *push > 0).map(time),
                created_at: time(row.get(4)),
                lanes: groups.iter().filter_map(lane).collect(),
            }
        };
        Ok(page.iter().map(tell).collect())
    }

    /// Namespaces with their queues.
    pub async fn namespaces(&self) -> Result<Vec<Kind>, StoreError> {
        self.kinds(NAMESPACES).await
    }

    /// Tasks with their queues.
    pub async fn tasks(&self) -> Result<Vec<Kind>, StoreError> {
        self.kinds(TASKS).await
    }

    /// The sums of everything.
    pub async fn overview(&self) -> Result<Overview, StoreError> {
        let rows = self.shared.ask(SUMS, &[]).await?;
        let Some(row) = rows.first() else { return Ok(Overview::default()) };
        let number = |column: usize| unsigned(row.get(column));
        Ok(Overview {
            queues: number(0),
            partitions: number(1),
            messages: number(2),
            pending: number(3),
            dead: number(4),
            groups: number(5),
            later: number(6),
        })
    }

    async fn kinds(&self, sql: &str) -> Result<Vec<Kind>, StoreError> {
        let kind =
            |row: &Row| Kind { name: row.get::<_, &str>(0).into(), queues: unsigned(row.get(1)) };
        Ok(self.shared.ask(sql, &[&i64::from(KINDS_MAX)]).await?.iter().map(kind).collect())
    }
}
