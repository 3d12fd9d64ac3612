//! Rows, read and written one by one.

use super::clock::{micros, signed, time, unsigned};
use crate::ids::{GroupId, PartitionId, QueueId};
use crate::options::QueueOptions;
use crate::store::QueueInfo;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use skep_policy::Time;
use skep_policy::queues::{Lane, Lease, LeaseId, Limits, Rules};
use std::sync::Arc;

/// A queue and its counters.
#[derive(Clone, Debug)]
pub(super) struct QueueRow {
    pub(super) info: QueueInfo,
    pub(super) rules: Rules,
    pub(super) pushed: u64,
    pub(super) removed: u64,
    pub(super) partitions: u64,
    pub(super) dead: u64,
    /// Messages that wait for their time.
    pub(super) later: u64,
    /// Bit n says that it has partitions of level n; level 0 needs no bit.
    pub(super) levels: u16,
    /// What a group may have of it; `None` is anything.
    pub(super) limits: Option<Arc<Limits>>,
    /// Its newest partition.
    pub(super) newest: PartitionId,
    /// Messages pushed in the batch of this time: see [`QueueRow::pushed_before`].
    pub(super) fresh: (Time, u64),
}

impl QueueRow {
    /// Messages pushed before the batch of `now`. A group that begins now begins before those that
    /// are pushed with it.
    pub(super) fn pushed_before(&self, now: Time) -> u64 {
        self.pushed - if self.fresh.0 == now { self.fresh.1 } else { 0 }
    }

    pub(super) fn add_pushed(&mut self, count: u64, now: Time) {
        let before = if self.fresh.0 == now { self.fresh.1 } else { 0 };
        self.fresh = (now, before + count);
        self.pushed += count;
    }
}

/// The part of a queue's options that claims and settlements ask for all the time.
pub(super) fn rules_of(options: &QueueOptions, cleared_at: Time) -> Rules {
    Rules { floor: cleared_at, ..options.rules() }
}

/// See [`QueueRow::limits`].
pub(super) fn limits_of(options: &QueueOptions) -> Option<Arc<Limits>> {
    let limits = options.limits();
    limits.any().then(|| Arc::new(limits))
}

/// A partition.
#[derive(Clone, Debug)]
pub(super) struct PartitionRow {
    pub(super) queue: QueueId,
    pub(super) name: Arc<str>,
    pub(super) level: u8,
    pub(super) tail: u64,
    pub(super) last_push: Time,
    pub(super) created_at: Time,
}

/// A group of a queue.
#[derive(Clone, Debug)]
pub(super) struct GroupRow {
    pub(super) queue: QueueId,
    pub(super) name: Arc<str>,
    pub(super) start: Option<Time>,
    pub(super) frontier: PartitionId,
    pub(super) settled: i64,
    pub(super) lanes: u64,
    pub(super) created_at: Time,
    /// See [`GroupRow::counted_until`].
    pub(super) counted: Option<Time>,
}

/// A lane and when it can next be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneRow {
    pub(super) lane: Lane,
    pub(super) ready_at: Option<Time>,
    /// It is leased, and its queue has limits: what it counts for.
    pub(super) leased_key: Option<Arc<str>>,
    /// It waits because this key has as much as it may.
    pub(super) blocked_key: Option<Arc<str>>,
}

/// A message for the dead letters.
#[derive(Debug)]
pub(super) struct DeadRow {
    pub(super) queue: QueueId,
    pub(super) partition: PartitionId,
    pub(super) group: Arc<str>,
    pub(super) created_at: Time,
    pub(super) failed_at: Time,
    pub(super) failures: u32,
    pub(super) error: Option<Arc<str>>,
    pub(super) record: Bytes,
}

const QUEUE: &str = "SELECT id, name, namespace, task, options, created_at, pushed, removed,
    partitions, dead, coalesce((SELECT max(p.id) FROM skep_queue_partitions p
                                WHERE p.queue = skep_queues.id), 0),
    later, cleared_at, levels
    FROM skep_queues";

