//! The embedded store: one SQLite file, one writer thread, a few readers beside it.

mod connection;
mod metrics;
mod readers;
mod writer;

use crate::{Health, StoreError};
use metrics::WriterMetrics;
use prometheus_client::registry::Registry;
use readers::Readers;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};
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
    /// After a burst the write-ahead log is cut back to so many bytes.
    pub log_size_max: u64,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions { readers: 2, queue_max: 4_096, batch_max: 1_024, log_size_max: 64 << 20 }
    }
}

/// A handle to the embedded store. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Sqlite {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    /// Taken when the store is closed.
    jobs: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    readers: Readers,
    thread: Mutex<Option<JoinHandle<()>>>,
    ended: watch::Receiver<bool>,
    metrics: WriterMetrics,
}

impl Sqlite {
    /// Opens or creates the database file at `path` and starts its threads.
    pub fn open(path: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        let metrics = WriterMetrics::new();
        let writer = Writer {
            connection: connection::open_writer(path, options.log_size_max)?,
            path: path.to_path_buf(),
            batch_max: options.batch_max,
            metrics: metrics.clone(),
        };
        let readers = Readers::start(path, options.readers, options.queue_max)?;
        let (jobs, queue) = mpsc::channel(options.queue_max);
        let (end, ended) = watch::channel(false);
        let thread = start_thread("skep-writer", move || {
            writer.run(queue);
            let _ = end.send(true);
        })?;
        Ok(Sqlite {
            shared: Arc::new(Shared {
                path: path.to_path_buf(),
                jobs: Mutex::new(Some(jobs)),
                readers,
                thread: Mutex::new(Some(thread)),
                ended,
                metrics,
            }),
        })
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
        let jobs = lock(&self.shared.jobs).clone().ok_or_else(closed)?;
        jobs.send(Box::new(Call::new(work, caller))).await.map_err(|_| closed())?;
        drop(jobs);
        answer.await.unwrap_or_else(|_| Err(closed().into()))
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

    /// Calls that wait for the writer to take them up.
    pub fn waiting(&self) -> usize {
        lock(&self.shared.jobs).as_ref().map_or(0, |jobs| jobs.max_capacity() - jobs.capacity())
    }

    /// Whether the writer answers, and how long a call waits for it now.
    pub async fn health(&self) -> Health {
        let asked = Instant::now();
        let outcome = self.write(|_| Ok::<_, StoreError>(())).await;
        Health::new(NAME, self.path().display().to_string(), asked.elapsed(), outcome)
    }

    /// Resolves when the writer thread has ended, which before [`Sqlite::close`] is a fault.
    pub async fn ended(&self) {
        let mut ended = self.shared.ended.clone();
        // The sender is dropped without a value if the thread panicked; that is an end too.
        let _ = ended.wait_for(|over| *over).await;
    }

    /// Adds the store's metrics to a node's registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
    }

    /// Finishes what was queued, checkpoints and closes the file. Later calls get
    /// [`StoreError::Closed`].
    pub async fn close(&self) {
        lock(&self.shared.jobs).take();
        self.shared.readers.close();
        self.ended().await;
        self.shared.join();
    }
}

impl Shared {
    fn join(&self) {
        let writer = lock(&self.thread).take();
        for thread in writer.into_iter().chain(self.readers.take_threads()) {
            // The last handle may go inside a call, that is, on one of these very threads.
            if thread.thread().id() != std::thread::current().id() {
                // A panic of the thread has already been seen as its end.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        lock(&self.jobs).take();
        self.readers.close();
        self.join();
    }
}

fn closed() -> StoreError {
    StoreError::Closed { store: NAME }
}

/// A poisoned lock here guards a plain `Option` that no panic can leave half-changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start_thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        StoreError::Refused { store: NAME, cause: format!("no thread could be started: {error}") }
    })
}
