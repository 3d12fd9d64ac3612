//! Keys, the audit log and the installation's secrets, in either database.

use super::key::{KeyRecord, Scopes, random_hex};
use serde::{Deserialize, Serialize};
use skep_policy::explain::Kind;
use skep_store::{Database, Schema, StoreError};
use tokio_postgres::types::ToSql;

/// The tables.
pub const SCHEMA: Schema = skep_store::schema!("access", 1 "0001_access");

/// The audit log keeps so many entries; the oldest go first. Logins are counted apart, so that
/// nobody can log in until nothing else is left.
const AUDIT_ENTRIES_MAX: i64 = 100_000;
const AUDIT_LOGINS_MAX: i64 = 10_000;

/// Something that somebody did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditEntry {
    /// Grows with each entry.
    pub id: i64,
    /// What `skep explain` takes.
    #[schema(example = "audit:17")]
    pub explain: String,
    /// When, in UTC.
    #[schema(example = "2026-11-15T04:00:00Z")]
    pub at: String,
    /// Who: a key's name and id, or who else may do such things.
    pub actor: String,
    /// From where.
    pub address: String,
    /// What, as in `key.create`.
    pub action: String,
    /// To what.
    pub target: String,
    /// With which values.
    pub detail: String,
}

/// An entry before it is kept.
#[derive(Clone, Debug)]
pub struct Deed {
    pub at_ms: i64,
    pub actor: String,
    pub address: String,
    pub action: &'static str,
    pub target: String,
    pub detail: String,
}

const KEY_COLUMNS: &str =
    "id, name, hash, scopes, created_at, expires_at, revoked_at, last_used_at";

/// Keeps a new key and the deed of making it, both or neither.
pub async fn create_key(db: &Database, key: KeyRecord, deed: Deed) -> Result<(), StoreError> {
    let scopes = key.scopes.to_string();
    match db {
        Database::Sqlite(sqlite) => {
            sqlite
                .write(move |db| {
                    db.execute(
                        "INSERT INTO skep_keys (id, name, hash, scopes, created_at, expires_at)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                        (
                            &key.id,
                            &key.name,
                            &key.hash,
                            scopes,
                            key.created_at_ms,
                            key.expires_at_ms,
                        ),
                    )?;
                    record_in_sqlite(db, &deed)
                })
                .await
        }
        Database::Postgres(postgres) => {
            let insert = "INSERT INTO skep_keys (id, name, hash, scopes, created_at, expires_at)
                          VALUES ($1, $2, $3, $4, $5, $6)";
            let values: [&(dyn ToSql + Sync); 6] =
                [&key.id, &key.name, &key.hash, &scopes, &key.created_at_ms, &key.expires_at_ms];
            let mut client = postgres.client().await?;
            postgres
                .limit(async {
                    let transaction = client.transaction().await?;
                    transaction.execute(insert, &values).await?;
                    record_in_postgres(&transaction, &deed).await?;
                    Ok(transaction.commit().await?)
                })
                .await
        }
    }
}

/// Revokes a key and keeps the deed. `false` if there is no such key, or it was revoked before.
pub async fn revoke_key(db: &Database, id: &str, deed: Deed) -> Result<bool, StoreError> {
    let id = id.to_owned();
    match db {
        Database::Sqlite(sqlite) => {
            sqlite
                .write(move |db| {
                    let changed = db.execute(
                        "UPDATE skep_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
                        (&id, deed.at_ms),
                    )?;
                    if changed > 0 {
                        record_in_sqlite(db, &deed)?;
                    }
                    Ok(changed > 0)
                })
                .await
        }
        Database::Postgres(postgres) => {
            let update =
                "UPDATE skep_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";
            let mut client = postgres.client().await?;
            postgres
                .limit(async {
                    let transaction = client.transaction().await?;
                    let changed = transaction.execute(update, &[&id, &deed.at_ms]).await?;
                    if changed > 0 {
                        record_in_postgres(&transaction, &deed).await?;
                    }
                    transaction.commit().await?;
                    Ok(changed > 0)
                })
                .await
        }
    }
}

