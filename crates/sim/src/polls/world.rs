//! A world of nodes, a network, a store and a sink, and the loop that lets time pass in it.

use super::adversary::Adversary;
use super::agenda::{Agenda, Letter, Mail, Process, Trap, What};
use super::checks::Checks;
use super::node::Node;
use super::plan::{ENDPOINTS, Fault, MS, Plan, SECOND, between, once_in};
use super::store::Store;
use skep_policy::ownership::placement;
use skep_policy::ownership::{
    Effect, Event, Guards, Hint, Member, MemberOptions, Reply, Request, Status, Want,
};
use skep_policy::{Chance, SeededChance, Time};
use std::time::Duration;

/// A member that does nothing so many times in a row when it is woken asks for the wrong times.
const WAKES_MAX: u32 = 100;

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub polls: u64,
    pub moves: u64,
    pub faults: u64,
    pub events: u64,
    pub refused: u64,
    /// Schedules in which nobody was left who knew what the store had lost.
    pub forgotten: u64,
}

/// One schedule, running.
pub(crate) struct World {
    pub plan: Plan,
    pub now: u64,
    pub agenda: Agenda,
    pub chance: SeededChance,
    pub nodes: Vec<Node>,
    pub store: Store,
    pub checks: Checks,
    pub counts: Counts,
    pub adversary: Adversary,
    pub guards: Guards,
    /// Everything that happened, as one number.
    pub trace: u64,
    pub effects: Vec<Effect>,
    /// Endpoints whose pollers had nothing to finish when they were told to stop.
    pub idle: Vec<usize>,
}

impl World {
    pub fn new(plan: Plan, guards: Guards, mut chance: SeededChance) -> Self {
        let offset = |chance: &mut SeededChance| chance.up_to(1_000_000 * SECOND);
        let nodes = plan.rates.iter().map(|rate| Node::new(*rate, offset(&mut chance))).collect();
        let mut world = World {
            checks: Checks::new(&plan, guards),
            store: Store::new(guards, chance.bits()),
            adversary: Adversary::new(&plan),
            now: 0,
            agenda: Agenda::default(),
            nodes,
            counts: Counts::default(),
            guards,
            trace: 0,
            effects: Vec::new(),
            idle: Vec::new(),
            plan,
            chance,
        };
        for node in 0..world.nodes.len() {
            let at = world.chance.up_to(2 * SECOND);
            world.agenda.add(at, What::Start(node as u8));
        }
        for (index, (at, _)) in world.plan.faults.iter().enumerate() {
            world.agenda.add(*at, What::Fault(index as u32));
        }
        world
    }

    /// Lets time pass to the end, or until something does not hold.
    pub fn run(&mut self) {
        while let Some((at, what)) = self.agenda.take() {
            if at > self.plan.end {
                break;
            }
            self.now = at;
            self.counts.events += 1;
            self.happen(what);
            if self.checks.broken.is_some() {
                return;
            }
        }
        self.now = self.plan.end;
        self.judge_the_end();
    }

    fn judge_the_end(&mut self) {
        // With the time of day tokens grow all the same; without it nothing could be expected.
        if self.guards != Guards::default() && self.store.forgotten && self.is_outranked() {
            // Tokens began anew and the sink goes by the old ones: nothing can be said.
            self.counts.forgotten += 1;
            return;
        }
        for endpoint in 0..ENDPOINTS {
            self.checks.check_gap(&self.plan, self.now, endpoint);
        }
        let (count, options) = (self.nodes.len() as u64, placement::Options::default());
        let bounds = placement::Bounds::new(ENDPOINTS as u64, 1, count, &options);
        for (index, node) in self.nodes.iter().enumerate() {
            let online = |member: &&Member| member.status() == Status::Online;
            let load = node.member.as_ref().filter(online).map_or(0, Member::held_count);
            if !(bounds.floor..=bounds.cap).contains(&(load as u64)) {
                self.checks.uneven(self.now, index, load, (bounds.floor, bounds.cap));
            }
        }
    }

    /// Whether the sink knows a newer token of some endpoint than whoever owns it has.
    fn is_outranked(&self) -> bool {
        let members = self.nodes.iter().filter_map(|node| node.member.as_ref());
        let mut held = members.flat_map(Member::held);
        held.any(|(key, token)| {
            let endpoint = self.plan.keys.iter().position(|one| one == key);
            endpoint.is_some_and(|endpoint| token < self.checks.newest(endpoint))
        })
    }

