//! The tasks of the poller: following the agenda, polling, announcing.

use super::{Assignment, Phase, Poller, TIMER_LATE_MAX, TRY_AGAIN_MS, Work, agenda, span};
use crate::probe::{Outcome, Prepared};
use crate::registry::{Endpoint, id_of};
use crate::store::{self, Announced, ResultRow};
use hyper::header::{HeaderName, HeaderValue};
use skep_policy::ownership::{Key, Refusal, Token};
use skep_store::Database;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Grants announced in one go.
const ANNOUNCE_MAX: usize = 5_000;

/// Waits between attempts while the database is away.
const RETRY: Duration = Duration::from_millis(500);

/// The agenda is looked at this often at least, because the clock of the nodes may be set.
const LOOK: Duration = Duration::from_secs(1);

/// A clock that moved this much more or less than time passed was set.
const CLOCK_WAS_SET_MS: i64 = 1_000;

/// One poll.
struct Turn {
    key: Key,
    slot: i64,
    at_ms: i64,
    turn: u64,
    endpoint: Arc<Endpoint>,
    prepared: Prepared,
}

impl Poller {
    /// Begins polls when they are due, until `stop` is cancelled.
    pub async fn follow_agenda(self: &Arc<Self>, stop: CancellationToken) {
        let mut last = (self.clock.now(), self.nodes.store_ms());
        loop {
            let (now, now_ms) = (self.clock.now(), self.nodes.store_ms());
            let passed = i64::try_from(now.since(last.0).as_millis()).unwrap_or(i64::MAX);
            if (now_ms - last.1 - passed).abs() > CLOCK_WAS_SET_MS {
                self.plan_anew(now_ms);
            }
            last = (now, now_ms);
            let wait = self.begin_due(now_ms).min(LOOK);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.wake.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Begins what is due; how long until the next is.
    fn begin_due(self: &Arc<Self>, now_ms: i64) -> Duration {
        let mut work = self.lock();
        while let Some(entry) = work.agenda.take_due(now_ms) {
            self.begin(&mut work, entry);
        }
        work.forget_void_entries();
        work.agenda.next_at().map_or(LOOK, |at_ms| span(at_ms - now_ms))
    }

    fn begin(self: &Arc<Self>, work: &mut Work, entry: agenda::Entry) {
        let agenda::Entry { at_ms, slot, turn, key } = entry;
        let Some(assignment) = work.assignments.get_mut(&key) else { return };
        if assignment.turn != turn || !assignment.is_waiting() {
            return;
        }
        let (Some(endpoint), Some(prepared)) = (&assignment.endpoint, &assignment.prepared) else {
            return;
        };
        let (endpoint, prepared) = (endpoint.clone(), prepared.clone());
        let one = Turn { key, slot, at_ms, turn, endpoint, prepared };
        let poll = tokio::spawn(self.clone().poll(one));
        assignment.phase = Phase::Polling(poll.abort_handle());
    }

    async fn poll(self: Arc<Self>, one: Turn) {
        let mut unfinished = Unfinished { poller: &self, one: &one, armed: true };
        let Ok(_room) = self.room.clone().acquire_owned().await else { return };
        let timeout = one.endpoint.spec.timeout;
        // From here on every moment counts: what the permit allows must begin now.
        let permit = match self.nodes.permit(&one.key, timeout) {
            Ok(permit) => permit,
            Err(refusal) => {
                unfinished.armed = false;
                return self.not_permitted(&one, refusal);
            }
        };
        let began_ms = self.nodes.store_ms();
        let extra = self.options.identify.then(|| self.identity(&one.endpoint, permit.token));
        let extra = extra.as_ref().map_or(&[][..], |extra| &extra[..]);
        // No further step once the permit is over. A timer would not do: a process that was stopped
        // for a while finds its timer and its connection ready at the same time, and might send a
        // request long after it was allowed to.
        let over = || self.clock.now() > permit.end_by;
        let outcome = self.prober.probe_unless(&one.prepared, timeout, extra, &over).await;
        // A process that comes so late was stopped or starved, wherever that found it. What it made
        // of the poll says nothing about the endpoint, and the poll is made again.
        if self.clock.now() > permit.end_by + TIMER_LATE_MAX {
            return;
        }
        unfinished.armed = false;
        self.polled(&one, permit.token, began_ms, outcome);
    }

    fn identity(&self, endpoint: &Endpoint, token: Token) -> [(HeaderName, HeaderValue); 3] {
        let value = |text: &str| {
            HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("?"))
        };
        [
            (HeaderName::from_static("x-skep-endpoint"), value(&endpoint.spec.id)),
            (HeaderName::from_static("x-skep-node"), value(self.nodes.instance())),
            (HeaderName::from_static("x-skep-token"), value(&token.to_string())),
        ]
    }

    fn polled(&self, one: &Turn, token: Token, began_ms: i64, outcome: Outcome) {
        let late = span(began_ms - one.at_ms);
        self.metrics.polled(outcome.verdict, late, outcome.latency);
        self.beats.polled(&outcome, late);
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let row = ResultRow {
            id: one.endpoint.spec.id.clone(),
            born: one.endpoint.born,
            epoch: token.epoch,
            counter: token.counter,
            node: self.nodes.name().to_string(),
            slot: one.slot,
            at_ms: began_ms,
            ok: outcome.ok,
            verdict: outcome.verdict.as_str().to_owned(),
            status: outcome.status,
            latency_us: Some(micros(outcome.latency)),
            late_us: micros(late),
            detail: (!outcome.detail.is_empty()).then_some(outcome.detail),
        };
        let now_ms = self.nodes.store_ms();
        let mut work = self.lock();
        let mine = work.assignments.get_mut(&one.key).filter(|found| found.turn == one.turn);
        if let Some(assignment) = mine {
            assignment.unwritten += 1;
            let endpoint = assignment.endpoint.clone().unwrap_or_else(|| one.endpoint.clone());
            let slot = assignment.on_grid(&endpoint, &one.endpoint, one.slot, now_ms);
            assignment.last_done = Some(slot.max(assignment.last_done.unwrap_or(slot)));
            self.after_poll(&mut work, &one.key, now_ms);
        }
        drop(work);
        if let Some(dropped) = self.outbox.add(row, self.options.waiting_max) {
            self.metrics.dropped(1);
            crate::outbox::Written::written(self, &[(dropped, None)]);
        }
    }

    /// Plans the next poll, or ends the assignment.
    fn after_poll(&self, work: &mut Work, key: &Key, now_ms: i64) {
        let Work { assignments, agenda, .. } = work;
        let Some(assignment) = assignments.get_mut(key) else { return };
        assignment.phase = Phase::Idle;
        if assignment.stopping {
            self.stop_if_done(work, key);
        } else if let Some(endpoint) = assignment.endpoint.clone() {
            let missed = assignment.schedule(&endpoint, now_ms, agenda);
            self.missed("overrun", missed);
            self.wake.notify_one();
        }
    }

    fn not_permitted(&self, one: &Turn, refusal: Refusal) {
        // What is not ours any more, or is being given away, is not tried again: whoever takes it
        // away says so.
        self.not_made(one, refusal == Refusal::TrustEnds);
    }

    /// A poll came to nothing; it is tried again a little later, unless its endpoint is to be given
    /// back.
    fn not_made(&self, one: &Turn, again: bool) {
        let now_ms = self.nodes.store_ms();
        let mut work = self.lock();
        let Work { assignments, agenda, .. } = &mut *work;
        let Some(assignment) = assignments.get_mut(&one.key) else { return };
        if assignment.turn != one.turn {
            return;
        }
        assignment.phase = Phase::Idle;
        if assignment.stopping {
            return self.stop_if_done(&mut work, &one.key);
        }
        if again {
            let current = one.endpoint.grid.slot_at(now_ms).max(one.slot);
            let skipped = current.abs_diff(one.slot);
            assignment.turn += 1;
            assignment.phase = Phase::Waiting;
            agenda.add(now_ms + TRY_AGAIN_MS, current, one.key.clone(), assignment.turn);
            self.wake.notify_one();
            self.missed("not-made", skipped);
        }
    }

    fn missed(&self, why: &'static str, slots: u64) {
        self.metrics.missed(why, slots);
        self.beats.missed(slots);
    }

    /// The clock that the agenda is written in was set: all times are computed anew.
    fn plan_anew(&self, now_ms: i64) {
        let mut work = self.lock();
        let Work { assignments, agenda, .. } = &mut *work;
        agenda.clear();
        for assignment in assignments.values_mut() {
            assignment.since_ms = assignment.since_ms.min(now_ms);
            if let (Phase::Waiting, Some(endpoint)) =
                (&assignment.phase, assignment.endpoint.clone())
            {
                assignment.schedule(&endpoint, now_ms, agenda);
            }
        }
        tracing::info!("the clock of the store was set; polls are planned anew");
    }

    /// Announces grants before their first poll, until `stop` is cancelled.
    pub async fn announce_grants(&self, db: &Database, stop: CancellationToken) {
        loop {
            let grants = self.grants();
            if grants.is_empty() {
                tokio::select! {
                    () = self.granted.notified() => continue,
                    () = stop.cancelled() => return,
                }
            }
            match store::announce(db, grants.clone()).await {
                Ok(answers) => self.announced(&grants, &answers),
                Err(error) => {
                    tracing::warn!(
                        %error, endpoints = grants.len(),
                        "new endpoints wait for the database before their first poll"
                    );
                    let keys = grants.iter().map(|grant| crate::registry::key_of(&grant.id));
                    self.lock().to_announce.extend(keys);
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = stop.cancelled() => return,
                    }
                }
            }
        }
    }

