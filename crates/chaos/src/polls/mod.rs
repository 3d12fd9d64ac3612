//! Chaos against polls: no endpoint is ever polled by two nodes at once, none is forgotten.

pub(crate) mod check;
mod cluster;
pub(crate) mod evidence;
mod fault;
mod run;
mod sink;
mod strike;
pub(crate) mod target;

pub use evidence::Struck;
pub use fault::{Fault, Step};
pub use run::run;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose `serve` is a node.
    pub skep: PathBuf,
    /// How many nodes.
    pub nodes: usize,
    /// How many endpoints, each polled every second.
    pub endpoints: usize,
    /// What happens.
    pub plan: Plan,
    /// Everything that is left to chance follows from it. What the system does with it does not:
    /// a run with the same seed has the same faults, not the same end.
    pub seed: u64,
    /// What a busy machine may need beyond what is promised about time. What is promised about
    /// safety holds on any machine.
    pub slack: Duration,
    /// Whether logs are kept although nothing failed.
    pub keep: bool,
}

/// What happens in a run.
#[derive(Clone, Debug)]
pub enum Plan {
    /// So many faults, chosen by the seed.
    Faults(usize),
    /// These, in this order.
    Steps(Vec<Step>),
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was measured; each name ends in its unit.
    pub figures: BTreeMap<String, f64>,
    /// What did not hold.
    pub failures: Vec<String>,
    /// What happened.
    pub steps: Vec<Struck>,
    /// Where logs were kept.
    pub folder: Option<PathBuf>,
}
