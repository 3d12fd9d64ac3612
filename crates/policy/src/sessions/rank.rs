//! Where a worker stands, and who comes first.

use super::{Policy, Rules};
use serde::{Deserialize, Serialize};

/// What a worker is doing, as far as new sessions are concerned. It has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It has a free slot.
    Ready,
    /// It has a free slot and is nearly worn out: taken only if nobody is ready.
    Due,
    /// All its slots are taken.
    Full,
    /// It is worn out, has no permit to go, and takes nothing.
    Held,
    /// It has its permit and still carries sessions.
    Draining,
    /// It has its permit and is away.
    Restarting,
    /// An operator keeps sessions away from it.
    Drained,
    /// It did not answer, and is asked again before it gets anything.
    Suspect,
    /// Its program is not running.
    Down,
    /// It has not been heard of for too long.
    Lost,
    /// An operator removed it; it has not heard of that yet.
    Removed,
}

impl Standing {
    /// All of them, in the order of [`Standings`].
    pub const ALL: [Standing; 11] = [
        Standing::Ready,
        Standing::Due,
        Standing::Full,
        Standing::Held,
        Standing::Draining,
        Standing::Restarting,
        Standing::Drained,
        Standing::Suspect,
        Standing::Down,
        Standing::Lost,
        Standing::Removed,
    ];

    /// As it is written in stores, reasons and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Standing::Ready => "ready",
            Standing::Due => "due",
            Standing::Full => "full",
            Standing::Held => "held",
            Standing::Draining => "draining",
            Standing::Restarting => "restarting",
            Standing::Drained => "drained",
            Standing::Suspect => "suspect",
            Standing::Down => "down",
            Standing::Lost => "lost",
            Standing::Removed => "removed",
        }
    }

    /// Whether it can take a session now.
    pub const fn is_open(self) -> bool {
        matches!(self, Standing::Ready | Standing::Due)
    }

    /// Whether it is one of the fleet: counted when shares are made, and waited for.
    pub const fn is_live(self) -> bool {
        !matches!(self, Standing::Lost | Standing::Removed)
    }
}

/// How many workers have each standing, in the order of [`Standing::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Standings(pub [u32; Standing::ALL.len()]);

impl Standings {
    /// How many have this one.
    pub fn of(&self, standing: Standing) -> u32 {
        self.0[standing as usize]
    }

    /// Counts one more.
    pub fn add(&mut self, standing: Standing) {
        self.0[standing as usize] += 1;
    }

    /// Counts one less.
    pub fn remove(&mut self, standing: Standing) {
        self.0[standing as usize] -= 1;
    }

    /// All that belong to the fleet.
    pub fn live(&self) -> u32 {
        Standing::ALL.into_iter().filter(|one| one.is_live()).map(|one| self.of(one)).sum()
    }
}

/// The part of a rank that says how full a worker is, of 65,536.
fn load(active: u32, slots: u32) -> u64 {
    u64::from(active) * 65_536 / u64::from(slots.max(1))
}

/// Who comes first among those with the same standing: the lower rank, then the lower number.
///
/// Every rank is below 2^53, so that stores which count in floating point agree.
///
/// The order of the budgeted policy was found by simulation (`skep sim sessions`):
/// * Ready workers: the least loaded, then the longest serving. Lifetime first packs one worker
///   while others idle and restarts no better: with permits for the idle alone both need the
///   same number of workers away, and after the first lives, which end at different points, all
///   grow at the same pace and stay apart.
/// * Due workers: the fullest first, then the furthest from its limit, so that the others become
///   idle, and idle they can be restarted at no cost.
pub fn rank(policy: Policy, due: bool, lifetime: u32, active: u32, slots: u32) -> u64 {
    let (lifetime, active_first) = (u64::from(lifetime), u64::from(active));
    match policy {
        Policy::LifetimeFirst => ((u64::from(u32::MAX) - lifetime) << 20) | active_first,
        Policy::Budgeted if due => {
            (65_536_u64.saturating_sub(load(active, slots)) << 32) | lifetime
        }
        Policy::Budgeted => (load(active, slots) << 32) | (u64::from(u32::MAX) - lifetime),
        Policy::LeastLoaded => (load(active, slots) << 32) | lifetime,
    }
}

/// Why the chosen one was chosen.
pub fn rule(policy: Policy, due: bool) -> &'static str {
    match (policy, due) {
        (Policy::LifetimeFirst, false) => "highest-lifetime",
        (Policy::LifetimeFirst, true) => "highest-lifetime-within-margin",
        (Policy::Budgeted, false) => "least-loaded-then-highest-lifetime",
        (Policy::Budgeted, true) => "only-due-workers-free",
        (Policy::LeastLoaded, _) => "least-loaded",
    }
}

/// Whether a worker is nearly worn out.
pub fn is_due(rules: &Rules, due_at: Option<u32>, lifetime: u32, reported: bool) -> bool {
    let by_lifetime = due_at.is_some_and(|due_at| lifetime >= due_at);
    by_lifetime || (reported && rules.policy == Policy::Budgeted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::{LIFETIME_MAX, SLOTS_MAX};

    #[test]
    fn standings_are_counted_in_their_order() {
        for (position, standing) in Standing::ALL.into_iter().enumerate() {
            assert_eq!(standing as usize, position);
        }
    }

    #[test]
    fn every_rank_fits_a_double() {
        for policy in Policy::ALL {
            for due in [false, true] {
                for (lifetime, active) in [(0, 0), (LIFETIME_MAX, SLOTS_MAX), (0, SLOTS_MAX)] {
                    assert!(rank(policy, due, lifetime, active, SLOTS_MAX) < 1 << 53);
                }
            }
        }
    }

    #[test]
    fn the_load_is_a_share_of_a_workers_own_slots() {
        let ready = |active, slots| rank(Policy::Budgeted, false, 7, active, slots);
        assert!(ready(2, 10) < ready(2, 5));
        assert!(ready(1, 5) < ready(2, 5));
    }
}
