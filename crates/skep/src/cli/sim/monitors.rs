//! `skep sim monitors`: how much changes while monitors watch servers for weeks.

use super::super::output::{self, Output};
use super::super::{CliError, Exit};
use super::any_seed;
use crate::report::Report;
use clap::Args;
use skep_sim::monitors::{self, Options, Outcome, Scenario};
use std::path::PathBuf;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  skep sim monitors                            every scenario, with a plot
  skep sim monitors storm --servers 5000
  skep sim monitors loss --seed 7 --svg loss.svg
  skep sim monitors --json

Scenarios: calm (a new fleet, exact measurements), noise-5 and noise-10 (each review measures 5 % or
10 % off), loss (three of ten monitors are paused at once, for good), storm (monitors and servers
that fall silent, lost packets, joins, leaves and pauses, monitors that share a network, accounts
with limits, which are lowered half-way; the last four days are quiet).

A run is a review of one server: every 20 minutes, or 60 after a change. CHURN is changes a server
and run from the sixth day on, BELOW how many runs left a server with fewer active monitors than it
should have, FIRST how long a new server needed to get there. After a loss, TO 5 and TO 7 are the
runs until so many were active, at most, of the servers that had so many left in active and testing.

Round trips are spread evenly from 5 to 210 ms. With --plane more of them are in the middle, where
monitors are hard to tell apart: at 10 % of noise churn is then about 0.07, more than is promised.

What must hold: after every review all promises of a plan (one change a monitor, its budget, no
blocked one in service, no promotion against a limit or beside one of its network); nothing changes
in a calm once it has settled; churn is at most 0.02 and 0.05 with noise; 5 are active after 2 runs
and 7 after 4; and in the end every server has what it should.

The decision is the one that a node makes. The same seed repeats a run exactly, on any number of
processors. --json prints {\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is 0 only if
ok.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct MonitorsArgs {
    /// Which; all if left out
    scenario: Option<String>,

    /// Everything that is left to chance follows from it; a new one if left out
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// How many servers
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    servers: u32,

    /// How many monitors at the beginning; 20, or 60 in a loss or a storm
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(20..=4_000))]
    monitors: Option<u32>,

    /// How many days, on the virtual clock
    #[arg(long, value_name = "DAYS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(12..=366))]
    days: u32,

    /// Spread the fleet over a plane instead of a circle: many are about equally far away then, and
    /// noise changes more
    #[arg(long)]
    plane: bool,

    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub fn simulate(arguments: &MonitorsArgs, output: Output) -> Result<Report, CliError> {
    let wanted = match &arguments.scenario {
        None => Scenario::ALL.to_vec(),
        Some(name) => vec![name.parse().map_err(|error: monitors::UnknownScenario| {
            CliError::new(Exit::Usage, format!("{name:?}: {error}"))
        })?],
    };
    let seed = arguments.seed.unwrap_or_else(any_seed);
    let mut report = Report::new("sim monitors");
    report.figure("seed", seed as f64);
    let mut outcomes: Vec<(Outcome, f64)> = Vec::new();
    for scenario in wanted {
        let options = options(arguments, scenario, seed);
        let started = Instant::now();
        let outcome = monitors::run(&options);
        let took = started.elapsed().as_secs_f64();
        if output == Output::Table {
            let (name, monitors) = (scenario.name(), options.monitors);
            let servers = options.servers;
            output::line(&format!("{name}, {servers} servers, {monitors} monitors, seed {seed}"));
            output::line(&monitors::draw(&outcome));
        }
        note(&mut report, &options, &outcome);
        outcomes.push((outcome, took));
    }
    if let Some(file) = &arguments.svg {
        let outcomes: Vec<Outcome> = outcomes.iter().map(|(outcome, _)| outcome.clone()).collect();
        std::fs::write(file, monitors::svg(&outcomes)).map_err(|error| {
            CliError::new(Exit::System, format!("--svg {}: {error}", file.display()))
        })?;
    }
    if output == Output::Table {
        print(&outcomes);
        // The tables have the figures.
        let figures = std::mem::take(&mut report.figures);
        output::line(&format!("seed {seed}, {}", report.to_text()));
        report.figures = figures;
    }
    Ok(report)
}

fn options(arguments: &MonitorsArgs, scenario: Scenario, seed: u64) -> Options {
    let monitors = arguments.monitors.map_or(scenario.monitors(), |count| count as usize);
    Options {
        servers: arguments.servers as usize,
        monitors,
        days: arguments.days as usize,
        plane: arguments.plane,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        ..Options::new(scenario, seed)
    }
}

fn note(report: &mut Report, options: &Options, outcome: &Outcome) {
    let name = options.scenario.name();
    for (figure, value) in &outcome.figures {
        report.figure(&format!("{name}_{figure}"), *value);
    }
    for failure in &outcome.failures {
        report.fail(format!("{name}: {failure}"));
    }
    if !outcome.failures.is_empty() {
        let Options { seed, servers, monitors, days, .. } = options;
        let plane = if options.plane { " --plane" } else { "" };
        report.fail(format!(
            "again with: skep sim monitors {name} --seed {seed} --servers {servers} \
             --monitors {monitors} --days {days}{plane}"
        ));
    }
}

fn print(outcomes: &[(Outcome, f64)]) {
    let row = |(outcome, took): &(Outcome, f64)| {
        let figure = |name: &str| outcome.figure(name);
        let runs = |name: &str| match outcome.scenario {
            Scenario::Loss => format!("{:.0}", figure(name)),
            _ => String::new(),
        };
        vec![
            outcome.scenario.name().to_owned(),
            format!("{:.0}", figure("runs")),
            format!("{:.4}", figure("churn_per_run")),
            format!("{:.2}%", figure("below_target_percent")),
            format!("{:.2}%", figure("below_five_percent")),
            format!("{:.0}h", figure("seven_active_after_hours_mean")),
            runs("five_active_after_runs_max"),
            runs("seven_active_after_runs_max"),
            format!("{took:.1}"),
        ]
    };
    let headings =
        ["SCENARIO", "RUNS", "CHURN", "BELOW", "BELOW 5", "FIRST", "TO 5", "TO 7", "SECONDS"];
    output::table(&headings, outcomes.iter().map(row));
}
