//! Workers come, live, fail and go.

use super::Fleet;
use super::records::{Placed, Step, Suspect, Worker};
use super::recycle::Which;
use crate::sessions::{
    Answer, Ending, Heartbeat, Order, PROBE_FIRST_MS, PROBE_MAX_MS, Phase, Probe, Register,
    SETTLE_MS, WorkerNumber,
};

/// How long a gateway has to say whether a worker answered, before another is asked.
const PROBING_MS: u64 = 15_000;

impl Fleet {
    pub(super) fn register(&mut self, now: u64, ask: &Register) -> Answer {
        let Some(&kind) = self.kind_names.get(&ask.kind) else { return Answer::Unconfigured };
        let number = match self.worker_names.get(&ask.name) {
            Some(&number) => number,
            None => self.enlist(now, kind, ask),
        };
        let Some(worker) = self.worker(number) else { return Answer::Unknown };
        let same_life = worker.start == ask.start;
        if same_life && worker.removed && !worker.parting {
            return Answer::Replaced;
        }
        if worker.kind != kind {
            self.change_kind(number, kind);
        }
        if same_life {
            self.renew(now, number, ask);
        } else {
            self.begin_life(now, number, ask);
        }
        self.wear(now, number);
        self.touched.push(kind);
        let lifetime_max = self.kinds[kind].rules.lifetime_max;
        let Some(worker) = self.worker(number) else { return Answer::Unknown };
        let (incarnation, slots) = (worker.incarnation, worker.slots);
        Answer::Registered { worker: number, incarnation, slots, lifetime_max }
    }

    /// A record for a worker that is not known.
    fn enlist(&mut self, now: u64, kind: usize, ask: &Register) -> WorkerNumber {
        let number = match self.free_numbers.pop_first() {
            Some(number) => number,
            None => {
                self.workers.push(None);
                self.workers.len() as u64
            }
        };
        self.incarnations += 1;
        let worker = Worker {
            number,
            name: ask.name.clone(),
            kind,
            shape: self.kinds[kind].shape(&ask.shape),
            url: ask.url.clone(),
            start: ask.start.clone(),
            incarnation: self.incarnations,
            slots: 0,
            lifetime: 0,
            active: 0,
            leaving: 0,
            fresh: !ask.recycled,
            successor: ask.successor,
            permit: None,
            down: false,
            drained: false,
            removed: false,
            parting: false,
            lost: false,
            hold: false,
            due_by: None,
            suspect: settling(now, ask),
            waiting_since: None,
            since: now,
            heard: now,
            placed: None,
            order: Order::Serve,
        };
        self.kinds[kind].members.insert(number);
        self.worker_names.insert(ask.name.clone(), number);
        let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
        self.workers[index] = Some(worker);
        number
    }

    fn change_kind(&mut self, number: WorkerNumber, kind: usize) {
        let Some(worker) = self.worker_mut(number) else { return };
        let before = worker.kind;
        worker.kind = kind;
        if let Some(placed) = worker.placed.take() {
            self.untime(number, &placed);
            self.kinds[before].forget(number, &placed);
        }
        self.kinds[kind].members.insert(number);
        self.touched.push(before);
    }

    /// The same program says again what it is.
    fn renew(&mut self, now: u64, number: WorkerNumber, ask: &Register) {
        let Some(kind) = self.worker(number).map(|worker| worker.kind) else { return };
        let shape = self.kinds[kind].shape(&ask.shape);
        let slots = ask.slots.unwrap_or(self.kinds[kind].rules.slots);
        let Some(worker) = self.worker_mut(number) else { return };
        worker.url = ask.url.clone();
        (worker.shape, worker.slots, worker.successor) = (shape, slots, ask.successor);
        worker.lifetime = worker.lifetime.max(ask.lifetime);
        worker.heard = now;
        (worker.lost, worker.removed, worker.parting) = (false, false, false);
    }

