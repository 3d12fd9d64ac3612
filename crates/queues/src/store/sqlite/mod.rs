//! Queues in the embedded database.
//!
//! All jobs of a batch are one call of the one thread that writes, and share one commit:
//!
//! ```text
//!   releases, extensions, settlements, transactions   in the order in which they came
//!   claims                                            what is there now
//!   pushes                                            messages of one partition become one row
//!   claims that found nothing                         what was pushed a moment ago
//!   every row that changed is written, once; commit; then each job is answered
//! ```
//!
//! Settlements first, because they make room; claims before pushes, because whoever takes messages
//! away must not wait for those who bring more.

mod admin;
mod browse;
mod claim;
mod clock;
mod dead;
mod groups;
mod later;
mod levels;
mod limits;
mod partitions;
mod places;
mod push;
mod ready;
mod redrives;
mod remove;
mod rows;
mod schedules;
mod segments;
mod settle;
mod stats;
mod switches;
mod table;
mod takes;
#[cfg(test)]
mod tests;
mod tidy;
mod traces;
mod work;

use crate::bodies::{Bodies, BodyKey};
use crate::options::QueuesOptions;
use crate::record::part_there;
use crate::store::{
    Answer, ClaimJob, Claimed, ClaimedLane, ItemSettled, Job, NewMessage, NotDone, Nothing, Part,
    Pushed, SettleItem, StepDone, TransactionJob, Wake, WorkError,
};
use bytes::Bytes;
use claim::Picked;
use clock::StoreClock;
use rusqlite::Connection;
use skep_policy::queues::LeaseId;
use skep_policy::{Clock, Time};
use skep_store::{BootClock, Sqlite, StoreError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use work::{State, Work};

/// Queues in the embedded database. Clones share them.
#[derive(Clone)]
pub struct SqliteQueues {
    sqlite: Sqlite,
    clock: StoreClock,
    /// Locked only by the thread that writes.
    state: Arc<Mutex<State>>,
    bodies: Arc<Bodies>,
    /// Where the next round of tidying begins.
    tidied: Arc<Mutex<tidy::Position>>,
}

impl From<rusqlite::Error> for WorkError {
    fn from(error: rusqlite::Error) -> Self {
        WorkError::Store(error.into())
    }
}

/// What a job wants, without where the answer goes.
enum Wish {
    Push(Vec<NewMessage>),
    Claim(ClaimJob),
    Settle(Arc<str>, Vec<SettleItem>),
    Transaction(TransactionJob),
    Extend(LeaseId, u32),
    Release(LeaseId),
}

/// Where the answer goes.
enum Reply {
    Push(Answer<Vec<Pushed>>),
    Claim(LeaseId, bool, Answer<Claimed>),
    Settle(Answer<Vec<ItemSettled>>),
    Transaction(Answer<Result<Vec<StepDone>, NotDone>>),
    Extend(Answer<Option<Time>>),
    Release(Answer<usize>),
}

/// What came of a job.
enum Done {
    Push(Vec<Pushed>),
    Claim(Picked),
    Settle(Vec<ItemSettled>),
    Transaction(Result<Vec<StepDone>, NotDone>),
    Extend(Option<Time>),
    Release(usize),
}

/// What there is of segments that were claimed: first number, how many messages, and their bytes.
type Pieces = HashMap<BodyKey, Vec<(u64, u32, Bytes)>>;

/// A claim that is to be answered.
struct Pending {
    picked: Picked,
    lease: LeaseId,
    auto_ack: bool,
    answer: Answer<Claimed>,
}

impl SqliteQueues {
    /// Queues in a database that has the tables of [`crate::store::SCHEMA`].
    pub async fn open(sqlite: Sqlite, options: &QueuesOptions) -> Result<Self, StoreError> {
        Self::open_by(sqlite, options, Arc::new(BootClock)).await
    }

    /// The same, with time counted by `clock`.
    pub async fn open_by(
        sqlite: Sqlite,
        options: &QueuesOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let last = sqlite.read(|db| {
            let sql = "SELECT now FROM skep_queue_clock";
            Ok::<i64, StoreError>(db.query_row(sql, [], |row| row.get(0))?)
        });
        let last = clock::time(last.await?);
        let wall = Time::from_millis(u64::try_from(skep_store::wall_ms()).unwrap_or(0));
        // Jitter has to differ between restarts, and need not be a secret.
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        Ok(SqliteQueues {
            sqlite,
            clock: StoreClock::new(clock, wall, last),
            state: Arc::new(Mutex::new(State::new(options, seed))),
            bodies: Arc::new(Bodies::new(options.cache_bytes)),
            tidied: Arc::default(),
        })
    }

    /// The store's time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Does jobs together and answers each once that is durable. Tells who should look.
    pub async fn run(&self, jobs: Vec<Job>) -> Vec<Wake> {
        let (wishes, replies): (Vec<Wish>, Vec<Reply>) = jobs.into_iter().map(split).unzip();
        let done = self.write(move |work| run_batch(work, &wishes)).await;
        let (done, mut wakes) = match done {
            Ok(done) => done,
            Err(error) => {
                replies.into_iter().for_each(|reply| refuse(reply, error.clone().into()));
                return Vec::new();
            }
        };
        let mut pending = Vec::new();
        for (done, reply) in done.into_iter().zip(replies) {
            match done {
                Ok(done) => pending.extend(answer(done, reply)),
                Err(error) => refuse(reply, error),
            }
        }
        let given_back = self.answer_claims(pending).await;
        if !given_back.is_empty() {
            wakes.extend(Box::pin(self.give_back(given_back)).await);
        }
        wakes
    }

    /// Runs `work` as a batch of its own. Its error undoes it.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<(T, Vec<Wake>), StoreError> {
        let (clock, state, bodies) = (self.clock.clone(), self.state.clone(), self.bodies.clone());
        let batch = move |db: &Connection| {
            // What a panic left behind belongs to no version and is forgotten.
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut batch = Work::begin(db, &mut state, &bodies, clock.now())?;
            let done = work(&mut batch)?;
            Ok::<_, StoreError>((done, batch.finish()?))
        };
        self.sqlite.write(batch).await
    }

    /// Answers claims; those with all their bytes at hand do not wait for the others. Gives back
    /// the leases that nobody got.
    async fn answer_claims(&self, pending: Vec<Pending>) -> Vec<LeaseId> {
        let missing = |claim: &Pending| {
            let spans = claim.picked.lanes.iter().flat_map(|lane| &lane.spans);
            spans.into_iter().any(|span| span.body.is_none())
        };
        let (later, at_once): (Vec<_>, Vec<_>) = pending.into_iter().partition(missing);
        let mut nobodys = Vec::new();
        let none = HashMap::new();
        nobodys.extend(at_once.into_iter().filter_map(|claim| hand_out(claim, &none)));
        if later.is_empty() {
            return nobodys;
        }
        match self.read_bodies(&later).await {
            Ok(bodies) => {
                nobodys.extend(later.into_iter().filter_map(|claim| hand_out(claim, &bodies)));
            }
            Err(error) => {
                for claim in later {
                    nobodys.push(claim.lease);
                    let _ = claim.answer.send(Err(error.clone().into()));
                }
            }
        }
        nobodys
    }

    /// Reads, beside the writer, the bytes that were not in memory. Messages may have been taken
    /// out since they were claimed, so a segment may have become pieces.
    async fn read_bodies(&self, claims: &[Pending]) -> Result<Pieces, StoreError> {
        let mut keys = Vec::new();
        for lane in claims.iter().flat_map(|claim| &claim.picked.lanes) {
            let missing = lane.spans.iter().filter(|span| span.body.is_none());
            keys.extend(missing.map(|span| (lane.key(span), span.last())));
        }
        let read = move |db: &Connection| {
            let mut pieces = Pieces::with_capacity(keys.len());
            for (key, last) in keys {
                pieces.insert(key, segments::read_pieces(db, key, last)?);
            }
            Ok::<_, StoreError>(pieces)
        };
        let pieces = self.sqlite.read(read).await?;
        for ((partition, _), pieces) in &pieces {
            for (first, _, body) in pieces {
                self.bodies.put((*partition, *first), body.clone());
            }
        }
        Ok(pieces)
    }

    async fn give_back(&self, leases: Vec<LeaseId>) -> Vec<Wake> {
        let release = |lease| Job::Release { lease, answer: oneshot::channel().0 };
        self.run(leases.into_iter().map(release).collect()).await
    }
}

