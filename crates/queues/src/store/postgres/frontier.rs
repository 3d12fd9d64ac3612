//! Lanes, made when a group first comes to a partition.
//!
//! The partitions are locked while their lanes are made: a push that has locked its partition
//! before sees no such lane, so its messages must be seen here; one that comes after sees the lane.

use super::Shared;
use super::link::{Call, Fail, Link};
use super::marks::PATIENCE;
use super::names::Queue;
use super::rows::{Keys, LaneColumns, micros, signed, time, unsigned};
use skep_policy::Time;
use skep_policy::queues::Lane;
use std::collections::HashMap;

/// For which partitions lanes are made.
pub(super) enum Which {
    /// The next so many behind the group's frontier, which moves on.
    Next(i64),
    /// These, wherever the frontier is.
    These(Vec<i64>),
}

struct Place {
    id: i64,
    tail: u64,
    last_push: Time,
    created_at: Time,
    /// Where the lane begins.
    cursor: u64,
}

const LOCK_NEXT: &str = "
    SELECT id, tail, last_push, created_at FROM skep_queue_partitions
    WHERE queue = $1
      AND id > (SELECT g.frontier FROM skep_queue_groups g WHERE g.id = $2 AND NOT g.deleted)
    ORDER BY queue, id LIMIT $3 FOR UPDATE";
const LOCK_THESE: &str = "
    SELECT id, tail, last_push, created_at FROM skep_queue_partitions
    WHERE queue = $1 AND id = ANY($2) ORDER BY id FOR UPDATE";
const LOCK_GROUP: &str = "
    SELECT start, frontier, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM skep_queue_groups WHERE id = $1 AND NOT deleted FOR UPDATE";
const FLOORS: &str = "
    SELECT w.partition, s.first, s.count, s.at
    FROM unnest($1::bigint[], $2::bigint[]) AS w (partition, number)
    CROSS JOIN LATERAL (
        SELECT first, count, at FROM skep_queue_segments
        WHERE partition = w.partition AND first <= w.number ORDER BY first DESC LIMIT 1) s";
const NEXT: &str = "
    SELECT w.partition, s.at
    FROM unnest($1::bigint[], $2::bigint[]) AS w (partition, cursor)
    CROSS JOIN LATERAL (
        SELECT at FROM skep_queue_segments
        WHERE partition = w.partition AND first > w.cursor - 256 AND first + count > w.cursor + 1
          AND body IS NOT NULL
        ORDER BY first LIMIT 1) s";
/// One that is there already stays, and is not counted again.
const INSERT: &str = "
    WITH made AS (
        INSERT INTO skep_queue_lanes
            (partition, grp, cursor, ready_at, lease, lease_until, lease_through, ended, failures,
             failed_through, not_before, leased_key, blocked_key)
        SELECT * FROM unnest(
            $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bigint[],
            $7::bigint[], $8::uuid[], $9::bigint[], $10::bigint[], $11::bigint[],
            $12::text[], $13::text[])
        ON CONFLICT (partition, grp) DO NOTHING
        RETURNING grp, cursor)
    INSERT INTO skep_queue_group_counts AS c (grp, slot, settled)
    SELECT grp, $14, sum(cursor) FROM made GROUP BY grp
    ON CONFLICT (grp, slot) DO UPDATE SET settled = c.settled + excluded.settled";
const MOVE: &str = "UPDATE skep_queue_groups SET frontier = greatest(frontier, $2) WHERE id = $1";

impl Shared {
    /// Makes lanes of a group. Tells how many partitions were looked at; `None` is that somebody
    /// has locked one of them.
    pub(super) async fn make_lanes(
        &self,
        queue: &Queue,
        group: i64,
        which: Which,
    ) -> Result<Option<usize>, skep_store::StoreError> {
        let mut tries = 0;
        loop {
            let mut link = self.links.link_within(PATIENCE).await?;
            let work = self.make_lanes_once(&mut link, queue, group, &which);
            let once = self.links.postgres.limit(work).await;
            let locked = matches!(once, Err(Fail::Locked(_)));
            match self.links.end(link, once, &mut tries).await {
                Ok(None) => {}
                Err(_) if locked => return Ok(None),
                done => return done,
            }
        }
    }

    /// The same in one attempt, on a connection without a transaction.
    pub(super) async fn make_lanes_once(
        &self,
        link: &mut Link,
        queue: &Queue,
        group: i64,
        which: &Which,
    ) -> Result<usize, Fail> {
        let lock = match which {
            Which::Next(count) => Call::Query(LOCK_NEXT, vec![&queue.id, &group, count]),
            Which::These(ids) => Call::Query(LOCK_THESE, vec![&queue.id, ids]),
        };
        let lock_group = Call::Query(LOCK_GROUP, vec![&group]);
        let answers = link.send(vec![Call::Begin, lock, lock_group]).await?;
        let [_, locked, row] = answers.as_slice() else { return Err(Fail::Stale) };
        let Some(row) = row.first() else {
            // Deleted or moved meanwhile.
            link.send(vec![Call::Commit]).await?;
            return Ok(0);
        };
        let start = row.get::<_, Option<i64>>(0).map(time);
        let (frontier, now): (i64, Time) = (row.get(1), time(row.get(2)));
        let mut places: Vec<Place> = locked
            .iter()
            .map(|row| Place {
                id: row.get(0),
                tail: unsigned(row.get(1)),
                last_push: time(row.get(2)),
                created_at: time(row.get(3)),
                cursor: 0,
            })
            .collect();
        if matches!(which, Which::Next(_)) {
            places.retain(|place| place.id > frontier);
        }
        self.begin_at(link, &mut places, start).await?;
        let ready = self.ready(link, queue, now, &places).await?;
        let mut lanes = LaneColumns::default();
        for (place, ready) in places.iter().zip(ready) {
            let lane = Lane::beginning_after(place.cursor);
            lanes.push(place.id, group, &lane, ready, &Keys::default());
        }
        let last = places.last().map_or(0, |place| place.id);
        let slot = self.slot();
        let mut values = lanes.values();
        values.push(&slot);
        let mut calls = vec![Call::Unhurried, Call::Query(INSERT, values)];
        if matches!(which, Which::Next(_)) {
            calls.push(Call::Query(MOVE, vec![&group, &last]));
        }
        calls.push(Call::Commit);
        link.send(calls).await?;
        Ok(locked.len())
    }

