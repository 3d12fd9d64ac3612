//! Dead letters in either database, where they outlive the node.

use serde::{Deserialize, Serialize};
use skep_pools::{Letter, Tier};
use skep_store::{Database, Schema, StoreError};
use tokio_postgres::types::ToSql;

/// The tables of a node's own work.
pub const SCHEMA: Schema = skep_store::schema!("work", 1 "0002_work", 2 "0003_access_of_routes");

/// The installation keeps so many letters; the oldest go first.
const LETTERS_MAX: i64 = 10_000;

/// How long a letter that is tried again is left alone by others.
const RETRY_TIME_MS: i64 = 10 * 60 * 1_000;

/// A dead letter as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLetter {
    pub id: String,
    pub node: String,
    pub tier: Tier,
    pub kind: String,
    pub cause: String,
    pub attempts: i64,
    pub errors: Vec<String>,
    pub submitted_at_ms: i64,
    pub died_at_ms: i64,
    pub payload: Option<Vec<u8>>,
    pub retrying_until_ms: i64,
}

/// Something that happened to a letter.
#[derive(Clone, Debug)]
pub enum LetterNews {
    /// It is dead, perhaps again.
    Died(Box<KeptLetter>),
    /// It was done after all.
    Done(String),
}

/// Which letters to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct LetterFilter {
    pub tier: Option<Tier>,
    pub kind: Option<String>,
}

/// The id as it is written.
pub fn show_id(id: u64) -> String {
    format!("{id:016x}")
}

/// The id that was written so.
pub fn read_id(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

impl KeptLetter {
    /// A letter of a node's pools.
    pub fn of(letter: &Letter, node: &str) -> Self {
        KeptLetter {
            id: show_id(letter.id),
            node: node.to_owned(),
            tier: letter.tier,
            kind: letter.kind.to_owned(),
            cause: letter.cause.name().to_owned(),
            attempts: i64::from(letter.attempts),
            errors: letter.errors.clone(),
            submitted_at_ms: i64::try_from(letter.submitted_at_ms).unwrap_or(i64::MAX),
            died_at_ms: i64::try_from(letter.died_at_ms).unwrap_or(i64::MAX),
            payload: letter.payload.as_deref().map(<[u8]>::to_vec),
            retrying_until_ms: 0,
        }
    }
}

const COLUMNS: &str = "id, node, tier, kind, cause, attempts, errors, submitted_at, died_at, \
                       payload, retrying_until";
const UPSERT_END: &str = "ON CONFLICT (id) DO UPDATE SET
    node = excluded.node, cause = excluded.cause, attempts = excluded.attempts,
    errors = excluded.errors, died_at = excluded.died_at, retrying_until = 0";

fn forget() -> String {
    format!(
        "DELETE FROM skep_dead_letters WHERE id IN (
             SELECT id FROM skep_dead_letters ORDER BY died_at DESC, id DESC
             LIMIT 1000 OFFSET {LETTERS_MAX})"
    )
}

