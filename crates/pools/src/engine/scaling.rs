//! Workers come and go.

use super::{DRAINING, Engine, OPEN, STOPPED};
use crate::journal::{Action, Pool};
use crate::lane::count;
use crate::later::Due;
use crate::seat::{Home, Occupant};
use crate::sync::lock;
use skep_policy::Time;
use skep_policy::pools::{Class, Help, Ratio, Scale, Tier, Verdict, scale};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// So long after it has grown a tier lets nobody go. The gap between the ratios keeps a steady
/// queue from calling workers and sending them away; this does so where the new worker itself
/// empties it.
const SETTLES_NANOS: u64 = 1_000_000_000;

/// The wait after a thread could not be started, doubled with each failure in a row.
const START_AGAIN_AFTER: Duration = Duration::from_millis(100);
const START_AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);

impl Engine {
    fn verdict(&self, tier: Tier) -> Verdict {
        scale(
            tier.class(),
            &self.rules[tier.index()],
            self.options.shared.steal_above,
            self.tier_now(tier),
            u16::try_from(self.shared.workers_of(Class::Express)).unwrap_or(u16::MAX),
        )
    }

    /// The queue length up to which there is nothing to decide about a tier when a task comes.
    /// Reads only what seldom changes, so that most submissions need not look any further.
    pub(crate) fn quiet_up_to(&self, tier: Tier) -> u64 {
        let rules = &self.rules[tier.index()];
        let workers = self.lane(tier).workers.load(Ordering::SeqCst);
        let times =
            |ratio: Ratio, count: u32| u64::from(ratio.thousandths()) * u64::from(count) / 1_000;
        let growing = if workers < u32::from(rules.min) {
            0
        } else if workers < u32::from(rules.max) {
            times(rules.up, workers)
        } else {
            u64::MAX
        };
        let helping = match tier.class() {
            Class::Background if self.is_help_possible(Class::Background) => {
                u64::from(self.options.shared.steal_above)
            }
            Class::Express
                if workers >= u32::from(rules.max) && self.is_help_possible(Class::Express) =>
            {
                if self.shared.handoff(Class::Express).idle() > 0
                    || self.shared.workers_of(Class::Express) == 0
                {
                    0
                } else {
                    times(rules.overflow, u32::from(rules.max))
                }
            }
            _ => u64::MAX,
        };
        growing.min(helping)
    }

    /// Could a helper be woken or started at all?
    pub(crate) fn is_help_possible(&self, class: Class) -> bool {
        self.may_help(class)
            && (self.shared.handoff(class).idle() > 0 || !self.has_all_helpers(class))
    }

    fn has_all_helpers(&self, class: Class) -> bool {
        let rules = &self.options.shared;
        // The places of those who are always there are not for the background.
        let behind_max = rules.background_max.min(rules.max - rules.min);
        self.helpers() >= u32::from(rules.max)
            || (class == Class::Background
                && self.shared.workers_of(class) >= u32::from(behind_max))
    }

    fn helpers(&self) -> u32 {
        self.shared.workers_of(Class::Express) + self.shared.workers_of(Class::Background)
    }

    /// Looks at a tier after something happened in it: starts a worker or a helper, or wakes one.
    /// Returns whether a thread was started.
    pub(crate) fn evaluate(&self, tier: Tier, now: Time) -> bool {
        let verdict = self.verdict(tier);
        let grown = verdict.scale == Scale::Spawn && self.grow(tier, now);
        let class = tier.class();
        let helped = match verdict.help {
            Help::Standby => self.start_helper(class, now, "standby"),
            Help::One if self.may_help(class) => self.help(class, now),
            Help::One | Help::No => {
                self.wake_helper(tier, &verdict);
                false
            }
        };
        self.keep_helpers(now);
        grown || helped
    }

