//! Gateways, workers and operators that mostly do what they should, and now and then what they
//! must not.

use skep_policy::sessions::{
    Answer, Ask, Budget, Carried, Checkout, Close, DueBy, Fleet, Heartbeat, Order, PAGE_ROWS,
    Phase, Policy, Register, Rules, SessionRow, Shape, Standing, Version, Want, WorkerRow,
};
use skep_policy::{Chance, SeededChance};
use std::collections::{BTreeMap, BTreeSet};

const KINDS: [&str; 3] = ["chromium", "firefox 'ü'", "k|\"\\2"];
const GATEWAYS: u64 = 4;
const WORKERS: u64 = 9;
const LABELS: [&str; 3] = ["eu", "gpu", "größe=\"L\""];

/// What happens next.
pub enum Next {
    Ask(Ask),
    /// The store forgets everything.
    Lose,
}

/// Everybody around a table.
pub struct Crowd {
    chance: SeededChance,
    /// The time that everything happens at.
    pub now: u64,
    tickets: u64,
    links: [u64; GATEWAYS as usize],
    /// How often each worker's program was started.
    starts: [u64; WORKERS as usize],
    /// What gateways carried when the store forgot everything; they say it when they join.
    remembered: Vec<(u64, Carried)>,
    /// What each worker was last told, by name: incarnation, order, sessions in its life.
    told: BTreeMap<String, (u64, Order, u32)>,
    /// Kinds that were never configured since the beginning or the last loss.
    unconfigured: Vec<&'static str>,
    /// Gateways that have not joined since.
    outside: Vec<u64>,
    /// Asked last; asked again now and then, as if the answer had been lost.
    last: Option<Ask>,
    /// Workers of this world, fewer than there could be.
    workers: u64,
    /// Steps for which nearly everybody begins, ends and waits for sessions and does little else.
    rush: u64,
}

impl Crowd {
    pub fn new(seed: u64) -> Self {
        let mut crowd = Crowd {
            chance: SeededChance::new(seed),
            now: 1_700_000_000_000,
            tickets: 0,
            links: [0; GATEWAYS as usize],
            starts: [0; WORKERS as usize],
            remembered: Vec::new(),
            told: BTreeMap::new(),
            unconfigured: Vec::new(),
            outside: Vec::new(),
            last: None,
            workers: WORKERS,
            rush: 0,
        };
        crowd.begin();
        crowd
    }

    fn begin(&mut self) {
        self.unconfigured = KINDS.to_vec();
        self.outside = (1..=GATEWAYS).collect();
        self.workers = 1 + self.up_to(WORKERS - 1);
    }

    /// A number from zero to this one.
    pub fn up_to(&mut self, most: u64) -> u64 {
        self.chance.up_to(most)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.up_to(many - 1) == 0
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        let last = u64::try_from(list.len() - 1).expect("small");
        list[usize::try_from(self.up_to(last)).expect("small")].clone()
    }

    /// What happens next around this table, which is only looked at.
    pub fn next(&mut self, table: &mut Fleet) -> Next {
        match self.up_to(999) {
            0..500 => {}
            500..950 => self.now += self.up_to(300),
            950..996 => self.now += self.up_to(6_000),
            996..999 => self.now += self.up_to(70_000),
            _ => self.now += 700_000,
        }
        if self.one_in(1_000) {
            self.remember(table);
            self.begin();
            return Next::Lose;
        }
        let again = self.one_in(25);
        let ask = match self.last.take() {
            Some(last) if again => last,
            _ => self.ask(table),
        };
        self.last = Some(ask.clone());
        Next::Ask(ask)
    }

    /// Takes note of what whoever asked was told.
    pub fn learn(&mut self, ask: &Ask, answer: &Answer) {
        match (ask, answer) {
            (Ask::Configure { kind, .. }, Answer::Done) => {
                self.unconfigured.retain(|known| known != kind);
            }
            (Ask::Join { gateway, .. }, Answer::Joined { unplaced }) => {
                self.outside.retain(|one| one != gateway);
                let placed =
                    |(of, one): &(u64, Carried)| of == gateway && !unplaced.contains(&one.ticket);
                self.remembered.retain(|one| !placed(one));
            }
            (Ask::Register(register), Answer::Registered { incarnation, .. }) => {
                let name = register.name.to_string();
                self.told.insert(name, (*incarnation, Order::Serve, register.lifetime));
            }
            (Ask::Heartbeat(heartbeat), Answer::Ordered { order, lifetime, .. }) => {
                let told = (heartbeat.incarnation, *order, *lifetime);
                self.told.insert(heartbeat.name.clone(), told);
            }
            (Ask::Heartbeat(heartbeat), Answer::Unknown) => {
                self.told.remove(&heartbeat.name);
            }
            (Ask::Leave { gateway, .. } | Ask::Beat { gateway, .. }, answer)
                if !matches!(answer, Answer::Beaten { .. } | Answer::Replaced)
                    && !self.outside.contains(gateway) =>
            {
                self.outside.push(*gateway);
            }
            _ => {}
        }
    }

