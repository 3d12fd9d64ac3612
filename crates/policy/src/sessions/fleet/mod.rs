//! The table of sessions: who works, who is worn out, who waits.
//!
//! Every question is one step: it changes the facts it is about, puts the workers concerned where
//! they now belong ([`settle`]), and [`Fleet::finish`] does what follows from that: sessions that
//! wait get what became free, then whoever is due and idle gets a permit to restart.

mod gateways;
mod invariants;
mod line;
mod look;
mod records;
mod recycle;
mod settle;
#[cfg(test)]
mod tests;
mod workers;

use super::{Answer, Ask, Checkout, Close, GatewayId, Hint, Refusal, Seat, Ticket, WorkerNumber};
use gateways::Gateway;
use records::{Kind, Session, State, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An answer, and whom else the step concerns.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// For who asked.
    pub answer: Answer,
    /// For others, in order, each once.
    pub hints: Vec<Hint>,
}

/// The table of sessions.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    kinds: Vec<Kind>,
    kind_names: BTreeMap<String, usize>,
    /// By number, which starts at one.
    workers: Vec<Option<Worker>>,
    worker_names: BTreeMap<Arc<str>, WorkerNumber>,
    free_numbers: BTreeSet<WorkerNumber>,
    gateways: BTreeMap<GatewayId, Gateway>,
    sessions: BTreeMap<(GatewayId, Ticket), Session>,
    /// Sessions of each key, seated and waiting.
    keys: BTreeMap<Arc<str>, u32>,
    /// When each worker must be looked after.
    timers: BTreeSet<(u64, WorkerNumber)>,
    incarnations: u64,
    /// Kinds in which something changed in this step.
    touched: Vec<usize>,
    hints: Vec<Hint>,
}

impl Fleet {
    /// A table that knows nobody.
    pub fn new() -> Self {
        Fleet::default()
    }

    /// Takes one step. `now_ms` is the table's own clock and never goes back.
    pub fn apply(&mut self, now_ms: u64, ask: &Ask) -> Reply {
        let answer = self.answer(now_ms, ask);
        self.finish(now_ms);
        let mut hints = std::mem::take(&mut self.hints);
        hints.sort_unstable();
        hints.dedup();
        Reply { answer, hints }
    }

    fn answer(&mut self, now: u64, ask: &Ask) -> Answer {
        match ask {
            Ask::Configure { kind, rules } => self.configure(kind, rules),
            Ask::Join { gateway, link, node, ttl_ms, carried, waiting } => {
                self.join(now, *gateway, *link, (node, *ttl_ms), carried, waiting)
            }
            Ask::Beat { gateway, link } => self.beat(now, *gateway, *link),
            Ask::Leave { gateway, link } => self.leave(now, *gateway, *link),
            Ask::Checkout(checkout) => self.checkout(now, checkout),
            Ask::Close { gateway, link, ticket, how } => match self.known(*gateway, *link) {
                Err(answer) => answer,
                Ok(()) => self.close(now, (*gateway, *ticket), *how),
            },
            Ask::Probed { worker, incarnation, good } => {
                self.probed(now, *worker, *incarnation, *good)
            }
            Ask::Register(register) => self.register(now, register),
            Ask::Heartbeat(heartbeat) => self.heartbeat(now, heartbeat),
            Ask::Remove { name, by_worker } => self.remove(now, name, *by_worker),
            Ask::Drain { name, drained } => self.drain(name, *drained),
            Ask::End { gateway, ticket } => self.end((*gateway, *ticket)),
            Ask::Kinds => self.look_kinds(),
            Ask::Workers { from, limit } => self.look_workers(*from, *limit),
            Ask::Worker { name } => self.look_worker(name),
            Ask::Sessions { after, limit } => self.look_sessions(*after, *limit),
        }
    }

    /// Sets the rules of a kind; its workers are put where they belong under them.
    fn configure(&mut self, name: &str, rules: &super::Rules) -> Answer {
        if let Some(&kind) = self.kind_names.get(name) {
            if self.kinds[kind].rules != *rules {
                self.kinds[kind].rules = rules.clone();
                self.settle_all(kind);
                self.touched.push(kind);
            }
        } else {
            self.kind_names.insert(name.to_owned(), self.kinds.len());
            self.kinds.push(Kind::new(name, rules));
        }
        Answer::Done
    }

    fn checkout(&mut self, now: u64, ask: &Checkout) -> Answer {
        if let Err(answer) = self.known(ask.gateway, ask.link) {
            return answer;
        }
        let id = (ask.gateway, ask.ticket);
        if let Some(session) = self.sessions.get(&id) {
            let waiting = self.kinds[session.kind].line.len();
            match session.state {
                // That it is over comes with the news.
                _ if session.ending.is_some() => {
                    self.tell(ask.gateway, ask.ticket);
                    return Answer::Waiting { waiting };
                }
                State::Waiting { .. } => return Answer::Waiting { waiting },
                State::Seated { worker, incarnation, due } if self.runs(worker, incarnation) => {
                    return Answer::Seated(self.seat_of(worker, due));
                }
                // Its seat is of no use any more, and nobody has heard of it: it asks anew.
                State::Seated { .. } => {
                    self.close(now, id, Close::Unused);
                    self.finish(now);
                }
            }
        }
        let Some(&kind) = self.kind_names.get(&ask.kind) else { return Answer::Unconfigured };
        let of_key = self.keys.get(&ask.key).copied().unwrap_or(0);
        if ask.key_max != 0 && of_key >= ask.key_max {
            return Answer::Refused(Refusal::KeyLimit);
        }
        if let Some(worker) = self.pick(now, kind, &ask.want, ask.avoid) {
            let standings = self.kinds[kind].standings;
            let seat = self.seat(now, id, kind, &ask.key, worker);
            self.touched.push(kind);
            return Answer::Seated(Seat { standings, ..seat });
        }
        let kind_row = &self.kinds[kind];
        if kind_row.standings.live() == 0 {
            return Answer::Refused(Refusal::NoWorkers);
        }
        if !kind_row.shapes.iter().any(|row| row.live > 0 && ask.want.fits(&row.shape)) {
            return Answer::Refused(kind_row.no_match());
        }
        // The line knows nothing of who is to be avoided.
        if !ask.wait || ask.avoid.is_some() {
            return Answer::Refused(Refusal::Busy);
        }
        if kind_row.line.len() >= kind_row.rules.waiting_max {
            return Answer::Refused(Refusal::LineFull);
        }
        let waiting = self.wait(now, id, kind, &ask.key, &ask.want);
        Answer::Waiting { waiting }
    }

    /// What follows from this step: the window moves with the number of workers, those who wait
    /// get what is free, then those who are idle and due may go.
    fn finish(&mut self, now: u64) {
        while let Some(kind) = self.touched.pop() {
            self.rewindow(kind);
            self.serve_line(now, kind);
            self.grant_permits(now, kind);
        }
    }
}
