//! Where the table of sessions lives.
//!
//! ```text
//!                        ┌─ MemoryTable    the table itself, behind a lock
//!   TableStore::ask ─────┼─ RedisTable     one script
//!                        └─ PostgresTable  one procedure
//! ```
//!
//! Each gives exactly the answers of [`skep_policy::sessions::Fleet`], and the same hints.

mod memory;

pub use memory::MemoryTable;

use skep_policy::sessions::{Answer, Ask, Hint};
use skep_store::StoreError;
use tokio::sync::broadcast;

/// Hints that wait for a slow listener at most; one that is further behind looks at everything.
pub(crate) const HINTS_MAX: usize = 4_096;

/// What a listener hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// This concerns somebody.
    Hint(Hint),
    /// Something may have been missed: look at everything.
    Missed,
}

/// Where the table of sessions lives. Clones share it.
#[derive(Clone)]
pub enum TableStore {
    /// In this process, which is then the only one.
    Memory(MemoryTable),
}

impl TableStore {
    /// Asks the table, in one atomic step. An error is an unknown outcome unless
    /// [`StoreError::outcome`] says that nothing was done.
    pub async fn ask(&self, ask: &Ask) -> Result<Answer, StoreError> {
        match self {
            TableStore::Memory(table) => Ok(table.ask(ask)),
        }
    }

    /// Whom steps concern, those of other nodes too. A hint may be lost or come without need; it
    /// saves waiting for the next beat and nothing rests on it. Must be called inside a tokio
    /// runtime.
    pub fn hints(&self) -> Hints {
        match self {
            TableStore::Memory(table) => table.hints(),
        }
    }

    /// `memory`, `redis` or `postgres`.
    pub fn name(&self) -> &'static str {
        match self {
            TableStore::Memory(_) => memory::NAME,
        }
    }
}

/// Says whom steps concern.
pub struct Hints {
    source: broadcast::Receiver<Hint>,
}

impl Hints {
    /// Waits for the next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Heard {
        match self.source.recv().await {
            Ok(hint) => Heard::Hint(hint),
            Err(broadcast::error::RecvError::Lagged(_)) => Heard::Missed,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
