//! A worker takes a task, and comes back from it.

use super::{DRAINING, Engine, OPEN, STOPPED};
use crate::guard::drop_quietly;
use crate::handoff::Handoff;
use crate::journal::{Action, Pool};
use crate::lane::{Lane, count};
use crate::later::Due;
use crate::letters::{Cause, Letter};
use crate::seat::{Home, Occupant, Running};
use crate::sync::lock;
use crate::task::{Context, Failure, Record, Task};
use skep_policy::pools::{Class, Tier, steal};
use skep_policy::{Chance, Time, backoff};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A worker, in the hands of its thread.
pub struct Worker {
    pub index: usize,
    /// It was woken for work, or lingers, and has not found any yet.
    searching: bool,
    /// It has kept looking for a moment and found nothing.
    lingered: bool,
    /// What its task is told; only a future takes it along.
    context: Option<Context>,
    /// It rests, or was woken and has not said so yet.
    resting: bool,
    /// Until when it rests.
    rests_until: Option<Time>,
    /// The tasks it has done since it last rested.
    tasks: u32,
}

/// The most that a task waits for its retry while the pools drain.
const DRAIN_RETRY_WAIT_MAX: Duration = Duration::from_millis(100);
/// So many tasks without a rest are a streak.
const STREAK: u32 = 64;
/// A look at the queue would cost more than tasks shorter than this.
const SHORT_NANOS: u64 = 10_000;
/// After so many of them a worker looks anyway.
const LOOK_EVERY: u32 = 16;

/// What a worker does next.
pub enum Next {
    /// Run this, then call [`Engine::ended`].
    Run(Claim),
    /// Look at [`Engine::can_take`] for a few microseconds, then ask again. In a `streak` of tasks
    /// more of them are likely to come, and whoever submits them may need the processor.
    Linger { streak: bool },
    /// Sleep until woken, at most until this time, then call [`Engine::rested`].
    Rest(Option<Time>),
    /// Go.
    Leave,
}

/// A task that a worker is to run.
pub struct Claim {
    pub(crate) record: Record,
    pub context: Context,
    pub tier: Tier,
    pub started: Time,
    /// It counts as a busy background task.
    busy: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It returned.
    Returned(Result<(), Failure>),
    /// It panicked.
    Panicked(String),
    /// It was stopped, because its time was over.
    TimedOut,
    /// It was stopped, because somebody cancelled it or the pools stopped.
    Cancelled,
    /// It took its worker with it.
    Died,
}

impl Worker {
    pub fn new(index: usize) -> Self {
        Worker {
            index,
            searching: false,
            lingered: false,
            context: None,
            resting: false,
            rests_until: None,
            tasks: 0,
        }
    }
}

impl Engine {
    /// What a worker does next.
    pub fn next(&self, worker: &mut Worker, now: Time) -> Next {
        let index = worker.index;
        loop {
            let taken = self.take(index);
            if worker.searching {
                worker.searching = false;
                self.settle(index, taken.is_some());
            }
            if let Some((tier, record, busy)) = taken {
                let lane = self.lane(tier);
                lane.let_in();
                worker.lingered = false;
                let Some(claim) = self.start(worker, tier, record, busy, now) else { continue };
                // What this worker leaves behind may be for a helper, now that it is busy itself.
                let full = lane.workers.load(Ordering::SeqCst) >= u32::from(lane.options.rules.max);
                if full && self.is_help_possible(tier.class()) && lane.has_work() {
                    self.evaluate(tier, now);
                }
                return Next::Run(claim);
            }
            if self.phase() != OPEN {
                self.forget_worker(index);
                // Who added something meanwhile took this worker for one that would look again.
                if self.lanes.iter().any(Lane::has_work) {
                    self.look_at_all(now);
                }
                return Next::Leave;
            }
            if !worker.lingered && self.lingers(index) && self.handoff(index).search() {
                worker.searching = true;
                worker.lingered = true;
                return Next::Linger { streak: worker.tasks >= STREAK };
            }
            worker.lingered = false;
            self.leave_processor(index, now);
            if self.handoff(index).rest(index, || self.can_take(index)) {
                worker.rests_until = self.rests_until(index, now);
                worker.resting = true;
                worker.tasks = 0;
                return Next::Rest(worker.rests_until);
            }
        }
    }