    fn ask(&mut self, table: &mut Fleet) -> Ask {
        if !self.unconfigured.is_empty() && self.one_in(2) {
            let kind = self.pick(&self.unconfigured.clone());
            return Ask::Configure { kind: kind.to_owned(), rules: self.rules() };
        }
        if !self.outside.is_empty() && self.one_in(3) {
            let gateway = self.pick(&self.outside.clone());
            return self.join(table, gateway);
        }
        let gateway = 1 + self.up_to(GATEWAYS - 1);
        let link = self.link(gateway);
        self.rush = self.rush.saturating_sub(1);
        if self.rush == 0 && self.one_in(200) {
            self.rush = 150;
        }
        if self.rush > 0 && !self.one_in(4) {
            return self.hurry(table, gateway, link);
        }
        match self.up_to(999) {
            0..280 => self.checkout(gateway, link),
            280..520 => match self.session(table) {
                Some(row) => self.close(&row),
                None => self.checkout(gateway, link),
            },
            520..640 => Ask::Beat { gateway, link },
            640..648 => self.join(table, gateway),
            648..651 => Ask::Leave { gateway, link },
            651..740 => self.register(),
            740..900 => self.heartbeat(),
            900..906 => {
                let (name, by_worker) = (self.worker_name(), self.one_in(2));
                Ask::Remove { name, by_worker }
            }
            906..925 => {
                let (name, drained) = (self.worker_name(), self.one_in(3));
                Ask::Drain { name, drained }
            }
            925..940 => match self.session(table) {
                Some(SessionRow { gateway, ticket, .. }) => Ask::End { gateway, ticket },
                None => Ask::End { gateway, ticket: 0 },
            },
            940..982 => self.probed(table),
            982..990 => Ask::Worker { name: self.worker_name() },
            _ => {
                let kind = self.kind();
                Ask::Configure { kind, rules: self.rules() }
            }
        }
    }

    /// More sessions than there is room for, and workers that do what they should.
    fn hurry(&mut self, table: &mut Fleet, gateway: u64, link: u64) -> Ask {
        let seated: Vec<SessionRow> =
            sessions(table).into_iter().filter(|row| row.worker.is_some()).collect();
        let not_well: Vec<WorkerRow> =
            workers(table).into_iter().filter(|row| row.standing > Standing::Held).collect();
        match self.up_to(9) {
            0..4 => match self.checkout(gateway, link) {
                Ask::Checkout(ask) => {
                    let want = if self.one_in(3) { ask.want } else { Want::default() };
                    let kind = KINDS[0].to_owned();
                    Ask::Checkout(Checkout { kind, want, key_max: 0, wait: true, ..ask })
                }
                other => other,
            },
            4..7 if !seated.is_empty() => {
                let row = self.pick(&seated);
                self.close(&row)
            }
            7 | 8 if !not_well.is_empty() => {
                let row = self.pick(&not_well);
                let (worker, incarnation, good) = (row.number, row.incarnation, true);
                match row.standing {
                    Standing::Suspect => Ask::Probed { worker, incarnation, good },
                    Standing::Drained => Ask::Drain { name: row.name.to_string(), drained: false },
                    _ => self.heartbeat_of(row.name.to_string()),
                }
            }
            _ => Ask::Beat { gateway, link },
        }
    }

    /// A gateway's link, mostly the present one.
    fn link(&mut self, gateway: u64) -> u64 {
        let link = self.links[index(gateway)];
        match self.up_to(60) {
            0 => link.saturating_sub(1),
            1 => link + 1,
            _ => link,
        }
    }

    fn checkout(&mut self, gateway: u64, link: u64) -> Ask {
        self.tickets += 1;
        let ticket = if self.one_in(40) { self.up_to(self.tickets) } else { self.tickets };
        let labels = self.labels(8);
        let version = if self.one_in(5) { self.version() } else { None };
        let key = self.pick(&["", "ant", "bee", "Ämse \"|\\"]);
        Ask::Checkout(Checkout {
            gateway,
            link,
            ticket,
            kind: self.kind(),
            want: Want { labels, version },
            key: key.into(),
            key_max: if self.one_in(5) { u32::try_from(self.up_to(6)).expect("small") } else { 0 },
            avoid: self.one_in(10).then(|| 1 + self.up_to(WORKERS)),
            wait: !self.one_in(4),
        })
    }

