//! Polls by several nodes, simulated: never two at once, through any fault.
//!
//! The members, the table, the grid and the placement are the real ones, from `skep-policy`. Around
//! them everything is virtual: each node has a clock of its own that runs too fast or too slow,
//! messages take their time or get lost, processes and the store die and come back, and somebody
//! who knows everything chooses the worst moments.
//!
//! ```text
//!   Member ──► request ──► network ──► Table          true time ──► checks: two with leave, two
//!     ▲  │                                                          polls at once, an old token
//!     │  └──► Start, Stop, Lost ──► poller ──► result ──► sink ──►  accepted, a slot missed
//!     └─────────── answers, hints ◄── network
//! ```

mod adversary;
mod agenda;
mod checks;
mod class;
mod node;
mod plan;
mod poller;
mod store;
mod world;

pub use class::{Class, UnknownClass};

use plan::Plan;
use serde::Serialize;
use skep_policy::ownership::Guards;
use skep_policy::{Chance, SeededChance};
use std::collections::BTreeMap;
use world::World;

/// Failures that are told of; more say nothing new.
const FAILURES_MAX: usize = 10;

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What goes wrong.
    pub class: Class,
    /// Everything that is left to chance follows from it; the schedules have this and the following
    /// numbers as theirs.
    pub seed: u64,
    /// How many schedules.
    pub schedules: u64,
    /// All of them, but for showing what each is good for.
    pub guards: Guards,
    /// Whether to stop at the first schedule that fails.
    pub stop_at_failure: bool,
}

impl Options {
    /// Schedules of a class with all guards.
    pub fn new(class: Class, seed: u64, schedules: u64) -> Self {
        Options { class, seed, schedules, guards: Guards::default(), stop_at_failure: false }
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Whether everything held that must.
    pub ok: bool,
    /// What was counted.
    pub figures: BTreeMap<String, f64>,
    /// What did not hold, each with the command that shows it again.
    pub failures: Vec<String>,
    /// Everything that happened, as one number.
    pub trace: u64,
}

/// Simulates. The same options give the same outcome.
pub fn run(options: &Options) -> Outcome {
    let mut totals = [0_u64; 7];
    let (mut failures, mut trace, mut schedules, mut violations) = (Vec::new(), 0_u64, 0, 0_u64);
    for number in 0..options.schedules {
        let seed = options.seed.wrapping_add(number);
        let mut chance = SeededChance::new(SeededChance::new(seed).bits());
        let plan = Plan::new(options.class, &mut chance);
        let mut world = World::new(plan, options.guards, chance);
        world.run();
        schedules += 1;
        let counts = world.counts;
        let more = [
            counts.polls,
            counts.moves,
            counts.faults,
            counts.events,
            counts.refused,
            counts.forgotten,
            world.now / plan::SECOND,
        ];
        for (total, more) in totals.iter_mut().zip(more) {
            *total += more;
        }
        trace = trace.rotate_left(7) ^ world.trace;
        if let Some(broken) = world.checks.broken {
            violations += 1;
            if failures.len() < FAILURES_MAX {
                let class = options.class.name();
                let again = format!("skep sim polls {class} --seed {seed} --schedules 1");
                failures.push(format!("{class}, seed {seed}: {broken}; again with: {again}"));
            }
            if options.stop_at_failure {
                break;
            }
        }
    }
    let names =
        ["polls", "moves", "faults", "events", "results_refused", "forgotten", "virtual_seconds"];
    let counted = names.into_iter().zip(totals);
    let mut figures: BTreeMap<String, f64> =
        counted.map(|(name, total)| (name.to_owned(), total as f64)).collect();
    figures.insert("schedules".to_owned(), schedules as f64);
    figures.insert("violations".to_owned(), violations as f64);
    Outcome { ok: failures.is_empty(), figures, failures, trace }
}
