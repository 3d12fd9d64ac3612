//! The worker pools, simulated.
//!
//! The engine is the real one, from `skep-pools`. Around it everything is virtual: threads are
//! entries in a list, the clock jumps from event to event, and chance decides how long a task runs,
//! how it ends, how late a thread wakes, which of two things at the same instant comes first, and
//! what fails. Every task is kept in a ledger of its own, so that a task that the engine loses or
//! does twice is noticed in that instant, by its seed.
//!
//! ```text
//!   driver ──► submit, cancel, kill ──►┐                         ┌──► ledger: may this happen?
//!   agenda ──► a thread, the timer ───►├──► Engine ──► mail ─────┤
//!      ▲                               ┘                         └──► start, wake, wake the timer
//!      └──────────────────────────────────────────────────────────────┘
//! ```

mod agenda;
mod chaos;
mod checks;
mod ending;
mod hands;
mod ledger;
mod moves;
mod plot;
mod scenarios;
mod story;
mod task;
mod weather;
mod workers;
mod world;

pub use moves::{Ending, How, Move, play};
pub use plot::plot;
pub use story::Sample;

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use story::Story;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Storms over pools of any shape: nothing may be lost.
    Chaos,
    /// A thousand tasks a second for a minute.
    Sustained,
    /// Ten thousand tasks in a second, then none until nobody is there who need not be.
    Burst,
    /// From idle to the peak and back, as in the documentation.
    Lifecycle,
    /// A load that stays at each threshold of a tier: workers must not come and go.
    Hover,
}

impl Scenario {
    /// All scenarios.
    pub const ALL: [Scenario; 5] = [
        Scenario::Chaos,
        Scenario::Sustained,
        Scenario::Burst,
        Scenario::Lifecycle,
        Scenario::Hover,
    ];

    /// The scenario's name.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::Chaos => "chaos",
            Scenario::Sustained => "sustained",
            Scenario::Burst => "burst",
            Scenario::Lifecycle => "lifecycle",
            Scenario::Hover => "hover",
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
        f.write_str("the scenarios are chaos, sustained, burst, lifecycle and hover")
    }
}

impl std::error::Error for UnknownScenario {}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is simulated.
    pub scenario: Scenario,
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// About how many events a storm goes on for; the other scenarios have their own end.
    pub events: u64,
    /// Whether things go wrong.
    pub faults: bool,
}

impl Options {
    /// A run of a scenario as it is meant: a million events where chaos is, and faults only there.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let faults = scenario == Scenario::Chaos;
        Options { scenario, seed, events: 1_000_000, faults }
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Whether everything held that must.
    pub ok: bool,
    /// What was counted and measured.
    pub figures: BTreeMap<String, f64>,
    /// What did not hold, each with the seed that shows it again.
    pub failures: Vec<String>,
    /// The pools over virtual time.
    pub timeline: Vec<Sample>,
}

/// Simulates. The same options give the same outcome, to the byte.
pub fn run(options: &Options) -> Outcome {
    let story = Story::new(options.seed, Duration::from_millis(100));
    let story = match options.scenario {
        Scenario::Chaos => chaos::run(options, story),
        Scenario::Sustained => scenarios::sustained(options, story),
        Scenario::Burst => scenarios::burst(options, story),
        Scenario::Lifecycle => scenarios::lifecycle(options, story),
        Scenario::Hover => scenarios::hover(options, story),
    };
    outcome(story)
}

fn outcome(story: Story) -> Outcome {
    let Story { failures, mut figures, timeline, events, .. } = story;
    figures.insert("events".to_owned(), events as f64);
    Outcome { ok: failures.is_empty(), figures, failures, timeline }
}
