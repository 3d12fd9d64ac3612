//! What can be looked at.

use super::Fleet;
use super::records::{Id, Session, State, Worker};
use crate::sessions::{Answer, KindRow, PAGE_ROWS, SessionRow, WorkerNumber, WorkerRow};
use std::ops::Bound;

impl Fleet {
    pub(super) fn look_kinds(&self) -> Answer {
        let row = |(name, &kind): (&String, &usize)| {
            let kind = &self.kinds[kind];
            KindRow {
                kind: name.clone(),
                rules: kind.rules.clone(),
                standings: kind.standings,
                slots: kind.slots,
                active: kind.active,
                free: kind.free,
                waiting: kind.line.len(),
                out: kind.out,
                out_max: kind.rules.budget.of(kind.standings.live()),
                held_idle: kind.held_idle,
                started: kind.started,
                recycled: kind.recycled,
                out_ms: kind.out_ms,
            }
        };
        Answer::Kinds { kinds: self.kind_names.iter().map(row).collect() }
    }

    pub(super) fn look_workers(&self, from: WorkerNumber, limit: usize) -> Answer {
        let skipped = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        let workers = self.workers.iter().skip(skipped).flatten().take(limit.min(PAGE_ROWS));
        Answer::Workers { workers: workers.map(|worker| self.worker_row(worker)).collect() }
    }

    pub(super) fn look_worker(&self, name: &str) -> Answer {
        let found = self.worker_names.get(name).and_then(|&number| self.worker(number));
        match found {
            Some(worker) => Answer::Workers { workers: vec![self.worker_row(worker)] },
            None => Answer::Unknown,
        }
    }

    fn worker_row(&self, worker: &Worker) -> WorkerRow {
        let kind = &self.kinds[worker.kind];
        let placed = worker.placed.expect("every worker is settled within the step that made it");
        WorkerRow {
            number: worker.number,
            name: worker.name.clone(),
            kind: kind.name.clone(),
            url: worker.url.clone(),
            start: worker.start.clone(),
            incarnation: worker.incarnation,
            shape: kind.shapes[worker.shape].shape.clone(),
            slots: worker.slots,
            active: worker.active,
            leaving: worker.leaving,
            lifetime: worker.lifetime,
            due_at: kind.rules.due_at(worker.number, worker.fresh, kind.counted),
            due_by: worker.due_by,
            standing: placed.standing,
            permit: worker.permit.is_some(),
            drained: worker.drained,
            failures: worker.suspect.map_or(0, |suspect| suspect.failures),
            since_ms: worker.since,
            heard_ms: worker.heard,
        }
    }

    pub(super) fn look_sessions(&self, after: Option<Id>, limit: usize) -> Answer {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.sessions.range((from, Bound::Unbounded)).take(limit.min(PAGE_ROWS));
        Answer::Sessions { sessions: found.map(|(&id, one)| self.session_row(id, one)).collect() }
    }

    fn session_row(&self, (gateway, ticket): Id, session: &Session) -> SessionRow {
        let worker = match session.state {
            State::Seated { worker, .. } => {
                self.worker(worker).map(|found| (worker, found.name.clone()))
            }
            State::Waiting { .. } => None,
        };
        SessionRow {
            gateway,
            node: self.gateways.get(&gateway).map_or_else(String::new, |one| one.node.clone()),
            ticket,
            kind: self.kinds[session.kind].name.clone(),
            key: session.key.clone(),
            worker,
            since_ms: session.since,
            ending: session.ending,
        }
    }
}