/// All keys, oldest first, those that were revoked too.
pub async fn list_keys(db: &Database) -> Result<Vec<KeyRecord>, StoreError> {
    let select = format!("SELECT {KEY_COLUMNS} FROM skep_keys ORDER BY created_at, id");
    match db {
        Database::Sqlite(sqlite) => {
            sqlite
                .read(move |db| {
                    let mut statement = db.prepare_cached(&select)?;
                    let rows = statement.query_map([], |row| {
                        let scopes: String = row.get(3)?;
                        Ok(KeyRecord {
                            id: row.get(0)?,
                            name: row.get(1)?,
                            hash: row.get(2)?,
                            scopes: known_scopes(&scopes),
                            created_at_ms: row.get(4)?,
                            expires_at_ms: row.get(5)?,
                            revoked_at_ms: row.get(6)?,
                            last_used_at_ms: row.get(7)?,
                        })
                    })?;
                    Ok(rows.collect::<Result<_, _>>()?)
                })
                .await
        }
        Database::Postgres(postgres) => {
            let client = postgres.client().await?;
            let rows = postgres.limit(async { Ok(client.query(&select, &[]).await?) });
            let rows: Vec<tokio_postgres::Row> = rows.await.map_err(|error: StoreError| error)?;
            let record = |row: &tokio_postgres::Row| KeyRecord {
                id: row.get(0),
                name: row.get(1),
                hash: row.get(2),
                scopes: known_scopes(row.get(3)),
                created_at_ms: row.get(4),
                expires_at_ms: row.get(5),
                revoked_at_ms: row.get(6),
                last_used_at_ms: row.get(7),
            };
            Ok(rows.iter().map(record).collect())
        }
    }
}

/// A newer version may have given a key a scope that this one does not know; it allows nothing.
fn known_scopes(text: &str) -> Scopes {
    Scopes::new(text.split(',').filter_map(|one| one.parse().ok()).collect())
}

/// Notes when keys were last used.
pub async fn touch_keys(db: &Database, used: Vec<(String, i64)>) -> Result<(), StoreError> {
    match db {
        Database::Sqlite(sqlite) => {
            sqlite
                .write(move |db| {
                    let mut update = db.prepare_cached(
                        "UPDATE skep_keys SET last_used_at = max(ifnull(last_used_at, 0), ?2)
                         WHERE id = ?1",
                    )?;
                    for (id, at_ms) in &used {
                        update.execute((id, at_ms))?;
                    }
                    Ok(())
                })
                .await
        }
        Database::Postgres(postgres) => {
            let (ids, times): (Vec<String>, Vec<i64>) = used.into_iter().unzip();
            let update = "UPDATE skep_keys SET last_used_at = greatest(last_used_at, used.at)
                          FROM unnest($1::text[], $2::bigint[]) AS used (id, at)
                          WHERE skep_keys.id = used.id";
            let client = postgres.client().await?;
            let updating = async {
                client.execute(update, &[&ids, &times]).await?;
                Ok(())
            };
            postgres.limit(updating).await
        }
    }
}

/// Keeps a deed.
pub async fn record(db: &Database, deed: Deed) -> Result<(), StoreError> {
    match db {
        Database::Sqlite(sqlite) => sqlite.write(move |db| record_in_sqlite(db, &deed)).await,
        Database::Postgres(postgres) => {
            let mut client = postgres.client().await?;
            postgres
                .limit(async {
                    let transaction = client.transaction().await?;
                    record_in_postgres(&transaction, &deed).await?;
                    Ok(transaction.commit().await?)
                })
                .await
        }
    }
}

/// Deletes what is past the limit of an entry's kind.
fn forget(deed: &Deed) -> String {
    let (of_kind, most) = match deed.action {
        "login" => ("action = 'login'", AUDIT_LOGINS_MAX),
        _ => ("action <> 'login'", AUDIT_ENTRIES_MAX),
    };
    format!(
        "DELETE FROM skep_audit WHERE {of_kind} AND id <= (
             SELECT id FROM skep_audit WHERE {of_kind} ORDER BY id DESC LIMIT 1 OFFSET {most})"
    )
}