    /// A task is due again while the pools drain. Those who had nothing to do have left, and a
    /// tier's own workers may do what waited elsewhere, so that a few tasks for each are too many.
    pub(crate) fn help_to_drain(&self, tier: Tier, now: Time) {
        if self.phase() == DRAINING && self.lane(tier).has_work() {
            self.start_helper(tier.class(), now, "drain");
        }
    }

    /// Starts everybody a tier is short of, after nobody could be started for a while.
    pub(crate) fn catch_up(&self, tier: Tier, now: Time) {
        while self.evaluate(tier, now) {}
    }

    /// Starts the helpers that are always there, where some are missing.
    pub(crate) fn keep_helpers(&self, now: Time) {
        let least = u32::from(self.options.shared.min);
        while self.shared.workers_of(Class::Express) < least
            && self.start_helper(Class::Express, now, "minimum")
        {}
    }

    /// Whether a worker that starts now would leave at once: the pools end, and nothing is left
    /// that could be started.
    fn is_of_no_use(&self, home: Home, class: Class) -> bool {
        match self.phase() {
            OPEN => false,
            STOPPED => true,
            _ => !self.drains(home, class).any(|tier| self.lane(tier).has_work()),
        }
    }

    /// A helper that rests gets up as soon as there is something it may take.
    fn wake_helper(&self, tier: Tier, verdict: &Verdict) {
        let class = tier.class();
        let handoff = self.shared.handoff(class);
        if verdict.now.queue == 0 || handoff.idle() == 0 {
            return;
        }
        let may_take = match class {
            Class::Express => verdict.now.is_maxed(&self.rules[tier.index()]),
            Class::Background => {
                verdict.now.queue > self.options.shared.steal_above && self.may_help(class)
            }
        };
        if may_take && let Some(worker) = handoff.notify() {
            self.wake(worker);
        }
    }

    /// Tasks of the background tiers that keep a processor busy now.
    pub fn busy_background(&self) -> u32 {
        self.shared.busy.load(Ordering::SeqCst)
    }

    /// Is there a processor for one more background task?
    pub(crate) fn may_help(&self, class: Class) -> bool {
        class == Class::Express
            || self.shared.busy.load(Ordering::SeqCst)
                < u32::from(self.options.shared.background_max)
    }

    /// One more helper at work: one that rests, or a new one.
    fn help(&self, class: Class, now: Time) -> bool {
        let handoff = self.shared.handoff(class);
        if handoff.idle() == 0 {
            return self.start_helper(class, now, "overflow");
        }
        if let Some(worker) = handoff.notify() {
            self.wake(worker);
        }
        false
    }

    /// Starts one more worker in a tier, if the policy still wants it; below the minimum all that
    /// are missing, because it may be long until somebody looks again.
    pub(crate) fn grow(&self, tier: Tier, now: Time) -> bool {
        let least = u32::from(self.rules[tier.index()].min);
        let grown = self.start_worker(tier, now);
        let is_short = || self.lane(tier).workers.load(Ordering::SeqCst) < least;
        while grown && is_short() && self.start_worker(tier, now) {}
        grown
    }

    fn start_worker(&self, tier: Tier, now: Time) -> bool {
        let lane = self.lane(tier);
        let (worker, verdict, workers) = {
            let mut control = lock(&lane.control);
            let verdict = self.verdict(tier);
            if verdict.scale != Scale::Spawn
                || now < control.no_start_before
                || self.is_of_no_use(Home::Tier(tier), tier.class())
            {
                return false;
            }
            if !self.hands.can_start(Home::Tier(tier), tier.class()) {
                drop(control);
                self.leave_to_timer(&[tier], now);
                return false;
            }
            let Some(worker) = control.free.pop() else { return false };
            (worker, verdict, lane.workers.fetch_add(1, Ordering::SeqCst) + 1)
        };
        self.seats[worker].state().occupant = Occupant::Worker;
        match self.hands.start(worker, Home::Tier(tier), tier.class()) {
            Ok(()) => {
                count(&lane.counts.spawned);
                lane.grown_at.store(now.as_nanos(), Ordering::Relaxed);
                let mut control = lock(&lane.control);
                control.start_failures = 0;
                drop(control);
                self.journal.note(now, Pool::Tier(tier), Action::Spawn, workers, Some(verdict));
                // The tier may be as large as it can be now, and want a helper beside it.
                if verdict.now.workers + 1 >= self.rules[tier.index()].max {
                    self.stand_by(tier, now);
                }
                true
            }
            Err(error) => {
                self.seats[worker].state().occupant = Occupant::Nobody;
                count(&lane.counts.start_failed);
                let again = {
                    let mut control = lock(&lane.control);
                    control.free.push(worker);
                    let left = lane.workers.fetch_sub(1, Ordering::SeqCst) - 1;
                    self.journal.note_failed_start(now, Pool::Tier(tier), left, &error);
                    later_again(&mut control, now)
                };
                self.look_again(&[tier], again);
                false
            }
        }
    }

