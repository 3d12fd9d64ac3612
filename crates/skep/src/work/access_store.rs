//! The access log in either database: writing and forgetting.

use super::access_log::{AccessEntry, Noted};
use super::access_query::{DISORDER_MAX_MS, Way, crossing, nearest};
use rusqlite::Statement;
use skep_store::{Database, StoreError};
use std::borrow::Cow;
use tokio_postgres::types::ToSql;

/// Ids that one step of the retention goes through, so that writers do not wait for it.
const DELETE_AT_ONCE: i64 = 5_000;

/// Rows of one statement of SQLite. Measured: one at a time takes half as long again for each, and
/// fifty at a time a quarter.
const ROWS_AT_ONCE: usize = 10;

/// The columns of an entry that is written, in the order in which they are bound.
const WRITTEN: &str = "at, node, method, path, status, duration_us, address, actor, request_id, \
                       route, host, upstream, bytes_in, bytes_out, tries, protocol, error";
const WRITTEN_COUNT: usize = 17;

/// The columns of an entry that is read.
pub const COLUMNS: &str = "id, at, node, method, path, status, duration_us, address, actor, \
                           request_id, route, host, upstream, bytes_in, bytes_out, tries, \
                           protocol, error";

/// Writes entries in one transaction.
pub async fn write(db: &Database, entries: Vec<Noted>) -> Result<(), StoreError> {
    if entries.is_empty() {
        return Ok(());
    }
    match db {
        Database::Sqlite(sqlite) => {
            let writing = sqlite.write(move |db| {
                let chunks = entries.chunks_exact(ROWS_AT_ONCE);
                let rest = chunks.remainder();
                let mut many = db.prepare_cached(&insertion(ROWS_AT_ONCE))?;
                insert(&mut many, chunks)?;
                let mut one = db.prepare_cached(&insertion(1))?;
                insert(&mut one, rest.chunks(1))
            });
            writing.await
        }
        Database::Postgres(postgres) => write_postgres(postgres, &entries).await,
    }
}

fn insertion(rows: usize) -> String {
    let row = format!("({})", vec!["?"; WRITTEN_COUNT].join(", "));
    format!("INSERT INTO skep_access ({WRITTEN}) VALUES {}", vec![row; rows].join(", "))
}

fn insert<'a>(
    statement: &mut Statement<'_>,
    chunks: impl Iterator<Item = &'a [Noted]>,
) -> Result<(), StoreError> {
    for chunk in chunks {
        for (number, entry) in chunk.iter().enumerate() {
            bind(statement, number * WRITTEN_COUNT, entry)?;
        }
        statement.raw_execute()?;
    }
    Ok(())
}

fn bind(statement: &mut Statement<'_>, before: usize, one: &AccessEntry) -> rusqlite::Result<()> {
    let mut place = before;
    let mut next = || {
        place += 1;
        place
    };
    statement.raw_bind_parameter(next(), one.at_ms)?;
    for text in [&*one.node, &*one.method, &*one.path] {
        statement.raw_bind_parameter(next(), text)?;
    }
    for number in [one.status, one.duration_us] {
        statement.raw_bind_parameter(next(), number)?;
    }
    for text in
        [&*one.address, &*one.actor, &*one.request_id, &*one.route, &*one.host, &*one.upstream]
    {
        statement.raw_bind_parameter(next(), text)?;
    }
    for number in [one.bytes_in, one.bytes_out, one.tries] {
        statement.raw_bind_parameter(next(), number)?;
    }
    for text in [&*one.protocol, &*one.error] {
        statement.raw_bind_parameter(next(), text)?;
    }
    Ok(())
}

