//! Ctrl-C and SIGTERM, for programs that stop in good order; SIGHUP, for those that read their
//! settings again.

use super::{CliError, Exit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and SIGTERM.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

fn listen(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind)
        .map_err(|error| CliError::new(Exit::System, format!("cannot listen for signals: {error}")))
}

/// SIGHUP, which does not end the program by itself from now on.
pub fn hangups() -> Result<Signal, CliError> {
    listen(SignalKind::hangup())
}

impl Signals {
    /// Listens from now on; neither ends the program by itself any more.
    pub fn new() -> Result<Self, CliError> {
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next, and says which.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
