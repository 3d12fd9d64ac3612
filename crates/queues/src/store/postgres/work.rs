//! Pushes, settlements, transactions, extensions and releases: one transaction for all of a batch.
//!
//! ```text
//!   1st trip   begin · lock queues that have a maximum, partitions pushed to, lanes · read
//!   (a trip    transaction ids or bodies that this node does not remember)
//!   2nd trip   write segments, partitions, lanes, sums · notify · commit
//! ```
//!
//! Locks are taken in one order everywhere: queues, partitions, groups, lanes, rows that
//! transactions use up, each by number. A
//! push locks all lanes of its partitions after the partitions, and a settlement reads the tail
//! after it has locked the lane: whichever comes second sees what the first did, so a lane is never
//! left drained with a message in its partition.

use super::desk::{Desk, LaneKey, Room, Shelf};
use super::frontier::Which;
use super::jobs::{Done, Needs, answer, messages, place_of};
use super::later::Apart;
use super::link::{Call, Fail, Link, Values};
use super::marks::{self, PATIENCE, Spot, WAITS_MAX, spots};
use super::names::{self, Place, queue_columns};
use super::rows::{Held, LANE_COLUMNS, Uid, bodies, lane_columns, runs, time, unsigned};
use super::takes::Rows;
use super::write;
use super::{PostgresQueues, Shared};
use crate::ids::PartitionId;
use crate::store::{Aside, Job, Ran, Wake};
use skep_policy::{SeededChance, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Lanes of partitions, of settlements and of leases.
macro_rules! wanted {
    () => {
        "WITH wanted AS (
             SELECT l.partition, l.grp FROM skep_queue_lanes l WHERE l.partition = ANY($1)
             UNION
             SELECT p.id, g.id FROM unnest($2::bigint[], $3::text[]) AS w (partition, grp)
             JOIN skep_queue_partitions p ON p.id = w.partition
             JOIN skep_queue_groups g ON g.queue = p.queue AND g.name = w.grp AND NOT g.deleted
             UNION
             SELECT l.partition, l.grp FROM skep_queue_lanes l WHERE l.lease = ANY($4))"
    };
}
pub(super) use wanted;

const LOCK_QUEUES: &str = "SELECT 1 FROM skep_queues WHERE id = ANY($1) ORDER BY id FOR UPDATE";
pub(super) const LOCK_PARTITIONS: &str =
    "SELECT 1 FROM skep_queue_partitions WHERE id = ANY($1) ORDER BY id FOR UPDATE";
pub(super) const LOCK_LANES_OF_PARTITIONS: &str = concat!(
    "SELECT ",
    lane_columns!(),
    " FROM skep_queue_lanes l WHERE l.partition = ANY($1) ORDER BY l.partition, l.grp FOR UPDATE"
);
pub(super) const LOCK_LANES: &str = concat!(
    wanted!(),
    " SELECT ",
    lane_columns!(),
    ", g.name FROM wanted w
      JOIN skep_queue_lanes l ON l.partition = w.partition AND l.grp = w.grp
      JOIN skep_queue_groups g ON g.id = l.grp AND NOT g.deleted
      ORDER BY l.partition, l.grp FOR UPDATE OF l"
);
pub(super) const PARTITIONS: &str = concat!(
    "SELECT p.id, p.name, p.tail, p.last_push,
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, ",
    queue_columns!(),
    " FROM (SELECT unnest($1::bigint[]) AS id
            UNION SELECT l.partition FROM skep_queue_lanes l WHERE l.lease = ANY($2)) w
      JOIN skep_queue_partitions p ON p.id = w.id
      JOIN skep_queues q ON q.id = p.queue AND NOT q.deleted"
);
/// Groups of settlements, by a partition of their queue.
pub(super) const GROUPS: &str = "
    SELECT p.id, g.id FROM unnest($1::bigint[], $2::text[]) AS w (partition, grp)
    JOIN skep_queue_partitions p ON p.id = w.partition
    JOIN skep_queue_groups g ON g.queue = p.queue AND g.name = w.grp AND NOT g.deleted";
/// A segment of a run: with its body in partitions whose leases others gave out. Only they remember
/// it, and asking for it later is another trip; which is what large ones are worth.
macro_rules! run {
    () => {
        "SELECT s.first, s.count, s.at, s.body IS NOT NULL AS kept,
                CASE WHEN l.partition = ANY($5) AND s.first <= l.lease_through
                          AND l.lease_through <= l.cursor + 256 AND octet_length(s.body) <= 65536
                     THEN s.body END AS body
         FROM skep_queue_segments s"
    };
}

