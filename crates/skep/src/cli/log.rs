//! `skep log`: the requests that were answered, and what a running node writes to its own log.

use super::access::{self, AccessArgs};
use super::client::NodeArgs;
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use hyper::Method;

const EXAMPLES: &str = "\
Examples:
  skep log
  skep log --route shop --status 5xx --from 1h
  skep log --follow --min-duration 250ms
  skep log --address '192.0.2.*' --limit 1000 --json
  skep log level debug

--json prints a line of JSON for each entry. Needs a key with the scope `admin`. What is kept, and
for how long, is set by `access_log.*`. What the node itself has to say is in the lines it prints
and on the dashboard's page Log; `skep log level` says which of them there are.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct LogArgs {
    #[command(subcommand)]
    verb: Option<LogVerb>,

    #[command(flatten)]
    requests: AccessArgs,
}

/// What else to do with the log.
#[derive(Subcommand)]
pub enum LogVerb {
    /// Show which lines are written, or change it until the node ends
    Level(LevelArgs),
}

const LEVEL_EXAMPLES: &str = "\
Examples:
  skep log level
  skep log level debug
  skep log level info,skep_store=trace

Changing it needs a key with the scope `admin`.";

#[derive(Args)]
#[command(after_help = LEVEL_EXAMPLES)]
pub struct LevelArgs {
    /// error, warn, info, debug, trace or off, also per module
    level: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &LogArgs, output: Output) -> Result<Exit, CliError> {
    match &arguments.verb {
        None => access::run(&arguments.requests, output),
        Some(LogVerb::Level(arguments)) => level(arguments, output),
    }
}

fn level(arguments: &LevelArgs, output: Output) -> Result<Exit, CliError> {
    let path = "/api/v1/log/level";
    let answer: serde_json::Value = small_runtime()?.block_on(async {
        match &arguments.level {
            None => arguments.node.get(path).await,
            Some(level) => {
                let body = serde_json::json!({ "level": level });
                arguments.node.call(Method::PUT, path, Some(body)).await
            }
        }
    })?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => output::line(answer["level"].as_str().unwrap_or_default()),
    }
    Ok(Exit::Ok)
}
