//! The same load, under several ways to choose a worker.
//!
//! ```text
//!   Traffic ──► arrive, end ──►┐          ┌──► Tally: out, held, waits, restarts, imbalance
//!   agenda  ──► back, tick ───►├──► Desk ─┤
//!      ▲                       ┘          └──► seated, restart, cut
//!      └───────────────────────────────────────┘
//! ```
//!
//! Every session's arrival and length follow from the seed alone, so that two contenders differ in
//! what they decide and in nothing else.

mod desk;
mod draw;
mod plain;
mod run;
mod svg;
mod table;
mod tally;
mod traffic;

pub use draw::draw;
pub use run::run;
pub use svg::svg;
pub use tally::{Outcome, Tooth};

use serde::Serialize;
use skep_policy::sessions::{Budget, Policy};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Who chooses the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// The table of sessions with one of its policies.
    Table(Policy),
    /// Each in its turn.
    RoundRobin,
    /// Anybody.
    Random,
    /// The least loaded, and every life has a limit of its own between half and all of the
    /// lifetime, as servers do that restart their workers after so many requests.
    Jitter,
}

impl Contender {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Contender; 6] = [
        Contender::Table(Policy::Budgeted),
        Contender::Table(Policy::LifetimeFirst),
        Contender::Table(Policy::LeastLoaded),
        Contender::RoundRobin,
        Contender::Random,
        Contender::Jitter,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Contender::Table(policy) => policy.name(),
            Contender::RoundRobin => "round-robin",
            Contender::Random => "random",
            Contender::Jitter => "max-requests-with-jitter",
        }
    }
}

impl FromStr for Contender {
    type Err = UnknownContender;

    fn from_str(text: &str) -> Result<Self, UnknownContender> {
        Contender::ALL.into_iter().find(|one| one.name() == text).ok_or(UnknownContender)
    }
}

/// There is no contender of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownContender;

impl fmt::Display for UnknownContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Contender::ALL.map(Contender::name).join(", ");
        write!(f, "the policies are {names}, and all")
    }
}

impl std::error::Error for UnknownContender {}

/// How sessions come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// So many clients, each of which begins its next session when the last has ended.
    Open(u32),
    /// By themselves, at random moments, so many that this share of all slots is taken.
    Load(f64),
}

/// How long sessions last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lengths {
    /// All the same.
    Fixed,
    /// Most are short; the mean is the session time.
    Exponential,
    /// Nearly all are short and a few very long, up to a hundred times the session time.
    Heavy,
}

impl Lengths {
    /// All of them.
    pub const ALL: [Lengths; 3] = [Lengths::Fixed, Lengths::Exponential, Lengths::Heavy];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Lengths::Fixed => "fixed",
            Lengths::Exponential => "exponential",
            Lengths::Heavy => "heavy",
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// How many workers there are.
    pub workers: u32,
    /// Sessions at once on each.
    pub slots: u32,
    /// Sessions in a worker's life.
    pub lifetime: u32,
    /// How many sessions there are in all.
    pub sessions: u64,
    /// How they come.
    pub arrivals: Arrivals,
    /// How long one lasts on average.
    pub session_time: Duration,
    /// Whether all last as long.
    pub lengths: Lengths,
    /// How long a worker is away when it restarts.
    pub restart_time: Duration,
    /// How many may be away at once, where somebody asks.
    pub budget: Budget,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            workers: 10,
            slots: 5,
            lifetime: 50,
            sessions: 20_000,
            arrivals: Arrivals::Open(25),
            session_time: Duration::from_secs(1),
            lengths: Lengths::Fixed,
            restart_time: Duration::from_millis(500),
            budget: Budget::default(),
        }
    }
}
