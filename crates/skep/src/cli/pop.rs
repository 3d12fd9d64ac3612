//! `skep pop`: messages of a queue, and how to say that they are done.

use super::cells::{in_a_line, parsed};
use super::client::{NodeArgs, encode};
use super::output::{self, Output};
use super::push::visible;
use super::{CliError, Exit, small_runtime};
use clap::Args;
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// A node is asked to wait for so long at most; whoever wants to wait longer asks again.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A node that does not wait although it was asked to, because it stops, is asked again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// So many partitions are told how to acknowledge; --json has them all.
const HINTS_MAX: usize = 5;

const EXAMPLES: &str = "\
Examples:
  skep pop orders                              the next message, leased until it is acknowledged
  skep pop orders --wait                       wait for one, 30 s at most
  skep pop orders --batch 100 --partitions 10 --ack
  skep pop orders --group audit --from 2026-07-01T00:00:00Z
  skep pop orders --wait 600 --ack --payload-only | jq .total

Ends with 1 if there is nothing. Without --ack messages come again when their lease runs out, unless
they are acknowledged as it says; with --ack they are acknowledged after they were printed. Groups
read independently of each other; --from says where one begins that was never here before. Needs a
key with the scope `pop`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PopArgs {
    /// The queue
    queue: String,

    /// Only of this partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// For this group of consumers
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// So many messages at most
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// From so many partitions at most
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000), conflicts_with = "partition")]
    partitions: u32,

    /// Wait for messages if there are none, for 30 seconds unless said otherwise
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "30",
          value_parser = seconds)]
    wait: Option<u32>,

    /// Acknowledge the messages once they are printed
    #[arg(long)]
    ack: bool,

    /// Where a new group begins: all, new, or a time such as 2026-07-01T00:00:00Z
    #[arg(long, value_name = "WHERE", value_parser = from)]
    from: Option<From>,

    /// Print the payloads alone, each in a line
    #[arg(long)]
    payload_only: bool,

    #[command(flatten)]
    node: NodeArgs,
}

/// Where a group begins that was never seen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    All,
    New,
    Time(String),
}

fn from(text: &str) -> Result<From, String> {
    match text {
        "all" => Ok(From::All),
        "new" => Ok(From::New),
        time => match time.parse::<jiff::Timestamp>() {
            Ok(time) => Ok(From::Time(time.to_string())),
            Err(error) => {
                let right = "it must be all, new, or a time such as 2026-07-01T00:00:00Z";
                Err(format!("{right}: {error}"))
            }
        },
    }
}

fn seconds(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(seconds @ 1..=86_400) => Ok(seconds),
        Ok(_) => Err("it must be from 1 to 86400 seconds".to_owned()),
        Err(_) => Err("it must be a number of seconds; write the queue before --wait".to_owned()),
    }
}

/// The node's answer, as far as it is looked at.
#[derive(Default, Deserialize)]
struct Popped {
    messages: Vec<Message>,
    /// Whether nothing is handed out for now.
    #[serde(default)]
    paused: bool,
}

/// A message. The payload's bytes are the producer's own.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    transaction_id: String,
    data: Box<RawValue>,
    created_at: String,
    partition: String,
    partition_id: String,
    lease_id: Option<String>,
}

pub fn run(arguments: &PopArgs, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        let answer = pop(arguments).await?;
        let Popped { messages, paused } = match &answer {
            Some(answer) => parsed(answer)?,
            None => Popped::default(),
        };
        match output {
            _ if arguments.payload_only => {
                for message in &messages {
                    output::line(&in_a_line(message.data.get()));
                }
            }
            Output::Json => {
                let answer = answer.as_ref().map_or(r#"{"messages":[]}"#, |answer| answer.get());
                output::line(&in_a_line(answer));
            }
            Output::Table if paused => {
                output::line("no message: pops are paused; `skep queues resume --pop` ends that");
            }
            Output::Table if messages.is_empty() => output::line("no message"),
            Output::Table => table(&messages),
        }
        if messages.is_empty() {
            return Ok(Exit::No);
        }
        if arguments.ack {
            acknowledge(arguments, &messages).await?;
        } else if output == Output::Table {
            hints(arguments, &messages);
        }
        Ok(Exit::Ok)
    })
}

impl PopArgs {
    fn path(&self, wait: Option<Duration>) -> String {
        let mut path = format!("/api/v1/pop/queue/{}", encode(&self.queue));
        if let Some(partition) = &self.partition {
            path.push_str(&format!("/partition/{}", encode(partition)));
        }
        path.push_str(&format!("?batch={}&partitions={}", self.batch, self.partitions));
        match wait {
            Some(wait) => path.push_str(&format!("&wait=true&timeout={}", wait.as_millis())),
            None => path.push_str("&wait=false"),
        }
        if let Some(group) = &self.group {
            path.push_str(&format!("&consumerGroup={}", encode(group)));
        }
        match &self.from {
            Some(From::All) => path.push_str("&subscriptionMode=all"),
            Some(From::New) => path.push_str("&subscriptionMode=new"),
            Some(From::Time(time)) => path.push_str(&format!("&subscriptionFrom={}", encode(time))),
            None => {}
        }
        path
    }
}

