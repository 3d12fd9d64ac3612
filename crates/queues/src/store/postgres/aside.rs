//! Jobs whose rows somebody has locked, and finding out which rows those are.
//!
//! ```text
//!   batch ─► a lock is not free in time ─► which rows? ─► marks
//!              │                                            │
//!              └─► the others go on        those ◄──────────┘
//!                                            └─► aside ─► look again, wait for one of them ─► done
//! ```
//!
//! What is aside holds up nobody but itself. Of all that is there the rows are looked at, without
//! waiting; what is free is done, and one of the rest is waited for, another one each time.

use super::desk::LaneKey;
use super::jobs::Needs;
use super::link::{Call, Fail, Link};
use super::marks::{Holders, LONG_PATIENCE, PATIENCE, Spot, spots};
use super::rows::Uid;
use super::work::wanted;
use super::{PostgresQueues, Shared};
use crate::store::{Aside, Job, Ran, WorkError};
use skep_store::StoreError;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_postgres::Row;

/// A job is aside so long at most.
const ASIDE_MAX: Duration = Duration::from_secs(30);
/// Jobs, and bytes of their messages, that are done together.
const TOGETHER_MAX: usize = 1_024;
const BYTES_MAX: usize = 4 << 20;

pub(super) const LOCKED_QUEUES: &str = "
    SELECT q.id, q.xmax::text FROM skep_queues q
    LEFT JOIN LATERAL (
        SELECT x.id FROM skep_queues x WHERE x.id = q.id FOR UPDATE SKIP LOCKED) f ON TRUE
    WHERE q.id = ANY($1) AND f.id IS NULL";
pub(super) const LOCKED_PARTITIONS: &str = "
    SELECT p.id, p.xmax::text FROM skep_queue_partitions p
    LEFT JOIN LATERAL (
        SELECT x.id FROM skep_queue_partitions x WHERE x.id = p.id FOR UPDATE SKIP LOCKED) f
        ON TRUE
    WHERE p.id = ANY($1) AND f.id IS NULL";
/// Lanes, or what settling in them locks besides: whether it is the lane itself.
pub(super) const LOCKED_LANES: &str = concat!(
    wanted!(),
    " SELECT l.partition, n.name, l.lease, f.partition IS NULL,
             CASE WHEN f.partition IS NULL THEN l.xmax::text ELSE g.xmax::text END FROM wanted w
      JOIN skep_queue_lanes l ON l.partition = w.partition AND l.grp = w.grp
      JOIN skep_queue_groups n ON n.id = l.grp
      LEFT JOIN skep_queue_grants g ON g.grp = l.grp AND g.whole = 1 AND g.key = ''
      LEFT JOIN LATERAL (
          SELECT x.partition FROM skep_queue_lanes x
          WHERE x.partition = w.partition AND x.grp = w.grp FOR UPDATE SKIP LOCKED) f ON TRUE
      LEFT JOIN LATERAL (
          SELECT x.grp FROM skep_queue_grants x
          WHERE x.grp = w.grp AND x.whole = 1 AND x.key = '' FOR UPDATE SKIP LOCKED) h ON TRUE
      WHERE f.partition IS NULL OR g.grp IS NOT NULL AND h.grp IS NULL"
);
pub(super) const LOCKED_LANE: &str = "
    SELECT l.xmax::text FROM skep_queue_lanes l
    LEFT JOIN LATERAL (
        SELECT x.grp FROM skep_queue_lanes x
        WHERE x.partition = l.partition AND x.grp = l.grp FOR UPDATE SKIP LOCKED) f ON TRUE
    WHERE l.partition = $1 AND l.grp = $2 AND f.grp IS NULL";
pub(super) const LOCKED_GRANTS: &str = "
    SELECT g.grp, g.xmax::text FROM skep_queue_grants g
    LEFT JOIN LATERAL (
        SELECT x.grp FROM skep_queue_grants x
        WHERE x.grp = g.grp AND x.whole = 1 AND x.key = '' FOR UPDATE SKIP LOCKED) f ON TRUE
    WHERE g.grp = ANY($1) AND g.whole = 1 AND g.key = '' AND f.grp IS NULL";