fn split(job: Job) -> (Wish, Reply) {
    match job {
        Job::Push(messages, answer) => (Wish::Push(messages), Reply::Push(answer)),
        Job::Claim(claim, answer) => {
            let reply = Reply::Claim(claim.lease, claim.auto_ack, answer);
            (Wish::Claim(claim), reply)
        }
        Job::Settle { group, items, answer } => (Wish::Settle(group, items), Reply::Settle(answer)),
        Job::Transaction(transaction, answer) => {
            (Wish::Transaction(transaction), Reply::Transaction(answer))
        }
        Job::Extend { lease, seconds, answer } => {
            (Wish::Extend(lease, seconds), Reply::Extend(answer))
        }
        Job::Release { lease, answer } => (Wish::Release(lease), Reply::Release(answer)),
    }
}

/// Whoever left has no use for the answer; claims are not answered here.
fn answer(done: Done, reply: Reply) -> Option<Pending> {
    match (done, reply) {
        (Done::Push(done), Reply::Push(answer)) => drop(answer.send(Ok(done))),
        (Done::Settle(done), Reply::Settle(answer)) => drop(answer.send(Ok(done))),
        (Done::Transaction(done), Reply::Transaction(answer)) => drop(answer.send(Ok(done))),
        (Done::Extend(done), Reply::Extend(answer)) => drop(answer.send(Ok(done))),
        (Done::Release(done), Reply::Release(answer)) => drop(answer.send(Ok(done))),
        (Done::Claim(picked), Reply::Claim(lease, auto_ack, answer)) => {
            return Some(Pending { picked, lease, auto_ack, answer });
        }
        _ => unreachable!("an answer is of the kind of its job"),
    }
    None
}

