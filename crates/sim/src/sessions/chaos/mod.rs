//! Everything goes wrong around the table of sessions.
//!
//! The table is the real one. Around it are gateways that die, are cut off and come back, workers
//! that crash, fall silent and restart slowly, operators, and a network that loses, repeats and
//! delays. The simulator keeps the truth: what each gateway carries on which start of a program.
//!
//! ```text
//!   gateway ──► checkout, close, beat, join ──► network ──► Fleet ──► answer ──► network ──┐
//!   worker  ──► register, heartbeat ──────────►                │                           │
//!      ▲                                                       ▼                           │
//!      │                            truth: may this happen? does the table agree?          │
//!      └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! What must hold of the truth, at every step:
//! * No program is given more sessions than it has slots, or more in its life than the limit.
//! * No more than the budget restart at once because they were told to, and none with a session.
//! * No session is given to a program that is known to be gone.
//! * No session waits while a slot that fits it is free.
//!
//! And when the faults end, every count is the truth, and the line is served.
//!
//! What no table can exclude is excused and counted ([`Excuse`](truth::Excuse)): a gateway that was
//! given up while it carried, and what a table that lost its memory has not been told again yet.

mod calm;
mod faults;
mod gateway;
mod mutation;
mod plan;
mod table;
mod tell;
mod truth;
mod worker;
mod world;

pub use mutation::Mutation;

use plan::Plan;
use serde::Serialize;
use skep_policy::{Chance, SeededChance};
use std::collections::BTreeMap;
use world::World;

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// About how many events.
    pub events: u64,
    /// What somebody does wrong, to show that it is noticed.
    pub mutation: Option<Mutation>,
}

impl Options {
    /// A run in which everybody does what they should.
    pub fn new(seed: u64, events: u64) -> Self {
        Options { seed, events, mutation: None }
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Whether everything held that must.
    pub ok: bool,
    /// What was counted.
    pub figures: BTreeMap<&'static str, u64>,
    /// What did not hold, with the command that shows it again. A run ends with the first.
    pub failures: Vec<String>,
    /// The last steps before the failure.
    pub story: Vec<String>,
    /// Everything that happened, as one number.
    pub trace: u64,
}

/// Simulates fleet after fleet, each with its storm and the calm after it, until there were so many
/// events. The same options give the same outcome, to the byte.
pub fn run(options: &Options) -> Outcome {
    let mut chance = SeededChance::new(options.seed);
    let mut outcome = Outcome {
        ok: true,
        figures: BTreeMap::new(),
        failures: Vec::new(),
        story: Vec::new(),
        trace: 0,
    };
    let mut events = 0;
    while events < options.events && outcome.ok {
        let seed = chance.bits();
        let mut world = live(seed, options.mutation, false);
        events += world.events;
        outcome.trace = outcome.trace.rotate_left(7) ^ world.trace;
        for (name, count) in std::mem::take(&mut world.counts) {
            *outcome.figures.entry(name).or_insert(0) += count;
        }
        *outcome.figures.entry("fleets").or_insert(0) += 1;
        if let Some(broken) = world.broken {
            let (seed, events) = (options.seed, options.events);
            let again = format!("skep sim sessions chaos --seed {seed} --events {events}");
            outcome.ok = false;
            outcome.failures.push(format!("at {} ms: {broken}; again with: {again}", world.now));
        }
        if !outcome.ok {
            // Once more, and written down this time.
            outcome.story = live(seed, options.mutation, true).story.into();
        }
    }
    outcome.figures.insert("events", events);
    outcome
}

fn live(seed: u64, mutation: Option<Mutation>, told: bool) -> World {
    let mut chance = SeededChance::new(seed);
    let plan = Plan::new(&mut chance);
    let mut world = World::new(plan, chance, mutation, told);
    world.live();
    world
}
