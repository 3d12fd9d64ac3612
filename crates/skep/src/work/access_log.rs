//! The access log in either database.

use serde::{Deserialize, Serialize};
use skep_store::{Database, StoreError};
use tokio_postgres::types::ToSql;

/// Rows that one step of the retention deletes, so that writers do not wait for it.
const DELETE_AT_ONCE: i64 = 5_000;

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AccessEntry {
    /// Grows with each entry.
    pub id: i64,
    /// When it was answered, in milliseconds since 1970.
    pub at_ms: i64,
    /// The node that answered.
    pub node: String,
    /// Its method.
    pub method: String,
    /// Its path, without what is behind the question mark.
    pub path: String,
    /// The answer's status.
    pub status: i64,
    /// From its head to the head of the answer, in microseconds.
    pub duration_us: i64,
    /// Where it came from.
    pub address: String,
    /// Who asked; `-` if nobody in particular.
    pub actor: String,
    /// The id in the answer's `X-Request-Id`.
    pub request_id: String,
}

/// Which entries to list.
#[derive(Clone, Debug, Default)]
pub struct AccessFilter {
    /// From this status to that one.
    pub status: Option<(i64, i64)>,
    /// The path contains this.
    pub path: Option<String>,
    /// The actor contains this.
    pub actor: Option<String>,
}

/// Writes entries in one transaction.
pub async fn write(db: &Database, entries: Vec<AccessEntry>) -> Result<(), StoreError> {
    match db {
        Database::Sqlite(sqlite) => {
            sqlite
                .write(move |db| {
                    let mut insert = db.prepare_cached(
                        "INSERT INTO skep_access (at, node, method, path, status, duration_us,
                                                  address, actor, request_id)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                    )?;
                    for one in &entries {
                        insert.execute((
                            one.at_ms,
                            &one.node,
                            &one.method,
                            &one.path,
                            one.status,
                            one.duration_us,
                            &one.address,
                            &one.actor,
                            &one.request_id,
                        ))?;
                    }
                    Ok(())
                })
                .await
        }
        Database::Postgres(postgres) => {
            let text = |field: fn(&AccessEntry) -> &String| -> Vec<&str> {
                entries.iter().map(|one| field(one).as_str()).collect()
            };
            let number = |field: fn(&AccessEntry) -> i64| -> Vec<i64> {
                entries.iter().map(field).collect()
            };
            let (at, status) = (number(|one| one.at_ms), number(|one| one.status));
            let duration = number(|one| one.duration_us);
            let (node, method) = (text(|one| &one.node), text(|one| &one.method));
            let (path, address) = (text(|one| &one.path), text(|one| &one.address));
            let (actor, request) = (text(|one| &one.actor), text(|one| &one.request_id));
            let insert = "INSERT INTO skep_access (at, node, method, path, status, duration_us,
                                                   address, actor, request_id)
                          SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[],
                              $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[])";
            let values: [&(dyn ToSql + Sync); 9] =
                [&at, &node, &method, &path, &status, &duration, &address, &actor, &request];
            let client = postgres.client().await?;
            let inserting = async {
                client.execute(insert, &values).await?;
                Ok(())
            };
            postgres.limit(inserting).await
        }
    }
}

/// At most `limit` entries older than `before`, newest first.
pub async fn page(
    db: &Database,
    filter: AccessFilter,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<AccessEntry>, StoreError> {
    let before = before.unwrap_or(i64::MAX);
    let (lowest, highest) = filter.status.unwrap_or((0, i64::MAX));
    let (path, actor) = (filter.path.unwrap_or_default(), filter.actor.unwrap_or_default());
    let limit = i64::from(limit);
    let columns = "id, at, node, method, path, status, duration_us, address, actor, request_id";
    match db {
        Database::Sqlite(sqlite) => {
            let select = format!(
                "SELECT {columns} FROM skep_access
                 WHERE id < ?1 AND status BETWEEN ?2 AND ?3
                   AND (?4 = '' OR instr(path, ?4) > 0) AND (?5 = '' OR instr(actor, ?5) > 0)
                 ORDER BY id DESC LIMIT ?6"
            );
            sqlite
                .read(move |db| {
                    let mut statement = db.prepare_cached(&select)?;
                    let values = (before, lowest, highest, path, actor, limit);
                    let rows = statement.query_map(values, |row| {
                        Ok(AccessEntry {
                            id: row.get(0)?,
                            at_ms: row.get(1)?,
                            node: row.get(2)?,
                            method: row.get(3)?,
                            path: row.get(4)?,
                            status: row.get(5)?,
                            duration_us: row.get(6)?,
                            address: row.get(7)?,
                            actor: row.get(8)?,
                            request_id: row.get(9)?,
                        })
                    })?;
                    Ok(rows.collect::<Result<_, _>>()?)
                })
                .await
        }
        Database::Postgres(postgres) => {
            let select = format!(
                "SELECT {columns} FROM skep_access
                 WHERE id < $1 AND status BETWEEN $2 AND $3
                   AND ($4 = '' OR position($4 in path) > 0)
                   AND ($5 = '' OR position($5 in actor) > 0)
                 ORDER BY id DESC LIMIT $6"
            );
            let values: [&(dyn ToSql + Sync); 6] =
                [&before, &lowest, &highest, &path, &actor, &limit];
            let client = postgres.client().await?;
            let asking = async { Ok::<_, StoreError>(client.query(&select, &values).await?) };
            let rows = postgres.limit(asking).await?;
            let entry = |row: &tokio_postgres::Row| AccessEntry {
                id: row.get(0),
                at_ms: row.get(1),
                node: row.get(2),
                method: row.get(3),
                path: row.get(4),
                status: row.get(5),
                duration_us: row.get(6),
                address: row.get(7),
                actor: row.get(8),
                request_id: row.get(9),
            };
            Ok(rows.iter().map(entry).collect())
        }
    }
}

/// Deletes some of the entries from before `at_ms`; `true` if there may be more.
pub async fn forget_before(db: &Database, at_ms: i64) -> Result<bool, StoreError> {
    let delete = |parameters: [&str; 2]| {
        let [at, limit] = parameters;
        format!(
            "DELETE FROM skep_access WHERE id IN (
                 SELECT id FROM skep_access WHERE at < {at} ORDER BY at LIMIT {limit})"
        )
    };
    let deleted = match db {
        Database::Sqlite(sqlite) => {
            let delete = delete(["?1", "?2"]);
            let gone = sqlite.write(move |db| {
                Ok::<_, StoreError>(db.execute(&delete, (at_ms, DELETE_AT_ONCE))?)
            });
            i64::try_from(gone.await?).unwrap_or(i64::MAX)
        }
        Database::Postgres(postgres) => {
            let delete = delete(["$1", "$2"]);
            let client = postgres.client().await?;
            let deleting = async {
                Ok::<_, StoreError>(client.execute(&delete, &[&at_ms, &DELETE_AT_ONCE]).await?)
            };
            i64::try_from(postgres.limit(deleting).await?).unwrap_or(i64::MAX)
        }
    };
    Ok(deleted == DELETE_AT_ONCE)
}
