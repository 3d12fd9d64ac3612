//! Numbered migrations per dialect, with checksums, under a lock.
//!
//! Each part of Skep brings its own numbered list ([`Schema`]); the table `skep_migrations` records
//! what was applied. Everything pending is applied in one transaction that holds a lock, so ten
//! nodes that start together find it done by one of them, and a failure leaves the old schema.

use crate::{Database, Postgres, Sqlite, StoreError};
use rusqlite::OptionalExtension;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// One step, as SQL of one dialect. Once released it never changes: its checksum is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its place in the order, from 1, without gaps.
    pub number: u32,
    /// What it does, as in its file's name.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

/// The migrations of one part of Skep, in both dialects, the same numbers in each.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The part: `store`, `queues`, …
    pub part: &'static str,
    /// For SQLite.
    pub sqlite: &'static [Migration],
    /// For PostgreSQL.
    pub postgres: &'static [Migration],
}

/// Lists the migrations of a part from its files, `migrations/{sqlite,postgres}/NNNN_name.sql`
/// beside the calling crate's `src`.
#[macro_export]
macro_rules! schema {
    ($part:literal, $($number:literal $name:literal),+ $(,)?) => {
        $crate::Schema {
            part: $part,
            sqlite: &[$($crate::schema!(@one "sqlite", $number, $name)),+],
            postgres: &[$($crate::schema!(@one "postgres", $number, $name)),+],
        }
    };
    (@one $dialect:literal, $number:literal, $name:literal) => {
        $crate::Migration {
            number: $number,
            name: $name,
            sql: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/migrations/", $dialect, "/", $name, ".sql"
            )),
        }
    };
}

/// The store's own migrations.
pub const SCHEMA: Schema = crate::schema!("store", 1 "0001_installation");

/// Where one migration stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationStatus {
    /// The part it belongs to.
    pub part: String,
    /// Its number.
    pub number: u32,
    /// What it does.
    pub name: String,
    /// When it was applied; nothing if it is pending.
    pub applied_at: Option<String>,
}

/// Why a database cannot be used by this binary.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MigrateError {
    /// The store failed. Nothing was applied, unless the outcome of the commit is unknown; then
    /// running it again finds out.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// A newer Skep has been here. Nothing was changed.
    #[error(
        "the database has {part} schema {found}, this skep {version} knows {known}: it was \
         upgraded by a newer skep; run that version, or restore a backup made before the upgrade"
    )]
    Newer { part: String, found: u32, known: u32, version: &'static str },

    /// A migration that was applied is not the one this binary has. Nothing was changed.
    #[error(
        "{part} migration {number} was applied as {recorded}, this skep has {expected}: the \
         database comes from a different build; run the build that made it"
    )]
    Altered { part: String, number: u32, recorded: String, expected: String },

    /// A migration itself failed. Nothing was applied.
    #[error("{part} migration {number} ({name}) failed, nothing was changed: {cause}")]
    Failed { part: &'static str, number: u32, name: &'static str, cause: StoreError },
}

#[derive(Clone, Debug)]
struct Record {
    name: String,
    checksum: String,
    applied_at: String,
}

type Records = BTreeMap<(String, u32), Record>;

impl Database {
    /// Every migration this binary knows, and whether it was applied. Changes nothing, and refuses
    /// a database that [`Database::migrate`] would refuse.
    pub async fn migration_status(
        &self,
        schemas: &[Schema],
    ) -> Result<Vec<MigrationStatus>, MigrateError> {
        let records = match self {
            Database::Sqlite(sqlite) => sqlite.read(sqlite_records).await?,
            Database::Postgres(postgres) => {
                let client = postgres.client().await?;
                postgres.limit(postgres_records(&client)).await?
            }
        };
        let steps = self.steps(schemas);
        check(&steps, &records)?;
        let applied_at = |step: &Step| records.get(&step.key()).map(|one| one.applied_at.clone());
        Ok(steps.iter().map(|step| step.status(applied_at(step))).collect())
    }

