//! `skep audit`: who changed what.

use super::ask::Path;
use super::client::NodeArgs;
use super::entities::NewestArgs;
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::access::AuditEntry;
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
    #[command(flatten)]
    newest: NewestArgs,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &AuditArgs, output: Output) -> Result<Exit, CliError> {
    let path = arguments.newest.of(Path::of(&["audit"]));
    let answer: AuditAnswer = small_runtime()?.block_on(arguments.node.get(path.as_str()))?;
    match output {
        Output::Json => output::json(&answer.entries),
        Output::Table if answer.entries.is_empty() => output::line("nothing was changed yet"),
        Output::Table => {
            output::table(
                &["ID", "WHEN", "WHO", "FROM", "WHAT", "TO WHAT", "DETAIL"],
                answer.entries.into_iter().map(|one| {
                    let AuditEntry { explain, at, actor, address, action, target, detail, .. } =
                        one;
                    vec![explain, at, actor, address, action, target, detail]
                }),
            );
            if let Some(next) = answer.next {
                output::line(&format!("\nthe next with --before {next}"));
            }
        }
    }
    Ok(Exit::Ok)
}
