//! The world around the engine: a clock, a timer, and threads that are entries in a list.
//!
//! One event is one thing that a thread, the timer or a submitter does with the engine. Each is a
//! single call, as if its threads took turns; what happens inside a call when two overlap is for
//! loom, beside the engine's hand-off, and here it is what order they come in, how late they are,
//! and what fails.

use super::agenda::{Agenda, What};
use super::hands::{Book, Guard, Mail, Mailbox, VirtualHands};
use super::ledger::{Ledger, Phase};
use super::story::Story;
use super::task::{Nature, Order};
use super::weather::Weather;
use super::workers::Seat;
use skep_policy::pools::{Class, Tier};
use skep_policy::{Chance, SeededChance, Time};
use skep_pools::engine::{Engine, Home, Patience, Refusal};
use skep_pools::{Options, Task};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The engine pauses for this long after a thread could not be started.
const START_AGAIN_AFTER: Duration = Duration::from_millis(100);
const START_AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);

/// The tiers, and the shared pool behind them.
pub(crate) const POOLS: usize = 5;
pub(crate) const SHARED: usize = 4;

pub(crate) fn pool_of(home: Home) -> usize {
    match home {
        Home::Tier(tier) => tier.index(),
        Home::Shared => SHARED,
    }
}

/// A pool as the world sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    pub workers: u32,
    pub workers_most: u32,
    pub abandoned: u32,
    /// When an abandoned thread last came back.
    pub freed_at: Time,
    /// Until when no thread is started, because one could not be.
    pub paused_until: Option<Time>,
    refused_in_a_row: u32,
    /// When a start was last left to the timer.
    pub deferred_at: Option<Time>,
    pub spawned: u64,
    pub refused: u64,
    pub died: u64,
    pub abandoned_total: u64,
}

impl Pool {
    /// A thread could not be started. The pauses double, up to a limit.
    fn refused(&mut self, now: Time) {
        let pause = START_AGAIN_AFTER.saturating_mul(1 << self.refused_in_a_row.min(16));
        self.paused_until = Some(now + pause.min(START_AGAIN_AFTER_MAX));
        self.refused_in_a_row += 1;
        self.refused += 1;
    }
}

#[derive(Default)]
pub(crate) struct Timer {
    pub epoch: u32,
    pub waking: bool,
    pub gone: bool,
}

/// What came next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// An event.
    Event,
    /// The driver's turn.
    Input(u32),
    /// Nothing, until the time that was given.
    Nothing,
    /// Nothing, ever: everybody rests and nobody is going to be woken.
    Dry,
    /// Too much has gone wrong to go on.
    Broken,
}

pub(crate) struct World {
    pub engine: Engine,
    pub ledger: Ledger,
    pub weather: Weather,
    pub chance: SeededChance,
    pub now: Time,
    pub phase: Phase,
    pub story: Story,
    /// Whether whoever drives the engine does what threads do beyond what they are asked: wake the
    /// timer when a worker goes, and look again when the last one has gone.
    pub obliging: bool,
    /// The last worker has gone, and nobody has looked since.
    pub deserted: bool,
    pub pools: [Pool; POOLS],
    /// Helpers for the background.
    pub behind: u32,
    /// Background tasks that keep a processor busy.
    pub busy: u32,
    /// Workers that were started while the pools ended and nothing waited.
    pub useless_starts: u32,
    /// The most workers there were at once.
    pub workers_most: u32,
    /// When a worker last went.
    pub last_left_at: Time,
    /// When the timer last looked.
    pub last_tick_at: Time,
    pub(super) agenda: Agenda,
    pub(super) seats: Vec<Seat>,
    pub(super) timer: Timer,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) mail: Mail,
    /// How much later than due the timer may look. The roughest weather counts, because what was
    /// late in it may still be on its way in the calm.
    pub(super) slack: Duration,
    next_check: u64,
}

impl World {
    /// Pools that open at `now`.
    pub fn new(
        options: Options,
        weather: Weather,
        chance: SeededChance,
        now: Time,
        story: Story,
    ) -> Self {
        assert_eq!(options.problems(), Vec::<String>::new(), "the driver gives valid options");
        let mut chance = chance;
        let mailbox = Mailbox::new(chance.bits());
        let hands = Box::new(VirtualHands(mailbox.clone()));
        let engine = Engine::new(options.clone(), chance.bits(), hands);
        engine.letters.keep_in(Some(Arc::new(Book(mailbox.clone()))));
        let mut world = World {
            engine,
            ledger: Ledger::new(options),
            weather,
            chance,
            now,
            phase: Phase::Open,
            story,
            obliging: true,
            deserted: false,
            pools: [Pool::default(); POOLS],
            behind: 0,
            busy: 0,
            useless_starts: 0,
            workers_most: 0,
            last_left_at: now,
            last_tick_at: now,
            agenda: Agenda::default(),
            seats: Vec::new(),
            timer: Timer::default(),
            mailbox,
            mail: Mail::default(),
            slack: 2 * (weather.timer_late.most() + weather.wake_late.most())
                + Duration::from_millis(10),
            next_check: 0,
        };
        world.schedule_timer(now);
        world
    }

