//! Deleting queues, and moving groups.
//!
//! Whatever its size a group is moved or deleted by one row: the group under that name is another
//! one from now on, and the old lanes are nobody's.

use super::blocked::{Ends, Errands};
use super::limits::{INHERIT, LOCK_QUEUE as LOCK_QUEUE_GRANTS};
use super::link::{Call, Fail, Link, Values};
use super::names::{QUEUE_COLUMNS, Queue, queue_columns};
use super::rows::{Held, in_flight, lane_columns, micros, signed, time, unsigned};
use super::write::{GROUP_COUNTS, NOTIFY};
use super::{CHANNEL, PostgresQueues, Shared};
use crate::store::{SeekTo, Sought};
use skep_store::StoreError;
use std::sync::Arc;

const DELETE_QUEUE: &str =
    "UPDATE skep_queues SET deleted = TRUE WHERE name = $1 AND NOT deleted RETURNING id";
const LOCK_QUEUE: &str = concat!(
    "SELECT ",
    queue_columns!(),
    ", (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
     FROM skep_queues q WHERE q.name = $1 AND NOT q.deleted FOR UPDATE"
);
const END_GROUP: &str = "
    UPDATE skep_queue_groups SET deleted = TRUE WHERE queue = $1 AND name = $2 AND NOT deleted";
