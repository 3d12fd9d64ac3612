//! Handing out messages.
//!
//! Lanes are taken in the order in which they became ready, past those that somebody has locked.
//! A claim that finds nothing although something is ready (it was locked, or had nothing to give
//! any more) waits for the lock and looks again, so that "nothing" is always true.

use super::frontier::Which;
use super::link::Fail;
use super::take::{Found, Taken, Want};
use super::{PostgresQueues, Shared};
use crate::bodies::BodyKey;
use crate::ids::PartitionId;
use crate::record::part;
use crate::store::{
    Answer, ClaimJob, Claimed, ClaimedLane, Job, Nothing, Part, Target, Wake, WorkError,
};
use bytes::Bytes;
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often a claim looks again. Each time it takes more lanes.
const ROUNDS_MAX: u32 = 8;
/// How often lanes are made for claims that find none ready, each time twice as many.
const ADVANCES_MAX: u32 = 8;
const ADVANCE_BY: i64 = 64;
/// When a claim shall come again that has looked often enough.
const SOON: Duration = Duration::from_millis(10);
/// Queues that a claim for many of them tries.
const CANDIDATES_MAX: i64 = 32;

const WAIT: &str = "
    SELECT 1 FROM skep_queue_lanes
    WHERE grp = $1
      AND ready_at <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ORDER BY ready_at LIMIT 1 FOR UPDATE";
const WAIT_NAMED: &str = "
    SELECT 1 FROM skep_queue_lanes WHERE grp = $1 AND partition = $2 FOR UPDATE";
/// Queues of a kind, those first that have something ready or partitions that were not looked at.
const CANDIDATES: &str = "
    SELECT q.name, r.ready_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM skep_queues q
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
    LIMIT $4";

/// What came of a claim before its messages are read.
enum Outcome {
    Some { lanes: Vec<Taken>, until: Time, now: Time },
    Nothing { why: Nothing, next_at: Option<Time>, now: Time },
}

impl PostgresQueues {
    /// Runs claims together and answers them.
    pub(super) async fn claims(&self, jobs: Vec<(ClaimJob, Answer<Claimed>)>) -> Vec<Wake> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let mut plain = Vec::new();
        let mut answered: Vec<Option<Result<Claimed, WorkError>>> = Vec::new();
        answered.resize_with(jobs.len(), || None);
        for (place, (job, _)) in jobs.iter().enumerate() {
            let (queue, partition) = match &job.target {
                Target::Queue(queue) => (queue.clone(), None),
                Target::Partition(queue, partition) => (queue.clone(), Some(partition.clone())),
                Target::Matching { .. } => continue,
            };
            plain.push((place, Want { job, queue, partition }));
        }
        let wants: Vec<Want<'_>> = plain.iter().map(|one| one.1.clone()).collect();
        let claimed = self.shared.claim(&wants).await;
        for ((place, _), claimed) in plain.iter().zip(claimed) {
            answered[*place] = Some(claimed);
        }
        for (place, (job, _)) in jobs.iter().enumerate() {
            if answered[place].is_none() {
                answered[place] = Some(self.shared.claim_matching(job).await);
            }
        }
        let mut lost = Vec::new();
        for ((job, answer), claimed) in jobs.into_iter().zip(answered) {
            let Some(claimed) = claimed else { continue };
            let unknown = matches!(&claimed, Err(WorkError::Store(error))
                if error.outcome() == skep_store::Outcome::Unknown);
            let unheard = matches!(answer.send(claimed), Err(Ok(claimed))
                if !claimed.lanes.is_empty());
            if (unknown || unheard) && !job.auto_ack {
                lost.push(job.lease);
            }
        }
        let release = |lease| {
            let (answer, _) = oneshot::channel();
            Job::Release { lease, answer }
        };
        self.work(lost.into_iter().map(release).collect()).await
    }
}

