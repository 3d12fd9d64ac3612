//! A worker's supervisor as it should be: it says what its program does and obeys.

use super::mutation::Mutation;
use super::plan::{HEARTBEAT_MS, happens};
use super::truth::Program;
use super::world::{Envelope, Sender, What, World};
use skep_policy::Chance;
use skep_policy::sessions::{Answer, Ask, DueBy, Heartbeat, Order, Phase, Register};

/// What a supervisor is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Serving,
    /// Its program is being started, because it was told to or because it had ended.
    Starting {
        ordered: bool,
    },
    /// Its program's successor is being started.
    Succeeding,
    /// It is not there.
    Gone,
}

pub(super) struct Worker {
    pub mode: Mode,
    pub program: Option<usize>,
    /// The predecessor that still runs, and until when at most.
    pub old: Option<(usize, u64)>,
    pub old_gone: bool,
    pub incarnation: Option<u64>,
    /// The table was told of its program before, so that gateways may carry something on it.
    pub was_in: bool,
    /// Sessions in this life, as it was last told.
    pub told: u32,
    pub recycled: bool,
    pub successor: bool,
    pub due: Option<DueBy>,
    pub silent_until: u64,
    /// Which of its questions is the last; answers to others are void.
    pub turn: u64,
    /// Which of its starts is under way.
    pub starts: u64,
    pub away: Away,
    pub drained: bool,
}

/// What is needed to say whether a restart counts against the budget.
#[derive(Clone, Copy, Default)]
pub(super) struct Away {
    /// The last time the table is known not to have ordered it.
    pub before: u64,
    /// The table has reason to think that it will not return.
    pub excused: bool,
    /// When an operator last removed it: what it was told before is void.
    pub revoked: u64,
    /// When the table last heard of it.
    pub heard: u64,
}

impl Worker {
    pub fn new(successor: bool) -> Self {
        Worker {
            mode: Mode::Gone,
            program: None,
            old: None,
            old_gone: false,
            incarnation: None,
            was_in: false,
            told: 0,
            recycled: false,
            successor,
            due: None,
            silent_until: 0,
            turn: 0,
            starts: 0,
            away: Away::default(),
            drained: false,
        }
    }
}

impl World {
    /// A new start of the worker's program runs.
    fn new_program(&mut self, worker: usize) -> usize {
        let slots = self.plan.rules.slots;
        let (alive, known_gone) = (true, false);
        self.programs.push(Program {
            worker,
            alive,
            slots,
            counted: 0,
            slack: 0,
            replaced: false,
            known_gone,
        });
        self.programs.len() - 1
    }

    /// A program ends, and whoever is on it notices soon.
    pub(super) fn kill(&mut self, program: usize) {
        self.programs[program].alive = false;
        for slot in 0..self.gateways.len() {
            let gateway = &self.gateways[slot];
            let id = gateway.id;
            let on_it = gateway.sessions.iter().filter(|(_, one)| one.program() == Some(program));
            let tickets: Vec<_> = on_it.map(|(&ticket, _)| ticket).collect();
            for ticket in tickets {
                let after = 1 + self.chance.up_to(40);
                self.later(after, What::Ends { slot, gateway: id, ticket });
            }
        }
    }

    /// Starts the worker's program after a while.
    pub(super) fn start_program(&mut self, worker: usize, mode: Mode) {
        let slow = self.faulty && happens(30, &mut self.chance);
        let restart = self.plan.restart;
        let after = match slow {
            true => self.plan.rules.restart_max_ms + self.chance.up_to(10_000),
            false => 1 + self.chance.up_to(restart),
        };
        self.workers[worker].mode = mode;
        self.workers[worker].starts += 1;
        let start = self.workers[worker].starts;
        self.later(after, What::Started { worker, start });
    }

