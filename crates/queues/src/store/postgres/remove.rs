//! Taking single messages out.
//!
//! ```text
//!   search     without locks, which number it is
//!   1st trip   begin · lock the partition and all its lanes · read and lock the segment
//!   2nd trip   write the segment again without the message · read what is left for the lanes
//!   3rd trip   write lanes, sums, the dead letter · notify · commit
//! ```
//!
//! What other nodes remember of the segment's bytes does no harm: they take of them what its row
//! says, and the message's number is in no row that has bytes.

use super::link::{Call, Fail, Link, Values};
use super::names::Queue;
use super::rows::{Held, LANE_COLUMNS, LaneColumns, micros, signed, time, unsigned};
use super::work::{LOCK_LANES, LOCK_PARTITIONS, PARTITIONS};
use super::write::{COUNTS, DEAD, GROUP_COUNTS, LANES, NOTIFY, SumColumns, Sums, passed};
use super::{CHANNEL, PostgresQueues, Shared};
use crate::ids::PartitionId;
use crate::store::Removed;
use crate::store::browse::{Aside, Cut, damaged};
use bytes::Bytes;
use skep_policy::Time;
use skep_policy::queues::{Left, Run};
use skep_store::StoreError;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const SEGMENT: &str = "
    SELECT first, count, at, prints, body FROM skep_queue_segments
    WHERE partition = $1 AND first <= $2 ORDER BY first DESC LIMIT 1 FOR UPDATE";
pub(super) const DELETE: &str =
    "DELETE FROM skep_queue_segments WHERE partition = $1 AND first = $2";
const INSERT: &str = "
    INSERT INTO skep_queue_segments (partition, first, count, at, queue, prints, body, deleted)
    SELECT $1, n.first, n.count, $2, $3, n.prints, n.body, n.body IS NULL
    FROM unnest($4::bigint[], $5::integer[], $6::bytea[], $7::bytea[])
        AS n (first, count, prints, body)";
/// For cursors and ends of leases: the first message after the one and when it was pushed, and the
/// last one up to the other.
pub(super) const LEFT: &str = "
    SELECT n.first, n.at, l.last
    FROM unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY AS w (cursor, through, place)
    LEFT JOIN LATERAL (
        SELECT greatest(first, w.cursor + 1) AS first, at FROM skep_queue_segments
        WHERE partition = $1 AND first > w.cursor - 256 AND first + count > w.cursor + 1
          AND body IS NOT NULL
        ORDER BY first LIMIT 1) n ON TRUE
    LEFT JOIN LATERAL (
        SELECT least(first + count - 1, w.through) AS last FROM skep_queue_segments
        WHERE partition = $1 AND first <= w.through AND body IS NOT NULL
        ORDER BY first DESC LIMIT 1) l ON TRUE
    ORDER BY w.place";

/// What was locked and read of where the message is.
struct Spot {
    partition: i64,
    name: Arc<str>,
    queue: Arc<Queue>,
    tail: u64,
    last_push: Time,
    now: Time,
    /// With the names of their groups.
    lanes: Vec<(Held, Arc<str>)>,
    run: Run,
    cut: Cut,
}

impl PostgresQueues {
    /// Takes a message out; with `aside` it becomes a dead letter.
    pub(in crate::store) async fn take_out(
        &self,
        partition: PartitionId,
        transaction: &str,
        aside: Option<Aside>,
    ) -> Result<Option<Removed>, StoreError> {
        let shared = &*self.shared;
        let found = shared.find_message(partition.0, transaction).await?;
        let Some(number) = found.map(|found| found.number) else { return Ok(None) };
        let mut tries = 0;
        loop {
            let mut link = shared.links.link().await?;
            let take = shared.take_out(&mut link, (partition.0, number), transaction, &aside);
            let once = shared.links.postgres.limit(take).await;
            if let Some(removed) = shared.links.end(link, once, &mut tries).await? {
                return Ok(removed);
            }
        }
    }
}

