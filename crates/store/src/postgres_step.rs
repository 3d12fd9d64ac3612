//! A step: one statement that commits by itself and answers in one row.

use crate::StoreError;
use crate::postgres::{NAME, Postgres, PostgresClient};
use deadpool_postgres::Object;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

impl Postgres {
    /// Takes a step that takes `limit` at most, the wait for a connection included. An error is an
    /// unknown outcome unless [`StoreError::outcome`] says that nothing was done.
    pub async fn step(
        &self,
        statement: &str,
        values: &[&(dyn ToSql + Sync)],
        limit: Duration,
    ) -> Result<Row, StoreError> {
        let deadline = Instant::now() + limit;
        let late = |what: &str| self.not_sent(format!("{what} within {limit:?}"));
        let client = match timeout_at(deadline, self.client()).await {
            Ok(client) => client?,
            Err(_) => return Err(late("no connection")),
        };
        let statement = match timeout_at(deadline, client.prepare_cached(statement)).await {
            Ok(Ok(statement)) => statement,
            Ok(Err(error)) => {
                return Err(match StoreError::from(error) {
                    StoreError::Unknown { cause, .. } => self.not_sent(cause),
                    known => known,
                });
            }
            Err(_) => {
                give_up(client);
                return Err(late("no answer before the step"));
            }
        };
        match timeout_at(deadline, client.query_one(&statement, values)).await {
            Ok(row) => row.map_err(failed),
            Err(_) => {
                give_up(client);
                let cause = format!("{}: no answer within {limit:?}", self.target());
                Err(StoreError::Unknown { store: NAME, cause })
            }
        }
    }

    /// The step was never sent.
    fn not_sent(&self, cause: String) -> StoreError {
        StoreError::Unreachable { store: NAME, target: self.target().to_owned(), cause }
    }
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
