//! Claims for any queue of a kind.
//!
//! The queue with the highest priority that has something ready is served, and among equals the one
//! whose first lane waits longest. A partition that the group has not looked at waits since it was
//! made, if it has messages at all; so as long as such a partition may come first, lanes are made.

use super::Shared;
use super::claim::{ADVANCE_BY, ADVANCES_MAX, empty};
use super::frontier::Which;
use super::names::{Queue, queue_columns};
use super::rows::time;
use super::take::Want;
use crate::store::{ClaimJob, Claimed, Nothing, Target, WorkError};
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_postgres::Row;

/// Queues that a claim tries.
const CANDIDATES_MAX: i64 = 32;

/// Queues of a kind, those first that have something ready or partitions that were not looked at.
pub(super) const CANDIDATES: &str = concat!(
    "SELECT g.id, a.ready_at, b.created_at, q.priority,
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, ",
    queue_columns!(),
    " FROM skep_queues q
      LEFT JOIN skep_queue_groups g ON g.queue = q.id AND g.name = $3 AND NOT g.deleted
      LEFT JOIN LATERAL (
          SELECT l.ready_at FROM skep_queue_lanes l
          WHERE l.grp = g.id AND l.ready_at IS NOT NULL ORDER BY l.ready_at LIMIT 1) a ON TRUE
      LEFT JOIN LATERAL (
          SELECT p.created_at FROM skep_queue_partitions p
          WHERE p.queue = q.id AND p.id > coalesce(g.frontier, 0)
          ORDER BY p.queue, p.id LIMIT 1) b ON TRUE
      CROSS JOIN LATERAL (SELECT least(a.ready_at, b.created_at) AS ready_at) r
      WHERE NOT q.deleted AND ($1::text IS NULL OR q.namespace = $1)
        AND ($2::text IS NULL OR q.task = $2) AND r.ready_at IS NOT NULL
      ORDER BY (r.ready_at <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) DESC,
               q.priority DESC, r.ready_at
      LIMIT $4"
);

/// A queue that may have something.
struct Candidate {
    queue: Arc<Queue>,
    group: Option<i64>,
    /// When the first lane is ready.
    lane: Option<Time>,
    /// When the first partition that was not looked at was made.
    beyond: Option<Time>,
    priority: i32,
    now: Time,
}

impl Candidate {
    fn read(shared: &Shared, row: &Row) -> Self {
        Candidate {
            queue: shared.names.queue(row, 5),
            group: row.get(0),
            lane: row.get::<_, Option<i64>>(1).map(time),
            beyond: row.get::<_, Option<i64>>(2).map(time),
            priority: row.get(3),
            now: time(row.get(4)),
        }
    }

    fn first(&self) -> Option<Time> {
        self.lane.into_iter().chain(self.beyond).min()
    }

    fn is_ready(&self) -> bool {
        self.first().is_some_and(|first| first <= self.now)
    }
}

/// Those whose partitions have to be looked at before it is known who comes first.
fn unknown(candidates: &[Candidate]) -> Vec<&Candidate> {
    let Some(highest) = candidates.first().filter(|one| one.is_ready()) else { return Vec::new() };
    let equals = || candidates.iter().filter(|one| one.priority == highest.priority);
    let longest = equals().filter_map(|one| one.lane).filter(|lane| *lane <= highest.now).min();
    let may_be_first = |one: &&Candidate| {
        one.beyond.is_some_and(|made| longest.is_none_or(|longest| longest > made))
    };
    equals().filter(may_be_first).collect()
}

impl Shared {
    /// Claims from the queue of a kind that comes first.
    pub(super) async fn claim_matching(&self, job: &ClaimJob) -> Result<Claimed, WorkError> {
        let mut advances = 0;
        let candidates = loop {
            let candidates = self.candidates(job).await?;
            let unknown = unknown(&candidates);
            if unknown.is_empty() || advances >= ADVANCES_MAX {
                break candidates;
            }
            self.look_beyond(job, &unknown, ADVANCE_BY << advances.min(6)).await?;
            advances += 1;
        };
        let mut nothing: Option<Claimed> = None;
        for one in &candidates {
            let claimed = if one.is_ready() {
                let want = Want { job, queue: one.queue.info.name.clone(), partition: None };
                self.claim(want).await?
            } else {
                empty(one.now, one.first(), Nothing::Empty)
            };
            if !claimed.lanes.is_empty() {
                return Ok(claimed);
            }
            let sooner = match &nothing {
                Some(before) => before.next_at.into_iter().chain(claimed.next_at).min(),
                None => claimed.next_at,
            };
            nothing = Some(empty(claimed.now, sooner, Nothing::Empty));
        }
        match nothing {
            Some(nothing) => Ok(nothing),
            None => Ok(empty(self.clock().await?, None, Nothing::Empty)),
        }
    }

    async fn candidates(&self, job: &ClaimJob) -> Result<Vec<Candidate>, StoreError> {
        let (namespace, task) = match &job.target {
            Target::Matching { namespace, task } => (namespace.as_deref(), task.as_deref()),
            Target::Queue(_) | Target::Partition(..) => return Ok(Vec::new()),
        };
        let mut tries = 0;
        loop {
            let mut link = self.links.link().await?;
            let group = &*job.group;
            let ask = link.ask(CANDIDATES, vec![&namespace, &task, &group, &CANDIDATES_MAX]);
            let once = self.links.postgres.limit(ask).await;
            if let Some(rows) = self.links.end(link, once, &mut tries).await? {
                return Ok(rows.iter().map(|row| Candidate::read(self, row)).collect());
            }
        }
    }

    /// Makes lanes for the next partitions of these queues, and the group where it is not there.
    async fn look_beyond(
        &self,
        job: &ClaimJob,
        candidates: &[&Candidate],
        count: i64,
    ) -> Result<(), StoreError> {
        let new = candidates.iter().filter(|one| one.group.is_none());
        let wants: Vec<Want<'_>> = new
            .map(|one| Want { job, queue: one.queue.info.name.clone(), partition: None })
            .collect();
        let mut tries = 0;
        while !wants.is_empty() {
            let mut link = self.links.link().await?;
            let keys: BTreeSet<_> =
                wants.iter().map(|want| (want.queue.clone(), job.group.clone())).collect();
            let once = self.links.postgres.limit(self.meet(&mut link, &keys, &wants)).await;
            if self.links.end(link, once, &mut tries).await?.is_some() {
                break;
            }
        }
        for one in candidates {
            let met = || self.names.group(&one.queue.info.name, &job.group);
            if let Some(group) = one.group.or_else(met) {
                self.make_lanes(&one.queue, group, Which::Next(count)).await?;
            }
        }
        Ok(())
    }
}