impl Shared {
    async fn take_out(
        &self,
        link: &mut Link,
        (partition, number): (i64, u64),
        transaction: &str,
        aside: &Option<Aside>,
    ) -> Result<Option<Removed>, Fail> {
        let Some(spot) = self.lock_message(link, (partition, number), transaction).await? else {
            link.undo().await?;
            return Ok(None);
        };
        let failures = failures(&spot, number, aside);
        let left = self.write_cut(link, &spot, number).await?;
        let Spot { queue, name, run, cut, .. } = &spot;
        let mut lanes: Vec<Held> = Vec::new();
        for ((held, _), left) in spot.lanes.iter().zip(left) {
            let mut held = held.clone();
            pass_gap(&spot, &mut held, number, left);
            lanes.push(held);
        }
        let changed = LaneColumns::of(lanes.iter().filter(|held| held.changed()));
        let (groups, settled) = passed(lanes.iter());
        let dead = i64::from(aside.is_some());
        let sums = BTreeMap::from([(queue.id, Sums { removed: 1, dead, ..Sums::default() })]);
        let (slot, columns) = (self.slot(), SumColumns::of(&sums));
        let letter = aside.as_ref().map(|aside| Letter::of(aside, &spot, failures));
        let mut calls = vec![Call::Query(COUNTS, columns.values(&slot))];
        if !changed.is_empty() {
            calls.push(Call::Query(LANES, changed.values()));
        }
        if !groups.is_empty() {
            calls.push(Call::Query(GROUP_COUNTS, vec![&slot, &groups, &settled]));
        }
        if let Some(letter) = &letter {
            calls.push(Call::Query(DEAD, letter.values()));
        }
        let queue_name = &*queue.info.name;
        if lanes.iter().any(Held::is_sooner) {
            calls.push(Call::Query(NOTIFY, vec![&CHANNEL, &queue_name]));
        }
        calls.push(Call::Commit);
        link.send(calls).await?;
        self.bodies.forget((PartitionId(partition), run.first));
        for piece in [&cut.before, &cut.after].into_iter().filter(|piece| piece.count > 0) {
            self.bodies.put((PartitionId(partition), piece.first), piece.body.clone());
        }
        Ok(Some(Removed {
            queue: queue.info.name.clone(),
            partition: name.clone(),
            number,
            at: run.at,
            record: cut.record.clone(),
        }))
    }

    /// Locks the partition, its lanes and the message's segment. `None` if the message is not there
    /// any more.
    async fn lock_message(
        &self,
        link: &mut Link,
        (partition, number): (i64, u64),
        transaction: &str,
    ) -> Result<Option<Spot>, Fail> {
        let ids = vec![partition];
        let (none, no_groups): (Vec<i64>, Vec<&str>) = (Vec::new(), Vec::new());
        let no_leases: Vec<super::rows::Uid> = Vec::new();
        let last = signed(number);
        let answers = link
            .send(vec![
                Call::Begin,
                Call::Query(LOCK_PARTITIONS, vec![&ids]),
                Call::Query(LOCK_LANES, vec![&ids, &none, &no_groups, &no_leases]),
                Call::Query(PARTITIONS, vec![&ids, &no_leases]),
                Call::Query(SEGMENT, vec![&partition, &last]),
            ])
            .await?;
        let [_, _, lanes, place, segment] = answers.as_slice() else { return Err(Fail::Stale) };
        let (Some(place), Some(segment)) = (place.first(), segment.first()) else {
            return Ok(None);
        };
        let Some(body) = segment.get::<_, Option<&[u8]>>(4) else { return Ok(None) };
        let run = super::browse::run_of(segment, 0);
        let body = Bytes::copy_from_slice(body);
        let cut = Cut::of(&run, segment.get(3), &body, number, transaction)
            .map_err(|error| damaged(partition, run.first, error))?;
        let Some(cut) = cut else { return Ok(None) };
        let lane = |row: &tokio_postgres::Row| {
            (Held::read(row), Arc::from(row.get::<_, &str>(LANE_COLUMNS)))
        };
        Ok(Some(Spot {
            partition,
            name: place.get::<_, &str>(1).into(),
            queue: self.names.queue(place, 5),
            tail: unsigned(place.get(2)),
            last_push: time(place.get(3)),
            now: time(place.get(4)),
            lanes: lanes.iter().map(lane).collect(),
            run,
            cut,
        }))
    }