    fn grants(&self) -> Vec<store::Grant> {
        let now_ms = self.nodes.store_ms();
        let mut work = self.lock();
        let Work { assignments, to_announce, .. } = &mut *work;
        let mut grants = Vec::new();
        while grants.len() < ANNOUNCE_MAX
            && let Some(key) = to_announce.pop_front()
        {
            let Some(assignment) = assignments.get(&key) else { continue };
            let Some(endpoint) = &assignment.endpoint else { continue };
            if assignment.stopping || !matches!(assignment.phase, Phase::Announcing) {
                continue;
            }
            grants.push(store::Grant {
                id: id_of(&key).to_owned(),
                born: endpoint.born,
                epoch: assignment.token.epoch,
                counter: assignment.token.counter,
                node: self.nodes.name().to_string(),
                from: assignment.from.as_ref().map(ToString::to_string),
                reason: serde_json::json!(assignment.reason).to_string(),
                at_ms: now_ms,
            });
        }
        grants
    }

    fn announced(&self, grants: &[store::Grant], answers: &[Announced]) {
        let now_ms = self.nodes.store_ms();
        let mut work = self.lock();
        let Work { assignments, agenda, .. } = &mut *work;
        for (grant, answer) in grants.iter().zip(answers) {
            let key = crate::registry::key_of(&grant.id);
            let Some(assignment) = assignments.get_mut(&key) else { continue };
            if !matches!(assignment.phase, Phase::Announcing) {
                continue;
            }
            assignment.phase = Phase::Idle;
            let Some(endpoint) = assignment.endpoint.clone() else { continue };
            match answer {
                Announced::Current { last_slot, last_at_ms } => {
                    assignment.last_done =
                        assignment.known_last(&endpoint, *last_slot, *last_at_ms, now_ms);
                    let missed = assignment.schedule(&endpoint, now_ms, agenda);
                    self.missed("takeover", missed);
                }
                Announced::Older => {
                    tracing::warn!(endpoint = grant.id, "somebody newer polls it; left alone");
                }
                Announced::Gone => {}
            }
        }
        drop(work);
        self.wake.notify_one();
    }
}

