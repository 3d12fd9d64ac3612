//! `skep queues tail`: messages as they are pushed.

use crate::cli::ask::Path;
use crate::cli::cells::{in_a_line, second};
use crate::cli::client::NodeArgs;
use crate::cli::events::Event;
use crate::cli::messages::Message;
use crate::cli::output::{self, Output};
use crate::cli::push::visible;
use crate::cli::{CliError, Exit};
use clap::Args;
use serde_json::Value;
use std::time::Duration;

/// A node that went away is looked for again after this, then after longer.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// The longest pause between two tries.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

pub const EXAMPLES: &str = "\
Examples:
  skep queues tail orders
  skep queues tail orders --partition customer-4
  skep queues tail orders --json | jq .payload
  skep queues tail orders --count 10           ends after ten

Nothing is taken from the queue. Goes on until it is interrupted; when the node goes away it looks
for it again and says so: what is pushed meanwhile is not shown. --json prints a line of JSON for
each message.";

#[derive(Args)]
pub struct TailArgs {
    /// The queue's name
    name: String,

    /// Only of this partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// Tell what became of each for this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// End after so many messages
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    #[command(flatten)]
    node: NodeArgs,
}

pub async fn run(arguments: &TailArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["queues", &arguments.name, "tail"])
        .and("partition", arguments.partition.as_ref())
        .and("group", arguments.group.as_ref());
    // Whoever asks for something wrong is told so at once, and not again and again.
    let mut events = arguments.node.listen(path.as_str()).await?;
    let mut left = arguments.count;
    loop {
        let lost = loop {
            match events.next().await {
                Ok(Some(event)) => {
                    left = left.map(|left| left - u64::from(shown(&event, output)));
                    if left == Some(0) || !output::is_delivered() {
                        return Ok(Exit::Ok);
                    }
                }
                Ok(None) => break format!("{} has ended the stream", arguments.node.shown_url()),
                Err(error) => break error.message,
            }
        };
        output::warning(&format!("{lost}; looking for it again"));
        let mut pause = AGAIN_AFTER;
        events = loop {
            tokio::time::sleep(pause).await;
            match arguments.node.listen(path.as_str()).await {
                Ok(events) => break events,
                Err(error) if error.exit != Exit::Unavailable => return Err(error),
                Err(_) => pause = (pause * 2).min(AGAIN_AFTER_MAX),
            }
        };
        output::warning("it is back; what was pushed meanwhile is not shown");
    }
}

/// Prints what came, and whether it is a message.
fn shown(event: &Event, output: Output) -> bool {
    match event.name.as_str() {
        "message" => {}
        "skipped" => {
            output::warning(&skipped(&event.data));
            return false;
        }
        // That it begins, and whatever later nodes may tell.
        _ => return false,
    }
    match output {
        Output::Json => output::line(&in_a_line(&event.data)),
        Output::Table => output::line(&told(&event.data)),
    }
    true
}

/// How many came too fast.
fn skipped(data: &str) -> String {
    let value: Value = serde_json::from_str(data).unwrap_or_default();
    match value["messages"].as_u64() {
        Some(count) => format!("{count} messages came too fast and are left out"),
        None => "some messages came too fast and are left out".to_owned(),
    }
}

/// A message in a line.
fn told(data: &str) -> String {
    let Ok(message) = serde_json::from_str::<Message>(data) else { return in_a_line(data) };
    let priority = match message.priority {
        0 => String::new(),
        priority => format!("  priority {priority}"),
    };
    format!(
        "{}  {}{priority}  {}  {}",
        second(&message.created_at),
        visible(&message.partition),
        visible(&message.transaction_id),
        in_a_line(message.payload())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_line_with_its_payload_as_it_was_pushed() {
        let message = r#"{"id":"m","transactionId":"t\u001b","queue":"q","partition":"p",
            "partitionId":"1","priority":5,"status":"pending","payload":{"n": 1.0},
            "createdAt":"2026-07-01T10:00:00.123456Z"}"#;
        assert_eq!(told(message), "2026-07-01T10:00:00Z  p  priority 5  t\\u{1b}  {\"n\": 1.0}");
        assert_eq!(told("{\"odd\":\n1}"), "{\"odd\": 1}");
    }

    #[test]
    fn what_was_left_out_is_counted() {
        assert!(skipped(r#"{"messages":7}"#).starts_with("7 messages"));
        assert!(skipped("{}").starts_with("some messages"));
    }
}