    /// Finds where lanes begin that are to leave out what was pushed before `start`.
    async fn begin_at(
        &self,
        link: &mut Link,
        places: &mut [Place],
        start: Option<Time>,
    ) -> Result<(), Fail> {
        let Some(start) = start else { return Ok(()) };
        let mut open = Vec::new();
        for (index, place) in places.iter_mut().enumerate() {
            if place.last_push < start {
                place.cursor = place.tail;
            } else if place.tail > 0 {
                open.push((index, place.id, place.tail));
            }
        }
        let ids: Vec<(i64, u64)> = open.iter().map(|one| (one.1, one.2)).collect();
        let cursors = self.cursors_before(link, &ids, start).await?;
        for ((index, ..), cursor) in open.iter().zip(cursors) {
            places[*index].cursor = cursor;
        }
        Ok(())
    }

    /// For each partition and its tail the last number that was pushed before `start`: numbers and
    /// times rise together, so it is found by halving.
    pub(super) async fn cursors_before(
        &self,
        link: &mut Link,
        partitions: &[(i64, u64)],
        start: Time,
    ) -> Result<Vec<u64>, Fail> {
        let mut bounds: Vec<(u64, u64)> = partitions.iter().map(|one| (0, one.1)).collect();
        loop {
            let middle = |(low, high): (u64, u64)| low + (high - low).div_ceil(2);
            let open = |bounds: &&(i64, (u64, u64))| bounds.1.0 < bounds.1.1;
            let pairs: Vec<(i64, (u64, u64))> =
                partitions.iter().map(|one| one.0).zip(bounds.iter().copied()).collect();
            let ids: Vec<i64> = pairs.iter().filter(open).map(|one| one.0).collect();
            let numbers: Vec<i64> =
                pairs.iter().filter(open).map(|one| signed(middle(one.1))).collect();
            if ids.is_empty() {
                return Ok(bounds.into_iter().map(|bounds| bounds.0).collect());
            }
            let rows = link.ask(FLOORS, vec![&ids, &numbers]).await?;
            let found: HashMap<i64, (u64, u64, Time)> = rows
                .iter()
                .map(|row| {
                    let first = unsigned(row.get(1));
                    let count = u64::try_from(row.get::<_, i32>(2)).unwrap_or(0);
                    (row.get(0), (first, first + count - 1, time(row.get(3))))
                })
                .collect();
            for ((id, _), bounds) in partitions.iter().zip(&mut bounds) {
                let middle = middle(*bounds);
                if bounds.0 >= bounds.1 {
                    continue;
                }
                match found.get(id) {
                    Some((first, _, at)) if *at >= start => bounds.1 = first - 1,
                    // The segment, or a gap after it that is no longer kept.
                    Some((_, last, _)) => bounds.0 = middle.max(*last).min(bounds.1),
                    None => bounds.0 = middle,
                }
            }
        }
    }

    async fn ready(
        &self,
        link: &mut Link,
        queue: &Queue,
        now: Time,
        places: &[Place],
    ) -> Result<Vec<Option<Time>>, Fail> {
        let waiting = places.iter().filter(|place| place.tail > place.cursor);
        let (ids, cursors): (Vec<i64>, Vec<i64>) =
            waiting.map(|place| (place.id, signed(place.cursor))).unzip();
        let mut next: HashMap<i64, Time> = HashMap::new();
        if !ids.is_empty() {
            let rows = link.ask(NEXT, vec![&ids, &cursors]).await?;
            next.extend(rows.iter().map(|row| (row.get::<_, i64>(0), time(row.get(1)))));
        }
        let ready = |place: &Place| {
            let lane = Lane::beginning_after(place.cursor);
            let next = next.get(&place.id).copied();
            let ready = lane.ready_at(now, &queue.rules, next, place.last_push)?;
            // It has been waiting since then.
            Some(if ready <= now { place.created_at.min(now) } else { ready })
        };
        Ok(places.iter().map(ready).collect())
    }

    /// When a lane that begins after `cursor` is ready, for a partition that is locked.
    pub(super) async fn lane_ready(
        &self,
        link: &mut Link,
        queue: &Queue,
        now: Time,
        partition: (i64, u64, i64),
        cursor: u64,
    ) -> Result<Option<i64>, Fail> {
        let (id, tail, last_push) = partition;
        let place = Place { id, tail, last_push: time(last_push), created_at: now, cursor };
        let ready = self.ready(link, queue, now, &[place]).await?;
        Ok(ready.into_iter().next().flatten().map(micros))
    }
}
