//! `skep export`: the messages of a queue as lines of JSON.

use super::ask::Path;
use super::client::NodeArgs;
use super::given::past;
use super::output::{self, Output};
use super::push::visible;
use super::signals::Signals;
use super::{CliError, Exit, small_runtime};
use clap::Args;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use jiff::Timestamp;
use serde::Deserialize;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::NamedTempFile;

/// A node that says nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A longer line is not one of a node.
const LINE_BYTES_MAX: usize = 65 << 20;

const EXAMPLES: &str = "\
Examples:
  skep export orders > orders.jsonl
  skep export orders -o orders.jsonl
  skep export orders --partition customer-4 --from 24h -o day.jsonl
  skep export orders -o orders.jsonl && skep import orders-copy orders.jsonl

Each line has \"partition\", \"priority\", \"transactionId\", \"traceId\", \"payload\" and
\"createdAt\"; the oldest comes first in each partition. Nothing is taken from the queue. With -o
the file is there once it is complete, and not before. If the answer is cut short it ends with 69.
Needs a key with the scope `read`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// The queue
    queue: String,

    /// Only of this partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// Pushed not before this time, as in 2026-07-01T00:00:00Z, or so long ago, as in 10m
    #[arg(long, value_name = "TIME", value_parser = past)]
    from: Option<Timestamp>,

    /// Pushed before this time
    #[arg(long, value_name = "TIME", value_parser = past)]
    to: Option<Timestamp>,

    /// The file to write; standard output if left out
    #[arg(short = 'o', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    node: NodeArgs,
}

/// The last line, which says that nothing is missing.
#[derive(Deserialize)]
pub struct End {
    end: bool,
    pub messages: u64,
}

impl End {
    /// The last line, if this is it.
    pub fn of(line: &[u8]) -> Option<End> {
        serde_json::from_slice(line).ok().filter(|end: &End| end.end)
    }
}

pub fn run(arguments: &ExportArgs, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            outcome = export(arguments, output) => outcome,
            signal = signals.next() => {
                let message = format!("{signal}: not everything was written");
                Err(CliError::new(Exit::No, message))
            }
        }
    })
}

async fn export(arguments: &ExportArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["queues", &arguments.queue, "export"])
        .and("partition", arguments.partition.as_ref())
        .and("from", arguments.from)
        .and("to", arguments.to);
    let body = arguments.node.stream(path.as_str()).await?;
    let mut pieces = Pieces { body, node: &arguments.node };
    let count = match &arguments.file {
        None => {
            // As the lines come: whoever reads them is told at the end whether there were more.
            let copied = copy(&mut pieces, std::io::stdout().lock()).await;
            match copied? {
                Some(count) => output::note(&format!("{count} messages")),
                None => output::note("whoever read has left; not everything was written"),
            }
            return Ok(Exit::Ok);
        }
        Some(file) => {
            let open = Unfinished::beside(file)?;
            let count = copy(&mut pieces, open.file.as_file()).await?;
            open.finish()?;
            count.unwrap_or_default()
        }
    };
    let file = arguments.file.as_deref().map(|file| file.display().to_string()).unwrap_or_default();
    match output {
        Output::Json => output::json(&serde_json::json!({ "messages": count, "file": file })),
        Output::Table => {
            let queue = visible(&arguments.queue);
            output::line(&format!("{count} messages of {queue} are in {file}"));
        }
    }
    Ok(Exit::Ok)
}

/// A file that gets its name when it is complete.
struct Unfinished {
    file: NamedTempFile,
    name: PathBuf,
}

impl Unfinished {
    fn beside(name: &std::path::Path) -> Result<Self, CliError> {
        let folder = match name.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => std::path::Path::new("."),
        };
        let shown = name.file_name().unwrap_or_default().to_string_lossy();
        let file = tempfile::Builder::new()
            .prefix(&format!(".{shown}."))
            .suffix(".partial")
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(|error| unwritten(name, &error))?;
        Ok(Unfinished { file, name: name.to_owned() })
    }

    fn finish(self) -> Result<(), CliError> {
        self.file.as_file().sync_all().map_err(|error| unwritten(&self.name, &error))?;
        let persisted = self.file.persist(&self.name);
        persisted.map_err(|error| unwritten(&self.name, &error.error))?;
        Ok(())
    }
}

fn unwritten(file: &std::path::Path, error: &std::io::Error) -> CliError {
    CliError::new(Exit::System, format!("{} cannot be written: {error}", file.display()))
}

/// An answer as it comes.
struct Pieces<'node> {
    body: Incoming,
    node: &'node NodeArgs,
}

impl Pieces<'_> {
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, CliError> {
        loop {
            match tokio::time::timeout(SILENCE_MAX, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Ok(Some(Err(error))) => return Err(self.node.unreachable(&error)),
                Ok(None) => return Ok(None),
                Err(_) => {
                    let url = self.node.shown_url();
                    let message = format!("{url} has said nothing for {SILENCE_MAX:?}");
                    return Err(CliError::new(Exit::Unavailable, message));
                }
            }
        }
    }
}

