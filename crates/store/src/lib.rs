//! What Skep remembers, and how it reaches it.
//!
//! ```text
//!                    ┌─ Sqlite    one file, one writer thread with group commit, readers beside it
//!   Stores ─ Database┤
//!      │             └─ Postgres  a bounded pool, TLS
//!      ├─ Redis (optional)        scripts by hash; an error is an unknown outcome
//!      └─ DataFolder              locked: one process a folder
//! ```
//!
//! This crate knows no capability's rules. It opens, migrates, writes durably, says how the stores
//! are doing and what an error means for the state ([`StoreError::outcome`]). Each capability
//! brings its own tables as a [`Schema`] and its own statements.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use skep_store::{Database, SCHEMA, StoreError, StoreOptions, Stores};
//!
//! let folder = tempfile::tempdir()?;
//! let stores = Stores::open(&StoreOptions::embedded(folder.path()))?;
//! stores.migrate(&[SCHEMA]).await?;
//!
//! let Database::Sqlite(sqlite) = stores.database() else { unreachable!() };
//! sqlite.write(|db| {
//!     db.execute_batch("CREATE TABLE jars (honey INTEGER); INSERT INTO jars VALUES (3)")?;
//!     Ok::<_, StoreError>(())
//! }).await?;
//! let honey: i64 = sqlite.read(|db| {
//!     Ok::<_, StoreError>(db.query_row("SELECT sum(honey) FROM jars", [], |row| row.get(0))?)
//! }).await?;
//! assert_eq!(honey, 3);
//! stores.close().await;
//! # Ok(()) }
//! ```

mod backup;
mod clock;
pub mod copy;
mod data_folder;
mod error;
mod health;
mod hints;
mod installation;
mod migrate;
mod postgres;
mod postgres_listen;
mod postgres_step;
mod redis;
mod sqlite;
mod stores;
mod tls;
mod url;

pub use backup::{
    BackupError, Header, Level, Packed, Packing, Restored, Restoring, Sink, Unpacker,
};
pub use clock::{BootClock, WallClock, wall_ms};
pub use data_folder::DataFolder;
pub use error::{Outcome, StoreError};
pub use health::Health;
pub use hints::{Heard, Hints};
pub use installation::Installation;
pub use migrate::{MigrateError, Migration, MigrationStatus, SCHEMA, Schema};
pub use postgres::{Postgres, PostgresClient, PostgresOptions};
pub use redis::{Lua, Redis, RedisOptions};
pub use sqlite::{Sqlite, SqliteOptions};
pub use stores::{Agreement, DEFAULT_RETRY, Database, StoreOptions, Stores};
pub use tls::trusting;
pub use url::{BadUrl, CoordinationUrl, DatabaseUrl, PostgresUrl, RedisUrl};
