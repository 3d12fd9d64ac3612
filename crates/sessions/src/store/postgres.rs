//! The table in PostgreSQL: a question is one statement that commits by itself.

use super::Hints;
use super::hints::read;
use skep_policy::sessions::{Ask, Reply};
use skep_store::{Postgres, Schema, StoreError};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(super) const NAME: &str = "postgres";

/// The table's migrations.
pub const SCHEMA: Schema = skep_store::schema!(
    "sessions",
    1 "0001_tables",
    2 "0002_workers",
    3 "0003_line",
    4 "0004_questions",
    5 "0005_step",
);

/// Where hints are heard. A database is one installation, so the name needs nothing more.
const CHANNEL: &str = "skep_sessions";

/// How long a question may take before its outcome is unknown.
const LIMIT_DEFAULT: Duration = Duration::from_secs(5);

/// The table in PostgreSQL. Clones share its pool.
#[derive(Clone)]
pub struct PostgresTable {
    postgres: Postgres,
    limit: Duration,
}

impl PostgresTable {
    /// The table of a database that was migrated with [`SCHEMA`].
    ///
    /// A call waits for a connection like any other, so a pool that others can use up should not be
    /// the one that sessions rest on.
    pub fn new(postgres: &Postgres) -> Self {
        PostgresTable { postgres: postgres.clone(), limit: LIMIT_DEFAULT }
    }

    /// Gives a question this long instead of five seconds. After that it is void on the server too,
    /// unless it has begun.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub(super) async fn step(&self, ask: &Ask, now_ms: Option<u64>) -> Result<Reply, StoreError> {
        let refused = |cause| StoreError::Refused { store: NAME, cause };
        let question = serde_json::to_string(ask).map_err(|error| refused(error.to_string()))?;
        let given = now_ms.map(i64::try_from).transpose();
        let given = given.map_err(|error| refused(format!("now_ms: {error}")))?;
        let wait_ms = i64::try_from(self.limit.as_millis()).unwrap_or(i64::MAX).clamp(1, DAY_MS);
        let values: [&(dyn ToSql + Sync); 4] = [&question, &"", &given, &wait_ms];
        reply(&self.postgres.step(STEP, &values, self.limit).await?)
    }

    pub(super) fn hints(&self) -> Hints {
        Hints::from_server(self.postgres.listen(&[CHANNEL]))
    }
}

const STEP: &str = "CALL skep_session_step($1, $2, $3, $4)";

const DAY_MS: i64 = 86_400_000;

fn reply(row: &Row) -> Result<Reply, StoreError> {
    let said: &str = row.try_get(0).map_err(|error| nonsense(&error.to_string()))?;
    let hints: &str = row.try_get(1).map_err(|error| nonsense(&error.to_string()))?;
    let answer = serde_json::from_str(said).map_err(|error| nonsense(&error.to_string()))?;
    let hints = read(hints).ok_or_else(|| nonsense(hints))?;
    Ok(Reply { answer, hints })
}

/// There was an answer, so something was done.
fn nonsense(what: &str) -> StoreError {
    StoreError::Unknown { store: NAME, cause: format!("the answer makes no sense: {what}") }
}