/// What each lane's lease covers, and the segment after it.
pub(super) const RUNS: &str = concat!(
    wanted!(),
    " SELECT l.partition, l.grp, array_agg(s.first), array_agg(s.count), array_agg(s.at),
             array_agg(s.body)
      FROM wanted w
      JOIN skep_queue_lanes l ON l.partition = w.partition AND l.grp = w.grp
      CROSS JOIN LATERAL (
          (SELECT f.* FROM (",
    run!(),
    "         WHERE s.partition = l.partition AND s.first <= l.cursor + 1
              ORDER BY s.first DESC LIMIT 1) f)
          UNION ALL
          (",
    run!(),
    "      WHERE s.partition = l.partition AND s.first > l.cursor + 1
             AND s.first <= greatest(l.lease_through, l.cursor) + 1)) s
      WHERE s.kept
      GROUP BY l.partition, l.grp"
);
/// Sums of queues: pushed, removed, settled by the slowest group, and waiting for their time.
pub(super) const ROOMS: &str = "
    SELECT w.queue, coalesce(c.pushed, 0)::bigint, coalesce(c.removed, 0)::bigint,
           (SELECT min(coalesce((SELECT sum(n.settled) FROM skep_queue_group_counts n
                                 WHERE n.grp = g.id), 0))
            FROM skep_queue_groups g WHERE g.queue = w.queue AND NOT g.deleted)::bigint,
           coalesce(c.later, 0)::bigint
    FROM unnest($1::bigint[]) AS w (queue)
    CROSS JOIN LATERAL (
        SELECT sum(pushed) AS pushed, sum(removed) AS removed, sum(later) AS later
        FROM skep_queue_counts
        WHERE queue = w.queue) c";

