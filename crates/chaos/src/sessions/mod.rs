//! Chaos against sessions: what the table counts is what is really open, whoever dies.

pub(crate) mod clients;
mod cluster;
mod fault;
pub(crate) mod roster;
mod run;
pub(crate) mod table;
pub(crate) mod worker;

pub use run::run;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose `serve` is a gateway.
    pub skep: PathBuf,
    /// How many gateways.
    pub gateways: usize,
    /// How many of them, or of Redis, are killed; pauses come on top.
    pub kills: usize,
    /// What is left to chance follows from it; what the system does with it does not.
    pub seed: u64,
    /// What a busy machine may need beyond what is promised about time.
    pub slack: Duration,
    /// Whether logs are kept although nothing failed.
    pub keep: bool,
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was measured; each name ends in its unit.
    pub figures: BTreeMap<String, f64>,
    /// What did not hold.
    pub failures: Vec<String>,
    /// Where logs were kept.
    pub folder: Option<PathBuf>,
}
