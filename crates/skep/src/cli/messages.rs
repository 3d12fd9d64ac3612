//! `skep messages`: messages of a queue, whatever became of them.

use super::ask::{Path, confirm};
use super::cells::{group_named, in_a_line, list, name, parsed, second, short};
use super::client::NodeArgs;
use super::given::{field, past};
use super::output::{self, Output};
use super::push::visible;
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Messages of one answer at most.
const PAGE: u32 = 1_000;
/// Questions to the node for one list: it looks at a limited number of messages for each.
const PAGES_MAX: u32 = 100;

/// What to do with messages.
#[derive(Subcommand)]
pub enum MessagesVerb {
    /// List messages of a queue, the newest first
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(Box<LsArgs>),
    /// Show one message, and what became of it
    #[command(after_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// Delete a message
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(RmArgs),
    /// Push a message again that was settled or set aside
    #[command(after_help = RETRY_EXAMPLES)]
    Retry(OneArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep messages ls orders
  skep messages ls orders --partition customer-4 --status pending --group audit
  skep messages ls orders --from 1h --where customer.id=17
  skep messages ls orders --contains 'items[0].name=bee' --limit 1000 --json

--where and --contains look into payloads: a field by its path, with dots and numbers of places in
lists. A search over many messages may end early; it says so, and how to go on.";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep messages show PARTITION_ID TRANSACTION_ID
  skep messages show PARTITION_ID TRANSACTION_ID --json

`skep messages ls` tells both ids.";

const RM_EXAMPLES: &str = "\
Examples:
  skep messages rm PARTITION_ID TRANSACTION_ID
  skep messages rm PARTITION_ID TRANSACTION_ID --yes

Where there is no terminal --yes is needed. Needs a key with the scope `admin`.";

const RETRY_EXAMPLES: &str = "\
Examples:
  skep messages retry PARTITION_ID TRANSACTION_ID

Its dead letters go back to the queue; if every group has settled it, a copy is pushed. One that is
still pending is refused. Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct LsArgs {
    /// The queue
    queue: String,

    /// Only of this partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// Only what is so for the group
    #[arg(long, value_parser = ["pending", "processing", "completed"])]
    status: Option<String>,

    /// The group whose view it is
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// Not before this time, as in 2026-07-01T00:00:00Z, or so long ago, as in 10m
    #[arg(long, value_name = "TIME", value_parser = past)]
    from: Option<Timestamp>,

    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = past)]
    to: Option<Timestamp>,

    /// Only payloads in which this field is this value
    #[arg(long = "where", value_name = "PATH=VALUE", value_parser = field)]
    equals: Option<(String, String)>,

    /// Only payloads in which this field contains this text
    #[arg(long, value_name = "PATH=TEXT", value_parser = field, conflicts_with = "equals")]
    contains: Option<(String, String)>,

    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    /// Go on where an earlier list ended
    #[arg(long = "before", alias = "after", value_name = "NEXT")]
    after: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct OneArgs {
    /// The message's partition
    partition_id: String,

    /// The message's transaction id
    transaction_id: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct RmArgs {
    #[command(flatten)]
    one: OneArgs,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// A message of an answer, as far as it is shown. The payload's bytes are the producer's own.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub transaction_id: String,
    #[serde(default)]
    pub queue: String,
    pub partition: String,
    #[serde(default)]
    pub partition_id: String,
    #[serde(default)]
    pub priority: u8,
    #[serde(default)]
    pub status: Option<String>,
    payload: Option<Box<RawValue>>,
    data: Option<Box<RawValue>>,
    pub created_at: String,
}

impl Message {
    /// What was pushed, by whichever name it comes.
    pub fn payload(&self) -> &str {
        self.payload.as_ref().or(self.data.as_ref()).map_or("null", |payload| payload.get())
    }
}

/// A page of messages as the node wrote them.
#[derive(Deserialize)]
struct Page {
    messages: Vec<Box<RawValue>>,
    next: Option<String>,
    #[serde(default)]
    scanned: u64,
}

/// What was found on all pages.
#[derive(Default, Serialize)]
struct Found {
    messages: Vec<Box<RawValue>>,
    next: Option<String>,
    scanned: u64,
}

pub fn run(verb: &MessagesVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            MessagesVerb::Ls(arguments) => ls(arguments, output).await,
            MessagesVerb::Show(arguments) => show(arguments, output).await,
            MessagesVerb::Rm(arguments) => remove(arguments, output).await,
            MessagesVerb::Retry(arguments) => retry(arguments, output).await,
        }
    })
}

