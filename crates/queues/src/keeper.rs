//! What is done when its time comes: messages that waited for it, schedules, dead letters on their
//! way back.
//!
//! Every node that shares a database does this, and none has to be chosen for it: each step is one
//! transaction that uses up the row it is about (see [`Take`]), so that of many who try one does
//! it. Whoever comes second finds the row gone and looks again.

use crate::error::QueueError;
use crate::handle::{NewItem, Queues};
use crate::record::{Damaged, Record, Records, Wishes};
use crate::schedule::{Fire, Move};
use crate::store::{
    DueMessage, NewMessage, NotDone, Redrive, RedriveLetter, RedriveMark, RedriveProgress,
    RedriveState, Schedule, Step, StepDone, Take, TransactionJob, WorkError,
};
use bytes::Bytes;
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Messages that are moved to their partitions in one transaction.
const MOVED_AT_ONCE: u32 = 256;
/// Schedules that are looked at in one round.
const SCHEDULES_AT_ONCE: u32 = 64;
/// Redrives that are gone on with in one round.
const REDRIVES_AT_ONCE: u32 = 8;
/// Dead letters that one turn of a redrive looks at, and moves in one transaction.
const LETTERS_AT_ONCE: u32 = 256;
/// Whoever goes on with a redrive has it for so long, or until it says that it is done.
const TURN: Duration = Duration::from_secs(30);
/// When a redrive goes on that found no room, and a schedule whose zone is not known here.
const LATER: Duration = Duration::from_secs(5);
/// When somebody else was quicker.
const SOON: Duration = Duration::from_millis(20);

/// What one round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Messages whose time had come.
    pub moved: u64,
    /// Turns of schedules.
    pub fired: u64,
    /// Dead letters that went back.
    pub redriven: u64,
    /// How long until there is something to do, by what is known now; `None` is that nothing waits.
    pub wait: Option<Duration>,
}

impl Kept {
    /// There is something to do at `at`, where it is `now`.
    fn due(&mut self, now: Time, at: Option<Time>) {
        if let Some(at) = at {
            let wait = at.since(now);
            self.wait = Some(self.wait.map_or(wait, |known| known.min(wait)));
        }
    }
}

impl Queues {
    /// Does what is due, a bounded part of it, and tells when there is more.
    pub async fn keep(&self) -> Result<Kept, QueueError> {
        let mut kept = Kept::default();
        // Whoever holds back pushes wants the database left alone.
        if self.is_held() {
            return Ok(kept);
        }
        let now = self.move_due(&mut kept).await?;
        self.fire_due(now, &mut kept).await?;
        self.redrive_due(now, &mut kept).await?;
        self.metrics().kept(&kept);
        Ok(kept)
    }

    /// Lets messages in whose time has come. Tells the store's time.
    async fn move_due(&self, kept: &mut Kept) -> Result<Time, QueueError> {
        let due = self.store().due(MOVED_AT_ONCE).await?;
        kept.due(due.now, due.next_at);
        if due.messages.is_empty() {
            return Ok(due.now);
        }
        let takes = due.messages.iter().map(|one| Take::Later(one.id)).collect();
        let steps = due.messages.iter().map(|one| Step::Push(one.message.clone())).collect();
        let job = TransactionJob { steps, takes, required: Vec::new() };
        let count = due.messages.len() as u64;
        match self.desk().transact(job).await {
            Ok(Ok(_)) => {
                kept.moved += count;
                kept.due(due.now, Some(due.now));
            }
            Ok(Err(_)) => kept.due(due.now, Some(due.now + SOON)),
            // One that cannot be let in must not hold up the others.
            Err(error) if !is_away(&error) => {
                for one in due.messages {
                    kept.moved += u64::from(self.move_one(one).await?);
                }
                kept.due(due.now, Some(due.now + LATER));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(due.now)
    }

    async fn move_one(&self, one: DueMessage) -> Result<bool, QueueError> {
        let (takes, queue) = (vec![Take::Later(one.id)], one.message.queue.clone());
        let steps = vec![Step::Push(one.message)];
        let job = TransactionJob { steps, takes, required: Vec::new() };
        match self.desk().transact(job).await {
            Ok(done) => Ok(done.is_ok()),
            Err(error) if is_away(&error) => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, %queue, "a delayed message waits on, although it is due");
                Ok(false)
            }
        }
    }

    async fn fire_due(&self, now: Time, kept: &mut Kept) -> Result<(), QueueError> {
        let due = self.store().due_schedules(now, SCHEDULES_AT_ONCE).await?;
        let full = due.len() == SCHEDULES_AT_ONCE as usize;
        let mut unknown_zone = false;
        for schedule in due {
            match schedule.due(now) {
                Ok(Some(fire)) => kept.fired += self.fire(&schedule, &fire).await?,
                Ok(None) => {}
                Err(error) => {
                    unknown_zone = true;
                    let name = &schedule.name;
                    tracing::warn!(%error, schedule = %name, "a schedule is left to other nodes");
                }
            }
        }
        if full && !unknown_zone {
            kept.due(now, Some(now));
        }
        let next = self.store().next_turn(now).await?;
        kept.due(now, next);
        if unknown_zone {
            kept.due(now, Some(now + LATER));
        }
        Ok(())
    }

