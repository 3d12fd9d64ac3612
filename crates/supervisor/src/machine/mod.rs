//! Every rule of a supervisor, without clock, sockets and processes.
//!
//! Events and the time go in, effects come out. Orders are obeyed by what they say, not by when
//! they came: after each event the machine looks at the order it knows and at its programs, and
//! does what is missing. So an order that is heard twice is obeyed once, and one that cannot be
//! obeyed yet is obeyed later.
//!
//! ```text
//!   next ──ready──► main ──(its successor is ready)──► old ──stop_old──► gone
//!                    │ ▲
//!     crash, restart └─┘ backoff
//! ```
//!
//! At most one request is on its way. Whatever the machine wants to say is made from its state
//! when it can be said; if that is news, it takes the place of the request on its way, which is
//! how a crash gets past a heartbeat that the node holds back.

mod answers;
mod news;
mod talk;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use news::{Level, News};

use crate::wire::{Due, Failure, Heartbeat, Old, Order, Phase, Register, Reply, Request};
use skep_policy::backoff::{self, wait_before_attempt};
use skep_policy::{Chance, SeededChance, Time};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use talk::Talk;

/// Which start of the program: a random id.
pub type StartId = Arc<str>;

/// How the waits between starts that fail grow.
const RESTARTS: backoff::Options =
    backoff::Options { base: Duration::from_millis(100), cap: Duration::from_secs(30) };
/// A program that lived this long has shown that it can.
const GOOD_LIFE: Duration = Duration::from_secs(60);
/// Starts that were ordered and failed, after which the worker is no longer "restarting" but down.
const FAILURES_TO_BE_DOWN: u32 = 2;
/// How long a node may hold back its answer while the sessions' end is waited for.
const DRAINING_WAIT: Duration = Duration::from_millis(500);
/// How long a node may take to agree that no more sessions come. Without one nobody would say when
/// the last session has ended.
const AGREE_LIMIT: Duration = Duration::from_secs(5);
/// How long taking leave may take.
const DELETE_LIMIT: Duration = Duration::from_secs(5);

/// What the machine has to know of the options.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How often a node hears of the worker.
    pub heartbeat_interval: Duration,
    /// How long sessions may go on at the end.
    pub drain_limit: Duration,
    /// Memory above which the program is due.
    pub memory_max: Option<u64>,
    /// How long its memory does not count after its start.
    pub memory_grace: Duration,
    /// Age above which it is due.
    pub age_max: Option<Duration>,
    /// Whether a second program may be started beside the first.
    pub successor: bool,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A program takes sessions at this URL.
    Ready {
        /// Which start.
        start: StartId,
        /// As others reach it.
        url: String,
    },
    /// A program and everything it started is gone, whether or not that was wanted. Comes once for
    /// each start.
    Gone {
        /// Which start.
        start: StartId,
        /// What is known of its end.
        how: String,
    },
    /// A program's load was measured.
    Measured {
        /// Which start.
        start: StartId,
        /// Its load.
        load: Load,
    },
    /// A request came to its end.
    Answered {
        /// Which.
        call: u64,
        /// What came of it.
        answer: Result<Reply, Failure>,
    },
    /// The supervisor is to stop: the first time after its sessions, the second time at once.
    Stop,
    /// Nothing but the time.
    Wake,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start the program.
    Start(StartId),
    /// Stop a program and everything it started.
    StopProgram(StartId),
    /// Send a request; the one on its way, if there is one, is of no interest any more.
    Call {
        /// Its answer is told by this number.
        call: u64,
        /// What to say.
        request: Request,
    },
    /// Let people know.
    Tell(News),
    /// Nothing is left to do. Comes once and last.
    End(Outcome),
}

/// How a supervisor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was told to stop.
    Stopped,
    /// An operator removed the worker.
    Left,
    /// Another start has the name; what the node said of it.
    Replaced(String),
    /// No node will have the worker as it is; what the node said of it.
    Refused(String),
}

/// What a program uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Memory of it and everything it started.
    pub rss_bytes: u64,
    /// Processor time of the same, in percent of one processor.
    pub cpu_percent: f64,
}

/// See the module.
pub struct Machine {
    rules: Rules,
    chance: SeededChance,
    life: Life,
    main: Option<Program>,
    next: Option<Program>,
    old: Option<Program>,
    seat: Option<Seat>,
    /// Whether a node may know the name.
    known: bool,
    order: Order,
    lifetime: u64,
    load: Load,
    talk: Talk,
    effects: VecDeque<Effect>,
}

enum Life {
    Serving,
    Draining {
        until: Time,
        /// Whether a node has agreed to send no more sessions.
        agreed: bool,
        /// If none has by then, none is there.
        agree_by: Time,
    },
    Ending {
        outcome: Outcome,
        delete: bool,
        /// Set when every program is gone.
        delete_until: Option<Time>,
    },
    Ended,
}