    pub(super) fn started(&mut self, worker: usize) {
        let number = self.new_program(worker);
        let until = self.now + self.plan.rules.drain_max_ms + 10_000;
        let one = &mut self.workers[worker];
        one.recycled = matches!(one.mode, Mode::Starting { ordered: true } | Mode::Succeeding);
        if one.mode == Mode::Succeeding {
            one.old = one.program.map(|program| (program, until));
            one.old_gone = false;
        }
        one.mode = Mode::Serving;
        one.program = Some(number);
        (one.incarnation, one.was_in, one.told, one.due) = (None, false, 0, None);
        self.speak(worker);
    }

    /// Says what there is to say, once.
    pub(super) fn speak(&mut self, worker: usize) {
        let now = self.now;
        let one = &mut self.workers[worker];
        if one.mode == Mode::Gone || one.silent_until > now {
            return;
        }
        one.turn += 1;
        if let Some((old, _)) = one.old.filter(|(_, until)| *until <= now) {
            (one.old, one.old_gone) = (None, true);
            self.kill(old);
        }
        let one = &self.workers[worker];
        let ask = match (one.incarnation, one.program) {
            (None, Some(program)) if matches!(one.mode, Mode::Serving | Mode::Succeeding) => {
                let ask = self.registration(worker, program);
                self.workers[worker].was_in = true;
                ask
            }
            (None, _) => return,
            (Some(incarnation), _) => Ask::Heartbeat(Heartbeat {
                name: format!("w{worker}"),
                incarnation,
                phase: match one.mode {
                    Mode::Starting { ordered: true } => Phase::Restarting,
                    Mode::Starting { ordered: false } => Phase::Down,
                    Mode::Serving | Mode::Succeeding | Mode::Gone => Phase::Serving,
                },
                due: one.due,
                lifetime: one.told,
                old_gone: one.old_gone,
            }),
        };
        let from = Sender::Worker { worker, turn: self.workers[worker].turn };
        self.post(Envelope { from, ask, connection: self.connection, late: false });
    }

    fn registration(&self, worker: usize, program: usize) -> Ask {
        let one = &self.workers[worker];
        let forgets = self.mutation == Some(Mutation::LifetimeForgotten);
        Ask::Register(Register {
            name: format!("w{worker}").into(),
            kind: "k".to_owned(),
            url: program.to_string().into(),
            slots: None,
            shape: self.plan.shape(worker),
            start: program.to_string().into(),
            // Who comes back says at least one, so that gateways are heard first.
            lifetime: if forgets { 0 } else { one.told.max(u32::from(one.was_in)) },
            recycled: one.recycled,
            successor: one.successor,
        })
    }

    pub(super) fn heard(&mut self, worker: usize, overtaken: bool, answer: &Answer) {
        let now = self.now;
        let one = &mut self.workers[worker];
        match *answer {
            Answer::Registered { incarnation, .. } => {
                one.incarnation = Some(incarnation);
                one.away.before = now;
            }
            Answer::Ordered { order, lifetime, .. } => {
                one.told = lifetime;
                if order != Order::StopOld && one.old.is_none() {
                    one.old_gone &= order == Order::Serve;
                }
                self.obey(worker, order, overtaken);
            }
            Answer::Unknown => {
                one.incarnation = None;
                let after = 1 + self.chance.up_to(100);
                self.later(after, What::Hinted { worker });
            }
            Answer::Replaced => self.leave(worker, false),
            ref other => self.fail(format!("w{worker} is answered {other:?}")),
        }
    }

    fn obey(&mut self, worker: usize, order: Order, overtaken: bool) {
        let one = &mut self.workers[worker];
        let limit = self.plan.rules.lifetime_max;
        let unasked = self.mutation == Some(Mutation::RestartsUnasked)
            && limit != 0
            && one.told >= limit
            && order == Order::Serve;
        match order {
            _ if one.mode != Mode::Serving => {}
            Order::Serve if unasked => self.restart(worker, false),
            Order::Serve => self.workers[worker].away.before = self.now,
            Order::Restart => self.restart(worker, overtaken),
            Order::Succeed => {
                self.count("succeeded");
                self.start_program(worker, Mode::Succeeding);
            }
            Order::StopOld => {
                if let Some((old, _)) = one.old.take() {
                    one.old_gone = true;
                    self.may_stop(old, "stop");
                    self.kill(old);
                    let after = 1 + self.chance.up_to(50);
                    self.later(after, What::Hinted { worker });
                }
            }
            Order::Leave => self.leave(worker, true),
        }
    }