    /// Writes the segment again without the message. Tells what each lane still has, and when its
    /// next message was pushed.
    async fn write_cut(
        &self,
        link: &mut Link,
        spot: &Spot,
        number: u64,
    ) -> Result<Vec<(Left, Option<Time>)>, Fail> {
        let Spot { partition, queue, run, cut, .. } = spot;
        let (mut firsts, mut counts) = (Vec::new(), Vec::new());
        let (mut prints, mut bodies): (Vec<&[u8]>, Vec<Option<&[u8]>>) = (Vec::new(), Vec::new());
        for piece in [&cut.before, &cut.after].into_iter().filter(|piece| piece.count > 0) {
            firsts.push(signed(piece.first));
            counts.push(i32::try_from(piece.count).unwrap_or(i32::MAX));
            prints.push(&piece.prints);
            bodies.push(Some(&piece.body));
        }
        // The transaction id is known for its window, as if the message were there.
        if run.at + queue.info.options.dedup_window() > spot.now {
            firsts.push(signed(number));
            counts.push(1);
            prints.push(&cut.print);
            bodies.push(None);
        }
        let (first, at) = (signed(run.first), micros(run.at));
        let cursors: Vec<i64> = spot.lanes.iter().map(|one| signed(one.0.lane.cursor)).collect();
        let through = |held: &Held| held.lane.lease.map_or(0, |lease| signed(lease.through));
        let throughs: Vec<i64> = spot.lanes.iter().map(|one| through(&one.0)).collect();
        let insert: Values<'_> =
            vec![partition, &at, &queue.id, &firsts, &counts, &prints, &bodies];
        let answers = link
            .send(vec![
                Call::Query(DELETE, vec![partition, &first]),
                Call::Query(INSERT, insert),
                Call::Query(LEFT, vec![partition, &cursors, &throughs]),
            ])
            .await?;
        let left = |row: &tokio_postgres::Row| {
            let left = Left {
                leased: row.get::<_, Option<i64>>(2).map(unsigned),
                next: row.get::<_, Option<i64>>(0).map(unsigned),
                tail: spot.tail,
            };
            (left, row.get::<_, Option<i64>>(1).map(time))
        };
        Ok(answers.last().map(|rows| rows.iter().map(left).collect()).unwrap_or_default())
    }
}

/// Lets a lane pass the gap.
fn pass_gap(spot: &Spot, held: &mut Held, number: u64, (left, next): (Left, Option<Time>)) {
    let now = spot.now;
    let before = held.lane;
    if before.cursor >= number {
        return;
    }
    held.lane.pass_gap(now, &left);
    if held.lane == before {
        return;
    }
    let ready = held.lane.ready_at(now, &spot.queue.rules, next, spot.last_push);
    // One that waits keeps its turn.
    let waits = before.live_lease(now).is_none();
    let kept = held.ready_at.filter(|was| waits && *was <= now);
    held.ready_at = ready.map(|at| if at <= now { kept.unwrap_or(at) } else { at });
}

/// How often the message had come back, for the group that sets it aside.
fn failures(spot: &Spot, number: u64, aside: &Option<Aside>) -> i64 {
    let of_it = |one: &&(Held, Arc<str>)| aside.as_ref().is_some_and(|aside| aside.group == one.1);
    let lane = spot.lanes.iter().find(of_it).map(|one| one.0.lane);
    lane.filter(|lane| (lane.cursor + 1..=lane.failed_through).contains(&number))
        .map_or(0, |lane| i64::from(lane.failures))
}

/// A dead letter, column by column.
struct Letter<'spot> {
    queues: Vec<i64>,
    partitions: Vec<i64>,
    groups: Vec<&'spot str>,
    records: Vec<&'spot [u8]>,
    created: Vec<i64>,
    failures: Vec<i64>,
    errors: Vec<Option<&'spot str>>,
    failed_at: i64,
}

impl<'spot> Letter<'spot> {
    fn of(aside: &'spot Aside, spot: &'spot Spot, failures: i64) -> Self {
        Letter {
            queues: vec![spot.queue.id],
            partitions: vec![spot.partition],
            groups: vec![&aside.group],
            records: vec![&spot.cut.record],
            created: vec![micros(spot.run.at)],
            failures: vec![failures],
            errors: vec![aside.error.as_deref()],
            failed_at: micros(spot.now),
        }
    }

    fn values(&self) -> Values<'_> {
        vec![
            &self.queues,
            &self.partitions,
            &self.groups,
            &self.records,
            &self.created,
            &self.failures,
            &self.errors,
            &self.failed_at,
        ]
    }
}
