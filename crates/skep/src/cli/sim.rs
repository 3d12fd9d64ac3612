//! `skep sim`: what happens under loads and faults, on a virtual clock.

mod cluster;
mod monitors;
mod sessions;

use super::output::{self, Output};
use super::{CliError, Exit};
use crate::report::Report;
use clap::{Args, Subcommand};
use skep_sim::polls;
use skep_sim::pools::{self, Options, Scenario};
use std::time::Instant;

/// What to simulate.
#[derive(Subcommand)]
pub enum SimVerb {
    /// Worker pools under load, from idle to the peak, and with everything going wrong
    Pools(PoolsArgs),
    /// Polls by several nodes, with everything going wrong: never two nodes at once
    Polls(PollsArgs),
    /// Sessions on workers that wear out: who waits, who is out, and everything going wrong
    Sessions(sessions::SessionsArgs),
    /// Nodes of a cluster that share requests: who serves what, with old news and faults
    Cluster(cluster::ClusterArgs),
    /// Monitors that watch servers for weeks: how much changes, and how fast a loss is made good
    Monitors(monitors::MonitorsArgs),
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

const POLLS_EXAMPLES: &str = "\
Examples:
  skep sim polls                               200 schedules of every class
  skep sim polls partition --schedules 10000
  skep sim polls mixed --seed 42 --schedules 1
  skep sim polls --json

Classes: none, crash, graceful (nodes leave and come back), pause (processes are held), partition,
slow (messages late, reordered, twice), store-pause, store-empty, store-snapshot (the store comes
back without what it knew), flush, clock-jump, drift, flapping, rolling, mixed (all of these);
late-poll and freeze: what no lease can exclude, where only results must stay in order.

A schedule is five minutes or more of three to six nodes that poll twelve endpoints. In half of them
somebody who knows everything chooses the worst moments. What must hold: no two nodes with leave to
poll at once, no two polls at once, no result of an owner that was overtaken, no slot twice or
early, and after the faults every endpoint again in time and every node with its share.

The same seed repeats a run exactly. --json prints {\"name\", \"ok\", \"figures\", \"failures\"};
the exit code is 0 only if ok.";

#[derive(Args)]
#[command(after_help = POLLS_EXAMPLES)]
pub struct PollsArgs {
    /// Which; all if left out
    class: Option<String>,

    /// That of the first schedule, the others have the numbers after it; a new one if left out
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// How many of each class
    #[arg(long, value_name = "COUNT", default_value_t = 200,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    schedules: u64,
}

pub fn run(verb: &SimVerb, output: Output) -> Result<Exit, CliError> {
    let report = match verb {
        SimVerb::Pools(arguments) => {
            let report = simulate(arguments, output)?;
            if output == Output::Table {
                output::line(&report.to_text());
            }
            report
        }
        SimVerb::Polls(arguments) => simulate_polls(arguments, output)?,
        SimVerb::Sessions(arguments) => sessions::simulate(arguments, output)?,
        SimVerb::Cluster(arguments) => cluster::simulate(arguments, output)?,
        SimVerb::Monitors(arguments) => monitors::simulate(arguments, output)?,
    };
    if output == Output::Json {
        output::json(&report);
    }
    Ok(if report.ok { Exit::Ok } else { Exit::No })
}

fn any_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 >> 11
}

fn simulate(arguments: &PoolsArgs, output: Output) -> Result<Report, CliError> {
    let wanted = match &arguments.scenario {
        None => Scenario::ALL.to_vec(),
        Some(name) => vec![name.parse().map_err(|error: pools::UnknownScenario| {
            CliError::new(Exit::Usage, format!("{name:?}: {error}"))
        })?],
    };
    let seed = arguments.seed.unwrap_or_else(any_seed);
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

fn simulate_polls(arguments: &PollsArgs, output: Output) -> Result<Report, CliError> {
    let wanted = match &arguments.class {
        None => polls::Class::ALL.to_vec(),
        Some(name) => vec![name.parse().map_err(|error: polls::UnknownClass| {
            CliError::new(Exit::Usage, format!("{name:?}: {error}"))
        })?],
    };
    let seed = arguments.seed.unwrap_or_else(any_seed);
    let mut report = Report::new("sim polls");
    report.figure("seed", seed as f64);
    let columns = ["schedules", "polls", "moves", "faults", "violations"];
    let mut rows = Vec::new();
    for class in wanted {
        let started = Instant::now();
        let outcome = polls::run(&polls::Options::new(class, seed, arguments.schedules));
        let took = started.elapsed().as_secs_f64();
        let count = |name: &str| outcome.figures.get(name).copied().unwrap_or(0.0);
        let mut row = vec![class.name().to_owned()];
        row.extend(columns.iter().map(|name| format!("{:.0}", count(name))));
        row.push(format!("{took:.1}"));
        rows.push(row);
        for (figure, value) in &outcome.figures {
            report.figure(&format!("{}_{figure}", class.name()), *value);
        }
        for failure in outcome.failures {
            report.fail(failure);
        }
    }
    if output == Output::Table {
        let headings = ["CLASS", "SCHEDULES", "POLLS", "MOVES", "FAULTS", "VIOLATIONS", "SECONDS"];
        output::table(&headings, rows);
        // The table has the figures.
        let figures = std::mem::take(&mut report.figures);
        output::line(&format!("seed {seed}, {}", report.to_text()));
        report.figures = figures;
    }
    Ok(report)
}
