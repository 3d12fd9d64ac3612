//! Making queues and looking at them.

use super::limits::LOCK_QUEUE;
use super::link::{Call, Fail, Link, Values};
use super::names::{self, QUEUE_COLUMNS, Queue, ages, kind_of, options_text, queue_columns};
use super::rows::{level, time, unsigned};
use super::write::{COUNTS, SumColumns, Sums};
use super::{PostgresQueues, Shared};
use crate::ids::PartitionId;
use crate::options::QueueOptions;
use crate::store::{
    Configure, Configured, DEFAULT_PARTITION, GroupInfo, PartitionInfo, QueueDetail, QueueInfo,
    QueueSummary,
};
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;

const MAKE: &str = "
    INSERT INTO skep_queues (name, namespace, task, options, priority, ages, created_at)
    VALUES ($1, $2, $3, $4, 0, FALSE, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT (name) WHERE NOT deleted DO NOTHING";
const LOCK: &str = concat!(
    "SELECT ",
    queue_columns!(),
    " FROM skep_queues q WHERE q.name = $1 AND NOT q.deleted FOR UPDATE"
);
const CHANGE: &str = concat!(
    "UPDATE skep_queues q SET namespace = $2, task = $3, options = $4, priority = $5, ages = $6
     WHERE q.id = $1 RETURNING ",
    queue_columns!()
);
const DEFAULT: &str = "
    INSERT INTO skep_queue_partitions (queue, name, tail, last_push, created_at)
    VALUES ($1, $2, 0, 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT (queue, name, level) DO NOTHING RETURNING id";
const FIND_DEFAULT: &str = "
    SELECT id FROM skep_queue_partitions WHERE queue = $1 AND name = $2 AND level = 0";
const QUEUE: &str =
    concat!("SELECT ", queue_columns!(), " FROM skep_queues q WHERE q.name = $1 AND NOT q.deleted");
macro_rules! summary {
    () => {
        concat!(
            "SELECT ",
            queue_columns!(),
            ", coalesce(c.partitions, 0)::bigint, coalesce(c.pushed, 0)::bigint,
             coalesce(c.removed, 0)::bigint, coalesce(c.dead, 0)::bigint,
             coalesce(c.later, 0)::bigint,
             (SELECT min(coalesce((SELECT sum(n.settled) FROM skep_queue_group_counts n
                                   WHERE n.grp = g.id), 0))
              FROM skep_queue_groups g WHERE g.queue = q.id AND NOT g.deleted)::bigint
             FROM skep_queues q
             LEFT JOIN LATERAL (
                 SELECT sum(partitions) AS partitions, sum(pushed) AS pushed,
                        sum(removed) AS removed, sum(dead) AS dead, sum(later) AS later
                 FROM skep_queue_counts WHERE queue = q.id) c ON TRUE "
        )
    };
}
const SUMMARIES: &str = concat!(
    summary!(),
    "WHERE NOT q.deleted AND ($1::text IS NULL OR q.name > $1) ORDER BY q.name LIMIT $2"
);
const SUMMARY: &str = concat!(summary!(), "WHERE q.name = $1 AND NOT q.deleted");
const PARTITIONS: &str = "
    SELECT id, name, tail, last_push, created_at, level FROM skep_queue_partitions
    WHERE queue = $1 ORDER BY queue, id LIMIT $2";
const GROUPS: &str = "
    SELECT g.name, g.created_at,
           coalesce((SELECT sum(n.settled) FROM skep_queue_group_counts n
                     WHERE n.grp = g.id), 0)::bigint,
           (SELECT count(*) FROM skep_queue_lanes l
            WHERE l.grp = g.id AND l.lease IS NOT NULL
              AND l.lease_until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    FROM skep_queue_groups g WHERE g.queue = $1 AND NOT g.deleted ORDER BY g.name";
impl PostgresQueues {
    /// Makes a queue with its default partition, or changes one.
    pub async fn configure(&self, wish: Configure) -> Result<Configured, StoreError> {
        let shared = &*self.shared;
        let mut tries = 0;
        loop {
            let mut link = shared.links.link().await?;
            let configure = shared.configure(&mut link, &wish);
            let once = shared.links.postgres.limit(configure).await;
            let done = shared.links.end(link, once, &mut tries).await?;
            let Some((before, queue, partition)) = done else { continue };
            if before.limits != queue.limits {
                shared.reset_limits(&queue).await?;
            }
            return Ok(Configured { queue: queue.info.clone(), partition });
        }
    }

    /// A queue by its name.
    pub async fn queue(&self, name: &str) -> Result<Option<QueueInfo>, StoreError> {
        let rows = self.shared.ask(QUEUE, &[&name]).await?;
        Ok(rows.first().map(|row| self.shared.names.queue(row, 0).info.clone()))
    }

    /// Queues by name, those after `after`.
    pub async fn queues(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<QueueSummary>, StoreError> {
        let rows = self.shared.ask(SUMMARIES, &[&after, &i64::from(limit)]).await?;
        Ok(rows.iter().map(|row| self.shared.summary(row).0).collect())
    }

    /// A queue, with at most so many of its partitions.
    pub async fn show(
        &self,
        name: &str,
        partitions: u32,
    ) -> Result<Option<QueueDetail>, StoreError> {
        let shared = &*self.shared;
        let rows = shared.ask(SUMMARY, &[&name]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (summary, pushed) = shared.summary(row);
        let id = summary.queue.id.0;
        let partition = |row: &Row| PartitionInfo {
            id: PartitionId(row.get(0)),
            name: row.get::<_, &str>(1).into(),
            level: level(row.get(5)),
            tail: unsigned(row.get(2)),
            last_push: Some(row.get::<_, i64>(3)).filter(|push| *push > 0).map(time),
            created_at: time(row.get(4)),
        };
        let partitions = shared.ask(PARTITIONS, &[&id, &i64::from(partitions)]).await?;
        let group = |row: &Row| GroupInfo {
            name: row.get::<_, &str>(0).into(),
            pending: unsigned(pushed - row.get::<_, i64>(2)).min(summary.total),
            leased: unsigned(row.get(3)),
            created_at: time(row.get(1)),
        };
        let groups = shared.ask(GROUPS, &[&id]).await?.iter().map(group).collect();
        let partitions = partitions.iter().map(partition).collect();
        Ok(Some(QueueDetail { summary, partitions, groups }))
    }
}

impl Shared {
    /// A query of its own, on a connection of the pool.
    pub(super) async fn ask(
        &self,
        sql: &str,
        values: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let client = self.links.postgres.client().await?;
        let ask = async {
            let statement = client.prepare_cached(sql).await?;
            Ok(client.query(&statement, values).await?)
        };
        self.links.postgres.limit(ask).await
    }

    fn summary(&self, row: &Row) -> (QueueSummary, i64) {
        let queue: Arc<Queue> = self.names.queue(row, 0);
        let column = |place: usize| row.get::<_, i64>(QUEUE_COLUMNS + place);
        let (pushed, removed) = (column(1), column(2));
        let total = unsigned(pushed - removed);
        let settled: i64 = row.get::<_, Option<i64>>(QUEUE_COLUMNS + 5).unwrap_or(0);
        let summary = QueueSummary {
            queue: queue.info.clone(),
            partitions: unsigned(column(0)),
            total,
            pending: unsigned(pushed - settled).min(total),
            dead: unsigned(column(3)),
            later: unsigned(column(4)),
            cleared_at: Some(queue.rules.floor).filter(|floor| *floor > Time::ZERO),
        };
        (summary, pushed)
    }

    /// The queue as it was and as it is, and its default partition.
    async fn configure(
        &self,
        link: &mut Link,
        wish: &Configure,
    ) -> Result<(Arc<Queue>, Arc<Queue>, PartitionId), Fail> {
        let name = &*wish.name;
        let (namespace, task) = kind_of(name);
        let namespace = wish.namespace.as_deref().unwrap_or(namespace);
        let task = wish.task.as_deref().unwrap_or(task);
        let text = options_text(&QueueOptions::default());
        let make = Call::Query(MAKE, vec![&name, &namespace, &task, &text]);
        let answers = link.send(vec![Call::Begin, make, Call::Query(LOCK, vec![&name])]).await?;
        let row = answers.last().and_then(|rows| rows.first()).ok_or(Fail::Stale)?;
        let before = self.names.queue(row, 0);
        let options = (wish.change.0)(&before.info.options);
        let namespace = wish.namespace.as_deref().unwrap_or(&before.info.namespace);
        let task = wish.task.as_deref().unwrap_or(&before.info.task);
        let (text, ages) = (options_text(&options), ages(&options));
        let values: Values<'_> =
            vec![&before.id, &namespace, &task, &text, &options.priority, &ages];
        let answers = link
            .send(vec![
                Call::Query(CHANGE, values),
                Call::Query(DEFAULT, vec![&before.id, &DEFAULT_PARTITION]),
                Call::Query(FIND_DEFAULT, vec![&before.id, &DEFAULT_PARTITION]),
            ])
            .await?;
        let [changed, made, default] = answers.as_slice() else { return Err(Fail::Stale) };
        let partition = default.first().map(|row| row.get(0)).ok_or(Fail::Stale)?;
        let partitions = i64::try_from(made.len()).unwrap_or(0);
        let sums = BTreeMap::from([(before.id, Sums { partitions, ..Sums::default() })]);
        let (slot, columns) = (self.slot(), SumColumns::of(&sums));
        // Who claims with other limits than these has done so by then, or will see these.
        let mut calls = Vec::new();
        if before.limits.is_some() {
            calls.push(Call::Query(LOCK_QUEUE, vec![&before.id]));
        }
        calls.extend([Call::Query(COUNTS, columns.values(&slot)), Call::Commit]);
        link.send(calls).await?;
        let queue = changed.first().map(|row| self.names.queue(row, 0)).ok_or(Fail::Stale)?;
        names::learned(&self.names, &queue, partition);
        Ok((before, queue, PartitionId(partition)))
    }
}
