//! The queues of a node: there once the stores are, and what cares for them.
//!
//! ```text
//!   embedded     nodes of this process ─► Queues ─► SQLite      a push wakes pops of every node
//!   PostgreSQL   nodes of this process ─► Queues ─► PostgreSQL ─► NOTIFY ─► other processes
//! ```

mod publish;
mod service;
mod switches;

pub use publish::PollResults;
pub use service::run;
pub use switches::SwitchWatch;

use crate::settings::{Settings, Subscription};
use skep_policy::queues::Start;
use skep_queues::store::QueueStore;
use skep_queues::{LocalBuffer, Pop, Popped, QueueError, Queues, QueuesMetrics, QueuesOptions};
use skep_store::{Database, MigrateError, Stores};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, MutexGuard, OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Streams of new messages that one node has open at most.
pub const TAILS_MAX: usize = 50;

/// The queues of one node.
pub struct NodeQueues {
    queues: OnceLock<Queues>,
    common: Arc<Common>,
    /// Cancelled when this node lets nobody wait any more. Other nodes may share its queues, so
    /// they themselves go on.
    closing: CancellationToken,
    start: Option<Start>,
    tails: Arc<Semaphore>,
}

/// What the nodes of one process have in common.
#[derive(Default)]
struct Common {
    queues: OnceCell<Queues>,
    metrics: QueuesMetrics,
    switches: SwitchWatch,
    /// Held by the one who brings buffered pushes to the database.
    replaying: Mutex<()>,
    /// Held by the one who does what has a time.
    keeping: Mutex<()>,
    /// Held by the one who looks whether another process has switched something.
    following: Mutex<()>,
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
        let tails = Arc::new(Semaphore::new(TAILS_MAX));
        NodeQueues { queues: OnceLock::new(), common, closing, start, tails }
    }

    /// Uses what the stores hold. They must be up to date.
    pub async fn join(
        &self,
        name: &str,
        settings: &Settings,
        stores: &Stores,
    ) -> Result<(), MigrateError> {
        let open = async || {
            let lease_tag = skep_cluster::lease_tag_of(name);
            let options = QueuesOptions { lease_tag, ..settings.queues.options() };
            let store = QueueStore::open(stores.database(), &options).await?;
            // The embedded database is never away.
            let may_be_away = matches!(stores.database(), Database::Postgres(_));
            let buffer = LocalBuffer {
                folder: skep_store::DataFolder::buffer_in(stores.folder()),
                limit: settings.queues.buffer_max.0,
                when_away: settings.queues.buffer && may_be_away,
            };
            let (cipher, metrics) = (settings.queues.cipher(), self.common.metrics.clone());
            let queues = Queues::open(store, cipher, Some(buffer), metrics, &options).await?;
            // Before anybody can push or pop.
            self.common.switches.read(&queues).await?;
            Ok::<_, MigrateError>(queues)
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

    /// Acts on what other processes switch, while the node lives; one node of a process does.
    async fn follow_switches(&self, queues: &Queues) {
        let _alone = self.common.following.lock().await;
        self.common.switches.follow(queues).await;
    }

    /// What operators switched off.
    pub fn switches(&self) -> &SwitchWatch {
        &self.common.switches
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

    /// A place for one more stream of new messages, as long as it is kept; `None` if there are too
    /// many.
    pub fn tail_place(&self) -> Option<OwnedSemaphorePermit> {
        self.tails.clone().try_acquire_owned().ok()
    }

    /// Resolves when this node lets nobody wait any more.
    pub async fn stopping(&self) {
        self.closing.cancelled().await;
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
