//! `skep push`: messages into a queue, one or a stream of lines.

mod lines;

use super::cells::second;
use super::client::NodeArgs;
use super::given::{delay, moment, pause};
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::{BufReader, IsTerminal, Read};

pub use lines::Lines;
use lines::{PAYLOAD_BYTES_MAX, too_large, unreadable};

/// Lines whose payloads are larger than this together are not pushed with further ones.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

const EXAMPLES: &str = "\
Examples:
  skep push orders '{\"id\": 17, \"total\": 9.5}'
  skep push orders '{\"id\": 17}' --partition customer-4 --transaction-id order-17
  skep push orders '{\"id\": 17}' --delay 10m --priority 5
  skep push notes --text 'call back'           the JSON string \"call back\"
  curl -s https://shop.example/order/17 | skep push orders
  skep push orders --lines < orders.jsonl      each line is a message, 100 with each request
  tail -f app.log | skep push logs --lines --text

A message that was pushed before, by its transaction id, is a duplicate: it is not pushed again, and
that is no error. With --lines the transaction ids are ID-1, ID-2 … by the number of the line, so
that the same command may be run again; blank lines are left out, and what has arrived is pushed
without waiting for more. With --lines --json there is a line of JSON for each message. Needs a key
with the scope `push`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PushArgs {
    /// The queue; it is made if there is none of that name
    queue: String,

    /// The message, as JSON; - or nothing reads it from standard input
    #[arg(allow_negative_numbers = true)]
    payload: Option<String>,

    /// The partition, in which messages keep their order
    #[arg(long, value_name = "NAME", default_value = "Default")]
    partition: String,

    /// Your id of the message: pushed twice, it is there once
    #[arg(long, value_name = "ID")]
    transaction_id: Option<String>,

    /// What the message is part of
    #[arg(long, value_name = "ID")]
    trace_id: Option<String>,

    /// Hand it out only after so long, as in 10m
    #[arg(long, value_name = "DURATION", value_parser = delay)]
    delay: Option<u64>,

    /// Hand it out only at this time, as in 2026-07-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "delay")]
    at: Option<Timestamp>,

    /// Go before those of its partition with a lower one, 0 to 9
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,

    /// So many failures bring it back, whatever the queue says
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    retry_limit: Option<u32>,

    /// So long before it comes again after a failure, whatever the queue says, as in 30s
    #[arg(long, value_name = "DURATION", value_parser = pause)]
    retry_delay: Option<u64>,

    /// Push text as it is, as a JSON string
    #[arg(long)]
    text: bool,

    /// Push each line of standard input as a message
    #[arg(long)]
    lines: bool,

    /// With --lines: so many messages with each request, at most
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "lines",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    #[command(flatten)]
    node: NodeArgs,
}

/// A message as the API reads it. The payload's bytes are the user's own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'args> {
    queue: &'args str,
    partition: &'args str,
    payload: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'args str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_delay: Option<u64>,
}

#[derive(Serialize)]
struct Body<'args> {
    items: &'args [Item<'args>],
}

pub fn run(arguments: &PushArgs, output: Output) -> Result<Exit, CliError> {
    let given = arguments.payload.as_deref().filter(|payload| *payload != "-");
    let runtime = small_runtime()?;
    match (given, arguments.lines) {
        (Some(_), true) => {
            let message = "--lines reads standard input; leave the payload out, or write -";
            Err(CliError::new(Exit::Usage, message))
        }
        (Some(payload), false) => runtime.block_on(one(arguments, payload, output)),
        (None, lines) => {
            let input = std::io::stdin().lock();
            if input.is_terminal() {
                output::note("reading from the terminal; Ctrl-D ends it");
            }
            if lines {
                let input = BufReader::with_capacity(64 << 10, input);
                return runtime.block_on(many(arguments, input, output));
            }
            let payload = read_all(input)?;
            runtime.block_on(one(arguments, &payload, output))
        }
    }
}

fn read_all(input: impl Read) -> Result<String, CliError> {
    let mut payload = String::new();
    let most = PAYLOAD_BYTES_MAX as u64 + 1;
    input.take(most).read_to_string(&mut payload).map_err(|error| unreadable(&error))?;
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(too_large("the payload"));
    }
    // What `echo` adds belongs to no text; to JSON it makes no difference.
    let line = payload.strip_suffix('\n');
    let end = line.map(|line| line.strip_suffix('\r').unwrap_or(line).len());
    payload.truncate(end.unwrap_or(payload.len()));
    Ok(payload)
}

