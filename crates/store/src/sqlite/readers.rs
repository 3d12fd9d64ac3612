//! Threads that read beside the writer, each with a connection of its own.

use super::writer::run_guarded;
use super::{SqliteOptions, closed, connection, start_thread, unanswered};
use crate::StoreError;
use async_channel::Sender;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tokio::sync::oneshot;

type Read = Box<dyn FnOnce(&Connection) + Send>;

pub(super) struct Readers {
    queue: Sender<Read>,
}

impl Readers {
    /// Starts the threads; each holds a clone of `held` until it ends.
    pub(super) fn start(
        path: &Path,
        options: &SqliteOptions,
        held: &(impl Clone + Send + 'static),
    ) -> Result<Self, StoreError> {
        let (queue, reads) = async_channel::bounded::<Read>(options.queue_max);
        for number in 0..options.readers {
            let connection = connection::open_reader(path)?;
            let (reads, held) = (reads.clone(), held.clone());
            start_thread(&format!("skep-reader-{number}"), move || {
                while let Ok(read) = reads.recv_blocking() {
                    // What a caller that left would have got is dropped here, and may panic.
                    let _ = catch_unwind(AssertUnwindSafe(|| read(&connection)));
                    end_transaction(&connection);
                }
                drop(connection);
                drop(held);
            })?;
        }
        Ok(Readers { queue })
    }

    pub(super) async fn run<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let read: Read = Box::new(move |connection| {
            if !caller.is_closed() {
                // A caller that left meanwhile has no use for the answer.
                let _ = caller.send(run_guarded(|| work(connection)));
            }
        });
        self.queue.send(read).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(unanswered().into()))
    }

    pub(super) fn close(&self) {
        self.queue.close();
    }
}

/// A read that left its transaction open would see old rows for ever, and keep the log from being
/// cut back.
fn end_transaction(connection: &Connection) {
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
}
