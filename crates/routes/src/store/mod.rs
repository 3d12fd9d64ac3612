//! What is kept of routes, in either database.
//!
//! ```text
//!   routes    list, get, put, delete, revision      routes made by the API
//!   minutes   add_minutes, minutes, forget_before   what went over each route, minute by minute
//!   events    write_events, events, forget_events_before
//! ```
//!
//! Every function is one atomic step, and every one that writes can be repeated by whoever got no
//! answer: a route put again is unchanged, a minute replaces itself, an event has a key. What a
//! step decides about a route is decided by the same code for both databases, between reading under
//! a lock and writing.

mod events;
mod minutes;
mod routes;

pub use events::{EVENTS_MAX, Event, EventFilter, NewEvent};
pub use minutes::{MinuteFilter, MinuteKey, MinuteRow};
pub use routes::{Deleted, Listing, Put, StoredRoute};

use crate::spec::ROUTES_MAX;
use rusqlite::{Connection, Params};
use skep_store::{Database, Postgres, Schema, Sqlite, StoreError};
use tokio_postgres::types::ToSql;

/// The tables.
pub const SCHEMA: Schema = skep_store::schema!("routes", 1 "0001_routes");

/// PostgreSQL says the new revision here (`NOTIFY`) with each change of a route.
pub const CHANNEL: &str = "skep_routes";

/// Rows that one call writes or reads at most.
pub const ROWS_MAX: usize = 5_000;

/// Rows that one call forgets at most.
const FORGET_MAX: i64 = 5_000;

/// Longer texts of events, and longer names of whoever changed a route, are cut.
const TEXT_CHARS_MAX: usize = 500;

/// What is kept of routes. Clones share the database.
#[derive(Clone)]
pub struct RouteStore {
    db: Database,
    routes_max: usize,
}

impl RouteStore {
    /// Over a database that has the tables of [`SCHEMA`].
    pub fn new(db: Database) -> Self {
        RouteStore { db, routes_max: ROUTES_MAX }
    }

    /// The same with another limit of routes.
    pub fn with_routes_max(self, routes_max: usize) -> Self {
        RouteStore { routes_max, ..self }
    }

    /// Runs a query that reads.
    async fn ask<T: Send + 'static>(
        &self,
        sql: &'static str,
        question: impl Question,
        of_sqlite: fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
        of_postgres: fn(&tokio_postgres::Row) -> T,
    ) -> Result<Vec<T>, StoreError> {
        match &self.db {
            Database::Sqlite(store) => {
                let work = move |db: &Connection| {
                    let mut statement = db.prepare_cached(sql)?;
                    let rows = statement.query_map(question.of_sqlite(), of_sqlite)?;
                    Ok(rows.collect::<Result<_, _>>()?)
                };
                store.read(work).await
            }
            Database::Postgres(store) => {
                let client = store.client().await?;
                let asking = async {
                    let statement = client.prepare_cached(sql).await?;
                    Ok(client.query(&statement, &question.of_postgres()).await?)
                };
                let rows = store.limit::<_, StoreError>(asking).await?;
                Ok(rows.iter().map(of_postgres).collect())
            }
        }
    }
}

/// The values of a query, in the order in which it first names them.
trait Question: Send + Sync + 'static {
    fn of_sqlite(&self) -> impl Params;
    fn of_postgres(&self) -> Vec<&(dyn ToSql + Sync)>;
}

/// Texts first, then numbers.
struct Asked<const TEXTS: usize, const NUMBERS: usize>([String; TEXTS], [i64; NUMBERS]);

impl<const TEXTS: usize, const NUMBERS: usize> Question for Asked<TEXTS, NUMBERS> {
    fn of_sqlite(&self) -> impl Params {
        let texts = self.0.iter().map(|text| text as &dyn rusqlite::ToSql);
        let numbers = self.1.iter().map(|number| number as &dyn rusqlite::ToSql);
        rusqlite::params_from_iter(texts.chain(numbers))
    }

    fn of_postgres(&self) -> Vec<&(dyn ToSql + Sync)> {
        let texts = self.0.iter().map(|text| text as &(dyn ToSql + Sync));
        texts.chain(self.1.iter().map(|number| number as &(dyn ToSql + Sync))).collect()
    }
}

/// Changes many rows by one statement, which commits by itself; how many rows it was.
async fn execute(
    store: &Postgres,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<u64, StoreError> {
    let client = store.client().await?;
    let work = async {
        let statement = client.prepare_cached(sql).await?;
        Ok(client.execute(&statement, values).await?)
    };
    store.limit(work).await
}

/// The same in the embedded database.
async fn execute_embedded(
    store: &Sqlite,
    sql: &'static str,
    values: impl Params + Send + 'static,
) -> Result<u64, StoreError> {
    let work = move |db: &Connection| Ok(db.prepare_cached(sql)?.execute(values)? as u64);
    store.write(work).await
}

/// Refuses more rows than one call may write.
fn check_rows(db: &Database, rows: usize) -> Result<(), StoreError> {
    if rows <= ROWS_MAX {
        return Ok(());
    }
    let cause = format!("{rows} rows in one call; give at most {ROWS_MAX}");
    Err(StoreError::Refused { store: db.name(), cause })
}

/// As many rows as somebody wants to read, within the limit.
fn page(limit: usize) -> i64 {
    signed(limit.clamp(1, ROWS_MAX) as u64)
}

/// PostgreSQL keeps no text with a zero in it, and nobody reads a long one.
fn clean(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

/// The databases count with a sign.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests;
