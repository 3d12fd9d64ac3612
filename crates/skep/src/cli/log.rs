//! `skep log`: what a running node logs.

use super::client::NodeArgs;
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use hyper::Method;

/// What to do with the log.
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

pub fn run(verb: &LogVerb, output: Output) -> Result<Exit, CliError> {
    let LogVerb::Level(arguments) = verb;
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
