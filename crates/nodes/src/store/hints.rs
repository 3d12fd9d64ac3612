//! When to look at the table, from whatever store says so.

use skep_store::Heard;
use std::sync::Arc;
use tokio::sync::Notify;

/// What is said to all nodes; anything else is the name of one.
pub(super) const EVERYBODY: &str = "*";

/// Says when a node should look at the table.
pub struct Hints {
    source: Source,
}

enum Source {
    Memory(Arc<Notify>),
    Server { heard: skep_store::Hints, name: String },
}

impl Hints {
    pub(super) fn from_memory(wake: Arc<Notify>) -> Self {
        Hints { source: Source::Memory(wake) }
    }

    pub(super) fn from_server(heard: skep_store::Hints, name: &str) -> Self {
        Hints { source: Source::Server { heard, name: name.to_owned() } }
    }

    /// Waits until the node should look. Dropping the future loses nothing.
    pub async fn next(&mut self) {
        match &mut self.source {
            Source::Memory(wake) => wake.notified().await,
            Source::Server { heard, name } => loop {
                match heard.next().await {
                    Heard::Notice { payload, .. } if payload == EVERYBODY || payload == *name => {
                        return;
                    }
                    Heard::Notice { .. } | Heard::Lost => {}
                    Heard::Reconnected => return,
                }
            },
        }
    }
}