impl PostgresQueues {
    /// Runs jobs that are no claims, together, and answers them. Those that meet what somebody has
    /// locked for longer than `patience` are put aside.
    pub(super) async fn work(&self, jobs: Vec<Aside>, patience: Duration) -> Ran {
        let shared = &*self.shared;
        let (mut jobs, mut aside) = match patience {
            PATIENCE => shared.marks.part(&shared.names, jobs),
            // Whoever waits longer knows what for.
            _ => (jobs, Vec::new()),
        };
        let (mut tries, mut waits) = (0, 0);
        let done = loop {
            if jobs.is_empty() {
                return Ran { wakes: Vec::new(), aside };
            }
            let longer = patience.max(marks::patience(waits));
            let mut link = match shared.links.link_within(longer).await {
                Ok(link) => link,
                Err(error) => break Err(error),
            };
            let all: Vec<&Job> = jobs.iter().map(|one| &one.job).collect();
            let once = shared.links.postgres.limit(shared.work_once(&mut link, &all)).await;
            let locked = matches!(once, Err(Fail::Locked(_)));
            match shared.links.end(link, once, &mut tries).await {
                Ok(Some(done)) => break Ok(done),
                Ok(None) => {}
                Err(_) if locked => {
                    if let Err(error) = shared.look_aside(&jobs).await {
                        break Err(error);
                    }
                    let (free, mut stuck) = shared.marks.part(&shared.names, jobs);
                    waits = if stuck.is_empty() { waits + 1 } else { 0 };
                    aside.append(&mut stuck);
                    jobs = free;
                    // A long line; or something that nobody thought of, so nobody knows whose it
                    // is.
                    if waits >= WAITS_MAX || patience != PATIENCE {
                        aside.append(&mut jobs);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let wakes = match done {
            Ok((done, mut wakes)) => {
                shared.met_free(&jobs);
                for (one, done) in jobs.into_iter().zip(done) {
                    answer(one.job, done);
                }
                wakes.extend(self.run_errands().await);
                wakes
            }
            Err(error) => {
                shared.forget_prints(&jobs);
                for one in jobs {
                    super::refuse(one.job, &error);
                }
                Vec::new()
            }
        };
        Ran { wakes, aside }
    }
}

impl Shared {
    async fn work_once(
        &self,
        link: &mut Link,
        jobs: &[&Job],
    ) -> Result<(Vec<Done>, Vec<Wake>), Fail> {
        let needs = Needs::of(jobs.iter().copied(), self.lease_tag);
        let mut desk = self.read(link, &needs).await?;
        if self.make_missing_lanes(link, &needs, &desk).await? {
            return Err(Fail::Stale);
        }
        self.look_up(link, &mut desk, jobs).await?;
        self.find_waiting(link, &mut desk, jobs).await?;
        let done = jobs.iter().map(|job| decide(&mut desk, job)).collect();
        let wakes = write::write(self, link, desk).await?;
        Ok((done, wakes))
    }

    /// Locks and reads what the jobs are about.
    pub(super) async fn read(&self, link: &mut Link, needs: &Needs) -> Result<Desk, Fail> {
        let mut places = names::find(&self.names, link, &needs.places).await?;
        let missing: Vec<Place> =
            needs.places.iter().filter(|place| !places.contains_key(*place)).cloned().collect();
        let limited = |queue: &i64| {
            self.names.seen(*queue).is_some_and(|queue| queue.info.options.max_size > 0)
        };
        let queues: BTreeSet<i64> = places.values().map(|ids| ids.0).filter(limited).collect();
        let mut queues: Vec<i64> = queues.into_iter().collect();
        let mut calls = Vec::new();
        let mut made = names::Made::default();
        if missing.is_empty() {
            calls.push(Call::Begin);
        } else {
            link.send(vec![Call::Begin]).await?;
            let also = queues.iter().filter_map(|id| Some(self.names.seen(*id)?.info.name.clone()));
            made = names::make(link, &missing, &also.collect::<Vec<_>>(), &mut places).await?;
            // A queue that was not known until now may have a maximum; it is locked already.
            queues.extend(places.values().map(|ids| ids.0));
            queues.sort_unstable();
            queues.dedup();
        }
        let pushed: BTreeSet<i64> = places.values().map(|ids| ids.1).collect();
        let pushed: Vec<i64> = pushed.into_iter().collect();
        let settled: Vec<i64> = needs.lanes.iter().map(|lane| lane.0).collect();
        let groups: Vec<&str> = needs.lanes.iter().map(|lane| &*lane.1).collect();
        let leases: Vec<Uid> = needs.leases.iter().map(|id| Uid(*id)).collect();
        let partitions: Vec<i64> = pushed.iter().chain(&settled).copied().collect();
        let settles = !settled.is_empty() || !leases.is_empty();
        let none: Vec<i64> = Vec::new();
        let elsewhere: Vec<i64> = needs.elsewhere.iter().copied().collect();
        if !queues.is_empty() && missing.is_empty() {
            calls.push(Call::Query(LOCK_QUEUES, vec![&queues]));
        }
        if !pushed.is_empty() {
            calls.push(Call::Query(LOCK_PARTITIONS, vec![&pushed]));
        }
        let base = calls.len();
        calls.push(match settles {
            false => Call::Query(LOCK_LANES_OF_PARTITIONS, vec![&pushed]),
            true => Call::Query(LOCK_LANES, vec![&pushed, &settled, &groups, &leases]),
        });
        calls.push(Call::Query(PARTITIONS, vec![&partitions, &leases]));
        if settles {
            let values: Values<'_> = vec![&none, &settled, &groups, &leases, &elsewhere];
            calls.push(Call::Query(RUNS, values));
        }
        if !queues.is_empty() {
            calls.push(Call::Query(ROOMS, vec![&queues]));
        }
        let takes = needs.takes.columns();
        calls.extend(takes.locks());
        let answers = link.send(calls).await?;
        let mut answers = answers.into_iter().skip(base);
        let mut desk = Desk {
            now: Time::ZERO,
            places,
            made,
            shelves: BTreeMap::new(),
            lanes: BTreeMap::new(),
            by_group: HashMap::new(),
            runs: HashMap::new(),
            bodies: HashMap::new(),
            numbers: HashMap::new(),
            loose: HashMap::new(),
            originals: HashMap::new(),
            rooms: HashMap::new(),
            dead: Vec::new(),
            later: Apart::default(),
            waiting: HashMap::new(),
            rows: Rows::default(),
            chance: SeededChance::new(Uuid::new_v4().as_u64_pair().0),
        };
        for row in answers.next().unwrap_or_default() {
            let held = Held::read(&row);
            if settles {
                let group: &str = row.get(LANE_COLUMNS);
                desk.by_group.insert((held.partition, group.into()), held.key());
            }
            desk.lanes.insert(held.key(), held);
        }
        for row in answers.next().unwrap_or_default() {
            desk.now = desk.now.max(time(row.get(4)));
            let queue = self.names.queue(&row, 5);
            let (name, tail): (&str, i64) = (row.get(1), row.get(2));
            let shelf = Shelf::new(queue, name.into(), unsigned(tail), time(row.get(3)));
            desk.shelves.insert(row.get(0), shelf);
        }
        if settles {
            for row in answers.next().unwrap_or_default() {
                let key: LaneKey = (row.get(0), row.get(1));
                desk.runs.insert(key, runs(&row, 2));
                desk.bodies.extend(bodies(&row, key.0, 2));
            }
        }
        let rooms = if queues.is_empty() { None } else { answers.next() };
        for row in rooms.unwrap_or_default() {
            let queue: i64 = row.get(0);
            let (pushed, removed): (i64, i64) = (row.get(1), row.get(2));
            let gone = row.get::<_, Option<i64>>(3).unwrap_or(0).max(removed);
            let waiting = unsigned(pushed - gone) + unsigned(row.get(4));
            desk.rooms.insert(queue, Room { waiting, max: u64::MAX });
        }
        desk.rows = takes.found(&mut answers);
        self.check(&mut desk)?;
        // What a deleted queue leaves behind is nobody's, and no lease holds it.
        let Desk { shelves, lanes, by_group, .. } = &mut desk;
        lanes.retain(|key, _| shelves.contains_key(&key.0));
        by_group.retain(|_, key| lanes.contains_key(key));
        Ok(desk)
    }

    /// Makes lanes where a group settles something and has not looked at the partition yet, as
    /// after it was moved. Tells whether it did; then the batch was undone and has to begin anew.
    async fn make_missing_lanes(
        &self,
        link: &mut Link,
        needs: &Needs,
        desk: &Desk,
    ) -> Result<bool, Fail> {
        let missing = |lane: &&(i64, Arc<str>)| {
            desk.shelves.contains_key(&lane.0) && !desk.by_group.contains_key(*lane)
        };
        let missing: Vec<&(i64, Arc<str>)> = needs.lanes.iter().filter(missing).collect();
        if missing.is_empty() {
            return Ok(false);
        }
        let partitions: Vec<i64> = missing.iter().map(|lane| lane.0).collect();
        let groups: Vec<&str> = missing.iter().map(|lane| &*lane.1).collect();
        let found = link.ask(GROUPS, vec![&partitions, &groups]).await?;
        if found.is_empty() {
            return Ok(false);
        }
        link.undo().await?;
        for row in &found {
            let (partition, group): (i64, i64) = (row.get(0), row.get(1));
            if let Some(shelf) = desk.shelves.get(&partition) {
                let which = Which::These(vec![partition]);
                self.make_lanes_once(link, &shelf.queue, group, &which).await?;
            }
        }
        Ok(true)
    }

    /// Whether what was remembered is still so, and the right queues are locked.
    fn check(&self, desk: &mut Desk) -> Result<(), Fail> {
        for (queue, partition) in desk.places.values() {
            if desk.shelves.get(partition).is_none_or(|shelf| shelf.queue.id != *queue) {
                self.names.forget_queue(*queue);
                return Err(Fail::Stale);
            }
        }
        for shelf in desk.places.values().filter_map(|ids| desk.shelves.get(&ids.1)) {
            let max = shelf.queue.info.options.max_size;
            match desk.rooms.get_mut(&shelf.queue.id) {
                Some(_) if max == 0 => drop(desk.rooms.remove(&shelf.queue.id)),
                Some(room) => room.max = max,
                None if max > 0 => return Err(Fail::Stale),
                None => {}
            }
        }
        Ok(())
    }

    /// What these jobs are about was not locked.
    fn met_free(&self, jobs: &[Aside]) {
        if !self.marks.is_empty() {
            let met: Vec<Spot> = jobs.iter().flat_map(|one| spots(&self.names, &one.job)).collect();
            self.marks.remove(&met);
        }
    }

    /// Forgets the transaction ids of partitions that a batch may or may not have pushed to.
    fn forget_prints(&self, jobs: &[Aside]) {
        let mut prints = self.prints();
        for message in jobs.iter().flat_map(|one| messages(&one.job)) {
            if let Some((_, id)) = self.names.partition(&place_of(message)) {
                prints.forget(PartitionId(id));
            }
        }
    }
}

fn decide(desk: &mut Desk, job: &Job) -> Done {
    let now = desk.now;
    match job {
        Job::Push(messages, _) => Done::Pushed(desk.push(messages.iter(), &BTreeMap::new())),
        Job::Settle { group, items, .. } => {
            let items: Vec<_> = items.iter().map(|item| (group, item, item.lease)).collect();
            Done::Settled(desk.settle(&items))
        }
        Job::Transaction(job, _) => Done::Transacted(desk.transact(job)),
        Job::Extend { lease, seconds, .. } => {
            let until = now + Duration::from_secs(u64::from(*seconds));
            let held = desk.each_leased(|held| held.lane.extend(now, *lease, until));
            Done::Extended((held > 0).then_some(until))
        }
        Job::Release { lease, .. } => {
            Done::Released(desk.each_leased(|held| held.lane.release(now, *lease)))
        }
        Job::Claim(..) => Done::Released(0),
    }
}
