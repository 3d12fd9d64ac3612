//! What commands print: tables for people, JSON for programs.

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// The form of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Aligned columns.
    #[default]
    Table,
    /// One JSON value.
    Json,
}

/// Prints rows under their headings, wrapped to the terminal's width.
pub fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headings);
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        if let Some(width) = terminal_width() {
            table.set_width(width);
        }
    }
    table.add_rows(rows);
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    line(&lines.join("\n"));
}

/// Prints a value as indented JSON.
pub fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => line(&text),
        Err(error) => unreachable!("answers are plain values: {error}"),
    }
}

/// Prints a value as indented JSON while it is made, because all of it at once might be too much.
pub fn json_in_pieces(value: &impl Serialize) {
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from);
    note_outcome(written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()));
}

/// A field of an answer for a table: text without its quotes, nothing for what is not there.
pub fn text(value: &Value, field: &str) -> String {
    match &value[field] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A time in milliseconds since 1970, to the second.
pub fn when(ms: i64) -> String {
    let stamp = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    format!("{stamp:.0}")
}

/// Microseconds in a unit that people read.
pub fn span(micros: f64) -> String {
    match micros {
        short if short < 1e3 => format!("{short:.0}us"),
        middle if middle < 1e6 => format!("{:.1}ms", middle / 1e3),
        long => format!("{:.1}s", long / 1e6),
    }
}

/// Whether something could not be printed, so that the answer is not complete.
static INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether the reader left before everything was printed.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Prints a line. A reader that has left, as `head` does, has seen enough; a full disk has not.
pub fn line(text: &str) {
    note_outcome(writeln!(anstream::stdout(), "{text}"));
}

fn note_outcome(written: std::io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        UNREAD.store(true, Ordering::Relaxed);
    } else if !INCOMPLETE.swap(true, Ordering::Relaxed) {
        self::error(&format!("the answer could not be written: {error}"));
    }
}

/// Whether everything was printed that should have been.
pub fn is_complete() -> bool {
    !INCOMPLETE.load(Ordering::Relaxed)
}

/// Whether all of it went to somebody, who may still not have looked at it.
pub fn is_delivered() -> bool {
    is_complete() && !UNREAD.load(Ordering::Relaxed)
}

/// Prints what belongs to no answer, beside it.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints a note that stops nothing.
pub fn warning(text: &str) {
    let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
    let _ = writeln!(anstream::stderr(), "{yellow}warning{yellow:#}: {text}");
}

/// Prints an error or a note where it does not mix with the answer.
pub fn error(text: &str) {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    let _ = writeln!(anstream::stderr(), "{red}error{red:#}: {text}");
}

/// The columns of the terminal, if there is one.
pub fn terminal_width() -> Option<u16> {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| size.ws_col)
        .filter(|w| *w > 20)
}
