//! The table, the network, and the order of events.

use super::faults;
use super::gateway::{Gateway, State};
use super::mutation::Mutation;
use super::plan::{BEAT_MS, Plan};
use super::table::answer_has;
use super::truth::{Granted, Program};
use super::worker::Worker;
use crate::agenda::Agenda;
use skep_policy::sessions::{Answer, Ask, Fleet, GatewayId, Probe, Ticket, WorkerNumber};
use skep_policy::{Chance, SeededChance};
use std::collections::{BTreeMap, VecDeque};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Gateway { slot: usize, gateway: GatewayId, link: u64, request: u64 },
    Worker { worker: usize, turn: u64 },
    Operator,
}

/// A question on its way.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub from: Sender,
    pub ask: Ask,
    pub connection: u64,
    /// It comes long after its sender gave up on it.
    pub late: bool,
}

/// What happens.
pub(super) enum What {
    Arrive(Box<Envelope>),
    /// The answer gets lost after the question was taken.
    ArriveUnheard(Box<Envelope>),
    Answer {
        slot: usize,
        gateway: GatewayId,
        link: u64,
        request: u64,
        era: u64,
        answer: Answer,
    },
    Unanswered {
        slot: usize,
        gateway: GatewayId,
        link: u64,
        request: u64,
    },
    Impatient {
        slot: usize,
        gateway: GatewayId,
        request: u64,
    },
    Tell {
        worker: usize,
        turn: u64,
        table: u64,
        at: u64,
        answer: Answer,
    },
    Beat {
        slot: usize,
        gateway: GatewayId,
    },
    HintGateway {
        slot: usize,
        gateway: GatewayId,
    },
    SayAgain {
        slot: usize,
        gateway: GatewayId,
        link: u64,
    },
    Session,
    Dialed {
        slot: usize,
        gateway: GatewayId,
        ticket: Ticket,
        worker: WorkerNumber,
    },
    Ends {
        slot: usize,
        gateway: GatewayId,
        ticket: Ticket,
    },
    Probed {
        slot: usize,
        gateway: GatewayId,
        link: u64,
        probe: Probe,
    },
    Rises {
        slot: usize,
    },
    WorkerTimer {
        worker: usize,
    },
    Hinted {
        worker: usize,
    },
    Started {
        worker: usize,
        start: u64,
    },
    Returns {
        worker: usize,
        start: u64,
    },
    Fault,
}

/// The table, and what the simulator must know of it.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub fleet: Fleet,
    /// When each gateway that is in was last heard.
    pub heard: BTreeMap<GatewayId, u64>,
}

pub(super) struct World {
    pub plan: Plan,
    pub mutation: Option<Mutation>,
    pub now: u64,
    pub chance: SeededChance,
    agenda: Agenda<u64, What>,
    order: u64,
    pub table: Table,
    pub copy: Option<Table>,
    /// How many tables there were before this one.
    pub tables: u64,
    /// Changes when all connections to the table break.
    pub connection: u64,
    pub programs: Vec<Program>,
    pub workers: Vec<Worker>,
    pub gateways: Vec<Gateway>,
    pub granted: BTreeMap<u64, Granted>,
    pub grants: u64,
    pub requests: u64,
    /// Whether things go wrong.
    pub faulty: bool,
    /// Whether sessions come.
    pub open: bool,
    /// Sessions that are carried do not end by themselves.
    pub holding: bool,
    pub events: u64,
    pub counts: BTreeMap<&'static str, u64>,
    pub broken: Option<String>,
    pub trace: u64,
    pub told: bool,
    pub story: VecDeque<String>,
}

impl World {
    pub fn new(plan: Plan, chance: SeededChance, mutation: Option<Mutation>, told: bool) -> Self {
        let mut world = World {
            mutation,
            now: 1_000_000,
            chance,
            agenda: Agenda::default(),
            order: 0,
            table: Table::default(),
            copy: None,
            tables: 0,
            connection: 0,
            programs: Vec::new(),
            workers: Vec::new(),
            gateways: Vec::new(),
            granted: BTreeMap::new(),
            grants: 0,
            requests: 0,
            faulty: plan.fault_gap.is_some(),
            open: true,
            holding: false,
            events: 0,
            counts: BTreeMap::new(),
            broken: None,
            trace: 0,
            told,
            story: VecDeque::new(),
            plan,
        };
        for slot in 0..world.plan.gateways {
            world.gateways.push(Gateway::new(0, 0));
            world.start_gateway(slot);
        }
        for worker in 0..world.plan.workers {
            let successor = world.chance.up_to(3) < world.plan.successors;
            world.workers.push(Worker::new(successor));
            world.start_program(worker, super::worker::Mode::Starting { ordered: false });
            world.later(1, What::WorkerTimer { worker });
        }
        world.later(1, What::Session);
        world.later(1, What::Fault);
        world
    }