    /// A thread could not be started: these tiers may still need one then.
    pub(super) fn look_again(&self, tiers: &[Tier], at: Time) {
        for tier in tiers {
            self.later.add(at, Due::Check(*tier));
        }
        self.remember(at);
    }

    /// A thread has to be started, and not from here.
    fn leave_to_timer(&self, tiers: &[Tier], now: Time) {
        for tier in tiers {
            if !self.lane(*tier).is_to_be_checked.swap(true, Ordering::SeqCst) {
                self.later.add(now, Due::Check(*tier));
            }
        }
        self.remember(now);
    }

    fn stand_by(&self, tier: Tier, now: Time) {
        if self.verdict(tier).help == Help::Standby {
            self.start_helper(Class::Express, now, "standby");
        }
    }

    /// Starts a worker of the shared pool, if there may be one more.
    fn start_helper(&self, class: Class, now: Time, why: &'static str) -> bool {
        let shared = &self.shared;
        // Without the lock first: under load this is asked with every task.
        if self.has_all_helpers(class) || self.is_of_no_use(Home::Shared, class) {
            return false;
        }
        let (worker, workers) = {
            let mut control = lock(&shared.control);
            let superfluous = why == "standby" && shared.workers_of(Class::Express) > 0;
            if self.has_all_helpers(class) || superfluous || now < control.no_start_before {
                return false;
            }
            if !self.hands.can_start(Home::Shared, class) {
                drop(control);
                self.leave_to_timer(&class.tiers(), now);
                return false;
            }
            let Some(worker) = control.free.pop() else { return false };
            shared.workers[class as usize].fetch_add(1, Ordering::SeqCst);
            (worker, self.helpers())
        };
        {
            let mut state = self.seats[worker].state();
            state.occupant = Occupant::Worker;
            state.class = class;
        }
        match self.hands.start(worker, Home::Shared, class) {
            Ok(()) => {
                count(&shared.counts.spawned);
                lock(&shared.control).start_failures = 0;
                self.journal.note(now, Pool::Shared, Action::Help(why), workers, None);
                true
            }
            Err(error) => {
                self.seats[worker].state().occupant = Occupant::Nobody;
                count(&shared.counts.start_failed);
                let again = {
                    let mut control = lock(&shared.control);
                    control.free.push(worker);
                    shared.workers[class as usize].fetch_sub(1, Ordering::SeqCst);
                    self.journal.note_failed_start(now, Pool::Shared, self.helpers(), &error);
                    later_again(&mut control, now)
                };
                self.look_again(&Tier::ALL, again);
                false
            }
        }
    }