/// Copies lines up to the last one, which is not copied. How many there were; nothing if whoever
/// reads them has left, as `head` does.
async fn copy(pieces: &mut Pieces<'_>, into: impl Write) -> Result<Option<u64>, CliError> {
    let mut lines = Copied::new(BufWriter::with_capacity(256 << 10, into));
    // Draws itself only on a terminal.
    let progress = indicatif::ProgressBar::new_spinner();
    loop {
        let piece = pieces.next().await.map_err(|error| lines.cut(&error.message));
        let Some(piece) = piece? else { break };
        lines.take(&piece)?;
        if lines.unread {
            return Ok(None);
        }
        progress.set_message(format!("{} messages", lines.count));
        progress.tick();
    }
    progress.finish_and_clear();
    lines.finish().map(Some)
}

/// Lines on their way.
struct Copied<W: Write> {
    into: W,
    waiting: Vec<u8>,
    count: u64,
    end: Option<End>,
    /// Whether whoever reads has left.
    unread: bool,
}

impl<W: Write> Copied<W> {
    fn new(into: W) -> Self {
        Copied { into, waiting: Vec::new(), count: 0, end: None, unread: false }
    }

    fn take(&mut self, mut piece: &[u8]) -> Result<(), CliError> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.waiting.extend_from_slice(&piece[..end]);
            piece = &piece[end + 1..];
            self.line()?;
        }
        self.waiting.extend_from_slice(piece);
        if self.waiting.len() > LINE_BYTES_MAX {
            return Err(self.cut("a line is longer than any of a node"));
        }
        Ok(())
    }

    fn line(&mut self) -> Result<(), CliError> {
        let line = std::mem::take(&mut self.waiting);
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        if self.end.is_some() {
            return Err(self.cut("lines follow after the last one"));
        }
        // Only a line without a payload can be the last; looking for it first spares the rest.
        if line.starts_with(b"{\"end\"") || line.len() < 100 {
            self.end = End::of(&line);
            if self.end.is_some() {
                return Ok(());
            }
        }
        let written = self.into.write_all(&line).and_then(|()| self.into.write_all(b"\n"));
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.unread = true,
            written => written.map_err(|error| self.unwritten(&error))?,
        }
        self.count += 1;
        self.waiting = line;
        self.waiting.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<u64, CliError> {
        if !self.waiting.is_empty() {
            self.line()?;
        }
        self.into.flush().map_err(|error| self.unwritten(&error))?;
        match &self.end {
            Some(end) if end.messages == self.count => Ok(self.count),
            Some(end) => Err(self.cut(&format!("the node has sent {}", end.messages))),
            None => Err(self.cut("the node ended it before its last line")),
        }
    }

    fn unwritten(&self, error: &std::io::Error) -> CliError {
        let message = format!("after {} messages nothing can be written: {error}", self.count);
        CliError::new(Exit::System, message)
    }

    fn cut(&self, why: &str) -> CliError {
        let count = self.count;
        let message = format!("the export is not complete, {count} messages have come: {why}");
        CliError::new(Exit::Unavailable, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(pieces: &[&str]) -> (Vec<u8>, Result<u64, CliError>) {
        let mut written = Vec::new();
        let mut lines = Copied::new(&mut written);
        let outcome = pieces.iter().try_for_each(|piece| lines.take(piece.as_bytes()));
        let outcome = outcome.and_then(|()| lines.finish());
        (written, outcome)
    }

    #[test]
    fn lines_are_copied_as_they_are_and_the_last_one_is_looked_at() {
        let pieces =
            ["{\"payload\":1.", "0}\n{\"payload\":2}\n{\"end\":true,", "\"messages\":2}\n"];
        let (written, outcome) = copied(&pieces);
        assert_eq!(written, b"{\"payload\":1.0}\n{\"payload\":2}\n");
        assert_eq!(outcome.expect("it is complete"), 2);
        assert_eq!(copied(&["{\"end\":true,\"messages\":0}"]).1.expect("nothing"), 0);
    }

    #[test]
    fn a_cut_export_is_noticed() {
        for (pieces, why) in [
            (&["{\"payload\":1}\n"][..], "before its last line"),
            (&["{\"payload\":1}\n{\"end\":true,\"messages\":2}\n"], "has sent 2"),
            (&["{\"end\":true,\"messages\":0}\n{\"payload\":1}\n"], "follow after the last"),
            (&["{\"payload\":1}\n{\"end\":tr"], "before its last line"),
        ] {
            let error = copied(pieces).1.expect_err("it is not complete");
            assert_eq!(error.exit, Exit::Unavailable);
            assert!(error.message.contains(why), "{error}");
        }
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("orders.jsonl");
        let files = || std::fs::read_dir(folder.path()).expect("reads").count();
        drop(Unfinished::beside(&name).expect("makes one"));
        assert_eq!(files(), 0, "nothing is left");
        let open = Unfinished::beside(&name).expect("makes one");
        open.file.as_file().write_all(b"1\n").expect("writes");
        assert!(!name.exists() && files() == 1);
        open.finish().expect("finishes");
        assert_eq!(std::fs::read(&name).expect("reads"), b"1\n");
        assert_eq!(files(), 1);
        let nowhere = Unfinished::beside(&folder.path().join("no/where"));
        assert_eq!(nowhere.err().expect("no folder").exit, Exit::System);
    }
}
