//! What became of every task, kept apart from the engine.
//!
//! The engine's own counters cannot show that it lost a task: they would have lost it too. So every
//! task is written down here when it is accepted, and each thing the engine does with it must be
//! one that the ledger says may happen next:
//!
//! ```text
//!   offered ──► waiting ──► running ──► done, cancelled ──► forgotten
//!                 ▲  │         │  │                             ▲
//!                 │  │         │  └──► buried ──────────────────┤
//!                 │  └─────────┼────► expired, cancelled ───────┘
//!                 └────────────┘ tried again
//! ```
//!
//! A task that vanishes, ends twice, runs beside itself or overtakes one with its serial key takes
//! a step that is not in the picture.

use super::hands::Buried;
use super::task::Order;
use skep_policy::Time;
use skep_policy::pools::Tier;
use skep_pools::engine::{Claim, Ended};
use skep_pools::{Cause, Options};
use std::collections::{BTreeMap, VecDeque};
use tokio_util::sync::CancellationToken;

/// Serial keys that tasks of a tier have.
pub(crate) const KEYS: usize = 8;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is nobody's.
    Free,
    /// Not accepted yet.
    Offered,
    Waiting,
    Running,
    /// It must become a dead letter of this cause before the engine returns.
    Dying(Cause),
    /// Done, cancelled or buried.
    Ended,
}

/// Whether the engine takes tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Draining,
    Stopped,
}

pub(crate) struct Entry {
    pub order: Order,
    pub id: u64,
    pub state: State,
    /// Attempts that failed.
    pub failed: u32,
    pub token: Option<CancellationToken>,
    queued_at: Time,
    /// When its next attempt can start at the latest, if it waits for that.
    due_by: Time,
    /// Attempts that still run although the engine goes on without them.
    zombies: u32,
}

/// What is counted of a tier, to be compared with what the engine counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub accepted: u64,
    pub rejected: u64,
    pub over_capacity: u64,
    pub done: u64,
    pub dead: u64,
    pub failed_attempts: u64,
    pub retried: u64,
    pub timed_out: u64,
    pub panicked: u64,
    pub expired: u64,
    pub cancelled: u64,
    pub dropped: u64,
    pub late: u64,
}

pub(crate) struct Ledger {
    options: Options,
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_id: BTreeMap<u64, u32>,
    /// By tier and key: the tasks that have not ended, in the order they were accepted.
    keys: Vec<VecDeque<u32>>,
    pub waiting: [usize; 4],
    pub waiting_most: [usize; 4],
    pub running: usize,
    pub counts: [Counts; 4],
    /// Tasks that were not done because the pools stopped.
    dropped_ids: Vec<u64>,
    /// What should never have happened.
    pub faults: Vec<String>,
}

impl Ledger {
    pub fn new(options: Options) -> Self {
        Ledger {
            options,
            entries: Vec::new(),
            free: Vec::new(),
            by_id: BTreeMap::new(),
            keys: (0..4 * KEYS).map(|_| VecDeque::new()).collect(),
            waiting: [0; 4],
            waiting_most: [0; 4],
            running: 0,
            counts: [Counts::default(); 4],
            dropped_ids: Vec::new(),
            faults: Vec::new(),
        }
    }

    pub fn entry(&self, slot: u32) -> &Entry {
        &self.entries[slot as usize]
    }

    fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    fn counts_of(&mut self, slot: u32) -> &mut Counts {
        &mut self.counts[self.entries[slot as usize].order.tier.index()]
    }

    fn fault(&mut self, slot: u32, what: &str) {
        let Entry { id, order, state, failed, .. } = &self.entries[slot as usize];
        let tier = order.tier;
        self.faults.push(format!(
            "task {id} ({tier}, {state:?}, {failed} failed attempts) {what}; it is {order:?}"
        ));
    }

