//! Handing out messages.
//!
//! Lanes are taken in the order in which they became ready, past those that somebody has locked.
//! A claim that finds nothing although something is ready looks again: if that was locked, in a
//! transaction that first waits for the lock and keeps it, so that it is not overtaken again; if it
//! had nothing to give any more, at more lanes. So "nothing" is true, and nobody spins.

use super::browse::Head;
use super::frontier::Which;
use super::link::Fail;
use super::pick::{Found, Taken};
use super::take::{Round, Want};
use super::{PostgresQueues, Shared};
use crate::bodies::BodyKey;
use crate::ids::PartitionId;
use crate::record::{Records, part_there};
use crate::store::{
    Answer, ClaimJob, Claimed, ClaimedLane, Job, Nothing, Part, Target, Wake, WorkError,
};
use bytes::Bytes;
use skep_policy::Time;
use skep_policy::queues::Run;
use skep_store::StoreError;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;
use tokio::sync::oneshot;

/// How often a claim looks again.
const ROUNDS_MAX: usize = 16;
/// How many times as many lanes it looks at, if it met empty ones.
const WIDEN_BY: i64 = 4;
const WIDEN_MAX: i64 = 1_024;
/// How often lanes are made for claims that find none ready, each time twice as many.
pub(super) const ADVANCES_MAX: u32 = 8;
pub(super) const ADVANCE_BY: i64 = 64;
/// When a claim shall come again that has looked often enough.
const SOON: Duration = Duration::from_millis(10);

/// What came of a claim before its messages are read.
pub(super) enum Outcome {
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
        let mut wakes = self.work(lost.into_iter().map(release).collect()).await;
        wakes.extend(self.run_errands().await);
        wakes
    }
}

