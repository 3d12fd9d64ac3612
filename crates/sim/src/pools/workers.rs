//! Virtual threads: what the real ones do with the engine, one call at a time.

use super::agenda::What;
use super::hands::niceness;
use super::ledger::Phase;
use super::task::{End, Nature, Plan};
use super::world::{POOLS, SHARED, World, is_behind, pool_of};
use skep_policy::pools::Class;
use skep_policy::{Chance, Time};
use skep_pools::engine::{Claim, Ended, Home, Next, Worker};
use std::time::Duration;

/// Workers that pools may start in vain while they end.
const USELESS_STARTS_MAX: u32 = 50;

/// A place for a thread. Its number goes up with everything the thread decides.
#[derive(Default)]
pub(crate) struct Seat {
    pub epoch: u32,
    pub thread: Option<Thread>,
}

pub(crate) struct Thread {
    worker: Worker,
    pub pool: usize,
    class: Class,
    niceness: u8,
    pub doing: Doing,
    /// It was woken while it did not rest, so its next rest is short.
    token: bool,
    /// The time as it last read it.
    now: Time,
}

pub(crate) enum Doing {
    Starting,
    /// About to ask what to do.
    Asking,
    Resting {
        waking: bool,
    },
    Running(Attempt),
}

pub(crate) struct Attempt {
    claim: Claim,
    pub slot: u32,
    plan: Plan,
    pub gives_up_at: Time,
    /// The engine gave its thread up.
    pub abandoned: bool,
    /// The engine goes on without it.
    pub zombie: bool,
    told: bool,
}

impl World {
    pub(super) fn start_thread(&mut self, seat: usize, home: Home, class: Class) {
        if self.seats.len() <= seat {
            self.seats.resize_with(seat + 1, Seat::default);
        }
        if self.seats[seat].thread.is_some() {
            return self.fail(format!("seat {seat} was given to two workers"));
        }
        let (pool, now) = (pool_of(home), self.now);
        if self.phase == Phase::Draining && self.ledger.waiting == [0; 4] {
            // Whoever called for it may have taken the work itself; but not again and again.
            self.useless_starts += 1;
            if self.useless_starts > USELESS_STARTS_MAX {
                self.fail("workers are started without end to finish nothing");
                self.story.give_up();
            }
        }
        let worker = Worker::new(seat);
        let doing = Doing::Starting;
        let niceness = niceness(home, class);
        let thread = Thread { worker, pool, class, niceness, doing, token: false, now };
        self.seats[seat].thread = Some(thread);
        let own = &mut self.pools[pool];
        own.spawned += 1;
        own.workers += 1;
        own.workers_most = own.workers_most.max(own.workers);
        let all = self.pools.iter().map(|pool| pool.workers).sum();
        self.workers_most = self.workers_most.max(all);
        self.behind += u32::from(is_behind(pool, class));
        let late = self.weather.start_late.draw(&mut self.chance);
        self.schedule(seat, self.now + late);
    }

    fn schedule(&mut self, seat: usize, at: Time) {
        self.seats[seat].epoch += 1;
        let what = What::Worker { seat: seat as u32, epoch: self.seats[seat].epoch };
        self.agenda.add(at, what, &mut self.chance);
    }

    /// A thread does what it was about to do.
    pub(super) fn worker_goes_on(&mut self, seat: usize) {
        let now = self.now;
        let Some(thread) = &mut self.seats[seat].thread else { return };
        match &thread.doing {
            Doing::Starting => {
                thread.now = now;
                self.ask(seat);
            }
            Doing::Asking => self.ask(seat),
            Doing::Resting { .. } => self.got_up(seat),
            Doing::Running(_) => self.come_back(seat),
        }
    }

    fn ask(&mut self, seat: usize) {
        let Some(thread) = &mut self.seats[seat].thread else { return };
        thread.doing = Doing::Asking;
        let asked_at = thread.now;
        self.mailbox.called_by(thread.niceness);
        let next = self.engine.next(&mut thread.worker, asked_at);
        self.mailbox.called_by(0);
        let read = self.read();
        match next {
            Next::Run(claim) => self.begin(seat, claim, asked_at),
            Next::Linger { .. } => {
                let late = self.weather.linger.draw(&mut self.chance);
                self.schedule(seat, self.now + late);
            }
            Next::Rest(until) => self.lie_down(seat, until),
            Next::Leave => self.gone(seat),
        }
        if read {
            self.obey();
        }
    }

