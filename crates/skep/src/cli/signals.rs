//! Ctrl-C and SIGTERM, for programs that stop in good order.

use super::{CliError, Exit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and SIGTERM.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on; neither ends the program by itself any more.
    pub fn new() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                CliError::new(Exit::System, format!("cannot listen for signals: {error}"))
            })
        };
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
