//! All stores of a process, as one handle.

use crate::url::{CoordinationUrl, DatabaseUrl};
use crate::{
    DataFolder, Health, Installation, MigrateError, MigrationStatus, Postgres, PostgresOptions,
    Redis, RedisOptions, Schema, Sqlite, SqliteOptions, StoreError,
};
use prometheus_client::registry::Registry;
use skep_policy::{SeededChance, backoff};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Where the stores are and what they may use.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The folder this process has to itself.
    pub data: PathBuf,
    /// Where lasting data goes.
    pub database: DatabaseUrl,
    /// Where nodes agree.
    pub coordination: CoordinationUrl,
    /// Limits of the embedded store.
    pub sqlite: SqliteOptions,
    /// Limits of PostgreSQL.
    pub postgres: PostgresOptions,
    /// Limits of Redis.
    pub redis: RedisOptions,
    /// Waits between attempts to reach a store that is away at start.
    pub retry: backoff::Options,
}

impl StoreOptions {
    /// Everything embedded in `data`, with the default limits.
    pub fn embedded(data: &Path) -> Self {
        StoreOptions {
            data: data.to_path_buf(),
            database: DatabaseUrl::Embedded,
            coordination: CoordinationUrl::Database,
            sqlite: SqliteOptions::default(),
            postgres: PostgresOptions::default(),
            redis: RedisOptions::default(),
            retry: DEFAULT_RETRY,
        }
    }
}

/// Waits between attempts to reach a store that is away at start.
pub const DEFAULT_RETRY: backoff::Options =
    backoff::Options { base: Duration::from_millis(200), cap: Duration::from_secs(5) };

/// Where lasting data is.
#[derive(Clone)]
pub enum Database {
    /// The file in the data folder.
    Sqlite(Sqlite),
    /// The server that all nodes share.
    Postgres(Postgres),
}

impl Database {
    /// `sqlite` or `postgres`.
    pub fn name(&self) -> &'static str {
        match self {
            Database::Sqlite(_) => crate::sqlite::NAME,
            Database::Postgres(_) => crate::postgres::NAME,
        }
    }
}

/// A store that is another process, and can be away.
enum Server<'stores> {
    Postgres(&'stores Postgres),
    Redis(&'stores Redis),
}

impl Server<'_> {
    async fn ask(&self) -> Result<(), StoreError> {
        match self {
            Server::Postgres(postgres) => postgres.ask().await,
            Server::Redis(redis) => redis.ask().await,
        }
    }
}

/// The stores of this process. Clones share them, and so do the nodes of one process.
#[derive(Clone)]
pub struct Stores {
    database: Database,
    redis: Option<Redis>,
    folder: Arc<DataFolder>,
    retry: backoff::Options,
}

impl Stores {
    /// Locks the data folder and opens what is embedded. Servers are not contacted yet: that is
    /// [`Stores::wait_until_reachable`]. Must be called inside a tokio runtime.
    pub fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        let folder = DataFolder::open(&options.data)?;
        let database = match &options.database {
            DatabaseUrl::Embedded => {
                Database::Sqlite(Sqlite::open(&folder.database(), &options.sqlite)?)
            }
            DatabaseUrl::Postgres(url) => {
                Database::Postgres(Postgres::new(url, &options.postgres)?)
            }
        };
        let redis = match &options.coordination {
            CoordinationUrl::Database => None,
            CoordinationUrl::Redis(url) => Some(Redis::new(url, &options.redis)?),
        };
        Ok(Stores { database, redis, folder: Arc::new(folder), retry: options.retry })
    }

    /// Where lasting data is.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Where nodes agree, if that is not the database.
    pub fn redis(&self) -> Option<&Redis> {
        self.redis.as_ref()
    }

    /// The folder of this process.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Tries until every server answers, telling `on_wait` about each attempt that failed and how
    /// long it waits before the next. Gives up at once on what only a person can mend, and when
    /// `stop` is called.
    pub async fn wait_until_reachable(
        &self,
        stop: &CancellationToken,
        mut on_wait: impl FnMut(&StoreError, &skep_policy::Decision<Duration>),
    ) -> Result<(), StoreError> {
        let seed = uuid::Uuid::new_v4().as_u64_pair().1;
        let mut chance = SeededChance::new(seed);
        for server in self.servers() {
            let mut attempt = 0;
            while let Some(Err(error)) = stop.run_until_cancelled(server.ask()).await {
                if !error.is_temporary() {
                    return Err(error);
                }
                attempt += 1;
                let wait = backoff::wait_before_attempt(attempt, &self.retry, &mut chance);
                on_wait(&error, &wait);
                if stop.run_until_cancelled(tokio::time::sleep(wait.chosen)).await.is_none() {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn servers(&self) -> impl Iterator<Item = Server<'_>> {
        let postgres = match &self.database {
            Database::Postgres(postgres) => Some(Server::Postgres(postgres)),
            Database::Sqlite(_) => None,
        };
        postgres.into_iter().chain(self.redis.as_ref().map(Server::Redis))
    }

    /// Applies what is pending of `schemas` and of the store's own.
    pub async fn migrate(&self, schemas: &[Schema]) -> Result<Vec<MigrationStatus>, MigrateError> {
        self.database.migrate(schemas).await
    }

    /// The installation of the database.
    pub async fn installation(&self) -> Result<Installation, StoreError> {
        self.database.installation().await
    }

    /// How each store is doing now; asked together, so the slowest sets the time.
    pub async fn health(&self) -> Vec<Health> {
        let database = async {
            match &self.database {
                Database::Sqlite(sqlite) => sqlite.health().await,
                Database::Postgres(postgres) => postgres.health().await,
            }
        };
        let redis = async {
            match &self.redis {
                Some(redis) => Some(redis.health().await),
                None => None,
            }
        };
        let (database, redis) = tokio::join!(database, redis);
        std::iter::once(database).chain(redis).collect()
    }

    /// Resolves when an embedded store ended by itself, which is a fault of this process.
    pub async fn failed(&self) {
        match &self.database {
            Database::Sqlite(sqlite) => sqlite.ended().await,
            Database::Postgres(_) => std::future::pending().await,
        }
    }

    /// Adds the stores' metrics to a node's registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        match &self.database {
            Database::Sqlite(sqlite) => sqlite.register_metrics(registry),
            Database::Postgres(postgres) => postgres.register_metrics(registry),
        }
    }

    /// Brings gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        if let Database::Postgres(postgres) = &self.database {
            postgres.refresh_metrics();
        }
    }

    /// Finishes what was queued and closes everything.
    pub async fn close(&self) {
        match &self.database {
            Database::Sqlite(sqlite) => sqlite.close().await,
            Database::Postgres(postgres) => postgres.close(),
        }
    }
}
