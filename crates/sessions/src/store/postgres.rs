//! The table in PostgreSQL: a question is one statement that commits by itself.

use super::Hints;
use super::hints::read;
use deadpool_postgres::Object;
use skep_policy::sessions::{Ask, Reply};
use skep_store::{Postgres, PostgresClient, Schema, StoreError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
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
        let deadline = Instant::now() + self.limit;
        let refused = |cause| StoreError::Refused { store: NAME, cause };
        let question = serde_json::to_string(ask).map_err(|error| refused(error.to_string()))?;
        let given = now_ms.map(i64::try_from).transpose();
        let given = given.map_err(|error| refused(format!("now_ms: {error}")))?;
        let late = |what: &str| self.not_sent(format!("{what} within {:?}", self.limit));
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
                return Err(late("no answer before the question"));
            }
        };
        let wait_ms = i64::try_from(self.limit.as_millis()).unwrap_or(i64::MAX).clamp(1, DAY_MS);
        let values: [&(dyn ToSql + Sync); 4] = [&question, &"", &given, &wait_ms];
        match timeout_at(deadline, client.query_one(&statement, &values)).await {
            Ok(Ok(row)) => reply(&row),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => {
                give_up(client);
                let target = self.postgres.target();
                let cause = format!("{target}: no answer within {:?}", self.limit);
                Err(StoreError::Unknown { store: NAME, cause })
            }
        }
    }

    pub(super) fn hints(&self) -> Hints {
        Hints::from_server(self.postgres.listen(&[CHANNEL]))
    }

    /// The question was never sent.
    fn not_sent(&self, cause: String) -> StoreError {
        let target = self.postgres.target().to_owned();
        StoreError::Unreachable { store: NAME, target, cause }
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
fn nonsense(what: &str) -> StoreError {
    StoreError::Unknown { store: NAME, cause: format!("the answer makes no sense: {what}") }
}