impl LsArgs {
    fn path(&self, limit: u32, after: Option<&str>) -> Path {
        let looked_for = self.equals.as_ref().or(self.contains.as_ref());
        let [equals, contains] =
            [&self.equals, &self.contains].map(|given| given.as_ref().map(|(_, value)| value));
        Path::of(&["messages"])
            .with("queue", &self.queue)
            .with("limit", limit)
            .and("partition", self.partition.as_ref())
            .and("status", self.status.as_ref())
            .and("consumerGroup", self.group.as_ref())
            .and("from", self.from)
            .and("to", self.to)
            .and("field", looked_for.map(|(field, _)| field))
            .and("equals", equals)
            .and("contains", contains)
            .and("after", after)
    }
}

/// Asks page by page until there are enough, or none is left.
async fn ls(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let limit = arguments.limit as usize;
    let mut found = Found { next: arguments.after.clone(), ..Found::default() };
    for _ in 0..PAGES_MAX {
        let missing = u32::try_from(limit - found.messages.len()).unwrap_or(PAGE).min(PAGE);
        let path = arguments.path(missing, found.next.as_deref());
        let page: Page = arguments.node.get(path.as_str()).await?;
        found.messages.extend(page.messages);
        found.scanned += page.scanned;
        found.next = page.next;
        if found.messages.len() >= limit || found.next.is_none() {
            break;
        }
    }
    match output {
        Output::Json => match serde_json::to_string(&found) {
            Ok(json) => output::line(&in_a_line(&json)),
            Err(error) => unreachable!("answers are plain values: {error}"),
        },
        Output::Table if found.messages.is_empty() => output::line("no message"),
        Output::Table => table(&found.messages)?,
    }
    if let Some(next) = found.next.as_deref().filter(|_| output == Output::Table) {
        let looked_at = match found.messages.len() < limit {
            true => format!("looked at {} messages; ", found.scanned),
            false => String::new(),
        };
        output::note(&format!("{looked_at}go on with --before={}", visible(next)));
    }
    Ok(Exit::Ok)
}

fn table(messages: &[Box<RawValue>]) -> Result<(), CliError> {
    let rows = messages.iter().map(|message| parsed::<Message>(message).map(|one| row(&one)));
    let rows: Vec<Vec<String>> = rows.collect::<Result<_, _>>()?;
    output::table(
        &["PUSHED", "PARTITION", "PRIORITY", "STATUS", "TRANSACTION", "PARTITION ID", "PAYLOAD"],
        rows,
    );
    Ok(())
}

fn row(message: &Message) -> Vec<String> {
    vec![
        second(&message.created_at),
        visible(&message.partition),
        message.priority.to_string(),
        visible(message.status.as_deref().unwrap_or_default()),
        visible(&message.transaction_id),
        visible(&message.partition_id),
        short(message.payload()),
    ]
}

impl OneArgs {
    fn path(&self, rest: &[&str]) -> Path {
        let segments = ["messages", &self.partition_id, &self.transaction_id];
        Path::of(&[&segments, rest].concat())
    }
}

async fn show(arguments: &OneArgs, output: Output) -> Result<Exit, CliError> {
    let answer: Box<RawValue> = arguments.node.get(arguments.path(&[]).as_str()).await?;
    match output {
        Output::Json => output::line(&in_a_line(answer.get())),
        Output::Table => {
            let (value, message): (Value, Message) = (parsed(&answer)?, parsed(&answer)?);
            output::table(&["", ""], details(&value, &message));
        }
    }
    Ok(Exit::Ok)
}