pub(super) const NEW_GROUP: &str = "
    INSERT INTO skep_queue_groups (queue, name, start, frontier, created_at)
    VALUES ($1, $2, $3, 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT (queue, name) WHERE NOT deleted DO NOTHING";
const PARTITIONS: &str = "
    SELECT coalesce(sum(partitions), 0)::bigint FROM skep_queue_counts WHERE queue = $1";
/// All its levels.
const LOCK_PARTITIONS: &str = "
    SELECT id, tail, last_push FROM skep_queue_partitions
    WHERE queue = $1 AND name = $2 ORDER BY id FOR UPDATE";
const LOCK_GROUP: &str = "
    SELECT id FROM skep_queue_groups WHERE queue = $1 AND name = $2 AND NOT deleted FOR UPDATE";
const LOCK_LANE: &str = concat!(
    "SELECT ",
    lane_columns!(),
    " FROM skep_queue_lanes l WHERE l.partition = $1 AND l.grp = $2 FOR UPDATE"
);
const PUT_LANE: &str = "
    INSERT INTO skep_queue_lanes (partition, grp, cursor, ready_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (partition, grp) DO UPDATE SET
        cursor = excluded.cursor, ready_at = excluded.ready_at, lease = NULL, lease_until = NULL,
        lease_through = NULL, ended = NULL, failures = 0, failed_through = 0, not_before = 0,
        leased_key = NULL, blocked_key = NULL";

impl PostgresQueues {
    /// Deletes a queue with everything in it. Tells whether it was there.
    pub async fn delete_queue(&self, name: &str) -> Result<bool, StoreError> {
        let rows = self.shared.ask(DELETE_QUEUE, &[&name]).await?;
        for row in &rows {
            self.shared.names.forget_queue(row.get(0));
        }
        Ok(!rows.is_empty())
    }

    /// Lets a group go on reading elsewhere, in one partition or in all.
    pub async fn seek(
        &self,
        queue: &str,
        group: &str,
        partition: Option<&str>,
        to: SeekTo,
    ) -> Result<Sought, StoreError> {
        let shared = &*self.shared;
        let mut tries = 0;
        loop {
            let mut link = shared.links.link().await?;
            let seek = shared.seek(&mut link, queue, group, partition, to);
            let once = shared.links.postgres.limit(seek).await;
            if let Some(sought) = shared.links.end(link, once, &mut tries).await? {
                // Whoever waits on this node hears of it like the others.
                let wakes = self.run_errands().await;
                shared.leave(Errands::of(wakes));
                return Ok(sought);
            }
        }
    }
}

impl Shared {
    async fn seek(
        &self,
        link: &mut Link,
        name: &str,
        group: &str,
        partition: Option<&str>,
        to: SeekTo,
    ) -> Result<Sought, Fail> {
        let lock = Call::Query(LOCK_QUEUE, vec![&name]);
        let answers = link.send(vec![Call::Begin, lock]).await?;
        let Some(row) = answers.last().and_then(|rows| rows.first()) else {
            link.send(vec![Call::Commit]).await?;
            return Ok(Sought::NoQueue);
        };
        let queue = self.names.queue(row, 0);
        let now: i64 = row.get(QUEUE_COLUMNS);
        if let Some(partition) = partition {
            return self.seek_one(link, &queue, group, partition, to, now).await;
        }
        let start = match to {
            SeekTo::Time(time) => micros(time),
            // What is there was pushed at this time at the latest.
            SeekTo::End => now + 1,
        };
        let mut before = None;
        if queue.limits.is_some() {
            let calls = vec![
                Call::Query(LOCK_QUEUE_GRANTS, vec![&queue.id]),
                Call::Query(LOCK_GROUP, vec![&queue.id, &group]),
            ];
            let answers = link.send(calls).await?;
            before = answers.last().and_then(|rows| rows.first()).map(|row| row.get::<_, i64>(0));
        }
        let mut calls = vec![
            Call::Query(END_GROUP, vec![&queue.id, &group]),
            Call::Query(NEW_GROUP, vec![&queue.id, &group, &start]),
            Call::Query(PARTITIONS, vec![&queue.id]),
        ];
        if let Some(before) = &before {
            calls.push(Call::Query(INHERIT, vec![&queue.id, &group, before]));
        }
        calls.push(Call::Query(NOTIFY, vec![&CHANNEL, &name]));
        calls.push(Call::Commit);
        let answers = link.send(calls).await?;
        self.names.forget_group(name, group);
        let count = answers.get(2).and_then(|rows| rows.first()).map_or(0, |row| row.get(0));
        Ok(Sought::Moved(unsigned(count)))
    }

    async fn seek_one(
        &self,
        link: &mut Link,
        queue: &Arc<Queue>,
        group: &str,
        partition: &str,
        to: SeekTo,
        now: i64,
    ) -> Result<Sought, Fail> {
        let lock = vec![
            Call::Query(LOCK_PARTITIONS, vec![&queue.id, &partition]),
            Call::Query(NEW_GROUP, vec![&queue.id, &group, &None::<i64>]),
            Call::Query(LOCK_GROUP, vec![&queue.id, &group]),
        ];
        let answers = link.send(lock).await?;
        let [partitions, _, id] = answers.as_slice() else { return Err(Fail::Stale) };
        if partitions.is_empty() {
            // The group would be made for nothing; the attempt is undone.
            link.undo().await?;
            return Ok(Sought::NoPartition);
        }
        let id: i64 = id.first().map(|row| row.get(0)).ok_or(Fail::Stale)?;
        let mut ends = Ends::default();
        let names = (&Arc::from(group), &Arc::from(partition));
        for row in partitions {
            let place = (row.get(0), unsigned(row.get(1)), row.get(2));
            let ended = self.seek_lane(link, queue, id, place, to, now).await?;
            if let Some(limits) = &queue.limits {
                // One more, because a lane that was ready may be drained now.
                let key = limits.key_of(partition).into();
                ends.add(queue, (id, names.0, names.1), (&key, ended + 1), time(now));
            }
        }
        let freed = ends.freed();
        let name = &*queue.info.name;
        let mut calls: Vec<Call<'_>> = freed.lock().into_iter().collect();
        let let_go = calls.len();
        calls.extend(freed.calls());
        calls.push(Call::Query(NOTIFY, vec![&CHANNEL, &name]));
        calls.push(Call::Commit);
        let answers = link.send(calls).await?;
        if !freed.is_empty() {
            self.leave(freed.errands(&answers[let_go], &answers[let_go + 1]));
        }
        Ok(Sought::Moved(partitions.len() as u64))
    }

    /// Moves one lane, of a partition given with its tail and last push. Tells how much was in
    /// flight.
    async fn seek_lane(
        &self,
        link: &mut Link,
        queue: &Arc<Queue>,
        group: i64,
        place: (i64, u64, i64),
        to: SeekTo,
        now: i64,
    ) -> Result<u64, Fail> {
        let (id, tail, last_push) = place;
        let lane = link.ask(LOCK_LANE, vec![&id, &group]).await?;
        let lane = lane.first().map(Held::read);
        let before = lane.as_ref().map_or(0, |held| signed(held.lane.cursor));
        let cursor = match to {
            SeekTo::End => tail,
            SeekTo::Time(start) if last_push < micros(start) => tail,
            SeekTo::Time(start) => {
                let found = self.cursors_before(link, &[(id, tail)], start).await?;
                found.first().copied().unwrap_or(0)
            }
        };
        let ready = self.lane_ready(link, queue, time(now), place, cursor).await?;
        let (slot, cursor) = (self.slot(), signed(cursor));
        let (groups, passed) = (vec![group], vec![cursor - before]);
        let values: Values<'_> = vec![&id, &group, &cursor, &ready];
        link.send(vec![
            Call::Query(PUT_LANE, values),
            Call::Query(GROUP_COUNTS, vec![&slot, &groups, &passed]),
        ])
        .await?;
        Ok(lane.map_or(0, |held| in_flight(&held.lane)))
    }
}
