//! The table in PostgreSQL: a request is one statement that commits by itself.

use super::Hints;
use skep_policy::ownership::{PAGE_ROWS, Reply, Request, TOMBSTONES_MAX};
use skep_store::{Postgres, Schema, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_postgres::types::ToSql;

pub(super) const NAME: &str = "postgres";

/// The table's migrations.
pub const SCHEMA: Schema = skep_store::schema!("nodes", 1 "0001_nodes");

/// Where hints are heard. A database is one installation, so the name needs nothing more.
const CHANNEL: &str = "skep_nodes";

/// The table in PostgreSQL. Clones share its pool.
#[derive(Clone)]
pub struct PostgresTable {
    postgres: Postgres,
    tombstones_max: usize,
    calls: Arc<AtomicU64>,
}

impl PostgresTable {
    /// The table of a database that was migrated with [`SCHEMA`].
    ///
    /// A call waits for a connection like any other, so a pool that others can use up should not be
    /// the one a node's life rests on.
    pub fn new(postgres: &Postgres) -> Self {
        PostgresTable {
            postgres: postgres.clone(),
            tombstones_max: TOMBSTONES_MAX,
            calls: Arc::default(),
        }
    }

    /// Remembers fewer forgotten keys, for tests.
    #[must_use]
    pub fn with_tombstones_max(mut self, most: usize) -> Self {
        self.tombstones_max = most;
        self
    }

    /// How often it was asked.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) async fn ask(
        &self,
        request: &Request,
        limit: Duration,
    ) -> Result<Reply, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let question = serde_json::to_string(request)
            .map_err(|error| StoreError::Refused { store: NAME, cause: error.to_string() })?;
        let tombstones_max = i64::try_from(self.tombstones_max).unwrap_or(i64::MAX);
        let wait_ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).clamp(1, DAY_MS);
        let page = i64::try_from(PAGE_ROWS).unwrap_or(i64::MAX);
        let values: [&(dyn ToSql + Sync); 4] = [&question, &tombstones_max, &page, &wait_ms];
        let row = self.postgres.step(STEP, &values, limit).await?;
        let said = row.try_get::<_, String>(0).map_err(|error| nonsense(&error))?;
        serde_json::from_str(&said).map_err(|error| nonsense(&error))
    }

    pub(super) fn hints(&self, name: &str) -> Hints {
        Hints::from_server(self.postgres.listen(&[CHANNEL]), name)
    }
}

const STEP: &str = "CALL skep_ownership_step($1, $2, $3, $4)";

const DAY_MS: i64 = 86_400_000;

/// There was an answer, so something was done.
fn nonsense(error: &dyn std::error::Error) -> StoreError {
    let cause = format!("the answer makes no sense: {error}");
    StoreError::Unknown { store: NAME, cause }
}
