//! `skep capacity`: how much room there is, and how many workers would do.

use super::client::NodeArgs;
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::http::CapacityAnswer;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  skep capacity
  skep capacity --json

WANTED is how many workers would serve everybody who is here or waits with a fifth to spare, on top
of those that may be restarting: a hint for autoscalers. Needs a key with the scope `session`; the
gateway answers the same at /v1/capacity.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CapacityArgs {
    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &CapacityArgs, output: Output) -> Result<Exit, CliError> {
    let path = "/api/v1/sessions/capacity";
    let answer: CapacityAnswer = small_runtime()?.block_on(arguments.node.get(path))?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table if answer.kinds.is_empty() => {
            output::line("no worker has come yet; `skep help worker` says how to start one");
        }
        Output::Table => print(&answer),
    }
    Ok(Exit::Ok)
}

fn print(answer: &CapacityAnswer) {
    output::table(
        &["KIND", "FREE", "SLOTS", "ACTIVE", "WAITING", "WORKERS", "WANTED"],
        answer.kinds.iter().map(|one| {
            vec![
                one.kind.clone(),
                one.free.to_string(),
                one.slots.to_string(),
                one.active.to_string(),
                one.waiting.to_string(),
                one.workers.to_string(),
                one.workers_wanted.to_string(),
            ]
        }),
    );
    let labels = answer.kinds.iter().flat_map(|one| {
        let free = one.free_by_label.iter();
        free.map(|(label, free)| vec![one.kind.clone(), label.clone(), free.to_string()])
    });
    let labels: Vec<Vec<String>> = labels.collect();
    if !labels.is_empty() {
        output::line("");
        output::table(&["KIND", "LABEL", "FREE"], labels);
    }
}