    /// A worker that has just finished a task: shall it go?
    pub(crate) fn retires(&self, worker: usize, now: Time) -> bool {
        let Home::Tier(tier) = self.seats[worker].home else { return false };
        let lane = self.lane(tier);
        let grown = now.as_nanos().saturating_sub(lane.grown_at.load(Ordering::Relaxed));
        if grown < SETTLES_NANOS
            || self.phase() != OPEN
            || self.verdict(tier).scale != Scale::Retire
        {
            return false;
        }
        // Under the lock, so that of several who finish together each sees the others go.
        let mut control = lock(&lane.control);
        let verdict = self.verdict(tier);
        if verdict.scale != Scale::Retire {
            return false;
        }
        let left = lane.workers.fetch_sub(1, Ordering::SeqCst) - 1;
        self.vacate(worker, &mut control);
        drop(control);
        count(&lane.counts.retired);
        self.journal.note(now, Pool::Tier(tier), Action::Retire, left, Some(verdict));
        self.release_standby();
        true
    }

    /// A worker rested for as long as it may: shall it go? It is no longer among those who rest.
    pub(crate) fn leaves_idle(&self, worker: usize, now: Time) -> bool {
        match self.seats[worker].home {
            Home::Tier(tier) => {
                let lane = self.lane(tier);
                let mut control = lock(&lane.control);
                let workers = lane.workers.load(Ordering::SeqCst);
                if workers <= u32::from(lane.options.rules.min) {
                    return false;
                }
                lane.workers.fetch_sub(1, Ordering::SeqCst);
                self.vacate(worker, &mut control);
                drop(control);
                count(&lane.counts.retired);
                self.journal.note(now, Pool::Tier(tier), Action::Idle, workers - 1, None);
                self.release_standby();
            }
            Home::Shared => {
                let class = self.seats[worker].state().class;
                let mut control = lock(&self.shared.control);
                if self.helper_stays(class) {
                    return false;
                }
                self.shared.workers[class as usize].fetch_sub(1, Ordering::SeqCst);
                self.vacate(worker, &mut control);
                drop(control);
                count(&self.shared.counts.retired);
                self.journal.note(now, Pool::Shared, Action::Idle, self.helpers(), None);
                // The other class may have waited for its place.
                for tier in Tier::ALL {
                    if self.lane(tier).has_work() {
                        self.evaluate(tier, now);
                    }
                }
            }
        }
        true
    }

    /// One helper stays while a tier that it stands by for has all its workers, and as many as are
    /// always there.
    fn helper_stays(&self, class: Class) -> bool {
        let at_max = |tier: Tier| {
            self.lane(tier).workers.load(Ordering::SeqCst)
                >= u32::from(self.rules[tier.index()].max)
        };
        let standby = u16::from(class.tiers().into_iter().any(at_max));
        class == Class::Express
            && self.shared.workers_of(class) <= u32::from(self.options.shared.min.max(standby))
    }

    /// How long a worker that finds nothing may rest before it goes; `None` if it stays.
    pub(crate) fn rests_until(&self, worker: usize, now: Time) -> Option<Time> {
        match self.seats[worker].home {
            Home::Tier(tier) => {
                let lane = self.lane(tier);
                let above = lane.workers.load(Ordering::SeqCst) > u32::from(lane.options.rules.min);
                above.then(|| now + lane.options.idle_timeout)
            }
            Home::Shared => {
                let class = self.seats[worker].state().class;
                (!self.helper_stays(class)).then(|| now + self.options.shared_idle_timeout)
            }
        }
    }

    /// A tier is no longer at its maximum: the helpers that stood by without a limit get one.
    pub(crate) fn release_standby(&self) {
        if self.shared.workers_of(Class::Express) > 0 && !self.helper_stays(Class::Express) {
            for worker in self.shared.handoff(Class::Express).resting() {
                self.wake(worker);
            }
        }
    }

    /// The seat is free for somebody else.
    pub(crate) fn vacate(&self, worker: usize, control: &mut crate::lane::Control) {
        self.seats[worker].state().occupant = Occupant::Nobody;
        control.free.push(worker);
    }
}

fn later_again(control: &mut crate::lane::Control, now: Time) -> Time {
    let doubled = START_AGAIN_AFTER.saturating_mul(1 << control.start_failures.min(16));
    control.start_failures += 1;
    control.no_start_before = now + doubled.min(START_AGAIN_AFTER_MAX);
    control.no_start_before
}
