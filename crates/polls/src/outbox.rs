//! Results on their way to the database, in batches.

use crate::metrics::PollsMetrics;
use crate::store::{self, Recorded, ResultRow};
use skep_store::Database;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Results written in one go.
const BATCH: usize = 1_000;

/// How long a result waits for others.
const GATHER: Duration = Duration::from_millis(100);

/// Waits between attempts while the database is away.
const RETRY: Duration = Duration::from_millis(500);

/// Results that wait.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<VecDeque<ResultRow>>,
    arrived: Notify,
    hurry: Notify,
}

/// Who is told what became of results.
pub trait Written: Send + Sync {
    /// These were written or refused. `None` is one that was dropped because too many waited.
    fn written(&self, results: &[(ResultRow, Option<Recorded>)]);
}

impl Outbox {
    /// Adds a result; gives back the oldest if there are too many.
    pub fn add(&self, row: ResultRow, most: usize) -> Option<ResultRow> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(row);
        let dropped = if waiting.len() > most { waiting.pop_front() } else { None };
        let full = waiting.len() >= BATCH;
        drop(waiting);
        self.arrived.notify_one();
        if full {
            self.hurry.notify_one();
        }
        dropped
    }

    /// Lets those that wait be written now.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Writes results until `stop` is cancelled, and then what is left, if the database is there.
    pub async fn run(
        &self,
        db: &Database,
        history: u32,
        metrics: &PollsMetrics,
        written: &dyn Written,
        stop: CancellationToken,
    ) {
        loop {
            if self.len() == 0 {
                tokio::select! {
                    () = self.arrived.notified() => {}
                    () = stop.cancelled() => return,
                }
            }
            if !stop.is_cancelled() {
                tokio::select! {
                    () = tokio::time::sleep(GATHER) => {}
                    () = self.hurry.notified() => {}
                    () = stop.cancelled() => {}
                }
            }
            let batch = self.take();
            if batch.is_empty() {
                continue;
            }
            match store::record(db, batch.clone(), history).await {
                Ok(answers) => {
                    let results: Vec<_> =
                        batch.into_iter().zip(answers.into_iter().map(Some)).collect();
                    metrics.recorded(&results);
                    written.written(&results);
                }
                Err(error) if stop.is_cancelled() => {
                    tracing::warn!(%error, results = batch.len(), "results are lost at the end");
                    metrics.dropped(batch.len() + self.len());
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, waiting = self.len(), "results cannot be written yet");
                    self.put_back(batch);
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = stop.cancelled() => {}
                    }
                }
            }
        }
    }

    fn take(&self) -> Vec<ResultRow> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(BATCH);
        waiting.drain(..count).collect()
    }

    fn put_back(&self, batch: Vec<ResultRow>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for row in batch.into_iter().rev() {
            waiting.push_front(row);
        }
    }
}
