//! The one thread that writes, and its group commit.
//!
//! ```text
//!   callers ──► bounded queue ──► writer:  BEGIN
//!                                            job 1   SAVEPOINT … RELEASE
//!                                            job 2   SAVEPOINT … ROLLBACK TO   (its own error)
//!                                            …       whatever has arrived meanwhile
//!                                          COMMIT    one fsync for all of them
//!                                          answer every caller
//! ```
//!
//! A batch is what arrived while the last one was being made durable; nobody waits for a batch to
//! fill. An answer is given only after the commit, so what was acknowledged is on disk.

use super::SqliteOptions;
use super::checkpoint::Checkpoints;
use super::connection::classify;
use super::metrics::WriterMetrics;
use crate::StoreError;
use async_channel::Receiver;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;

/// Something to do inside the next transaction.
pub(super) trait Job: Send {
    /// Whether somebody still waits for the answer.
    fn is_wanted(&self) -> bool;
    /// Does the work. `false` if what it wrote must be rolled back.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Tells the caller how it ended.
    fn answer(self: Box<Self>, end: &End);
}

/// How the transaction of a job ended.
pub(super) enum End {
    /// It is durable: the job's own result stands.
    Committed,
    /// It is not; and what a job saw in it may never have been, so its own result is void.
    Lost(StoreError),
    /// It is not, and this job's own error is the reason.
    LostByThisJob,
}

/// A job made of a closure and the caller's side of a channel.
pub(super) struct Call<F, T, E> {
    work: Option<F>,
    result: Option<Result<T, E>>,
    caller: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> Call<F, T, E> {
    pub(super) fn new(work: F, caller: oneshot::Sender<Result<T, E>>) -> Self {
        Call { work: Some(work), result: None, caller }
    }
}

impl<F, T, E> Job for Call<F, T, E>
where
    F: FnOnce(&Connection) -> Result<T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn is_wanted(&self) -> bool {
        !self.caller.is_closed()
    }

    fn run(&mut self, connection: &Connection) -> bool {
        let Some(work) = self.work.take() else { return false };
        let result = run_guarded(|| work(connection));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn answer(self: Box<Self>, end: &End) {
        let result = match (end, self.result) {
            (End::Committed, Some(result)) => result,
            (End::LostByThisJob, Some(Err(own))) => Err(own),
            (End::Lost(error), _) => Err(error.clone().into()),
            (End::LostByThisJob, _) => Err(rolled_back().into()),
            (End::Committed, None) => Err(super::closed().into()),
        };
        // A caller that left meanwhile has no use for the answer.
        let _ = self.caller.send(result);
    }
}

/// Runs a call's code so that its panic becomes its own error.
pub(super) fn run_guarded<T, E: From<StoreError>>(
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let cause = panic_text(panic.as_ref()).to_owned();
        Err(StoreError::Panicked { cause }.into())
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

fn rolled_back() -> StoreError {
    StoreError::CommitLost { cause: "the database rolled the transaction back".to_owned() }
}

pub(super) struct Writer {
    connection: Connection,
    checkpoints: Checkpoints,
    path: PathBuf,
    options: SqliteOptions,
    metrics: WriterMetrics,
    /// While a job runs nothing may be committed: if SQLite has given the transaction up, the job's
    /// next statement would otherwise be durable all by itself.
    in_job: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn new(
        mut connection: Connection,
        checkpoints: Checkpoints,
        path: PathBuf,
        options: &SqliteOptions,
        metrics: WriterMetrics,
    ) -> Result<Self, StoreError> {
        let in_job = Arc::new(AtomicBool::new(false));
        let guard = in_job.clone();
        connection
            .commit_hook(Some(move || guard.load(Ordering::Relaxed)))
            .map_err(|error| classify(error, &path))?;
        Ok(Writer { connection, checkpoints, path, options: *options, metrics, in_job })
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(self, queue: &Receiver<Box<dyn Job>>) {
        let mut batch = Vec::new();
        while let Ok(first) = queue.recv_blocking() {
            batch.push(first);
            self.commit_together(&mut batch, queue);
        }
        let _ = self.connection.execute_batch("PRAGMA optimize");
        self.checkpoints.finish(&self.connection);
    }

    fn commit_together(&self, batch: &mut Vec<Box<dyn Job>>, queue: &Receiver<Box<dyn Job>>) {
        let started = Instant::now();
        let (outcome, kept) = match self.fill_transaction(batch, queue) {
            Ok(kept) => (self.commit().map_err(|error| (error, None)), kept),
            Err(lost) => (Err(lost), 0),
        };
        if outcome.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.metrics.observe_commit(kept, started.elapsed(), outcome.is_ok());
        for (position, job) in batch.drain(..).enumerate() {
            let end = match &outcome {
                Ok(()) => End::Committed,
                Err((_, Some(culprit))) if *culprit == position => End::LostByThisJob,
                Err((error, _)) => End::Lost(error.clone()),
            };
            // The caller's own types are dropped here, and may panic; that is not the others' loss.
            let _ = catch_unwind(AssertUnwindSafe(|| job.answer(&end)));
        }
        self.checkpoints.after_commit(&self.connection);
    }

    /// Runs every job that is there or arrives meanwhile, each in its own savepoint. Tells how many
    /// wrote something to keep, or why the transaction is lost and which job was the cause.
    fn fill_transaction(
        &self,
        batch: &mut Vec<Box<dyn Job>>,
        queue: &Receiver<Box<dyn Job>>,
    ) -> Result<usize, (StoreError, Option<usize>)> {
        let started = Instant::now();
        self.execute("BEGIN IMMEDIATE").map_err(|error| (error, None))?;
        let (mut done, mut kept) = (0, 0);
        loop {
            if let Some(job) = batch.get_mut(done).filter(|job| job.is_wanted()) {
                let keep = self.run_in_savepoint(job.as_mut());
                kept += usize::from(keep.map_err(|error| (error, Some(done)))?);
            }
            done += 1;
            let long = started.elapsed() > self.options.batch_time_max;
            if batch.len() >= self.options.batch_max || long {
                return Ok(kept);
            }
            match queue.try_recv() {
                Ok(job) => batch.push(job),
                Err(_) => return Ok(kept),
            }
        }
    }

    fn run_in_savepoint(&self, job: &mut dyn Job) -> Result<bool, StoreError> {
        self.execute("SAVEPOINT job")?;
        self.in_job.store(true, Ordering::Relaxed);
        let keep = job.run(&self.connection);
        self.in_job.store(false, Ordering::Relaxed);
        if self.connection.is_autocommit() {
            // A full disk or an I/O error makes SQLite roll the whole transaction back.
            return Err(rolled_back());
        }
        if !keep {
            self.execute("ROLLBACK TO job")?;
        }
        self.execute("RELEASE job")?;
        Ok(keep)
    }

    /// An I/O error here can come after the last page was written, so the outcome is unknown.
    fn commit(&self) -> Result<(), StoreError> {
        let committed = self.prepare_and_run("COMMIT");
        committed.map_err(|error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::SystemIoFailure) => StoreError::Disk {
                target: self.path.display().to_string(),
                cause: crate::error::chain(&error),
            },
            _ => classify(error, &self.path),
        })
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.prepare_and_run(sql).map_err(|error| classify(error, &self.path))
    }

    fn prepare_and_run(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }
}
