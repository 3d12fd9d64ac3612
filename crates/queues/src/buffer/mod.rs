//! Pushes that are kept on this machine while the database is away, or while an operator wants it.
//!
//! ```text
//!            not away, not held, nothing of the queue waits
//!   push ──┬─────────────────────────────────────────────▶ database
//!          └─ otherwise ─▶ Buffer, a file ── replay ─────────▲
//! ```
//!
//! [`Buffer`] is the file: what it took is durable, comes back in order, and is there after a
//! restart. [`Spill`] is the rule of who goes where, and brings what was kept to the database.

mod entry;
mod spill;
#[cfg(test)]
mod spill_tests;
#[cfg(test)]
mod tests;

use crate::record::Damaged;
use crate::store::NewMessage;
use bytes::Bytes;
use rusqlite::{Connection, Row};
use skep_store::{DataFolder, Database, MigrateError, Migration, Schema};
use skep_store::{Outcome, Sqlite, SqliteOptions, StoreError};
pub use spill::{Kept, PushTo, Spill, SpillError, SpillOptions};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Not among the migrations of the database: it is of a file that SQLite keeps, whatever that is.
const ENTRIES: &str = "
    -- Pushes that wait for the database, in the order in which they came. Numbers are never given
    -- twice, so that whoever remembers one cannot mean another's.
    CREATE TABLE entries (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        queue TEXT NOT NULL,
        messages INTEGER NOT NULL,
        size INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;";

const SCHEMA: Schema = Schema {
    part: "buffer",
    sqlite: &[Migration { number: 1, name: "0001_entries", sql: ENTRIES }],
    postgres: &[],
};

/// What one entry costs in the file beyond its bytes, about; many small ones fill it too.
const ENTRY_OVERHEAD: u64 = 64;

/// A push, or its part for one queue, that waits in a [`Buffer`].
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its place in the order.
    pub number: i64,
    /// For which queue.
    pub queue: Arc<str>,
    /// What was pushed; damaged if the file is.
    pub messages: Result<Vec<NewMessage>, Damaged>,
    counts: Counts,
}

/// The beginning of what waits.
#[derive(Debug)]
pub struct Oldest {
    /// In the order in which they came.
    pub entries: Vec<Entry>,
    /// Whether further ones were there that did not fit.
    pub more: bool,
}

/// Why a push was not kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BufferError {
    /// There is no room for it. Nothing of it was kept.
    #[error(
        "the local buffer is full: {held} of at most {limit} bytes wait to go to the database \
         (queues.buffer_max)"
    )]
    Full {
        /// Bytes that wait.
        held: u64,
        /// Bytes that may.
        limit: u64,
    },
    /// The file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no file, and none can be made.
    #[error("the local buffer cannot be opened: {cause}")]
    Open {
        /// Why.
        cause: String,
    },
    /// A message that is larger than any may be.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// A durable file of pushes in the order in which they came. Clones share it.
#[derive(Clone)]
pub struct Buffer {
    sqlite: Sqlite,
    limit: u64,
    tally: Arc<Mutex<Tally>>,
    written: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    entries: u64,
    messages: u64,
    bytes: u64,
}

/// What is in the file, or may be.
#[derive(Debug, Default)]
struct Tally {
    all: Counts,
    queues: HashMap<Arc<str>, u64>,
    /// Pushes that are counted and not yet in the file.
    writing: usize,
}

struct Fresh {
    queue: Arc<str>,
    counts: Counts,
    body: Bytes,
}

impl Buffer {
    /// Opens the file in a folder that nobody else uses, and makes both if need be. It takes at
    /// most `limit` bytes of messages.
    pub async fn open(folder: &Path, limit: u64) -> Result<Self, MigrateError> {
        let folder = Arc::new(DataFolder::open(folder)?);
        let options = SqliteOptions { readers: 1, ..SqliteOptions::default() };
        let sqlite = Sqlite::open(&folder, &options)?;
        Database::Sqlite(sqlite.clone()).migrate(&[SCHEMA]).await?;
        let buffer = Buffer { sqlite, limit, tally: Arc::default(), written: Arc::default() };
        buffer.recount().await?;
        Ok(buffer)
    }