async fn write_postgres(
    postgres: &skep_store::Postgres,
    entries: &[Noted],
) -> Result<(), StoreError> {
    let text = |field: fn(&AccessEntry) -> &str| -> Vec<&str> {
        entries.iter().map(|one| field(one)).collect()
    };
    let number = |field: fn(&AccessEntry) -> i64| -> Vec<i64> {
        entries.iter().map(|one| field(one)).collect()
    };
    let (at, status) = (number(|one| one.at_ms), number(|one| one.status));
    let (duration, tries) = (number(|one| one.duration_us), number(|one| one.tries));
    let (bytes_in, bytes_out) = (number(|one| one.bytes_in), number(|one| one.bytes_out));
    let (node, method) = (text(|one| &one.node), text(|one| &one.method));
    let (path, address) = (text(|one| &one.path), text(|one| &one.address));
    let (actor, request) = (text(|one| &one.actor), text(|one| &one.request_id));
    let (route, host) = (text(|one| &one.route), text(|one| &one.host));
    let (upstream, protocol) = (text(|one| &one.upstream), text(|one| &one.protocol));
    let error = text(|one| &one.error);
    let insert = format!(
        "INSERT INTO skep_access ({WRITTEN})
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[],
             $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
             $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[], $17::text[])"
    );
    let values: [&(dyn ToSql + Sync); WRITTEN_COUNT] = [
        &at, &node, &method, &path, &status, &duration, &address, &actor, &request, &route, &host,
        &upstream, &bytes_in, &bytes_out, &tries, &protocol, &error,
    ];
    let client = postgres.client().await?;
    let inserting = async {
        client.execute(&insert, &values).await?;
        Ok(())
    };
    postgres.limit(inserting).await
}

/// An entry from a row of [`COLUMNS`].
pub fn of_sqlite(row: &rusqlite::Row<'_>) -> rusqlite::Result<AccessEntry> {
    let text = |column: usize| row.get::<_, String>(column);
    Ok(AccessEntry {
        id: row.get(0)?,
        at_ms: row.get(1)?,
        node: text(2)?.into(),
        method: Cow::Owned(text(3)?),
        path: text(4)?,
        status: row.get(5)?,
        duration_us: row.get(6)?,
        address: text(7)?,
        actor: text(8)?,
        request_id: text(9)?,
        route: text(10)?.into(),
        host: text(11)?,
        upstream: text(12)?.into(),
        bytes_in: row.get(13)?,
        bytes_out: row.get(14)?,
        tries: row.get(15)?,
        protocol: Cow::Owned(text(16)?),
        error: Cow::Owned(text(17)?),
    })
}

/// The same from the other database.
pub fn of_postgres(row: &tokio_postgres::Row) -> AccessEntry {
    let text = |column: usize| row.get::<_, String>(column);
    AccessEntry {
        id: row.get(0),
        at_ms: row.get(1),
        node: text(2).into(),
        method: Cow::Owned(text(3)),
        path: text(4),
        status: row.get(5),
        duration_us: row.get(6),
        address: text(7),
        actor: text(8),
        request_id: text(9),
        route: text(10).into(),
        host: text(11),
        upstream: text(12).into(),
        bytes_in: row.get(13),
        bytes_out: row.get(14),
        tries: row.get(15),
        protocol: Cow::Owned(text(16)),
        error: Cow::Owned(text(17)),
    }
}

/// Deletes the entries from before `at_ms`, some at a time, for as long as `goes_on` says so;
/// `false` if it was stopped before the end.
pub async fn forget_before(
    db: &Database,
    at_ms: i64,
    goes_on: impl Fn() -> bool,
) -> Result<bool, StoreError> {
    let end = crossing(db, at_ms.saturating_add(DISORDER_MAX_MS)).await?;
    let mut next = i64::MIN;
    while let Some((first, _)) = nearest(db, Way::Up, next).await? {
        if first >= end {
            break;
        }
        if !goes_on() {
            return Ok(false);
        }
        let last = first.saturating_add(DELETE_AT_ONCE - 1).min(end - 1);
        delete(db, (first, last), at_ms).await?;
        next = last + 1;
    }
    Ok(true)
}

async fn delete(db: &Database, (first, last): (i64, i64), at_ms: i64) -> Result<(), StoreError> {
    match db {
        Database::Sqlite(sqlite) => {
            let deleting = sqlite.write(move |db| {
                let delete = "DELETE FROM skep_access WHERE id BETWEEN ?1 AND ?2 AND at < ?3";
                db.prepare_cached(delete)?.execute((first, last, at_ms))?;
                Ok(())
            });
            deleting.await
        }
        Database::Postgres(postgres) => {
            let delete = "DELETE FROM skep_access WHERE id BETWEEN $1 AND $2 AND at < $3";
            let client = postgres.client().await?;
            let deleting = async {
                client.execute(delete, &[&first, &last, &at_ms]).await?;
                Ok(())
            };
            postgres.limit(deleting).await
        }
    }
}