    /// Starts the workers that are always there.
    pub fn open(&mut self) {
        self.engine.open(self.now);
        self.follow();
    }

    /// Has the driver called at a time.
    pub fn call_at(&mut self, at: Time, what: u32) {
        self.agenda.add(at.max(self.now), What::Input(what), &mut self.chance);
    }

    /// Lets the next thing happen, if it happens until then.
    pub fn step(&mut self, until: Time) -> Happened {
        loop {
            if self.story.is_broken() {
                return Happened::Broken;
            }
            let Some(at) = self.agenda.first_at() else { return Happened::Dry };
            if at > until {
                self.pass(until);
                return Happened::Nothing;
            }
            let Some((at, what)) = self.agenda.take() else { return Happened::Dry };
            self.pass(at);
            match what {
                What::Worker { seat, epoch } if self.seats[seat as usize].epoch == epoch => {
                    self.worker_goes_on(seat as usize);
                }
                What::Timer { epoch } if self.timer.epoch == epoch => self.tick(),
                What::Input(what) => return Happened::Input(what),
                What::Worker { .. } | What::Timer { .. } => continue,
            }
            self.count_event();
            return Happened::Event;
        }
    }

    fn count_event(&mut self) {
        self.story.events += 1;
        if self.story.events >= self.next_check {
            self.check();
            self.next_check = self.story.events + 1 + self.chance.up_to(63);
        }
    }

    /// Nothing happens until then.
    pub fn skip_to(&mut self, to: Time) {
        if self.agenda.first_at().is_none_or(|first| first > to) {
            self.pass(to);
        }
    }

    /// The clock goes on.
    fn pass(&mut self, to: Time) {
        while let Some(at) = self.story.samples_at(to) {
            let workers = self.pools.map(|pool| pool.workers);
            let mut queue = [0; POOLS];
            for tier in Tier::ALL {
                queue[tier.index()] = self.engine.tier_now(tier).queue;
            }
            self.story.sample(at, workers, queue);
        }
        self.now = self.now.max(to);
    }

    pub fn fail(&mut self, what: impl Into<String>) {
        self.story.fail(self.now, what.into());
    }

    /// Offers a task. Returns its slot in the ledger if it was accepted.
    pub fn submit(&mut self, order: Order) -> Option<u32> {
        let token = order.cancellable.then(CancellationToken::new);
        let slot = self.ledger.prepare(order, token.clone(), self.now);
        let task = task(&order, Guard { slot, mailbox: self.mailbox.clone() }, token);
        let at_once = order.patience == Patience::None;
        let reserved = at_once && order.tier == Tier::Critical;
        let reserve = if reserved { self.engine.options.critical_reserve } else { 0 };
        let offered = self.engine.offer(order.tier, task, self.now, order.patience);
        let accepted = match offered {
            Ok(id) => {
                self.ledger.accepted(slot, id, reserve);
                Some(slot)
            }
            Err((Refusal::Full, _task)) => {
                self.ledger.refused(slot, reserve, at_once);
                None
            }
            Err((Refusal::Stopped, _task)) => None,
        };
        let stopped = matches!(self.phase, Phase::Draining | Phase::Stopped);
        if stopped && accepted.is_some() {
            self.fail(format!("a task was accepted while the pools are {:?}", self.phase));
        }
        self.follow();
        self.count_event();
        accepted
    }

    /// Reads what the engine did to tasks in its last call, then does what it asked for.
    pub(super) fn follow(&mut self) {
        if self.read() {
            self.obey();
        }
    }

    /// Reads what the engine did to tasks; `false` if it did nothing at all. What it asked for must
    /// then be done with [`obey`](Self::obey).
    pub(super) fn read(&mut self) -> bool {
        if !self.mailbox.swap(&mut self.mail) {
            return false;
        }
        for letter in &self.mail.letters {
            self.ledger.buried(letter, self.now, self.phase);
        }
        for slot in &self.mail.dropped {
            self.ledger.dropped(*slot);
        }
        true
    }

    /// Does what the engine asked for.
    pub(super) fn obey(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        for home in &mail.deferred {
            self.pools[pool_of(*home)].deferred_at = Some(self.now);
        }
        for (seat, home, class) in &mail.starts {
            self.pools[pool_of(*home)].refused_in_a_row = 0;
            self.start_thread(*seat, *home, *class);
        }
        for home in &mail.refused {
            self.pools[pool_of(*home)].refused(self.now);
        }
        for seat in &mail.wakes {
            self.wake(*seat);
        }
        if mail.wakes_timer {
            self.wake_timer();
        }
        mail.clear();
        self.mail = mail;
        self.hear_ledger();
    }

