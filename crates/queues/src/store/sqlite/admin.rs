//! Making, looking, moving, deleting.

use super::SqliteQueues;
use super::clock::{micros, unsigned};
use super::limits::{MOVE_GRANTS, limits_changed};
use super::rows::{self, GroupRow, QueueRow};
use super::work::Work;
use crate::ids::{GroupId, PartitionId, QueueId};
use crate::store::{
    Configure, Configured, DEFAULT_PARTITION, GroupInfo, PartitionInfo, QueueDetail, QueueInfo,
    QueueSummary, SeekTo, Sought,
};
use rusqlite::Connection;
use skep_policy::Time;
use skep_policy::queues::Start;
use skep_store::StoreError;
use std::sync::Arc;

impl SqliteQueues {
    /// Makes a queue, or changes one.
    pub async fn configure(&self, wish: Configure) -> Result<Configured, StoreError> {
        let done = self.write(move |work| Ok(configure(work, &wish)?)).await?;
        Ok(done.0)
    }

    /// The queue, if there is one.
    pub async fn queue(&self, name: &str) -> Result<Option<QueueInfo>, StoreError> {
        let name = name.to_owned();
        let read = move |db: &Connection| Ok::<_, StoreError>(rows::queue_by_name(db, &name)?);
        Ok(self.sqlite.read(read).await?.map(|row| row.info))
    }

    /// Queues by their names.
    pub async fn queues(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<QueueSummary>, StoreError> {
        let after = after.map(str::to_owned);
        let read = move |db: &Connection| {
            let found = rows::queues_after(db, after.as_deref(), limit)?;
            let summaries = found.iter().map(|row| summary(db, row));
            Ok::<_, StoreError>(summaries.collect::<rusqlite::Result<_>>()?)
        };
        self.sqlite.read(read).await
    }

    /// One queue with its groups and the first of its partitions.
    pub async fn show(
        &self,
        name: &str,
        partitions: u32,
    ) -> Result<Option<QueueDetail>, StoreError> {
        let (name, now) = (name.to_owned(), self.now());
        let read = move |db: &Connection| {
            let detail = match rows::queue_by_name(db, &name)? {
                Some(row) => Some(detail(db, &row, partitions, now)?),
                None => None,
            };
            Ok::<_, StoreError>(detail)
        };
        self.sqlite.read(read).await
    }

    /// Deletes a queue. Tells whether there was one. Its rows are removed by tidying.
    pub async fn delete_queue(&self, name: &str) -> Result<bool, StoreError> {
        let name: Arc<str> = name.into();
        let delete = move |work: &mut Work<'_>| {
            let Some(queue) = work.queue_named(&name)? else { return Ok(false) };
            let sql = "UPDATE skep_queues SET deleted = 1 WHERE id = ?1";
            work.db.prepare_cached(sql)?.execute([queue.info.id.0])?;
            work.forget_queue(queue.info.id, &name);
            work.wrote();
            Ok(true)
        };
        Ok(self.write(delete).await?.0)
    }

    /// Lets a group go on reading at another place.
    pub async fn seek(
        &self,
        queue: &str,
        group: &str,
        partition: Option<&str>,
        to: SeekTo,
    ) -> Result<Sought, StoreError> {
        let (queue, group) = (Arc::from(queue), Arc::from(group));
        let partition = partition.map(Arc::from);
        let seek = move |work: &mut Work<'_>| match &partition {
            None => Ok(seek_group(work, &queue, &group, to)?),
            Some(partition) => Ok(seek_partition(work, &queue, &group, partition, to)?),
        };
        Ok(self.write(seek).await?.0)
    }
}

fn configure(work: &mut Work<'_>, wish: &Configure) -> rusqlite::Result<Configured> {
    let row = work.queue_or_new(&wish.name)?;
    let partition = work.partition_or_new(row.info.id, &DEFAULT_PARTITION.into(), 0)?.0;
    let options = (wish.change.0)(&row.info.options);
    let mut info = row.info;
    info.options = Arc::new(options);
    if let Some(namespace) = &wish.namespace {
        info.namespace = namespace.clone();
    }
    if let Some(task) = &wish.task {
        info.task = task.clone();
    }
    let rules = rows::rules_of(&info.options, row.rules.floor);
    let limits = rows::limits_of(&info.options);
    if limits != row.limits {
        for (group, _) in rows::groups_of(work.db, info.id)? {
            limits_changed(work, limits.as_deref(), group)?;
        }
    }
    if rules.delay < row.rules.delay || rules.window < row.rules.window {
        look_again(work, info.id)?;
    }
    work.change_queue(info.id, |row| {
        row.rules = rules;
        row.limits = limits;
        row.info = info.clone();
    });
    work.write_messages()?;
    rows::write_settings(work.db, &info)?;
    work.wrote();
    Ok(Configured { queue: info, partition })
}