    fn begin(&mut self, seat: usize, claim: Claim, asked_at: Time) {
        let Some(slot) = self.ledger.started(&claim, asked_at) else {
            // Nobody can say what would be right from here on.
            self.hear_ledger();
            return self.story.give_up();
        };
        let order = self.ledger.entry(slot).order;
        self.busy += u32::from(order.is_busy_background());
        let plan = Plan::of(&order, &claim, self.now, &self.weather, &mut self.chance);
        let gives_up_at = claim.context.deadline() + self.engine.options.grace;
        let told = false;
        let attempt =
            Attempt { claim, slot, plan, gives_up_at, abandoned: false, zombie: false, told };
        if let Some(thread) = &mut self.seats[seat].thread {
            thread.doing = Doing::Running(attempt);
        }
        match plan.at {
            Some(at) => self.schedule(seat, at.max(self.now)),
            None => self.seats[seat].epoch += 1,
        }
    }

    fn lie_down(&mut self, seat: usize, until: Option<Time>) {
        let Some(thread) = &mut self.seats[seat].thread else { return };
        let woken = std::mem::take(&mut thread.token);
        thread.doing = Doing::Resting { waking: woken };
        let late = self.weather.wake_late.draw(&mut self.chance);
        match until {
            _ if woken => self.schedule(seat, self.now + late),
            Some(until) => self.schedule(seat, until.max(self.now) + late),
            None => self.seats[seat].epoch += 1,
        }
    }

    fn got_up(&mut self, seat: usize) {
        let Some(thread) = &mut self.seats[seat].thread else { return };
        thread.now = self.now;
        thread.doing = Doing::Asking;
        self.mailbox.called_by(thread.niceness);
        let leaves = self.engine.rested(&mut thread.worker, self.now);
        self.mailbox.called_by(0);
        self.goes_on_or_leaves(seat, leaves);
        self.follow();
    }

    fn goes_on_or_leaves(&mut self, seat: usize, leaves: bool) {
        if leaves {
            return self.gone(seat);
        }
        let late = self.weather.step_late.draw(&mut self.chance);
        self.schedule(seat, self.now + late);
    }

    /// An attempt comes to its end.
    fn come_back(&mut self, seat: usize) {
        let now = self.now;
        let Some(thread) = &mut self.seats[seat].thread else { return };
        let Doing::Running(attempt) = std::mem::replace(&mut thread.doing, Doing::Asking) else {
            return;
        };
        let order = self.ledger.entry(attempt.slot).order;
        let Some(ended) = attempt.plan.ended(order.nature, &attempt.claim, now) else {
            return self.dies(seat, Some(attempt));
        };
        self.busy -= u32::from(order.is_busy_background());
        self.note_end(&attempt, &ended);
        let Attempt { claim, slot, zombie, abandoned, .. } = attempt;
        let Some(thread) = &mut self.seats[seat].thread else { return };
        thread.now = now;
        self.mailbox.called_by(thread.niceness);
        let leaves = self.engine.ended(&mut thread.worker, claim, ended, now);
        self.mailbox.called_by(0);
        let read = self.read();
        if !zombie {
            self.ledger.settled(slot);
        }
        if abandoned && !leaves {
            self.fail(format!("the thread on seat {seat} was replaced and shall stay"));
        }
        self.abandoned_is_back(seat, abandoned);
        self.goes_on_or_leaves(seat, leaves);
        if read {
            self.obey();
        }
    }

    fn note_end(&mut self, attempt: &Attempt, ended: &Ended) {
        if attempt.zombie {
            self.ledger.zombie_ended(attempt.slot);
        } else {
            self.ledger.ends(attempt.slot, ended, attempt.abandoned, self.phase, self.now);
        }
    }

    fn abandoned_is_back(&mut self, seat: usize, abandoned: bool) {
        let Some(thread) = &self.seats[seat].thread else { return };
        if abandoned {
            // It counts as a worker again for the moment in which it goes.
            let pool = &mut self.pools[thread.pool];
            pool.abandoned -= 1;
            pool.freed_at = self.now;
            pool.workers += 1;
            self.behind += u32::from(is_behind(thread.pool, thread.class));
        }
    }

    /// A thread ends without a word, whatever it did.
    pub fn kill(&mut self, seat: usize) {
        let Some(thread) = &mut self.seats[seat].thread else { return };
        match std::mem::replace(&mut thread.doing, Doing::Asking) {
            // Before its first step a thread has nothing that could fail.
            Doing::Starting => thread.doing = Doing::Starting,
            Doing::Running(attempt) => self.dies(seat, Some(attempt)),
            Doing::Asking | Doing::Resting { .. } => self.dies(seat, None),
        }
    }

