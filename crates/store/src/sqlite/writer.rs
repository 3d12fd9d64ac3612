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

use super::connection::classify;
use super::metrics::WriterMetrics;
use crate::StoreError;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// Something to do inside the next transaction.
pub(super) trait Job: Send {
    /// Whether somebody still waits for the answer.
    fn is_wanted(&self) -> bool;
    /// Does the work. `false` if what it wrote must be rolled back.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Tells the caller: its own result, or why the commit did not happen.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
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

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let result = match (committed, self.result) {
            // What the job itself found out stays true whether or not others committed.
            (_, Some(Err(own))) => Err(own),
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Err(error), _) => Err(error.into()),
            (Ok(()), None) => Err(StoreError::Closed { store: super::NAME }.into()),
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

pub(super) struct Writer {
    pub connection: Connection,
    pub path: PathBuf,
    pub batch_max: usize,
    pub metrics: WriterMetrics,
}

impl Writer {
    /// Works until every sender is gone and the queue is empty.
    pub(super) fn run(self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        let mut batch = Vec::with_capacity(self.batch_max);
        while queue.blocking_recv_many(&mut batch, self.batch_max) > 0 {
            self.commit_together(&mut batch, &mut queue);
        }
        // Best effort: the write-ahead log is replayed at the next start anyway.
        let _ = self.connection.execute_batch("PRAGMA optimize; PRAGMA wal_checkpoint(TRUNCATE)");
    }

    fn commit_together(
        &self,
        batch: &mut Vec<Box<dyn Job>>,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
    ) {
        let started = Instant::now();
        let outcome = self.fill_transaction(batch, queue).and_then(|()| self.commit());
        if outcome.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.metrics.observe_commit(batch.len(), started.elapsed(), outcome.is_ok());
        for job in batch.drain(..) {
            job.answer(outcome.clone());
        }
    }

    /// Runs every job of the batch, and those that arrive meanwhile, each in its own savepoint.
    fn fill_transaction(
        &self,
        batch: &mut Vec<Box<dyn Job>>,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
    ) -> Result<(), StoreError> {
        self.execute("BEGIN IMMEDIATE")?;
        let mut done = 0;
        loop {
            for job in batch[done..].iter_mut().filter(|job| job.is_wanted()) {
                self.run_in_savepoint(job.as_mut())?;
            }
            done = batch.len();
            if done >= self.batch_max {
                return Ok(());
            }
            match queue.try_recv() {
                Ok(job) => batch.push(job),
                Err(_) => return Ok(()),
            }
        }
    }

    fn run_in_savepoint(&self, job: &mut dyn Job) -> Result<(), StoreError> {
        self.execute("SAVEPOINT job")?;
        let keep = job.run(&self.connection);
        if self.connection.is_autocommit() {
            // A full disk or an I/O error makes SQLite roll the whole transaction back.
            let cause = "the database rolled the transaction back".to_owned();
            return Err(StoreError::CommitLost { cause });
        }
        if !keep {
            self.execute("ROLLBACK TO job")?;
        }
        self.execute("RELEASE job")
    }

    fn commit(&self) -> Result<(), StoreError> {
        self.execute("COMMIT")
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([]))
            .map(|_| ())
            .map_err(|error| classify(error, &self.path))
    }
}
