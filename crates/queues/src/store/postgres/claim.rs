//! Handing out messages.
//!
//! Lanes are taken in the order in which they became ready, past those that somebody has locked.
//! A claim that finds nothing although something is ready looks again: if that was locked, in a
//! transaction that first waits for the lock and keeps it, so that it is not overtaken again; if it
//! had nothing to give any more, at more lanes. So "nothing" is true, and nobody spins.
//!
//! A lane that stays locked is as good as one that has nothing: it is marked, and claims that find
//! nothing else come again soon. Those that found something never wait for the others.

use super::browse::Head;
use super::desk::LaneKey;
use super::frontier::Which;
use super::link::Fail;
use super::marks::{self, Marks, PATIENCE, Spot, WAITS_MAX};
use super::pick::{Found, Taken};
use super::rows::time;
use super::take::{Round, Want};
use super::{NOW, PostgresQueues, Shared};
use crate::bodies::BodyKey;
use crate::ids::PartitionId;
use crate::record::{Records, part_there};
use crate::store::{
    Answer, Aside, ClaimJob, Claimed, ClaimedLane, Job, Nothing, Part, Ran, Target, WorkError,
};
use bytes::Bytes;
use skep_policy::Time;
use skep_policy::queues::Run;
use skep_store::StoreError;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

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
    pub(super) async fn claims(&self, jobs: Vec<(ClaimJob, Answer<Claimed>)>) -> Ran {
        if jobs.is_empty() {
            return Ran::default();
        }
        let shared = &*self.shared;
        let (jobs, answers): (Vec<ClaimJob>, Vec<Answer<Claimed>>) = jobs.into_iter().unzip();
        let mut answers: Vec<Option<Answer<Claimed>>> = answers.into_iter().map(Some).collect();
        let (mut plain, mut matching) = (Vec::new(), Vec::new());
        for (place, job) in jobs.iter().enumerate() {
            let (queue, partition) = match &job.target {
                Target::Queue(queue) => (queue.clone(), None),
                Target::Partition(queue, partition) => (queue.clone(), Some(partition.clone())),
                Target::Matching { .. } => {
                    matching.push(place);
                    continue;
                }
            };
            plain.push((place, Want { job, queue, partition }));
        }
        let mut lost = Vec::new();
        let mut tell = |place: usize, claimed: Result<Claimed, WorkError>| {
            let Some(answer) = answers[place].take() else { return };
            let unknown = matches!(&claimed, Err(WorkError::Store(error))
                if error.outcome() == skep_store::Outcome::Unknown);
            let unheard = matches!(answer.send(claimed), Err(Ok(claimed))
                if !claimed.lanes.is_empty());
            if (unknown || unheard) && !jobs[place].auto_ack {
                lost.push(jobs[place].lease);
            }
        };
        let mut search = Search::default();
        while !plain.is_empty() {
            let wants: Vec<Want<'_>> = plain.iter().map(|one| one.1.clone()).collect();
            let mut outcomes = nothing_yet(&wants);
            let ended = shared.find(&wants, &mut outcomes, &mut search).await;
            let (mut told, mut found, mut open) = (Vec::new(), Vec::new(), Vec::new());
            for (one, outcome) in plain.into_iter().zip(outcomes) {
                if outcome.is_some() || ended.is_err() {
                    told.push(one.0);
                    found.push(outcome);
                } else {
                    open.push(one);
                }
            }
            let claimed = shared.hand_out(found, ended).await;
            told.into_iter().zip(claimed).for_each(|(place, claimed)| tell(place, claimed));
            plain = open;
        }
        drop(search);
        for place in matching {
            tell(place, shared.claim_matching(&jobs[place]).await);
        }
        let since = Instant::now();
        let release = |lease| {
            let (answer, _) = oneshot::channel();
            Aside { job: Job::Release { lease, answer }, since }
        };
        let mut ran = self.work(lost.into_iter().map(release).collect(), PATIENCE).await;
        ran.wakes.extend(self.run_errands().await);
        ran
    }
}

/// How far a search has come.
#[derive(Default)]
pub(super) struct Search {
    rounds: usize,
    advances: u32,
    /// Rounds that met a lock.
    waits: u32,
    /// Whether lanes could not be made, because somebody has locked a partition.
    stuck: bool,
    /// How many times as many lanes as are wanted are looked at.
    widen: i64,
    wait: Option<LaneKey>,
    /// What is marked and waited for all the same.
    turn: Option<(Spot, OwnedSemaphorePermit)>,
}

impl Search {
    /// Whether it may wait for this: whatever is not marked, and at times one thing that is.
    fn may_wait(&mut self, marks: &Marks, spot: &Spot) -> bool {
        if marks.pause(spot).is_none() || self.turn.as_ref().is_some_and(|turn| turn.0 == *spot) {
            return true;
        }
        if self.turn.is_none() {
            self.turn = marks.turn(spot).map(|permit| (spot.clone(), permit));
            return self.turn.is_some();
        }
        false
    }
}

