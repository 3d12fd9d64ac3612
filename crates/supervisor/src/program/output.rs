//! What a program prints, line by line.

use crate::address;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::oneshot;

/// What is longer is cut.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Lines that may wait to be printed; those above are dropped, so that a program never stands still
/// because nobody reads what it says.
const LINES_WAITING_MAX: usize = 4_096;
/// How long the last lines may take.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// A line that a program printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where.
    pub stream: Stream,
    /// What, without the end of the line.
    pub text: String,
}

/// Where a program printed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// Takes a line; must not wait.
pub(crate) type Sink = Arc<dyn Fn(Line) + Send + Sync>;

/// Where the lines go that a program prints.
#[derive(Clone, Default)]
pub enum Output {
    /// To the same stream of the supervisor.
    #[default]
    Inherit,
    /// To a function, which must not wait.
    To(Arc<dyn Fn(Line) + Send + Sync>),
}

/// Writes lines to the supervisor's own streams, on a thread of its own: whoever reads them may be
/// slow, and that must not hold up anything else.
pub(crate) struct Printer {
    done: Option<oneshot::Receiver<()>>,
}

impl Printer {
    /// Where to put lines, and who prints them if somebody has to.
    pub(crate) fn start(output: &Output) -> std::io::Result<(Sink, Self)> {
        if let Output::To(sink) = output {
            return Ok((sink.clone(), Printer { done: None }));
        }
        let (sender, receiver) = sync_channel(LINES_WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let (finished, done) = oneshot::channel();
        let missing = dropped.clone();
        std::thread::Builder::new().name("skep-output".to_owned()).spawn(move || {
            print(&receiver, &missing);
            // Nobody may be waiting for it.
            let _ = finished.send(());
        })?;
        let sink: Sink = Arc::new(move |line| put(&sender, line, &dropped));
        Ok((sink, Printer { done: Some(done) }))
    }

    /// Waits until everything is printed that was put, after the last sink is dropped.
    pub(crate) async fn flush(self) {
        if let Some(done) = self.done {
            let _ = tokio::time::timeout(FLUSH_LIMIT, done).await;
        }
    }
}

fn put(sender: &SyncSender<Line>, line: Line, dropped: &AtomicU64) {
    if let Err(TrySendError::Full(_)) = sender.try_send(line) {
        dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn print(lines: &Receiver<Line>, dropped: &AtomicU64) {
    for line in lines {
        // If the supervisor's own streams are closed there is nobody to tell.
        let _ = match line.stream {
            Stream::Stdout => writeln!(std::io::stdout(), "{}", line.text),
            Stream::Stderr => writeln!(std::io::stderr(), "{}", line.text),
        };
        let missing = dropped.swap(0, Ordering::Relaxed);
        if missing > 0 {
            tracing::warn!(lines = missing, "the program prints faster than it is read");
        }
    }
}

/// Passes a stream on until it ends, and the first URL in it.
pub(super) async fn pass(
    mut from: impl AsyncRead + Unpin,
    stream: Stream,
    sink: Sink,
    mut url: Option<oneshot::Sender<String>>,
) {
    let mut splitter = Splitter::default();
    let mut piece = vec![0; 16 << 10];
    let mut take = |line: Vec<u8>| {
        let text = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
        if url.is_some()
            && let Some(found) = address::find(&text)
            && let Some(url) = url.take()
        {
            // Whoever waits for it may have had enough.
            let _ = url.send(found);
        }
        sink(Line { stream, text });
    };
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        splitter.feed(&piece[..count], &mut take);
    }
    splitter.end(&mut take);
}

/// Makes lines of pieces and keeps no more than one.
#[derive(Default)]
struct Splitter {
    line: Vec<u8>,
    cut: bool,
}

impl Splitter {
    fn feed(&mut self, mut bytes: &[u8], take: &mut impl FnMut(Vec<u8>)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.add(&bytes[..end]);
            self.cut = false;
            take(std::mem::take(&mut self.line));
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.cut {
            return;
        }
        let room = LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            self.line.extend_from_slice("…".as_bytes());
            self.cut = true;
        }
    }

    fn end(&mut self, take: &mut impl FnMut(Vec<u8>)) {
        if !self.line.is_empty() {
            take(std::mem::take(&mut self.line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut splitter = Splitter::default();
        for piece in pieces {
            splitter.feed(piece, &mut |line| lines.push(line));
        }
        splitter.end(&mut |line| lines.push(line));
        lines
    }

    #[test]
    fn a_line_that_never_ends_is_cut_and_the_next_one_is_whole() {
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        let found = lines(&[&long, b"more\nnext"]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].len(), LINE_BYTES_MAX + "…".len());
        assert_eq!(found[1], b"next");
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_arrive(text in "[ab\n]{0,60}", at in 0_usize..60) {
            let (first, second) = text.as_bytes().split_at(at.min(text.len()));
            let expected: Vec<&[u8]> = text.lines().map(str::as_bytes).collect();
            prop_assert_eq!(lines(&[first, second]), expected);
        }
    }
}