impl Shared {
    /// Claims of named queues. Each is answered; an error is everybody's.
    async fn claim(&self, wants: &[Want<'_>]) -> Vec<Result<Claimed, WorkError>> {
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        outcomes.resize_with(wants.len(), || None);
        let ended = self.find(wants, &mut outcomes).await;
        let mut bodies = Ok(HashMap::new());
        let keys = outcomes.iter().flatten().flat_map(keys_of).collect::<HashSet<_>>();
        if !keys.is_empty() {
            // The lease is there by now, whatever comes of reading.
            let unknown = |error: StoreError| StoreError::Unknown {
                store: "postgres",
                cause: format!("messages were claimed but could not be read: {error}"),
            };
            bodies = self.read_bodies(keys).await.map_err(unknown);
        }
        let answer = |outcome: Option<Outcome>| match (outcome, &bodies, &ended) {
            (None, _, Err(error)) | (Some(_), Err(error), _) => Err(error.clone().into()),
            (None, ..) => Err(StoreError::Closed { store: "postgres" }.into()),
            (Some(outcome), Ok(bodies), _) => claimed(outcome, bodies),
        };
        outcomes.into_iter().map(answer).collect()
    }

    /// Looks until every claim has something, or there is nothing for it.
    async fn find(
        &self,
        wants: &[Want<'_>],
        outcomes: &mut [Option<Outcome>],
    ) -> Result<(), StoreError> {
        let (mut rounds, mut advances) = (0, 0);
        loop {
            let open: Vec<usize> =
                (0..wants.len()).filter(|place| outcomes[*place].is_none()).collect();
            if open.is_empty() {
                return Ok(());
            }
            let looking: Vec<Want<'_>> = open.iter().map(|place| wants[*place].clone()).collect();
            let last = rounds >= ROUNDS_MAX || advances >= ADVANCES_MAX;
            let found = self.take_tried(&looking, 4_i64.pow(rounds.min(5)), advances > 0).await?;
            let mut waits = BTreeSet::new();
            let mut beyond = HashMap::new();
            let mut lanes = HashMap::new();
            for (place, found) in open.into_iter().zip(found) {
                let empty = |now: Time| Outcome::Nothing {
                    why: Nothing::Empty,
                    next_at: Some(now + SOON),
                    now,
                };
                outcomes[place] = match found {
                    Found::Some { lanes, until, now } => Some(Outcome::Some { lanes, until, now }),
                    Found::Nothing { why, next_at, now } => {
                        Some(Outcome::Nothing { why, next_at, now })
                    }
                    Found::Again { now, .. } | Found::Beyond { now, .. } if last => {
                        Some(empty(now))
                    }
                    Found::Again { group, partition, .. } => {
                        waits.insert((group, partition));
                        None
                    }
                    Found::Beyond { queue, group, .. } => {
                        beyond.insert(group, queue);
                        None
                    }
                    Found::NoLane { now, .. } if last => Some(empty(now)),
                    Found::NoLane { queue, group, partition, .. } => {
                        lanes.insert((group, partition), queue);
                        None
                    }
                };
            }
            rounds += u32::from(!waits.is_empty() || !lanes.is_empty());
            for (group, partition) in waits {
                self.wait(group, partition).await?;
            }
            for ((group, partition), queue) in lanes {
                self.make_lanes(&queue, group, Which::One(partition)).await?;
            }
            if !beyond.is_empty() {
                for (group, queue) in beyond {
                    let count = ADVANCE_BY << advances.min(6);
                    self.make_lanes(&queue, group, Which::Next(count)).await?;
                }
                advances += 1;
            }
        }
    }

    async fn take_tried(
        &self,
        wants: &[Want<'_>],
        widen: i64,
        patient: bool,
    ) -> Result<Vec<Found>, StoreError> {
        let mut tries = 0;
        loop {
            let mut link = self.links.link().await?;
            let take = self.take(&mut link, wants, widen, patient);
            let once = self.links.postgres.limit(take).await;
            if let Some(found) = self.links.end(link, once, &mut tries).await? {
                return Ok(found);
            }
        }
    }

    /// Waits until whoever has locked the lane that is ready first is done. Holds no other lock.
    async fn wait(&self, group: i64, partition: Option<i64>) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            let mut link = self.links.link().await?;
            let wait = async {
                match &partition {
                    None => link.ask(WAIT, vec![&group]).await,
                    Some(partition) => link.ask(WAIT_NAMED, vec![&group, partition]).await,
                }
            };
            let once = self.links.postgres.limit(wait).await;
            if self.links.end(link, once, &mut tries).await?.is_some() {
                return Ok(());
            }
        }
    }

    async fn read_bodies(
        &self,
        keys: HashSet<(i64, u64)>,
    ) -> Result<HashMap<BodyKey, Bytes>, StoreError> {
        let cached = |(partition, first): &(i64, u64)| {
            let key = (PartitionId(*partition), *first);
            Some((key, self.bodies.get(key)?))
        };
        let found: HashMap<BodyKey, Bytes> = keys.iter().filter_map(cached).collect();
        if found.len() == keys.len() {
            return Ok(found);
        }
        let mut tries = 0;
        loop {
            let mut link = self.links.link().await?;
            let read = self.bodies_of(&mut link, keys.clone());
            let once: Result<_, Fail> = self.links.postgres.limit(read).await;
            if let Some(bodies) = self.links.end(link, once, &mut tries).await? {
                return Ok(bodies);
            }
        }
    }

    /// A claim for any queue of a kind: the one with the highest priority that has something.
    async fn claim_matching(&self, job: &ClaimJob) -> Result<Claimed, WorkError> {
        let Target::Matching { namespace, task } = &job.target else {
            return Err(StoreError::Closed { store: "postgres" }.into());
        };
        let mut tries = 0;
        let candidates = loop {
            let mut link = self.links.link().await?;
            let (namespace, task, group) = (namespace.as_deref(), task.as_deref(), &*job.group);
            let ask = link.ask(CANDIDATES, vec![&namespace, &task, &group, &CANDIDATES_MAX]);
            let once = self.links.postgres.limit(ask).await;
            if let Some(rows) = self.links.end(link, once, &mut tries).await? {
                break rows;
            }
        };
        let mut nothing: Option<Claimed> = None;
        for row in &candidates {
            let (name, ready_at, now): (&str, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let claimed = if ready_at <= now {
                let want = Want { job, queue: Arc::from(name), partition: None };
                self.claim(&[want]).await.into_iter().next()
            } else {
                let (next_at, now) = (super::rows::time(ready_at), super::rows::time(now));
                Some(Ok(empty(now, Some(next_at), Nothing::Empty)))
            };
            let claimed = claimed.unwrap_or_else(|| Ok(empty(Time::ZERO, None, Nothing::Empty)))?;
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
}

fn empty(now: Time, next_at: Option<Time>, why: Nothing) -> Claimed {
    Claimed { lanes: Vec::new(), until: now, now, next_at, nothing: Some(why) }
}

fn keys_of(outcome: &Outcome) -> Vec<(i64, u64)> {
    match outcome {
        Outcome::Some { lanes, .. } => {
            let keys = |taken: &Taken| {
                let partition = taken.partition;
                taken.spans.iter().map(move |span| (partition, span.run)).collect::<Vec<_>>()
            };
            lanes.iter().flat_map(keys).collect()
        }
        Outcome::Nothing { .. } => Vec::new(),
    }
}

fn claimed(outcome: Outcome, bodies: &HashMap<BodyKey, Bytes>) -> Result<Claimed, WorkError> {
    let (taken, until, now) = match outcome {
        Outcome::Some { lanes, until, now } => (lanes, until, now),
        Outcome::Nothing { why, next_at, now } => return Ok(empty(now, next_at, why)),
    };
    let mut lanes = Vec::with_capacity(taken.len());
    for one in taken {
        let mut parts = Vec::with_capacity(one.spans.len());
        for span in &one.spans {
            // What retention has removed since it was claimed is simply missing.
            let Some(body) = bodies.get(&(PartitionId(one.partition), span.run)) else { continue };
            let skip = usize::try_from(span.first - span.run).unwrap_or(usize::MAX);
            let records = part(body, skip, span.count as usize)?;
            parts.push(Part { at: span.at, count: span.count, records });
        }
        let queue = one.queue.info.name.clone();
        lanes.push(ClaimedLane {
            queue,
            partition: one.name,
            id: PartitionId(one.partition),
            parts,
        });
    }
    Ok(Claimed { lanes, until, now, next_at: None, nothing: None })
}