struct Program {
    start: StartId,
    stage: Stage,
    recycled: bool,
    /// Starts in a row that did not come to a good life.
    failures: u32,
    due: Option<Due>,
}

enum Stage {
    /// There is no process; the next start is at this time.
    Waiting(Time),
    Starting,
    Up {
        url: String,
        since: Time,
    },
    Stopping,
}

/// A node's knowledge of a start.
struct Seat {
    start: StartId,
    incarnation: u64,
    interval: Duration,
}

impl Program {
    fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up { .. })
    }

    fn has_process(&self) -> bool {
        !matches!(self.stage, Stage::Waiting(_))
    }
}

impl Machine {
    /// A supervisor that starts its program at `now`.
    pub fn new(rules: Rules, seed: u64, now: Time) -> Self {
        let mut machine = Machine {
            rules,
            chance: SeededChance::new(seed),
            life: Life::Serving,
            main: None,
            next: None,
            old: None,
            seat: None,
            known: false,
            order: Order::Serve,
            lifetime: 0,
            load: Load::default(),
            talk: Talk::new(now),
            effects: VecDeque::new(),
        };
        machine.main = Some(machine.started(false, 0));
        machine
    }

    /// The next thing to do, in order.
    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, event: Event, now: Time) {
        if matches!(self.life, Life::Ended) {
            return;
        }
        match event {
            Event::Ready { start, url } => self.ready(&start, url, now),
            Event::Gone { start, how } => self.gone(&start, how, now),
            Event::Measured { start, load } => self.measured(&start, load, now),
            Event::Answered { call, answer } => {
                if let Some(request) = self.talk.answered(call) {
                    self.answered(request, answer, now);
                }
            }
            Event::Stop => self.stop(now),
            Event::Wake => {}
        }
        self.start_those_who_waited(now);
        self.see_who_is_due(now);
        self.obey();
        self.see_to_the_end(now);
        self.speak(now);
    }

    /// When to come back with [`Event::Wake`] if nothing else happens.
    pub fn wake_at(&self) -> Option<Time> {
        let waits = [&self.main, &self.next].into_iter().flatten();
        let waits = waits.filter_map(|program| match program.stage {
            Stage::Waiting(until) => Some(until),
            _ => None,
        });
        let life = match self.life {
            Life::Draining { until, agreed: true, .. } => Some(until),
            Life::Draining { until, agree_by, .. } => Some(until.min(agree_by)),
            Life::Ending { delete_until, .. } => delete_until,
            _ => None,
        };
        let speak = self.wanted().filter(|_| self.talk.is_idle()).map(|_| self.talk.not_before());
        waits.chain(life).chain(speak).chain(self.due_by_age_at()).min()
    }

    fn started(&mut self, recycled: bool, failures: u32) -> Program {
        let start: StartId =
            format!("{:016x}{:016x}", self.chance.bits(), self.chance.bits()).into();
        self.effects.push_back(Effect::Start(start.clone()));
        self.tell(News::Starting { start: start.clone(), recycled });
        Program { start, stage: Stage::Starting, recycled, failures, due: None }
    }

    fn tell(&mut self, news: News) {
        self.effects.push_back(Effect::Tell(news));
    }

    fn is_serving(&self) -> bool {
        matches!(self.life, Life::Serving)
    }

    fn ready(&mut self, start: &StartId, url: String, now: Time) {
        let starting = |program: &&mut Program| {
            program.start == *start && matches!(program.stage, Stage::Starting)
        };
        let is_next = self.next.as_ref().is_some_and(|next| next.start == *start);
        let found = [&mut self.main, &mut self.next].into_iter().flatten().find(starting);
        let Some(program) = found else { return };
        program.stage = Stage::Up { url: url.clone(), since: now };
        self.tell(News::Ready { start: start.clone(), url });
        if is_next {
            self.old = self.main.take();
            self.main = self.next.take();
        }
        self.load = Load::default();
    }

    fn gone(&mut self, start: &StartId, how: String, now: Time) {
        let is = |program: &Option<Program>| {
            program.as_ref().is_some_and(|program| program.start == *start && program.has_process())
        };
        if is(&self.old) {
            self.old = None;
            self.tell(News::Gone { start: start.clone(), how });
        } else if is(&self.next) {
            let Some(next) = self.next.take() else { return };
            self.next = self.after(next, how, now);
        } else if is(&self.main) {
            let Some(main) = self.main.take() else { return };
            let crashed = main.is_up();
            // A successor that is on its way comes sooner than another start.
            self.main = match self.next.take() {
                Some(next) if crashed && self.is_serving() => {
                    self.tell(News::Crashed { start: start.clone(), how, wait: None });
                    // It is needed now because of the crash, and the node has to hear of that.
                    Some(Program { recycled: false, ..next })
                }
                next => {
                    self.next = next;
                    self.after(main, how, now)
                }
            };
        }
    }

    /// What comes after a program that is gone.
    fn after(&mut self, program: Program, how: String, now: Time) -> Option<Program> {
        let Program { start, stage, recycled, failures, .. } = program;
        if !self.is_serving() {
            self.tell(News::Gone { start, how });
            return None;
        }
        let (recycled, failures) = match stage {
            Stage::Stopping => {
                self.tell(News::Gone { start, how });
                return Some(self.started(true, 0));
            }
            Stage::Up { since, .. } if now.since(since) >= GOOD_LIFE => (false, 1),
            Stage::Up { .. } => (false, failures.saturating_add(1)),
            _ => (recycled, failures.saturating_add(1)),
        };
        let wait = wait_before_attempt(failures, &RESTARTS, &mut self.chance).chosen;
        let crashed = matches!(stage, Stage::Up { .. });
        self.tell(match crashed {
            true => News::Crashed { start: start.clone(), how, wait: Some(wait) },
            false => News::StartFailed { start: start.clone(), how, wait, failures },
        });
        Some(Program { start, stage: Stage::Waiting(now + wait), recycled, failures, due: None })
    }

    fn start_those_who_waited(&mut self, now: Time) {
        let over = |program: &Program| matches!(program.stage, Stage::Waiting(at) if at <= now);
        if let Some(main) = self.main.take_if(|program| over(program)) {
            self.main = Some(self.started(main.recycled, main.failures));
        }
        if let Some(next) = self.next.take_if(|program| over(program)) {
            self.next = Some(self.started(next.recycled, next.failures));
        }
    }

    fn measured(&mut self, start: &StartId, load: Load, now: Time) {
        let Some(main) = self.main.as_mut().filter(|main| main.start == *start) else { return };
        self.load = load;
        // A program that needs more from the beginning would be restarted again and again.
        let settled =
            matches!(main.stage, Stage::Up { since, .. } if now >= since + self.rules.memory_grace);
        if settled
            && main.due.is_none()
            && self.rules.memory_max.is_some_and(|max| load.rss_bytes > max)
        {
            main.due = Some(Due::Memory);
            self.tell(News::Due { why: Due::Memory, load });
        }
    }

    fn due_by_age_at(&self) -> Option<Time> {
        let main = self.main.as_ref().filter(|main| main.due.is_none())?;
        match main.stage {
            Stage::Up { since, .. } => Some(since + self.rules.age_max?),
            _ => None,
        }
    }

    fn see_who_is_due(&mut self, now: Time) {
        if self.due_by_age_at().is_some_and(|at| at <= now)
            && let Some(main) = self.main.as_mut()
        {
            main.due = Some(Due::Age);
            self.tell(News::Due { why: Due::Age, load: self.load });
        }
    }

    /// Does what the known order wants and what has not been done yet.
    fn obey(&mut self) {
        let seated = match (&self.seat, &self.main) {
            (Some(seat), Some(main)) => seat.start == main.start && main.is_up(),
            _ => false,
        };
        match (self.order, &self.life) {
            (Order::Leave, Life::Serving | Life::Draining { .. }) => {
                self.end(Outcome::Left, false);
            }
            (Order::StopOld, Life::Serving | Life::Draining { .. }) => self.stop_old(),
            (Order::Restart, Life::Serving) if seated => match self.next.take() {
                // The one that was to succeed it is on its way already.
                Some(next) => {
                    self.old = self.main.replace(next);
                    self.stop_old();
                }
                None => stop_program(&mut self.main, &mut self.effects),
            },
            (Order::Succeed, Life::Serving)
                if seated && self.next.is_none() && self.old.is_none() =>
            {
                self.next = Some(self.started(true, 0));
            }
            _ => {}
        }
    }

    fn stop_old(&mut self) {
        stop_program(&mut self.old, &mut self.effects);
    }

    fn stop(&mut self, now: Time) {
        self.talk.hurry(now);
        match self.life {
            // Without a word from a node about it there are no sessions, and one that is not up and
            // whose number is not known cannot hear of any.
            Life::Serving
                if !self.talk.was_ever_registered()
                    || self.seat.is_none() && !self.main.as_ref().is_some_and(Program::is_up) =>
            {
                self.end(Outcome::Stopped, self.known);
            }
            Life::Serving => {
                let limit = self.rules.drain_limit;
                self.tell(News::Draining { limit });
                let (until, agree_by) = (now + limit, now + AGREE_LIMIT);
                self.life = Life::Draining { until, agreed: false, agree_by };
                stop_program(&mut self.next, &mut self.effects);
                // One that is not up has no sessions to wait for.
                if self.main.as_ref().is_some_and(|main| !main.is_up()) {
                    stop_program(&mut self.main, &mut self.effects);
                }
            }
            Life::Draining { .. } => self.end(Outcome::Stopped, self.known),
            Life::Ending { .. } | Life::Ended => {}
        }
    }

    /// Stops everything; the end comes when everything is gone.
    fn end(&mut self, outcome: Outcome, delete: bool) {
        self.tell(News::Ending(outcome.clone()));
        self.life = Life::Ending { outcome, delete, delete_until: None };
        for program in [&mut self.main, &mut self.next, &mut self.old] {
            stop_program(program, &mut self.effects);
        }
    }

    fn see_to_the_end(&mut self, now: Time) {
        if let Life::Draining { until, agreed, agree_by } = self.life {
            let nobody = self.main.is_none() && self.next.is_none() && self.old.is_none();
            let unheard = !agreed && agree_by <= now;
            if nobody || until <= now || unheard {
                // A node that comes back finds out by itself.
                self.end(Outcome::Stopped, self.known && !unheard);
            }
        }
        let nobody = self.main.is_none() && self.next.is_none() && self.old.is_none();
        if let Life::Ending { outcome, delete, delete_until } = &mut self.life
            && nobody
        {
            let until = *delete_until.get_or_insert_with(|| {
                self.talk.hurry(now);
                now + DELETE_LIMIT
            });
            if !*delete || until <= now {
                self.effects.push_back(Effect::End(outcome.clone()));
                self.life = Life::Ended;
            }
        }
    }

    fn phase(&self) -> Phase {
        match &self.main {
            Some(main) if main.is_up() => Phase::Serving,
            Some(main) if !self.is_serving() || main.failures >= FAILURES_TO_BE_DOWN => Phase::Down,
            Some(main) if main.recycled || matches!(main.stage, Stage::Stopping) => {
                Phase::Restarting
            }
            _ => Phase::Down,
        }
    }

    /// What should be said, if anything.
    fn wanted(&self) -> Option<Request> {
        match &self.life {
            Life::Ending { delete: true, delete_until: Some(_), .. } => {
                return Some(Request::Delete);
            }
            Life::Ending { delete: false, .. } | Life::Ended => return None,
            Life::Serving | Life::Draining { .. } | Life::Ending { .. } => {}
        }
        if let Some(main) = &self.main
            && let Stage::Up { url, .. } = &main.stage
            && self.seat.as_ref().is_none_or(|seat| seat.start != main.start)
        {
            return Some(Request::Register(Register {
                url: url.clone(),
                start: main.start.clone(),
                lifetime: self.lifetime_of(&main.start),
                recycled: main.recycled,
            }));
        }
        if matches!(self.life, Life::Draining { agreed: false, .. }) {
            return Some(Request::Drain);
        }
        let seat = self.seat.as_ref()?;
        let wait = if self.is_serving() { seat.interval } else { DRAINING_WAIT.min(seat.interval) };
        Some(Request::Heartbeat(Heartbeat {
            incarnation: seat.incarnation,
            phase: self.phase(),
            due: self.main.as_ref().and_then(|main| main.due),
            rss_bytes: self.load.rss_bytes,
            cpu_percent: self.load.cpu_percent,
            order: self.order,
            old: if self.old.is_some() { Old::Running } else { Old::Gone },
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1),
        }))
    }

    /// Sessions that a start has had: none, unless a node knew it before. Then at least one, for it
    /// may carry some that nobody here was told of, and gateways must be heard before it gets more.
    fn lifetime_of(&self, start: &StartId) -> u64 {
        if self.talk.was_registered(start) { self.lifetime.max(1) } else { 0 }
    }

    fn speak(&mut self, now: Time) {
        let Some(request) = self.wanted() else { return self.talk.hang_up() };
        let Some(call) = self.talk.say(&request, now) else { return };
        if let Request::Register(_) = &request {
            // The node may do it and its answer may be lost. Then the number that is known here is
            // that of a start which was replaced, by ourselves; it must not be spoken of again.
            self.seat = None;
            self.known = true;
        }
        self.effects.push_back(Effect::Call { call, request });
    }
}

/// Stops a program that has a process; forgets one that waits for its start.
fn stop_program(slot: &mut Option<Program>, effects: &mut VecDeque<Effect>) {
    slot.take_if(|program| !program.has_process());
    if let Some(program) = slot.as_mut().filter(|one| !matches!(one.stage, Stage::Stopping)) {
        program.stage = Stage::Stopping;
        program.failures = 0;
        effects.push_back(Effect::StopProgram(program.start.clone()));
    }
}
