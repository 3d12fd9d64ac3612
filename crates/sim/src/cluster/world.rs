//! The virtual cluster, and everything that happens in it.

use super::node::{Beat, Node, time};
use super::route::{number_of, route};
use super::tally::{Outcome, Tally};
use super::traffic::{Coming, Fault, Micros, SECOND, Traffic, faults};
use super::{Contender, Options, Scenario};
use crate::agenda::Agenda;
use skep_policy::cluster::{self, Failure, Kind, Move};
use skep_policy::{Chance, SeededChance};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often a node looks at what it has heard.
const LOOK: Micros = SECOND / 4;
/// A heartbeat says so many moves beside what it says of its sender.
const TOLD: usize = 20;
/// The node that things happen to.
const VICTIM: usize = 1;
/// A slow node takes so many times as long.
const SLOW: f64 = 3.0;
/// What a heartbeat takes at most where nothing is wrong with the network.
const DELAY: Micros = 2_000;
const LOSSY_DELAY: Micros = 3 * SECOND;
const LOSSY_PERCENT: u64 = 30;
/// How many seconds at the end count for what is measured of single requests.
const MEASURED: usize = 20;

enum Event {
    Arrive,
    Computed(Request),
    Ended(Request, bool),
    Beat(usize),
    Look(usize),
    Hear { to: usize, from: usize, beat: Beat, told: Arc<Vec<Move>> },
    Second,
    Fault(Fault),
}

#[derive(Clone, Copy)]
struct Request {
    coming: Coming,
    began: Micros,
    /// The node it came to, and which of its lives.
    from: (usize, u32),
    /// The node that serves it, and which of its lives.
    at: (usize, u32),
}

pub(super) struct World {
    options: Options,
    policy: cluster::Options,
    contender: Contender,
    now: Micros,
    order: u64,
    agenda: Agenda<Micros, Event>,
    traffic: Traffic,
    /// Of the network.
    weather: SeededChance,
    /// Of the contender.
    chance: SeededChance,
    nodes: Vec<Node>,
    turn: usize,
    tally: Tally,
    /// For each key that was moved, the node it left last.
    left: BTreeMap<usize, u64>,
}

impl World {
    pub fn new(options: &Options, contender: Contender) -> Self {
        let policy = cluster::Options::default();
        let nodes = options.nodes.clamp(1, 64);
        let options = Options { nodes, keys: options.keys.max(1), ..*options };
        World {
            options,
            policy,
            contender,
            now: 0,
            order: 0,
            agenda: Agenda::default(),
            traffic: Traffic::new(&options),
            weather: SeededChance::new(options.seed ^ 0xBB67_AE85_84CA_A73B),
            chance: SeededChance::new(options.seed ^ 0x3C6E_F372_FE94_F82B),
            nodes: (0..nodes).map(|index| Node::new(index, nodes, &policy)).collect(),
            turn: 0,
            tally: Tally::default(),
            left: BTreeMap::new(),
        }
    }