fn refuse(reply: Reply, error: WorkError) {
    match reply {
        Reply::Push(answer) => drop(answer.send(Err(error))),
        Reply::Claim(_, _, answer) => drop(answer.send(Err(error))),
        Reply::Settle(answer) => drop(answer.send(Err(error))),
        Reply::Transaction(answer) => drop(answer.send(Err(error))),
        Reply::Extend(answer) => drop(answer.send(Err(error))),
        Reply::Release(answer) => drop(answer.send(Err(error))),
    }
}

/// Answers a claim. Gives back its lease if nobody has it now.
fn hand_out(claim: Pending, pieces: &Pieces) -> Option<LeaseId> {
    let Pending { picked, lease, auto_ack, answer } = claim;
    let wanted = !picked.lanes.is_empty();
    let claimed = claimed(picked, pieces);
    // One that cannot be read stays leased: given back, it would be handed out again at once.
    let missing = matches!(&claimed, Ok(claimed) if claimed.lanes.is_empty());
    let sent = answer.send(claimed).is_ok();
    (wanted && !auto_ack && (!sent || missing)).then_some(lease)
}

fn claimed(picked: Picked, pieces: &Pieces) -> Result<Claimed, WorkError> {
    let mut lanes = Vec::with_capacity(picked.lanes.len());
    for lane in picked.lanes {
        let mut parts = Vec::with_capacity(lane.spans.len());
        for span in &lane.spans {
            let at_hand = span.body.clone().map(|body| (span.span.run, u32::MAX, body));
            // What was removed in between is simply missing.
            let read = pieces.get(&lane.key(span)).into_iter().flatten();
            for (first, count, body) in at_hand.iter().chain(read) {
                let from = span.span.first.max(*first);
                let to = span.last().min(*first + u64::from(count - 1));
                if to < from {
                    continue;
                }
                let skip = usize::try_from(from - first).unwrap_or(usize::MAX);
                let most = usize::try_from(to - from + 1).unwrap_or(usize::MAX);
                let (records, count) = part_there(body, skip, most)?;
                if count > 0 {
                    parts.push(Part { at: span.span.at, count: count as u32, records });
                }
            }
        }
        if !parts.is_empty() {
            let (queue, partition) = (lane.queue, lane.partition);
            let (id, level) = (lane.id, lane.level);
            lanes.push(ClaimedLane { queue, partition, id, level, parts });
        }
    }
    let removed = lanes.is_empty() && picked.nothing.is_none();
    Ok(Claimed {
        lanes,
        until: picked.until,
        now: picked.now,
        next_at: if removed { Some(picked.now) } else { picked.next_at },
        nothing: if removed { Some(Nothing::Empty) } else { picked.nothing },
    })
}