pub(super) fn queue_from(row: &Row<'_>) -> rusqlite::Result<QueueRow> {
    let options: String = row.get(4)?;
    let options: QueueOptions = serde_json::from_str(&options).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, error.into())
    })?;
    let info = QueueInfo {
        id: QueueId(row.get(0)?),
        name: row.get(1)?,
        namespace: row.get(2)?,
        task: row.get(3)?,
        options: Arc::new(options),
        created_at: time(row.get(5)?),
    };
    Ok(QueueRow {
        rules: rules_of(&info.options, time(row.get(12)?)),
        limits: limits_of(&info.options),
        info,
        pushed: unsigned(row.get(6)?),
        removed: unsigned(row.get(7)?),
        partitions: unsigned(row.get(8)?),
        dead: unsigned(row.get(9)?),
        newest: PartitionId(row.get(10)?),
        later: unsigned(row.get(11)?),
        levels: row.get(13)?,
        fresh: (Time::ZERO, 0),
    })
}

pub(super) fn queue_by_name(db: &Connection, name: &str) -> rusqlite::Result<Option<QueueRow>> {
    let sql = with(QUEUE, "WHERE name = ?1 AND deleted = 0");
    db.prepare_cached(&sql)?.query_row([name], queue_from).optional()
}

pub(super) fn queue_by_id(db: &Connection, id: QueueId) -> rusqlite::Result<Option<QueueRow>> {
    let sql = with(QUEUE, "WHERE id = ?1 AND deleted = 0");
    db.prepare_cached(&sql)?.query_row([id.0], queue_from).optional()
}

/// Queues by their names.
pub(super) fn queues_after(
    db: &Connection,
    after: Option<&str>,
    limit: u32,
) -> rusqlite::Result<Vec<QueueRow>> {
    let sql = with(QUEUE, "WHERE deleted = 0 AND name > coalesce(?1, '') ORDER BY name LIMIT ?2");
    db.prepare_cached(&sql)?.query_map(params![after, limit], queue_from)?.collect()
}

fn with(select: &str, rest: &str) -> String {
    format!("{select} {rest}")
}

/// Of the queues of a namespace and task: number and options decide the rest.
pub(super) fn queues_matching(
    db: &Connection,
    namespace: Option<&str>,
    task: Option<&str>,
) -> rusqlite::Result<Vec<QueueId>> {
    let id = |row: &Row<'_>| row.get(0).map(QueueId);
    let sql = match (namespace, task) {
        (Some(_), Some(_)) => "namespace = ?1 AND task = ?2",
        (Some(_), None) => "namespace = ?1 AND ?2 IS NULL",
        (None, Some(_)) => "?1 IS NULL AND task = ?2",
        (None, None) => "?1 IS NULL AND ?2 IS NULL AND name >= ''",
    };
    let sql = format!("SELECT id FROM skep_queues WHERE deleted = 0 AND {sql}");
    db.prepare_cached(&sql)?.query_map([namespace, task], id)?.collect()
}

pub(super) fn write_queue(db: &Connection, row: &QueueRow, new: bool) -> rusqlite::Result<()> {
    if !new {
        // What `configure` changes is written by `write_settings`: not with every push.
        let sql = "UPDATE skep_queues SET pushed = ?2, removed = ?3, partitions = ?4, dead = ?5,
                       later = ?6, levels = ?7
                   WHERE id = ?1";
        db.prepare_cached(sql)?.execute([
            row.info.id.0,
            signed(row.pushed),
            signed(row.removed),
            signed(row.partitions),
            signed(row.dead),
            signed(row.later),
            i64::from(row.levels),
        ])?;
        return Ok(());
    }
    let sql = "INSERT INTO skep_queues (id, name, namespace, task, options, created_at, pushed,
                   removed, partitions, dead, deleted, later, levels)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11, ?12)";
    db.prepare_cached(sql)?.execute(params![
        row.info.id.0,
        row.info.name,
        row.info.namespace,
        row.info.task,
        options_text(&row.info)?,
        micros(row.info.created_at),
        signed(row.pushed),
        signed(row.removed),
        signed(row.partitions),
        signed(row.dead),
        signed(row.later),
        row.levels,
    ])?;
    Ok(())
}

pub(super) fn write_settings(db: &Connection, info: &QueueInfo) -> rusqlite::Result<()> {
    let sql = "UPDATE skep_queues SET namespace = ?2, task = ?3, options = ?4 WHERE id = ?1";
    let options = options_text(info)?;
    db.prepare_cached(sql)?.execute(params![info.id.0, info.namespace, info.task, options])?;
    Ok(())
}

