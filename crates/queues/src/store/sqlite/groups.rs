//! Groups: how far each is, where it begins, and its end.

use super::SqliteQueues;
use super::admin::{delete_group, pending};
use super::browse::first_at;
use super::clock::{micros, time, unsigned};
use super::rows::{self, GroupRow, QueueRow};
use super::segments::run_from;
use super::work::Work;
use crate::ids::{GroupId, PartitionId, QueueId};
use crate::store::browse::BrowseError;
use crate::store::groups::{COUNT_MAX, OLDEST_LANES, counted};
use crate::store::{GroupFilter, GroupsPage, Sought};
use rusqlite::{Connection, OptionalExtension, Row, params};
use skep_policy::Time;
use skep_policy::queues::Start;
use skep_store::StoreError;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

impl SqliteQueues {
    /// Groups, and how far they are.
    pub async fn groups(&self, filter: GroupFilter) -> Result<GroupsPage, BrowseError> {
        let now = self.now();
        self.sqlite.read(move |db| groups(db, &filter, now)).await
    }

    /// Sets where a group begins in partitions that it has not looked at.
    pub async fn subscribe(
        &self,
        group: &str,
        queue: Option<&str>,
        start: Start,
    ) -> Result<Sought, StoreError> {
        let group: Arc<str> = group.into();
        let queue: Option<Arc<str>> = queue.map(Arc::from);
        let subscribe =
            move |work: &mut Work<'_>| Ok(subscribe(work, &group, queue.as_ref(), start)?);
        Ok(self.write(subscribe).await?.0)
    }

    /// Deletes a group, of one queue or of all. Tells how many partitions it had looked at.
    pub async fn delete_group(
        &self,
        group: &str,
        queue: Option<&str>,
        keep_start: bool,
    ) -> Result<u64, StoreError> {
        let group: Arc<str> = group.into();
        let queue: Option<Arc<str>> = queue.map(Arc::from);
        let delete = move |work: &mut Work<'_>| {
            let mut lanes = 0;
            for (id, row, queue) in found(work, &group, queue.as_ref())? {
                lanes += row.lanes;
                delete_group(work, id, &row)?;
                if keep_start {
                    let start = row.start.map_or(Start::All, Start::From);
                    work.new_group(&queue, &group, Some(start));
                }
            }
            if queue.is_none() && !keep_start {
                work.db.prepare_cached(FORGET_START)?.execute([&group])?;
                work.wrote();
            }
            Ok(lanes)
        };
        Ok(self.write(delete).await?.0)
    }
}

/// The groups of a name that are there, of one queue or of all.
fn found(
    work: &mut Work<'_>,
    group: &Arc<str>,
    queue: Option<&Arc<str>>,
) -> rusqlite::Result<Vec<(GroupId, GroupRow, QueueRow)>> {
    let only = match queue {
        Some(name) => Some(work.queue_named(name)?.map(|row| row.info.id)),
        None => None,
    };
    let mut found = Vec::new();
    for (id, row) in rows::groups_named(work.db, group)? {
        if only.is_none_or(|only| only == Some(row.queue))
            && let Some(queue) = work.queue(row.queue)?
            && let Some(row) = work.group(id)?
        {
            found.push((id, row, queue));
        }
    }
    Ok(found)
}

fn subscribe(
    work: &mut Work<'_>,
    group: &Arc<str>,
    queue: Option<&Arc<str>>,
    start: Start,
) -> rusqlite::Result<Sought> {
    let begin = match start {
        Start::All => None,
        Start::From(from) => Some(micros(from)),
    };
    let mut groups = found(work, group, queue)?;
    match queue {
        None => {
            work.db.prepare_cached(REMEMBER_START)?.execute(params![group, begin])?;
            work.wrote();
        }
        Some(name) => {
            let Some(queue) = work.queue_named(name)? else { return Ok(Sought::NoQueue) };
            if groups.is_empty() {
                work.new_group(&queue, group, Some(start));
                return Ok(Sought::Moved(1));
            }
        }
    }
    for (id, row, _) in &mut groups {
        let was_counted = row.counted_until();
        work.db.prepare_cached(SUBSCRIBE)?.execute(params![id.0, begin, micros(was_counted)])?;
        work.change_group(*id, |row| {
            row.start = begin.map(time);
            row.counted = Some(was_counted);
        });
    }
    Ok(Sought::Moved(groups.len() as u64))
}

impl GroupRow {
    /// Messages pushed before this time were counted as settled when it was made.
    pub(super) fn counted_until(&self) -> Time {
        self.counted.unwrap_or_else(|| match self.start {
            Some(start) if start >= self.created_at => self.created_at,
            _ => Time::ZERO,
        })
    }
}

/// Where somebody wanted a group to begin in queues that it has not been to.
pub(super) fn remembered_start(db: &Connection, group: &str) -> rusqlite::Result<Option<Start>> {
    let found = db.prepare_cached(START)?.query_row([group], |row| row.get(0)).optional()?;
    Ok(found.map(|start: Option<i64>| start.map_or(Start::All, |at| Start::From(time(at)))))
}

fn groups(db: &Connection, filter: &GroupFilter, now: Time) -> Result<GroupsPage, BrowseError> {
    let after = filter.place()?;
    list(db, filter, after, now).map_err(|error| StoreError::from(error).into())
}

