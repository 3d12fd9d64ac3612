//! What kind of fleet, and what kind of storm.

use skep_policy::Chance;
use skep_policy::sessions::{Budget, Policy, Rules, Shape, Version, Want};

/// How long a gateway may be silent.
pub(super) const TTL_MS: u64 = 4_000;
/// Between two beats of a gateway.
pub(super) const BEAT_MS: u64 = 1_000;
/// Between two heartbeats of a worker.
pub(super) const HEARTBEAT_MS: u64 = 1_500;
/// How long somebody waits for an answer.
pub(super) const PATIENCE_MS: u64 = 2_000;

pub(super) fn one_of<T: Copy>(choices: &[T], chance: &mut impl Chance) -> T {
    choices[chance.up_to(choices.len() as u64 - 1) as usize]
}

/// Whether something happens that happens `of_1024` times of 1,024.
pub(super) fn happens(of_1024: u64, chance: &mut impl Chance) -> bool {
    chance.up_to(1_023) < of_1024
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub rules: Rules,
    pub workers: usize,
    pub gateways: usize,
    /// Events of the storm.
    pub storm: u64,
    /// Milliseconds between two sessions, and how long one lasts, at most.
    pub gap: u64,
    pub length: u64,
    /// How long a restart takes at most.
    pub restart: u64,
    /// Milliseconds between two faults at most; none is calm from the beginning.
    pub fault_gap: Option<u64>,
    /// Of 1,024 messages, so many do not arrive as they should.
    pub bad_messages: u64,
    /// Of 1,024 dials and probes, so many fail although the program runs.
    pub bad_dials: u64,
    /// Workers come in several shapes, and sessions want one of them.
    pub shapes: bool,
    /// Of four workers, so many can start their successor first.
    pub successors: u64,
}

impl Plan {
    /// Small fleets: a limit of two is reached a thousand times where one of fifty never is.
    pub fn new(chance: &mut impl Chance) -> Self {
        let budget = one_of(
            &[Budget::Count(1), Budget::Count(2), Budget::Percent(25), Budget::Percent(50)],
            chance,
        );
        let policy = one_of(
            &[Policy::Budgeted, Policy::Budgeted, Policy::LifetimeFirst, Policy::LeastLoaded],
            chance,
        );
        let rules = Rules {
            policy,
            slots: one_of(&[1, 2, 3, 5], chance),
            lifetime_max: one_of(&[0, 1, 2, 4, 7, 12, 30], chance),
            budget,
            heartbeat_ms: one_of(&[5_000, 8_000], chance),
            drain_max_ms: one_of(&[3_000, 10_000], chance),
            restart_max_ms: one_of(&[10_000, 15_000], chance),
            waiting_max: one_of(&[2, 10, 100], chance),
        };
        Plan {
            rules,
            workers: one_of(&[1, 2, 3, 4, 6, 9], chance),
            gateways: one_of(&[1, 2, 3], chance),
            storm: one_of(&[500, 3_000, 15_000], chance),
            gap: one_of(&[40, 150, 600], chance),
            length: one_of(&[100, 800, 5_000], chance),
            restart: one_of(&[200, 2_000, 5_000], chance),
            fault_gap: one_of(&[Some(500), Some(3_000), Some(20_000), None], chance),
            bad_messages: one_of(&[0, 5, 40], chance),
            bad_dials: one_of(&[0, 10, 100], chance),
            shapes: one_of(&[false, true], chance),
            successors: one_of(&[0, 0, 2, 4], chance),
        }
    }

    pub fn shape(&self, worker: usize) -> Shape {
        if !self.shapes {
            return Shape::default();
        }
        let eu = || ["eu".to_owned()].into();
        match worker % 3 {
            0 => Shape::default(),
            1 => Shape { labels: eu(), version: Version::parse("1.62") },
            _ => Shape { labels: eu(), version: Version::parse("1.65") },
        }
    }

    pub fn want(&self, chance: &mut impl Chance) -> Want {
        if !self.shapes {
            return Want::default();
        }
        match chance.up_to(3) {
            0 | 1 => Want::default(),
            2 => Want { labels: ["eu".to_owned()].into(), version: None },
            _ => Want { labels: [].into(), version: Version::parse("1.62") },
        }
    }
}
