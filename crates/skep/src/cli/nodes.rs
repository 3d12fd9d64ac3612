//! `skep nodes`: who is there, and who owns how much.

use super::client::NodeArgs;
use super::output::{self, Output, text};
use super::{CliError, Exit, small_runtime};
use crate::http::NodesAnswer;
use clap::Args;
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  skep nodes
  skep nodes --json

Every node is equal: any of them can be asked, and shows the others as it last heard of them.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct NodesArgs {
    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &NodesArgs, output: Output) -> Result<Exit, CliError> {
    let answer: NodesAnswer = small_runtime()?.block_on(arguments.node.get("/api/v1/nodes"))?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print(&answer.overview),
    }
    Ok(Exit::Ok)
}

fn print(overview: &Value) {
    let nodes = overview["nodes"].as_array().cloned().unwrap_or_default();
    output::table(
        &["NODE", "STATE", "WEIGHT", "OWNS", "HEARD", "API", "VERSION", "INSTANCE"],
        nodes.iter().map(|node| {
            let here = node["here"] == Value::Bool(true);
            let owns = node["owns"].as_object().into_iter().flatten();
            let owns: Vec<String> = owns.map(|(kind, count)| format!("{count} {kind}")).collect();
            let heard = node["heard_ms"].as_f64().unwrap_or(0.0) / 1e3;
            vec![
                format!("{}{}", text(node, "name"), if here { " (this one)" } else { "" }),
                text(node, "status"),
                text(node, "weight"),
                if owns.is_empty() { "-".to_owned() } else { owns.join(", ") },
                if here { "-".to_owned() } else { format!("{heard:.1}s ago") },
                text(&node["info"], "api"),
                text(&node["info"], "version"),
                text(node, "instance"),
            ]
        }),
    );
    let (store, standing) = (text(overview, "store"), text(overview, "standing"));
    output::line(&format!(
        "\nagreed on in {store}, epoch {}; this node is {standing}",
        text(overview, "epoch")
    ));
    if overview["settled"] == Value::Bool(false) {
        let wait = overview["settles_in_ms"].as_f64().unwrap_or(0.0) / 1e3;
        output::line(&format!(
            "the store is new or has lost something: nothing is claimed for another {wait:.1} s"
        ));
    }
}
