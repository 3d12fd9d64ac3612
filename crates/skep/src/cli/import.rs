//! `skep import`: the messages of a file, in order, each once.

use super::client::NodeArgs;
use super::export::End;
use super::output::{self, Output};
use super::push::{BATCH_BYTES_MAX, Lines, visible};
use super::{CliError, Exit, small_runtime};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::{BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Messages of one request.
const BATCH: usize = 100;

const EXAMPLES: &str = "\
Examples:
  skep import orders orders.jsonl
  skep export orders | skep import orders-copy
  skep import orders orders.jsonl --skip 12000  go on after line 12000

Each line is {\"payload\": …} and may have \"partition\", \"priority\", \"transactionId\" and
\"traceId\"; what else `skep export` writes is passed over. Messages are pushed in the order of the
file, 100 with each request. Those with a transactionId may be imported again within the queue's
window for duplicates: they are there once. At a wrong line it ends with 65; what stands before it
is pushed, nothing after it. Needs a key with the scope `push`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// The queue; it is made if there is none of that name
    queue: String,

    /// The file; - or nothing is standard input
    file: Option<PathBuf>,

    /// Leave out so many lines at the beginning
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    skip: u64,

    #[command(flatten)]
    node: NodeArgs,
}

/// A line of the file. The payload's bytes are the producer's own.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    payload: Box<RawValue>,
    partition: Option<String>,
    priority: Option<u8>,
    transaction_id: Option<String>,
    trace_id: Option<String>,
    #[serde(rename = "createdAt", default)]
    _created_at: Option<serde::de::IgnoredAny>,
    #[serde(rename = "id", default)]
    _id: Option<serde::de::IgnoredAny>,
    #[serde(rename = "producerSub", default)]
    _producer: Option<serde::de::IgnoredAny>,
}

/// A message as the API reads it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'queue> {
    queue: &'queue str,
    partition: String,
    payload: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

#[derive(Serialize)]
struct Body<'items, 'queue> {
    items: &'items [Item<'queue>],
}

/// Messages of some lines.
#[derive(Default)]
struct Batch<'queue> {
    items: Vec<Item<'queue>>,
    /// The line of each.
    lines: Vec<u64>,
    /// Lines up to this one are in it, or were before.
    through: u64,
    /// Why there is nothing after them.
    wrong: Option<CliError>,
}

/// What became of messages so far.
#[derive(Default, Serialize)]
struct Tally {
    queued: u64,
    duplicates: u64,
    buffered: u64,
    /// Everything up to this line is done.
    lines: u64,
}

pub fn run(arguments: &ImportArgs, output: Output) -> Result<Exit, CliError> {
    let runtime = small_runtime()?;
    match arguments.file.as_deref().filter(|file| *file != Path::new("-")) {
        None => {
            let input = std::io::stdin().lock();
            if input.is_terminal() {
                output::note("reading from the terminal; Ctrl-D ends it");
            }
            let progress = indicatif::ProgressBar::new_spinner();
            runtime.block_on(import(arguments, input, &progress, output))
        }
        Some(file) => {
            let unreadable = |error: std::io::Error| {
                let message = format!("{} cannot be read: {error}", file.display());
                CliError::new(Exit::Usage, message)
            };
            let open = std::fs::File::open(file).map_err(unreadable)?;
            let size = open.metadata().map_err(unreadable)?.len();
            // Draws itself only on a terminal.
            let progress = indicatif::ProgressBar::new(size);
            let input = progress.wrap_read(open);
            runtime.block_on(import(arguments, input, &progress, output))
        }
    }
}

async fn import(
    arguments: &ImportArgs,
    input: impl Read,
    progress: &indicatif::ProgressBar,
    output: Output,
) -> Result<Exit, CliError> {
    let mut lines = Lines::of(BufReader::with_capacity(256 << 10, input));
    let mut reader = Reader { queue: &arguments.queue, skip: arguments.skip, count: 0, end: None };
    let mut tally = Tally { lines: arguments.skip, ..Tally::default() };
    let outcome = loop {
        let batch = reader.batch(&mut lines);
        if !batch.items.is_empty()
            && let Err(error) = push(arguments, &batch, &mut tally).await
        {
            break Err(error);
        }
        progress.set_message(tally.told());
        if let Some(error) = batch.wrong {
            tally.lines = batch.through;
            break Err(error);
        }
        if batch.items.is_empty() {
            break Ok(());
        }
    };
    progress.finish_and_clear();
    match output {
        Output::Json => output::json(&tally),
        Output::Table => output::line(&tally.told()),
    }
    let Err(error) = outcome else { return Ok(Exit::Ok) };
    let done = tally.lines;
    let message = format!("{}\ngo on with --skip {done}", error.message);
    Err(CliError::new(error.exit, message))
}

