//! The log: lines on standard error, for people or for programs.

use crate::settings::{LogFormat, LogSettings};
use std::io::IsTerminal;
use tracing_subscriber::fmt;

/// Starts the log of this process. Only the first call counts.
pub fn start(settings: &LogSettings) {
    let lines = fmt().with_env_filter(settings.level.filter()).with_writer(std::io::stderr);
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // Fails only if a log was started before, which then goes on.
    let _ = match settings.format {
        LogFormat::Text => lines.with_ansi(coloured).with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