    /// Another program under the same name.
    fn begin_life(&mut self, now: u64, number: WorkerNumber, ask: &Register) {
        let Some(worker) = self.worker(number) else { return };
        let step = worker.permit.map(|permit| permit.step);
        let succeeds = matches!(step, Some(Step::Succeeding { .. })) && ask.recycled;
        if !succeeds {
            self.end_sessions(number, Which::All, Ending::WorkerRestarted);
            self.release_permit(now, number, ask.recycled);
        }
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let kind = self.worker(number).map_or(0, |worker| worker.kind);
        let drain_max = self.kinds[kind].rules.drain_max_ms;
        let Some(worker) = self.worker_mut(number) else { return };
        if let Some(permit) = &mut worker.permit {
            permit.step = Step::Succeeded { until: Some(now + drain_max) };
        }
        worker.leaving += worker.active;
        worker.active = 0;
        worker.lifetime = 0;
        worker.incarnation = incarnation;
        worker.start = ask.start.clone();
        worker.fresh = !ask.recycled;
        (worker.down, worker.hold, worker.due_by) = (false, false, None);
        (worker.suspect, worker.waiting_since) = (settling(now, ask), None);
        worker.since = now;
        self.renew(now, number, ask);
    }

    pub(super) fn heartbeat(&mut self, now: u64, ask: &Heartbeat) -> Answer {
        let Some(&number) = self.worker_names.get(&*ask.name) else { return Answer::Unknown };
        let Some(worker) = self.worker_mut(number) else { return Answer::Unknown };
        if ask.incarnation < worker.incarnation {
            return Answer::Replaced;
        }
        if ask.incarnation > worker.incarnation || worker.parting {
            return Answer::Unknown;
        }
        worker.heard = now;
        if !worker.removed {
            worker.lost = false;
            worker.lifetime = worker.lifetime.max(ask.lifetime);
            worker.due_by = ask.due;
            let ordered =
                matches!(worker.permit.map(|permit| permit.step), Some(Step::Restarting { .. }));
            let was_down = worker.down;
            worker.down = match ask.phase {
                Phase::Serving => false,
                Phase::Restarting => !ordered,
                Phase::Down => true,
            };
            let fell = worker.down && !was_down;
            let old_gone = ask.old_gone
                && matches!(worker.permit.map(|permit| permit.step), Some(Step::Succeeded { .. }));
            if fell {
                self.end_sessions(number, Which::Current, Ending::WorkerDown);
            }
            if old_gone {
                self.end_sessions(number, Which::Leaving, Ending::WorkerRestarted);
                self.release_permit(now, number, true);
            }
        }
        self.wear(now, number);
        let Some(worker) = self.worker(number) else { return Answer::Unknown };
        let kind = worker.kind;
        self.touched.push(kind);
        self.finish(now);
        let Some(worker) = self.worker(number) else { return Answer::Unknown };
        Answer::Ordered {
            order: worker.order,
            lifetime: worker.lifetime,
            active: worker.active,
            leaving: worker.leaving,
        }
    }

    pub(super) fn remove(&mut self, now: u64, name: &str, by_worker: bool) -> Answer {
        let Some(&number) = self.worker_names.get(name) else { return Answer::Unknown };
        self.release_permit(now, number, false);
        self.end_sessions(number, Which::All, Ending::WorkerRemoved);
        let Some(worker) = self.worker_mut(number) else { return Answer::Unknown };
        worker.removed = true;
        worker.parting |= by_worker;
        let kind = worker.kind;
        self.settle(number);
        self.touched.push(kind);
        self.forget_if_done(number);
        Answer::Done
    }

    pub(super) fn drain(&mut self, name: &str, drained: bool) -> Answer {
        let Some(&number) = self.worker_names.get(name) else { return Answer::Unknown };
        let Some(worker) = self.worker_mut(number) else { return Answer::Unknown };
        worker.drained = drained;
        let kind = worker.kind;
        self.settle(number);
        self.touched.push(kind);
        Answer::Done
    }

    pub(super) fn probed(
        &mut self,
        now: u64,
        number: WorkerNumber,
        incarnation: u64,
        good: bool,
    ) -> Answer {
        let Some(worker) = self.worker_mut(number) else { return Answer::Unknown };
        if worker.incarnation != incarnation {
            return Answer::Replaced;
        }
        if let Some(suspect) = &mut worker.suspect {
            suspect.failures += 1;
            suspect.probe_at = now + probe_wait(suspect.failures);
        }
        if good {
            worker.suspect = None;
        }
        let kind = worker.kind;
        self.wear(now, number);
        self.touched.push(kind);
        Answer::Done
    }

    /// A worker did not answer a session.
    pub(super) fn suspect(&mut self, now: u64, number: WorkerNumber) {
        let Some(worker) = self.worker_mut(number) else { return };
        let first = Suspect { failures: 1, probe_at: now + PROBE_FIRST_MS };
        worker.suspect.get_or_insert(first);
    }

