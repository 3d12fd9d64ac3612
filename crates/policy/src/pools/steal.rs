//! What a shared worker takes next.

use super::{Tier, TierNow, TierRules};
use serde::Serialize;

/// Which tiers a thread works for. It is fixed when the thread starts, because a thread can lower
/// its scheduling priority without privileges and never raise it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Critical and high, at the process's own priority.
    Express,
    /// Normal and low, at the lowest priority.
    Background,
}

impl Class {
    /// The tiers of this class, the most urgent first.
    pub const fn tiers(self) -> [Tier; 2] {
        match self {
            Class::Express => [Tier::Critical, Tier::High],
            Class::Background => [Tier::Normal, Tier::Low],
        }
    }
}

/// The rules of the shared pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRules {
    /// Express workers that are always there.
    pub min: u16,
    /// The most workers, of both classes together.
    pub max: u16,
    /// Normal and low are helped when more tasks than this wait.
    pub steal_above: u32,
    /// The most background workers, and the most processor-bound background tasks at once.
    pub background_max: u16,
}

/// A tier to take a task from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stolen {
    /// The tier.
    pub tier: Tier,
    /// Its state, which is why.
    pub now: TierNow,
}

/// What a shared worker of `class` takes next, from the tiers as they are: critical, then high,
/// where all of the tier's workers are busy and something waits; normal, then low, where more than
/// `steal_above` wait.
pub fn steal(
    class: Class,
    rules: &[TierRules; 4],
    shared: &SharedRules,
    now: impl Fn(Tier) -> TierNow,
) -> Option<Stolen> {
    class.tiers().into_iter().find_map(|tier| {
        let now = now(tier);
        let takes = match class {
            Class::Express => now.queue > 0 && now.is_maxed(&rules[tier.index()]),
            Class::Background => now.queue > shared.steal_above,
        };
        takes.then_some(Stolen { tier, now })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::Ratio;

    const RULES: TierRules = TierRules {
        min: 1,
        max: 4,
        up: Ratio::whole(5),
        down: Ratio::whole(2),
        overflow: Ratio::whole(5),
    };
    const SHARED: SharedRules = SharedRules { min: 0, max: 12, steal_above: 10, background_max: 2 };

    fn tier(queue: u32, workers: u16, idle: u16) -> TierNow {
        TierNow { queue, workers, idle }
    }

    fn taken(class: Class, tiers: [TierNow; 4]) -> Option<Tier> {
        let rules = [RULES, TierRules { max: 6, ..RULES }, RULES, RULES];
        steal(class, &rules, &SHARED, |tier| tiers[tier.index()]).map(|stolen| stolen.tier)
    }

    #[test]
    fn critical_comes_before_high() {
        let both = [tier(1, 4, 0), tier(500, 6, 0), tier(0, 1, 1), tier(0, 1, 1)];
        assert_eq!(taken(Class::Express, both), Some(Tier::Critical));
        let high = [tier(0, 4, 0), tier(1, 6, 0), tier(0, 1, 1), tier(0, 1, 1)];
        assert_eq!(taken(Class::Express, high), Some(Tier::High));
    }

    #[test]
    fn a_tier_that_can_still_grow_or_has_an_idle_worker_is_left_alone() {
        let growing = [tier(9, 3, 0), tier(9, 6, 1), tier(0, 1, 1), tier(0, 1, 1)];
        assert_eq!(taken(Class::Express, growing), None);
    }

    #[test]
    fn background_tiers_are_helped_from_eleven_tasks_on() {
        let at = |normal, low| [tier(0, 1, 1), tier(0, 1, 1), tier(normal, 1, 0), tier(low, 1, 0)];
        assert_eq!(taken(Class::Background, at(10, 10)), None);
        assert_eq!(taken(Class::Background, at(11, 500)), Some(Tier::Normal));
        assert_eq!(taken(Class::Background, at(10, 11)), Some(Tier::Low));
    }

    #[test]
    fn the_classes_never_touch_each_others_tiers() {
        let all = [tier(100, 4, 0), tier(500, 6, 0), tier(200, 1, 0), tier(100, 1, 0)];
        assert_eq!(taken(Class::Express, all), Some(Tier::Critical));
        assert_eq!(taken(Class::Background, all), Some(Tier::Normal));
    }
}
