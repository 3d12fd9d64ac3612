//! Polls what this node owns, each endpoint at its time.
//!
//! ```text
//!   granted ─► announcing ─► waiting ─► polling ─► waiting …
//!               (fence)        ▲          │ result ─► outbox ─► database
//!                              └──────────┘
//!   asked to stop: nothing new begins, the poll in progress ends, its result is written, and only
//!   then is the endpoint given away with the time of its next poll
//! ```
//!
//! One task follows the agenda; each poll is a task of its own and asks for its permit right before
//! it begins.

mod agenda;
mod beat;
mod run;

pub use beat::{Beat, Beats};

use crate::metrics::PollsMetrics;
use crate::options::PollsOptions;
use crate::outbox::{Outbox, Written};
use crate::probe::{Prepared, Prober};
use crate::registry::{Endpoint, Registry, id_of};
use crate::store::{Recorded, ResultRow};
use agenda::Agenda;
use skep_nodes::{Nodes, Worker};
use skep_policy::ownership::{Grant, Key, Token};
use skep_policy::polls::schedule::Due;
use skep_policy::reach::Reach;
use skep_policy::{Clock, Decision, Reason};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

/// How long the result of a last poll is waited for when the node stops.
const LAST_RESULT: Duration = Duration::from_secs(1);

/// When a poll was not permitted, it is tried again after this time.
const TRY_AGAIN_MS: i64 = 250;
/// A timeout that is noticed later than this was not the endpoint's: this process was stopped or
/// starved meanwhile.
const TIMER_LATE_MAX: Duration = Duration::from_millis(500);

/// The part that polls.
pub struct Poller {
    myself: Weak<Self>,
    nodes: Nodes,
    registry: Arc<Registry>,
    prober: Prober,
    pub(crate) outbox: Outbox,
    pub(crate) metrics: PollsMetrics,
    pub(crate) beats: Beats,
    options: PollsOptions,
    clock: Arc<dyn Clock>,
    work: Mutex<Work>,
    room: Arc<Semaphore>,
    /// The agenda has changed.
    wake: Notify,
    /// There is something to announce.
    granted: Notify,
}

#[derive(Default)]
struct Work {
    assignments: HashMap<Key, Assignment>,
    agenda: Agenda,
    to_announce: VecDeque<Key>,
    last_turn: u64,
}

/// An endpoint that is ours.
struct Assignment {
    token: Token,
    from: Option<Arc<str>>,
    reason: Reason,
    /// The next slot's time, as whoever had it before said.
    due_ms: i64,
    /// Since when it has been ours, on the nodes' clock.
    since_ms: i64,
    /// `None` until the registry knows it.
    endpoint: Option<Arc<Endpoint>>,
    prepared: Option<Prepared>,
    phase: Phase,
    last_done: Option<i64>,
    /// Results that have not been written.
    unwritten: u32,
    stopping: bool,
    /// Entries of the agenda and polls of an earlier turn are void.
    turn: u64,
}

enum Phase {
    /// Nothing is planned.
    Idle,
    /// Its token is being announced.
    Announcing,
    /// The next poll is in the agenda.
    Waiting,
    /// A poll is in progress.
    Polling(AbortHandle),
}