fn options_text(info: &QueueInfo) -> rusqlite::Result<String> {
    serde_json::to_string(&*info.options)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

const PARTITION: &str =
    "SELECT id, queue, name, tail, last_push, created_at, level FROM skep_queue_partitions";

fn partition_from(row: &Row<'_>) -> rusqlite::Result<(PartitionId, PartitionRow)> {
    let partition = PartitionRow {
        queue: QueueId(row.get(1)?),
        name: row.get(2)?,
        tail: unsigned(row.get(3)?),
        last_push: time(row.get(4)?),
        created_at: time(row.get(5)?),
        level: row.get(6)?,
    };
    Ok((PartitionId(row.get(0)?), partition))
}

pub(super) fn partition_by_name(
    db: &Connection,
    queue: QueueId,
    name: &str,
    level: u8,
) -> rusqlite::Result<Option<(PartitionId, PartitionRow)>> {
    let sql = with(PARTITION, "WHERE queue = ?1 AND name = ?2 AND level = ?3");
    db.prepare_cached(&sql)?.query_row(params![queue.0, name, level], partition_from).optional()
}

pub(super) fn partition_by_id(
    db: &Connection,
    id: PartitionId,
) -> rusqlite::Result<Option<(PartitionId, PartitionRow)>> {
    let sql = with(PARTITION, "WHERE id = ?1");
    db.prepare_cached(&sql)?.query_row([id.0], partition_from).optional()
}

/// Partitions of a queue by their numbers.
pub(super) fn partitions_after(
    db: &Connection,
    queue: QueueId,
    after: PartitionId,
    limit: u32,
) -> rusqlite::Result<Vec<(PartitionId, PartitionRow)>> {
    let sql = with(PARTITION, "WHERE queue = ?1 AND id > ?2 ORDER BY id LIMIT ?3");
    let mut select = db.prepare_cached(&sql)?;
    select.query_map(params![queue.0, after.0, limit], partition_from)?.collect()
}

/// Partitions of a queue by their names: from `from` on, after `after`, before `end`.
pub(super) fn partitions_named(
    db: &Connection,
    queue: QueueId,
    from: &str,
    after: Option<(&str, u8)>,
    end: Option<&str>,
    limit: u32,
) -> rusqlite::Result<Vec<(PartitionId, PartitionRow)>> {
    let sql = match (after, end) {
        (Some(_), Some(_)) => "(name, level) > (?3, ?6) AND name < ?4",
        (Some(_), None) => "(name, level) > (?3, ?6) AND ?4 IS NULL",
        (None, Some(_)) => "?3 IS NULL AND ?6 IS NULL AND name < ?4",
        (None, None) => "?3 IS NULL AND ?6 IS NULL AND ?4 IS NULL",
    };
    let sql = format!(
        "{PARTITION} WHERE queue = ?1 AND name >= ?2 AND {sql} ORDER BY name, level LIMIT ?5"
    );
    let (name, level) = after.unzip();
    let mut select = db.prepare_cached(&sql)?;
    let values = params![queue.0, from, name, end, limit, level];
    select.query_map(values, partition_from)?.collect()
}

pub(super) fn write_partition(
    db: &Connection,
    id: PartitionId,
    row: &PartitionRow,
    new: bool,
) -> rusqlite::Result<()> {
    if !new {
        let sql = "UPDATE skep_queue_partitions SET tail = ?2, last_push = ?3 WHERE id = ?1";
        let values = [id.0, signed(row.tail), micros(row.last_push)];
        return db.prepare_cached(sql)?.execute(values).map(|_| ());
    }
    let sql =
        "INSERT INTO skep_queue_partitions (id, queue, name, tail, last_push, created_at, level)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    db.prepare_cached(sql)?.execute(params![
        id.0,
        row.queue.0,
        row.name,
        signed(row.tail),
        micros(row.last_push),
        micros(row.created_at),
        row.level,
    ])?;
    Ok(())
}

const GROUP: &str = "SELECT id, queue, name, start, frontier, settled, lanes, created_at,
    counted FROM skep_queue_groups";

fn group_from(row: &Row<'_>) -> rusqlite::Result<(GroupId, GroupRow)> {
    let group = GroupRow {
        queue: QueueId(row.get(1)?),
        name: row.get(2)?,
        start: row.get::<_, Option<i64>>(3)?.map(time),
        frontier: PartitionId(row.get(4)?),
        settled: row.get(5)?,
        lanes: unsigned(row.get(6)?),
        created_at: time(row.get(7)?),
        counted: row.get::<_, Option<i64>>(8)?.map(time),
    };
    Ok((GroupId(row.get(0)?), group))
}