    /// A background worker has nothing to do: the other tier may have waited for a processor.
    fn leave_processor(&self, index: usize, now: Time) {
        if let Home::Tier(tier) = self.seats[index].home
            && tier.class() == Class::Background
        {
            for other in Class::Background.tiers() {
                if other != tier && self.lane(other).has_work() {
                    self.evaluate(other, now);
                }
            }
        }
    }

    /// A worker no longer rests; `true` if it shall go.
    pub fn rested(&self, worker: &mut Worker, now: Time) -> bool {
        worker.resting = false;
        worker.searching = !self.handoff(worker.index).get_up(worker.index);
        let over = worker.rests_until.is_some_and(|until| until <= now);
        !worker.searching && over && self.leaves_idle(worker.index, now)
    }

    /// A searching worker has looked. If it found something and there is more, the next one wakes.
    fn settle(&self, index: usize, found: bool) {
        let handoff = self.handoff(index);
        handoff.settle();
        if found
            && self.can_take(index)
            && let Some(other) = handoff.notify()
        {
            self.wake(other);
        }
    }

    fn handoff(&self, index: usize) -> &Handoff {
        match self.seats[index].home {
            Home::Tier(tier) => &self.lane(tier).handoff,
            Home::Shared => self.shared.handoff(self.class_of(index)),
        }
    }

    fn class_of(&self, index: usize) -> Class {
        self.seats[index].state().class
    }

    /// The next task for a worker, and whether it counts as a busy background task.
    fn take(&self, index: usize) -> Option<(Tier, Record, bool)> {
        match self.seats[index].home {
            home if self.phase() == DRAINING => {
                self.drains(home, self.class_of(index)).find_map(|tier| {
                    let record = self.lane(tier).take()?;
                    Some(self.note_busy(tier, record))
                })
            }
            _ if self.phase() == STOPPED => None,
            Home::Tier(tier) => {
                let record = self.lane(tier).take()?;
                Some(self.note_busy(tier, record))
            }
            Home::Shared => self.take_as_helper(self.class_of(index)),
        }
    }

    /// What somebody works on while the pools drain, the most urgent first, and nothing that is
    /// less urgent than their own work: that may fall due at any time.
    pub(super) fn drains(&self, home: Home, class: Class) -> impl Iterator<Item = Tier> {
        let works_on = move |tier: &Tier| match home {
            Home::Tier(own) => *tier <= own,
            Home::Shared => tier.class() == class,
        };
        Tier::ALL.into_iter().filter(works_on)
    }

    fn note_busy(&self, tier: Tier, record: Record) -> (Tier, Record, bool) {
        let busy = tier.class() == Class::Background && record.is_busy();
        if busy {
            self.shared.busy.fetch_add(1, Ordering::SeqCst);
        }
        (tier, record, busy)
    }

    fn take_as_helper(&self, class: Class) -> Option<(Tier, Record, bool)> {
        loop {
            let tier = self.stealable(class)?;
            if class == Class::Express {
                match self.lane(tier).take() {
                    Some(record) => return Some((tier, record, false)),
                    None => continue,
                }
            }
            // The place on a processor first: what the task is can only be seen when it is taken.
            let most = u32::from(self.options.shared.background_max);
            let one_more = |busy| (busy < most).then_some(busy + 1);
            let busy = &self.shared.busy;
            busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
            match self.lane(tier).take() {
                Some(record) if record.is_busy() => return Some((tier, record, true)),
                Some(record) => {
                    busy.fetch_sub(1, Ordering::SeqCst);
                    return Some((tier, record, false));
                }
                None => busy.fetch_sub(1, Ordering::SeqCst),
            };
        }
    }