    fn dies(&mut self, seat: usize, attempt: Option<Attempt>) {
        let mut slot_to_settle = None;
        let mut abandoned = false;
        if let Some(attempt) = attempt {
            let order = self.ledger.entry(attempt.slot).order;
            self.busy -= u32::from(order.is_busy_background());
            self.note_end(&attempt, &Ended::Died);
            slot_to_settle = (!attempt.zombie).then_some(attempt.slot);
            abandoned = attempt.abandoned;
            // A thread that unwinds drops what it has in hand before anybody hears of its end.
            drop(attempt);
        }
        self.abandoned_is_back(seat, abandoned);
        let Some(mut thread) = self.seats[seat].thread.take() else { return };
        self.seats[seat].epoch += 1;
        if !abandoned {
            self.pools[thread.pool].died += 1;
        }
        self.left(thread.pool, thread.class);
        self.mailbox.called_by(thread.niceness);
        self.engine.died(&mut thread.worker, self.now);
        self.mailbox.called_by(0);
        let read = self.read();
        if let Some(slot) = slot_to_settle {
            self.ledger.settled(slot);
        }
        if read {
            self.obey();
        }
    }

    fn gone(&mut self, seat: usize) {
        self.seats[seat].epoch += 1;
        if let Some(thread) = self.seats[seat].thread.take() {
            self.left(thread.pool, thread.class);
        }
    }

    fn left(&mut self, pool: usize, class: Class) {
        self.pools[pool].workers -= 1;
        self.behind -= u32::from(is_behind(pool, class));
        self.deserted = true;
        self.last_left_at = self.now;
        if self.obliging {
            self.wake_timer();
        }
    }

    /// The engine, or nobody in particular, wakes a thread.
    pub fn wake(&mut self, seat: usize) {
        let late = self.weather.wake_late.draw(&mut self.chance);
        let Some(thread) = self.seats.get_mut(seat).and_then(|seat| seat.thread.as_mut()) else {
            return;
        };
        match &mut thread.doing {
            // Nobody knows the thread yet.
            Doing::Starting => {}
            Doing::Asking => thread.token = true,
            Doing::Resting { waking: true } => {}
            Doing::Resting { waking } => {
                *waking = true;
                self.schedule(seat, self.now + late);
            }
            Doing::Running(_) => self.tell(seat),
        }
    }

    /// A task may have been told to stop: some listen.
    fn tell(&mut self, seat: usize) {
        let grace = self.engine.options.grace;
        let Some(thread) = &mut self.seats[seat].thread else { return };
        let Doing::Running(attempt) = &mut thread.doing else { return };
        let nature = self.ledger.entry(attempt.slot).order.nature;
        thread.token |= nature != Nature::Future;
        if attempt.told || !attempt.claim.context.is_cancelled() {
            return;
        }
        attempt.told = true;
        let span = match nature {
            Nature::Deaf => return,
            Nature::Future => self.weather.wake_late.draw(&mut self.chance),
            Nature::Attentive => {
                let most = 2 * grace.as_micros() as u64;
                Duration::from_micros(self.chance.up_to(most))
            }
        };
        let at = self.now + span;
        if attempt.plan.at.is_none_or(|planned| at < planned) {
            attempt.plan = Plan { end: End::Stops, at: Some(at) };
            self.schedule(seat, at);
        }
    }

    /// A task's token was cancelled; if it runs, its worker hears of it.
    pub(super) fn cancelled(&mut self, slot: u32) {
        for seat in 0..self.seats.len() {
            let runs = self.attempt_on(seat).is_some_and(|attempt| attempt.slot == slot);
            if runs {
                self.tell(seat);
            }
        }
    }

    pub(super) fn attempt_on(&self, seat: usize) -> Option<&Attempt> {
        match &self.seats.get(seat)?.thread.as_ref()?.doing {
            Doing::Running(attempt) => Some(attempt),
            _ => None,
        }
    }

