//! What a fleet of one kind promises: how much a worker may carry, when it is worn out, and how
//! many may be away at once.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Slots of a worker that does not say how many it has.
pub const SLOTS_DEFAULT: u32 = 5;
/// Sessions after which a worker is worn out.
pub const LIFETIME_DEFAULT: u32 = 50;
/// No worker has more slots than this; a rank has no room for more.
pub const SLOTS_MAX: u32 = 1_000_000;
/// No worker lives longer than this; a rank has no room for more.
pub const LIFETIME_MAX: u32 = 1_000_000_000;

/// How a worker is chosen, and what happens when it is worn out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The least loaded, then the longest serving; who is nearly worn out only if nobody else is
    /// free. Never more than the budget are out.
    #[default]
    Budgeted,
    /// The longest serving below a margin, then anybody below the limit. Whoever reaches the
    /// limit goes, however many that are.
    LifetimeFirst,
    /// The least loaded. Whoever reaches the limit goes, however many that are.
    LeastLoaded,
}

impl Policy {
    /// All of them, the default first.
    pub const ALL: [Policy; 3] = [Policy::Budgeted, Policy::LifetimeFirst, Policy::LeastLoaded];

    /// As it is written in settings, stores and reasons.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Budgeted => "budgeted",
            Policy::LifetimeFirst => "lifetime-first",
            Policy::LeastLoaded => "least-loaded",
        }
    }

    /// The policy with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// How many workers of a kind may be out for recycling at once: `3` or `10%`, never less than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Budget {
    /// This many.
    Count(u32),
    /// This share of the live workers, rounded down.
    Percent(u32),
}

impl Budget {
    /// How many that are in a fleet of `workers`.
    pub fn of(self, workers: u32) -> u32 {
        match self {
            Budget::Count(count) => count.max(1),
            Budget::Percent(percent) => {
                let share = u64::from(workers) * u64::from(percent) / 100;
                u32::try_from(share).unwrap_or(u32::MAX).max(1)
            }
        }
    }

    /// Reads `3` or `10%`.
    pub fn parse(text: &str) -> Option<Self> {
        let budget = match text.strip_suffix('%') {
            Some(percent) => Budget::Percent(percent.trim().parse().ok()?),
            None => Budget::Count(text.trim().parse().ok()?),
        };
        let fits = match budget {
            Budget::Count(count) => count >= 1,
            Budget::Percent(percent) => (1..=100).contains(&percent),
        };
        fits.then_some(budget)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::Percent(10)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Budget::Count(count) => write!(f, "{count}"),
            Budget::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The rules of one kind of worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// How a worker is chosen.
    pub policy: Policy,
    /// Sessions at once on a worker that announces no number of its own.
    pub slots: u32,
    /// Sessions in a worker's life; 0 means it never wears out.
    pub lifetime_max: u32,
    /// How many may be out at once.
    pub budget: Budget,
    /// A worker silent for longer than this is lost.
    pub heartbeat_ms: u64,
    /// How long a worker that takes no more sessions may wait for those it has.
    pub drain_max_ms: u64,
    /// How long a worker may take to come back.
    pub restart_max_ms: u64,
    /// Sessions that wait for a worker of this kind at most.
    pub waiting_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            policy: Policy::Budgeted,
            slots: SLOTS_DEFAULT,
            lifetime_max: LIFETIME_DEFAULT,
            budget: Budget::default(),
            heartbeat_ms: 60_000,
            drain_max_ms: 300_000,
            restart_max_ms: 120_000,
            waiting_max: 1_000,
        }
    }
}

impl Rules {
    /// How far below the limit a worker is nearly worn out, in a fleet of `workers` live ones.
    ///
    /// For lifetime-first it is the margin, a worker's share of the limit. For budgeted it is the
    /// window in which a worker is due, and at most a fifth of the limit: with one worker the
    /// margin is the whole life, and it would be restarted after each session.
    pub fn window(&self, workers: u32) -> u32 {
        let margin = self.lifetime_max / workers.max(1);
        match self.policy {
            Policy::LifetimeFirst => margin.max(1),
            Policy::Budgeted | Policy::LeastLoaded => margin.min(self.lifetime_max / 5).max(1),
        }
    }

