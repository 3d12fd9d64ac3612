//! All stores of a process, as one handle.

use crate::url::{CoordinationUrl, DatabaseUrl};
use crate::{
    DataFolder, Health, Installation, MigrateError, MigrationStatus, Postgres, PostgresOptions,
    Redis, RedisOptions, Schema, Sqlite, SqliteOptions, StoreError,
};
use prometheus_client::registry::Registry;
use skep_policy::{SeededChance, backoff};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
    /// Opens the database alone, for chores beside a node. The embedded one belongs to a process,
    /// so its folder is locked; PostgreSQL needs no folder.
    pub fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        match &options.database {
            DatabaseUrl::Embedded => {
                let folder = Arc::new(DataFolder::open(&options.data)?);
                Sqlite::open(&folder, &options.sqlite).map(Database::Sqlite)
            }
            DatabaseUrl::Postgres(url) => {
                Postgres::new(url, &options.postgres).map(Database::Postgres)
            }
        }
    }

    /// Whether there is something to open; an embedded database that was never made is not there.
    pub fn exists(options: &StoreOptions) -> bool {
        match &options.database {
            DatabaseUrl::Embedded => DataFolder::database_in(&options.data).exists(),
            DatabaseUrl::Postgres(_) => true,
        }
    }

    /// Finishes what was queued and closes the database.
    pub async fn close(&self) {
        match self {
            Database::Sqlite(sqlite) => sqlite.close().await,
            Database::Postgres(postgres) => postgres.close(),
        }
    }

    /// `sqlite` or `postgres`.
    pub fn name(&self) -> &'static str {
        match self {
            Database::Sqlite(_) => crate::sqlite::NAME,
            Database::Postgres(_) => crate::postgres::NAME,
        }
    }
}

/// Where nodes agree on who does what. Its connections are its own: whoever waits for a slow
/// statement must not hold up the renewal of a session.
#[derive(Clone)]
pub enum Agreement {
    /// In this process, the only one.
    Embedded,
    /// In Redis.
    Redis(Redis),
    /// In the database.
    Postgres(Postgres),
}

/// Connections to PostgreSQL for what nodes agree on.
const AGREEMENT_CONNECTIONS: usize = 2;

/// A call that has not been answered after this time says that the connection is dead.
const AGREEMENT_CALL_LIMIT: Duration = Duration::from_millis(1_500);

fn agreement(options: &StoreOptions) -> Result<Agreement, StoreError> {
    if let CoordinationUrl::Redis(url) = &options.coordination {
        let mut limits = options.redis;
        limits.call_timeout = limits.call_timeout.min(AGREEMENT_CALL_LIMIT);
        limits.connect_timeout = limits.connect_timeout.min(limits.call_timeout);
        return Redis::new(url, &limits).map(Agreement::Redis);
    }
    match &options.database {
        DatabaseUrl::Embedded => Ok(Agreement::Embedded),
        DatabaseUrl::Postgres(url) => {
            let mut limits = options.postgres;
            limits.connections_max = AGREEMENT_CONNECTIONS;
            Postgres::new(url, &limits).map(Agreement::Postgres)
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
    agreement: Agreement,
    folder: Arc<DataFolder>,
    retry: backoff::Options,
    common: Arc<Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>,
}

impl Stores {
    /// Locks the data folder and opens what is embedded. Servers are not contacted yet: that is
    /// [`Stores::wait_until_reachable`]. Must be called inside a tokio runtime.
    pub fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        let folder = Arc::new(DataFolder::open(&options.data)?);
        let database = match &options.database {
            DatabaseUrl::Embedded => Database::Sqlite(Sqlite::open(&folder, &options.sqlite)?),
            DatabaseUrl::Postgres(_) => Database::open(options)?,
        };
        let redis = match &options.coordination {
            CoordinationUrl::Database => None,
            CoordinationUrl::Redis(url) => Some(Redis::new(url, &options.redis)?),
        };
        let (agreement, common) = (agreement(options)?, Arc::default());
        Ok(Stores { database, redis, agreement, folder, retry: options.retry, common })
    }

    /// Where lasting data is.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Where nodes agree, if that is not the database.
    pub fn redis(&self) -> Option<&Redis> {
        self.redis.as_ref()
    }

    /// Where nodes agree on who does what, on connections of its own.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// What the nodes of this process have in common beside the stores themselves: one of each
    /// type, made by the first that asks.
    pub fn common<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut common = self.common.lock().unwrap_or_else(PoisonError::into_inner);
        let one = common.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        one.clone().downcast().unwrap_or_else(|_| unreachable!("it is kept under its type"))
    }

    /// The folder of this process.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Tries until every server answers, telling `on_wait` about each attempt that failed and how
    /// long it waits before the next. Gives up at once on what only a person can mend.
    pub async fn wait_until_reachable(
        &self,
        mut on_wait: impl FnMut(&StoreError, &skep_policy::Decision<Duration>),
    ) -> Result<(), StoreError> {
        let seed = uuid::Uuid::new_v4().as_u64_pair().1;
        let mut chance = SeededChance::new(seed);
        for server in self.servers() {
            let mut attempt = 0;
            while let Err(error) = server.ask().await {
                if !error.is_temporary() {
                    return Err(error);
                }
                attempt += 1;
                let wait = backoff::wait_before_attempt(attempt, &self.retry, &mut chance);
                on_wait(&error, &wait);
                tokio::time::sleep(wait.chosen).await;
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

    /// Applies what is pending of `schemas`, which must be all of this program's.
    pub async fn migrate(&self, schemas: &[Schema]) -> Result<Vec<MigrationStatus>, MigrateError> {
        self.database.migrate(schemas).await
    }

    /// The installation of the database.
    pub async fn installation(&self) -> Result<Installation, StoreError> {
        self.database.installation().await
    }

    /// How each store is doing now; asked together, each for at most `limit`.
    pub async fn health(&self, limit: Duration) -> Vec<Health> {
        let database = async {
            match &self.database {
                Database::Sqlite(sqlite) => sqlite.health(limit).await,
                Database::Postgres(postgres) => postgres.health(limit).await,
            }
        };
        let redis = async {
            match &self.redis {
                Some(redis) => Some(redis.health(limit).await),
                None => None,
            }
        };
        let (database, redis) = tokio::join!(database, redis);
        std::iter::once(database).chain(redis).collect()
    }

    /// Resolves when an embedded store ended by itself, which is a fault of this process.
    pub async fn failed(&self) {
        match &self.database {
            Database::Sqlite(sqlite) => sqlite.failed().await,
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

    /// The waits between attempts that failed.
    pub fn retry(&self) -> backoff::Options {
        self.retry
    }

    /// Finishes what was queued and closes everything.
    pub async fn close(&self) {
        if let Agreement::Postgres(postgres) = &self.agreement {
            postgres.close();
        }
        self.database.close().await;
    }
}