    fn remember(&mut self, kind: u64, who: u64) {
        let mixed = self.trace ^ self.now ^ (kind << 56) ^ (who << 40);
        self.trace = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn happen(&mut self, what: What) {
        let (kind, process) = match &what {
            What::Start(node) => (1, Some(Process { node: *node, life: u32::MAX })),
            What::Wake(process) => (2, Some(*process)),
            What::GiveUp(process, _) => (3, Some(*process)),
            What::Arrive(_) => (4, None),
            What::Answer(letter) => (5, Some(letter.process)),
            What::Hint(node) => (6, Some(Process { node: *node, life: u32::MAX })),
            What::Due(process, ..) => (7, Some(*process)),
            What::Send(process, ..) => (8, Some(*process)),
            What::End(process, ..) => (9, Some(*process)),
            What::Post(..) => (10, None),
            What::Heard(process, ..) => (11, Some(*process)),
            What::Kept(process, _) => (12, Some(*process)),
            What::Fault(_) => (13, None),
            What::Trap(_) => (14, None),
        };
        self.remember(kind, process.map_or(255, |process| process.node.into()));
        if let Some(process) = process {
            let node = &self.nodes[usize::from(process.node)];
            // Between a permit and its poll a process is held only where that is declared.
            let holds = self.now < node.held_until && (kind != 8 || self.plan.class.may_overlap());
            if holds {
                let at = node.held_until + self.chance.up_to(MS);
                return self.agenda.add(at, what);
            }
            if process.life != u32::MAX && !node.is(process) {
                return;
            }
        }
        match what {
            What::Start(node) => self.start(usize::from(node)),
            What::Wake(process) => self.wake(usize::from(process.node)),
            What::GiveUp(process, id) => {
                self.tell(process.node.into(), Event::Answered { id, reply: None });
            }
            What::Arrive(letter) => self.arrive(letter),
            What::Answer(letter) => {
                let Letter { process, id, body } = *letter;
                self.tell(process.node.into(), Event::Answered { id, reply: Some(body) });
            }
            What::Hint(node) => self.tell(node.into(), Event::Hint),
            What::Due(process, endpoint, turn) => self.due(process, endpoint.into(), turn),
            What::Send(process, endpoint, turn) => self.send_poll(process, endpoint.into(), turn),
            What::End(process, endpoint, turn) => self.end_poll(process, endpoint.into(), turn),
            What::Post(process, endpoint, token, mail) => match mail {
                Mail::Announce => {
                    let heard = self.checks.announce(self.now, endpoint.into(), process, token);
                    let at = self.now + self.delay();
                    self.agenda.add(at, What::Heard(process, endpoint, token, heard.0, heard.1));
                }
                Mail::Result(slot) => {
                    let (now, plan) = (self.now, &self.plan);
                    let taken = self.checks.result(plan, now, endpoint.into(), token, slot);
                    self.counts.refused += u64::from(!taken);
                    let at = self.now + self.delay();
                    self.agenda.add(at, What::Kept(process, endpoint));
                }
            },
            What::Heard(process, endpoint, token, taken, last) => {
                self.heard(process, endpoint.into(), token, taken, last);
            }
            What::Kept(process, endpoint) => self.kept(process, endpoint.into()),
            What::Fault(index) => self.fault(self.plan.faults[index as usize].1),
            What::Trap(trap) => self.spring(trap),
        }
    }

    /// How long a message takes.
    pub fn delay(&mut self) -> u64 {
        let slow = self.plan.means.slow && self.now < self.plan.calm;
        if slow && once_in(4, &mut self.chance) {
            return self.chance.up_to(5 * SECOND);
        }
        between(MS / 5, 20 * MS, &mut self.chance)
    }

    fn start(&mut self, index: usize) {
        if self.nodes[index].member.is_some() {
            return;
        }
        let node = &mut self.nodes[index];
        node.life += 1;
        node.wake_at = 0;
        let mut options =
            MemberOptions::new(&format!("n{index}"), &format!("n{index}-{}", node.life));
        options.timing = self.plan.timing;
        options.cooldown = Duration::from_secs(5);
        options.guards = self.guards;
        node.member = Some(Member::new(options, self.chance.bits()));
        let want = |key: &skep_policy::ownership::Key| (key.clone(), Some(Want { weight: 1 }));
        let changes = self.plan.keys.iter().map(want).collect();
        self.tell(index, Event::Wanted { kind: "poll".to_owned(), changes });
    }

    fn wake(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.wake_at > self.now {
            return;
        }
        node.wake_at = 0;
        node.wakes += 1;
        if node.wakes > WAKES_MAX && self.guards == Guards::default() {
            self.checks.say(self.now, format!("n{index} is woken again and again for nothing"));
        }
        self.tell(index, Event::Wake);
    }

    /// Tells a member what happened and does what it says.
    pub fn tell(&mut self, index: usize, event: Event) {
        let node = &mut self.nodes[index];
        let Some(member) = &mut node.member else { return };
        if !matches!(event, Event::Wake) {
            node.wakes = 0;
        }
        let local = node.clock.at(self.now);
        let lapsed = local + self.plan.timing.margin > member.trust_until();
        let mut effects = std::mem::take(&mut self.effects);
        member.handle(local, event, &mut effects);
        let mut changed = false;
        loop {
            for effect in effects.drain(..) {
                changed |= !matches!(effect, Effect::News(_) | Effect::Send { .. });
                self.act(index, effect);
            }
            let Some(endpoint) = self.idle.pop() else { break };
            let due = self.due_when_stopped(index, endpoint);
            let Some(member) = &mut self.nodes[index].member else { continue };
            let key = self.plan.keys[endpoint].clone();
            member.handle(local, Event::Stopped { key, due }, &mut effects);
        }
        self.effects = effects;
        if changed || lapsed {
            self.compare_permits(index);
        }
        let node = &mut self.nodes[index];
        let Some(member) = &node.member else { return };
        // Without a guard a member may ask for times that have passed.
        let least = if self.guards == Guards::default() { 1 } else { 10 * MS };
        let at = node.clock.when(member.next_wake()).max(self.now + least);
        if at < u64::MAX && (node.wake_at == 0 || at < node.wake_at) {
            node.wake_at = at;
            let process = node.process(index);
            self.agenda.add(at, What::Wake(process));
        }
    }

    /// A permit can begin only when its member has heard something, so this is where two could be.
    fn compare_permits(&mut self, index: usize) {
        for endpoint in 0..ENDPOINTS {
            let has = self.has_permit(index, endpoint);
            self.checks.note_permit(endpoint, index, has);
            if !has {
                continue;
            }
            let mut others = self.checks.others_with_permit(endpoint, index);
            while others != 0 {
                let other = others.trailing_zeros() as usize;
                others &= others - 1;
                if self.has_permit(other, endpoint) {
                    self.checks.two_permits(self.now, endpoint, (other, index));
                } else {
                    self.checks.note_permit(endpoint, other, false);
                }
            }
        }
    }

    fn has_permit(&self, index: usize, endpoint: usize) -> bool {
        let node = &self.nodes[index];
        let Some(member) = &node.member else { return false };
        let local = node.clock.at(self.now);
        member.permit(local, &self.plan.keys[endpoint], Duration::ZERO).is_ok()
    }

    fn act(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Send { id, request } => self.send(index, id, request),
            Effect::Start(grant) => self.begin_work(index, &grant),
            Effect::Stop { key, .. } => self.stop_work(index, &key),
            Effect::Lost { key, .. } => self.lose_work(index, &key),
            Effect::News(_) => {}
            Effect::NameTaken { .. } => {
                self.end_process(index);
                self.agenda.add(self.now + SECOND, What::Start(index as u8));
            }
            Effect::Left => {
                let away = self.nodes[index].away;
                self.end_process(index);
                self.agenda.add(self.now + away, What::Start(index as u8));
            }
        }
    }

