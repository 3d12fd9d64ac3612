//! Everything at once on three nodes, with a fault every few seconds, for as long as one likes.

mod memory;
mod run;

pub use crate::world::faults::Kind;
pub use crate::world::nodes::Given;
pub use run::run;

use crate::world::{Pace, Verdict};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose `serve` is a node.
    pub skep: PathBuf,
    /// For how long faults happen; starting and settling come on top.
    pub span: Duration,
    /// From the beginning of a fault to the next, if nothing that it needs is still broken.
    pub every: Duration,
    /// Which faults there may be.
    pub kinds: Vec<Kind>,
    /// How much the actors do. What is left to chance, the faults too, follows from its seed; what
    /// the system does with it does not.
    pub pace: Pace,
    /// Servers that are there already.
    pub given: Given,
    /// Further settings of the nodes, `name=value`.
    pub settings: Vec<String>,
    /// Whether logs are kept although nothing failed.
    pub keep: bool,
}

/// As much as three nodes in a debug build do on two busy processors; where they do not, the actors
/// wait for them.
pub fn pace(seed: u64) -> Pace {
    Pace {
        seed,
        messages: 80,
        consumers: 10,
        workers: 6,
        clients: 14,
        endpoints: 30,
        endpoint_every: Duration::from_secs(1),
        servers: 6,
        monitors: 10,
        tasks: 40,
        requests: 30,
        settle: Duration::from_secs(90),
    }
}

/// Something to tell while it runs.
#[derive(Clone, Debug)]
pub enum Told {
    /// Everything has started.
    Began,
    /// A fault begins.
    Fault { at: Duration, what: String },
    /// How it goes.
    Progress(Progress),
}

/// How it goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub at: Duration,
    pub faults: usize,
    pub pushed: u64,
    pub consumed: u64,
    pub sessions: u64,
    pub polls: u64,
    pub samples: u64,
    pub tasks: u64,
    pub requests: u64,
    /// What the nodes that run need together.
    pub memory_bytes: u64,
    pub files: u64,
    pub threads: u64,
}

/// A fault as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struck {
    pub what: String,
    pub began: Duration,
    /// Nothing if it did not come to an end.
    pub healed: Option<Duration>,
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.1} s", self.what, self.began.as_secs_f64())?;
        match self.healed {
            Some(healed) => write!(f, " to {:.1} s", healed.as_secs_f64()),
            None => Ok(()),
        }
    }
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// A row for each actor, and for nodes, memory, files and threads.
    pub rows: Vec<Verdict>,
    /// What did not hold, with the part that says so and the faults around it.
    pub failures: Vec<String>,
    /// What happened.
    pub faults: Vec<Struck>,
    /// The last word about how it went.
    pub progress: Progress,
    /// Memory of the life of a node that was watched for longest, in its three thirds, in bytes.
    pub memory_thirds: Option<[u64; 3]>,
    /// Where logs were kept.
    pub folder: Option<PathBuf>,
}
