//! `skep chaos`: real nodes and servers, and everything that can happen to them.

use super::output::{self, Output};
use super::{CliError, Exit};
use crate::report::Report;
use clap::{Args, Subcommand};
use skep_chaos::polls::{self, Options, Outcome, Plan, Struck};
use std::time::Duration;

/// What to do it to.
#[derive(Subcommand)]
pub enum ChaosVerb {
    /// Nodes that poll endpoints, while they, Redis and PostgreSQL are killed, stopped and cut off
    Polls(PollsArgs),
}

const POLLS_EXAMPLES: &str = "\
Examples:
  skep chaos polls                             some minutes
  skep chaos polls --faults 200 --seed 7
  skep chaos polls --nodes 3 --endpoints 200 --faults 15 --keep
  skep chaos polls --json

Starts a PostgreSQL, a Redis and nodes of this program on this machine, in a temporary folder, and a
web server that writes down every poll. Nodes are killed, stopped, paused and cut off from Redis;
Redis is restarted empty or from an old copy, paused and flushed; PostgreSQL is restarted.

Checked: no endpoint is polled by two nodes at once or under an older grant than before; the
database accepts no result under an older grant and none for a slot twice; a killed node's endpoints
are taken over in time, a stopped node's miss nothing; after each fault everything is polled again
in time.

After a failure the logs are kept, and it is said where. The same seed gives the same faults, not
the same end. redis-server, initdb and psql must be installed. --json prints
{\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is 0 only if ok.";

#[derive(Args)]
#[command(after_help = POLLS_EXAMPLES)]
pub struct PollsArgs {
    /// How many nodes
    #[arg(long, value_name = "COUNT", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(2..=50))]
    nodes: u16,

    /// How many endpoints, each polled every second
    #[arg(long, value_name = "COUNT", default_value_t = 60,
          value_parser = clap::value_parser!(u16).range(1..=5_000))]
    endpoints: u16,

    /// How many faults; about six in a minute
    #[arg(long, value_name = "COUNT", default_value_t = 40,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    faults: u32,

    /// Which faults happen follows from it; a new one if left out
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// What this machine may need beyond what is promised about time, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=60))]
    slack: u16,

    /// Keep the logs although nothing failed
    #[arg(long)]
    keep: bool,
}

pub fn run(verb: &ChaosVerb, output: Output) -> Result<Exit, CliError> {
    let ChaosVerb::Polls(arguments) = verb;
    let skep = std::env::current_exe().map_err(|error| {
        CliError::new(Exit::System, format!("this program's own file cannot be found: {error}"))
    })?;
    let seed = arguments.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1 >> 11);
    let options = Options {
        skep,
        nodes: usize::from(arguments.nodes),
        endpoints: usize::from(arguments.endpoints),
        plan: Plan::Faults(arguments.faults as usize),
        seed,
        slack: Duration::from_secs(arguments.slack.into()),
        keep: arguments.keep,
    };
    let mut say = |line: &str| {
        if output == Output::Table {
            output::line(line);
        }
    };
    say(&format!("seed {seed}"));
    let outcome =
        polls::run(&options, &mut say).map_err(|error| CliError::new(Exit::System, error))?;
    if output == Output::Table {
        table(&outcome.steps);
    }
    let report = report(arguments, seed, outcome);
    match output {
        Output::Json => output::json(&report),
        Output::Table => output::line(&report.to_text()),
    }
    Ok(if report.ok { Exit::Ok } else { Exit::No })
}

fn table(steps: &[Struck]) {
    let seconds = |micros: u64| format!("{:.1}s", micros as f64 / 1e6);
    let maybe = |micros: Option<u64>| micros.map_or_else(|| "-".to_owned(), seconds);
    output::table(
        &["AT", "WHAT", "LASTED", "WELL AFTER", "LONGEST GAP", "TAKEN OVER"],
        steps.iter().map(|step| {
            vec![
                seconds(step.began),
                step.what.clone(),
                seconds(step.healed - step.began),
                maybe(step.settled.map(|settled| settled - step.healed)),
                seconds(step.gap),
                maybe(step.takeover),
            ]
        }),
    );
}

fn report(arguments: &PollsArgs, seed: u64, outcome: Outcome) -> Report {
    let mut report = Report::new("chaos polls");
    report.figure("seed", seed as f64);
    for (name, value) in outcome.figures {
        report.figure(&name, value);
    }
    let failed = !outcome.failures.is_empty();
    for failure in outcome.failures {
        report.fail(failure);
    }
    let kept = outcome.folder.map(|folder| format!("the logs are in {}", folder.display()));
    if failed {
        let PollsArgs { nodes, endpoints, faults, .. } = arguments;
        kept.into_iter().for_each(|kept| report.fail(kept));
        report.fail(format!(
            "again with: skep chaos polls --seed {seed} --nodes {nodes} --endpoints {endpoints} \
             --faults {faults}"
        ));
    } else if let Some(kept) = kept {
        output::warning(&kept);
    }
    report
}