impl PostgresQueues {
    /// Tries jobs again that were put aside.
    pub async fn again(&self, asides: Vec<Aside>) -> Ran {
        let shared = &*self.shared;
        let (asides, late): (Vec<Aside>, Vec<Aside>) =
            asides.into_iter().partition(|one| one.since.elapsed() < ASIDE_MAX);
        if !late.is_empty() {
            tracing::warn!(jobs = late.len(), "rows of queues are locked for longer than 30 s");
        }
        // The database is not away: these must not go to where pushes wait for it.
        late.into_iter().for_each(|one| one.job.refuse(WorkError::Overloaded));
        // If it cannot be told, the jobs are tried, and have their answers from that.
        if let Err(error) = shared.look_aside(&asides).await {
            tracing::debug!(%error, "what is locked is not known");
            let wanted: HashSet<Spot> =
                asides.iter().flat_map(|one| spots(&shared.names, &one.job)).collect();
            shared.marks.remove(&wanted);
        }
        let (free, stuck) = shared.marks.part(&shared.names, asides);
        let (waited_for, mut left) = shared.one_of(stuck);
        let mut ran = Ran::default();
        let (parts, waited) = tokio::join!(
            async {
                let mut all = Ran::default();
                for part in together(free) {
                    all.add(Box::pin(self.work(part, PATIENCE)).await);
                }
                all
            },
            Box::pin(self.work(waited_for, LONG_PATIENCE))
        );
        ran.add(parts);
        ran.add(waited);
        ran.aside.append(&mut left);
        ran
    }
}

impl Shared {
    /// Finds out which rows of jobs are locked, and marks them, and no others of theirs.
    pub(super) async fn look_aside(&self, asides: &[Aside]) -> Result<(), StoreError> {
        if asides.is_empty() {
            return Ok(());
        }
        let mut tries = 0;
        let locked = loop {
            let mut link = self.links.link().await?;
            let once = self.links.postgres.limit(self.locked(&mut link, asides)).await;
            if let Some(locked) = self.links.end(link, once, &mut tries).await? {
                break locked;
            }
        };
        let wanted: HashSet<Spot> =
            asides.iter().flat_map(|one| spots(&self.names, &one.job)).collect();
        self.marks.remove(wanted.iter().filter(|spot| !locked.contains_key(*spot)));
        self.marks.add(locked);
        Ok(())
    }