    /// What [`Database::migration_status`] says of a database that does not exist yet.
    pub fn all_pending(schemas: &[Schema]) -> Vec<MigrationStatus> {
        steps(schemas, |schema| schema.sqlite).iter().map(|step| step.status(None)).collect()
    }

    /// Applies what is pending and returns what that was.
    pub async fn migrate(&self, schemas: &[Schema]) -> Result<Vec<MigrationStatus>, MigrateError> {
        let steps = self.steps(schemas);
        match self {
            Database::Sqlite(sqlite) => migrate_sqlite(sqlite, steps).await,
            Database::Postgres(postgres) => migrate_postgres(postgres, &steps).await,
        }
    }

    fn steps(&self, schemas: &[Schema]) -> Vec<Step> {
        steps(schemas, |schema| match self {
            Database::Sqlite(_) => schema.sqlite,
            Database::Postgres(_) => schema.postgres,
        })
    }
}

fn steps(schemas: &[Schema], of: impl Fn(&Schema) -> &'static [Migration]) -> Vec<Step> {
    let of_schema = |schema: &Schema| {
        let part = schema.part;
        of(schema).iter().map(move |migration| Step { part, migration: *migration })
    };
    schemas.iter().flat_map(of_schema).collect()
}

#[derive(Clone, Copy)]
struct Step {
    part: &'static str,
    migration: Migration,
}

impl Step {
    fn key(&self) -> (String, u32) {
        (self.part.to_owned(), self.migration.number)
    }