pub(super) fn group_by_name(
    db: &Connection,
    queue: QueueId,
    name: &str,
) -> rusqlite::Result<Option<(GroupId, GroupRow)>> {
    let sql = with(GROUP, "WHERE queue = ?1 AND name = ?2 AND deleted = 0");
    db.prepare_cached(&sql)?.query_row(params![queue.0, name], group_from).optional()
}

pub(super) fn group_by_id(
    db: &Connection,
    id: GroupId,
) -> rusqlite::Result<Option<(GroupId, GroupRow)>> {
    let sql = with(GROUP, "WHERE id = ?1 AND deleted = 0");
    db.prepare_cached(&sql)?.query_row([id.0], group_from).optional()
}

/// The groups of a queue, by name.
pub(super) fn groups_of(
    db: &Connection,
    queue: QueueId,
) -> rusqlite::Result<Vec<(GroupId, GroupRow)>> {
    let sql = with(GROUP, "WHERE queue = ?1 AND deleted = 0 ORDER BY name");
    db.prepare_cached(&sql)?.query_map([queue.0], group_from)?.collect()
}

/// The groups of this name, of all queues.
pub(super) fn groups_named(
    db: &Connection,
    name: &str,
) -> rusqlite::Result<Vec<(GroupId, GroupRow)>> {
    let sql = with(GROUP, "WHERE name = ?1 AND deleted = 0");
    db.prepare_cached(&sql)?.query_map([name], group_from)?.collect()
}

/// Groups of this name, of all queues, by their numbers.
pub(super) fn groups_named_after(
    db: &Connection,
    name: &str,
    after: i64,
    limit: u32,
) -> rusqlite::Result<Vec<(GroupId, GroupRow)>> {
    let sql = with(GROUP, "WHERE name = ?1 AND deleted = 0 AND id > ?2 ORDER BY id LIMIT ?3");
    db.prepare_cached(&sql)?.query_map(params![name, after, limit], group_from)?.collect()
}

/// Groups of all queues, by their numbers.
pub(super) fn groups_after(
    db: &Connection,
    after: i64,
    limit: u32,
) -> rusqlite::Result<Vec<(GroupId, GroupRow)>> {
    let sql = with(GROUP, "WHERE id > ?1 AND deleted = 0 ORDER BY id LIMIT ?2");
    db.prepare_cached(&sql)?.query_map(params![after, limit], group_from)?.collect()
}

/// Groups of a queue, by their names.
pub(super) fn groups_of_after(
    db: &Connection,
    queue: QueueId,
    after: &str,
    limit: u32,
) -> rusqlite::Result<Vec<(GroupId, GroupRow)>> {
    let sql = with(GROUP, "WHERE queue = ?1 AND deleted = 0 AND name > ?2 ORDER BY name LIMIT ?3");
    db.prepare_cached(&sql)?.query_map(params![queue.0, after, limit], group_from)?.collect()
}

pub(super) fn write_group(
    db: &Connection,
    id: GroupId,
    row: &GroupRow,
    new: bool,
) -> rusqlite::Result<()> {
    if !new {
        let sql = "UPDATE skep_queue_groups SET frontier = ?2, settled = ?3, lanes = ?4
                   WHERE id = ?1";
        let values = [id.0, row.frontier.0, row.settled, signed(row.lanes)];
        return db.prepare_cached(sql)?.execute(values).map(|_| ());
    }
    let sql = "INSERT INTO skep_queue_groups
                   (id, queue, name, start, frontier, settled, lanes, created_at, deleted)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0)";
    db.prepare_cached(sql)?.execute(params![
        id.0,
        row.queue.0,
        row.name,
        row.start.map(micros),
        row.frontier.0,
        row.settled,
        signed(row.lanes),
        micros(row.created_at),
    ])?;
    Ok(())
}

/// What follows the key columns of a lane.
macro_rules! lane_columns {
    () => {
        "cursor, ready_at, lease, lease_until, lease_through, ended, failures, failed_through,
         not_before, leased_key, blocked_key FROM skep_queue_lanes"
    };
}