    /// What the ledger finds wrong is part of the story.
    pub(super) fn hear_ledger(&mut self) {
        for fault in std::mem::take(&mut self.ledger.faults) {
            self.fail(fault);
        }
    }

    fn schedule_timer(&mut self, at: Time) {
        self.timer.epoch += 1;
        let what = What::Timer { epoch: self.timer.epoch };
        self.agenda.add(at, what, &mut self.chance);
    }

    /// Somebody asked for the timer.
    pub fn wake_timer(&mut self) {
        if !self.timer.waking && !self.timer.gone {
            self.timer.waking = true;
            let at = self.now + self.weather.wake_late.draw(&mut self.chance);
            self.schedule_timer(at);
        }
    }

    /// The timer is awake.
    fn tick(&mut self) {
        self.timer.waking = false;
        self.timer.gone = self.engine.is_over();
        if self.timer.gone {
            return;
        }
        self.last_tick_at = self.now;
        let next = self.engine.tick(self.now);
        self.timer.gone = self.engine.is_over();
        if let Some(next) = next
            && !self.timer.gone
        {
            let late = self.weather.timer_late.draw(&mut self.chance);
            self.schedule_timer(next.max(self.now) + late);
        }
        self.after_tick();
    }

    /// Time was looked at: some threads may have been given up, and then their tasks went on.
    pub(super) fn after_tick(&mut self) {
        self.find_abandoned();
        self.follow();
    }

    /// What a driver does that looks again when the last worker has gone: something may have come
    /// between its last look and its end.
    pub fn look_again(&mut self) {
        let deserted = std::mem::take(&mut self.deserted) && self.engine.workers() == 0;
        if deserted && self.obliging && !self.engine.is_drained() {
            self.engine.look_at_all(self.now);
            self.follow();
        }
    }

    /// Lets so many of 1024 threads not start.
    pub fn refuse_starts(&mut self, of_1024: u64) {
        self.mailbox.refuse(of_1024);
    }

    /// Whether nothing is going to happen by itself.
    pub fn is_dry(&self) -> bool {
        self.agenda.first_at().is_none()
    }

    /// The driver does nothing more.
    pub fn drop_inputs(&mut self) {
        self.agenda.drop_inputs();
    }

    /// Somebody cancels a task.
    pub fn cancel(&mut self, slot: u32, id: u64) {
        let entry = self.ledger.entry(slot);
        if entry.id != id {
            return;
        }
        if let Some(token) = entry.token.clone() {
            token.cancel();
            self.cancelled(slot);
        }
    }

    /// The pools are gone with everything they kept. Returns the story so far.
    pub fn close(mut self) -> Story {
        self.hear_ledger();
        let World { engine, mut ledger, seats, mailbox, mut mail, now, mut story, .. } = self;
        drop(seats);
        drop(engine);
        if story.is_broken() {
            return story;
        }
        mailbox.swap(&mut mail);
        for slot in &mail.dropped {
            ledger.zombies_are_gone(*slot);
            ledger.dropped(*slot);
        }
        for fault in std::mem::take(&mut ledger.faults) {
            story.fail(now, fault);
        }
        if ledger.in_use() > 0 {
            story.fail(now, format!("{} tasks are kept by nobody", ledger.in_use()));
        }
        story
    }
}

fn task(order: &Order, guard: Guard, token: Option<CancellationToken>) -> Task {
    let kind = order.nature.kind();
    let mut task = match order.nature {
        Nature::Future => Task::future(kind, move |_| {
            let _ = &guard;
            std::future::ready(Ok(()))
        }),
        Nature::Attentive | Nature::Deaf => Task::blocking(kind, move |_| {
            let _ = &guard;
            Ok(())
        }),
    };
    if let Some(timeout) = order.timeout {
        task = task.timeout(timeout);
    }
    if let Some(retries) = order.retries {
        task = task.retries(retries);
    }
    if let Some(limit) = order.start_within {
        task = task.start_within(limit);
    }
    if let Some(key) = order.key {
        task = task.serial_key(u64::from(key));
    }
    if order.idempotent {
        task = task.idempotent();
    }
    if let Some(busy) = order.busy {
        task = task.busy(busy);
    }
    match token {
        Some(token) => task.cancel_with(token),
        None => task,
    }
}

/// Whether a helper is one of those for the background.
pub(crate) fn is_behind(pool: usize, class: Class) -> bool {
    pool == SHARED && class == Class::Background
}