    /// The rows of jobs that somebody has locked. Nothing is waited for.
    async fn locked(
        &self,
        link: &mut Link,
        asides: &[Aside],
    ) -> Result<HashMap<Spot, Holders>, Fail> {
        let needs = Needs::of(asides.iter().map(|one| &one.job), self.lease_tag);
        let mut by_queue: HashMap<i64, Vec<i64>> = HashMap::new();
        let mut partitions: Vec<i64> = Vec::new();
        for (queue, partition) in needs.places.iter().filter_map(|one| self.names.partition(one)) {
            partitions.push(partition);
            let limited = |queue: i64| Some(self.names.seen(queue)?.info.options.max_size > 0);
            if limited(queue) == Some(true) {
                by_queue.entry(queue).or_default().push(partition);
            }
        }
        let queues: Vec<i64> = by_queue.keys().copied().collect();
        let settled: Vec<i64> = needs.lanes.iter().map(|lane| lane.0).collect();
        let groups: Vec<&str> = needs.lanes.iter().map(|lane| &*lane.1).collect();
        let leases: Vec<Uid> = needs.leases.iter().map(|id| Uid(*id)).collect();
        let calls = vec![
            Call::Begin,
            Call::Query(LOCKED_QUEUES, vec![&queues]),
            Call::Query(LOCKED_PARTITIONS, vec![&partitions]),
            Call::Query(LOCKED_LANES, vec![&partitions, &settled, &groups, &leases]),
        ];
        let answers = link.send(calls).await?;
        link.undo().await?;
        let mut locked: HashMap<Spot, Holders> = HashMap::new();
        let mut held = |spot: Spot, holder: &str| {
            locked.entry(spot).or_default().insert(holder.to_owned());
        };
        let [_, of_queues, of_partitions, of_lanes] = answers.as_slice() else {
            return Err(Fail::Stale);
        };
        for row in of_queues {
            let pushed = by_queue.remove(&row.get::<_, i64>(0)).unwrap_or_default();
            pushed.into_iter().for_each(|id| held(Spot::Push(id), row.get(1)));
        }
        of_partitions.iter().for_each(|row| held(Spot::Push(row.get(0)), row.get(1)));
        for row in of_lanes {
            let (partition, group): (i64, &str) = (row.get(0), row.get(1));
            held(Spot::Settle(partition, group.into()), row.get(4));
            if let Some(lease) = row.get::<_, Option<Uid>>(2) {
                held(Spot::Lease(lease.0), row.get(4));
            }
            if row.get(3) {
                held(Spot::Push(partition), row.get(4));
            }
        }
        Ok(locked)
    }

    /// Marks what claims have met: a lane that they waited for, or what claims of these groups
    /// lock.
    pub(super) async fn look_at_claims(
        &self,
        lane: Option<LaneKey>,
        groups: &Vec<i64>,
    ) -> Result<(), StoreError> {
        let (partition, group) = lane.unwrap_or_default();
        let mut tries = 0;
        let answers = loop {
            let mut link = self.links.link().await?;
            let look = link.send(vec![
                Call::Query(LOCKED_LANE, vec![&partition, &group]),
                Call::Query(LOCKED_GRANTS, vec![groups]),
            ]);
            let once = self.links.postgres.limit(look).await;
            if let Some(answers) = self.links.end(link, once, &mut tries).await? {
                break answers;
            }
        };
        let [of_lane, of_groups] = answers.as_slice() else { return Ok(()) };
        let holder = |row: &Row, column| Holders::from([row.get::<_, String>(column)]);
        let lanes = of_lane.iter().map(|row| (Spot::Claim((partition, group)), holder(row, 0)));
        let groups = of_groups.iter().map(|row| (Spot::Grants(row.get(0)), holder(row, 1)));
        self.marks.add(lanes.chain(groups));
        Ok(())
    }

    /// One job, another one each time, with those that want nothing else, and the others.
    fn one_of(&self, stuck: Vec<Aside>) -> (Vec<Aside>, Vec<Aside>) {
        if stuck.is_empty() {
            return (Vec::new(), stuck);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize % stuck.len();
        let wanted = spots(&self.names, &stuck[turn].job);
        let (mut ones, mut others) = (Vec::new(), Vec::new());
        for (place, one) in stuck.into_iter().enumerate() {
            let alike = || spots(&self.names, &one.job).is_subset(&wanted);
            let fits = place == turn || ones.len() < TOGETHER_MAX && alike();
            if fits { ones.push(one) } else { others.push(one) }
        }
        (ones, others)
    }
}

/// Cuts jobs into parts that are done together.
fn together(jobs: Vec<Aside>) -> Vec<Vec<Aside>> {
    let mut parts: Vec<Vec<Aside>> = Vec::new();
    let mut bytes = BYTES_MAX;
    for one in jobs {
        match parts.last_mut().filter(|part| part.len() < TOGETHER_MAX && bytes < BYTES_MAX) {
            Some(part) => {
                bytes += Job::bytes(&one.job).unwrap_or(0);
                part.push(one);
            }
            None => {
                bytes = Job::bytes(&one.job).unwrap_or(0);
                parts.push(vec![one]);
            }
        }
    }
    parts
}
