//! `skep bench`: measurements of Skep on this machine.

mod latency;
mod load;
mod queues;

use super::output::{self, Output};
use super::{CliError, Exit};
use crate::bench::{pools, store};
use crate::report::Report;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to measure.
#[derive(Subcommand)]
pub enum BenchVerb {
    /// Durable rows a second in the embedded store, against one transaction a call
    Store(StoreArgs),
    /// Worker pools: throughput and isolation against tokio::spawn, limits, the access log
    Pools(PoolsArgs),
    /// Messages through a running node: pushed, popped and acknowledged, also against another node
    Queues(Box<queues::QueuesArgs>),
}

const POOLS_EXAMPLES: &str = "\
Examples:
  skep bench pools --quick
  skep bench pools --json                      some minutes
  skep bench pools --folder /var/lib/skep      the disk that matters

--json prints {\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is 0 only if ok.";

#[derive(Args)]
#[command(after_help = POOLS_EXAMPLES)]
pub struct PoolsArgs {
    /// Folder on the disk to measure; a database is made there and removed
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,

    /// Half a minute instead of some minutes
    #[arg(long)]
    quick: bool,
}

const STORE_EXAMPLES: &str = "\
Examples:
  skep bench store
  skep bench store --quick --json
  skep bench store --folder /var/lib/skep      the disk that matters

--json prints {\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is 0 only if ok.";

#[derive(Args)]
#[command(after_help = STORE_EXAMPLES)]
pub struct StoreArgs {
    /// Folder on the disk to measure; two files are made there and removed
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,

    /// Concurrent callers
    #[arg(long, value_name = "COUNT", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    callers: u16,

    /// A second or two instead of ten
    #[arg(long)]
    quick: bool,
}

pub fn run(verb: &BenchVerb, output: Output) -> Result<Exit, CliError> {
    let report = match verb {
        BenchVerb::Store(arguments) => bench_store(arguments)?,
        BenchVerb::Pools(arguments) => bench_pools(arguments)?,
        BenchVerb::Queues(arguments) => return queues::run(arguments, output),
    };
    match output {
        Output::Json => output::json(&report),
        Output::Table => output::line(&report.to_text()),
    }
    Ok(if report.ok { Exit::Ok } else { Exit::No })
}

fn bench_store(arguments: &StoreArgs) -> Result<Report, CliError> {
    let (turn, rounds) = if arguments.quick { (100, 5) } else { (1_000, 5) };
    let options = store::Options {
        callers: usize::from(arguments.callers),
        turn: Duration::from_millis(turn),
        rounds,
    };
    let folder = temporary(&arguments.folder)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| CliError::new(Exit::System, format!("cannot start: {error}")))?;
    // Draws itself only on a terminal.
    let progress = indicatif::ProgressBar::new(2 * rounds as u64);
    let report = runtime.block_on(store::run(folder.path(), &options, || progress.inc(1)));
    progress.finish_and_clear();
    Ok(report?)
}

fn bench_pools(arguments: &PoolsArgs) -> Result<Report, CliError> {
    let folder = temporary(&arguments.folder)?;
    let progress = indicatif::ProgressBar::new_spinner();
    let options = pools::Options { quick: arguments.quick };
    let report = pools::run(folder.path(), options, |part| {
        progress.set_message(part.to_owned());
        progress.tick();
    });
    progress.finish_and_clear();
    report.map_err(|error| CliError::new(Exit::System, format!("{error:#}")))
}

fn temporary(folder: &Path) -> Result<tempfile::TempDir, CliError> {
    tempfile::Builder::new().prefix("skep-bench-").tempdir_in(folder).map_err(|error| {
        let shown = folder.display();
        CliError::new(Exit::System, format!("--folder {shown} cannot be used: {error}"))
    })
}