    pub fn end_process(&mut self, index: usize) {
        self.nodes[index].end_process();
        for endpoint in 0..ENDPOINTS {
            self.checks.note_permit(endpoint, index, false);
        }
        self.store.note_witnesses(&self.nodes);
    }

    fn send(&mut self, index: usize, id: u64, mut request: Request) {
        // Machines are a few seconds apart. Where a guard is missing they do not know the time: it
        // is a second line behind some of them, and would hide what is missing.
        if self.guards == Guards::default() {
            request.least = Store::true_seconds(self.now) + index as u64 % 3;
        }
        let delay = self.delay();
        let delay = self.delay_chosen(index, &request.ask, delay);
        let node = &self.nodes[index];
        let process = node.process(index);
        let limit = node.clock.at(self.now) + self.plan.timing.call_limit();
        let give_up = node.clock.when(limit);
        self.agenda.add(give_up, What::GiveUp(process, id));
        let cut_until = node.deaf.0;
        let mut at = self.now + delay;
        if self.now < cut_until {
            if once_in(2, &mut self.chance) {
                return;
            }
            // What was lost is sent again by the network below.
            at = cut_until + delay;
        }
        let slow = self.plan.means.slow && self.now < self.plan.calm;
        if slow && once_in(12, &mut self.chance) {
            let again = self.now + self.delay();
            let letter = Letter { process, id, body: request.clone() };
            self.agenda.add(again, What::Arrive(Box::new(letter)));
        }
        self.agenda.add(at, What::Arrive(Box::new(Letter { process, id, body: request })));
    }