fn lane_from(row: &Row<'_>, from: usize) -> rusqlite::Result<LaneRow> {
    let lease_id = |place: usize| -> rusqlite::Result<Option<LeaseId>> {
        let bytes: Option<[u8; 16]> = row.get(place)?;
        Ok(bytes.map(|bytes| LeaseId(u128::from_be_bytes(bytes))))
    };
    let lease = match lease_id(from + 2)? {
        None => None,
        Some(id) => Some(Lease {
            id,
            until: time(row.get(from + 3)?),
            through: unsigned(row.get(from + 4)?),
        }),
    };
    let lane = Lane {
        cursor: unsigned(row.get(from)?),
        lease,
        ended: lease_id(from + 5)?,
        failures: row.get(from + 6)?,
        failed_through: unsigned(row.get(from + 7)?),
        not_before: time(row.get(from + 8)?),
    };
    Ok(LaneRow {
        lane,
        ready_at: row.get::<_, Option<i64>>(from + 1)?.map(time),
        leased_key: row.get(from + 9)?,
        blocked_key: row.get(from + 10)?,
    })
}

pub(super) fn lane(
    db: &Connection,
    partition: PartitionId,
    group: GroupId,
) -> rusqlite::Result<Option<LaneRow>> {
    let sql = concat!("SELECT ", lane_columns!(), " WHERE partition = ?1 AND grp = ?2");
    let mut select = db.prepare_cached(sql)?;
    select.query_row([partition.0, group.0], |row| lane_from(row, 0)).optional()
}

/// The lanes of a partition; with `drained` only those that wait for a push.
pub(super) fn lanes_of(
    db: &Connection,
    partition: PartitionId,
    drained: bool,
) -> rusqlite::Result<Vec<(GroupId, LaneRow)>> {
    let all = concat!("SELECT grp, ", lane_columns!(), " WHERE partition = ?1");
    let waiting =
        concat!("SELECT grp, ", lane_columns!(), " WHERE partition = ?1 AND ready_at IS NULL");
    let mut select = db.prepare_cached(if drained { waiting } else { all })?;
    let from = |row: &Row<'_>| Ok((GroupId(row.get(0)?), lane_from(row, 1)?));
    select.query_map([partition.0], from)?.collect()
}

/// The lanes that a lease holds, or held until it ran out.
pub(super) fn lanes_leased(
    db: &Connection,
    lease: LeaseId,
) -> rusqlite::Result<Vec<(PartitionId, GroupId)>> {
    let sql = "SELECT partition, grp FROM skep_queue_lanes WHERE lease = ?1";
    let from = |row: &Row<'_>| Ok((PartitionId(row.get(0)?), GroupId(row.get(1)?)));
    db.prepare_cached(sql)?.query_map([lease.0.to_be_bytes()], from)?.collect()
}

pub(super) fn write_lane(
    db: &Connection,
    (partition, group): (PartitionId, GroupId),
    row: &LaneRow,
    new: bool,
) -> rusqlite::Result<()> {
    let sql = if new {
        "INSERT INTO skep_queue_lanes
             (partition, grp, cursor, ready_at, lease, lease_until, lease_through, ended, failures,
              failed_through, not_before, leased_key, blocked_key)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
    } else {
        "UPDATE skep_queue_lanes
         SET cursor = ?3, ready_at = ?4, lease = ?5, lease_until = ?6, lease_through = ?7,
             ended = ?8, failures = ?9, failed_through = ?10, not_before = ?11,
             leased_key = ?12, blocked_key = ?13
         WHERE partition = ?1 AND grp = ?2"
    };
    let lane = &row.lane;
    db.prepare_cached(sql)?.execute(params![
        partition.0,
        group.0,
        signed(lane.cursor),
        row.ready_at.map(micros),
        lane.lease.map(|lease| lease.id.0.to_be_bytes()),
        lane.lease.map(|lease| micros(lease.until)),
        lane.lease.map(|lease| signed(lease.through)),
        lane.ended.map(|lease| lease.0.to_be_bytes()),
        lane.failures,
        signed(lane.failed_through),
        micros(lane.not_before),
        row.leased_key,
        row.blocked_key,
    ])?;
    Ok(())
}

pub(super) fn write_dead(db: &Connection, row: &DeadRow) -> rusqlite::Result<()> {
    let sql = "INSERT INTO skep_queue_dead
                   (queue, partition, grp, created_at, failed_at, failures, error, record)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    db.prepare_cached(sql)?.execute(params![
        row.queue.0,
        row.partition.0,
        row.group,
        micros(row.created_at),
        micros(row.failed_at),
        row.failures,
        row.error,
        &row.record[..],
    ])?;
    Ok(())
}