impl Work {
    /// An endpoint that waits has one entry that is not due and counts; others have none.
    fn forget_void_entries(&mut self) {
        let Work { assignments, agenda, .. } = self;
        agenda.compact(assignments.len(), |entry| {
            let assignment = assignments.get(&entry.key);
            assignment.is_some_and(|found| found.turn == entry.turn && found.is_waiting())
        });
    }
}

impl Assignment {
    fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting)
    }

    /// The last slot that was polled, from what the database knows and what came with the endpoint:
    /// the database may not have the last result yet.
    fn known_last(
        &self,
        endpoint: &Endpoint,
        last_slot: Option<i64>,
        last_at_ms: Option<i64>,
        now_ms: i64,
    ) -> Option<i64> {
        let grid = &endpoint.grid;
        // A slot that does not fit its time is one of another interval.
        let fits = |slot: i64, at_ms: i64| {
            let interval = i64::try_from(grid.interval().as_millis()).unwrap_or(i64::MAX);
            (grid.time_of(slot) - at_ms).abs() <= 2 * interval
        };
        let written = match (last_slot, last_at_ms) {
            (Some(slot), Some(at_ms)) if fits(slot, at_ms) => Some(slot),
            (_, at_ms) => at_ms.map(|at_ms| grid.last_done_at(now_ms, at_ms, self.since_ms)),
        };
        let handed = (self.due_ms > 0).then(|| grid.slot_at(self.due_ms) - 1);
        written.max(handed)
    }
}

/// A poll that did not come to its end: given up, stopped with its process, or panicked.
struct Unfinished<'a> {
    poller: &'a Poller,
    one: &'a Turn,
    armed: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.poller.not_made(self.one, true);
        }
    }
}

#[cfg(test)]
mod tests;
