//! `skep queues pause` and `resume`: the switches for maintenance.

use crate::cli::ask::Path;
use crate::cli::cells::{name, to_the_second};
use crate::cli::client::NodeArgs;
use crate::cli::output::{self, Output};
use crate::cli::{CliError, Exit};
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};

pub const EXAMPLES: &str = "\
Examples:
  skep queues pause --pop                      nobody is handed a message
  skep queues pause --push                     pushes wait in the buffers of the nodes
  skep queues pause                            both
  skep queues resume

For all queues on all nodes. What is pushed while pushes are paused is kept on the disk of the node
that took it, and pushed in order when they are resumed. Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct SwitchArgs {
    /// Only pushes
    #[arg(long)]
    push: bool,

    /// Only pops
    #[arg(long, conflicts_with = "push")]
    pop: bool,

    #[command(flatten)]
    node: NodeArgs,
}

pub async fn run(arguments: &SwitchArgs, enabled: bool, output: Output) -> Result<Exit, CliError> {
    let push = Path::of(&["system", "maintenance"]);
    let pop = Path::of(&["system", "maintenance", "pop"]);
    let switches = [(push, !arguments.pop), (pop, !arguments.push)];
    let mut answer = Value::Null;
    for (path, _) in switches.into_iter().filter(|(_, meant)| *meant) {
        let body = json!({ "enabled": enabled });
        answer = arguments.node.call(Method::POST, path.as_str(), Some(body)).await?;
    }
    match output {
        Output::Json => output::json(&answer),
        Output::Table => output::line(&told(&answer)),
    }
    Ok(Exit::Ok)
}

/// How both switches are.
fn told(answer: &Value) -> String {
    let push = match answer["maintenanceMode"] == true {
        true => "paused: they wait in the buffers of the nodes",
        false => "go on",
    };
    let pop = match answer["popMaintenanceMode"] == true {
        true => "paused: nobody is handed a message",
        false => "go on",
    };
    let mut told = format!("pushes {push}\npops {pop}");
    if let Some(count) = answer["bufferedMessages"].as_u64().filter(|count| *count > 0) {
        told.push_str(&format!("\n{count} messages wait in the buffer of this node"));
    }
    if answer["bufferHealthy"] == false {
        told.push_str("\nthe buffer of this node is not well");
    }
    let paused = ["maintenanceMode", "popMaintenanceMode"].iter().any(|mode| answer[mode] == true);
    if paused && answer["since"].is_string() {
        let by = name(answer, "by");
        let by = if by.is_empty() { String::new() } else { format!(", by {by}") };
        told.push_str(&format!("\nsince {}{by}", to_the_second(answer, "since")));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_switches_are_told() {
        let answer = json!({
            "maintenanceMode": true, "popMaintenanceMode": false, "bufferedMessages": 3,
            "bufferHealthy": true, "since": "2026-07-01T10:00:00.5Z", "by": "ann",
        });
        assert_eq!(
            told(&answer),
            "pushes paused: they wait in the buffers of the nodes\npops go on\n3 messages wait in \
             the buffer of this node\nsince 2026-07-01T10:00:00Z, by ann"
        );
        let over = json!({
            "maintenanceMode": false, "popMaintenanceMode": false, "since": "2026-07-01T10:00:00Z",
        });
        assert_eq!(told(&over), "pushes go on\npops go on");
        let answer = json!({"maintenanceMode": false, "popMaintenanceMode": true, "since": null});
        assert_eq!(told(&answer), "pushes go on\npops paused: nobody is handed a message");
    }
}