    fn arrive(&mut self, letter: Box<Letter<Request>>) {
        if self.now < self.store.held_until {
            return self.agenda.add(self.store.held_until, What::Arrive(letter));
        }
        if self.now < self.store.away_until {
            if once_in(2, &mut self.chance) {
                let at = self.now + self.delay();
                self.agenda.add(at, What::GiveUp(letter.process, letter.id));
            }
            return;
        }
        if let Some(later) = self.hold_back(&letter) {
            return self.agenda.add(later, What::Arrive(letter));
        }
        self.before_apply(&letter);
        let (reply, hint) = self.store.apply(&letter.body, self.now);
        let delay = self.delay();
        let answer = self.after_apply(&letter, &reply, delay);
        self.hint(&hint);
        let Some(delay) = answer else { return };
        self.answer(&letter, reply, delay);
    }

    fn answer(&mut self, letter: &Letter<Request>, reply: Reply, delay: u64) {
        let cut_until = self.nodes[usize::from(letter.process.node)].deaf.1;
        let mut at = self.now + delay;
        if self.now < cut_until {
            if once_in(2, &mut self.chance) {
                return;
            }
            at = cut_until + delay;
        }
        let letter = Letter { process: letter.process, id: letter.id, body: reply };
        self.agenda.add(at, What::Answer(Box::new(letter)));
    }

    fn hint(&mut self, hint: &Hint) {
        for index in 0..self.nodes.len() {
            let concerned = match hint {
                Hint::Nobody => return,
                Hint::All => true,
                Hint::Nodes(names) => names.iter().any(|name| name[1..] == index.to_string()),
            };
            if concerned {
                self.hint_one(index);
            }
        }
    }

    /// Hints are lost where answers are, and never sent again.
    pub fn hint_one(&mut self, index: usize) {
        let delay = self.delay();
        if self.now >= self.nodes[index].deaf.1 {
            self.agenda.add(self.now + delay, What::Hint(index as u8));
        }
    }

    pub fn fault(&mut self, fault: Fault) {
        self.counts.faults += 1;
        // What an adversary does ends with the storm, too.
        let (now, calm) = (self.now, self.plan.calm);
        match fault {
            Fault::Crash(node, down) => {
                self.end_process(node.into());
                self.agenda.add(now + down, What::Start(node));
            }
            Fault::Leave(node, away) => {
                self.prepare_mirror(node.into());
                self.nodes[usize::from(node)].away = away;
                if now >= self.nodes[usize::from(node)].held_until {
                    self.tell(node.into(), Event::Leave);
                }
            }
            Fault::Pause(node, span) => {
                let held = &mut self.nodes[usize::from(node)].held_until;
                *held = (*held).max((now + span).min(calm));
            }
            Fault::Cut(node, requests, answers) => {
                self.nodes[usize::from(node)]
                    .cut((now + requests).min(calm), (now + answers).min(calm));
            }
            Fault::StorePause(span) => {
                self.store.held_until = self.store.held_until.max(now + span);
            }
            Fault::StoreEmpty(away) => {
                self.store.restart_empty(now + away, self.chance.bits());
                self.lost_something();
            }
            Fault::StoreSnapshot(away) => {
                self.store.restart_from_copy(now + away, self.chance.bits());
                self.lost_something();
            }
            Fault::Flush => {
                self.store.flush();
                self.lost_something();
            }
            Fault::Jump(by) => self.store.clock_offset_ms += by,
            Fault::Freeze(index, span) => {
                let node = &mut self.nodes[usize::from(index)];
                if now >= node.held_until {
                    node.held_until = now + span;
                    node.clock.stand_still(now, now + span);
                    node.wake_at = 0;
                    let process = node.process(index.into());
                    self.agenda.add(now + span, What::Wake(process));
                }
            }
        }
    }

    fn lost_something(&mut self) {
        self.store.note_witnesses(&self.nodes);
        self.exploit_loss();
    }

    fn spring(&mut self, trap: Trap) {
        match trap {
            Trap::Cut(node, span) => self.fault(Fault::Cut(node, span, span)),
            Trap::Pause(node, span) => self.fault(Fault::Pause(node, span)),
            Trap::Lose => {
                let away = between(0, 50 * MS, &mut self.chance);
                let fault = match () {
                    () if self.plan.means.flush => Fault::Flush,
                    () if self.plan.means.snapshot => Fault::StoreSnapshot(away),
                    () => Fault::StoreEmpty(away),
                };
                self.fault(fault);
            }
            Trap::Restore => self.restore(),
        }
    }

    /// The true time after so many nanoseconds of a node's clock.
    pub fn after(&self, index: usize, local: u64) -> u64 {
        self.now + self.nodes[index].clock.span(local)
    }

    pub fn local(&self, index: usize) -> Time {
        self.nodes[index].clock.at(self.now)
    }
}