/// Lanes that wait for a delay that has become shorter are looked at by the next claim.
fn look_again(work: &mut Work<'_>, queue: QueueId) -> rusqlite::Result<()> {
    let now = micros(work.now);
    for (group, _) in rows::groups_of(work.db, queue)? {
        let sql = "UPDATE skep_queue_lanes SET ready_at = ?2, blocked_key = NULL
                   WHERE grp = ?1 AND ready_at IS NOT NULL AND ready_at > ?2
                     AND (lease_until IS NULL OR lease_until <= ?2)";
        work.db.prepare_cached(sql)?.execute([group.0, now])?;
    }
    Ok(())
}

fn summary(db: &Connection, row: &QueueRow) -> rusqlite::Result<QueueSummary> {
    let groups = rows::groups_of(db, row.info.id)?;
    let slowest = groups.iter().map(|(_, group)| pending(row, group.settled)).max();
    Ok(QueueSummary {
        queue: row.info.clone(),
        partitions: row.partitions,
        total: row.pushed.saturating_sub(row.removed),
        pending: slowest.unwrap_or_else(|| row.pushed.saturating_sub(row.removed)),
        dead: row.dead,
        later: row.later,
        cleared_at: Some(row.rules.floor).filter(|floor| *floor > Time::ZERO),
    })
}

pub(super) fn pending(row: &QueueRow, settled: i64) -> u64 {
    row.pushed.saturating_sub(unsigned(settled).max(row.removed))
}

fn detail(
    db: &Connection,
    row: &QueueRow,
    partitions: u32,
    now: Time,
) -> rusqlite::Result<QueueDetail> {
    let first = rows::partitions_after(db, row.info.id, PartitionId(0), partitions)?;
    let first = first.into_iter().map(|(id, partition)| PartitionInfo {
        id,
        name: partition.name,
        level: partition.level,
        tail: partition.tail,
        last_push: (partition.tail > 0).then_some(partition.last_push),
        created_at: partition.created_at,
    });
    let mut groups = Vec::new();
    for (id, group) in rows::groups_of(db, row.info.id)? {
        // A lane that somebody works on is ready when that lease ends.
        let sql = "SELECT count(*) FROM skep_queue_lanes
                   WHERE grp = ?1 AND ready_at IS NOT NULL AND ready_at > ?2 AND lease_until > ?2";
        let mut count = db.prepare_cached(sql)?;
        groups.push(GroupInfo {
            pending: pending(row, group.settled),
            leased: unsigned(count.query_row([id.0, micros(now)], |row| row.get(0))?),
            created_at: group.created_at,
            name: group.name,
        });
    }
    Ok(QueueDetail { summary: summary(db, row)?, partitions: first.collect(), groups })
}

/// The old group leaves its lanes behind and another one takes its name: however many partitions
/// there are, this is two rows.
fn seek_group(
    work: &mut Work<'_>,
    queue: &Arc<str>,
    group: &Arc<str>,
    to: SeekTo,
) -> rusqlite::Result<Sought> {
    let Some(queue) = work.queue_named(queue)? else { return Ok(Sought::NoQueue) };
    let before = work.group_named(queue.info.id, group)?;
    if let Some((id, row)) = &before {
        delete_group(work, *id, row)?;
    }
    // This batch has a time of its own, after every push that was there.
    let start = match to {
        SeekTo::Time(time) => Some(Start::From(time)),
        SeekTo::End => None,
    };
    let (id, _) = work.new_group(&queue, group, start);
    if let Some((before, _)) = before.filter(|_| queue.limits.is_some()) {
        // Reading elsewhere is no way around a rate.
        work.db.prepare_cached(MOVE_GRANTS)?.execute([before.0, id.0])?;
    }
    Ok(Sought::Moved(queue.partitions))
}

fn seek_partition(
    work: &mut Work<'_>,
    queue: &Arc<str>,
    group: &Arc<str>,
    partition: &Arc<str>,
    to: SeekTo,
) -> rusqlite::Result<Sought> {
    let Some(queue) = work.queue_named(queue)? else { return Ok(Sought::NoQueue) };
    let levels = work.partitions_named(&queue, partition)?;
    if levels.is_empty() {
        return Ok(Sought::NoPartition);
    }
    let (group_id, group_row) = match work.group_named(queue.info.id, group)? {
        Some(found) => found,
        None => work.new_group(&queue, group, Some(Start::All)),
    };
    let moved = levels.len() as u64;
    for (id, row) in levels {
        let cursor = match to {
            SeekTo::End => row.tail,
            SeekTo::Time(time) => work.pushed_before(id, &row, time)?,
        };
        work.move_lane(&queue, (id, &row), (group_id, &group_row), cursor)?;
    }
    Ok(Sought::Moved(moved))
}

/// Nobody sees the group any more; its lanes are removed by tidying, from the newest partition on.
pub(super) fn delete_group(
    work: &mut Work<'_>,
    id: GroupId,
    row: &GroupRow,
) -> rusqlite::Result<()> {
    let sql = "UPDATE skep_queue_groups SET deleted = 1, frontier = ?2 WHERE id = ?1";
    work.db.prepare_cached(sql)?.execute([id.0, i64::MAX])?;
    work.forget_group(id, row);
    work.wrote();
    Ok(())
}