    fn close(&mut self, row: &SessionRow) -> Ask {
        let how = match self.up_to(14) {
            0 => Close::Unused,
            1 | 2 => Close::Failed,
            _ => Close::Ended,
        };
        let (gateway, link) = (row.gateway, self.link(row.gateway));
        Ask::Close { gateway, link, ticket: row.ticket, how }
    }

    /// A gateway says what it carries: what the table knows, what the table forgot, or less.
    fn join(&mut self, table: &mut Fleet, gateway: u64) -> Ask {
        if !self.one_in(10) {
            self.links[index(gateway)] += 1;
        }
        let (mut carried, mut waiting) = (Vec::new(), Vec::new());
        let workers = workers(table);
        for row in sessions(table).into_iter().filter(|row| row.gateway == gateway) {
            if self.one_in(6) {
                continue;
            }
            // One that was seated has perhaps not heard of it, and one that waits may lie.
            let lies = self.one_in(8);
            match row.worker.filter(|_| !lies) {
                Some((number, worker)) => {
                    let found = workers.iter().find(|one| one.number == number);
                    let start = found.map_or_else(|| "".into(), |one| one.start.clone());
                    carried.push(Carried { ticket: row.ticket, key: row.key, worker, start });
                }
                None if self.one_in(10) => carried.push(Carried {
                    ticket: row.ticket,
                    key: row.key,
                    worker: self.worker_name().into(),
                    start: "1".into(),
                }),
                None => waiting.push(row.ticket),
            }
        }
        let forgotten = self.remembered.iter().filter(|(of, _)| *of == gateway);
        carried.extend(forgotten.map(|(_, one)| one.clone()));
        let node = self.pick(&["node-1", "Knoten \"ö\""]).to_owned();
        let ttl_ms = self.pick(&[5_000, 15_000, 15_000, 40_000]);
        let link = self.links[index(gateway)].saturating_sub(u64::from(self.one_in(12)));
        Ask::Join { gateway, link, node, ttl_ms, carried, waiting }
    }

    fn register(&mut self) -> Ask {
        let worker = self.up_to(self.workers - 1);
        self.register_of(worker)
    }

    fn register_of(&mut self, worker: u64) -> Ask {
        let name = name_of(worker);
        let ordered = self.told.get(&name).map(|&(_, order, _)| order);
        let obeys = matches!(ordered, Some(Order::Restart | Order::Succeed));
        if obeys || self.one_in(6) {
            self.starts[index(worker + 1)] += 1;
        }
        let start = self.starts[index(worker + 1)];
        let start = if self.one_in(40) { start.saturating_sub(1) } else { start };
        // Shapes and kinds are a worker's own, and change now and then.
        let turn = if self.one_in(12) { self.up_to(20) } else { worker };
        let kind = KINDS[index(1 + if turn % 5 == 4 { 1 + turn % 2 } else { 0 })];
        let version = [None, Version::parse("1.62"), Version::parse("1.65")][index(1 + turn % 3)];
        let labels = if turn % 2 == 0 { BTreeSet::new() } else { self.labels(2) };
        let lifetime = if self.one_in(5) { self.up_to(12) } else { 0 };
        let slots = self.up_to(5);
        Ask::Register(Register {
            name: name.into(),
            kind: if self.one_in(50) { "unheard-of".to_owned() } else { kind.to_owned() },
            url: format!("ws://10.0.0.{worker}:3000/\"ü\"").into(),
            slots: self.one_in(3).then(|| u32::try_from(slots).expect("small")),
            shape: Shape { labels, version },
            start: start.to_string().into(),
            lifetime: u32::try_from(lifetime).expect("small"),
            recycled: obeys || self.one_in(3),
            successor: worker % 4 == 3,
        })
    }

    fn heartbeat(&mut self) -> Ask {
        let name = self.worker_name();
        self.heartbeat_of(name)
    }

    fn heartbeat_of(&mut self, name: String) -> Ask {
        let worker = (0..WORKERS).find(|&worker| name_of(worker) == name);
        let Some(&(incarnation, order, lifetime)) = self.told.get(&name) else {
            return match worker {
                Some(worker) => self.register_of(worker),
                None => self.register(),
            };
        };
        if let (Order::Restart | Order::Succeed, Some(worker)) = (order, worker)
            && self.one_in(2)
        {
            return self.register_of(worker);
        }
        if order == Order::Leave && self.one_in(2) {
            return Ask::Remove { name, by_worker: true };
        }
        let phase = match self.up_to(20) {
            0 => Phase::Down,
            1 => Phase::Restarting,
            _ if order == Order::Restart => Phase::Restarting,
            _ => Phase::Serving,
        };
        let due = match self.up_to(25) {
            0 => Some(DueBy::Memory),
            1 => Some(DueBy::Age),
            _ => None,
        };
        let incarnation = match self.up_to(50) {
            0 => incarnation.saturating_sub(1),
            1 => incarnation + 1,
            _ => incarnation,
        };
        let old_gone = if order == Order::StopOld { self.one_in(2) } else { self.one_in(20) };
        Ask::Heartbeat(Heartbeat { name, incarnation, phase, due, lifetime, old_gone })
    }