    /// The number of sessions from which on a worker is nearly worn out; `None` is never.
    ///
    /// Under the budgeted policy a worker that was not sent to restart by Skep (the fleet has just
    /// been started, or a crash) gets a point of its own, anywhere between the window's width and
    /// the window: a fleet that starts together would come to its end together. The points follow
    /// the golden ratio, so that any number of workers in a row lie well apart.
    pub fn due_at(&self, number: u64, fresh: bool, workers: u32) -> Option<u32> {
        if self.lifetime_max == 0 || self.policy == Policy::LeastLoaded {
            return None;
        }
        let window = self.window(workers);
        let edge = self.lifetime_max.saturating_sub(window);
        if self.policy == Policy::LifetimeFirst {
            return Some(edge);
        }
        let edge = edge.max(1);
        if !fresh {
            return Some(edge);
        }
        let low = window.min(edge);
        let turn = (number % 65_536) * 40_503 % 65_536;
        let offset = turn * u64::from(edge - low + 1) / 65_536;
        Some(low + u32::try_from(offset).unwrap_or(0))
    }

    /// Whether a worker with this many sessions behind it may have no more.
    pub fn worn_out(&self, lifetime: u32) -> bool {
        self.lifetime_max != 0 && lifetime >= self.lifetime_max
    }

    /// How many workers would be out on average if each life were used to its limit:
    /// `arrivals per second / limit x seconds away`. A budget below it cannot keep up.
    pub fn out_needed(&self, arrivals_per_s: f64, away_s: f64) -> f64 {
        if self.lifetime_max == 0 {
            return 0.0;
        }
        arrivals_per_s / f64::from(self.lifetime_max) * away_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_budget_is_a_count_or_a_share_and_never_nothing() {
        assert_eq!(Budget::parse("3"), Some(Budget::Count(3)));
        assert_eq!(Budget::parse("25%"), Some(Budget::Percent(25)));
        assert_eq!(Budget::Percent(10).of(4), 1);
        assert_eq!(Budget::Percent(10).of(40), 4);
        assert_eq!(Budget::Percent(25).of(0), 1);
        for wrong in ["", "0", "-1", "0%", "101%", "ten", "%"] {
            assert_eq!(Budget::parse(wrong), None, "{wrong}");
        }
        for budget in [Budget::Count(7), Budget::Percent(33)] {
            assert_eq!(Budget::parse(&budget.to_string()), Some(budget));
        }
    }

    #[test]
    fn the_margin_is_a_workers_share_of_the_limit() {
        let margin = |lifetime_max, workers| {
            Rules { policy: Policy::LifetimeFirst, lifetime_max, ..Rules::default() }
                .window(workers)
        };
        assert_eq!(margin(20, 4), 5);
        assert_eq!(margin(10, 2), 5);
        assert_eq!(margin(4, 1), 4);
        assert_eq!(margin(10, 3), 3);
        assert_eq!(margin(50, 100), 1);
    }

    #[test]
    fn a_worker_alone_is_not_due_all_its_life() {
        let rules = Rules::default();
        assert_eq!(rules.due_at(1, false, 1), Some(40));
        assert_eq!(rules.due_at(1, false, 10), Some(45));
        assert_eq!(Rules { lifetime_max: 1, ..rules.clone() }.due_at(1, true, 1), Some(1));
        assert_eq!(Rules { lifetime_max: 0, ..rules }.due_at(1, true, 1), None);
    }

    #[test]
    fn workers_started_together_are_due_well_apart() {
        let rules = Rules::default();
        let mut due: Vec<u32> =
            (1..=10).filter_map(|number| rules.due_at(number, true, 10)).collect();
        due.sort_unstable();
        let gaps = due.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().min() >= Some(2), "{due:?}");
        assert!(gaps.max() <= Some(8), "{due:?}");
    }

    #[test]
    fn the_budget_needed_follows_from_arrivals_and_absence() {
        let needed = Rules::default().out_needed(25.0, 1.5);
        assert!((needed - 0.75).abs() < 1e-9, "{needed}");
    }

    proptest! {
        #[test]
        fn a_worker_is_due_after_its_first_session_and_before_its_limit(
            lifetime_max in 1..=LIFETIME_MAX,
            workers in 0..20_000_u32,
            number in 0..1_000_000_u64,
            fresh: bool,
        ) {
            let rules = Rules { lifetime_max, ..Rules::default() };
            let due = rules.due_at(number, fresh, workers).expect("wears out");
            prop_assert!((1..=lifetime_max).contains(&due));
        }
    }
}