    /// A worker has been silent for too long.
    pub(super) fn lose(&mut self, now: u64, number: WorkerNumber) {
        self.release_permit(now, number, false);
        self.end_sessions(number, Which::All, Ending::WorkerLost);
        let Some(worker) = self.worker_mut(number) else { return };
        worker.lost = true;
        let kind = worker.kind;
        self.settle(number);
        self.touched.push(kind);
    }

    /// Does what is due for a worker now.
    pub(super) fn look_after(&mut self, now: u64, number: WorkerNumber) -> Option<Probe> {
        let worker = self.worker(number)?;
        let rules = &self.kinds[worker.kind].rules;
        let (heartbeat, restart_max) = (rules.heartbeat_ms, rules.restart_max_ms);
        let (drain_max, kind) = (rules.drain_max_ms, worker.kind);
        let (permit, waiting_since) = (worker.permit, worker.waiting_since);
        let (gone, heard) = (worker.lost || worker.removed, worker.heard);
        self.touched.push(kind);
        if gone {
            self.forget_or_wait(now, number);
            return None;
        }
        if now.saturating_sub(heard) > heartbeat {
            self.lose(now, number);
            return None;
        }
        match permit.map(|permit| permit.step) {
            Some(Step::Draining { until: Some(until) }) if until <= now => {
                self.set_step(number, Step::Draining { until: None });
                self.end_sessions(number, Which::Current, Ending::DrainLimit);
            }
            Some(Step::Succeeded { until: Some(until) }) if until <= now => {
                self.set_step(number, Step::Succeeded { until: None });
                self.end_sessions(number, Which::Leaving, Ending::DrainLimit);
            }
            Some(Step::Restarting { since }) if since + restart_max <= now => {
                self.release_permit(now, number, false);
                if let Some(worker) = self.worker_mut(number) {
                    worker.down = true;
                }
            }
            Some(Step::Succeeding { since }) if since + restart_max <= now => {
                self.release_permit(now, number, false);
            }
            None if waiting_since.is_some_and(|since| since + drain_max <= now) => {
                self.lose_patience(now, number);
            }
            _ => {}
        }
        let probe = self.probe(now, number);
        self.settle(number);
        probe
    }

    /// Whether a suspect is to be asked now.
    fn probe(&mut self, now: u64, number: WorkerNumber) -> Option<Probe> {
        let worker = self.worker_mut(number)?;
        let suspect = worker.suspect.as_mut().filter(|suspect| suspect.probe_at <= now)?;
        suspect.probe_at = now + PROBING_MS;
        Some(Probe { worker: number, incarnation: worker.incarnation, url: worker.url.clone() })
    }

    fn set_step(&mut self, number: WorkerNumber, step: Step) {
        if let Some(permit) = self.worker_mut(number).and_then(|worker| worker.permit.as_mut()) {
            permit.step = step;
        }
    }

    /// A worker that is gone has been shown for long enough; while it has sessions it stays.
    fn forget_or_wait(&mut self, now: u64, number: WorkerNumber) {
        let Some(worker) = self.worker_mut(number) else { return };
        if worker.active + worker.leaving == 0 {
            self.forget(number);
        } else {
            worker.heard = now;
            self.settle(number);
        }
    }

    /// Forgets a worker that said it goes, once nothing is on it.
    pub(super) fn forget_if_done(&mut self, number: WorkerNumber) {
        let done = |worker: &Worker| worker.parting && worker.active + worker.leaving == 0;
        if self.worker(number).is_some_and(done) {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: WorkerNumber) {
        let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
        let Some(worker) = self.workers.get_mut(index).and_then(Option::take) else { return };
        if let Some(placed) = worker.placed {
            self.untime(number, &placed);
            self.kinds[worker.kind].forget(number, &placed);
        }
        self.worker_names.remove(&worker.name);
        self.free_numbers.insert(number);
        self.touched.push(worker.kind);
    }

    fn untime(&mut self, number: WorkerNumber, placed: &Placed) {
        if let Some(time) = placed.timer {
            self.timers.remove(&(time, number));
        }
    }
}

/// One with sessions behind it comes from a table that forgot it, or knew an older life of it:
/// gateways may carry something on it and must be heard first.
fn settling(now: u64, ask: &Register) -> Option<Suspect> {
    (ask.lifetime > 0).then_some(Suspect { failures: 0, probe_at: now + SETTLE_MS })
}

fn probe_wait(failures: u32) -> u64 {
    PROBE_FIRST_MS.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PROBE_MAX_MS)
}
