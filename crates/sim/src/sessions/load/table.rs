//! The table of sessions as a desk: one gateway that hears every hint at once, and workers that
//! obey.

use super::Options;
use super::desk::{Desk, Effect, Where};
use super::traffic::Micros;
use skep_policy::sessions::{
    Answer, Ask, Checkout, Close, Fleet, Heartbeat, Hint, News, NewsKind, Order, Phase, Policy,
    Register, Rules, Shape, Standing, Want, WorkerNumber,
};
use std::sync::Arc;

const GATEWAY: u64 = 1;
const LINK: u64 = 1;
const KIND: &str = "worker";

struct Worker {
    name: Arc<str>,
    start: u32,
    incarnation: u64,
    lifetime: u32,
    away: bool,
}

pub(super) struct Table {
    fleet: Fleet,
    workers: Vec<Worker>,
    key: Arc<str>,
}

impl Table {
    pub fn new(options: &Options, policy: Policy) -> Self {
        let restart_ms = u64::try_from(options.restart_time.as_millis()).unwrap_or(u64::MAX);
        let rules = Rules {
            policy,
            slots: options.slots,
            lifetime_max: options.lifetime,
            budget: options.budget,
            // The slowest of the sessions may end by themselves, and no restart is given up.
            drain_max_ms: 1_000_000_000,
            restart_max_ms: restart_ms.saturating_mul(2).max(120_000),
            waiting_max: u32::MAX,
            ..Rules::default()
        };
        let mut table = Table { fleet: Fleet::new(), workers: Vec::new(), key: "".into() };
        table.ask(0, &Ask::Configure { kind: KIND.to_owned(), rules });
        let (carried, waiting, node) = (Vec::new(), Vec::new(), "sim".to_owned());
        let join =
            Ask::Join { gateway: GATEWAY, link: LINK, node, ttl_ms: 15_000, carried, waiting };
        table.ask(0, &join);
        for index in 0..options.workers as usize {
            let name = format!("w{:03}", index + 1).into();
            table.workers.push(Worker { name, start: 0, incarnation: 0, lifetime: 0, away: false });
            table.register(0, index, &mut Vec::new());
        }
        table
    }

    fn ask(&mut self, now: Micros, ask: &Ask) -> (Answer, Vec<Hint>) {
        let reply = self.fleet.apply(now / 1_000, ask);
        (reply.answer, reply.hints)
    }

    /// Tells everybody concerned, until nobody has anything to add.
    fn tell(&mut self, now: Micros, hints: Vec<Hint>, effects: &mut Vec<Effect>) {
        for hint in hints {
            match hint {
                Hint::Gateway(_) => self.beat(now, effects),
                Hint::Worker(number) => self.heartbeat(now, index(number), effects),
            }
        }
    }

    fn beat(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        let (answer, hints) = self.ask(now, &Ask::Beat { gateway: GATEWAY, link: LINK });
        let Answer::Beaten { news, .. } = answer else { unreachable!("{answer:?}") };
        effects.extend(news.into_iter().map(|News { ticket, what }| match what {
            NewsKind::Seated(seat) => Effect::Seated { ticket, worker: index(seat.worker) },
            NewsKind::End(_) => Effect::Cut { ticket },
        }));
        self.tell(now, hints, effects);
    }

    fn heartbeat(&mut self, now: Micros, index: usize, effects: &mut Vec<Effect>) {
        let worker = &self.workers[index];
        let ask = Ask::Heartbeat(Heartbeat {
            name: worker.name.to_string(),
            incarnation: worker.incarnation,
            phase: if worker.away { Phase::Restarting } else { Phase::Serving },
            due: None,
            lifetime: worker.lifetime,
            old_gone: false,
        });
        let (answer, hints) = self.ask(now, &ask);
        let Answer::Ordered { order, lifetime, .. } = answer else { unreachable!("{answer:?}") };
        let worker = &mut self.workers[index];
        worker.lifetime = lifetime;
        if order == Order::Restart && !worker.away {
            worker.away = true;
            effects.push(Effect::Restart { worker: index });
        }
        self.tell(now, hints, effects);
    }

    fn register(&mut self, now: Micros, index: usize, effects: &mut Vec<Effect>) {
        let worker = &mut self.workers[index];
        let recycled = worker.start > 0;
        worker.start += 1;
        let ask = Ask::Register(Register {
            name: worker.name.clone(),
            kind: KIND.to_owned(),
            url: "ws://sim/".into(),
            slots: None,
            shape: Shape::default(),
            start: worker.start.to_string().into(),
            lifetime: 0,
            recycled,
            successor: false,
        });
        let (answer, hints) = self.ask(now, &ask);
        let Answer::Registered { incarnation, .. } = answer else { unreachable!("{answer:?}") };
        let worker = &mut self.workers[index];
        (worker.incarnation, worker.lifetime, worker.away) = (incarnation, 0, false);
        self.tell(now, hints, effects);
    }
}

/// Workers are never forgotten here, so that their numbers are their places.
fn index(number: WorkerNumber) -> usize {
    usize::try_from(number - 1).unwrap_or(usize::MAX)
}

impl Desk for Table {
    fn open(&mut self, now: Micros, ticket: u64, effects: &mut Vec<Effect>) {
        let ask = Ask::Checkout(Checkout {
            gateway: GATEWAY,
            link: LINK,
            ticket,
            kind: KIND.to_owned(),
            want: Want::default(),
            key: self.key.clone(),
            key_max: 0,
            avoid: None,
            wait: true,
        });
        let (answer, hints) = self.ask(now, &ask);
        match answer {
            Answer::Seated(seat) => {
                effects.push(Effect::Seated { ticket, worker: index(seat.worker) });
            }
            Answer::Waiting { .. } => {}
            other => unreachable!("{other:?}"),
        }
        self.tell(now, hints, effects);
    }

    fn close(&mut self, now: Micros, ticket: u64, effects: &mut Vec<Effect>) {
        let how = Close::Ended;
        let (_, hints) = self.ask(now, &Ask::Close { gateway: GATEWAY, link: LINK, ticket, how });
        self.tell(now, hints, effects);
    }

    fn back(&mut self, now: Micros, worker: usize, effects: &mut Vec<Effect>) {
        self.register(now, worker, effects);
    }

    fn tick(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        if now.is_multiple_of(10_000_000) {
            for index in 0..self.workers.len() {
                self.heartbeat(now, index, effects);
            }
        }
        self.beat(now, effects);
    }

    fn look(&mut self, now: Micros, stands: &mut Vec<Where>) {
        let mut from = 1;
        while stands.len() < self.workers.len() {
            let limit = self.workers.len() - stands.len();
            let (answer, _) = self.ask(now, &Ask::Workers { from, limit });
            let Answer::Workers { workers } = answer else { unreachable!("{answer:?}") };
            from += workers.len() as u64;
            stands.extend(workers.iter().map(|row| match row.standing {
                _ if row.permit => Where::Out,
                Standing::Held => Where::Held,
                _ => Where::Serves,
            }));
        }
    }
}