    /// A place for a task that is going to be offered.
    pub fn prepare(&mut self, order: Order, token: Option<CancellationToken>, now: Time) -> u32 {
        let entry = Entry {
            order,
            id: 0,
            state: State::Offered,
            failed: 0,
            token,
            queued_at: now,
            due_by: now,
            zombies: 0,
        };
        match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("fewer tasks than memory")
            }
        }
    }

    /// The engine took the task, as `id`; `reserve` of its places may be beyond the queue.
    pub fn accepted(&mut self, slot: u32, id: u64, reserve: usize) {
        let order = self.entry(slot).order;
        let tier = order.tier.index();
        let limit = self.options.tier(order.tier).queue;
        if self.waiting[tier] >= limit + reserve {
            self.fault(slot, &format!("was accepted above the limit of {limit} + {reserve}"));
        }
        self.counts[tier].accepted += 1;
        self.counts[tier].over_capacity += u64::from(self.waiting[tier] >= limit);
        self.waiting[tier] += 1;
        self.waiting_most[tier] = self.waiting_most[tier].max(self.waiting[tier]);
        let entry = self.entry_mut(slot);
        (entry.id, entry.state) = (id, State::Waiting);
        if self.by_id.insert(id, slot).is_some() {
            self.fault(slot, "has the id of another task");
        }
        if let Some(key) = order.key {
            self.keys[tier * KEYS + usize::from(key)].push_back(slot);
        }
    }

    /// The engine says that the queue is full.
    pub fn refused(&mut self, slot: u32, reserve: usize, counts: bool) {
        let tier = self.entry(slot).order.tier;
        let limit = self.options.tier(tier).queue;
        let waiting = self.waiting[tier.index()];
        if waiting < limit + reserve {
            self.fault(slot, &format!("was refused beside {waiting} of {limit} + {reserve}"));
        }
        self.counts[tier.index()].rejected += u64::from(counts);
    }

    /// A worker starts an attempt. Returns the task's slot.
    pub fn started(&mut self, claim: &Claim, now: Time) -> Option<u32> {
        let id = claim.context.id();
        let Some(&slot) = self.by_id.get(&id) else {
            self.faults.push(format!("task {id} was started after its end"));
            return None;
        };
        let entry = self.entry(slot);
        let (order, failed) = (entry.order, entry.failed);
        if entry.state != State::Waiting {
            self.fault(slot, "was started beside itself");
            return None;
        }
        if claim.context.attempt() != failed + 1 {
            self.fault(slot, &format!("was started as attempt {}", claim.context.attempt()));
        }
        if failed > order.retries(&self.options) {
            self.fault(slot, "was started more often than it may be");
        }
        if claim.context.deadline() != now + order.timeout(&self.options) {
            self.fault(slot, &format!("has the deadline {}", claim.context.deadline()));
        }
        if self.entry(slot).is_cancelled() {
            self.fault(slot, "was started although it was cancelled");
        }
        if self.entry(slot).is_too_late(now) {
            self.fault(slot, "was started too late");
        }
        if let Some(key) = order.key {
            let queue = &self.keys[order.tier.index() * KEYS + usize::from(key)];
            if queue.front() != Some(&slot) {
                self.fault(slot, "overtook another with its key");
            }
        }
        self.waiting[order.tier.index()] -= 1;
        self.running += 1;
        self.entry_mut(slot).state = State::Running;
        Some(slot)
    }

    /// An attempt is going to be reported as ended. What must become of the task is known then,
    /// and is written down before the engine says it.
    pub fn ends(&mut self, slot: u32, ended: &Ended, late: bool, phase: Phase, now: Time) {
        if self.entry(slot).state != State::Running {
            return self.fault(slot, "ended without running");
        }
        self.running -= 1;
        let success = *ended == Ended::Returned(Ok(()));
        let ended = if late && !success { &Ended::TimedOut } else { ended };
        let counts = self.counts_of(slot);
        counts.late += u64::from(late);
        let (retry, cause) = match ended {
            Ended::Returned(Ok(())) => {
                counts.done += 1;
                return self.end(slot);
            }
            Ended::Cancelled if phase != Phase::Stopped => {
                counts.cancelled += 1;
                return self.end(slot);
            }
            Ended::Cancelled => (false, Cause::Shutdown),
            Ended::Returned(Err(failure)) if failure.retry => (true, Cause::Failed),
            Ended::Returned(Err(_)) => (false, Cause::Permanent),
            Ended::Panicked(_) | Ended::Died => (true, Cause::Crashed),
            Ended::TimedOut => (true, Cause::TimedOut),
        };
        counts.panicked += u64::from(matches!(ended, Ended::Panicked(_)));
        counts.timed_out += u64::from(*ended == Ended::TimedOut);
        counts.failed_attempts += 1;
        counts.dropped += u64::from(cause == Cause::Shutdown);
        let entry = self.entry_mut(slot);
        entry.failed += 1;
        let (failed, order) = (entry.failed, entry.order);
        let again = retry && failed <= order.retries(&self.options);
        if again && phase != Phase::Stopped {
            self.counts_of(slot).retried += 1;
            self.waiting[order.tier.index()] += 1;
            let due_by = now + self.options.tier(order.tier).backoff.cap;
            let entry = self.entry_mut(slot);
            (entry.state, entry.due_by) = (State::Waiting, due_by);
        } else {
            self.counts_of(slot).dropped += u64::from(again);
            let cause = if again { Cause::Shutdown } else { cause };
            self.entry_mut(slot).state = State::Dying(cause);
        }
    }

    /// An attempt goes on that the engine no longer waits for.
    pub fn is_zombie(&mut self, slot: u32) {
        self.entry_mut(slot).zombies += 1;
    }

    pub fn zombie_ended(&mut self, slot: u32) {
        self.entry_mut(slot).zombies -= 1;
    }

    /// The world ends, and the attempts that nobody waited for with it.
    pub fn zombies_are_gone(&mut self, slot: u32) {
        self.entry_mut(slot).zombies = 0;
    }

    /// The pools stop without waiting for this task any longer.
    pub fn given_up(&mut self, slot: u32) {
        if self.entry(slot).state != State::Running {
            return self.fault(slot, "was given up without running");
        }
        self.running -= 1;
        self.counts_of(slot).dropped += 1;
        let entry = self.entry_mut(slot);
        entry.zombies += 1;
        entry.state = State::Dying(Cause::Shutdown);
    }

    /// The engine returned: what had to happen to the task must have happened.
    pub fn settled(&mut self, slot: u32) {
        let entry = self.entry(slot);
        match entry.state {
            State::Dying(_) => self.fault(slot, "became no dead letter"),
            // The engine keeps dead letters for a while, and nothing else.
            State::Ended if entry.zombies == 0 && self.by_id.contains_key(&entry.id) => {
                self.fault(slot, "is still kept after its end");
            }
            _ => {}
        }
    }

    /// A task became a dead letter.
    pub fn buried(&mut self, letter: &Buried, now: Time, phase: Phase) {
        let Some(&slot) = self.by_id.get(&letter.task) else {
            let task = letter.task;
            return self.faults.push(format!("task {task} became a dead letter after its end"));
        };
        let entry = self.entry(slot);
        if letter.attempts != entry.failed {
            self.fault(slot, &format!("became a letter of {} attempts", letter.attempts));
        }
        let entry = self.entry(slot);
        let tier = entry.order.tier.index();
        match (entry.state, letter.cause) {
            (State::Dying(cause), found) if cause == found => {}
            (State::Waiting, Cause::Expired) if entry.is_too_late(now) => {
                self.waiting[tier] -= 1;
                self.counts[tier].expired += 1;
            }
            (State::Waiting, Cause::Shutdown) if phase == Phase::Stopped => {
                self.waiting[tier] -= 1;
                self.counts[tier].dropped += 1;
            }
            (_, found) => self.fault(slot, &format!("became a dead letter: {found:?}")),
        }
        if letter.cause == Cause::Shutdown {
            self.dropped_ids.push(letter.task);
        }
        self.counts[tier].dead += 1;
        self.end(slot);
        // Whatever else happens to it is one end too many.
        self.by_id.remove(&letter.task);
    }

    /// A task's code is gone.
    pub fn dropped(&mut self, slot: u32) {
        let entry = self.entry(slot);
        let (id, tier) = (entry.id, entry.order.tier.index());
        match entry.state {
            State::Offered | State::Ended => {}
            State::Waiting if entry.is_cancelled() => {
                self.waiting[tier] -= 1;
                self.counts[tier].cancelled += 1;
                self.end(slot);
            }
            _ => self.fault(slot, "was lost"),
        }
        if self.entry(slot).zombies > 0 {
            self.fault(slot, "lost its code while it runs");
        }
        if self.by_id.get(&id) == Some(&slot) {
            self.by_id.remove(&id);
        }
        let entry = self.entry_mut(slot);
        (entry.state, entry.token) = (State::Free, None);
        self.free.push(slot);
    }

    /// A task has ended for good.
    fn end(&mut self, slot: u32) {
        let order = self.entry(slot).order;
        self.entry_mut(slot).state = State::Ended;
        if let Some(key) = order.key {
            let queue = &mut self.keys[order.tier.index() * KEYS + usize::from(key)];
            queue.retain(|other| *other != slot);
        }
    }

    /// Tasks that wait, sorted as the engine lists what it drops.
    pub fn waiting_ids(&self) -> Vec<u64> {
        let waits = |slot: &u32| self.entry(*slot).state == State::Waiting;
        self.by_id.iter().filter(|(_, slot)| waits(slot)).map(|(id, _)| *id).collect()
    }

    /// Tasks of a tier whose next attempt must have been possible before this time.
    pub fn due_before(&self, tier: Tier, time: Time) -> usize {
        let due = |entry: &Entry| {
            entry.order.tier == tier
                && entry.state == State::Waiting
                && entry.failed > 0
                && entry.due_by < time
        };
        self.by_id.values().filter(|slot| due(self.entry(**slot))).count()
    }

    /// Tasks that were not done because the pools stopped, sorted.
    pub fn dropped_ids(&self) -> Vec<u64> {
        let mut ids = self.dropped_ids.clone();
        ids.sort_unstable();
        ids
    }

    /// Tasks that have not ended, for the report.
    pub fn unfinished(&self) -> Vec<(u64, State)> {
        let all = self.by_id.iter().map(|(id, slot)| (*id, self.entry(*slot).state));
        all.filter(|(_, state)| *state != State::Ended).collect()
    }

    /// Slots that are in use; none when the engine is gone.
    pub fn in_use(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The counters of all tiers together.
    pub fn total(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        self.counts.iter().map(of).sum()
    }
}

impl Entry {
    fn is_cancelled(&self) -> bool {
        self.token.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    fn is_too_late(&self, now: Time) -> bool {
        let limit = self.order.start_within;
        self.failed == 0 && limit.is_some_and(|limit| now.since(self.queued_at) > limit)
    }
}