impl Shared {
    /// Claims of named queues. Each is answered; an error is everybody's.
    pub(super) async fn claim(&self, wants: &[Want<'_>]) -> Vec<Result<Claimed, WorkError>> {
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        outcomes.resize_with(wants.len(), || None);
        let ended = self.find(wants, &mut outcomes).await;
        self.hand_out(outcomes, ended).await
    }

    /// Reads what claims got, and answers each.
    pub(super) async fn hand_out(
        &self,
        outcomes: Vec<Option<Outcome>>,
        ended: Result<(), StoreError>,
    ) -> Vec<Result<Claimed, WorkError>> {
        let mut bodies = Ok(Messages::default());
        let keys = outcomes.iter().flatten().flat_map(keys_of).collect::<HashSet<_>>();
        if !keys.is_empty() {
            let whole = self.read_bodies(keys).await.map_err(unknown);
            bodies = whole.map(|whole| Messages { whole, pieces: HashMap::new() });
        }
        if let Ok(found) = &mut bodies {
            let cut: Vec<Head> =
                outcomes.iter().flatten().flat_map(|one| cut_since(one, found)).collect();
            if !cut.is_empty() {
                match self.pieces(&cut).await {
                    Ok(pieces) => found.pieces = pieces,
                    Err(error) => bodies = Err(unknown(error)),
                }
            }
        }
        let answer = |outcome: Option<Outcome>| match (outcome, &bodies, &ended) {
            (None, _, Err(error)) | (Some(_), Err(error), _) => Err(error.clone().into()),
            (None, ..) => Err(StoreError::Closed { store: "postgres" }.into()),
            (Some(outcome), Ok(bodies), _) => claimed(outcome, bodies),
        };
        outcomes.into_iter().map(answer).collect()
    }

    /// Looks until every claim has something, or there is nothing for it.
    pub(super) async fn find(
        &self,
        wants: &[Want<'_>],
        outcomes: &mut [Option<Outcome>],
    ) -> Result<(), StoreError> {
        let (mut rounds, mut advances) = (0, 0);
        let (mut widen, mut wait) = (1, None);
        loop {
            let open: Vec<usize> =
                (0..wants.len()).filter(|place| outcomes[*place].is_none()).collect();
            if open.is_empty() {
                return Ok(());
            }
            let looking: Vec<Want<'_>> = open.iter().map(|place| wants[*place].clone()).collect();
            let last = rounds >= ROUNDS_MAX || advances >= ADVANCES_MAX;
            let round = Round { widen, makes_do: last, wait };
            let found = self.take_tried(&looking, round).await?;
            let mut waits = BTreeSet::new();
            let mut beyond = HashMap::new();
            let mut lanes = HashMap::new();
            let mut empty_ones = false;
            for (place, found) in open.into_iter().zip(found) {
                let soon = |now: Time| Outcome::Nothing {
                    why: Nothing::Empty,
                    next_at: Some(now + SOON),
                    now,
                };
                outcomes[place] = match found {
                    Found::Some { lanes, until, now } => Some(Outcome::Some { lanes, until, now }),
                    Found::Nothing { why, next_at, now } => {
                        Some(Outcome::Nothing { why, next_at, now })
                    }
                    Found::Again { now, .. }
                    | Found::Beyond { now, .. }
                    | Found::NoLane { now, .. }
                        if last =>
                    {
                        Some(soon(now))
                    }
                    Found::Again { vain: true, .. } => {
                        empty_ones = true;
                        None
                    }
                    Found::Again { lane, .. } => {
                        waits.insert(lane);
                        None
                    }
                    Found::Beyond { queue, group, .. } => {
                        beyond.insert(group, queue);
                        None
                    }
                    Found::NoLane { queue, group, partitions, .. } => {
                        lanes.insert((group, partitions), queue);
                        None
                    }
                };
            }
            // Who waits for two lanes may meet somebody who waits for them in another order.
            wait = waits.iter().nth(rounds % waits.len().max(1)).copied();
            widen = if empty_ones { (widen * WIDEN_BY).min(WIDEN_MAX) } else { 1 };
            rounds += usize::from(wait.is_some() || empty_ones || !lanes.is_empty());
            for ((group, partitions), queue) in lanes {
                self.make_lanes(&queue, group, Which::These(partitions)).await?;
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

    async fn take_tried(&self, wants: &[Want<'_>], round: Round) -> Result<Vec<Found>, StoreError> {
        let mut tries = 0;
        loop {
            let mut link = self.links.link().await?;
            let take = self.take(&mut link, wants, round);
            let once = self.links.postgres.limit(take).await;
            if let Some(found) = self.links.end(link, once, &mut tries).await? {
                return Ok(found);
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
}

pub(super) fn empty(now: Time, next_at: Option<Time>, why: Nothing) -> Claimed {
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

/// The bytes of what was claimed.
#[derive(Default)]
struct Messages {
    whole: HashMap<BodyKey, Bytes>,
    /// Of segments that are not whole any more: what they are now.
    pieces: HashMap<(i64, u64), Vec<(Run, Bytes)>>,
}

/// The lease is there by now, whatever comes of reading.
fn unknown(error: StoreError) -> StoreError {
    StoreError::Unknown {
        store: "postgres",
        cause: format!("messages were claimed but could not be read: {error}"),
    }
}

/// Segments that do not have all that was claimed of them: something was taken out since.
fn cut_since(outcome: &Outcome, messages: &Messages) -> Vec<Head> {
    let Outcome::Some { lanes, .. } = outcome else { return Vec::new() };
    let mut cut = Vec::new();
    for taken in lanes {
        for span in &taken.spans {
            let body = messages.whole.get(&(PartitionId(taken.partition), span.run));
            let needed = span.first - span.run + u64::from(span.count);
            let needed = usize::try_from(needed).unwrap_or(usize::MAX);
            let has_all = |body: &Bytes| Records::of(body).skip_bytes(needed).is_ok();
            if !body.is_some_and(has_all) {
                let count = u32::try_from(needed).unwrap_or(u32::MAX);
                let run = Run { first: span.run, count, at: span.at };
                cut.push(Head { queue: taken.queue.id, partition: taken.partition, run });
            }
        }
    }
    cut
}

fn claimed(outcome: Outcome, messages: &Messages) -> Result<Claimed, WorkError> {
    let (taken, until, now) = match outcome {
        Outcome::Some { lanes, until, now } => (lanes, until, now),
        Outcome::Nothing { why, next_at, now } => return Ok(empty(now, next_at, why)),
    };
    let mut lanes = Vec::with_capacity(taken.len());
    for one in taken {
        let mut parts = Vec::with_capacity(one.spans.len());
        for span in &one.spans {
            let last = span.first + u64::from(span.count.max(1)) - 1;
            let cut = messages.pieces.get(&(one.partition, span.run));
            let whole = messages.whole.get(&(PartitionId(one.partition), span.run));
            // What was removed since it was claimed is simply missing.
            let pieces: Vec<(u64, u64, &Bytes)> = match cut {
                Some(pieces) => {
                    let rising = pieces.iter().rev();
                    rising.map(|(run, body)| (run.first, run.last(), body)).collect()
                }
                None => whole.map(|body| (span.run, last, body)).into_iter().collect(),
            };
            for (first, end, body) in pieces {
                let (from, to) = (span.first.max(first), last.min(end));
                if to < from {
                    continue;
                }
                let skip = usize::try_from(from - first).unwrap_or(usize::MAX);
                let most = usize::try_from(to - from + 1).unwrap_or(usize::MAX);
                let (records, count) = part_there(body, skip, most)?;
                if count > 0 {
                    parts.push(Part { at: span.at, count: count as u32, records });
                }
            }
        }
        let queue = one.queue.info.name.clone();
        lanes.push(ClaimedLane {
            queue,
            partition: one.name,
            id: PartitionId(one.partition),
            level: one.level,
            parts,
        });
    }
    Ok(Claimed { lanes, until, now, next_at: None, nothing: None })
}