/// Pushes messages and counts what became of them, up to the first that failed.
async fn push(
    arguments: &ImportArgs,
    batch: &Batch<'_>,
    tally: &mut Tally,
) -> Result<(), CliError> {
    let body = serde_json::to_vec(&Body { items: &batch.items })
        .map_err(|error| CliError::new(Exit::Bug, format!("a message is no JSON: {error}")))?;
    let posted = arguments.node.post_text("/api/v1/push", "application/json", body).await?;
    let results: Vec<Value> = posted.map_err(|(error, _)| batch.named(error))?;
    if results.len() != batch.items.len() {
        let (sent, told) = (batch.items.len(), results.len());
        let message = format!("{sent} messages were sent and the node told of {told}");
        return Err(CliError::new(Exit::Unavailable, message));
    }
    tally.count(batch, &results)
}

impl Batch<'_> {
    /// A refusal of all of it.
    fn named(&self, error: CliError) -> CliError {
        let (first, last) = (self.lines.first(), self.lines.last());
        let (first, last) = (first.copied().unwrap_or(0), last.copied().unwrap_or(0));
        CliError::new(error.exit, format!("lines {first} to {last}: {}", error.message))
    }
}

impl Tally {
    fn count(&mut self, batch: &Batch<'_>, results: &[Value]) -> Result<(), CliError> {
        for (line, result) in batch.lines.iter().zip(results) {
            match result["status"].as_str() {
                Some("queued") => self.queued += 1,
                Some("duplicate") => self.duplicates += 1,
                Some("buffered") => self.buffered += 1,
                _ => {
                    let why = visible(result["error"].as_str().unwrap_or("it does not say why"));
                    let message = format!("line {line} was not pushed: {why}");
                    return Err(CliError::new(Exit::No, message));
                }
            }
            self.lines = *line;
        }
        self.lines = batch.through;
        Ok(())
    }

    fn told(&self) -> String {
        let mut told = format!("{} queued, {} duplicates", self.queued, self.duplicates);
        if self.buffered > 0 {
            told.push_str(&format!(", {} buffered until the database is back", self.buffered));
        }
        told
    }
}

/// Lines that become messages.
struct Reader<'queue> {
    queue: &'queue str,
    skip: u64,
    /// Messages that stand in the file so far, skipped ones too.
    count: u64,
    end: Option<u64>,
}