impl PushArgs {
    fn item(&self, text: &str, line: Option<u64>) -> Result<Item<'_>, CliError> {
        let named = self.transaction_id.as_ref();
        Ok(Item {
            queue: &self.queue,
            partition: &self.partition,
            payload: payload(text, self.text, line)?,
            transaction_id: named.map(|id| line.map_or(id.clone(), |line| format!("{id}-{line}"))),
            trace_id: self.trace_id.as_deref(),
            delay: self.delay,
            delay_until: self.at.map(|time| time.to_string()),
            priority: self.priority,
            retry_limit: self.retry_limit,
            retry_delay: self.retry_delay,
        })
    }

    async fn push(&self, items: &[Item<'_>]) -> Result<Vec<Value>, CliError> {
        let body = serde_json::to_vec(&Body { items })
            .map_err(|error| CliError::new(Exit::Bug, format!("a message is no JSON: {error}")))?;
        let path = "/api/v1/push";
        let posted = self.node.post_text(path, "application/json", body).await?;
        posted.map_err(|(error, _)| error)
    }
}

/// What the user wrote, as JSON.
fn payload(text: &str, as_text: bool, line: Option<u64>) -> Result<Box<RawValue>, CliError> {
    let json = if as_text { Value::from(text).to_string() } else { text.to_owned() };
    RawValue::from_string(json).map_err(|error| {
        let what = line.map_or("the payload".to_owned(), |line| format!("line {line}"));
        let shown: String = text.chars().take(60).collect();
        let message = format!(
            "{what} is no JSON: {shown:?}: {error}; --text pushes it as a JSON string, as it is"
        );
        CliError::new(Exit::Usage, message)
    })
}

async fn one(arguments: &PushArgs, payload: &str, output: Output) -> Result<Exit, CliError> {
    let item = arguments.item(payload, None)?;
    let results = arguments.push(&[item]).await?;
    let mut tally = Tally::default();
    for result in &results {
        tally.count(result);
        if output == Output::Table {
            output::line(&told(result, &arguments.partition));
        }
    }
    if output == Output::Json {
        output::json(&results);
    }
    tally.verdict()
}

/// What became of a message, in a line.
fn told(result: &Value, partition: &str) -> String {
    let (status, id) = (output::text(result, "status"), output::text(result, "message_id"));
    let transaction = visible(&output::text(result, "transaction_id"));
    let partition = visible(partition);
    match status.as_str() {
        "duplicate" => format!("duplicate {id}: {transaction} was pushed before"),
        "buffered" => format!(
            "buffered {transaction} in partition {partition}: kept on this node, because the \
             database is away or pushes are held back; it is pushed later"
        ),
        "failed" => format!("failed {transaction}: {}", output::text(result, "error")),
        status => {
            let until = result["delayUntil"].as_str().map(second);
            let until = until.map_or(String::new(), |until| format!(", held back until {until}"));
            format!("{status} {id} as {transaction} in partition {partition}{until}")
        }
    }
}

/// Text of others for a terminal: what would steer it is spelled out.
pub fn visible(text: &str) -> String {
    let shown = |one: char| match one.is_control() {
        true => one.escape_default().to_string(),
        false => one.to_string(),
    };
    text.chars().map(shown).collect()
}

/// How many messages became what.
#[derive(Default)]
struct Tally {
    queued: u64,
    duplicates: u64,
    buffered: u64,
    failed: Vec<String>,
    failures: u64,
}

impl Tally {
    fn count(&mut self, result: &Value) {
        match result["status"].as_str() {
            Some("duplicate") => self.duplicates += 1,
            Some("buffered") => self.buffered += 1,
            Some("failed") => {
                self.failures += 1;
                if self.failed.len() < 10 {
                    self.failed.push(told(result, ""));
                }
            }
            _ => self.queued += 1,
        }
    }

