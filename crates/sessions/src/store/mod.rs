//! Where the table of sessions lives.
//!
//! ```text
//!                        ┌─ MemoryTable    the table itself, behind a lock
//!   TableStore::ask ─────┼─ RedisTable     one script
//!                        └─ PostgresTable  one procedure
//! ```
//!
//! Each gives exactly the answers of [`skep_policy::sessions::Fleet`], and the same hints.

mod check;
mod hints;
mod memory;
mod postgres;
mod redis;

pub use hints::{Heard, Hints};
pub use memory::MemoryTable;
pub use postgres::{PostgresTable, SCHEMA};
pub use redis::RedisTable;

use skep_policy::sessions::{Answer, Ask, Reply};
use skep_store::StoreError;

/// Where the table of sessions lives. Clones share it.
#[derive(Clone)]
pub enum TableStore {
    /// In this process, which is then the only one.
    Memory(MemoryTable),
    /// In Redis.
    Redis(RedisTable),
    /// In PostgreSQL.
    Postgres(PostgresTable),
}

impl TableStore {
    /// Asks the table, in one atomic step. An error is an unknown outcome unless
    /// [`StoreError::outcome`] says that nothing was done.
    pub async fn ask(&self, ask: &Ask) -> Result<Answer, StoreError> {
        Ok(self.step(ask, None).await?.answer)
    }

    /// As [`TableStore::ask`], with the hints that went to listeners. `now_ms` takes the place of
    /// the store's own clock, for tests that compare stores; the table's time never goes back.
    pub async fn step(&self, ask: &Ask, now_ms: Option<u64>) -> Result<Reply, StoreError> {
        check::check(ask).map_err(|cause| StoreError::Refused { store: self.name(), cause })?;
        match self {
            TableStore::Memory(table) => Ok(table.step(ask, now_ms)),
            TableStore::Redis(table) => table.step(ask, now_ms).await,
            TableStore::Postgres(table) => table.step(ask, now_ms).await,
        }
    }

    /// Whom steps concern, those of other nodes too. A hint may be lost or come without need; it
    /// saves waiting for the next beat and nothing rests on it. Must be called inside a tokio
    /// runtime.
    pub fn hints(&self) -> Hints {
        match self {
            TableStore::Memory(table) => table.hints(),
            TableStore::Redis(table) => table.hints(),
            TableStore::Postgres(table) => table.hints(),
        }
    }

    /// `memory`, `redis` or `postgres`.
    pub fn name(&self) -> &'static str {
        match self {
            TableStore::Memory(_) => memory::NAME,
            TableStore::Redis(_) => redis::NAME,
            TableStore::Postgres(_) => postgres::NAME,
        }
    }
}
