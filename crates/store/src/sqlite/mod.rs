//! The embedded store: one SQLite file, one writer thread, a few readers beside it.

mod checkpoint;
mod connection;
mod metrics;
mod readers;
mod writer;

use crate::backup::BackupMetrics;
use crate::{DataFolder, Health, StoreError};
use async_channel::Sender;
use checkpoint::Checkpoints;
pub(crate) use connection::{classify, open_beside};
use metrics::WriterMetrics;
use prometheus_client::registry::Registry;
use readers::Readers;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot, watch};
use writer::{Call, Job, Writer};

pub(crate) const NAME: &str = "sqlite";

/// Limits of the embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Threads that read beside the writer.
    pub readers: usize,
    /// Calls that may wait for the writer, and as many for the readers; more callers wait for room.
    pub queue_max: usize,
    /// Calls that may share one transaction.
    pub batch_max: usize,
    /// A transaction takes up no more calls after this time, so that long ones do not keep those
    /// before them waiting.
    pub batch_time_max: Duration,
    /// After a burst the write-ahead log is cut back to so many bytes.
    pub log_size_max: u64,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions {
            readers: 2,
            queue_max: 4_096,
            batch_max: 1_024,
            batch_time_max: Duration::from_millis(5),
            log_size_max: 64 << 20,
        }
    }
}

/// A handle to the embedded store. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Sqlite {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    jobs: Sender<Box<dyn Job>>,
    readers: Readers,
    ended: watch::Receiver<()>,
    metrics: WriterMetrics,
    /// Held by the one who makes a copy of it.
    copying: Arc<Mutex<()>>,
    backups: BackupMetrics,
}

impl Sqlite {
    /// Opens or creates the database file of a locked folder and starts its threads. The folder
    /// stays locked until the last of them has ended.
    pub fn open(folder: &Arc<DataFolder>, options: &SqliteOptions) -> Result<Self, StoreError> {
        let path = folder.database();
        let metrics = WriterMetrics::new();
        let mut connection = connection::open_writer(&path, options.log_size_max)?;
        // Whoever waits for the end sees this channel close, when each thread has dropped its part;
        // the folder is given back before, so that it is free then.
        let (alive, ended) = watch::channel(());
        let held = (folder.clone(), alive);
        let (jobs, queue) = async_channel::bounded(options.queue_max);
        let readers = Readers::start(&path, options, &held)?;
        let checkpoints = Checkpoints::start(&mut connection, &path, held.clone())?;
        let writer = Writer::new(connection, checkpoints, path.clone(), options, metrics.clone())?;
        start_thread("skep-writer", move || {
            writer.run(&queue);
            // Nobody is told that the store is usable without its writer.
            queue.close();
            drop(held);
        })?;
        let (copying, backups) = (Arc::default(), BackupMetrics::new());
        let shared = Shared { path, jobs, readers, ended, metrics, copying, backups };
        Ok(Sqlite { shared: Arc::new(shared) })
    }

    /// Runs `work` in a transaction and answers once it is durable.
    ///
    /// Concurrent calls share one commit. If `work` returns an error or panics, what it wrote is
    /// rolled back and nobody else's. `work` must not begin, commit or roll back by itself. If the
    /// caller's future is dropped before the work has started, it is skipped; after that it runs to
    /// its end.
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let job = Box::new(Call::new(work, caller));
        self.shared.jobs.send(job).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(unanswered().into()))
    }

    /// Runs `work` on a read-only connection, beside the writer. It sees every answered write.
    pub async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.shared.readers.run(work).await
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    pub(crate) fn copying(&self) -> Arc<Mutex<()>> {
        self.shared.copying.clone()
    }

    pub(crate) fn backup_metrics(&self) -> BackupMetrics {
        self.shared.backups.clone()
    }

    /// Calls that wait for the writer to take them up.
    pub fn waiting(&self) -> usize {
        self.shared.jobs.len()
    }

    /// Whether a write reaches the disk now, within `limit`.
    pub async fn health(&self, limit: Duration) -> Health {
        // An empty transaction would touch no disk; this changes a number in the file's header that
        // nobody else uses, so that a full or failed disk shows.
        let beat = self.write(|db| {
            let last: i32 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
            Ok::<_, StoreError>(db.pragma_update(None, "user_version", (last + 1) % 1_000)?)
        });
        Health::ask(NAME, self.path().display().to_string(), limit, beat).await
    }

    /// Resolves when the writer has ended, which before [`Sqlite::close`] is a fault.
    pub async fn failed(&self) {
        // The channel closes when the writer's thread ends, even by a panic.
        while !self.shared.jobs.is_closed() {
            self.shared.jobs.closed().await;
        }
    }

    /// Adds the store's metrics to a node's registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
        self.shared.backups.register(registry);
    }

    /// Finishes what was queued, checkpoints and closes the file. Later calls get
    /// [`StoreError::Closed`].
    pub async fn close(&self) {
        self.shared.close();
        let mut ended = self.shared.ended.clone();
        while ended.changed().await.is_ok() {}
    }
}

impl Shared {
    fn close(&self) {
        self.jobs.close();
        self.readers.close();
    }
}

impl Drop for Shared {
    /// The threads finish what was queued and end; nobody waits for them here, because the last
    /// handle may go anywhere, even on one of them.
    fn drop(&mut self) {
        self.close();
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Closed { store: NAME }
}

/// The thread took the call and ended without an answer: a panic in the store itself.
fn unanswered() -> StoreError {
    StoreError::Unknown { store: NAME, cause: "the store ended in the middle of a call".to_owned() }
}

pub(crate) fn start_thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StoreError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| StoreError::Refused {
        store: NAME,
        cause: format!("no thread could be started: {error}"),
    })
}