    fn told(&self) -> String {
        let mut parts = vec![format!("{} queued", self.queued)];
        let others = [
            (self.duplicates, "pushed before"),
            (self.buffered, "buffered, to be pushed later"),
            (self.failures, "failed"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            parts.push(format!("{count} {what}"));
        }
        parts.join(", ")
    }

    fn verdict(&self) -> Result<Exit, CliError> {
        match self.failures {
            0 => Ok(Exit::Ok),
            _ => Err(CliError::new(Exit::No, self.failed.join("\n"))),
        }
    }
}

async fn many(
    arguments: &PushArgs,
    input: BufReader<impl Read>,
    output: Output,
) -> Result<Exit, CliError> {
    let mut lines = Lines::of(input);
    let progress = indicatif::ProgressBar::new_spinner();
    let mut tally = Tally::default();
    // Everything up to this line is pushed.
    let mut through = 0;
    let outcome = loop {
        let (batch, last) = match next_batch(arguments, &mut lines) {
            Ok((batch, _)) if batch.is_empty() => break Ok(()),
            Ok(batch) => batch,
            Err(error) => break Err(error),
        };
        let results = match arguments.push(&batch).await {
            Ok(results) => results,
            Err(error) => break Err(error),
        };
        through = last;
        for result in &results {
            tally.count(result);
            if output == Output::Json {
                output::line(&result.to_string());
            }
        }
        progress.set_message(tally.told());
        progress.tick();
    };
    progress.finish_and_clear();
    if output == Output::Table {
        output::line(&tally.told());
    }
    match outcome {
        Ok(()) => tally.verdict(),
        Err(error) => {
            let next = through + 1;
            let message = format!(
                "{}\nlines before {next} are pushed; go on with those from line {next}",
                error.message
            );
            Err(CliError::new(error.exit, message))
        }
    }
}

/// Messages of the next lines, and the number of the last line.
fn next_batch<'args>(
    arguments: &'args PushArgs,
    lines: &mut Lines<impl Read>,
) -> Result<(Vec<Item<'args>>, u64), CliError> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < arguments.batch as usize && bytes < BATCH_BYTES_MAX {
        let Some((number, text)) = lines.next()? else { break };
        bytes += text.len();
        batch.push(arguments.item(text, Some(number))?);
        if lines.may_wait() {
            break;
        }
    }
    Ok((batch, lines.number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;
    use serde_json::json;

    fn arguments(more: &[&str]) -> PushArgs {
        match Cli::try_parse_from([&["skep", "push"], more].concat()).map(|cli| cli.verb) {
            Ok(Verb::Push(arguments)) => arguments,
            Ok(_) => panic!("{more:?} is another verb"),
            Err(error) => panic!("{more:?}: {error}"),
        }
    }

    fn batches(more: &[&str], text: &str) -> Result<Vec<Vec<Value>>, CliError> {
        let arguments = arguments(more);
        let mut lines = Lines::of(BufReader::new(text.as_bytes()));
        let mut batches = Vec::new();
        loop {
            let (batch, _) = next_batch(&arguments, &mut lines)?;
            if batch.is_empty() {
                return Ok(batches);
            }
            let values = batch.iter().map(|item| serde_json::to_value(item).expect("JSON"));
            batches.push(values.collect());
        }
    }

    #[test]
    fn a_payload_is_sent_as_it_was_written() {
        let digits = r#"{"b": 1.0, "a": 123456789012345678901234567890}"#;
        let arguments = arguments(&["orders", digits, "--partition", "p", "--trace-id", "t"]);
        let item = arguments.item(digits, None).expect("it is JSON");
        let body = serde_json::to_string(&Body { items: &[item] }).expect("JSON");
        let before = r#"{"items":[{"queue":"orders","partition":"p","payload":"#;
        assert_eq!(body, format!(r#"{before}{digits},"traceId":"t"}}]}}"#));
    }

    #[test]
    fn delays_priorities_and_retries_go_with_the_message() {
        let flags = ["q", "1", "--delay", "10m", "--priority", "9", "--retry-limit", "0"];
        let arguments = arguments(&[&flags[..], &["--retry-delay", "1500ms"]].concat());
        let item = arguments.item("1", None).expect("it is JSON");
        assert_eq!(
            serde_json::to_value(&item).expect("JSON"),
            json!({
                "queue": "q", "partition": "Default", "payload": 1, "delay": 600, "priority": 9,
                "retryLimit": 0, "retryDelay": 1_500,
            })
        );
        for (wrong, right) in [
            (["--delay", "10"], "such as 250ms"),
            (["--at", "soon"], "2026-07-01T00:00:00Z"),
            (["--priority", "10"], "0..=9"),
            (["--retry-limit", "1001"], "0..=1000"),
            (["--retry-delay", "25h"], "at most 24h"),
        ] {
            let words = [&["skep", "push", "q", "1"], &wrong[..]].concat();
            let error = Cli::try_parse_from(words).err().expect("it is wrong").to_string();
            assert!(error.contains(right), "{error}");
        }
        let both = ["skep", "push", "q", "1", "--delay", "1m", "--at", "2026-07-01T00:00:00Z"];
        assert!(Cli::try_parse_from(both).is_err());
        let told = told(&json!({"status": "queued", "delayUntil": "2026-07-01T00:00:00.5Z"}), "p");
        assert!(told.ends_with(", held back until 2026-07-01T00:00:00Z"), "{told}");
    }

    #[test]
    fn text_that_is_no_json_is_refused_with_a_hint_and_pushed_as_text() {
        let error = payload("call back", false, None).expect_err("it is no JSON");
        assert_eq!(error.exit, Exit::Usage);
        assert!(error.message.contains("\"call back\"") && error.message.contains("--text"));
        let text = payload("call \"back\"", true, None).expect("text");
        assert_eq!(text.get(), json!("call \"back\"").to_string());
        assert!(payload("", false, Some(7)).expect_err("nothing").message.contains("line 7"));
        for json in ["null", "{}", "-5", "\"text\"", "[1,\n2]"] {
            assert_eq!(payload(json, false, None).expect(json).get(), json);
        }
    }

    #[test]
    fn a_negative_number_is_a_payload_and_an_unknown_flag_is_not() {
        assert_eq!(arguments(&["q", "-5"]).payload.as_deref(), Some("-5"));
        assert!(Cli::try_parse_from(["skep", "push", "q", "--nonsense"]).is_err());
        assert!(Cli::try_parse_from(["skep", "push", "q", "--batch", "5"]).is_err());
    }

    #[test]
    fn what_echo_adds_is_no_part_of_a_text() {
        for (read, kept) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("", "")] {
            assert_eq!(read_all(read.as_bytes()).expect("reads"), kept);
        }
        assert_eq!(read_all(&b"\xff"[..]).expect_err("no UTF-8").exit, Exit::Usage);
    }

    #[test]
    fn lines_are_pushed_in_batches_and_blank_ones_are_left_out() {
        let flags = ["q", "--lines", "--batch", "2", "--transaction-id", "load"];
        let found = batches(&flags, "1\n\n2\r\n   \n3").expect("they are JSON");
        let both = |one: &Value| format!("{}={}", one["transactionId"], one["payload"]);
        let shown: Vec<Vec<String>> =
            found.iter().map(|batch| batch.iter().map(both).collect()).collect();
        assert_eq!(shown, [vec!["\"load-1\"=1", "\"load-3\"=2"], vec!["\"load-5\"=3"]]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let error = batches(&["q", "--lines"], "1\n2\nthree\n").expect_err("three is no JSON");
        assert!(error.message.starts_with("line 3 is no JSON: \"three\""), "{error}");
        let text = batches(&["q", "--lines", "--text"], "three\n").expect("text");
        assert_eq!(text[0][0]["payload"], "three");
    }

    #[test]
    fn what_has_arrived_is_pushed_without_waiting_for_more() {
        struct Trickle<'text>(std::str::SplitInclusive<'text, char>);
        impl Read for Trickle<'_> {
            fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                let line = self.0.next().unwrap_or_default().as_bytes();
                into[..line.len()].copy_from_slice(line);
                Ok(line.len())
            }
        }
        let arguments = arguments(&["q", "--lines"]);
        let trickle = Trickle("1\n2\n".split_inclusive('\n'));
        let mut lines = Lines::of(BufReader::new(trickle));
        for expected in [1, 1, 0] {
            let (batch, _) = next_batch(&arguments, &mut lines).expect("reads");
            assert_eq!(batch.len(), expected);
        }
    }

    #[test]
    fn a_failed_message_is_an_error_and_a_duplicate_is_not() {
        let mut tally = Tally::default();
        tally.count(&json!({"status": "queued"}));
        tally.count(&json!({"status": "duplicate"}));
        assert!(tally.verdict().is_ok());
        tally.count(&json!({"status": "failed", "transaction_id": "t-1", "error": "no room"}));
        let error = tally.verdict().expect_err("one failed");
        assert_eq!((error.exit, error.message.as_str()), (Exit::No, "failed t-1: no room"));
        assert_eq!(tally.told(), "1 queued, 1 pushed before, 1 failed");
    }

    #[test]
    fn text_of_others_does_not_steer_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jé\u{9b}"), "a\\u{1b}[2Jé\\u{9b}");
    }
}
