//! Which lanes of a group can be claimed now, the one that waits longest first.

use super::clock::micros;
use super::rows;
use super::rows::{GroupRow, LaneRow, PartitionRow, QueueRow};
use super::work::{LaneKey, Work};
use crate::ids::{GroupId, PartitionId};
use rusqlite::params;
use skep_policy::Time;
use skep_policy::queues::Lane;
use std::collections::BTreeSet;

/// Lanes read from the index at once.
const PAGE: usize = 16;
/// Partitions that a group comes to at once. Few, because the pop that comes to them waits for it.
const FRONTIER_CHUNK: u32 = 16;
/// Chunks that one claim goes through at most.
pub(super) const FRONTIER_CHUNKS_MAX: usize = 64;

/// The lanes of one group that are ready: those that this batch has in memory, as they are there,
/// and so many of the others as were read from the index.
#[derive(Debug, Default)]
pub(super) struct Ready {
    lanes: BTreeSet<(i64, PartitionId)>,
    /// Up to here the index was read.
    read: Option<(i64, PartitionId)>,
    /// Nothing in the index follows.
    read_all: bool,
}

impl Ready {
    pub(super) fn remove(&mut self, ready_at: Option<Time>, partition: PartitionId) {
        if let Some(at) = ready_at {
            self.lanes.remove(&(micros(at), partition));
        }
    }

    pub(super) fn insert(&mut self, ready_at: Option<Time>, partition: PartitionId, now: Time) {
        if let Some(at) = ready_at.filter(|at| *at <= now) {
            self.lanes.insert((micros(at), partition));
        }
    }
}

