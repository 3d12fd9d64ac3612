//! Who may restart, and what becomes of what it carried.

use super::Fleet;
use super::records::{Permit, State, Step};
use crate::sessions::{Ending, Hint, Policy, WorkerNumber};

/// Which of a worker's sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// Those on the program that runs now.
    Current,
    /// Those on a program before it.
    Leaving,
}

impl Fleet {
    /// After anything that wears a worker or frees it: notes since when it waits to go, lets it go
    /// at once where no budget holds it, and settles it.
    pub(super) fn wear(&mut self, now: u64, number: WorkerNumber) {
        let Some(kind) = self.worker(number).map(|worker| worker.kind) else { return };
        let rules = &self.kinds[kind].rules;
        let (policy, drain_max) = (rules.policy, rules.drain_max_ms);
        let worn_out = |lifetime| rules.worn_out(lifetime);
        let worn_by_lifetime = self.worker(number).is_some_and(|one| worn_out(one.lifetime));
        let Some(worker) = self.worker_mut(number) else { return };
        if let Some(permit) = &mut worker.permit
            && matches!(permit.step, Step::Draining { .. })
            && worker.active == 0
        {
            permit.step = Step::Restarting { since: now };
        }
        let worn = worn_by_lifetime || worker.due_by.is_some();
        let kept = worker.lost || worker.removed || worker.down || worker.is_settling();
        if worn {
            worker.waiting_since = worker.waiting_since.or(Some(now));
        } else {
            (worker.waiting_since, worker.hold) = (None, false);
        }
        if policy != Policy::Budgeted && worn && worker.permit.is_none() && !kept {
            let step = match () {
                () if worker.successor => Step::Succeeding { since: now },
                () if worker.active == 0 => Step::Restarting { since: now },
                () => Step::Draining { until: Some(now + drain_max) },
            };
            worker.permit = Some(Permit { since: now, step });
        }
        self.settle(number);
    }

    /// Gives permits to those who are due and idle, while the budget lasts.
    pub(super) fn grant_permits(&mut self, now: u64, kind: usize) {
        loop {
            let row = &self.kinds[kind];
            let Some(&(_, number)) = row.ripe.first() else { return };
            if !self.budget_allows(kind) {
                return;
            }
            let Some(worker) = self.worker_mut(number) else { return };
            let step = match worker.successor {
                true => Step::Succeeding { since: now },
                false => Step::Restarting { since: now },
            };
            worker.permit = Some(Permit { since: now, step });
            self.settle(number);
        }
    }

    pub(super) fn budget_allows(&self, kind: usize) -> bool {
        let row = &self.kinds[kind];
        row.out < row.rules.budget.of(row.standings.live())
    }

    /// Takes a worker's permit back, because it has returned or will not.
    pub(super) fn release_permit(&mut self, now: u64, number: WorkerNumber, returned: bool) {
        let Some(worker) = self.worker_mut(number) else { return };
        let kind = worker.kind;
        if let Some(permit) = worker.permit.take() {
            self.kinds[kind].out_ms += now.saturating_sub(permit.since);
            self.kinds[kind].recycled += u64::from(returned);
        }
    }

    /// A worker that is held or asked to be recycled has waited long enough to become idle.
    pub(super) fn lose_patience(&mut self, now: u64, number: WorkerNumber) {
        let Some(worker) = self.worker(number) else { return };
        let kind = worker.kind;
        let drain_max = self.kinds[kind].rules.drain_max_ms;
        let held = worker.hold || self.kinds[kind].rules.worn_out(worker.lifetime);
        let busy = worker.active > 0;
        let may_go = held && busy && self.budget_allows(kind);
        let Some(worker) = self.worker_mut(number) else { return };
        if may_go {
            let step = Step::Draining { until: None };
            worker.permit = Some(Permit { since: now, step });
            self.settle(number);
            self.end_sessions(number, Which::Current, Ending::DrainLimit);
        } else if held {
            worker.waiting_since = Some((now + 1_000).saturating_sub(drain_max));
        } else {
            (worker.hold, worker.waiting_since) = (true, Some(now));
        }
    }

    /// Tells the gateways to close a worker's sessions. They stay on record until that is done.
    pub(super) fn end_sessions(&mut self, number: WorkerNumber, which: Which, why: Ending) {
        let Some(worker) = self.worker(number) else { return };
        if worker.active + worker.leaving == 0 {
            return;
        }
        let current = worker.incarnation;
        for (&(gateway, ticket), session) in &mut self.sessions {
            let State::Seated { worker, incarnation, .. } = session.state else { continue };
            let meant = match which {
                Which::All => true,
                Which::Current => incarnation == current,
                Which::Leaving => incarnation != current,
            };
            if worker != number || !meant || session.ending.is_some() {
                continue;
            }
            session.ending = Some(why);
            if let Some(gateway) = self.gateways.get_mut(&gateway) {
                gateway.news.insert(ticket);
            }
            self.hints.push(Hint::Gateway(gateway));
        }
    }
}