impl Poller {
    /// A poller for what `nodes` will grant.
    pub fn new(
        nodes: Nodes,
        registry: Arc<Registry>,
        prober: Prober,
        options: PollsOptions,
        metrics: PollsMetrics,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|myself| Poller {
            myself: myself.clone(),
            nodes,
            registry,
            prober,
            outbox: Outbox::default(),
            metrics,
            beats: Beats::default(),
            room: Arc::new(Semaphore::new(options.concurrency)),
            options,
            clock,
            work: Mutex::default(),
            wake: Notify::new(),
            granted: Notify::new(),
        })
    }

    /// What may be polled.
    pub fn reach(&self) -> &Reach {
        self.prober.reach()
    }

    /// How many endpoints are ours, and how many polls are in progress.
    pub fn now(&self) -> (usize, usize) {
        let owned = self.lock().assignments.len();
        (owned, self.options.concurrency - self.room.available_permits())
    }

    /// An endpoint is new or different.
    pub fn endpoint_changed(&self, endpoint: &Arc<Endpoint>) {
        let now_ms = self.nodes.store_ms();
        let mut work = self.lock();
        let Work { assignments, agenda, to_announce, .. } = &mut *work;
        let Some(assignment) = assignments.get_mut(&endpoint.key) else { return };
        let before = assignment.endpoint.replace(endpoint.clone());
        assignment.prepared = prepare(endpoint);
        match (&assignment.phase, before) {
            // It was granted before it was known, or is another one of the same name.
            (Phase::Idle, None) => {
                assignment.phase = Phase::Announcing;
                to_announce.push_back(endpoint.key.clone());
                self.granted.notify_one();
            }
            (Phase::Waiting, Some(before)) => {
                let asked = endpoint.asked_at_ms > before.asked_at_ms;
                let last = assignment.last_done;
                assignment.last_done =
                    last.map(|slot| assignment.on_grid(endpoint, &before, slot, now_ms));
                if asked {
                    let slot = assignment.next(endpoint, now_ms).chosen.slot;
                    agenda.add(now_ms, slot, endpoint.key.clone(), assignment.turn);
                } else if before.grid != endpoint.grid {
                    assignment.schedule(endpoint, now_ms, agenda);
                }
                self.wake.notify_one();
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a poll in progress up after a while: the next owner makes it. And its results are not
    /// waited for much longer than that: if the database is away, the others should not wait too.
    fn hurry(&self, key: Key) {
        let (poller, drain) = (self.myself.clone(), self.options.drain);
        tokio::spawn(async move {
            tokio::time::sleep(drain).await;
            if let Some(poller) = poller.upgrade()
                && let Some(Phase::Polling(poll)) =
                    poller.lock().assignments.get(&key).map(|found| &found.phase)
            {
                poll.abort();
            }
            tokio::time::sleep(LAST_RESULT).await;
            if let Some(poller) = poller.upgrade() {
                let mut work = poller.lock();
                if let Some(assignment) = work.assignments.get_mut(&key) {
                    assignment.unwritten = 0;
                }
                poller.stop_if_done(&mut work, &key);
            }
        });
    }

    /// Says that an endpoint is free, if it is to be and nothing of it is on its way.
    fn stop_if_done(&self, work: &mut Work, key: &Key) {
        let Some(assignment) = work.assignments.get(key) else { return };
        let busy = matches!(assignment.phase, Phase::Polling(..)) || assignment.unwritten > 0;
        if !assignment.stopping || busy {
            return;
        }
        let due = match (&assignment.endpoint, assignment.last_done) {
            (Some(endpoint), Some(last)) => endpoint.grid.time_of(last + 1),
            _ => assignment.due_ms,
        };
        work.assignments.remove(key);
        self.nodes.stopped(key, due);
    }
}

impl Assignment {
    fn next(&self, endpoint: &Endpoint, now_ms: i64) -> Decision<Due> {
        endpoint.grid.next(now_ms, self.last_done, self.since_ms)
    }

    /// A slot that was polled when the endpoint was `before`, in the numbers it has now: a change
    /// of the interval changes them all.
    fn on_grid(&self, endpoint: &Endpoint, before: &Endpoint, slot: i64, now_ms: i64) -> i64 {
        if endpoint.grid == before.grid {
            return slot;
        }
        endpoint.grid.last_done_at(now_ms, before.grid.time_of(slot), self.since_ms)
    }

    /// Puts the next poll into the agenda.
    fn schedule(&mut self, endpoint: &Arc<Endpoint>, now_ms: i64, agenda: &mut Agenda) -> u64 {
        let due = self.next(endpoint, now_ms).chosen;
        self.turn += 1;
        self.phase = Phase::Waiting;
        agenda.add(due.at_ms, due.slot, endpoint.key.clone(), self.turn);
        due.missed
    }
}

impl Worker for Poller {
    fn start(&self, grant: Grant) {
        let now_ms = self.nodes.store_ms();
        let mut work = self.lock();
        let Grant { key, token, due, from, reason, resumed } = grant;
        if let Some(assignment) = work.assignments.get_mut(&key)
            && resumed
            && !assignment.stopping
        {
            assignment.token = token;
            return;
        }
        work.last_turn += 1;
        // Turns of one endpoint never repeat, also not after it was given away and came back.
        let turn = work.last_turn << 20;
        let endpoint = self.registry.get(id_of(&key));
        let prepared = endpoint.as_ref().and_then(prepare);
        let phase = if endpoint.is_some() { Phase::Announcing } else { Phase::Idle };
        let assignment = Assignment {
            token,
            from,
            reason,
            due_ms: due,
            since_ms: now_ms,
            endpoint,
            prepared,
            phase,
            last_done: None,
            unwritten: 0,
            stopping: false,
            turn,
        };
        work.assignments.insert(key.clone(), assignment);
        work.to_announce.push_back(key);
        drop(work);
        self.granted.notify_one();
    }

    fn stop(&self, key: &Key, _: &Reason, leaving: bool) {
        let mut work = self.lock();
        let Some(assignment) = work.assignments.get_mut(key) else {
            drop(work);
            self.nodes.stopped(key, 0);
            return;
        };
        assignment.stopping = true;
        let polling = matches!(assignment.phase, Phase::Polling(..));
        if !polling {
            assignment.turn += 1;
            assignment.phase = Phase::Idle;
        }
        let waits = assignment.unwritten > 0;
        if leaving && (polling || waits) {
            self.hurry(key.clone());
        }
        self.stop_if_done(&mut work, key);
        drop(work);
        if waits {
            self.outbox.hurry();
        }
    }

    fn lost(&self, key: &Key, _: Token, _: &Reason) {
        if let Some(assignment) = self.lock().assignments.remove(key)
            && let Phase::Polling(poll) = assignment.phase
        {
            poll.abort();
        }
    }
}

impl Written for Poller {
    fn written(&self, results: &[(ResultRow, Option<Recorded>)]) {
        let mut work = self.lock();
        for (row, _) in results {
            let key = crate::registry::key_of(&row.id);
            if let Some(assignment) = work.assignments.get_mut(&key) {
                assignment.unwritten = assignment.unwritten.saturating_sub(1);
            }
            self.stop_if_done(&mut work, &key);
        }
    }
}

fn prepare(endpoint: &Arc<Endpoint>) -> Option<Prepared> {
    match Prober::prepare(&endpoint.spec) {
        Ok(prepared) => Some(prepared),
        Err(error) => {
            tracing::warn!(endpoint = endpoint.spec.id, %error, "cannot be polled");
            None
        }
    }
}

/// As a span, from milliseconds that may be negative.
fn span(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
