//! `skep agent`: a monitor. Measures the servers it is assigned and reports what it found.
//!
//! ```text
//!   node ─► Link::assignments ─► Schedule ─► Gauge (NTP, HTTP, TCP), so many at a time
//!                                                │
//!   node ◄─ Link::report ◄─ batches ◄─ Buffer ◄──┘   bounded; in a file too if one is named
//! ```
//!
//! [`Schedule`] says when what is due, [`Pace`] when to ask a node again, [`Buffer`] what is kept:
//! none of them knows a clock or a socket. [`run`] is their hands.

mod buffer;
mod journal;
mod key;
mod link;
mod measure;
mod once;
mod pace;
mod run;
mod schedule;
mod scribe;
mod wire;

pub use key::Key;
pub use once::{Once, once};
pub use run::{Ended, run};
pub use wire::Measured;

use buffer::Buffer;
use link::Link;
use measure::Gauge;
use std::path::PathBuf;
use std::time::Duration;

/// What an agent is told. Not for debug output, because of the key.
#[derive(Clone)]
pub struct Options {
    /// Nodes; the next is tried when one does not answer.
    pub servers: Vec<String>,
    pub key: Key,
    /// The monitor, if the key does not say it.
    pub monitor: Option<String>,
    /// Where results outlive the process.
    pub buffer: Option<PathBuf>,
    /// Results that may wait for a node.
    pub buffer_max: usize,
    /// Measurements at a time.
    pub concurrency: usize,
    /// From one report to the next.
    pub report_interval: Duration,
}

/// Why an agent cannot work.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The file for results.
    #[error("--buffer {path}: {cause}")]
    Buffer {
        /// The file.
        path: String,
        /// Why.
        cause: std::io::Error,
    },
    /// TLS, certificates.
    #[error("{0}")]
    System(String),
    /// No node answers; only with `--once`.
    #[error("{0}")]
    Away(String),
    /// The key is not good; only with `--once`.
    #[error("{0}")]
    Denied(String),
    /// A measurement panicked.
    #[error("a measurement ended by itself: {0}")]
    Bug(String),
}

/// What an agent works with.
struct Tools {
    link: Link,
    gauge: Gauge,
    buffer: Buffer,
}

impl Tools {
    fn new(options: &Options) -> Result<Self, AgentError> {
        let link = Link::new(&options.servers, options.key.clone(), options.monitor.as_deref())
            .map_err(AgentError::System)?;
        let gauge = Gauge::new().map_err(|error| AgentError::System(error.to_string()))?;
        let buffer = match &options.buffer {
            None => Buffer::new(options.buffer_max),
            Some(path) => {
                let (mut buffer, damaged) =
                    Buffer::open(path, options.buffer_max).map_err(|cause| AgentError::Buffer {
                        path: path.display().to_string(),
                        cause,
                    })?;
                let (path, waiting) = (path.display(), buffer.len());
                if damaged > 0 {
                    tracing::warn!(damaged, "{path} has lines that make no sense; they are lost");
                }
                let dropped = buffer.take_dropped();
                if dropped > 0 {
                    tracing::warn!(dropped, "{path} had more results than --buffer-max");
                }
                if waiting > 0 {
                    tracing::info!(waiting, "{path} has results that no node has yet");
                }
                buffer
            }
        };
        Ok(Tools { link, gauge, buffer })
    }
}
