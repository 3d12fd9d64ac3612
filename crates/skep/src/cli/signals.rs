//! Ctrl-C and SIGTERM, for programs that stop in good order; SIGHUP, for those that read their
//! settings again; the end of standard input, for those that end with whoever started them.

use super::{CliError, Exit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

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

/// The end of standard input. Whoever holds the other end of that pipe may be killed, and then the
/// system closes it: nobody else has to tell.
pub struct InputEnd(Option<oneshot::Receiver<()>>);

impl InputEnd {
    /// Watches it, on a thread that ends with the process, or never.
    pub fn watch(wanted: bool) -> Self {
        let watching = || {
            let (tell, told) = oneshot::channel();
            std::thread::spawn(move || {
                // However it ends.
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                let _ = tell.send(());
            });
            told
        };
        InputEnd(wanted.then(watching))
    }

    /// Waits for it. Afterwards there is nothing more to wait for.
    pub async fn reached(&mut self) {
        match &mut self.0 {
            Some(told) => {
                let _ = told.await;
                self.0 = None;
            }
            None => std::future::pending().await,
        }
    }
}