    /// `overtaken`: the table has lost its memory or the worker since it gave the order.
    fn restart(&mut self, worker: usize, overtaken: bool) {
        self.count("restarts");
        if let Some(program) = self.workers[worker].program {
            self.may_stop(program, "restart");
            self.kill(program);
        }
        self.workers[worker].away.excused = overtaken;
        self.start_program(worker, Mode::Starting { ordered: true });
        self.may_be_away();
        let after = 1 + self.chance.up_to(50);
        self.later(after, What::Hinted { worker });
    }

    /// Whether no more than the budget are away because they were told to.
    fn may_be_away(&mut self) {
        if self.plan.rules.policy != skep_policy::sessions::Policy::Budgeted {
            return;
        }
        let most = self.plan.rules.budget.of(self.workers.len() as u32);
        for worker in 0..self.workers.len() {
            self.excuse_absence(worker);
        }
        let counts =
            |one: &&Worker| one.mode == Mode::Starting { ordered: true } && !one.away.excused;
        let away = self.workers.iter().filter(counts).count() as u32;
        if away > most {
            self.fail(format!("{away} workers restart as ordered; {most} may"));
        }
    }

    /// Notes when the table may think that a worker will not return.
    pub(super) fn excuse_absence(&mut self, worker: usize) {
        let rules = &self.plan.rules;
        let one = &mut self.workers[worker];
        let late = self.now >= one.away.before + rules.restart_max_ms;
        let silent = self.now > one.away.heard + rules.heartbeat_ms;
        one.away.excused |= late || silent;
    }

    /// It goes, and comes back as another.
    pub(super) fn leave(&mut self, worker: usize, says: bool) {
        self.stop_all(worker);
        if says {
            let ask = Ask::Remove { name: format!("w{worker}"), by_worker: true };
            let from = Sender::Operator;
            self.post(Envelope { from, ask, connection: self.connection, late: false });
        }
        self.gone_for_a_while(worker);
    }

    pub(super) fn stop_all(&mut self, worker: usize) {
        let one = &mut self.workers[worker];
        one.mode = Mode::Gone;
        one.starts += 1;
        one.turn += 1;
        let programs = [one.program.take(), one.old.take().map(|(old, _)| old)];
        (one.incarnation, one.old_gone) = (None, false);
        for program in programs.into_iter().flatten() {
            self.kill(program);
        }
    }

    pub(super) fn gone_for_a_while(&mut self, worker: usize) {
        let long = self.faulty && happens(30, &mut self.chance);
        let after = 500 + self.chance.up_to(if long { 700_000 } else { 5_000 });
        let start = self.workers[worker].starts;
        self.later(after, What::Returns { worker, start });
    }

    /// The program crashed, and its supervisor says so.
    pub(super) fn crash(&mut self, worker: usize) {
        let one = &mut self.workers[worker];
        let Some(program) = one.program.filter(|_| one.mode != Mode::Gone) else { return };
        if matches!(one.mode, Mode::Starting { .. }) {
            return;
        }
        self.kill(program);
        self.start_program(worker, Mode::Starting { ordered: false });
        self.speak(worker);
    }

    pub(super) fn worker_timer(&mut self, worker: usize) {
        self.speak(worker);
        let after = HEARTBEAT_MS / 2 + self.chance.up_to(HEARTBEAT_MS / 2);
        self.later(after, What::WorkerTimer { worker });
    }
}
