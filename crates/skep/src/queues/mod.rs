//! The queues of a node: there once the stores are, and what cares for them.
//!
//! ```text
//!   embedded     nodes of this process ─► Queues ─► SQLite      a push wakes pops of every node
//!   PostgreSQL   nodes of this process ─► Queues ─► PostgreSQL ─► NOTIFY ─► other processes
//! ```

mod publish;
mod service;

pub use publish::PollResults;
pub use service::run;

use crate::settings::{Settings, Subscription};
use skep_policy::queues::Start;
use skep_queues::buffer::Buffer;
use skep_queues::store::QueueStore;
use skep_queues::{Pop, Popped, QueueError, Queues, QueuesMetrics};
use skep_store::{Database, MigrateError, Stores};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio_util::sync::CancellationToken;

/// The queues of one node.
pub struct NodeQueues {
    queues: OnceLock<Queues>,
    common: Arc<Common>,
    /// Cancelled when this node lets nobody wait any more. Other nodes may share its queues, so
    /// they themselves go on.
    closing: CancellationToken,
    start: Option<Start>,
}

/// What the nodes of one process have in common.
#[derive(Default)]
struct Common {
    queues: OnceCell<Queues>,
    metrics: QueuesMetrics,
    /// Held by the one who brings buffered pushes to the database.
    replaying: Mutex<()>,
    /// Held by the one who does what has a time.
    keeping: Mutex<()>,
}

impl NodeQueues {
    /// None yet: see [`NodeQueues::join`].
    pub fn new(settings: &Settings, stores: &Stores) -> Self {
        let common = stores.common::<Common>();
        let start = match settings.queues.default_subscription {
            Subscription::All => Some(Start::All),
            Subscription::New => None,
        };
        let closing = CancellationToken::new();
        NodeQueues { queues: OnceLock::new(), common, closing, start }
    }

    /// Uses what the stores hold. They must be up to date.
    pub async fn join(&self, settings: &Settings, stores: &Stores) -> Result<(), MigrateError> {
        let open = async || {
            let options = settings.queues.options();
            let store = QueueStore::open(stores.database(), &options).await?;
            let buffer = match stores.database() {
                Database::Postgres(_) if settings.queues.buffer => {
                    let folder = stores.folder().join("buffer");
                    Some(Buffer::open(&folder, settings.queues.buffer_max.0).await?)
                }
                // The embedded database is never away.
                _ => None,
            };
            let (cipher, metrics) = (settings.queues.cipher(), self.common.metrics.clone());
            Ok::<_, MigrateError>(Queues::new(store, cipher, buffer, metrics, &options))
        };
        let queues = self.common.queues.get_or_try_init(open).await?.clone();
        // Set once, by the one who keeps the stores.
        let _ = self.queues.set(queues);
        Ok(())
    }

    /// Brings what was buffered to the database while the node lives; one node of a process does.
    async fn replay(&self, queues: &Queues) {
        let _alone = self.common.replaying.lock().await;
        queues.replay().await;
    }

    /// Waits until this node is the one of its process that does what has a time.
    async fn keeper(&self) -> MutexGuard<'_, ()> {
        self.common.keeping.lock().await
    }

    /// The queues; nothing while the stores have not been reached yet.
    pub fn get(&self) -> Option<&Queues> {
        self.queues.get()
    }

    /// What they count.
    pub fn metrics(&self) -> &QueuesMetrics {
        &self.common.metrics
    }

    /// Where a group begins that is seen for the first time and does not say; `None` is with what
    /// is pushed from then on.
    pub fn default_start(&self) -> Option<Start> {
        self.start
    }

    /// Hands out messages, waiting for some if asked to and as long as the node does not stop.
    /// `None` if it stopped.
    pub async fn pop(&self, queues: &Queues, mut pop: Pop) -> Result<Option<Popped>, QueueError> {
        if self.closing.is_cancelled() {
            pop.wait = None;
        }
        if pop.wait.is_none() {
            return queues.pop(&pop).await.map(Some);
        }
        tokio::select! {
            biased;
            popped = queues.pop(&pop) => popped.map(Some),
            // What was being claimed has nobody to go to any more, and goes back.
            () = self.closing.cancelled() => Ok(None),
        }
    }

    /// Answers every pop that waits at this node, and lets none wait any more.
    pub fn stop_waiting(&self) {
        self.closing.cancel();
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        if let Some(queues) = self.get() {
            queues.refresh_metrics();
        }
    }
}
