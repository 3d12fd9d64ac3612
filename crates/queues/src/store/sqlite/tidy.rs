//! Removing what is too old, and what was deleted, in bounded rounds.
//!
//! Within a partition messages age in order, so looking at its oldest segment tells whether there
//! is anything to remove. Looking is done beside the writer; the writer looks again at those few
//! partitions where something was found.

use super::SqliteQueues;
use super::clock::{micros, signed};
use super::rows::{self, GroupRow, LaneRow, QueueRow};
use super::segments::{RUNS, run_of};
use super::work::Work;
use crate::ids::{GroupId, PartitionId, QueueId};
use crate::store::{Round, Tidied};
use rusqlite::{Connection, OptionalExtension};
use skep_policy::Time;
use skep_policy::queues::Run;
use skep_store::StoreError;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Partitions that one look is for; it is beside the writer.
const LOOKED_AT: u32 = 500;

/// Where a round begins: behind this partition of this queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    queue: QueueId,
    partition: PartitionId,
}

impl Default for Position {
    fn default() -> Self {
        Position { queue: QueueId(0), partition: PartitionId(0) }
    }
}

/// What looking found.
struct Old {
    partitions: Vec<(QueueId, PartitionId)>,
    /// Where to go on; `None` at the end.
    next: Option<Position>,
}

impl SqliteQueues {
    /// One round, of about so many rows.
    pub async fn tidy(&self, round: impl Into<Round>) -> Result<Tidied, StoreError> {
        let Round { rows, hold } = round.into();
        let limit = rows.max(1);
        let from = *self.tidied.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        let look = move |db: &Connection| Ok::<_, StoreError>(look(db, from, now, limit)?);
        let old = self.sqlite.read(look).await?;
        let next = old.next;
        let remove = move |work: &mut Work<'_>| {
            let mut tidied = Tidied::default();
            let mut budget = Budget { rows: limit, began: Instant::now(), hold };
            for (queue, partition) in old.partitions {
                remove_old(work, queue, partition, &mut budget, &mut tidied)?;
                if budget.is_spent() {
                    tidied.more = true;
                    break;
                }
            }
            tidied.more |= old.next.is_some();
            forget_husks(work, limit, &mut tidied)?;
            forget_grants(work, limit, &mut tidied)?;
            forget_groups(work, limit, &mut tidied)?;
            forget_queues(work, limit, &mut tidied)?;
            tidied.held = budget.began.elapsed();
            Ok(tidied)
        };
        let tidied = self.write(remove).await?.0;
        *self.tidied.lock().unwrap_or_else(PoisonError::into_inner) = next.unwrap_or_default();
        Ok(tidied)
    }
}

/// Looks at partitions of queues whose messages are removed for their age, until `wanted` have
/// something to remove, or as many as one look is for.
fn look(db: &Connection, from: Position, now: Time, wanted: u32) -> rusqlite::Result<Old> {
    let mut old = Old { partitions: Vec::new(), next: None };
    let (mut position, mut left) = (from, LOOKED_AT);
    while left > 0 {
        let sql = "SELECT id FROM skep_queues WHERE id >= ?1 AND deleted = 0 ORDER BY id LIMIT 1";
        let next = db.prepare_cached(sql)?.query_row([position.queue.0], |row| row.get(0));
        let Some(id) = next.optional()?.map(QueueId) else { return Ok(old) };
        if id != position.queue {
            position = Position { queue: id, partition: PartitionId(0) };
        }
        left -= 1;
        let ages = rows::queue_by_id(db, id)?.filter(|queue| Ages::of(queue, now).any());
        let Some(queue) = ages else {
            position = Position { queue: QueueId(id.0 + 1), partition: PartitionId(0) };
            continue;
        };
        let groups = rows::groups_of(db, id)?;
        let partitions = rows::partitions_after(db, id, position.partition, left)?;
        let complete = partitions.len() < left as usize;
        left -= u32::try_from(partitions.len()).unwrap_or(left).min(left);
        for (partition, _) in partitions {
            position.partition = partition;
            if !old_runs(db, &queue, &groups, partition, now, 1)?.is_empty() {
                old.partitions.push((id, partition));
                if old.partitions.len() >= wanted as usize {
                    old.next = Some(position);
                    return Ok(old);
                }
            }
        }
        if complete {
            position = Position { queue: QueueId(id.0 + 1), partition: PartitionId(0) };
        }
    }
    old.next = Some(position);
    Ok(old)
}

/// After how long what is removed.
struct Ages {
    all: Option<Duration>,
    completed: Option<Duration>,
    /// What was pushed before this is handed out to nobody.
    expired: Option<Time>,
}

impl Ages {
    fn of(queue: &QueueRow, now: Time) -> Self {
        let options = &queue.info.options;
        let age = |seconds: u32| {
            let set = options.retention_enabled && seconds > 0;
            set.then(|| Duration::from_secs(u64::from(seconds)))
        };
        Ages {
            all: age(options.retention_seconds),
            completed: age(options.completed_retention_seconds),
            expired: queue.rules.expired_before(now),
        }
    }

