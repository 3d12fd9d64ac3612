//! `skep chaos`: real nodes and servers, and everything that can happen to them.

use super::output::{self, Output};
use super::{CliError, Exit};
use crate::report::Report;
use clap::{Args, Subcommand};
use skep_chaos::polls::{self, Options, Outcome, Plan, Struck};
use skep_chaos::sessions;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What to do it to.
#[derive(Subcommand)]
pub enum ChaosVerb {
    /// Nodes that poll endpoints, while they, Redis and PostgreSQL are killed, stopped and cut off
    Polls(PollsArgs),
    /// Gateways that carry sessions to workers, while gateways and Redis are killed and paused
    Sessions(SessionsArgs),
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

const SESSIONS_EXAMPLES: &str = "\
Examples:
  skep chaos sessions                          about half a minute
  skep chaos sessions --kills 1000 --seed 7    about 40 minutes
  skep chaos sessions --gateways 2 --kills 15 --keep
  skep chaos sessions --json

Starts a PostgreSQL, a Redis and gateways of this program on this machine, in a temporary folder,
with workers that know which sessions are really open, and clients that open and close sessions all
the time. Gateways and Redis are killed and come back; in between they stand still for a while.

Checked: within a second after a dead gateway was noticed, and soon after anything else, every
worker's count is what is really open on it; then no worker has more sessions than slots, and none
is sent away with sessions on it, unless a gateway was cut off for longer than its lease; in good
weather no client fails; at the end nothing is left.

After a failure the logs are kept, and it is said where. The same seed gives the same faults, not
the same end. redis-server, initdb and psql must be installed. --json prints
{\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is 0 only if ok.";

#[derive(Args)]
#[command(after_help = SESSIONS_EXAMPLES)]
pub struct SessionsArgs {
    /// How many gateways
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(2..=20))]
    gateways: u16,

    /// How many times a gateway or Redis is killed; pauses come on top
    #[arg(long, value_name = "COUNT", default_value_t = 15,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: u32,

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
    match verb {
        ChaosVerb::Polls(arguments) => run_polls(arguments, output),
        ChaosVerb::Sessions(arguments) => run_sessions(arguments, output),
    }
}

fn own_program() -> Result<PathBuf, CliError> {
    std::env::current_exe().map_err(|error| {
        CliError::new(Exit::System, format!("this program's own file cannot be found: {error}"))
    })
}

fn new_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 >> 11
}

fn run_sessions(arguments: &SessionsArgs, output: Output) -> Result<Exit, CliError> {
    let seed = arguments.seed.unwrap_or_else(new_seed);
    let options = sessions::Options {
        skep: own_program()?,
        gateways: usize::from(arguments.gateways),
        kills: arguments.kills as usize,
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
        sessions::run(&options, &mut say).map_err(|error| CliError::new(Exit::System, error))?;
    let SessionsArgs { gateways, kills, .. } = arguments;
    let again = format!("skep chaos sessions --seed {seed} --gateways {gateways} --kills {kills}");
    let sessions::Outcome { figures, failures, folder } = outcome;
    Ok(tell(output, judge("chaos sessions", seed, (figures, failures, folder), &again)))
}

fn run_polls(arguments: &PollsArgs, output: Output) -> Result<Exit, CliError> {
    let seed = arguments.seed.unwrap_or_else(new_seed);
    let options = Options {
        skep: own_program()?,
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
    let PollsArgs { nodes, endpoints, faults, .. } = arguments;
    let again = format!(
        "skep chaos polls --seed {seed} --nodes {nodes} --endpoints {endpoints} --faults {faults}"
    );
    let Outcome { figures, failures, folder, .. } = outcome;
    Ok(tell(output, judge("chaos polls", seed, (figures, failures, folder), &again)))
}

fn tell(output: Output, report: Report) -> Exit {
    match output {
        Output::Json => output::json(&report),
        Output::Table => output::line(&report.to_text()),
    }
    if report.ok { Exit::Ok } else { Exit::No }
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

/// The verdict over figures, failures and where logs were kept.
fn judge(
    name: &str,
    seed: u64,
    (figures, failures, folder): (BTreeMap<String, f64>, Vec<String>, Option<PathBuf>),
    again: &str,
) -> Report {
    let mut report = Report::new(name);
    report.figure("seed", seed as f64);
    for (name, value) in figures {
        report.figure(&name, value);
    }
    let failed = !failures.is_empty();
    for failure in failures {
        report.fail(failure);
    }
    let kept = folder.map(|folder| format!("the logs are in {}", folder.display()));
    if failed {
        kept.into_iter().for_each(|kept| report.fail(kept));
        report.fail(format!("again with: {again}"));
    } else if let Some(kept) = kept {
        output::warning(&kept);
    }
    report
}
