//! What happens, and when.

use skep_policy::{Chance, SeededChance};
use std::fmt;
use std::time::Duration;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A gateway is killed and comes back after a while.
    KillGateway { number: usize, down: Duration },
    /// Redis is killed and comes back empty after a while.
    KillRedis { down: Duration },
    /// A gateway does not run for a while.
    PauseGateway { number: usize, span: Duration },
    /// Redis answers nobody for a while.
    PauseRedis { span: Duration },
}

impl Fault {
    /// Whether it counts as one of the kills that were asked for.
    pub fn is_kill(self) -> bool {
        matches!(self, Fault::KillGateway { .. } | Fault::KillRedis { .. })
    }

    /// What a figure calls it.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KillGateway { .. } => "gateway_kills",
            Fault::KillRedis { .. } => "redis_kills",
            Fault::PauseGateway { .. } => "gateway_pauses",
            Fault::PauseRedis { .. } => "redis_pauses",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::KillGateway { number, down } => {
                write!(f, "gateway {number} is killed, for {down:.1?}")
            }
            Fault::KillRedis { down } => write!(f, "redis is killed, for {down:.1?}"),
            Fault::PauseGateway { number, span } => {
                write!(f, "gateway {number} stands still for {span:.1?}")
            }
            Fault::PauseRedis { span } => write!(f, "redis stands still for {span:.1?}"),
        }
    }
}

/// So many kills, mostly of gateways, with pauses in between.
pub fn plan(seed: u64, kills: usize, gateways: usize) -> Vec<Fault> {
    let mut chance = SeededChance::new(seed);
    let mut faults = Vec::new();
    let mut left = kills;
    while left > 0 {
        let fault = draw(&mut chance, gateways);
        left -= usize::from(fault.is_kill());
        faults.push(fault);
    }
    faults
}

fn draw(chance: &mut SeededChance, gateways: usize) -> Fault {
    let kind = chance.up_to(9);
    let number = chance.up_to(gateways.saturating_sub(1) as u64) as usize;
    // Leases are a second: some are over before anybody notices.
    let span = Duration::from_millis(chance.up_to(2_000));
    match kind {
        0..=5 => Fault::KillGateway { number, down: span },
        6 => Fault::KillRedis { down: span },
        7 | 8 => Fault::PauseGateway { number, span: span + Duration::from_millis(100) },
        _ => Fault::PauseRedis { span: span / 2 + Duration::from_millis(100) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_seed_gives_the_same_plan_with_as_many_kills_as_asked_for() {
        for seed in 0..100 {
            let faults = plan(seed, 30, 3);
            assert_eq!(faults, plan(seed, 30, 3));
            assert_eq!(faults.iter().filter(|fault| fault.is_kill()).count(), 30);
        }
        let kinds: HashSet<_> = plan(1, 100, 3).into_iter().map(Fault::name).collect();
        assert_eq!(kinds.len(), 4);
        assert_ne!(plan(1, 30, 3), plan(2, 30, 3));
    }
}
