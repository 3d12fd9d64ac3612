//! `skep audit`: who changed what.

use super::client::NodeArgs;
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::http::AuditAnswer;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  skep audit
  skep audit --limit 1000 --json

Needs a key with the scope `admin`. The last 100,000 changes are kept.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AuditArgs {
    /// So many of the newest entries
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &AuditArgs, output: Output) -> Result<Exit, CliError> {
    let path = format!("/api/v1/audit?limit={}", arguments.limit);
    let answer: AuditAnswer = small_runtime()?.block_on(arguments.node.get(&path))?;
    match output {
        Output::Json => output::json(&answer.entries),
        Output::Table if answer.entries.is_empty() => output::line("nothing was changed yet"),
        Output::Table => output::table(
            &["WHEN", "WHO", "FROM", "WHAT", "TO WHAT", "DETAIL"],
            answer.entries.into_iter().map(|one| {
                vec![one.at, one.actor, one.address, one.action, one.target, one.detail]
            }),
        ),
    }
    Ok(Exit::Ok)
}