fn list(
    db: &Connection,
    filter: &GroupFilter,
    (after, after_name): (i64, &str),
    now: Time,
) -> rusqlite::Result<GroupsPage> {
    let limit = filter.most();
    let mut queues: HashMap<QueueId, Option<QueueRow>> = HashMap::new();
    let page = match (&filter.queue, &filter.group) {
        (None, None) => rows::groups_after(db, after, limit)?,
        (None, Some(group)) => rows::groups_named_after(db, group, after, limit)?,
        (Some(queue), group) => {
            let Some(row) = rows::queue_by_name(db, queue)? else {
                return Ok(GroupsPage { groups: Vec::new(), next: None });
            };
            let id = row.info.id;
            queues.insert(id, Some(row));
            match group {
                Some(group) => {
                    let found = rows::group_by_name(db, id, group)?;
                    found.into_iter().filter(|(id, _)| id.0 > after).collect()
                }
                None => rows::groups_of_after(db, id, after_name, limit)?,
            }
        }
    };
    let next = filter.next(page.len(), page.last().map(|(id, row)| (id.0, &*row.name)));
    let mut groups = Vec::with_capacity(page.len());
    for (id, row) in page {
        let queue = match queues.entry(row.queue) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(rows::queue_by_id(db, row.queue)?),
        };
        // Groups of a deleted queue are there for a while.
        if let Some(queue) = queue {
            groups.push(tell(db, id, &row, queue, now)?);
        }
    }
    Ok(GroupsPage { groups, next })
}

fn tell(
    db: &Connection,
    id: GroupId,
    row: &GroupRow,
    queue: &QueueRow,
    now: Time,
) -> rusqlite::Result<crate::store::GroupRow> {
    let most = i64::from(COUNT_MAX) + 1;
    let values = [id.0, micros(now), most];
    let count = |row: &Row<'_>, place: usize| row.get(place).map(unsigned);
    let ready = db.prepare_cached(READY)?.query_row(values, |row| count(row, 0))?;
    let both = |row: &Row<'_>| Ok((count(row, 0)?, count(row, 1)?));
    let (later, leased) = db.prepare_cached(LATER)?.query_row(values, both)?;
    let (waiting_lanes, more_waiting) = counted(ready + later - leased);
    let (leased_lanes, _) = counted(leased);
    let (lanes, more) = counted(row.lanes);
    Ok(crate::store::GroupRow {
        queue: queue.info.name.clone(),
        group: row.name.clone(),
        pending: pending(queue, row.settled),
        leased_lanes,
        lanes,
        waiting_lanes,
        more_lanes: more || more_waiting || counted(later).1,
        oldest: oldest(db, id, row)?,
        start: row.start,
        created_at: row.created_at,
    })
}

/// When the oldest message was pushed that the group has not settled, where it is looked for.
fn oldest(db: &Connection, id: GroupId, row: &GroupRow) -> rusqlite::Result<Option<Time>> {
    let mut oldest: Option<Time> = None;
    let mut select = db.prepare_cached(LONGEST)?;
    let mut lanes = select.query([id.0, i64::from(OLDEST_LANES)])?;
    while let Some(lane) = lanes.next()? {
        let (partition, cursor) = (PartitionId(lane.get(0)?), unsigned(lane.get(1)?));
        let next = run_from(db, partition, cursor + 1)?.map(|run| run.at);
        oldest = oldest.into_iter().chain(next).min();
    }
    let beyond = rows::partitions_after(db, row.queue, row.frontier, 1)?;
    if let Some((partition, beyond)) = beyond.first()
        && rows::lane(db, *partition, id)?.is_none()
    {
        let number = match row.start {
            Some(start) => first_at(db, *partition, beyond.tail, start)?,
            None => 1,
        };
        let next = run_from(db, *partition, number)?.map(|run| run.at);
        oldest = oldest.into_iter().chain(next).min();
    }
    Ok(oldest)
}

pub(super) const READY: &str = "SELECT count(*) FROM (SELECT 1 FROM skep_queue_lanes
    WHERE grp = ?1 AND ready_at IS NOT NULL AND ready_at <= ?2 LIMIT ?3)";
/// A lane that somebody works on is ready when that lease ends.
pub(super) const LATER: &str = "SELECT count(*), count(CASE WHEN lease_until > ?2 THEN 1 END)
    FROM (SELECT lease_until FROM skep_queue_lanes
          WHERE grp = ?1 AND ready_at IS NOT NULL AND ready_at > ?2 ORDER BY ready_at LIMIT ?3)";
pub(super) const LONGEST: &str = "SELECT partition, cursor FROM skep_queue_lanes
    WHERE grp = ?1 AND ready_at IS NOT NULL ORDER BY ready_at, partition LIMIT ?2";
pub(super) const START: &str = "SELECT start FROM skep_queue_starts WHERE grp = ?1";
const REMEMBER_START: &str = "INSERT INTO skep_queue_starts (grp, start) VALUES (?1, ?2)
    ON CONFLICT (grp) DO UPDATE SET start = excluded.start";
const FORGET_START: &str = "DELETE FROM skep_queue_starts WHERE grp = ?1";
const SUBSCRIBE: &str = "UPDATE skep_queue_groups SET start = ?2, counted = ?3 WHERE id = ?1";