    fn any(&self) -> bool {
        self.all.is_some() || self.completed.is_some() || self.expired.is_some()
    }
}

/// The oldest runs of a partition that are to be removed.
fn old_runs(
    db: &Connection,
    queue: &QueueRow,
    groups: &[(GroupId, GroupRow)],
    partition: PartitionId,
    now: Time,
    limit: usize,
) -> rusqlite::Result<Vec<Run>> {
    let ages = Ages::of(queue, now);
    let mut lanes = None;
    let mut select = db.prepare_cached(RUNS)?;
    let mut found = select.query([partition.0, 0])?;
    let mut old = Vec::new();
    while old.len() < limit
        && let Some(row) = found.next()?
    {
        let run = run_of(row)?;
        let past = |age: Option<Duration>| age.is_some_and(|age| run.at + age < now);
        let expired = ages.expired.is_some_and(|oldest| run.at < oldest);
        let mut remove = past(ages.all);
        if !remove && (past(ages.completed) || expired) {
            if lanes.is_none() {
                lanes = Some(rows::lanes_of(db, partition, false)?);
            }
            let lanes = lanes.as_deref().unwrap_or_default();
            let completed = !groups.is_empty()
                && groups.iter().all(|(id, group)| {
                    let lane = lanes.iter().find(|(lane, _)| lane == id);
                    match lane {
                        Some((_, row)) => row.lane.cursor >= run.last(),
                        None => group.start.is_some_and(|start| run.at < start),
                    }
                });
            // Whoever works on it may still want to set it aside.
            let held = groups.iter().any(|(id, _)| {
                let lane = lanes.iter().find(|(lane, _)| lane == id);
                lane.is_some_and(|(_, LaneRow { lane, .. })| {
                    let lease = lane.live_lease(now);
                    let reaches = lease.is_some_and(|lease| lease.through >= run.first);
                    reaches && lane.cursor < run.last()
                })
            });
            remove = (past(ages.completed) && completed) || (expired && !held);
        }
        if !remove {
            break;
        }
        old.push(run);
    }
    Ok(old)
}

/// What a round may still remove.
struct Budget {
    rows: u32,
    began: Instant,
    hold: Duration,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.rows == 0 || self.began.elapsed() >= self.hold
    }
}

fn remove_old(
    work: &mut Work<'_>,
    queue: QueueId,
    partition: PartitionId,
    budget: &mut Budget,
    tidied: &mut Tidied,
) -> rusqlite::Result<()> {
    let Some(row) = work.queue(queue)? else { return Ok(()) };
    let groups = rows::groups_of(work.db, queue)?;
    let runs = old_runs(work.db, &row, &groups, partition, work.now, budget.rows as usize)?;
    let window = row.info.options.dedup_window();
    let mut messages = 0;
    for run in &runs {
        let key = [partition.0, signed(run.first)];
        let expires = run.at + window;
        if expires > work.now {
            let sql = "INSERT INTO skep_queue_husks (partition, first, count, at, expires, prints)
                       SELECT partition, first, count, at, ?3, prints FROM skep_queue_segments
                       WHERE partition = ?1 AND first = ?2";
            work.db.prepare_cached(sql)?.execute([key[0], key[1], micros(expires)])?;
        }
        let sql = "DELETE FROM skep_queue_segments WHERE partition = ?1 AND first = ?2";
        work.db.prepare_cached(sql)?.execute(key)?;
        messages += u64::from(run.count);
        budget.rows = budget.rows.saturating_sub(1);
        tidied.late = tidied.late.max(lateness(&row, run, work.now));
        // One at least goes in every round, however slow the disk is.
        if budget.is_spent() {
            break;
        }
    }
    if messages > 0 {
        work.change_queue(queue, |row| row.removed += messages);
    }
    tidied.messages += messages;
    Ok(())
}

/// How long ago a run should have gone.
fn lateness(queue: &QueueRow, run: &Run, now: Time) -> Duration {
    let ages = Ages::of(queue, now);
    let aged = ages.all.into_iter().chain(ages.completed).map(|age| run.at + age);
    let expired = queue.rules.lifetime.map(|lifetime| run.at + lifetime);
    let cleared = Some(queue.rules.floor).filter(|floor| run.at < *floor);
    let due = aged.chain(expired).chain(cleared).filter(|due| *due <= now).min();
    due.map_or(Duration::ZERO, |due| now.since(due))
}

fn forget_husks(work: &mut Work<'_>, limit: u32, tidied: &mut Tidied) -> rusqlite::Result<()> {
    let sql = "DELETE FROM skep_queue_husks WHERE (partition, first) IN
                   (SELECT partition, first FROM skep_queue_husks WHERE expires <= ?1 LIMIT ?2)";
    let rows = work.db.prepare_cached(sql)?.execute([micros(work.now), i64::from(limit)])?;
    count(work, rows, limit, tidied);
    Ok(())
}

fn forget_grants(work: &mut Work<'_>, limit: u32, tidied: &mut Tidied) -> rusqlite::Result<()> {
    let values = [micros(work.now), i64::from(limit)];
    let rows = work.db.prepare_cached(OLD_GRANTS)?.execute(values)?;
    count(work, rows, limit, tidied);
    Ok(())
}