    fn probed(&mut self, table: &mut Fleet) -> Ask {
        let rows = workers(table);
        let suspects: Vec<WorkerRow> =
            rows.iter().filter(|row| row.standing.name() == "suspect").cloned().collect();
        let good = !self.one_in(3);
        let from = if suspects.is_empty() { rows } else { suspects };
        if from.is_empty() || self.one_in(20) {
            let (worker, incarnation) = (self.up_to(WORKERS), self.up_to(20));
            return Ask::Probed { worker, incarnation, good };
        }
        let WorkerRow { number: worker, incarnation, .. } = self.pick(&from);
        Ask::Probed { worker, incarnation, good }
    }

    /// Keeps what the gateways carry, because the store will not know it any more.
    fn remember(&mut self, table: &mut Fleet) {
        self.remembered.clear();
        let workers = workers(table);
        for row in sessions(table) {
            let Some((number, worker)) = row.worker else { continue };
            let Some(found) = workers.iter().find(|one| one.number == number) else { continue };
            let start = found.start.clone();
            let one = Carried { ticket: row.ticket, key: row.key, worker, start };
            self.remembered.push((row.gateway, one));
        }
    }

    fn session(&mut self, table: &mut Fleet) -> Option<SessionRow> {
        let rows = sessions(table);
        (!rows.is_empty()).then(|| self.pick(&rows))
    }

    fn worker_name(&mut self) -> String {
        if self.one_in(60) {
            return "nobody".to_owned();
        }
        name_of(self.up_to(self.workers - 1))
    }

    fn kind(&mut self) -> String {
        match self.up_to(99) {
            0 => "unheard-of".to_owned(),
            1..84 => KINDS[0].to_owned(),
            84..92 => KINDS[1].to_owned(),
            _ => KINDS[2].to_owned(),
        }
    }

    /// Few labels: each is there once in `many` times.
    fn labels(&mut self, many: u64) -> BTreeSet<String> {
        let given = LABELS.iter().filter(|_| self.chance.up_to(many - 1) == 0);
        given.map(|&label| label.to_owned()).collect()
    }

    fn version(&mut self) -> Option<Version> {
        Version::parse(self.pick(&["1.62", "1.65", "2.0"]))
    }

    fn rules(&mut self) -> Rules {
        let count = u32::try_from(1 + self.up_to(2)).expect("small");
        let lifetime = u32::try_from(1 + self.up_to(14)).expect("small");
        Rules {
            policy: self.pick(&[
                Policy::Budgeted,
                Policy::Budgeted,
                Policy::LifetimeFirst,
                Policy::LeastLoaded,
            ]),
            slots: u32::try_from(1 + self.up_to(3)).expect("small"),
            lifetime_max: self.pick(&[0, lifetime, lifetime, lifetime, 50, 1_000_000_000]),
            budget: self.pick(&[Budget::Count(count), Budget::Percent(25), Budget::Percent(100)]),
            heartbeat_ms: self.pick(&[60_000, 20_000]),
            drain_max_ms: self.pick(&[20_000, 3_000, 500]),
            restart_max_ms: self.pick(&[30_000, 4_000]),
            waiting_max: u32::try_from(self.up_to(20)).expect("small"),
        }
    }
}

fn name_of(worker: u64) -> String {
    if worker == 2 { "wörker \"2|\"".to_owned() } else { format!("w{worker}") }
}

/// Where the one with this number is in a list; numbers begin with one.
fn index(number: u64) -> usize {
    usize::try_from(number - 1).expect("small")
}

pub fn workers(table: &mut Fleet) -> Vec<WorkerRow> {
    match table.apply(0, &Ask::Workers { from: 1, limit: PAGE_ROWS }).answer {
        Answer::Workers { workers } => workers,
        other => panic!("{other:?}"),
    }
}

pub fn sessions(table: &mut Fleet) -> Vec<SessionRow> {
    match table.apply(0, &Ask::Sessions { after: None, limit: PAGE_ROWS }).answer {
        Answer::Sessions { sessions } => sessions,
        other => panic!("{other:?}"),
    }
}