    /// Keeps the messages of one push. They are on disk when this returns. Those for one queue stay
    /// together; those for several are as many entries.
    ///
    /// It goes on when the caller has gone: what is half kept would be counted wrongly.
    pub async fn keep(&self, push: &[NewMessage]) -> Result<(), BufferError> {
        let rows = rows(push)?;
        self.reserve(&rows)?;
        let buffer = self.clone();
        let kept = tokio::spawn(async move { buffer.write(rows).await });
        let lost = |error: tokio::task::JoinError| StoreError::Unknown {
            store: "buffer",
            cause: error.to_string(),
        };
        kept.await.unwrap_or_else(|error| Err(lost(error))).map_err(BufferError::Store)
    }

    async fn write(&self, rows: Vec<Fresh>) -> Result<(), StoreError> {
        let sums: Vec<(Arc<str>, Counts)> =
            rows.iter().map(|row| (row.queue.clone(), row.counts)).collect();
        let written = self.sqlite.write(move |db| insert(db, &rows)).await;
        // What may be there counts as there, until the file is counted again.
        let not_there = written.as_ref().is_err_and(|e| e.outcome() == Outcome::NotApplied);
        let mut tally = self.tally();
        tally.writing -= 1;
        if not_there {
            sums.iter().for_each(|(queue, counts)| tally.remove(queue, *counts));
        }
        self.written.notify_one();
        written
    }

    fn reserve(&self, rows: &[Fresh]) -> Result<(), BufferError> {
        let mut tally = self.tally();
        let (held, limit) = (tally.all.bytes, self.limit);
        let more: u64 = rows.iter().map(|row| row.counts.bytes).sum();
        if held.saturating_add(more) > limit {
            return Err(BufferError::Full { held, limit });
        }
        rows.iter().for_each(|row| tally.add(&row.queue, row.counts));
        tally.writing += 1;
        Ok(())
    }

