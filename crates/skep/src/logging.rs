//! The log: lines on standard error, for people or for programs, and the last of them in memory for
//! the dashboard.
//!
//! Nobody waits for the log: lines go through a bounded queue to a thread of their own, and where
//! that is full they are dropped and counted.

use crate::settings::{LogFormat, LogLevel, LogSettings, Value};
use serde::Serialize;
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::broadcast;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry, reload};

/// Lines kept for the dashboard.
const LINES_MAX: usize = 2_000;
/// So much of a message or a value is kept.
const FIELD_BYTES_MAX: usize = 2_048;
/// Lines that a slow listener may be behind before it misses some.
const LISTENERS_BEHIND_MAX: usize = 1_000;
/// Lines that may wait for a slow standard error.
const WAITING_MAX: usize = 16_384;

/// A line of the log.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct LogLine {
    /// Grows by one with each line.
    pub seq: u64,
    /// When, in UTC.
    pub at: String,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: String,
    /// Which part of the program.
    pub target: String,
    /// What happened.
    pub message: String,
    /// With which values, in the order in which they were written down.
    #[schema(value_type = HashMap<String, String>)]
    #[serde(serialize_with = "as_map")]
    pub fields: Vec<(&'static str, String)>,
}

/// The log of this process.
pub struct Log {
    tail: Arc<Tail>,
    level: Mutex<LogLevel>,
    filter: reload::Handle<EnvFilter, registry::Registry>,
    dropped: ErrorCounter,
}

fn as_map<S: serde::Serializer>(
    fields: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().map(|(name, value)| (name, value)))
}

struct Tail {
    lines: Mutex<(u64, VecDeque<Arc<Raw>>)>,
    listeners: broadcast::Sender<Arc<Raw>>,
}

/// A line as it is kept: cheap to make, because most are never looked at.
pub struct Raw {
    seq: u64,
    at: jiff::Timestamp,
    level: tracing::Level,
    target: &'static str,
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Raw {
    /// The line for people and programs.
    pub fn render(&self) -> LogLine {
        LogLine {
            seq: self.seq,
            at: format!("{:.3}", self.at),
            level: self.level.to_string(),
            target: self.target.to_owned(),
            message: self.message.clone(),
            fields: self.fields.clone(),
        }
    }
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Writes what is still waiting when it is dropped, at the end of the program.
#[must_use]
pub struct LogEnd(#[expect(dead_code, reason = "dropping it is its use")] WorkerGuard);

/// The log of this process, once it was started.
pub fn log() -> Option<&'static Log> {
    LOG.get()
}

/// Starts the log of this process. `None` if it was started before; then that one goes on.
pub fn start(settings: &LogSettings) -> Option<LogEnd> {
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    start_in(settings, std::io::stderr(), coloured)
}

/// The same with the lines elsewhere than on standard error.
pub fn start_in(
    settings: &LogSettings,
    out: impl std::io::Write + Send + 'static,
    coloured: bool,
) -> Option<LogEnd> {
    let (writer, end) = NonBlockingBuilder::default()
        .buffered_lines_limit(WAITING_MAX)
        .lossy(true)
        .thread_name("skep-log")
        .finish(out);
    let dropped = writer.error_counter();
    let (filter, handle) = reload::Layer::new(settings.level.filter());
    let text = (settings.format == LogFormat::Text)
        .then(|| fmt::layer().with_writer(writer.clone()).with_ansi(coloured).with_target(false));
    let json = (settings.format == LogFormat::Json)
        .then(|| fmt::layer().json().flatten_event(true).with_writer(writer));
    let tail = Arc::new(Tail {
        lines: Mutex::new((0, VecDeque::with_capacity(LINES_MAX))),
        listeners: broadcast::channel(LISTENERS_BEHIND_MAX).0,
    });
    let started = registry::Registry::default()
        .with(filter)
        .with(text)
        .with(json)
        .with(TailLayer(tail.clone()))
        .try_init();
    started.ok()?;
    let level = Mutex::new(settings.level.clone());
    LOG.set(Log { tail, level, filter: handle, dropped }).ok()?;
    Some(LogEnd(end))
}

impl Log {
    /// The last lines, oldest first, at most `limit`, after `seq`.
    pub fn lines(&self, after: u64, limit: usize) -> Vec<LogLine> {
        // Rendered without the lock, which every line that is written needs.
        let kept: Vec<Arc<Raw>> = {
            let kept = self.tail.lines.lock().unwrap_or_else(PoisonError::into_inner);
            kept.1.iter().filter(|line| line.seq > after).cloned().collect()
        };
        let skip = kept.len().saturating_sub(limit);
        kept.iter().skip(skip).map(|line| line.render()).collect()
    }

    /// Lines from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<Raw>> {
        self.tail.listeners.subscribe()
    }

    /// Which lines are written now.
    pub fn level(&self) -> LogLevel {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes which lines are written, from the next one on.
    pub fn set_level(&self, level: LogLevel) {
        // Fails only after the log was torn down, at the end of the process.
        let _ = self.filter.reload(level.filter());
        tracing::info!("the log level is now {}", level.show());
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = level;
    }

    /// Lines that were dropped because standard error was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.dropped_lines() as u64
    }
}

/// Keeps lines for the dashboard.
struct TailLayer(Arc<Tail>);

impl<S: Subscriber> Layer<S> for TailLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut line = Raw {
            seq: 0,
            at: jiff::Timestamp::now(),
            level: *event.metadata().level(),
            target: event.metadata().target(),
            message: String::new(),
            fields: Vec::with_capacity(8),
        };
        event.record(&mut Fill(&mut line));
        let mut kept = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 += 1;
        line.seq = kept.0;
        let line = Arc::new(line);
        let oldest = if kept.1.len() == LINES_MAX { kept.1.pop_front() } else { None };
        kept.1.push_back(line.clone());
        // Without listeners there is nobody to send to, which is no error. Sent while the lines are
        // held, so that listeners get them in order.
        if self.0.listeners.receiver_count() > 0 {
            let _ = self.0.listeners.send(line);
        }
        drop(kept);
        drop(oldest);
    }
}

struct Fill<'line>(&'line mut Raw);

impl Fill<'_> {
    fn put(&mut self, field: &Field, mut text: String) {
        text.truncate(text.floor_char_boundary(FIELD_BYTES_MAX));
        match field.name() {
            "message" => self.0.message = text,
            name => self.0.fields.push((name, text)),
        }
    }
}

impl Visit for Fill<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, format!("{value:.3}"));
    }
}