    pub fn later(&mut self, after: u64, what: What) {
        self.order += 1;
        self.agenda.add(self.now + after, self.order, what);
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    /// One event; whether there was one.
    pub fn step(&mut self) -> bool {
        let Some((at, what)) = self.agenda.take() else { return false };
        self.now = at;
        self.events += 1;
        self.happen(what);
        self.broken.is_none()
    }

    pub fn is(&self, slot: usize, gateway: GatewayId) -> bool {
        self.gateways[slot].alive && self.gateways[slot].id == gateway
    }

    pub fn is_link(&self, slot: usize, gateway: GatewayId, link: u64) -> bool {
        self.is(slot, gateway) && self.gateways[slot].link == link
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Arrive(letter) => self.arrives(*letter, true),
            What::ArriveUnheard(letter) => self.arrives(*letter, false),
            What::Answer { slot, gateway, link, request, era, answer } => {
                self.granted.retain(|_, grant| {
                    (grant.slot, grant.gateway, grant.link) != (slot, gateway, link)
                        || !answer_has(&answer, grant.ticket)
                });
                if self.is_link(slot, gateway, link) && self.gateways[slot].cut_until <= self.now {
                    self.answered(slot, request, era, answer);
                }
            }
            What::Unanswered { slot, gateway, link, request } => {
                if self.is_link(slot, gateway, link) {
                    self.unanswered(slot, request);
                }
            }
            What::Impatient { slot, gateway, request } => {
                if self.is(slot, gateway) {
                    self.impatient(slot, request);
                }
            }
            What::Tell { worker, turn, table, at, answer } => {
                let one = &self.workers[worker];
                if one.turn == turn && one.silent_until <= self.now {
                    let revoked = one.away.revoked >= at;
                    self.heard(worker, revoked || table != self.tables, &answer);
                }
            }
            What::Beat { slot, gateway } => {
                if self.is(slot, gateway) {
                    self.beat(slot);
                    self.later(BEAT_MS, What::Beat { slot, gateway });
                }
            }
            What::HintGateway { slot, gateway } => {
                if self.is(slot, gateway) && self.gateways[slot].joined {
                    self.beat(slot);
                }
            }
            What::SayAgain { slot, gateway, link } => {
                if self.is_link(slot, gateway, link) {
                    self.rejoin(slot);
                }
            }
            What::Session => self.session_comes(),
            What::Dialed { slot, gateway, ticket, worker } => {
                if self.is(slot, gateway) {
                    self.dialed(slot, ticket, worker);
                }
            }
            What::Ends { slot, gateway, ticket } => {
                if self.is(slot, gateway) {
                    self.ends(slot, ticket);
                }
            }
            What::Probed { slot, gateway, link, probe } => {
                if self.is_link(slot, gateway, link) {
                    self.probed(slot, &probe);
                }
            }
            What::Rises { slot } => {
                if !self.gateways[slot].alive {
                    self.start_gateway(slot);
                }
            }
            What::WorkerTimer { worker } => self.worker_timer(worker),
            What::Hinted { worker } => self.speak(worker),
            What::Started { worker, start } => {
                if self.workers[worker].starts == start {
                    self.started(worker);
                }
            }
            What::Returns { worker, start } => {
                if self.workers[worker].starts == start {
                    let mode = super::worker::Mode::Starting { ordered: false };
                    self.start_program(worker, mode);
                }
            }
            What::Fault => faults::strike(self),
        }
    }

    fn session_comes(&mut self) {
        let slot = self.chance.up_to(self.gateways.len() as u64 - 1) as usize;
        let many = self.gateways[slot].sessions.len() > 15;
        if self.open && self.gateways[slot].alive && !many {
            self.arrive(slot, None);
        }
        let after = self.chance.up_to(self.plan.gap);
        self.later(after, What::Session);
    }

    /// Whether nothing is on its way that could change who carries what.
    pub fn is_quiet(&self) -> bool {
        let still = |state| matches!(state, State::Waiting | State::Carrying(_));
        self.gateways.iter().filter(|one| one.alive).all(|gateway| {
            gateway.joined
                && gateway.asked.is_empty()
                && gateway.sessions.values().all(|session| still(session.state))
        })
    }
}