    fn stealable(&self, class: Class) -> Option<Tier> {
        let stolen = steal(class, &self.rules, &self.options.shared, |tier| self.tier_now(tier));
        stolen.map(|stolen| stolen.tier)
    }

    /// Whether a worker without work keeps looking for a moment: only where waiting matters.
    fn lingers(&self, index: usize) -> bool {
        matches!(self.seats[index].home, Home::Tier(tier) if tier.class() == Class::Express)
    }

    /// Whether there is something for a worker.
    pub fn can_take(&self, index: usize) -> bool {
        if self.phase() != OPEN {
            return true;
        }
        match self.seats[index].home {
            Home::Tier(tier) => self.lane(tier).has_work(),
            Home::Shared => {
                let class = self.class_of(index);
                self.may_help(class) && self.stealable(class).is_some()
            }
        }
    }

    /// Puts a task into a worker's hands, unless it is too late for it.
    fn start(
        &self,
        worker: &mut Worker,
        tier: Tier,
        record: Record,
        busy: bool,
        now: Time,
    ) -> Option<Claim> {
        let lane = self.lane(tier);
        let mut token = None;
        let mut timeout = lane.options.task_timeout;
        if let Some(wishes) = &record.wishes {
            timeout = wishes.timeout.unwrap_or(timeout);
            token = wishes.token.clone();
            let cancelled = token.as_ref().is_some_and(|token| token.is_cancelled());
            let late = wishes.start_within.is_some_and(|limit| {
                record.failed_attempts() == 0 && now.since(record.queued_at()) > limit
            });
            if cancelled || late {
                self.give_back(busy);
                if cancelled {
                    count(&lane.counts.cancelled);
                    self.end(tier, record, now);
                } else {
                    count(&lane.counts.expired);
                    self.bury(tier, record, Cause::Expired, now);
                }
                return None;
            }
        }
        let seat = &self.seats[worker.index];
        let deadline = now + timeout;
        let (id, attempt, kind) = (record.id(), 1 + record.failed_attempts(), record.kind);
        let generation = {
            let mut state = seat.state();
            // Whoever stops the pools looks at the seats after that: sees it run, or it does not.
            if self.phase() == STOPPED {
                drop(state);
                self.give_back(busy);
                self.drop_for_good(tier, record, false, now);
                return None;
            }
            state.generation += 1;
            state.occupant = Occupant::Running(Running {
                id,
                kind,
                attempt,
                tier,
                started: now,
                deadline,
                busy,
                told: false,
                record: Some(record.clone()),
            });
            state.generation
        };
        let waited = now.as_nanos().saturating_sub(record.queued_at().as_nanos());
        seat.tally(tier).started(waited);
        self.remember(deadline);
        let context = match worker.context.take() {
            Some(reused) => Context { id, tier, attempt, deadline, generation, token, ..reused },
            None => {
                let cancelled = seat.cancelled.clone();
                Context { id, tier, attempt, deadline, generation, cancelled, token }
            }
        };
        Some(Claim { record, context, tier, started: now, busy })
    }