fn count(work: &mut Work<'_>, rows: usize, limit: u32, tidied: &mut Tidied) {
    if rows > 0 {
        work.wrote();
    }
    tidied.rows += rows as u64;
    tidied.more |= rows >= limit as usize;
}

/// Lanes of a deleted group, from the newest partition on; its row goes last.
fn forget_groups(work: &mut Work<'_>, limit: u32, tidied: &mut Tidied) -> rusqlite::Result<()> {
    let sql = "SELECT id, queue, frontier FROM skep_queue_groups WHERE deleted = 1 LIMIT 1";
    let mut select = work.db.prepare_cached(sql)?;
    let row = select.query_row([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
    let Some([group, queue, frontier]) = row.optional()? else { return Ok(()) };
    let sql = "SELECT id FROM skep_queue_partitions
               WHERE queue = ?1 AND id <= ?2 ORDER BY id DESC LIMIT ?3";
    let mut select = work.db.prepare_cached(sql)?;
    let partitions: Vec<i64> = select
        .query_map([queue, frontier, i64::from(limit)], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let sql = "DELETE FROM skep_queue_lanes WHERE partition = ?1 AND grp = ?2";
    let mut delete = work.db.prepare_cached(sql)?;
    let mut rows = 0;
    for partition in &partitions {
        rows += delete.execute([*partition, group])?;
    }
    match partitions.last() {
        Some(last) => {
            let sql = "UPDATE skep_queue_groups SET frontier = ?2 WHERE id = ?1";
            work.db.prepare_cached(sql)?.execute([group, last - 1])?;
        }
        None => {
            let sql = "DELETE FROM skep_queue_groups WHERE id = ?1";
            rows += work.db.prepare_cached(sql)?.execute([group])?;
        }
    }
    work.wrote();
    count(work, rows, limit, tidied);
    // Another group may be waiting, or the rest of this one.
    tidied.more = true;
    Ok(())
}

/// Everything of a deleted queue, partition by partition; its row goes last.
fn forget_queues(work: &mut Work<'_>, limit: u32, tidied: &mut Tidied) -> rusqlite::Result<()> {
    let sql = "SELECT id FROM skep_queues WHERE deleted = 1 LIMIT 1";
    let queue: Option<i64> =
        work.db.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
    let Some(queue) = queue else { return Ok(()) };
    tidied.more = true;
    let mut left = i64::from(limit);
    let partitions = rows::partitions_after(work.db, QueueId(queue), PartitionId(0), limit)?;
    for (id, row) in &partitions {
        for sql in [
            "DELETE FROM skep_queue_segments WHERE id IN
                 (SELECT id FROM skep_queue_segments WHERE partition = ?1 LIMIT ?2)",
            "DELETE FROM skep_queue_husks WHERE partition = ?1 AND first IN
                 (SELECT first FROM skep_queue_husks WHERE partition = ?1 LIMIT ?2)",
            "DELETE FROM skep_queue_lanes WHERE partition = ?1 AND grp IN
                 (SELECT grp FROM skep_queue_lanes WHERE partition = ?1 LIMIT ?2)",
        ] {
            left -= forget(work, sql, id.0, left, tidied)?;
        }
        if left <= 0 {
            return Ok(());
        }
        let sql = "DELETE FROM skep_queue_partitions WHERE id = ?1 AND ?2 > 0";
        left -= forget(work, sql, id.0, left, tidied)?;
        work.forget_partition(*id, row);
    }
    for sql in [
        LATER_OF_QUEUE,
        "DELETE FROM skep_queue_dead WHERE id IN
             (SELECT id FROM skep_queue_dead WHERE queue = ?1 LIMIT ?2)",
        "DELETE FROM skep_queue_groups WHERE id IN
             (SELECT id FROM skep_queue_groups WHERE queue = ?1 AND deleted = 0 LIMIT ?2)",
    ] {
        left -= forget(work, sql, queue, left, tidied)?;
    }
    if left > 0 {
        let sql = "DELETE FROM skep_queues WHERE id = ?1 AND ?2 > 0";
        forget(work, sql, queue, left, tidied)?;
    }
    Ok(())
}

/// Deletes what belongs to `id`, `left` rows at most. Tells how many it were.
fn forget(
    work: &mut Work<'_>,
    sql: &str,
    id: i64,
    left: i64,
    tidied: &mut Tidied,
) -> rusqlite::Result<i64> {
    let rows = work.db.prepare_cached(sql)?.execute([id, left.max(0)])?;
    if rows > 0 {
        work.wrote();
    }
    tidied.rows += rows as u64;
    Ok(i64::try_from(rows).unwrap_or(i64::MAX))
}

pub(super) const OLD_GRANTS: &str = "DELETE FROM skep_queue_grants WHERE (grp, whole, key) IN
    (SELECT grp, whole, key FROM skep_queue_grants WHERE expires <= ?1 LIMIT ?2)";
pub(super) const LATER_OF_QUEUE: &str = "DELETE FROM skep_queue_later WHERE id IN
    (SELECT id FROM skep_queue_later WHERE queue = ?1 LIMIT ?2)";