    /// Goes from slot to slot. If somebody else does too, one of the two stops.
    async fn fire(&self, schedule: &Schedule, fire: &Fire) -> Result<u64, QueueError> {
        let Some(next_at) = schedule.next_at else { return Ok(0) };
        let mut fired = 0;
        for step in fire.moves(next_at) {
            let (was, next) = match step {
                Move::Pass { was, next } => {
                    if !self.store().pass_slot(schedule.id, was, next).await? {
                        break;
                    }
                    continue;
                }
                Move::Push { was, next } => (was, next),
            };
            let spec = &schedule.spec;
            let item = NewItem {
                queue: spec.queue.clone(),
                partition: spec.partition.clone(),
                payload: spec.payload.as_bytes().into(),
                transaction: Some(schedule.transaction(was).into()),
                trace: None,
                producer: Some(format!("schedule {}", schedule.name).into()),
                wishes: Wishes { priority: spec.priority, ..Wishes::default() },
            };
            let message = self.desk().message(&item)?.0;
            let takes = vec![Take::Slot { schedule: schedule.id, was, next }];
            let job = TransactionJob { steps: vec![Step::Push(message)], takes, required: vec![] };
            match self.desk().transact(job).await {
                Ok(Ok(done)) => {
                    fired += 1;
                    if let Some(StepDone::Pushed(pushed)) = done.first() {
                        // For people to see; whoever dies here leaves nothing else undone.
                        self.store().note_fired(schedule.id, was, pushed.id).await?;
                    }
                }
                Ok(Err(_)) => break,
                Err(error) if is_away(&error) => return Err(error.into()),
                Err(error) => {
                    let name = &schedule.name;
                    tracing::warn!(%error, schedule = %name, "a schedule's message is refused");
                    self.store().pass_slot(schedule.id, was, next).await?;
                }
            }
        }
        Ok(fired)
    }

    async fn redrive_due(&self, now: Time, kept: &mut Kept) -> Result<(), QueueError> {
        for redrive in self.store().due_redrives(now, REDRIVES_AT_ONCE).await? {
            // Others leave it alone while this node is at it; if it dies, they go on after that.
            let mine = RedriveMark { next_at: now + TURN, ..redrive.mark };
            let claim =
                RedriveProgress { mark: mine, moved: 0, skipped: 0, state: RedriveState::Running };
            if !self.store().progress_redrive(redrive.id, redrive.mark, claim).await? {
                continue;
            }
            let done = self.redrive_some(&redrive, now).await?;
            kept.redriven += done.moved;
            if done.state == RedriveState::Running {
                kept.due(now, Some(done.mark.next_at));
            }
            self.store().progress_redrive(redrive.id, mine, done).await?;
        }
        Ok(())
    }

    /// One turn of a redrive.
    async fn redrive_some(
        &self,
        redrive: &Redrive,
        now: Time,
    ) -> Result<RedriveProgress, QueueError> {
        let most = redrive.rate.map_or(LETTERS_AT_ONCE, |rate| rate.clamp(1, LETTERS_AT_ONCE));
        let found = self.store().letters_to_redrive(redrive, most).await?;
        let mut progress = RedriveProgress {
            mark: RedriveMark { position: found.position, next_at: now },
            moved: 0,
            skipped: found.skipped,
            state: if found.end { RedriveState::Done } else { RedriveState::Running },
        };
        let mut letters = found.letters;
        while !letters.is_empty() {
            match self.desk().transact(go_back(redrive, &letters)?).await {
                Ok(Ok(_)) => {
                    progress.moved += letters.len() as u64;
                    break;
                }
                Ok(Err(NotDone::Gone(place))) => {
                    letters.remove(place.min(letters.len() - 1));
                    progress.skipped += 1;
                }
                Ok(Err(refused)) => {
                    tracing::warn!(?refused, redrive = redrive.id, "a redrive is refused");
                    progress.mark.next_at = now + LATER;
                    break;
                }
                Err(error) if is_away(&error) => return Err(error.into()),
                // There is no room, for one: the same letters are tried again later.
                Err(error) => {
                    tracing::warn!(%error, redrive = redrive.id, "a redrive waits");
                    let mark = RedriveMark { next_at: now + LATER, ..redrive.mark };
                    let state = RedriveState::Running;
                    return Ok(RedriveProgress { mark, moved: 0, skipped: 0, state });
                }
            }
        }
        if let Some(rate) = redrive.rate {
            let moved = f64::from(u32::try_from(progress.moved).unwrap_or(u32::MAX));
            progress.mark.next_at = now + Duration::from_secs_f64(moved / f64::from(rate.max(1)));
        }
        Ok(progress)
    }
}

/// Takes these letters and pushes them.
fn go_back(redrive: &Redrive, letters: &[RedriveLetter]) -> Result<TransactionJob, WorkError> {
    let queue = redrive.target.as_ref().unwrap_or(&redrive.queue_name);
    let mut job = TransactionJob::default();
    for letter in letters {
        job.takes.push(Take::Dead(letter.id));
        let (message, _) = again(queue, &letter.partition, &letter.record)?;
        job.steps.push(Step::Push(message));
    }
    Ok(job)
}

/// A message that was here before, and is wanted again as it was; with the id its producer knows it
/// by. It comes at once, whatever it once waited for.
pub(crate) fn again(
    queue: &Arc<str>,
    partition: &Arc<str>,
    bytes: &Bytes,
) -> Result<(NewMessage, Arc<str>), Damaged> {
    let record = Records::of(bytes).next().ok_or(Damaged)??;
    let transaction: Arc<str> = Arc::from(&*record.transaction);
    let now = Record { wishes: Wishes { due: None, ..record.wishes }, ..record.clone() };
    let bytes = if now == record { bytes.clone() } else { now.encode() };
    let message = NewMessage::of(queue.clone(), partition.clone(), &now, bytes);
    Ok((NewMessage { again: true, ..message }, transaction))
}

/// Whether nothing will work for now, whatever is tried.
fn is_away(error: &WorkError) -> bool {
    match error {
        WorkError::Store(error) => {
            error.is_temporary() || matches!(error, StoreError::Closed { .. })
        }
        WorkError::Overloaded => true,
        _ => false,
    }
}
