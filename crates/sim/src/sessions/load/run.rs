//! From event to event.

use super::desk::{Desk, Effect};
use super::plain::Plain;
use super::table::Table;
use super::tally::{Outcome, Tally};
use super::traffic::{Micros, Traffic};
use super::{Arrivals, Contender, Options};
use crate::agenda::Agenda;
use std::collections::BTreeMap;

/// Between two looks after workers and gateways.
const TICK: Micros = 500_000;

enum What {
    /// A client begins a session, its next.
    Begin {
        client: u64,
        turn: u64,
    },
    End {
        ticket: u64,
    },
    Back {
        worker: usize,
    },
    Tick,
}

struct Session {
    client: u64,
    turn: u64,
    asked: Micros,
    worker: Option<usize>,
}

struct World<'a> {
    options: &'a Options,
    traffic: Traffic,
    desk: Box<dyn Desk>,
    tally: Tally,
    agenda: Agenda<Micros, What>,
    order: u64,
    opened: u64,
    sessions: BTreeMap<u64, Session>,
    effects: Vec<Effect>,
}

/// Simulates. The same options give the same outcome, to the byte.
pub fn run(options: &Options, contender: Contender) -> Outcome {
    let desk: Box<dyn Desk> = match contender {
        Contender::Table(policy) => Box::new(Table::new(options, policy)),
        _ => Box::new(Plain::new(options, contender)),
    };
    let mut world = World {
        options,
        traffic: Traffic::new(options),
        desk,
        tally: Tally::new(options, contender),
        agenda: Agenda::default(),
        order: 0,
        opened: 0,
        sessions: BTreeMap::new(),
        effects: Vec::new(),
    };
    world.add(TICK, What::Tick);
    match options.arrivals {
        Arrivals::Open(clients) => {
            for client in 0..u64::from(clients) {
                let at = world.traffic.first(client, u64::from(clients));
                world.add(at, What::Begin { client, turn: 0 });
            }
        }
        Arrivals::Load(_) => world.add(0, What::Begin { client: 0, turn: 0 }),
    }
    world.run();
    world.tally.outcome()
}

impl World<'_> {
    fn add(&mut self, at: Micros, what: What) {
        self.order += 1;
        self.agenda.add(at, self.order, what);
    }

    /// Until the last session has ended; what is measured over time ends when it is asked for.
    fn run(&mut self) {
        let mut stands = Vec::new();
        while let Some((now, what)) = self.agenda.take() {
            let coming = self.opened < self.options.sessions;
            if !coming && self.sessions.is_empty() {
                return;
            }
            if coming {
                self.tally.pass(now);
            }
            self.step(now, what);
            stands.clear();
            self.desk.look(now, &mut stands);
            self.tally.stand(&stands);
        }
    }

    fn step(&mut self, now: Micros, what: What) {
        let mut effects = std::mem::take(&mut self.effects);
        match what {
            What::Begin { client, turn } => self.begin(now, client, turn, &mut effects),
            What::End { ticket } => self.end(now, ticket, &mut effects),
            What::Back { worker } => {
                self.tally.back(now, worker);
                self.desk.back(now, worker, &mut effects);
            }
            What::Tick => {
                self.desk.tick(now, &mut effects);
                self.add(now + TICK, What::Tick);
            }
        }
        for effect in effects.drain(..) {
            self.take(now, effect);
        }
        self.effects = effects;
    }

    fn begin(&mut self, now: Micros, client: u64, turn: u64, effects: &mut Vec<Effect>) {
        if self.opened == self.options.sessions {
            return;
        }
        self.opened += 1;
        let ticket = self.opened;
        self.sessions.insert(ticket, Session { client, turn, asked: now, worker: None });
        self.desk.open(now, ticket, effects);
        if let Arrivals::Load(_) = self.options.arrivals {
            let at = now + self.traffic.gap();
            self.add(at, What::Begin { client, turn: turn + 1 });
        }
    }

    fn end(&mut self, now: Micros, ticket: u64, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.remove(&ticket) else { return };
        if let Some(worker) = session.worker {
            self.tally.ended(worker);
        }
        self.desk.close(now, ticket, effects);
        if let Arrivals::Open(_) = self.options.arrivals {
            self.add(now, What::Begin { client: session.client, turn: session.turn + 1 });
        }
    }

    fn take(&mut self, now: Micros, effect: Effect) {
        match effect {
            Effect::Seated { ticket, worker } => {
                let Some(session) = self.sessions.get_mut(&ticket) else { return };
                session.worker = Some(worker);
                let waited = (now > session.asked).then_some(now - session.asked);
                let length = self.traffic.length(session.client, session.turn);
                self.tally.seated(now, worker, waited);
                self.add(now + length, What::End { ticket });
            }
            Effect::Restart { worker } => {
                self.tally.restarts(now, worker);
                let away = u64::try_from(self.options.restart_time.as_micros()).unwrap_or(u64::MAX);
                self.add(now + away, What::Back { worker });
            }
            Effect::Cut { ticket } => {
                self.tally.cut += 1;
                self.add(now, What::End { ticket });
            }
        }
    }
}