/// What the node has; `None` if there is nothing.
async fn pop(arguments: &PopArgs) -> Result<Option<Box<RawValue>>, CliError> {
    let Some(seconds) = arguments.wait else {
        return arguments.node.wait_for(&arguments.path(None), Duration::ZERO).await;
    };
    let deadline = Instant::now() + Duration::from_secs(u64::from(seconds));
    loop {
        let asked = Instant::now();
        let wait = deadline.saturating_duration_since(asked).min(WAIT_MAX);
        let path = arguments.path(Some(wait));
        let answer: Option<Box<RawValue>> = arguments.node.wait_for(&path, wait).await?;
        let paused = answer.as_ref().map(|answer| parsed::<Popped>(answer)).transpose()?;
        let paused = paused.is_some_and(|popped| popped.paused && popped.messages.is_empty());
        if (answer.is_some() && !paused) || Instant::now() >= deadline {
            return Ok(answer);
        }
        tokio::time::sleep_until((asked + wait.min(AGAIN_AFTER)).min(deadline)).await;
    }
}

fn table(messages: &[Message]) {
    output::table(
        &["PARTITION", "PUSHED", "TRANSACTION", "PAYLOAD"],
        messages.iter().map(|message| {
            vec![
                visible(&message.partition),
                visible(&message.created_at),
                visible(&message.transaction_id),
                in_a_line(message.data.get()),
            ]
        }),
    );
}

/// The last message of each partition: acknowledging it acknowledges those before it.
fn last_of_each(messages: &[Message]) -> Vec<&Message> {
    let mut last: Vec<&Message> = Vec::new();
    for message in messages {
        match last.iter_mut().find(|other| other.partition_id == message.partition_id) {
            Some(other) => *other = message,
            None => last.push(message),
        }
    }
    last
}

fn hints(arguments: &PopArgs, messages: &[Message]) {
    let last = last_of_each(messages);
    output::note("\nWhen they are done, with those before them in their partition:");
    for message in last.iter().take(HINTS_MAX) {
        output::note(&format!("  {}", ack_command(arguments, message)));
    }
    if last.len() > HINTS_MAX {
        let more = last.len() - HINTS_MAX;
        output::note(&format!("and so for {more} further partitions; --json tells their ids"));
    }
}

/// The command that acknowledges a message.
fn ack_command(arguments: &PopArgs, message: &Message) -> String {
    let mut command = "skep ack".to_owned();
    let flags = [("--lease", message.lease_id.as_ref()), ("--group", arguments.group.as_ref())];
    for (flag, value) in flags {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            command.push_str(&format!(" {flag}={}", quoted(value)));
        }
    }
    if !arguments.node.is_usual() {
        command.push_str(&format!(" --url={}", quoted(&arguments.node.url)));
    }
    let (partition, transaction) = (quoted(&message.partition_id), quoted(&message.transaction_id));
    let end = if message.transaction_id.starts_with('-') { " --" } else { "" };
    format!("{command}{end} {partition} {transaction}")
}

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    let plain = |one: char| one.is_ascii_alphanumeric() || "-_.:/@%+".contains(one);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if word.chars().any(char::is_control) {
        // $'…' is the one form in which these can be shown at all.
        return format!("$'{}'", escaped(word));
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn escaped(word: &str) -> String {
    let escape = |byte: u8| match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        0x20..=0x7e => char::from(byte).to_string(),
        other => format!("\\x{other:02x}"),
    };
    word.bytes().map(escape).collect()
}

