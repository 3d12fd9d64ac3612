//! What must hold at any moment, and what must hold when everything has come to rest.

use super::ledger::{Counts, Phase};
use super::world::{POOLS, SHARED, World};
use skep_policy::pools::Tier;
use skep_policy::{Chance, Time};
use skep_pools::PoolStats;

pub(crate) const NAMES: [&str; POOLS] = ["critical", "high", "normal", "low", "shared"];

impl World {
    fn limits(&self, pool: usize) -> (u32, u32) {
        let options = &self.engine.options;
        match Tier::ALL.get(pool) {
            Some(tier) => {
                let rules = &options.tier(*tier).rules;
                (u32::from(rules.min), u32::from(rules.max))
            }
            None => (u32::from(options.shared.min), u32::from(options.shared.max)),
        }
    }

    /// What must hold at any moment.
    pub(super) fn check(&mut self) {
        let mut own = 0;
        for tier in Tier::ALL {
            let found = self.engine.tier_now(tier);
            let pool = tier.index();
            let (workers, waiting) = (self.pools[pool].workers, self.ledger.waiting[pool]);
            own += u32::from(found.workers);
            if u32::from(found.workers) != workers {
                self.fail(format!("{tier} says {} workers of {workers}", found.workers));
            }
            if found.queue as usize > waiting {
                self.fail(format!("{tier} says that {} of {waiting} wait", found.queue));
            }
            if found.idle > found.workers {
                self.fail(format!("{tier} says {} of {} rest", found.idle, found.workers));
            }
        }
        let shared = self.engine.workers() - own;
        if shared != self.pools[SHARED].workers {
            self.fail(format!("shared says {shared} of {}", self.pools[SHARED].workers));
        }
        let behind_max = u32::from(self.engine.options.shared.background_max);
        if self.behind > behind_max {
            self.fail(format!("{} background helpers of at most {behind_max}", self.behind));
        }
        let busy = self.engine.busy_background();
        if busy != self.busy {
            self.fail(format!("{busy} background tasks are said to be busy, {} are", self.busy));
        }
        for pool in 0..POOLS {
            self.check_pool(pool);
        }
        self.check_given_up();
        // Costs more than the others, because it looks at every task.
        if self.chance.up_to(7) == 0 {
            self.check_retries();
        }
    }

    /// A retry whose time has come can be started.
    fn check_retries(&mut self) {
        self.check_retries_of(self.now - self.slack);
    }

    /// Every retry that was to come before this time can be started now.
    pub(super) fn check_retries_of(&mut self, time: Time) {
        for tier in Tier::ALL {
            let due = self.ledger.due_before(tier, time);
            let ready = self.engine.tier_now(tier).queue as usize;
            if due > ready && !self.timer.gone {
                self.fail(format!("{tier}: {due} retries are due and {ready} tasks can start"));
            }
        }
    }

    fn check_pool(&mut self, pool: usize) {
        let (min, max) = self.limits(pool);
        let found = self.pools[pool];
        let name = NAMES[pool];
        if found.workers > max || found.abandoned > max {
            self.fail(format!("{name}: {found:?}, the most is {max}"));
        }
        let forgotten = |deferred| deferred + self.slack < self.now && self.last_tick_at < deferred;
        if found.deferred_at.is_some_and(forgotten) && !self.timer.gone {
            self.fail(format!("{name}: a start was left to a timer that sleeps"));
        }
        // Of the helpers only those for the urgent tiers are always there.
        let lasting = found.workers - if pool == SHARED { self.behind } else { 0 };
        if lasting < min && self.phase == Phase::Open {
            // A start is tried again after its pause, and where it was left to the timer, soon.
            let excused = [found.paused_until, found.deferred_at];
            if !excused.into_iter().flatten().any(|until| until + self.slack >= self.now) {
                self.fail(format!("{name}: {found:?}, the least is {min}"));
            }
        }
    }

    /// Who does not come back in time is replaced, as long as not too many are.
    fn check_given_up(&mut self) {
        if self.timer.gone {
            return;
        }
        for seat in 0..self.seats.len() {
            let Some(pool) = self.seats[seat].thread.as_ref().map(|thread| thread.pool) else {
                continue;
            };
            let Some(attempt) = self.attempt_on(seat) else { continue };
            let due = attempt.gives_up_at.max(self.pools[pool].freed_at);
            let overdue = due + self.slack < self.now;
            if overdue && !attempt.abandoned {
                if self.pools[pool].abandoned < self.limits(pool).1 {
                    self.fail(format!("seat {seat} of {} is not given up", NAMES[pool]));
                } else {
                    self.story.note("at_abandoned_bound");
                }
            }
        }
    }