impl<'queue> Reader<'queue> {
    /// The messages of the next lines. Nothing if there are none left.
    fn batch(&mut self, lines: &mut Lines<impl Read>) -> Batch<'queue> {
        let mut batch = Batch { through: lines.number.max(self.skip), ..Batch::default() };
        let mut bytes = 0;
        while batch.items.len() < BATCH && bytes < BATCH_BYTES_MAX {
            match lines.next() {
                Ok(None) => break,
                Ok(Some((number, text))) => {
                    bytes += text.len();
                    match self.item(number, text) {
                        Ok(Some(item)) => {
                            batch.items.push(item);
                            batch.lines.push(number);
                        }
                        Ok(None) => {}
                        Err(error) => {
                            batch.wrong = Some(error);
                            break;
                        }
                    }
                }
                Err(error) => {
                    batch.wrong = Some(CliError::new(Exit::Data, error.message));
                    break;
                }
            }
            batch.through = lines.number.max(self.skip);
        }
        batch
    }

    /// The message of a line; none if it is skipped, or is the last of an export.
    fn item(&mut self, number: u64, text: &str) -> Result<Option<Item<'queue>>, CliError> {
        let wrong = |why: String| CliError::new(Exit::Data, format!("line {number}: {why}"));
        if let Some(end) = self.end {
            return Err(wrong(format!("line {end} says that it is the last, and is not")));
        }
        if number <= self.skip {
            self.count += 1;
            return Ok(None);
        }
        if let Some(end) = End::of(text.as_bytes()) {
            if end.messages != self.count {
                let (told, found) = (end.messages, self.count);
                return Err(wrong(format!("{told} messages should stand before it, not {found}")));
            }
            self.end = Some(number);
            return Ok(None);
        }
        let line: Line = serde_json::from_str(text).map_err(|error| {
            let shown: String = visible(text).chars().take(60).collect();
            wrong(format!(
                "{error}; it is {shown:?} and must be like {{\"partition\": \"a\", \"payload\": 1}}"
            ))
        })?;
        if let Some(priority) = line.priority.filter(|priority| *priority > 9) {
            return Err(wrong(format!("priority is {priority}, it must be from 0 to 9")));
        }
        for (field, value) in
            [("partition", &line.partition), ("transactionId", &line.transaction_id)]
        {
            if value.as_deref() == Some("") {
                return Err(wrong(format!("{field} is empty; leave it out or give it a name")));
            }
        }
        self.count += 1;
        Ok(Some(Item {
            queue: self.queue,
            partition: line.partition.unwrap_or_else(|| "Default".to_owned()),
            payload: line.payload,
            priority: line.priority.filter(|priority| *priority > 0),
            transaction_id: line.transaction_id,
            trace_id: line.trace_id,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reader(skip: u64) -> Reader<'static> {
        Reader { queue: "q", skip, count: 0, end: None }
    }

    fn first(text: &str, skip: u64) -> Batch<'static> {
        reader(skip).batch(&mut Lines::of(BufReader::new(text.as_bytes())))
    }

    #[test]
    fn a_line_of_an_export_is_a_message() {
        let text = r#"{"partition":"p","priority":5,"transactionId":"t","traceId":null,"#
            .to_owned()
            + r#""payload":{"n": 1.0},"createdAt":"2026-07-01T00:00:00Z"}"#;
        let batch = first(&format!("{text}\n{{\"payload\":1}}\n"), 0);
        assert!(batch.wrong.is_none());
        let shown = serde_json::to_string(&batch.items[0]).expect("JSON");
        let expected = r#"{"queue":"q","partition":"p","payload":{"n": 1.0},"priority":5,"#;
        assert_eq!(shown, expected.to_owned() + r#""transactionId":"t"}"#);
        let plain = json!({"queue": "q", "partition": "Default", "payload": 1});
        assert_eq!(serde_json::to_value(&batch.items[1]).expect("JSON"), plain);
        assert_eq!((batch.lines, batch.through), (vec![1, 2], 2));
    }

    #[test]
    fn a_wrong_line_is_named_and_those_before_it_are_pushed() {
        for (line, why) in [
            ("{\"partition\":\"p\"}", "missing field `payload`"),
            ("{\"payload\":1,\"partiton\":\"p\"}", "unknown field `partiton`"),
            ("{\"payload\":1,\"priority\":10}", "from 0 to 9"),
            ("{\"payload\":1,\"priority\":\"high\"}", "invalid type"),
            ("{\"payload\":1,\"partition\":\"\"}", "partition is empty"),
            ("{\"payload\":1", "EOF"),
            ("[1]", "must be like"),
        ] {
            let text = format!("{{\"payload\":1}}\n\n{line}\n{{\"payload\":2}}\n");
            let batch = first(&text, 0);
            assert_eq!((batch.items.len(), batch.through), (1, 1), "{line}");
            let error = batch.wrong.expect("it is wrong");
            assert_eq!(error.exit, Exit::Data);
            assert!(error.message.starts_with("line 3: "), "{error}");
            assert!(error.message.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn lines_may_be_skipped_and_the_last_of_an_export_is_checked() {
        let text = "odd\n{\"payload\":2}\n{\"payload\":3}\n{\"end\":true,\"messages\":3}\n";
        let batch = first(text, 1);
        assert!(batch.wrong.is_none(), "the odd one is skipped");
        assert_eq!(batch.lines, [2, 3]);
        let cut = first("{\"payload\":1}\n{\"end\":true,\"messages\":2}\n", 0);
        assert!(cut.wrong.expect("one is missing").message.contains("2 messages should"));
        let more = first("{\"end\":true,\"messages\":0}\n{\"payload\":1}\n", 0);
        assert!(more.wrong.expect("there is more").message.contains("line 1 says"));
    }

    #[test]
    fn batches_have_a_hundred_messages() {
        let text = "{\"payload\":1}\n".repeat(250);
        let mut lines = Lines::of(BufReader::new(text.as_bytes()));
        let mut reader = reader(0);
        for expected in [100, 100, 50, 0] {
            assert_eq!(reader.batch(&mut lines).items.len(), expected);
        }
    }

    #[test]
    fn the_first_message_that_fails_says_where_to_go_on() {
        let batch = first(&"{\"payload\":1}\n".repeat(4), 0);
        let mut tally = Tally::default();
        let results = ["queued", "duplicate", "failed", "queued"]
            .map(|status| json!({"status": status, "error": "no room"}));
        let error = tally.count(&batch, &results).expect_err("one failed");
        assert_eq!(error.message, "line 3 was not pushed: no room");
        assert_eq!((tally.lines, tally.told().as_str()), (2, "1 queued, 1 duplicates"));
    }
}
