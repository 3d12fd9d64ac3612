//! `skep sim`: what happens under loads and faults, on a virtual clock.

use super::output::{self, Output};
use super::{CliError, Exit};
use crate::report::Report;
use clap::{Args, Subcommand};
use skep_sim::pools::{self, Options, Scenario};
use std::time::Instant;

/// What to simulate.
#[derive(Subcommand)]
pub enum SimVerb {
    /// Worker pools under load, from idle to the peak, and with everything going wrong
    Pools(PoolsArgs),
}

const POOLS_EXAMPLES: &str = "\
Examples:
  skep sim pools                               every scenario, with a plot of workers and queues
  skep sim pools burst
  skep sim pools chaos --events 100000000 --seed 7
  skep sim pools --json

Scenarios: sustained (1,000 tasks a second for a minute), burst (10,000 in a second, then none),
lifecycle (from idle to the peak and back), hover (a load at each threshold), chaos (crashes, hangs,
threads that cannot be started, the pools stopped in the middle).

The engine is the one that a node runs; only its threads and its clock are simulated. The same seed
repeats a run exactly. --json prints {\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is
0 only if ok.";

#[derive(Args)]
#[command(after_help = POOLS_EXAMPLES)]
pub struct PoolsArgs {
    /// Which; all if left out
    #[arg(value_parser = ["chaos", "sustained", "burst", "lifecycle", "hover"])]
    scenario: Option<String>,

    /// Everything that is left to chance follows from it; a new one if left out
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// About how many events of chaos
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1_000..=100_000_000_000))]
    events: u64,
}

pub fn run(verb: &SimVerb, output: Output) -> Result<Exit, CliError> {
    let SimVerb::Pools(arguments) = verb;
    let report = simulate(arguments, output)?;
    match output {
        Output::Json => output::json(&report),
        Output::Table => output::line(&report.to_text()),
    }
    Ok(if report.ok { Exit::Ok } else { Exit::No })
}

fn simulate(arguments: &PoolsArgs, output: Output) -> Result<Report, CliError> {
    let wanted = match &arguments.scenario {
        None => Scenario::ALL.to_vec(),
        Some(name) => vec![name.parse().map_err(|error: pools::UnknownScenario| {
            CliError::new(Exit::Usage, format!("{name:?}: {error}"))
        })?],
    };
    let seed = arguments.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1 >> 11);
    let mut report = Report::new("sim pools");
    report.figure("seed", seed as f64);
    for scenario in wanted {
        let options = Options { events: arguments.events, ..Options::new(scenario, seed) };
        let started = Instant::now();
        let outcome = pools::run(&options);
        let took = started.elapsed().as_secs_f64();
        let name = scenario.name();
        if output == Output::Table {
            let events = outcome.figures.get("events").copied().unwrap_or(0.0);
            output::line(&format!("{name}, seed {seed}: {events:.0} events in {took:.1} s"));
            output::line(&pools::plot(&outcome.timeline));
        }
        for (figure, value) in &outcome.figures {
            report.figure(&format!("{name}_{figure}"), *value);
        }
        for failure in outcome.failures {
            report.fail(format!("{name}: {failure}"));
        }
        if !outcome.ok {
            let events = arguments.events;
            report
                .fail(format!("again with: skep sim pools {name} --seed {seed} --events {events}"));
        }
    }
    Ok(report)
}