fn details(value: &Value, message: &Message) -> Vec<Vec<String>> {
    let pair = |what: &str, value: String| vec![what.to_owned(), value];
    let mut rows = vec![
        pair("id", name(value, "id")),
        pair("transaction", visible(&message.transaction_id)),
        pair("queue", visible(&message.queue)),
        pair("partition", visible(&message.partition)),
        pair("partition id", visible(&message.partition_id)),
        pair("priority", message.priority.to_string()),
        pair("pushed", second(&message.created_at)),
    ];
    for (what, field) in [("by", "producerSub"), ("trace id", "traceId"), ("status", "status")] {
        if !value[field].is_null() {
            rows.push(pair(what, name(value, field)));
        }
    }
    for group in list(&value["consumerGroups"]) {
        let status = name(group, "status");
        rows.push(pair(&format!("for {}", group_named(&name(group, "name"))), status));
    }
    if value["traces"].as_u64().is_some_and(|count| count > 0) {
        rows.push(pair("traces", format!("{}, see `skep traces show`", value["traces"])));
    }
    rows.push(pair("payload", in_a_line(message.payload())));
    rows
}

async fn remove(arguments: &RmArgs, output: Output) -> Result<Exit, CliError> {
    let transaction = visible(&arguments.one.transaction_id);
    confirm(&format!("deleting the message {transaction}"), arguments.yes)?;
    let (path, node) = (arguments.one.path(&[]), &arguments.one.node);
    let answer: Value = node.call(Method::DELETE, path.as_str(), None).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => output::line(&format!("{transaction} deleted")),
    }
    Ok(Exit::Ok)
}

async fn retry(arguments: &OneArgs, output: Output) -> Result<Exit, CliError> {
    let path = arguments.path(&["retry"]);
    let answer: Value = arguments.node.call(Method::POST, path.as_str(), None).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => {
            let transaction = visible(&arguments.transaction_id);
            output::line(&format!("{transaction} comes again as {}", name(&answer, "messageId")));
        }
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn path(more: &[&str]) -> Result<String, String> {
        let words = [&["skep", "messages", "ls"], more].concat();
        match Cli::try_parse_from(words).map(|cli| cli.verb) {
            Ok(Verb::Messages(MessagesVerb::Ls(arguments))) => {
                Ok(arguments.path(arguments.limit, arguments.after.as_deref()).as_str().to_owned())
            }
            Ok(_) => panic!("{more:?} is another verb"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn what_is_looked_for_is_asked_of_the_node() {
        let given = ["a b", "--where", "x.y=1=2", "--status", "pending", "--group", "g"];
        assert_eq!(
            path(&given).expect("parses"),
            "/api/v1/messages?queue=a%20b&limit=50&status=pending&consumerGroup=g&field=x.y\
             &equals=1%3D2"
        );
        let given = ["q", "--contains", "x=a", "--from", "2026-07-01T00:00:00Z", "--after", "t/1"];
        assert_eq!(
            path(&given).expect("parses"),
            "/api/v1/messages?queue=q&limit=50&from=2026-07-01T00%3A00%3A00Z&field=x&contains=a\
             &after=t%2F1"
        );
    }

    #[test]
    fn wrong_values_say_what_would_be_right() {
        for (given, right) in [
            (["--where", "x"], "customer.id=17"),
            (["--status", "odd"], "pending, processing, completed"),
            (["--from", "noon"], "how long ago, such as 10m"),
        ] {
            let error = path(&[&["q"], &given[..]].concat()).expect_err("it is wrong");
            assert!(error.contains(right), "{error}");
        }
        assert!(path(&["q", "--where", "a=1", "--contains", "a=1"]).is_err());
    }

    #[test]
    fn a_message_is_shown_with_what_became_of_it_and_its_payload_as_pushed() {
        let text = r#"{"id":"m-1","transactionId":"t","traceId":null,"queue":"q","partition":"p",
            "partitionId":"p-1","priority":0,"status":"pending","data":{"n": 1.0},
            "producerSub":"ann","createdAt":"2026-07-01T00:00:00.000001Z","traces":2,
            "consumerGroups":[{"name":"audit","status":"completed"}]}"#;
        let raw = RawValue::from_string(text.to_owned()).expect("JSON");
        let (value, message): (Value, Message) =
            (parsed(&raw).expect("reads"), parsed(&raw).expect("reads"));
        let rows = details(&value, &message);
        let of = |what: &str| rows.iter().find(|row| row[0] == what).map(|row| row[1].as_str());
        assert_eq!(of("payload"), Some(r#"{"n": 1.0}"#));
        assert_eq!(of("for audit"), Some("completed"));
        assert_eq!((of("by"), of("trace id")), (Some("ann"), None));
        assert!(of("traces").is_some_and(|told| told.starts_with("2, ")));
        assert_eq!(row(&message)[6], r#"{"n": 1.0}"#);
    }
}
