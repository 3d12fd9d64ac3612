//! Nodes of a cluster that share requests, simulated: who serves what, with loads a second old.
//!
//! ```text
//!   Traffic: Zipf keys ──► a node, in turn ──► Contender ──► a node: computes, waits, parks
//!                             ▲                                 │ outstanding, polls, cpu
//!                             └── View ◄── lost, late, stale ◄── heartbeats, moves
//! ```
//!
//! The decision, the moves and the breakers are the real ones, from `skep-policy`; nodes, network
//! and load balancer are virtual. All contenders get the same requests at the same moments on the
//! same nodes, hear the same kind of heartbeats, and differ in what they decide and in nothing
//! else.

mod checks;
mod draw;
mod node;
mod route;
mod tally;
mod traffic;
mod world;

pub use draw::draw;
pub use tally::{Outcome, Second};

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// What happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Nothing: keys of very different weight, and that is all.
    Steady,
    /// So much to do that keys have to move.
    Busy,
    /// A key nobody asked for gets a quarter of all requests, from one moment to the next.
    HotKey,
    /// A node becomes three times as slow.
    Slow,
    /// A node dies and comes back, twice.
    Flapping,
    /// Three of ten heartbeats get lost and the others take up to three seconds.
    Lossy,
}

impl Scenario {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Scenario; 6] = [
        Scenario::Steady,
        Scenario::Busy,
        Scenario::HotKey,
        Scenario::Slow,
        Scenario::Flapping,
        Scenario::Lossy,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::Steady => "steady",
            Scenario::Busy => "busy",
            Scenario::HotKey => "hot-key",
            Scenario::Slow => "slow",
            Scenario::Flapping => "flapping",
            Scenario::Lossy => "lossy",
        }
    }

    /// The score that nodes would have on average if all had the same.
    const fn load(self) -> f64 {
        match self {
            Scenario::Busy => 0.70,
            _ => 0.45,
        }
    }

    /// In which second the last thing happens that has to be coped with.
    const fn calm_from(self) -> usize {
        match self {
            Scenario::Steady | Scenario::Busy | Scenario::Lossy => 0,
            Scenario::HotKey | Scenario::Slow => 30,
            Scenario::Flapping => 48,
        }
    }
}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(text: &str) -> Result<Self, UnknownScenario> {
        Scenario::ALL.into_iter().find(|one| one.name() == text).ok_or(UnknownScenario)
    }
}

/// There is no scenario of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownScenario;

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the scenarios are {}", Scenario::ALL.map(Scenario::name).join(", "))
    }
}

impl std::error::Error for UnknownScenario {}

/// Who chooses the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// What a node does: the key's owner, overflow beyond its bound, moves.
    Skep,
    /// The first of the key's ranking, whatever its load.
    OwnerOnly,
    /// Whichever node the load balancer took: each in its turn.
    RoundRobin,
    /// Anybody.
    Random,
    /// Whoever had the least to do when last heard.
    LeastLoaded,
    /// Of two that chance picks the one that had less to do when last heard.
    TwoChoices,
}

impl Contender {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Contender; 6] = [
        Contender::Skep,
        Contender::OwnerOnly,
        Contender::RoundRobin,
        Contender::Random,
        Contender::LeastLoaded,
        Contender::TwoChoices,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Contender::Skep => "skep",
            Contender::OwnerOnly => "owner-only",
            Contender::RoundRobin => "round-robin",
            Contender::Random => "random",
            Contender::LeastLoaded => "least-loaded",
            Contender::TwoChoices => "two-choices",
        }
    }
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What happens.
    pub scenario: Scenario,
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// How many nodes, from 3 to 50.
    pub nodes: usize,
    /// How many keys.
    pub keys: usize,
    /// How uneven the keys are: the `k`th has a weight of `1 / k^exponent`.
    pub exponent: f64,
    /// How long it takes.
    pub seconds: usize,
}

impl Options {
    /// Ten nodes, two thousand keys, two minutes.
    pub const fn new(scenario: Scenario, seed: u64) -> Self {
        Options { scenario, seed, nodes: 10, keys: 2_000, exponent: 1.1, seconds: 120 }
    }
}

/// Simulates. The same options give the same outcome, to the byte.
pub fn run(options: &Options, contender: Contender) -> Outcome {
    let mut outcome = world::World::new(options, contender).run();
    let settled = checks::Settled::new(options, &outcome);
    for (name, value) in [
        ("settled_highest_to_mean_ratio", settled.highest),
        ("settled_swing_ratio", settled.swing),
        ("settled_moves_per_second", settled.moves),
    ] {
        outcome.figures.insert(name.to_owned(), value);
    }
    if contender == Contender::Skep {
        outcome.failures = checks::check(options, &outcome);
    }
    outcome
}