/// Writes down what happened to letters, all of it or nothing. Doing it twice does no harm.
pub async fn note(db: &Database, news: Vec<LetterNews>) -> Result<(), StoreError> {
    match db {
        Database::Sqlite(sqlite) => {
            sqlite
                .write(move |db| {
                    let sql = format!(
                        "INSERT INTO skep_dead_letters ({COLUMNS})
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0) {UPSERT_END}"
                    );
                    for one in &news {
                        match one {
                            LetterNews::Died(one) => {
                                let errors = serde_json::json!(one.errors).to_string();
                                db.prepare_cached(&sql)?.execute(rusqlite::params![
                                    one.id,
                                    one.node,
                                    one.tier.name(),
                                    one.kind,
                                    one.cause,
                                    one.attempts,
                                    errors,
                                    one.submitted_at_ms,
                                    one.died_at_ms,
                                    one.payload
                                ])?;
                            }
                            LetterNews::Done(id) => {
                                db.execute("DELETE FROM skep_dead_letters WHERE id = ?1", [id])?;
                            }
                        }
                    }
                    db.execute(&forget(), [])?;
                    Ok(())
                })
                .await
        }
        Database::Postgres(postgres) => {
            let mut client = postgres.client().await?;
            postgres
                .limit(async {
                    let transaction = client.transaction().await?;
                    let sql = format!(
                        "INSERT INTO skep_dead_letters ({COLUMNS})
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0) {UPSERT_END}"
                    );
                    for one in &news {
                        match one {
                            LetterNews::Died(one) => {
                                let errors = serde_json::json!(one.errors).to_string();
                                let values: [&(dyn ToSql + Sync); 10] = [
                                    &one.id,
                                    &one.node,
                                    &one.tier.name(),
                                    &one.kind,
                                    &one.cause,
                                    &one.attempts,
                                    &errors,
                                    &one.submitted_at_ms,
                                    &one.died_at_ms,
                                    &one.payload,
                                ];
                                transaction.execute(&sql, &values).await?;
                            }
                            LetterNews::Done(id) => {
                                let sql = "DELETE FROM skep_dead_letters WHERE id = $1";
                                transaction.execute(sql, &[id]).await?;
                            }
                        }
                    }
                    transaction.execute(&forget(), &[]).await?;
                    Ok(transaction.commit().await?)
                })
                .await
        }
    }
}

/// A place in the list of letters, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub died_at_ms: i64,
    pub id: String,
}

impl Place {
    /// The place before the first letter.
    pub fn start() -> Self {
        Place { died_at_ms: i64::MAX, id: String::new() }
    }
}

/// At most `limit` letters after `place`, newest first.
pub async fn page(
    db: &Database,
    filter: LetterFilter,
    place: Place,
    limit: u32,
) -> Result<Vec<KeptLetter>, StoreError> {
    let tier = filter.tier.map_or(String::new(), |tier| tier.name().to_owned());
    let kind = filter.kind.unwrap_or_default();
    let limit = i64::from(limit);
    let select = |parameter: fn(u8) -> String| {
        let [at, id, tier, kind, limit] = [1, 2, 3, 4, 5].map(parameter);
        format!(
            "SELECT {COLUMNS} FROM skep_dead_letters
             WHERE (died_at < {at} OR (died_at = {at} AND id < {id}))
               AND ({tier} = '' OR tier = {tier}) AND ({kind} = '' OR kind = {kind})
             ORDER BY died_at DESC, id DESC LIMIT {limit}"
        )
    };
    match db {
        Database::Sqlite(sqlite) => {
            let select = select(|number| format!("?{number}"));
            sqlite
                .read(move |db| {
                    let mut statement = db.prepare_cached(&select)?;
                    let values = (place.died_at_ms, &place.id, &tier, &kind, limit);
                    let rows = statement.query_map(values, from_sqlite)?;
                    Ok(rows.collect::<Result<_, _>>()?)
                })
                .await
        }
        Database::Postgres(postgres) => {
            let select = select(|number| format!("${number}"));
            let client = postgres.client().await?;
            let values: [&(dyn ToSql + Sync); 5] =
                [&place.died_at_ms, &place.id, &tier, &kind, &limit];
            let asking = async { Ok::<_, StoreError>(client.query(&select, &values).await?) };
            let rows = postgres.limit(asking).await?;
            Ok(rows.iter().map(from_postgres).collect())
        }
    }
}

/// One letter.
pub async fn find(db: &Database, id: &str) -> Result<Option<KeptLetter>, StoreError> {
    let id = id.to_owned();
    match db {
        Database::Sqlite(sqlite) => {
            let select = format!("SELECT {COLUMNS} FROM skep_dead_letters WHERE id = ?1");
            sqlite
                .read(move |db| {
                    let mut statement = db.prepare_cached(&select)?;
                    let mut rows = statement.query_map([id], from_sqlite)?;
                    Ok(rows.next().transpose()?)
                })
                .await
        }
        Database::Postgres(postgres) => {
            let select = format!("SELECT {COLUMNS} FROM skep_dead_letters WHERE id = $1");
            let client = postgres.client().await?;
            let asking = async { Ok::<_, StoreError>(client.query_opt(&select, &[&id]).await?) };
            Ok(postgres.limit(asking).await?.as_ref().map(from_postgres))
        }
    }
}

