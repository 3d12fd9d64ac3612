//! What can be set, and what it is if nobody sets it.

use skep_policy::backoff;
use skep_policy::pools::{Ratio, SharedRules, Sizes, Tier, TierRules};
use std::time::Duration;

/// Workers that a pool can have.
pub const WORKERS_MAX: u16 = 4_096;
/// Tasks that a queue can hold.
pub const QUEUE_MAX: usize = 1_000_000;

/// The options of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// When it grows and shrinks.
    pub rules: TierRules,
    /// Tasks that may wait, those that wait for a retry included.
    pub queue: usize,
    /// After this time without work a worker above the minimum goes.
    pub idle_timeout: Duration,
    /// How long an attempt may run.
    pub task_timeout: Duration,
    /// How often a task is tried again.
    pub retries: u32,
    /// How the waits between attempts grow.
    pub backoff: backoff::Options,
}

/// The options of all pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The tiers, in the order of [`Tier::ALL`].
    pub tiers: [TierOptions; 4],
    /// The pool that helps.
    pub shared: SharedRules,
    /// After this time without work a shared worker goes.
    pub shared_idle_timeout: Duration,
    /// Dead letters that are kept of a tier; the oldest goes first.
    pub dead_letters_max: usize,
    /// How long blocking code has to notice that its time is over, before its thread is abandoned.
    pub grace: Duration,
    /// Places beyond the critical queue that [`try_submit`](crate::Pools::try_submit) may use when
    /// it is full.
    pub critical_reserve: usize,
}

impl Options {
    /// The options for a machine on which other programs run too.
    pub fn new(cores: u16) -> Self {
        let tier = |tier| TierOptions::of(tier);
        Options {
            tiers: Tier::ALL.map(tier),
            shared: SharedRules { min: 0, max: 12, steal_above: 10, background_max: cores.max(1) },
            shared_idle_timeout: Duration::from_secs(30),
            dead_letters_max: 1_000,
            grace: Duration::from_millis(10),
            critical_reserve: 16,
        }
    }

    /// The same with these sizes. A queue that would be shorter than its workers are many grows.
    #[must_use]
    pub fn sized(mut self, sizes: Sizes) -> Self {
        for (tier, max) in [(Tier::Critical, sizes.critical), (Tier::High, sizes.high)] {
            let own = self.tier_mut(tier);
            own.rules.max = max;
            own.queue = own.queue.max(usize::from(max));
        }
        self.shared.max = sizes.shared;
        self
    }

    /// The options of a tier.
    pub fn tier(&self, tier: Tier) -> &TierOptions {
        &self.tiers[tier.index()]
    }

    /// The options of a tier, to change them.
    pub fn tier_mut(&mut self, tier: Tier) -> &mut TierOptions {
        &mut self.tiers[tier.index()]
    }

    /// The rules of all tiers.
    pub(crate) fn rules(&self) -> [TierRules; 4] {
        self.tiers.map(|tier| tier.rules)
    }

    /// Everything that is wrong with these options.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for tier in Tier::ALL {
            let own = self.tier(tier).problems();
            problems.extend(own.into_iter().map(|problem| format!("{tier}: {problem}")));
        }
        if self.critical_reserve > QUEUE_MAX {
            problems.push(format!(
                "critical: the reserve ({}) is above {QUEUE_MAX} tasks",
                self.critical_reserve
            ));
        }
        if self.shared.max < self.shared.min {
            problems.push(format!(
                "shared: max ({}) cannot be below min ({})",
                self.shared.max, self.shared.min
            ));
        }
        if self.shared.max > WORKERS_MAX {
            problems.push(format!("shared: max ({}) is above {WORKERS_MAX}", self.shared.max));
        }
        if self.shared.background_max == 0 {
            problems.push("shared: the background needs at least 1 processor".to_owned());
        }
        problems
    }
}

impl TierOptions {
    /// What a tier has if nobody sets anything.
    pub fn of(tier: Tier) -> Self {
        let (max, queue, task_timeout, retries) = match tier {
            Tier::Critical => (4, 100, 5, 1),
            Tier::High => (6, 500, 30, 3),
            Tier::Normal => (1, 200, 60, 5),
            Tier::Low => (1, 100, 120, 5),
        };
        let (up, down, idle) = match tier {
            Tier::Critical | Tier::High => (5, 2, 30),
            Tier::Normal | Tier::Low => (10, 3, 60),
        };
        let cap = if tier == Tier::Critical { 1 } else { 30 };
        TierOptions {
            rules: TierRules {
                min: 1,
                max,
                up: Ratio::whole(up),
                down: Ratio::whole(down),
                overflow: Ratio::whole(5),
            },
            queue,
            idle_timeout: Duration::from_secs(idle),
            task_timeout: Duration::from_secs(task_timeout),
            retries,
            backoff: backoff::Options {
                base: Duration::from_millis(100),
                cap: Duration::from_secs(cap),
            },
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.rules.problems();
        if self.rules.max > WORKERS_MAX {
            problems.push(format!("max ({}) is above {WORKERS_MAX}", self.rules.max));
        }
        if self.queue < usize::from(self.rules.max) || self.queue > QUEUE_MAX {
            problems.push(format!(
                "the queue ({}) must hold from max ({}) to {QUEUE_MAX} tasks",
                self.queue, self.rules.max
            ));
        }
        if self.task_timeout.is_zero() {
            problems.push("the task timeout cannot be 0: nothing could ever be done".to_owned());
        }
        if self.backoff.cap < self.backoff.base {
            problems.push(format!(
                "the longest wait between attempts ({:?}) is below the first ({:?})",
                self.backoff.cap, self.backoff.base
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::pools::sizes_for;

    #[test]
    fn the_defaults_are_valid_and_add_up_to_4_and_24_workers() {
        let options = Options::new(8);
        assert_eq!(options.problems(), Vec::<String>::new());
        let least: u16 = options.tiers.iter().map(|tier| tier.rules.min).sum();
        let most: u16 = options.tiers.iter().map(|tier| tier.rules.max).sum();
        assert_eq!((least + options.shared.min, most + options.shared.max), (4, 24));
        assert_eq!(options.clone().sized(sizes_for(8)), options);
    }

    #[test]
    fn every_size_of_machine_gives_valid_options() {
        for cores in 1..=512 {
            let options = Options::new(cores).sized(sizes_for(cores));
            assert_eq!(options.problems(), Vec::<String>::new(), "{cores} cores");
        }
    }

    #[test]
    fn all_problems_are_told_at_once_by_tier() {
        let mut options = Options::new(2);
        options.tier_mut(Tier::Critical).rules.min = 0;
        options.tier_mut(Tier::High).rules.down = Ratio::whole(5);
        options.tier_mut(Tier::Normal).queue = 0;
        options.tier_mut(Tier::Low).task_timeout = Duration::ZERO;
        options.shared.min = 13;
        let problems = options.problems();
        assert_eq!(problems.len(), 5, "{problems:#?}");
        for (problem, pool) in problems.iter().zip(["critical", "high", "normal", "low", "shared"])
        {
            assert!(problem.starts_with(pool), "{problem}");
        }
    }
}