    fn checksum(&self) -> String {
        let digest = Sha256::digest(self.migration.sql.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn status(&self, applied_at: Option<String>) -> MigrationStatus {
        MigrationStatus {
            part: self.part.to_owned(),
            number: self.migration.number,
            name: self.migration.name.to_owned(),
            applied_at,
        }
    }

    /// A statement that the database refuses is the migration's fault; anything else is not.
    fn failed(&self, cause: StoreError) -> MigrateError {
        let Migration { number, name, .. } = self.migration;
        match cause {
            StoreError::Refused { .. } => {
                MigrateError::Failed { part: self.part, number, name, cause }
            }
            other => MigrateError::Store(other),
        }
    }
}

/// Refuses a database that this binary would misread.
fn check(steps: &[Step], records: &Records) -> Result<(), MigrateError> {
    for ((part, number), record) in records {
        let known = steps.iter().find(|step| step.part == part && step.migration.number == *number);
        let Some(step) = known else {
            let of_part = steps.iter().filter(|step| step.part == part);
            return Err(MigrateError::Newer {
                part: part.clone(),
                found: *number,
                known: of_part.map(|step| step.migration.number).max().unwrap_or(0),
                version: env!("CARGO_PKG_VERSION"),
            });
        };
        let expected = step.checksum();
        if record.checksum != expected {
            let short = |name: &str, sum: &str| format!("{name} ({})", &sum[..sum.len().min(12)]);
            return Err(MigrateError::Altered {
                part: part.clone(),
                number: *number,
                recorded: short(&record.name, &record.checksum),
                expected: short(step.migration.name, &expected),
            });
        }
    }
    Ok(())
}

const SQLITE_TABLE: &str = "CREATE TABLE IF NOT EXISTS skep_migrations (
    part TEXT NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (part, number)
) STRICT";

fn sqlite_records(connection: &rusqlite::Connection) -> Result<Records, StoreError> {
    let exists = connection
        .query_row("SELECT 1 FROM sqlite_schema WHERE name = 'skep_migrations'", [], |_| Ok(()))
        .optional()?;
    if exists.is_none() {
        return Ok(Records::new());
    }
    let mut statement = connection
        .prepare("SELECT part, number, name, checksum, applied_at FROM skep_migrations")?;
    let rows = statement.query_map([], |row| {
        let record = Record { name: row.get(2)?, checksum: row.get(3)?, applied_at: row.get(4)? };
        Ok(((row.get(0)?, row.get(1)?), record))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

async fn migrate_sqlite(
    sqlite: &Sqlite,
    steps: Vec<Step>,
) -> Result<Vec<MigrationStatus>, MigrateError> {
    // One write call is one transaction; the lock is the data folder's.
    sqlite
        .write(move |connection| {
            let records = sqlite_records(connection)?;
            check(&steps, &records)?;
            connection.execute_batch(SQLITE_TABLE).map_err(StoreError::from)?;
            let mut applied = Vec::new();
            for step in steps.iter().filter(|step| !records.contains_key(&step.key())) {
                let apply = || -> rusqlite::Result<String> {
                    connection.execute_batch(step.migration.sql)?;
                    connection.query_row(
                        "INSERT INTO skep_migrations (part, number, name, checksum)
                         VALUES (?1, ?2, ?3, ?4) RETURNING applied_at",
                        (step.part, step.migration.number, step.migration.name, step.checksum()),
                        |row| row.get(0),
                    )
                };
                let applied_at = apply().map_err(|error| step.failed(error.into()))?;
                applied.push(step.status(Some(applied_at)));
            }
            Ok(applied)
        })
        .await
}

const POSTGRES_TABLE: &str = "CREATE TABLE IF NOT EXISTS skep_migrations (
    part TEXT NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (part, number)
)";

/// `applied_at` in the form that SQLite writes it.
const POSTGRES_TIME: &str =
    "to_char(applied_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";

/// The key of the advisory lock that migrating nodes queue on: the letters `skep` and a 1.
const POSTGRES_LOCK: i64 = 0x736b_6570_0000_0001;

async fn postgres_records(
    client: &impl deadpool_postgres::GenericClient,
) -> Result<Records, StoreError> {
    let row = client.query_one("SELECT to_regclass('skep_migrations') IS NOT NULL", &[]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(Records::new());
    }
    let select =
        format!("SELECT part, number, name, checksum, {POSTGRES_TIME} FROM skep_migrations");
    let rows = client.query(&select, &[]).await?;
    let record = |row: &tokio_postgres::Row| {
        let number = u32::try_from(row.get::<_, i32>(1)).unwrap_or(u32::MAX);
        let record = Record { name: row.get(2), checksum: row.get(3), applied_at: row.get(4) };
        ((row.get(0), number), record)
    };
    Ok(rows.iter().map(record).collect())
}

async fn migrate_postgres(
    postgres: &Postgres,
    steps: &[Step],
) -> Result<Vec<MigrationStatus>, MigrateError> {
    let mut client = postgres.client().await?;
    let transaction = client.transaction().await.map_err(StoreError::from)?;
    let applied = apply_in(&transaction, steps).await?;
    transaction.commit().await.map_err(StoreError::from)?;
    Ok(applied)
}

/// Applies what is pending in a transaction, which holds the lock until it ends.
pub(crate) async fn migrate_in(
    transaction: &deadpool_postgres::Transaction<'_>,
    schemas: &[Schema],
) -> Result<Vec<MigrationStatus>, MigrateError> {
    apply_in(transaction, &steps(schemas, |schema| schema.postgres)).await
}

async fn apply_in(
    transaction: &deadpool_postgres::Transaction<'_>,
    steps: &[Step],
) -> Result<Vec<MigrationStatus>, MigrateError> {
    // Waiting for nine others to migrate, and a long migration itself, outlast a statement's limit.
    let begin = format!(
        "SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock({POSTGRES_LOCK}); \
         {POSTGRES_TABLE}"
    );
    transaction.batch_execute(&begin).await.map_err(StoreError::from)?;
    let records = postgres_records(transaction).await?;
    check(steps, &records)?;
    let insert = format!(
        "INSERT INTO skep_migrations (part, number, name, checksum) VALUES ($1, $2, $3, $4)
         RETURNING {POSTGRES_TIME}"
    );
    let mut applied = Vec::new();
    for step in steps.iter().filter(|step| !records.contains_key(&step.key())) {
        let number = i32::try_from(step.migration.number).unwrap_or(i32::MAX);
        let apply = async {
            transaction.batch_execute(step.migration.sql).await?;
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&step.part, &number, &step.migration.name, &step.checksum()];
            transaction.query_one(&insert, &values).await
        };
        let row = apply.await.map_err(|error| step.failed(error.into()))?;
        applied.push(step.status(Some(row.get(0))));
    }
    Ok(applied)
}
