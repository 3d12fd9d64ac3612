//! What operators switch off for maintenance, as this process last read it.
//!
//! ```text
//!   set here ──────────────► store ─► this process, at once
//!   set at another node ───► store ─► NOTIFY, or the next look within a second
//! ```
//!
//! While the database is away, what was last read holds.

use skep_queues::store::{Switch, Switches};
use skep_queues::{QueueError, Queues};
use skep_store::{Outcome, StoreError};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, watch};

/// How often it is looked whether another node has switched something.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The switches of a process.
#[derive(Default)]
pub struct SwitchWatch {
    known: watch::Sender<Switches>,
    looks: Notify,
    /// Held from before the store is asked until everybody acts on its answer, so that an older
    /// answer never comes after a newer one.
    acting: Mutex<()>,
}

impl SwitchWatch {
    /// As they were last read.
    pub fn known(&self) -> Switches {
        self.known.borrow().clone()
    }

    /// Reads them, and lets the queues act on it.
    pub async fn read(&self, queues: &Queues) -> Result<(), StoreError> {
        let _alone = self.acting.lock().await;
        let read = queues.store().switches().await?;
        if let Err(error) = self.act(queues, read).await {
            tracing::error!(%error, "pushes are to be held back here and are refused instead");
        }
        Ok(())
    }

    /// Sets one, for every node. Nothing is set if this node could not act on it.
    pub async fn set(
        &self,
        queues: &Queues,
        switch: Switch,
        on: bool,
        by: &str,
    ) -> Result<Switches, QueueError> {
        let _alone = self.acting.lock().await;
        let before = self.known();
        if switch == Switch::Push && on {
            // It comes to light here whether there is a file to hold them in.
            let held = queues.hold(true).await;
            if let (Err(error), false) = (held, before.push) {
                let _ = queues.hold(false).await;
                return Err(error);
            }
        }
        match queues.store().set_switch(switch, on, by).await {
            Ok(set) => {
                self.act(queues, set.clone()).await?;
                // A node that does not hear it looks by itself.
                if let Err(error) = queues.store().announce().await {
                    tracing::debug!(%error, "other nodes are not told of a switch");
                }
                Ok(set)
            }
            Err(error) => {
                let now = match error.outcome() {
                    Outcome::NotApplied => before,
                    // Whether it was set shows now, or at the next look.
                    _ => queues.store().switches().await.unwrap_or(before),
                };
                let _ = self.act(queues, now).await;
                Err(error.into())
            }
        }
    }

    /// Reads them soon.
    pub fn look(&self) {
        self.looks.notify_one();
    }

    /// Reads them again and again, for ever.
    pub async fn follow(&self, queues: &Queues) {
        loop {
            let _ = tokio::time::timeout(LOOK_EVERY, self.looks.notified()).await;
            if let Err(error) = self.read(queues).await {
                tracing::debug!(%error, "switches cannot be read; they stay as they were");
            }
        }
    }

    async fn act(&self, queues: &Queues, switches: Switches) -> Result<(), QueueError> {
        let before = self.known();
        if before.push != switches.push || before.pop != switches.pop {
            let (push, pop) = (switches.push, switches.pop);
            tracing::info!(push, pop, "maintenance of queues was switched");
        }
        queues.pause(switches.pop);
        let held = queues.hold(switches.push).await;
        self.known.send_replace(switches);
        held
    }
}