/// Takes the right to try a letter again; `false` if somebody has it, or there is no such letter.
/// Whoever dies with the right loses it after some minutes.
pub async fn claim(db: &Database, id: &str, now_ms: i64) -> Result<bool, StoreError> {
    set_retrying(db, id, now_ms, now_ms + RETRY_TIME_MS).await
}

/// Gives the right back, because the task could not be submitted.
pub async fn release(db: &Database, id: &str) -> Result<(), StoreError> {
    set_retrying(db, id, i64::MAX, 0).await.map(|_| ())
}

async fn set_retrying(
    db: &Database,
    id: &str,
    free_at_ms: i64,
    until_ms: i64,
) -> Result<bool, StoreError> {
    let id = id.to_owned();
    match db {
        Database::Sqlite(sqlite) => {
            let update = "UPDATE skep_dead_letters SET retrying_until = ?3
                          WHERE id = ?1 AND retrying_until <= ?2";
            sqlite.write(move |db| Ok(db.execute(update, (id, free_at_ms, until_ms))? > 0)).await
        }
        Database::Postgres(postgres) => {
            let update = "UPDATE skep_dead_letters SET retrying_until = $3
                          WHERE id = $1 AND retrying_until <= $2";
            let client = postgres.client().await?;
            let updating = async {
                Ok::<_, StoreError>(client.execute(update, &[&id, &free_at_ms, &until_ms]).await?)
            };
            Ok(postgres.limit(updating).await? > 0)
        }
    }
}

/// Forgets a letter; `false` if there is none.
pub async fn discard(db: &Database, id: &str) -> Result<bool, StoreError> {
    let id = id.to_owned();
    match db {
        Database::Sqlite(sqlite) => {
            let delete = "DELETE FROM skep_dead_letters WHERE id = ?1";
            sqlite.write(move |db| Ok(db.execute(delete, [id])? > 0)).await
        }
        Database::Postgres(postgres) => {
            let client = postgres.client().await?;
            let delete = "DELETE FROM skep_dead_letters WHERE id = $1";
            let deleting = async { Ok::<_, StoreError>(client.execute(delete, &[&id]).await?) };
            Ok(postgres.limit(deleting).await? > 0)
        }
    }
}

/// A newer version may have tiers that this one does not know; they are shown as low.
fn known_tier(text: &str) -> Tier {
    text.parse().unwrap_or(Tier::Low)
}

fn from_sqlite(row: &rusqlite::Row<'_>) -> rusqlite::Result<KeptLetter> {
    let (tier, errors): (String, String) = (row.get(2)?, row.get(6)?);
    Ok(KeptLetter {
        id: row.get(0)?,
        node: row.get(1)?,
        tier: known_tier(&tier),
        kind: row.get(3)?,
        cause: row.get(4)?,
        attempts: row.get(5)?,
        errors: serde_json::from_str(&errors).unwrap_or_default(),
        submitted_at_ms: row.get(7)?,
        died_at_ms: row.get(8)?,
        payload: row.get(9)?,
        retrying_until_ms: row.get(10)?,
    })
}

fn from_postgres(row: &tokio_postgres::Row) -> KeptLetter {
    KeptLetter {
        id: row.get(0),
        node: row.get(1),
        tier: known_tier(row.get(2)),
        kind: row.get(3),
        cause: row.get(4),
        attempts: row.get(5),
        errors: serde_json::from_str(row.get(6)).unwrap_or_default(),
        submitted_at_ms: row.get(7),
        died_at_ms: row.get(8),
        payload: row.get(9),
        retrying_until_ms: row.get(10),
    }
}