async fn acknowledge(arguments: &PopArgs, messages: &[Message]) -> Result<(), CliError> {
    if !output::is_delivered() {
        let message = "not everything was read, so nothing is acknowledged: the messages come \
                       again when their lease runs out";
        return Err(CliError::new(Exit::System, message));
    }
    let last = last_of_each(messages);
    let acks: Vec<Value> = last
        .iter()
        .map(|message| {
            json!({
                "transactionId": message.transaction_id,
                "partitionId": message.partition_id,
                "leaseId": message.lease_id,
                "status": "completed",
            })
        })
        .collect();
    let body = json!({ "acknowledgments": acks, "consumerGroup": arguments.group });
    let node = &arguments.node;
    let results: Vec<Value> = node.call(Method::POST, "/api/v1/ack/batch", Some(body)).await?;
    let refused = last.iter().zip(&results).filter(|(_, result)| result["success"] != true);
    let told: Vec<String> = refused
        .map(|(message, result)| {
            let (partition, why) = (visible(&message.partition), output::text(result, "error"));
            format!("the messages of {partition} were not acknowledged and come again: {why}")
        })
        .collect();
    if told.is_empty() { Ok(()) } else { Err(CliError::new(Exit::No, told.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn arguments(more: &[&str]) -> Result<PopArgs, clap::Error> {
        let verb = Cli::try_parse_from([&["skep", "pop"], more].concat())?.verb;
        match verb {
            Verb::Pop(arguments) => Ok(arguments),
            _ => panic!("{more:?} is another verb"),
        }
    }

    fn answer() -> Vec<Message> {
        let message = |partition: &str, transaction: &str, data: &str| {
            format!(
                r#"{{"id":"m","transactionId":"{transaction}","traceId":null,"data":{data},
                "producerSub":null,"createdAt":"2026-07-01T00:00:00.000001Z","partition":
                "name-{partition}","partitionId":"{partition}","leaseId":"l-1",
                "consumerGroup":"g"}}"#
            )
        };
        let messages =
            [message("a", "1", "1.0"), message("b", "it's", "{}"), message("a", "-3", "[1,\n2]")];
        let text = format!(r#"{{"success":true,"queue":"q","messages":[{}]}}"#, messages.join(","));
        let answer = RawValue::from_string(text).expect("it is JSON");
        parsed::<Popped>(&answer).expect("it is an answer").messages
    }

    #[test]
    fn names_go_into_the_path_encoded() {
        let told = ["a b/c", "--partition", "50%|é", "--group", "g&h", "--from", "new"];
        assert_eq!(
            arguments(&told).expect("parses").path(None),
            "/api/v1/pop/queue/a%20b%2Fc/partition/50%25%7C%C3%A9?batch=1&partitions=1&wait=false\
             &consumerGroup=g%26h&subscriptionMode=new"
        );
        let told =
            ["q", "--batch", "9", "--partitions", "3", "--from", "2026-07-01T02:00:00+02:00"];
        assert_eq!(
            arguments(&told).expect("parses").path(Some(Duration::from_millis(1_500))),
            "/api/v1/pop/queue/q?batch=9&partitions=3&wait=true&timeout=1500\
             &subscriptionFrom=2026-07-01T00%3A00%3A00Z"
        );
    }

    #[test]
    fn waiting_is_for_thirty_seconds_unless_said_otherwise() {
        assert_eq!(arguments(&["q"]).expect("parses").wait, None);
        assert_eq!(arguments(&["q", "--wait"]).expect("parses").wait, Some(30));
        assert_eq!(arguments(&["q", "--wait", "600"]).expect("parses").wait, Some(600));
        let error = arguments(&["--wait", "q"]).err().expect("q is no number").to_string();
        assert!(error.contains("write the queue before --wait"), "{error}");
    }

    #[test]
    fn wrong_values_say_what_would_be_right() {
        let error = arguments(&["q", "--from", "yesterday"]).err().expect("no time").to_string();
        assert!(error.contains("all, new, or a time such as"), "{error}");
        for wrong in [["--batch", "0"], ["--partitions", "1001"], ["--wait", "0"]] {
            assert!(arguments(&[&["q"], &wrong[..]].concat()).is_err(), "{wrong:?}");
        }
        assert!(arguments(&["q", "--partition", "p", "--partitions", "2"]).is_err());
    }

    #[test]
    fn payloads_are_printed_as_they_were_pushed_each_in_a_line() {
        let lines: Vec<String> =
            answer().iter().map(|message| in_a_line(message.data.get())).collect();
        assert_eq!(lines, ["1.0", "{}", "[1, 2]"]);
        assert_eq!(in_a_line("\"a\u{9b}b\u{7f}é\""), "\"a\\u009bb\\u007fé\"");
    }

    #[test]
    fn the_last_message_of_each_partition_is_acknowledged_for_all() {
        let messages = answer();
        let last: Vec<&str> =
            last_of_each(&messages).iter().map(|one| one.transaction_id.as_str()).collect();
        assert_eq!(last, ["-3", "it's"]);
    }

    #[test]
    fn the_hint_is_a_command_that_means_the_message() {
        let arguments = arguments(&["q", "--group", "my group"]).expect("parses");
        let commands: Vec<String> =
            answer().iter().map(|one| ack_command(&arguments, one)).collect();
        assert_eq!(
            commands,
            [
                "skep ack --lease=l-1 --group='my group' a 1",
                r"skep ack --lease=l-1 --group='my group' b 'it'\''s'",
                "skep ack --lease=l-1 --group='my group' -- a -3",
            ]
        );
        assert_eq!(quoted("a\nb'"), r"$'a\x0ab\''");
        assert_eq!(quoted(""), "''");
    }
}