    /// The oldest entries from the number `from` on, in order, of queues that `wanted` names:
    /// at least one if there is any, and at most `messages_max` messages and `bytes_max` bytes
    /// unless one alone has more.
    pub async fn oldest(
        &self,
        from: i64,
        limits: (u64, u64),
        wanted: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Oldest, StoreError> {
        self.sqlite.read(move |db| select(db, from, limits, &wanted)).await
    }

    /// Removes entries, for good when this returns.
    pub async fn done(&self, entries: &[Entry]) -> Result<(), StoreError> {
        let numbers: Vec<i64> = entries.iter().map(|entry| entry.number).collect();
        self.sqlite
            .write(move |db| {
                let mut delete = db.prepare_cached("DELETE FROM entries WHERE number = ?1")?;
                for number in numbers {
                    delete.execute([number])?;
                }
                Ok::<_, StoreError>(())
            })
            .await?;
        let mut tally = self.tally();
        entries.iter().for_each(|entry| tally.remove(&entry.queue, entry.counts));
        Ok(())
    }

    /// Counts what is in the file, unless somebody is writing. Nobody may begin meanwhile.
    async fn recount(&self) -> Result<bool, StoreError> {
        if self.tally().writing > 0 {
            return Ok(false);
        }
        let tally = self.sqlite.read(count).await?;
        *self.tally() = tally;
        Ok(true)
    }

    /// Resolves when something was kept since it was last asked.
    async fn written(&self) {
        self.written.notified().await;
    }

    /// Entries that wait, without those of some queues.
    fn entries_beside<T>(&self, queues: &HashMap<Arc<str>, T>) -> u64 {
        let tally = self.tally();
        let of = |queue: &Arc<str>| tally.queues.get(queue).copied().unwrap_or(0);
        tally.all.entries.saturating_sub(queues.keys().map(of).sum())
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.tally().all.entries == 0
    }

    /// Whether something for this queue waits.
    pub fn holds(&self, queue: &str) -> bool {
        self.tally().queues.contains_key(queue)
    }

    /// Messages that wait.
    pub fn messages(&self) -> u64 {
        self.tally().all.messages
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.tally().all.bytes
    }

    /// Closes the file. Later calls get [`StoreError::Closed`].
    pub async fn close(&self) {
        self.sqlite.close().await;
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn add(&mut self, queue: &Arc<str>, counts: Counts) {
        self.all.entries += counts.entries;
        self.all.messages += counts.messages;
        self.all.bytes += counts.bytes;
        *self.queues.entry(queue.clone()).or_default() += counts.entries;
    }

    fn remove(&mut self, queue: &Arc<str>, counts: Counts) {
        self.all.entries = self.all.entries.saturating_sub(counts.entries);
        self.all.messages = self.all.messages.saturating_sub(counts.messages);
        self.all.bytes = self.all.bytes.saturating_sub(counts.bytes);
        if let Some(entries) = self.queues.get_mut(queue) {
            *entries = entries.saturating_sub(counts.entries);
            if *entries == 0 {
                self.queues.remove(queue);
            }
        }
    }
}

/// One row for each queue, in the order in which the push names them first.
fn rows(push: &[NewMessage]) -> Result<Vec<Fresh>, Damaged> {
    let mut queues: Vec<(Arc<str>, Vec<&NewMessage>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for message in push {
        let place = *places.entry(&*message.queue).or_insert(queues.len());
        if place == queues.len() {
            queues.push((message.queue.clone(), Vec::new()));
        }
        queues[place].1.push(message);
    }
    let row = |(queue, messages): (Arc<str>, Vec<&NewMessage>)| {
        let body = entry::encode(&messages)?;
        let bytes = body.len() as u64 + queue.len() as u64 + ENTRY_OVERHEAD;
        let counts = Counts { entries: 1, messages: messages.len() as u64, bytes };
        Ok(Fresh { queue, counts, body })
    };
    queues.into_iter().map(row).collect()
}

fn insert(db: &Connection, rows: &[Fresh]) -> Result<(), StoreError> {
    let mut insert = db.prepare_cached(
        "INSERT INTO entries (queue, messages, size, body) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for Fresh { queue, counts, body } in rows {
        let [messages, bytes] = [counts.messages, counts.bytes].map(u64::cast_signed);
        insert.execute((&**queue, messages, bytes, &**body))?;
    }
    Ok(())
}

fn select(
    db: &Connection,
    from: i64,
    (messages_max, bytes_max): (u64, u64),
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Oldest, StoreError> {
    let mut select = db.prepare_cached(
        "SELECT number, queue, messages, size, body FROM entries
         WHERE number >= ?1 ORDER BY number",
    )?;
    let mut rows = select.query([from])?;
    let mut names: HashMap<String, Arc<str>> = HashMap::new();
    let mut entries: Vec<Entry> = Vec::new();
    let mut sum = Counts::default();
    while let Some(row) = rows.next()? {
        let queue = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        if !wanted(queue) {
            continue;
        }
        let counts = Counts { entries: 1, messages: unsigned(row, 2)?, bytes: unsigned(row, 3)? };
        sum.messages += counts.messages;
        sum.bytes += counts.bytes;
        if !entries.is_empty() && (sum.messages > messages_max || sum.bytes > bytes_max) {
            return Ok(Oldest { entries, more: true });
        }
        let queue = match names.get(queue) {
            Some(name) => name.clone(),
            None => names.entry(queue.to_owned()).or_insert_with(|| Arc::from(queue)).clone(),
        };
        let messages = entry::decode(&queue, Bytes::from(row.get::<_, Vec<u8>>(4)?));
        entries.push(Entry { number: row.get(0)?, queue, messages, counts });
    }
    Ok(Oldest { entries, more: false })
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

fn count(db: &Connection) -> Result<Tally, StoreError> {
    let mut tally = Tally::default();
    let mut select =
        db.prepare("SELECT queue, count(*), sum(messages), sum(size) FROM entries GROUP BY queue")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let queue: String = row.get(0)?;
        let [entries, messages, bytes] = [unsigned(row, 1)?, unsigned(row, 2)?, unsigned(row, 3)?];
        let counts = Counts { entries, messages, bytes };
        tally.add(&Arc::from(queue), counts);
    }
    Ok(tally)
}
