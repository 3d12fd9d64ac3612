//! Which keys are asked for, and when.

use super::{Options, Scenario};
use skep_policy::rendezvous::hash_of;
use skep_policy::{Chance, SeededChance};

/// Virtual time in microseconds since the start.
pub(super) type Micros = u64;

pub(super) const SECOND: Micros = 1_000_000;
/// What a request computes.
pub(super) const COMPUTE: f64 = 1_000.0;
/// How long the store takes.
const STORE: f64 = 100_000.0;
/// How long a pop is parked that finds nothing.
const PARKED: f64 = 600_000.0;
/// How many of a hundred find nothing.
const PARKED_PERCENT: u64 = 30;
/// Requests a second at which a node's score is 1, as the numbers above make it.
const RATE_OF_ONE: f64 = 1_030.0;
/// The part of all requests that the hot key gets.
const HOT_PERMILLE: u64 = 250;

/// A request that comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    pub key: usize,
    /// How long the store takes for it.
    pub store: Micros,
    /// How long it is parked, if so.
    pub parked: Option<Micros>,
}

pub(super) struct Traffic {
    chance: SeededChance,
    /// For each key the part of all requests that it and those before it get.
    up_to: Vec<f64>,
    hashes: Vec<u64>,
    gap: f64,
    hot: bool,
}

impl Traffic {
    pub fn new(options: &Options) -> Self {
        let weights = (1..=options.keys).map(|rank| libm::pow(rank as f64, -options.exponent));
        let mut up_to: Vec<f64> = weights
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let total = up_to.last().copied().unwrap_or(1.0);
        up_to.iter_mut().for_each(|sum| *sum /= total);
        let name = |rank: usize| hash_of(&format!("queue-{}-{rank}:workers", options.seed));
        let rate = RATE_OF_ONE * options.scenario.load() * options.nodes as f64;
        Traffic {
            chance: SeededChance::new(options.seed ^ 0x6A09_E667_F3BC_C908),
            up_to,
            hashes: (0..options.keys).map(name).collect(),
            gap: SECOND as f64 / rate,
            hot: false,
        }
    }

    pub fn hash(&self, key: usize) -> u64 {
        self.hashes[key]
    }

    /// From now on the last key, so far the rarest, gets a quarter of everything.
    pub fn heat(&mut self) {
        self.hot = true;
    }

    /// How long until the next request comes.
    pub fn gap(&mut self) -> Micros {
        (exponential(&mut self.chance) * self.gap) as Micros
    }

    pub fn next(&mut self) -> Coming {
        let heat = self.hot && self.chance.up_to(999) < HOT_PERMILLE;
        let place = unit(&mut self.chance);
        let drawn = self.up_to.partition_point(|sum| *sum < place);
        let last = self.up_to.len() - 1;
        let parks = self.chance.up_to(99) < PARKED_PERCENT;
        let store = (exponential(&mut self.chance) * STORE) as Micros;
        let parked = (exponential(&mut self.chance) * PARKED) as Micros;
        Coming {
            key: if heat { last } else { drawn.min(last) },
            store,
            parked: parks.then_some(parked),
        }
    }
}

/// What each fault does, and in which second.
pub(super) const fn faults(scenario: Scenario) -> &'static [(usize, Fault)] {
    match scenario {
        Scenario::Steady | Scenario::Busy | Scenario::Lossy => &[],
        Scenario::HotKey => &[(30, Fault::Heat)],
        Scenario::Slow => &[(30, Fault::SlowDown)],
        Scenario::Flapping => {
            &[(20, Fault::Die), (28, Fault::Return), (40, Fault::Die), (48, Fault::Return)]
        }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Heat,
    SlowDown,
    Die,
    Return,
}

/// Above zero and at most one.
pub(super) fn unit(chance: &mut SeededChance) -> f64 {
    ((chance.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// One on average; short ones are the most likely.
fn exponential(chance: &mut SeededChance) -> f64 {
    0.0 - libm::log(unit(chance))
}