fn record_in_sqlite(db: &rusqlite::Connection, deed: &Deed) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO skep_audit (at, actor, address, action, target, detail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (deed.at_ms, &deed.actor, &deed.address, deed.action, &deed.target, &deed.detail),
    )?;
    db.execute(&forget(deed), [])?;
    Ok(())
}

async fn record_in_postgres(
    transaction: &deadpool_postgres::Transaction<'_>,
    deed: &Deed,
) -> Result<(), StoreError> {
    let insert = "INSERT INTO skep_audit (at, actor, address, action, target, detail)
                  VALUES ($1, $2, $3, $4, $5, $6)";
    let values: [&(dyn ToSql + Sync); 6] =
        [&deed.at_ms, &deed.actor, &deed.address, &deed.action, &deed.target, &deed.detail];
    transaction.execute(insert, &values).await?;
    transaction.execute(&forget(deed), &[]).await?;
    Ok(())
}

/// At most `limit` entries, newest first, older than `before`.
pub async fn audit_page(
    db: &Database,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<AuditEntry>, StoreError> {
    let (before, limit) = (before.unwrap_or(i64::MAX), i64::from(limit));
    let columns = "SELECT id, at, actor, address, action, target, detail FROM skep_audit";
    match db {
        Database::Sqlite(sqlite) => {
            let select = format!("{columns} WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
            sqlite
                .read(move |db| {
                    let mut statement = db.prepare_cached(&select)?;
                    let rows = statement.query_map([before, limit], |row| {
                        let id = row.get(0)?;
                        Ok(AuditEntry {
                            id,
                            explain: Kind::Audit.id(id),
                            at: super::timestamp(row.get(1)?),
                            actor: row.get(2)?,
                            address: row.get(3)?,
                            action: row.get(4)?,
                            target: row.get(5)?,
                            detail: row.get(6)?,
                        })
                    })?;
                    Ok(rows.collect::<Result<_, _>>()?)
                })
                .await
        }
        Database::Postgres(postgres) => {
            let select = format!("{columns} WHERE id < $1 ORDER BY id DESC LIMIT $2");
            let client = postgres.client().await?;
            let asking =
                async { Ok::<_, StoreError>(client.query(&select, &[&before, &limit]).await?) };
            let rows = postgres.limit(asking).await?;
            let entry = |row: &tokio_postgres::Row| {
                let id = row.get(0);
                AuditEntry {
                    id,
                    explain: Kind::Audit.id(id),
                    at: super::timestamp(row.get(1)),
                    actor: row.get(2),
                    address: row.get(3),
                    action: row.get(4),
                    target: row.get(5),
                    detail: row.get(6),
                }
            };
            Ok(rows.iter().map(entry).collect())
        }
    }
}

/// A secret of the installation; the first to ask makes it.
pub async fn secret(db: &Database, name: &'static str) -> Result<String, StoreError> {
    let fresh = random_hex(32);
    match db {
        Database::Sqlite(sqlite) => {
            sqlite
                .write(move |db| {
                    db.execute(
                        "INSERT INTO skep_secrets (name, value) VALUES (?1, ?2)
                         ON CONFLICT DO NOTHING",
                        (name, fresh),
                    )?;
                    let select = "SELECT value FROM skep_secrets WHERE name = ?1";
                    Ok(db.query_row(select, [name], |row| row.get(0))?)
                })
                .await
        }
        Database::Postgres(postgres) => {
            let insert = "INSERT INTO skep_secrets (name, value) VALUES ($1, $2)
                          ON CONFLICT DO NOTHING";
            let select = "SELECT value FROM skep_secrets WHERE name = $1";
            let client = postgres.client().await?;
            postgres
                .limit(async {
                    client.execute(insert, &[&name, &fresh]).await?;
                    Ok(client.query_one(select, &[&name]).await?.get(0))
                })
                .await
        }
    }
}
