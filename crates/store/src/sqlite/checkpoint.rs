//! Moves pages from the write-ahead log to the file, beside the writer.
//!
//! SQLite does that in the commit that makes the log long enough: under load every few commits one
//! takes many times as long as the others. Here a thread of its own copies pages while the writer
//! goes on. The log can only begin anew when all of it was copied, and while somebody writes there
//! is always a little more; so when it is long the writer copies that little itself.

use super::{connection, start_thread};
use crate::StoreError;
use async_channel::Sender;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;

/// Pages in the log from which it is copied beside the writer: 4 MiB.
const COPY_FROM_PAGES: i32 = 1_024;
/// Pages in the log from which the writer copies what is left: 32 MiB.
const FINISH_FROM_PAGES: i32 = 8_192;

const COPY: &str = "PRAGMA wal_checkpoint(PASSIVE)";
const FINISH: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// The writer's side.
pub(super) struct Checkpoints {
    /// Pages in the log after the last commit.
    pages: Arc<AtomicI32>,
    ask: Sender<()>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    /// Starts the thread, which ends with this value and holds `held` until then.
    pub(super) fn start(
        writer: &mut Connection,
        path: &Path,
        held: impl Send + 'static,
    ) -> Result<Self, StoreError> {
        let pages = Arc::new(AtomicI32::new(0));
        let seen = pages.clone();
        // It also ends SQLite's own copying in commits.
        writer
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
                seen.store(pages, Ordering::Relaxed);
                Ok(())
            }))
            .map_err(|error| connection::classify(error, path))?;
        let beside = connection::open_beside(path)?;
        let (ask, asked) = async_channel::bounded::<()>(1);
        let thread = start_thread("skep-checkpoint", move || {
            while asked.recv_blocking().is_ok() {
                copy(&beside);
            }
            drop(beside);
            drop(held);
        })?;
        Ok(Checkpoints { pages, ask, thread })
    }

    /// To be called after a commit.
    pub(super) fn after_commit(&self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages >= COPY_FROM_PAGES {
            // It may be asked already.
            let _ = self.ask.try_send(());
        }
        if pages >= FINISH_FROM_PAGES {
            copy(writer);
        }
    }

    /// Copies everything and cuts the log back to nothing, when the thread has gone: while one
    /// copies, SQLite lets nobody else begin to. Best effort: the log is replayed at the next start
    /// anyway.
    pub(super) fn finish(self, writer: &Connection) {
        drop(self.ask);
        let _ = self.thread.join();
        let _ = writer.execute_batch(FINISH);
    }
}

/// Copies what nobody reads any more. Waits for nobody. Whatever keeps it from doing so, a full
/// disk or a reader, keeps the log as it is; the next time may do better.
fn copy(connection: &Connection) {
    let _ = connection.query_row(COPY, [], |_| Ok(()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataFolder, Sqlite, SqliteOptions};
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    #[tokio::test]
    async fn the_log_stays_short_however_much_is_written_without_a_pause() {
        let folder = tempfile::tempdir().unwrap();
        let data = Arc::new(DataFolder::open(folder.path()).unwrap());
        let sqlite = Sqlite::open(&data, &SqliteOptions::default()).unwrap();
        let make = "CREATE TABLE jars (honey BLOB)";
        sqlite.write(move |db| Ok::<_, StoreError>(db.execute_batch(make)?)).await.unwrap();
        let log = sqlite.path().with_extension(format!(
            "{}-wal",
            sqlite.path().extension().unwrap().to_string_lossy()
        ));
        let mut longest = 0;
        for _ in 0..300 {
            let insert = "INSERT INTO jars VALUES (zeroblob(1000000))";
            sqlite.write(move |db| Ok::<_, StoreError>(db.execute_batch(insert)?)).await.unwrap();
            longest = longest.max(std::fs::metadata(&log).unwrap().len());
        }
        assert!(longest > 4 << 20, "it is not copied at each commit: {longest}");
        assert!(longest < 150 << 20, "300 MB were written, and the log had {longest} bytes");
        let sum = "SELECT count(*) FROM jars WHERE length(honey) = 1000000";
        let count: i64 = sqlite
            .read(move |db| Ok::<_, StoreError>(db.query_row(sum, [], |row| row.get(0))?))
            .await
            .unwrap();
        assert_eq!(count, 300);
        sqlite.close().await;
        assert!(!log.exists() || std::fs::metadata(&log).unwrap().len() == 0);
    }

    #[test]
    fn the_log_is_cut_back_only_when_the_thread_that_copies_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jars.db");
        let mut writer = connection::open_writer(&path, 1 << 20).unwrap();
        writer.execute_batch("CREATE TABLE jars (honey BLOB)").unwrap();
        let (has_gone, ends) = (Arc::new(AtomicBool::new(false)), Duration::from_millis(200));
        let held = OnDrop(has_gone.clone(), ends);
        let checkpoints = Checkpoints::start(&mut writer, &path, held).unwrap();
        checkpoints.finish(&writer);
        assert!(has_gone.load(Ordering::SeqCst), "it was still there");
        let log = std::fs::metadata(path.with_extension("db-wal")).unwrap();
        assert_eq!(log.len(), 0);
    }

    /// Takes its time to be dropped, and tells when it was.
    struct OnDrop(Arc<AtomicBool>, Duration);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            std::thread::park_timeout(self.1);
            self.0.store(true, Ordering::SeqCst);
        }
    }
}
