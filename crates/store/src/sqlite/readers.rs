//! Threads that read beside the writer, each with a connection of its own.

use super::writer::run_guarded;
use super::{NAME, closed, connection, lock, start_thread};
use crate::StoreError;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Mutex;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

type Read = Box<dyn FnOnce(&Connection) + Send>;

pub(super) struct Readers {
    queue: async_channel::Sender<Read>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    pub(super) fn start(path: &Path, count: usize, queue_max: usize) -> Result<Self, StoreError> {
        let (queue, reads) = async_channel::bounded::<Read>(queue_max);
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let connection = connection::open_reader(path)?;
            let reads = reads.clone();
            threads.push(start_thread(&format!("skep-reader-{number}"), move || {
                while let Ok(read) = reads.recv_blocking() {
                    read(&connection);
                }
            })?);
        }
        Ok(Readers { queue, threads: Mutex::new(threads) })
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
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed { store: NAME }.into()))
    }

    pub(super) fn close(&self) {
        self.queue.close();
    }

    pub(super) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut lock(&self.threads))
    }
}
