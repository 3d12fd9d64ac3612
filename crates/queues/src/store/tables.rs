//! What the tables of queues cost the database, for people who look after it.

use super::QueueStore;
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

/// A table, as the database last counted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// Its name.
    pub name: Arc<str>,
    /// Bytes of it on disk, with its indexes and what is kept beside it.
    pub bytes: u64,
    /// Bytes of its indexes.
    pub index_bytes: u64,
    /// Rows, about.
    pub rows: u64,
    /// Rows that nobody sees any more and whose room is not free yet, about.
    pub dead_rows: u64,
    /// When that room was last made free.
    pub vacuumed_at: Option<Time>,
}

/// What the queues cost the database.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseStats {
    /// The tables of queues, the largest first.
    pub tables: Vec<TableStats>,
    /// Bytes of the whole database.
    pub bytes: u64,
    /// Of the blocks that were asked for, the share that was in memory, since the database last
    /// forgot what it counted; `None` if none was asked for.
    pub cache_hits: Option<f64>,
    /// Connections to this database, this node's and others.
    pub connections: u64,
    /// Connections that the server takes.
    pub connections_max: u64,
    /// Transactions that wait for a lock now.
    pub waiting_for_locks: u64,
}

impl QueueStore {
    /// What the queues cost the database; `None` of the embedded one, which does not count it.
    pub async fn database_stats(&self) -> Result<Option<DatabaseStats>, StoreError> {
        match self {
            QueueStore::Sqlite(_) => Ok(None),
            QueueStore::Postgres(store) => store.database_stats().await.map(Some),
        }
    }
}
