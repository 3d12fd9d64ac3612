//! The table in PostgreSQL: a request is one statement that commits by itself.

use super::Hints;
use deadpool_postgres::Object;
use skep_policy::ownership::{PAGE_ROWS, Reply, Request, TOMBSTONES_MAX};
use skep_store::{Postgres, PostgresClient, Schema, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
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
        let deadline = Instant::now() + limit;
        let question = serde_json::to_string(request)
            .map_err(|error| StoreError::Refused { store: NAME, cause: error.to_string() })?;
        let late = |what: &str| self.not_sent(format!("{what} within {limit:?}"));
        let client = match timeout_at(deadline, self.postgres.client()).await {
            Ok(client) => client?,
            Err(_) => return Err(late("no connection")),
        };
        let statement = match timeout_at(deadline, client.prepare_cached(STEP)).await {
            Ok(Ok(statement)) => statement,
            Ok(Err(error)) => {
                return Err(match StoreError::from(error) {
                    StoreError::Unknown { cause, .. } => self.not_sent(cause),
                    known => known,
                });
            }
            Err(_) => {
                give_up(client);
                return Err(late("no answer before the request"));
            }
        };
        let tombstones_max = i64::try_from(self.tombstones_max).unwrap_or(i64::MAX);
        let wait_ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).clamp(1, DAY_MS);
        let page = i64::try_from(PAGE_ROWS).unwrap_or(i64::MAX);
        let values: [&(dyn ToSql + Sync); 4] = [&question, &tombstones_max, &page, &wait_ms];
        match timeout_at(deadline, client.query_one(&statement, &values)).await {
            Ok(Ok(row)) => {
                let said = row.try_get::<_, String>(0).map_err(|error| nonsense(&error))?;
                serde_json::from_str(&said).map_err(|error| nonsense(&error))
            }
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => {
                give_up(client);
                let cause = format!("{}: no answer within {limit:?}", self.postgres.target());
                Err(StoreError::Unknown { store: NAME, cause })
            }
        }
    }

    pub(super) fn hints(&self, name: &str) -> Hints {
        Hints::from_server(self.postgres.listen(&[CHANNEL]), name)
    }

    /// The request was never sent.
    fn not_sent(&self, cause: String) -> StoreError {
        let target = self.postgres.target().to_owned();
        StoreError::Unreachable { store: NAME, target, cause }
    }
}

const STEP: &str = "CALL skep_ownership_step($1, $2, $3, $4)";

const DAY_MS: i64 = 86_400_000;

/// Closes a connection that others would find busy.
fn give_up(client: PostgresClient) {
    drop(Object::take(client));
}

/// The step commits before the statement ends, so what interrupts the statement may have come
/// between the two.
fn failed(error: tokio_postgres::Error) -> StoreError {
    let interrupted = error
        .code()
        .is_some_and(|code| *code == SqlState::QUERY_CANCELED || code.code().starts_with("53"));
    match StoreError::from(error) {
        StoreError::Refused { store, cause } | StoreError::Busy { store, cause } if interrupted => {
            StoreError::Unknown { store, cause }
        }
        // A driver that cannot read an answer has got one.
        StoreError::Refused { store, cause } if cause.starts_with("error deserializing") => {
            StoreError::Unknown { store, cause }
        }
        other => other,
    }
}

/// There was an answer, so something was done.
fn nonsense(error: &dyn std::error::Error) -> StoreError {
    let cause = format!("the answer makes no sense: {error}");
    StoreError::Unknown { store: NAME, cause }
}