    fn attempt_on_mut(&mut self, seat: usize) -> Option<&mut Attempt> {
        match &mut self.seats.get_mut(seat)?.thread.as_mut()?.doing {
            Doing::Running(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// Ends what runs on a seat now, in this way.
    pub fn end_attempt(&mut self, seat: usize, end: End) {
        let now = self.now;
        if let Some(attempt) = self.attempt_on_mut(seat) {
            attempt.plan = Plan { end, at: Some(now) };
            self.schedule(seat, now);
        }
    }

    /// The seats on which something runs.
    pub fn running_seats(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|seat| self.attempt_on(*seat).is_some()).collect()
    }

    /// Whoever hangs comes back within this time.
    pub fn release(&mut self, within: Duration) {
        for seat in 0..self.seats.len() {
            let after = Duration::from_micros(self.chance.up_to(within.as_micros() as u64));
            let at = self.now + after;
            if let Some(attempt) = self.attempt_on_mut(seat)
                && attempt.plan.at.is_none()
            {
                attempt.plan.at = Some(at);
                self.schedule(seat, at);
            }
        }
    }

    /// Notices whom the engine gave up.
    pub(super) fn find_abandoned(&mut self) {
        let now = self.now;
        let due = |attempt: &Attempt| !attempt.abandoned && attempt.gives_up_at <= now;
        if !(0..self.seats.len()).any(|seat| self.attempt_on(seat).is_some_and(due)) {
            return;
        }
        for stuck in self.engine.stuck(now).into_iter().filter(|stuck| stuck.abandoned) {
            let phase = self.phase;
            let Some(attempt) = self.attempt_on_mut(stuck.worker) else {
                self.fail(format!("seat {} was given up without a task", stuck.worker));
                continue;
            };
            if attempt.abandoned {
                continue;
            }
            attempt.abandoned = true;
            let (slot, early) = (attempt.slot, now < attempt.gives_up_at);
            let taken_over = !attempt.zombie && self.ledger.entry(slot).order.idempotent;
            if taken_over {
                if let Some(attempt) = self.attempt_on_mut(stuck.worker) {
                    attempt.zombie = true;
                }
                self.ledger.ends(slot, &Ended::TimedOut, false, phase, now);
                self.ledger.is_zombie(slot);
                self.story.note("taken_over");
            }
            if early {
                self.fail(format!("seat {} was given up too early", stuck.worker));
            }
            self.count_abandoned(stuck.worker);
        }
    }

    fn count_abandoned(&mut self, seat: usize) {
        let Some(thread) = &self.seats[seat].thread else { return };
        let pool = &mut self.pools[thread.pool];
        pool.workers -= 1;
        pool.abandoned += 1;
        pool.abandoned_total += 1;
        self.behind -= u32::from(is_behind(thread.pool, thread.class));
    }

    /// The pools no longer wait for what runs.
    pub(super) fn give_up_running(&mut self) {
        for seat in 0..self.seats.len() {
            if let Some(attempt) = self.attempt_on_mut(seat)
                && !std::mem::replace(&mut attempt.zombie, true)
            {
                let slot = attempt.slot;
                self.ledger.given_up(slot);
            }
        }
        self.engine.give_up_running(self.now);
        self.follow();
        self.hear_ledger();
    }

    /// Tasks in the hands of workers that the engine still waits for.
    pub(super) fn running_ids(&self) -> Vec<u64> {
        let held = (0..self.seats.len()).filter_map(|seat| self.attempt_on(seat));
        held.filter(|attempt| !attempt.zombie).map(|one| one.claim.context.id()).collect()
    }

    /// Workers of a pool that rest and are not being woken.
    pub fn resting(&self, pool: usize) -> usize {
        self.rest(|thread| thread.pool == pool)
    }

    /// Shared workers of a class that rest and are not being woken.
    pub fn resting_helpers(&self, class: Class) -> usize {
        self.rest(|thread| thread.pool == SHARED && thread.class == class)
    }

    fn rest(&self, whose: impl Fn(&Thread) -> bool) -> usize {
        let rests = |thread: &&Thread| matches!(thread.doing, Doing::Resting { waking: false });
        let threads = self.seats.iter().filter_map(|seat| seat.thread.as_ref());
        threads.filter(rests).filter(|thread| whose(thread)).count()
    }

    /// Whether nobody is on the way to do something: all rest, or run.
    pub fn is_settled(&self) -> bool {
        let settled = |thread: &Thread| {
            matches!(thread.doing, Doing::Resting { waking: false } | Doing::Running(_))
        };
        !self.timer.waking && self.seats.iter().filter_map(|seat| seat.thread.as_ref()).all(settled)
    }

    /// Whether somebody hangs until they are released.
    pub fn hangs(&self) -> bool {
        let hangs = |attempt: &Attempt| attempt.plan.at.is_none();
        (0..self.seats.len()).any(|seat| self.attempt_on(seat).is_some_and(hangs))
    }

    pub fn seat_count(&self) -> usize {
        self.seats.len()
    }

    /// Threads of each pool that run an attempt.
    pub fn running_by_pool(&self) -> [u32; POOLS] {
        let mut running = [0; POOLS];
        for seat in &self.seats {
            if let Some(Thread { pool, doing: Doing::Running(_), .. }) = &seat.thread {
                running[*pool] += 1;
            }
        }
        running
    }
}