fn nothing_yet(wants: &[Want<'_>]) -> Vec<Option<Outcome>> {
    wants.iter().map(|_| None).collect()
}

/// There may be something at another time.
fn come_again(now: Time, after: Duration) -> Outcome {
    Outcome::Nothing { why: Nothing::Empty, next_at: Some(now + after), now }
}

impl Shared {
    /// A claim of a named queue.
    pub(super) async fn claim(&self, want: Want<'_>) -> Result<Claimed, WorkError> {
        let (wants, mut outcomes) = ([want], vec![None]);
        let ended = self.find(&wants, &mut outcomes, &mut Search::default()).await;
        let claimed = self.hand_out(outcomes, ended).await.into_iter().next();
        claimed.unwrap_or_else(|| Err(StoreError::Closed { store: "postgres" }.into()))
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

    /// Looks until every claim has something, or there is nothing for it; or until some have, and
    /// others would have to wait.
    pub(super) async fn find(
        &self,
        wants: &[Want<'_>],
        outcomes: &mut [Option<Outcome>],
        search: &mut Search,
    ) -> Result<(), StoreError> {
        loop {
            self.pass_by(wants, outcomes, search).await?;
            let open: Vec<usize> =
                (0..wants.len()).filter(|place| outcomes[*place].is_none()).collect();
            let some = open.len() < wants.len();
            if open.is_empty() || some && search.wait.is_some() {
                return Ok(());
            }
            let looking: Vec<Want<'_>> = open.iter().map(|place| wants[*place].clone()).collect();
            let last =
                search.rounds >= ROUNDS_MAX || search.advances >= ADVANCES_MAX || search.stuck;
            let round = Round { widen: search.widen.max(1), makes_do: last, wait: search.wait };
            let Some(found) = self.take_tried(&looking, round, search.waits).await? else {
                self.met_lock(&looking, search).await?;
                continue;
            };
            let mut waits = BTreeSet::new();
            let mut beyond = HashMap::new();
            let mut lanes = HashMap::new();
            let mut empty_ones = false;
            for (place, found) in open.into_iter().zip(found) {
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
                        Some(come_again(now, if search.stuck { PATIENCE } else { SOON }))
                    }
                    Found::Again { vain: true, .. } => {
                        empty_ones = true;
                        None
                    }
                    Found::Again { lane, now, .. } => {
                        let spot = Spot::Claim(lane);
                        let pause = self.marks.pause(&spot);
                        match pause.filter(|_| !search.may_wait(&self.marks, &spot)) {
                            Some(pause) => Some(come_again(now, pause)),
                            None => {
                                waits.insert(lane);
                                None
                            }
                        }
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
            search.wait = waits.iter().nth(search.rounds % waits.len().max(1)).copied();
            let widened = (search.widen.max(1) * WIDEN_BY).min(WIDEN_MAX);
            search.widen = if empty_ones { widened } else { 1 };
            search.rounds += usize::from(search.wait.is_some() || empty_ones || !lanes.is_empty());
            for ((group, partitions), queue) in lanes {
                let made = self.make_lanes(&queue, group, Which::These(partitions)).await?;
                search.stuck |= made.is_none();
            }
            if !beyond.is_empty() {
                for (group, queue) in beyond {
                    let count = ADVANCE_BY << search.advances.min(6);
                    let made = self.make_lanes(&queue, group, Which::Next(count)).await?;
                    search.stuck |= made.is_none();
                }
                search.advances += 1;
            }
        }
    }

    /// Answers claims that would run into what is marked.
    async fn pass_by(
        &self,
        wants: &[Want<'_>],
        outcomes: &mut [Option<Outcome>],
        search: &mut Search,
    ) -> Result<(), StoreError> {
        let in_vain = search.waits >= WAITS_MAX;
        if self.marks.is_empty() && !in_vain {
            return Ok(());
        }
        let mut now = None;
        for (want, outcome) in wants.iter().zip(outcomes).filter(|one| one.1.is_none()) {
            let spot = self.names.group(&want.queue, &want.job.group).map(Spot::Grants);
            let pause = spot.as_ref().and_then(|spot| self.marks.pause(spot));
            let waits = |spot: &Spot| search.may_wait(&self.marks, spot);
            if !in_vain && (pause.is_none() || spot.as_ref().is_none_or(waits)) {
                continue;
            }
            let now = match now {
                Some(now) => now,
                None => *now.insert(self.clock_by_link().await?),
            };
            *outcome = Some(come_again(now, pause.unwrap_or(SOON)));
        }
        Ok(())
    }

    async fn clock_by_link(&self) -> Result<Time, StoreError> {
        let mut tries = 0;
        loop {
            let mut link = self.links.link().await?;
            let once = self.links.postgres.limit(link.ask(NOW, Vec::new())).await;
            if let Some(rows) = self.links.end(link, once, &mut tries).await? {
                return Ok(rows.first().map_or(Time::ZERO, |row| time(row.get(0))));
            }
        }
    }

    /// A round met what somebody has locked for too long: finds out what.
    async fn met_lock(&self, wants: &[Want<'_>], search: &mut Search) -> Result<(), StoreError> {
        let group = |want: &Want<'_>| self.names.group(&want.queue, &want.job.group);
        let groups: BTreeSet<i64> = wants.iter().filter_map(group).collect();
        self.look_at_claims(search.wait, &groups.into_iter().collect()).await?;
        search.turn = None;
        let lasts = |lane: &LaneKey| self.marks.pause(&Spot::Claim(*lane)).is_some();
        let waited = search.wait;
        search.wait = waited.filter(|lane| !lasts(lane));
        search.waits = if search.wait == waited { search.waits + 1 } else { 0 };
        Ok(())
    }

    /// One round; `None` if it met what somebody has locked for too long.
    async fn take_tried(
        &self,
        wants: &[Want<'_>],
        round: Round,
        waits: u32,
    ) -> Result<Option<Vec<Found>>, StoreError> {
        let mut tries = 0;
        loop {
            let mut link = self.links.link_within(marks::patience(waits)).await?;
            let take = self.take(&mut link, wants, round);
            let once = self.links.postgres.limit(take).await;
            let locked = matches!(once, Err(Fail::Locked(_)));
            match self.links.end(link, once, &mut tries).await {
                Ok(None) => {}
                Err(_) if locked => return Ok(None),
                done => return done,
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
