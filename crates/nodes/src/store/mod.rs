//! Where the ownership table lives.
//!
//! ```text
//!                        ┌─ MemoryTable    the table itself, behind a lock
//!   TableStore::ask ─────┼─ RedisTable     one script
//!                        └─ PostgresTable  one statement
//! ```
//!
//! Each gives exactly the answers of [`skep_policy::ownership::Table`], counters included.

mod hints;
mod memory;
mod postgres;
mod redis;

pub use hints::Hints;
pub use memory::MemoryTable;
pub use postgres::{PostgresTable, SCHEMA};
pub use redis::RedisTable;

use skep_policy::ownership::{Ask, BATCH_MAX, Reply, Request};
use skep_store::StoreError;
use std::time::Duration;

/// Where the ownership table lives. Clones share it.
#[derive(Clone)]
pub enum TableStore {
    /// In this process, for nodes that live in it.
    Memory(MemoryTable),
    /// In Redis.
    Redis(RedisTable),
    /// In PostgreSQL.
    Postgres(PostgresTable),
}

impl TableStore {
    /// Asks the table, in one atomic step that takes `limit` at most. An error is an unknown
    /// outcome unless [`StoreError::outcome`] says that nothing was done.
    pub async fn ask(&self, request: &Request, limit: Duration) -> Result<Reply, StoreError> {
        check(request).map_err(|cause| StoreError::Refused { store: self.name(), cause })?;
        match self {
            TableStore::Memory(table) => Ok(table.ask(request)),
            TableStore::Redis(table) => table.ask(request, limit).await,
            TableStore::Postgres(table) => table.ask(request, limit).await,
        }
    }

    /// Says when the node with this name should look at the table. A hint may be lost or come
    /// without need; it saves waiting for the next tick and nothing rests on it. Must be called
    /// inside a tokio runtime.
    pub fn hints(&self, name: &str) -> Hints {
        match self {
            TableStore::Memory(table) => table.hints(name),
            TableStore::Redis(table) => table.hints(name),
            TableStore::Postgres(table) => table.hints(name),
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

    /// How often the table was asked through this handle and its clones.
    pub fn calls(&self) -> u64 {
        match self {
            TableStore::Memory(table) => table.calls(),
            TableStore::Redis(table) => table.calls(),
            TableStore::Postgres(table) => table.calls(),
        }
    }
}

/// Redis counts in floating point, which is exact below this. At a million steps a second it would
/// be reached in 285 years, so a number above it is a mistake and must not get into the table.
const NUMBER_MAX: u64 = 1 << 53;

/// Refuses what no store could do exactly, so that all refuse it.
fn check(request: &Request) -> Result<(), String> {
    let seen = &request.seen;
    let (items, since, floor) = match &request.ask {
        Ask::Claim(_, keys) | Ask::Forget(_, keys) => (keys.len(), 0, 0),
        Ask::Reclaim(_, held) => {
            let newest = held.iter().map(|(_, token, _)| token.epoch).max().unwrap_or(0);
            (held.len(), newest, 0)
        }
        Ask::Handoff(_, moves) => (moves.len(), 0, 0),
        Ask::Release(_, keys) => (keys.len(), 0, 0),
        Ask::Tick { since, floor, .. } => (0, *since, *floor),
        Ask::Join { .. } | Ask::Expire { .. } | Ask::EndGrace(_) | Ask::Bye(_) => (0, 0, 0),
    };
    if items > BATCH_MAX {
        return Err(format!("{items} keys in one request; {BATCH_MAX} are allowed"));
    }
    let highest = seen.epoch.number.max(seen.counter).max(since).max(floor).max(request.least);
    if highest >= NUMBER_MAX {
        return Err(format!("{highest} is more than any table has counted to"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::ownership::{Caller, Epoch, Seen};

    fn claim(count: usize, counter: u64) -> Request {
        let caller = Caller { name: "n".into(), session: 1, seq: 1 };
        let keys = (0..count).map(|number| format!("k{number}").into()).collect();
        let seen = Seen { epoch: Epoch { number: 1, tag: u64::MAX }, counter };
        Request { seen, nonce: u64::MAX, least: 0, ask: Ask::Claim(caller, keys) }
    }

    #[test]
    fn what_no_store_could_do_exactly_is_refused() {
        assert_eq!(check(&claim(BATCH_MAX, NUMBER_MAX - 1)), Ok(()));
        assert!(check(&claim(BATCH_MAX + 1, 0)).is_err());
        assert!(check(&claim(1, NUMBER_MAX)).is_err());
    }
}
