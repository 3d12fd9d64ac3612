//! Monitors that watch servers for weeks, simulated: how much changes, how long a server has fewer
//! active monitors than it should, and how fast it recovers.
//!
//! ```text
//!   Weather: joins, leaves, outages, losses, limits ──► rosters over time, how each monitor does
//!                                                              │
//!   Watch: one server ──► summaries of its samples ──► plan ──► applied, checked, counted
//!             ▲                                          │
//!             └────── in 20 minutes, or 60 after a change ┘
//! ```
//!
//! The decision is the real one, from `skep-policy`; samples are not drawn one by one but added up
//! as they would be. What happens to the monitors is the same for all servers, and a server depends
//! on no other, so that many threads simulate one fleet and it makes no difference how many.

mod checks;
mod draw;
mod svg;
mod tally;
mod watch;
mod weather;

pub use draw::draw;
pub use svg::svg;
pub use tally::{Outcome, Quarter};

use serde::Serialize;
use skep_policy::monitors::Settings;
use std::fmt;
use std::str::FromStr;
use tally::Tally;
use watch::Watch;
use weather::Weather;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Nothing: a new fleet, exact measurements.
    Calm,
    /// Measurements are off by 5 %.
    Noise5,
    /// Measurements are off by 10 %.
    Noise10,
    /// Three of ten monitors are paused at once, for good.
    Loss,
    /// Outages of monitors and servers, lost packets, joins, leaves, pauses, shared networks, and
    /// accounts whose limits are lowered; until four days before the end.
    Storm,
}

impl Scenario {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Scenario; 5] =
        [Scenario::Calm, Scenario::Noise5, Scenario::Noise10, Scenario::Loss, Scenario::Storm];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::Calm => "calm",
            Scenario::Noise5 => "noise-5",
            Scenario::Noise10 => "noise-10",
            Scenario::Loss => "loss",
            Scenario::Storm => "storm",
        }
    }

    /// How far a summary is off, as a part of the round trip.
    const fn noise(self) -> f32 {
        match self {
            Scenario::Calm => 0.0,
            Scenario::Noise5 | Scenario::Loss | Scenario::Storm => 0.05,
            Scenario::Noise10 => 0.10,
        }
    }

    /// Monitors of the fleet at the beginning, if nobody says how many.
    pub const fn monitors(self) -> usize {
        match self {
            Scenario::Calm | Scenario::Noise5 | Scenario::Noise10 => 20,
            Scenario::Loss | Scenario::Storm => 60,
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

/// A run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What happens.
    pub scenario: Scenario,
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// How many servers.
    pub servers: usize,
    /// How many monitors there are at the beginning.
    pub monitors: usize,
    /// How many days, at least 12.
    pub days: usize,
    /// Whether places are on a plane instead of a circle. On a circle all distances are equally
    /// likely; on a plane many monitors are about equally far away, and noise changes more.
    pub plane: bool,
    /// How many threads.
    pub threads: usize,
    /// By which numbers monitors are selected.
    pub settings: Settings,
}

impl Options {
    /// Two hundred servers for thirty days.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        Options {
            scenario,
            seed,
            servers: 200,
            monitors: scenario.monitors(),
            days: 30,
            plane: false,
            threads: 1,
            settings: Settings::default(),
        }
    }
}

/// Simulates. The same options give the same outcome, to the byte, on any number of threads.
pub fn run(options: &Options) -> Outcome {
    let weather = match Weather::new(options) {
        Ok(weather) => weather,
        Err(flaw) => return Outcome::refused(options, flaw.to_string()),
    };
    let servers: Vec<usize> = (0..options.servers).collect();
    let part = servers.len().div_ceil(options.threads.max(1)).max(1);
    let watch = |servers: &[usize]| {
        let mut tally = Tally::new(options);
        for &server in servers {
            Watch::new(options, &weather, server).run(&mut tally);
        }
        tally
    };
    let watch = &watch;
    let mut tally = Tally::new(options);
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            servers.chunks(part).map(|part| scope.spawn(move || watch(part))).collect();
        for part in parts {
            match part.join() {
                Ok(found) => tally.merge(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    let mut outcome = tally.finish(options, &weather);
    outcome.failures.extend(checks::goals(options, &outcome));
    outcome
}
