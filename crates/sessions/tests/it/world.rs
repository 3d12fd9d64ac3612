//! A table of some store with a clock that a test moves, and what is said to it in a word.

use crate::common::Fixture;
use skep_policy::sessions::{
    Answer, Ask, Carried, Checkout, Close, Heartbeat, Hint, KindRow, News, Order, Phase, Register,
    Rules, Seat, SessionRow, Shape, Ticket, Want, WorkerRow,
};

pub const KIND: &str = "chromium";
pub const TTL_MS: u64 = 15_000;

/// A table with the rules of one kind.
pub struct World {
    pub fixture: Fixture,
    pub now: u64,
    /// Whom the last step concerned.
    pub hints: Vec<Hint>,
}

impl World {
    pub async fn new(fixture: Fixture, rules: Rules) -> Self {
        let mut world = World { fixture, now: 1_700_000_000_000, hints: Vec::new() };
        world.configure(rules).await;
        world
    }

    /// One in each store.
    pub async fn all(rules: Rules) -> Vec<Self> {
        let mut worlds = Vec::new();
        for fixture in Fixture::all().await {
            worlds.push(World::new(fixture, rules.clone()).await);
        }
        worlds
    }

    pub fn store(&self) -> &'static str {
        self.fixture.store.name()
    }

    pub async fn ask(&mut self, ask: Ask) -> Answer {
        let reply = self.fixture.store.step(&ask, Some(self.now)).await;
        let reply = reply.unwrap_or_else(|error| panic!("{}: {error}", self.store()));
        self.hints = reply.hints;
        reply.answer
    }

    pub async fn configure(&mut self, rules: Rules) {
        self.ask(Ask::Configure { kind: KIND.to_owned(), rules }).await;
    }

    pub async fn join(&mut self, gateway: u64, link: u64, carried: Vec<Carried>) -> Answer {
        let (node, waiting) = (format!("node-{gateway}"), Vec::new());
        self.ask(Ask::Join { gateway, link, node, ttl_ms: TTL_MS, carried, waiting }).await
    }

    pub async fn register(&mut self, register: Register) -> u64 {
        match self.ask(Ask::Register(register)).await {
            Answer::Registered { incarnation, .. } => incarnation,
            other => panic!("{}: {other:?}", self.store()),
        }
    }

    pub async fn workers(&mut self, names: &[&str]) {
        for name in names {
            self.register(worker(name)).await;
        }
    }

    pub async fn worker(&mut self, name: &str) -> WorkerRow {
        match self.ask(Ask::Worker { name: name.to_owned() }).await {
            Answer::Workers { mut workers } => workers.remove(0),
            other => panic!("{}: {name}: {other:?}", self.store()),
        }
    }

    pub async fn kind(&mut self) -> KindRow {
        match self.ask(Ask::Kinds).await {
            Answer::Kinds { mut kinds } => kinds.remove(0),
            other => panic!("{}: {other:?}", self.store()),
        }
    }

    pub async fn sessions(&mut self, after: Option<(u64, u64)>, limit: usize) -> Vec<SessionRow> {
        match self.ask(Ask::Sessions { after, limit }).await {
            Answer::Sessions { sessions } => sessions,
            other => panic!("{}: {other:?}", self.store()),
        }
    }

    pub async fn checkout(&mut self, gateway: u64, ticket: Ticket, key: &str) -> Answer {
        self.ask(Ask::Checkout(Checkout { key: key.into(), ..checkout(gateway, ticket) })).await
    }

    /// A session that gets its worker at once.
    pub async fn begin(&mut self, gateway: u64, ticket: Ticket) -> Seat {
        match self.checkout(gateway, ticket, "").await {
            Answer::Seated(seat) => seat,
            other => panic!("{}: {other:?}", self.store()),
        }
    }

    pub async fn close(&mut self, gateway: u64, ticket: Ticket) {
        let how = Close::Ended;
        let answer = self.ask(Ask::Close { gateway, link: 1, ticket, how }).await;
        assert_eq!(answer, Answer::Done, "{}", self.store());
    }

    pub async fn beat(&mut self, gateway: u64) -> Vec<News> {
        match self.ask(Ask::Beat { gateway, link: 1 }).await {
            Answer::Beaten { news, .. } => news,
            other => panic!("{}: {other:?}", self.store()),
        }
    }

    pub async fn heartbeat(&mut self, name: &str, phase: Phase) -> Order {
        let incarnation = self.worker(name).await.incarnation;
        let (name, due, lifetime, old_gone) = (name.to_owned(), None, 0, false);
        let heartbeat = Heartbeat { name, incarnation, phase, due, lifetime, old_gone };
        match self.ask(Ask::Heartbeat(heartbeat)).await {
            Answer::Ordered { order, .. } => order,
            other => panic!("{}: {other:?}", self.store()),
        }
    }
}

pub fn worker(name: &str) -> Register {
    Register {
        name: name.into(),
        kind: KIND.to_owned(),
        url: format!("ws://{name}:3000/").into(),
        slots: None,
        shape: Shape::default(),
        start: format!("{name}-1").into(),
        lifetime: 0,
        recycled: true,
        successor: false,
    }
}

pub fn checkout(gateway: u64, ticket: Ticket) -> Checkout {
    Checkout {
        gateway,
        link: 1,
        ticket,
        kind: KIND.to_owned(),
        want: Want::default(),
        key: "".into(),
        key_max: 0,
        avoid: None,
        wait: true,
    }
}

pub fn carried(ticket: Ticket, worker: &str) -> Carried {
    let start = format!("{worker}-1").into();
    Carried { ticket, key: "".into(), worker: worker.into(), start }
}
