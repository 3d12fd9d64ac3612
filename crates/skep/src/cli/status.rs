//! `skep status`: how a node is doing.

use super::client::NodeArgs;
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::http::NodeAnswer;
use clap::Args;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  skep status
  skep status --url https://skep.example:6632
  skep status --json | jq .stores

Ends with 0 if the node is ready and its stores answer, with 1 if not, with 69 if no node answers.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &StatusArgs, output: Output) -> Result<Exit, CliError> {
    let node: NodeAnswer = small_runtime()?.block_on(arguments.node.get("/api/v1/node"))?;
    match output {
        Output::Json => output::json(&node),
        Output::Table => show(&node),
    }
    let well = node.state == "ready" && node.stores.iter().all(|store| store.ok);
    Ok(if well { Exit::Ok } else { Exit::No })
}

fn show(node: &NodeAnswer) {
    let state = match &node.detail {
        Some(detail) => format!("{}: {detail}", node.state),
        None => node.state.clone(),
    };
    let uptime = Duration::from_secs(node.uptime_seconds as u64);
    let mut rows = vec![
        ("node", node.name.clone()),
        ("state", state),
        ("version", node.version.clone()),
        ("running for", format!("{uptime:?}")),
        ("installation", node.installation.clone().unwrap_or_else(|| "not known yet".to_owned())),
        ("data", node.data.clone()),
    ];
    for store in &node.stores {
        let how = match &store.error {
            Some(error) => error.clone(),
            None => format!("{}, answers in {:.2} ms", store.target, store.latency_ms),
        };
        rows.push((store.store.as_str(), how));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        output::line(&format!("{name:width$}  {value}"));
    }
}