    /// Nothing is going to happen before the timer looks again, so nobody may rest beside work that
    /// is theirs, and no help may be missing that can be had.
    pub(super) fn check_settled(&mut self) {
        let pauses = |until| until + self.slack >= self.now;
        let pauses = self.pools.iter().any(|pool| pool.paused_until.is_some_and(pauses));
        if self.phase != Phase::Open || pauses || !self.is_settled() {
            return;
        }
        let options = self.engine.options.clone();
        let shared = options.shared;
        for tier in Tier::ALL {
            let found = self.engine.tier_now(tier);
            let resting = self.resting(tier.index());
            if found.queue == 0 {
                continue;
            }
            if resting > 0 {
                self.fail(format!("{tier}: {resting} rest beside {} tasks", found.queue));
            }
            let (helped, missing) = match tier {
                Tier::Critical | Tier::High => {
                    let helpers = self.pools[SHARED].workers - self.behind;
                    (found.is_maxed(&options.tier(tier).rules), helpers == 0)
                }
                Tier::Normal | Tier::Low => {
                    let many = found.queue > shared.steal_above;
                    let places = shared.background_max.min(shared.max - shared.min);
                    (
                        many && self.busy < u32::from(shared.background_max),
                        self.behind < u32::from(places),
                    )
                }
            };
            let helpers = self.resting_helpers(tier.class());
            if helped && helpers > 0 {
                self.fail(format!("{tier}: {helpers} helpers rest beside {}", found.queue));
            }
            let possible = self.pools[SHARED].workers < u32::from(shared.max);
            if helped && missing && possible {
                self.fail(format!("{tier}: nobody helps beside {} tasks", found.queue));
            }
        }
    }

    /// Everything has come to rest: no task is left, nobody is there who need not be, and what the
    /// engine counted is what happened.
    pub(super) fn check_at_rest(&mut self) {
        self.check();
        self.check_settled();
        self.check_retries();
        let left = self.ledger.unfinished();
        if !left.is_empty() {
            let first: Vec<_> = left.iter().take(5).collect();
            self.fail(format!("{} tasks never end, such as {first:?}", left.len()));
        }
        if self.phase == Phase::Open && self.story.failures.is_empty() {
            self.check_minimum();
        }
        if left.is_empty() && self.running_by_pool() == [0; POOLS] && !self.engine.is_drained() {
            self.fail("nothing is left, and the engine says that something is");
        }
        self.compare_counts();
    }

    fn check_minimum(&mut self) {
        let rules = |tier| self.engine.options.tier(tier).rules;
        // A tier that never grows is always as large as it can be, and keeps one helper.
        let keeps = [Tier::Critical, Tier::High].map(rules).iter().any(|one| one.min == one.max);
        for (pool, name) in NAMES.into_iter().enumerate() {
            let (min, _) = self.limits(pool);
            let most = if pool == SHARED && keeps { min.max(1) } else { min };
            let workers = self.pools[pool].workers;
            if workers < min || workers > most {
                self.fail(format!("{name}: {workers} workers at rest, not {min}"));
            }
        }
    }

    fn compare_counts(&mut self) {
        let stats = self.engine.stats();
        for (tier, found) in stats.iter().enumerate().take(SHARED) {
            let counted = counted(found);
            let expected = self.ledger.counts[tier];
            if counted != expected {
                self.fail(format!("{}: {counted:?} counted, {expected:?} happened", found.name));
            }
        }
        for (pool, found) in stats.iter().enumerate() {
            let (totals, own) = (&found.totals, self.pools[pool]);
            let counted =
                (totals.spawned, totals.start_failed, totals.died, totals.abandoned_total);
            let happened = (own.spawned, own.refused, own.died, own.abandoned_total);
            if counted != happened || totals.abandoned != u64::from(own.abandoned) {
                self.fail(format!("{}: {totals:?} counted, {own:?} happened", found.name));
            }
        }
    }
}

fn counted(found: &PoolStats) -> Counts {
    let totals = &found.totals;
    Counts {
        accepted: totals.accepted,
        rejected: totals.rejected,
        over_capacity: totals.over_capacity,
        done: found.total_processed,
        dead: found.total_failed,
        failed_attempts: totals.failed_attempts,
        retried: totals.retried,
        timed_out: totals.timed_out,
        panicked: totals.panicked,
        expired: totals.expired,
        cancelled: totals.cancelled,
        dropped: totals.dropped,
        late: totals.late,
    }
}