impl Work<'_> {
    /// The lane that waits longest, without those in `except`.
    pub(super) fn first_ready(
        &mut self,
        group: GroupId,
        except: &[PartitionId],
    ) -> rusqlite::Result<Option<(i64, PartitionId)>> {
        loop {
            if !self.ready.contains_key(&group) {
                let mut ready = Ready::default();
                let known = self.lanes.iter().filter(|(key, _)| key.1 == group);
                known.for_each(|(key, slot)| ready.insert(slot.row.ready_at, key.0, self.now));
                self.ready.insert(group, ready);
            }
            let Some(ready) = self.ready.get(&group) else { return Ok(None) };
            let first = ready.lanes.iter().find(|(_, lane)| !except.contains(lane)).copied();
            // What follows in the index comes before what is only in memory.
            if ready.read_all || first.is_some_and(|first| ready.read >= Some(first)) {
                return Ok(first);
            }
            let (at, partition) = ready.read.unwrap_or((i64::MIN, PartitionId(0)));
            let page = self.read_ready(group, at, partition)?;
            let lanes = &self.lanes;
            let Some(ready) = self.ready.get_mut(&group) else { return Ok(None) };
            ready.read_all = page.len() < PAGE;
            ready.read = page.last().copied().or(ready.read);
            // Of lanes in memory the index may not have the latest.
            let others = page.into_iter().filter(|(_, lane)| !lanes.contains_key(&(*lane, group)));
            ready.lanes.extend(others);
        }
    }

    fn read_ready(
        &self,
        group: GroupId,
        at: i64,
        partition: PartitionId,
    ) -> rusqlite::Result<Vec<(i64, PartitionId)>> {
        let mut select = self.db.prepare_cached(READY)?;
        let values = params![group.0, at, partition.0, micros(self.now), PAGE as i64];
        let page = select.query_map(values, |row| Ok((row.get(0)?, PartitionId(row.get(1)?))))?;
        page.collect()
    }

    /// When the first lane of the group that is not ready yet will be.
    pub(super) fn next_ready(&self, group: GroupId) -> rusqlite::Result<Option<Time>> {
        let known = self.lanes.iter().filter(|(key, _)| key.1 == group);
        let known = known.filter_map(|(_, slot)| slot.row.ready_at).min();
        let mut select = self.db.prepare_cached(NEXT_READY)?;
        let mut rows = select.query([group.0, micros(self.now)])?;
        while let Some(row) = rows.next()? {
            if !self.lanes.contains_key(&(PartitionId(row.get(1)?), group)) {
                let stored = super::clock::time(row.get(0)?);
                return Ok(Some(known.map_or(stored, |known| known.min(stored))));
            }
        }
        Ok(known)
    }

    /// Lets the group come to partitions that it has not looked at, as long as they may hold what
    /// waits longer than any lane that it has, without those in `except`. `chunks` is how far it
    /// may go; with none left there may be more to come to.
    pub(super) fn open_frontier(
        &mut self,
        queue: &QueueRow,
        group: GroupId,
        except: &[PartitionId],
        chunks: &mut usize,
    ) -> rusqlite::Result<()> {
        while *chunks > 0 {
            let Some(row) = self.group(group)? else { return Ok(()) };
            if row.frontier >= queue.newest {
                return Ok(());
            }
            let first = rows::partitions_after(self.db, queue.info.id, row.frontier, 1)?;
            let Some((_, first)) = first.first() else { return Ok(()) };
            let waiting = self.first_ready(group, except)?;
            if waiting.is_some_and(|(at, _)| at <= micros(first.created_at)) {
                return Ok(());
            }
            *chunks -= 1;
            let chunk =
                rows::partitions_after(self.db, queue.info.id, row.frontier, FRONTIER_CHUNK)?;
            let mut frontier = row.frontier;
            for found in chunk {
                let (id, partition) = self.keep_partition(found);
                frontier = id;
                if self.lane((id, group))?.is_none() {
                    self.new_lane(queue, (id, group), &partition, &row)?;
                }
            }
            self.change_group(group, |row| row.frontier = frontier);
        }
        Ok(())
    }

    /// The lane, made if it is not there.
    pub(super) fn lane_or_new(
        &mut self,
        queue: &QueueRow,
        key: LaneKey,
        partition: &PartitionRow,
        group: &GroupRow,
    ) -> rusqlite::Result<LaneRow> {
        match self.lane(key)? {
            Some(row) => Ok(row),
            None => self.new_lane(queue, key, partition, group),
        }
    }

    fn new_lane(
        &mut self,
        queue: &QueueRow,
        key: LaneKey,
        partition: &PartitionRow,
        group: &GroupRow,
    ) -> rusqlite::Result<LaneRow> {
        let cursor = match group.start {
            None => 0,
            Some(start) => self.pushed_before(key.0, partition, start)?,
        };
        // What was there when a group began at its end was counted then.
        let counted = match group.counted_until() {
            Time::ZERO => 0,
            until if group.start == Some(until) => cursor,
            until => self.pushed_before(key.0, partition, until)?,
        };
        let lane = Lane::beginning_after(cursor);
        let next = self.next_at(key.0, partition, cursor)?;
        // It waits since it was made: whoever comes late to a partition finds it at its place.
        let since = partition.created_at;
        let calm = !queue.rules.window.is_zero();
        let last_push = if calm { partition.last_push } else { Time::ZERO };
        let ready_at = lane.ready_at(since, &queue.rules, next, last_push);
        let row = queue.lane_row(partition, lane, ready_at, self.now);
        self.set_lane(key, row.clone());
        self.change_group(key.1, |row| {
            row.lanes += 1;
            row.settled += super::clock::signed(cursor) - super::clock::signed(counted);
        });
        Ok(row)
    }
}

pub(super) const READY: &str = "SELECT ready_at, partition FROM skep_queue_lanes
    WHERE grp = ?1 AND ready_at IS NOT NULL AND (ready_at, partition) > (?2, ?3) AND ready_at <= ?4
    ORDER BY ready_at, partition LIMIT ?5";

pub(super) const NEXT_READY: &str = "SELECT ready_at, partition FROM skep_queue_lanes
    WHERE grp = ?1 AND ready_at IS NOT NULL AND ready_at > ?2 ORDER BY ready_at, partition";