type Results = Vec<Result<Done, WorkError>>;

fn run_batch(work: &mut Work<'_>, wishes: &[Wish]) -> Result<Results, StoreError> {
    let mut results: Vec<Option<Result<Done, WorkError>>> = Vec::new();
    results.resize_with(wishes.len(), || None);
    let mut claims = Vec::new();
    let mut pushes = Vec::new();
    for (place, wish) in wishes.iter().enumerate() {
        match wish {
            Wish::Claim(claim) => claims.push((place, claim)),
            Wish::Push(messages) => pushes.push((place, messages)),
            _ => results[place] = Some(run_job(work, |work| settle_one(work, wish))?),
        }
    }
    if !claims.is_empty() {
        // Transactions may have pushed.
        work.write_messages()?;
        for (place, claim) in &claims {
            let done = run_job(work, |work| Ok(Done::Claim(work.claim(claim)?)))?;
            results[*place] = Some(done);
        }
    }
    for (place, messages) in &pushes {
        let done = run_job(work, |work| Ok(Done::Push(work.push(messages)?)))?;
        results[*place] = Some(done);
    }
    let in_vain = |result: &Option<Result<Done, WorkError>>| {
        matches!(result, Some(Ok(Done::Claim(Picked { nothing: Some(_), .. }))))
    };
    claims.retain(|(place, _)| in_vain(&results[*place]));
    if !pushes.is_empty() && !claims.is_empty() {
        work.write_messages()?;
        for (place, claim) in &claims {
            let done = run_job(work, |work| Ok(Done::Claim(work.claim(claim)?)))?;
            results[*place] = Some(done);
        }
    }
    let lost = || StoreError::Panicked { cause: "a job was left without an answer".to_owned() };
    results.into_iter().map(|result| result.ok_or_else(lost)).collect()
}

fn settle_one(work: &mut Work<'_>, wish: &Wish) -> Result<Done, WorkError> {
    match wish {
        Wish::Settle(group, items) => {
            let items: Vec<&SettleItem> = items.iter().collect();
            Ok(Done::Settle(work.settle(group, &items, &[])?))
        }
        Wish::Transaction(job) => {
            let done = work.transaction(job)?;
            if done.is_err() {
                work.undo_job();
            }
            Ok(Done::Transaction(done))
        }
        Wish::Extend(lease, seconds) => Ok(Done::Extend(work.extend(*lease, *seconds)?)),
        Wish::Release(lease) => Ok(Done::Release(work.release(*lease)?)),
        Wish::Push(_) | Wish::Claim(_) => unreachable!("these have their own turn"),
    }
}

/// Runs one job. If it is refused nothing of it stays; an error of the database is everybody's.
fn run_job(
    work: &mut Work<'_>,
    job: impl FnOnce(&mut Work<'_>) -> Result<Done, WorkError>,
) -> Result<Result<Done, WorkError>, StoreError> {
    work.begin_job();
    match job(work) {
        Ok(done) => Ok(Ok(done)),
        Err(WorkError::Store(error)) => Err(error),
        Err(refused) => {
            work.undo_job();
            Ok(Err(refused))
        }
    }
}
