//! Sessions that wait: first come, first served, and fair between keys.

use super::Fleet;
use super::records::{Id, Session, State};
use crate::sessions::{Hint, Seat, Want, WorkerNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The line of one kind.
///
/// Each key's sessions get ranks one apart, beginning behind the last that was served. So a key
/// with a hundred sessions in the line has one of them served, then everybody else has a turn;
/// and where there is one key, it is first come, first served.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    by_want: BTreeMap<Want, BTreeSet<(u64, u64, Id)>>,
    /// The last rank given to each key that waits, and how many of it wait.
    keys: BTreeMap<Arc<str>, (u64, u32)>,
    served: u64,
    arrivals: u64,
    length: u32,
}

impl Line {
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Puts a session at its place; its rank and its turn of coming.
    fn join(&mut self, id: Id, key: &Arc<str>, want: &Want) -> (u64, u64) {
        let (last, waiting) = self.keys.entry(key.clone()).or_insert((0, 0));
        let rank = self.served.max(*last) + 1;
        (*last, *waiting) = (rank, *waiting + 1);
        self.arrivals += 1;
        self.length += 1;
        self.by_want.entry(want.clone()).or_default().insert((rank, self.arrivals, id));
        (rank, self.arrivals)
    }

    fn leave(&mut self, id: Id, key: &str, want: &Want, rank: u64, arrival: u64) {
        if let Some(waiting) = self.by_want.get_mut(want) {
            waiting.remove(&(rank, arrival, id));
            if waiting.is_empty() {
                self.by_want.remove(want);
            }
        }
        if let Some((_, waiting)) = self.keys.get_mut(key) {
            *waiting -= 1;
            if *waiting == 0 {
                self.keys.remove(key);
            }
        }
        self.length -= 1;
    }

    /// The first of each want, in the order of the line.
    fn heads(&self) -> Vec<(u64, u64, Id, Want)> {
        let first = |(want, waiting): (&Want, &BTreeSet<(u64, u64, Id)>)| {
            let &(rank, arrival, id) = waiting.first()?;
            Some((rank, arrival, id, want.clone()))
        };
        let mut heads: Vec<_> = self.by_want.iter().filter_map(first).collect();
        heads.sort_unstable();
        heads
    }
}

impl Fleet {
    /// Puts a session in the line; how many wait then.
    pub(super) fn wait(
        &mut self,
        now: u64,
        id: Id,
        kind: usize,
        key: &Arc<str>,
        want: &Want,
    ) -> u32 {
        let (rank, arrival) = self.kinds[kind].line.join(id, key, want);
        let state = State::Waiting { want: want.clone(), rank, arrival };
        let session = Session { kind, key: key.clone(), state, since: now, ending: None };
        self.sessions.insert(id, session);
        self.count_key(key);
        self.kinds[kind].line.len()
    }

    /// Takes a session out of the line.
    pub(super) fn leave_line(&mut self, id: Id, session: &Session) {
        if let State::Waiting { want, rank, arrival } = &session.state {
            self.kinds[session.kind].line.leave(id, &session.key, want, *rank, *arrival);
        }
    }

    /// Gives what is free to those who wait, in the order of the line.
    pub(super) fn serve_line(&mut self, now: u64, kind: usize) {
        if self.kinds[kind].line.len() == 0 || self.kinds[kind].free == 0 {
            return;
        }
        loop {
            let mut served = false;
            for (rank, _, id, want) in self.kinds[kind].line.heads() {
                let Some(worker) = self.pick(now, kind, &want, None) else { continue };
                let Some(session) = self.sessions.remove(&id) else { continue };
                self.leave_line(id, &session);
                let line = &mut self.kinds[kind].line;
                line.served = line.served.max(rank);
                self.uncount_key(&session.key);
                self.seat(now, id, kind, &session.key, worker);
                if let Some(seated) = self.sessions.get_mut(&id) {
                    seated.ending = session.ending;
                }
                if let Some(gateway) = self.gateways.get_mut(&id.0) {
                    gateway.news.insert(id.1);
                }
                self.hints.push(Hint::Gateway(id.0));
                served = true;
                break;
            }
            if !served {
                return;
            }
        }
    }

    /// Writes the session down on its worker.
    pub(super) fn seat(
        &mut self,
        now: u64,
        id: Id,
        kind: usize,
        key: &Arc<str>,
        number: WorkerNumber,
    ) -> Seat {
        let mut due = false;
        if let Some(worker) = self.worker_mut(number) {
            due = worker.placed.is_some_and(|placed| placed.due);
            worker.lifetime += 1;
            worker.active += 1;
            let state = State::Seated { worker: number, incarnation: worker.incarnation, due };
            let session = Session { kind, key: key.clone(), state, since: now, ending: None };
            self.sessions.insert(id, session);
        }
        self.count_key(key);
        self.kinds[kind].started += 1;
        self.wear(now, number);
        self.seat_of(number, due)
    }

    /// The seat as it is now.
    pub(super) fn seat_of(&self, number: WorkerNumber, due: bool) -> Seat {
        let worker = self.worker(number).expect("a seated session's worker is kept");
        Seat {
            worker: number,
            name: worker.name.clone(),
            start: worker.start.clone(),
            url: worker.url.clone(),
            lifetime: worker.lifetime,
            active: worker.active,
            slots: worker.slots,
            due,
            standings: self.kinds[worker.kind].standings,
        }
    }

    pub(super) fn count_key(&mut self, key: &Arc<str>) {
        match self.keys.get_mut(key) {
            Some(count) => *count += 1,
            None => drop(self.keys.insert(key.clone(), 1)),
        }
    }

    pub(super) fn uncount_key(&mut self, key: &str) {
        if let Some(count) = self.keys.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.keys.remove(key);
            }
        }
    }
}
