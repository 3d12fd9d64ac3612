//! `skep queues`: which queues there are, and how far their groups are.

mod print;

use super::client::{NodeArgs, encode};
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use serde_json::Value;

/// What to do with queues.
#[derive(Subcommand)]
pub enum QueuesVerb {
    /// List queues and what waits in them
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one queue: options, partitions, groups, dead letters
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep queues ls
  skep queues ls --limit 20 --after orders
  skep queues ls --json

PENDING is what the slowest group has not settled; without a group, all messages.";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep queues show orders
  skep queues show orders --partitions 100
  skep queues show orders --json";

#[derive(Args)]
pub struct LsArgs {
    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only those whose names come after this one
    #[arg(long, value_name = "NAME")]
    after: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The queue's name
    name: String,

    /// So many of its partitions, the oldest first
    #[arg(long, value_name = "COUNT", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    partitions: u32,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(verb: &QueuesVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            QueuesVerb::Ls(arguments) => list(arguments, output).await,
            QueuesVerb::Show(arguments) => show(arguments, output).await,
        }
    })
}

async fn list(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let mut path = format!("/api/v1/resources/queues?limit={}", arguments.limit);
    if let Some(after) = &arguments.after {
        path.push_str(&format!("&after={}", encode(after)));
    }
    let answer: Value = arguments.node.get(&path).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::queues(&answer),
    }
    Ok(Exit::Ok)
}

async fn show(arguments: &ShowArgs, output: Output) -> Result<Exit, CliError> {
    let (name, partitions) = (encode(&arguments.name), arguments.partitions);
    let path = format!("/api/v1/resources/queues/{name}?partitions={partitions}");
    let answer: Value = arguments.node.get(&path).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::queue(&answer),
    }
    Ok(Exit::Ok)
}