    fn give_back(&self, busy: bool) {
        if busy {
            self.shared.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A worker has come back from a task; `true` if it shall go.
    pub fn ended(&self, worker: &mut Worker, claim: Claim, ended: Ended, now: Time) -> bool {
        let seat = &self.seats[worker.index];
        // In the usual case nothing but the record is moved.
        let (held, late) = {
            let mut state = seat.state();
            match &mut state.occupant {
                Occupant::Running(running) => {
                    let held = running.record.take();
                    state.occupant = Occupant::Worker;
                    (held, None)
                }
                other => (None, Some(std::mem::replace(other, Occupant::Worker))),
            }
        };
        self.give_back(claim.busy);
        let Claim { record, tier, started, context, busy } = claim;
        worker.context = Some(context);
        // Whoever takes the record from the seat decides about the task; this is only a copy.
        drop_quietly(record);
        match late {
            None => {}
            Some(Occupant::Abandoned { running }) => {
                self.came_back_late(worker.index, running, ended, now);
                return true;
            }
            Some(_) => return true,
        }
        let ran = now.as_nanos().saturating_sub(started.as_nanos());
        seat.tally(tier).ended(ran);
        if let Some(record) = held {
            self.conclude(worker.index, tier, record, ended, now);
        }
        worker.tasks = worker.tasks.wrapping_add(1);
        if ran < SHORT_NANOS && !worker.tasks.is_multiple_of(LOOK_EVERY) {
            return false;
        }
        if self.retires(worker.index, now) {
            self.processor_is_free(busy, now);
            return true;
        }
        if self.lane(tier).has_work() {
            self.evaluate(tier, now);
        }
        false
    }

    /// An abandoned thread has come back after all. Its place was taken, so it goes; its task, if
    /// no other attempt was started, ends as it says.
    fn came_back_late(&self, index: usize, running: Running, ended: Ended, now: Time) {
        let (tier, busy) = (running.tier, running.busy);
        if let Some(record) = running.record {
            count(&self.lane(tier).counts.late);
            let ended = match ended {
                Ended::Returned(Ok(())) => Ended::Returned(Ok(())),
                _ => Ended::TimedOut,
            };
            self.conclude(index, tier, record, ended, now);
        }
        self.free_abandoned(index, now);
        self.processor_is_free(busy, now);
    }

    /// A thread goes that kept a processor busy, if `busy`: a background tier may have waited for
    /// one to be helped.
    fn processor_is_free(&self, busy: bool, now: Time) {
        for tier in Class::Background.tiers() {
            if busy && self.lane(tier).has_work() {
                self.evaluate(tier, now);
            }
        }
    }

    fn free_abandoned(&self, index: usize, now: Time) {
        let (control, abandoned) = match self.seats[index].home {
            Home::Tier(tier) => (&self.lane(tier).control, &self.lane(tier).abandoned),
            Home::Shared => (&self.shared.control, &self.shared.abandoned),
        };
        {
            let mut control = lock(control);
            abandoned.fetch_sub(1, Ordering::SeqCst);
            self.vacate(index, &mut control);
        }
        // Another may hang that could not be given up, because too many were.
        self.remember(now);
    }

    /// A worker's thread ended although nobody told it to.
    pub fn died(&self, worker: &mut Worker, now: Time) {
        let index = worker.index;
        if std::mem::take(&mut worker.resting) {
            // Whoever was about to wake it counts on it to look.
            worker.searching = !self.handoff(index).get_up(index);
        }
        if worker.searching {
            self.settle(index, true);
        }
        let occupant = std::mem::replace(&mut self.seats[index].state().occupant, Occupant::Worker);
        let home = self.seats[index].home;
        match occupant {
            Occupant::Running(running) => {
                self.give_back(running.busy);
                if let Some(record) = running.record {
                    self.conclude(index, running.tier, record, Ended::Died, now);
                }
            }
            Occupant::Abandoned { running } => {
                self.give_back(running.busy);
                return self.came_back_late(index, running, Ended::Died, now);
            }
            Occupant::Nobody => return,
            Occupant::Worker => {}
        }
        let (pool, left) = self.forget_worker(index);
        count(match home {
            Home::Tier(tier) => &self.lane(tier).counts.died,
            Home::Shared => &self.shared.counts.died,
        });
        self.journal.note(now, pool, Action::Died, left, None);
        // It may be missed, and where it was no longer needed, a place or a processor is free. Once
        // more by the timer: the last time that a dead thread knew may be long ago.
        self.look_at_all(now);
        self.look_again(&Tier::ALL, now);
        self.release_standby();
    }

    /// A worker is gone: its seat is free, and its pool has one less.
    fn forget_worker(&self, index: usize) -> (Pool, u32) {
        match self.seats[index].home {
            Home::Tier(tier) => {
                let lane = self.lane(tier);
                let mut control = lock(&lane.control);
                let left = lane.workers.fetch_sub(1, Ordering::SeqCst) - 1;
                self.vacate(index, &mut control);
                (Pool::Tier(tier), left)
            }
            Home::Shared => {
                let class = self.class_of(index);
                let mut control = lock(&self.shared.control);
                let left = self.shared.workers[class as usize].fetch_sub(1, Ordering::SeqCst) - 1;
                self.vacate(index, &mut control);
                (Pool::Shared, left)
            }
        }
    }

    /// Decides what becomes of a task after an attempt.
    pub(crate) fn conclude(
        &self,
        index: usize,
        tier: Tier,
        record: Record,
        ended: Ended,
        now: Time,
    ) {
        let lane = self.lane(tier);
        let (message, retry, cause) = match ended {
            Ended::Returned(Ok(())) => {
                self.seats[index].tally(tier).done();
                if let Some(letter) = record.letter() {
                    self.letters.done_after_all(letter);
                }
                return self.end(tier, record, now);
            }
            Ended::Cancelled if self.phase() != STOPPED => {
                count(&lane.counts.cancelled);
                return self.end(tier, record, now);
            }
            Ended::Cancelled => {
                self.note_dropped(tier, &record, true);
                ("stopped with the pools".to_owned(), false, Cause::Shutdown)
            }
            Ended::Returned(Err(failure)) => {
                let cause = if failure.retry { Cause::Failed } else { Cause::Permanent };
                (failure.message, failure.retry, cause)
            }
            Ended::Panicked(message) => {
                count(&lane.counts.panicked);
                (message, true, Cause::Crashed)
            }
            Ended::Died => ("its worker died".to_owned(), true, Cause::Crashed),
            Ended::TimedOut => {
                count(&lane.counts.timed_out);
                ("its time was over".to_owned(), true, Cause::TimedOut)
            }
        };
        count(&lane.counts.failed_attempts);
        let failed = record.note_failure(&message);
        let retries = record.wishes.as_ref().and_then(|wishes| wishes.retries);
        if !retry || failed > retries.unwrap_or(lane.options.retries) {
            return self.bury(tier, record, cause, now);
        }
        let phase = self.phase();
        if phase == STOPPED {
            self.note_dropped(tier, &record, true);
            return self.bury(tier, record, Cause::Shutdown, now);
        }
        count(&lane.counts.retried);
        lane.hold();
        let wait =
            backoff::wait_before_attempt(failed, &lane.options.backoff, &mut *lock(&self.chance));
        // Whoever drains the pools waits, but what fails at once must not be tried without end.
        let most = if phase == DRAINING { DRAIN_RETRY_WAIT_MAX } else { Duration::MAX };
        let due = now + wait.chosen.min(most);
        self.later.add(due, Due::Retry(tier, record));
        self.remember(due);
        // Whoever drained or stopped the pools in this moment did not see that it waits.
        match self.phase() {
            STOPPED => drop(self.sweep(None, now)),
            DRAINING if phase == OPEN => self.hurry(now),
            _ => {}
        }
    }

    /// A task becomes a dead letter.
    pub(crate) fn bury(&self, tier: Tier, record: Record, cause: Cause, now: Time) {
        count(&self.lane(tier).counts.dead);
        let id = lock(&self.chance).bits();
        self.letters.bury(Letter::new(id, tier, &record, cause, now));
        self.end(tier, record, now);
    }

    /// Something that never ran becomes a dead letter.
    pub(crate) fn bury_stranger(&self, tier: Tier, task: Task, error: &str, now: Time) {
        task.record.submitted(0, now);
        task.record.note_failure(error);
        self.bury(tier, task.record, Cause::Permanent, now);
    }

    /// A task has ended for good.
    fn end(&self, tier: Tier, record: Record, now: Time) {
        let lane = self.lane(tier);
        if let Some(key) = record.serial_key()
            && lane.release_key(key)
        {
            self.wake_for(tier);
            self.evaluate(tier, now);
        }
        if drop_quietly(record) {
            count(&lane.counts.panicked);
        }
    }
}