    pub fn run(mut self) -> Outcome {
        self.add(0, Event::Arrive);
        self.add(SECOND, Event::Second);
        for index in 0..self.nodes.len() {
            let phase = self.weather.up_to(SECOND - 1);
            self.add(phase, Event::Beat(index));
            self.add(phase % LOOK, Event::Look(index));
        }
        for (second, fault) in faults(self.options.scenario) {
            self.add(*second as Micros * SECOND, Event::Fault(*fault));
        }
        let end = self.options.seconds as Micros * SECOND;
        while let Some((at, event)) = self.agenda.take() {
            if at > end {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.tally.finish(self.options.scenario, self.contender)
    }

    fn add(&mut self, after: Micros, event: Event) {
        self.order += 1;
        self.agenda.add(self.now + after, self.order, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive => self.arrive(),
            Event::Computed(request) => self.computed(request),
            Event::Ended(request, parked) => self.ended(&request, parked),
            Event::Beat(index) => self.beat(index),
            Event::Look(index) => self.look(index),
            Event::Hear { to, from, beat, told } => self.hear(to, from, beat, &told),
            Event::Second => self.second(),
            Event::Fault(fault) => self.fault(fault),
        }
    }

    /// A request comes to the next node that is up; who cannot connect tries another.
    fn arrive(&mut self) {
        let gap = self.traffic.gap();
        self.add(gap, Event::Arrive);
        let coming = self.traffic.next();
        loop {
            self.turn = (self.turn + 1) % self.nodes.len();
            if self.nodes[self.turn].up {
                break;
            }
        }
        let from = self.turn;
        let key = self.traffic.hash(coming.key);
        let to = self.find(from, key);
        let request = Request {
            coming,
            began: self.now,
            from: (from, self.nodes[from].life),
            at: (to, self.nodes[to].life),
        };
        let here = time(self.now);
        if from != to {
            self.nodes[from].in_flight[to] += 1;
            self.nodes[from].uses.touch(key, here, false);
        }
        self.nodes[to].uses.touch(key, here, true);
        let measured = self.measured();
        self.tally.served(coming.key, to, from != to, measured);
        let computed_at = self.nodes[to].take(self.now);
        self.add(computed_at - self.now, Event::Computed(request));
        if self.contender == Contender::Skep {
            self.consider(to, coming.key, key);
        }
    }

    /// The node that serves: the one chosen, or after it could not be reached the next.
    fn find(&mut self, from: usize, key: u64) -> usize {
        let mut tried = Vec::new();
        loop {
            let node = &self.nodes[from];
            let chosen = route(self.contender, node, key, &tried, &mut self.chance);
            let member = &node.view.members()[chosen];
            let (to, hash) = (number_of(member), member.hash);
            if self.nodes[to].up {
                if to != from {
                    self.note(from, hash, Ok(()));
                }
                return to;
            }
            self.tally.total.retried += 1;
            self.note(from, hash, Err(Failure::Unreachable));
            tried.push(chosen);
        }
    }

    fn note(&mut self, from: usize, peer: u64, outcome: Result<(), Failure>) {
        let now = time(self.now);
        let node = &mut self.nodes[from];
        let change = node.circuits.note(peer, now, now, outcome, &mut self.weather);
        if change.is_some() {
            node.look(self.now, &self.policy);
        }
    }

    fn consider(&mut self, index: usize, number: usize, key: u64) {
        let now = time(self.now);
        let node = &mut self.nodes[index];
        if !node.view.is_hot() {
            return;
        }
        let share = node.uses.share(key, now);
        let moved = node.moves.consider(&node.view, key, share, now, &mut self.chance);
        let Some(moved) = moved.map(|decision| decision.chosen) else { return };
        node.overrides = Arc::new(node.moves.overrides());
        node.look(self.now, &self.policy);
        let beat = node.beat_again(self.now);
        self.tell(index, beat, vec![moved]);
        self.tally.moves += 1;
        self.tally.total.moves += 1;
        self.tally.total.breaks += u64::from(moved.kind == Kind::Break);
        let back = self.left.insert(number, moved.by) == Some(moved.node);
        self.tally.total.back += u64::from(back);
        let second = (self.now / SECOND) as usize;
        self.tally.moved.entry(number).or_default().push(second);
    }

    fn computed(&mut self, request: Request) {
        let (at, life) = request.at;
        if self.nodes[at].life != life {
            return self.lose(&request);
        }
        match request.coming.parked {
            Some(parked) => {
                self.nodes[at].park(self.now);
                self.add(parked, Event::Ended(request, true));
            }
            None => self.add(request.coming.store, Event::Ended(request, false)),
        }
    }

    fn ended(&mut self, request: &Request, parked: bool) {
        let (at, life) = request.at;
        if self.nodes[at].life != life {
            return self.lose(request);
        }
        self.nodes[at].end(self.now, parked);
        self.arrived_back(request);
        if !parked {
            let measured = self.measured();
            self.tally.ended(self.now - request.began, measured);
        }
    }

    fn lose(&mut self, request: &Request) {
        self.tally.total.lost += 1;
        self.arrived_back(request);
    }

    fn arrived_back(&mut self, request: &Request) {
        let ((from, life), to) = (request.from, request.at.0);
        if from != to && self.nodes[from].life == life {
            self.nodes[from].in_flight[to] -= 1;
        }
    }

    fn beat(&mut self, index: usize) {
        // A twentieth more or less, so that nodes do not stay in step.
        let jitter = self.weather.up_to(SECOND / 10);
        self.add(SECOND * 19 / 20 + jitter, Event::Beat(index));
        let node = &mut self.nodes[index];
        if !node.up {
            return;
        }
        let beat = node.beat(self.now, &self.policy);
        node.round += 1;
        let told = node.moves.to_tell(node.round, TOLD);
        let uses = &node.uses;
        let now = time(self.now);
        let last = |key| uses.get(key).map(|known| known.last);
        if node.moves.tend(last, now, &self.policy) {
            node.overrides = Arc::new(node.moves.overrides());
        }
        self.tell(index, beat, told);
    }

    /// Sends everybody a heartbeat, of which some get lost or are late.
    fn tell(&mut self, from: usize, beat: Beat, told: Vec<Move>) {
        let lossy = self.options.scenario == Scenario::Lossy;
        let told = Arc::new(told);
        for to in (0..self.nodes.len()).filter(|&to| to != from) {
            let lost = lossy && self.weather.up_to(99) < LOSSY_PERCENT;
            let delay = self.weather.up_to(if lossy { LOSSY_DELAY } else { DELAY });
            if !lost {
                self.add(delay, Event::Hear { to, from, beat, told: told.clone() });
            }
        }
    }

    fn hear(&mut self, to: usize, from: usize, beat: Beat, told: &[Move]) {
        let node = &mut self.nodes[to];
        if !node.up {
            return;
        }
        node.hear(from, beat);
        if node.moves.merge(told, time(self.now), &self.policy) {
            node.overrides = Arc::new(node.moves.overrides());
            node.look(self.now, &self.policy);
        }
    }

    fn look(&mut self, index: usize) {
        self.add(LOOK, Event::Look(index));
        let node = &mut self.nodes[index];
        node.circuits.pass_time(time(self.now));
        if node.up {
            node.look(self.now, &self.policy);
        }
    }

    fn second(&mut self) {
        self.add(SECOND, Event::Second);
        let now = self.now;
        let loads = self.nodes.iter_mut().map(|node| {
            let load = node.load(now);
            node.up.then_some(load)
        });
        let loads = loads.collect();
        self.tally.second(loads);
    }

    fn fault(&mut self, fault: Fault) {
        let node = &mut self.nodes[VICTIM];
        match fault {
            Fault::Heat => self.traffic.heat(),
            Fault::SlowDown => node.slow = SLOW,
            Fault::Die => {
                node.die(self.now);
                node.in_flight.fill(0);
            }
            Fault::Return => node.up = true,
        }
    }

    fn measured(&self) -> bool {
        let from = self.options.seconds.saturating_sub(MEASURED);
        self.now >= from as Micros * SECOND
    }
}
