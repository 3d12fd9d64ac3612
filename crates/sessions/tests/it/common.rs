//! Tables to test.

use skep_policy::sessions::Fleet;
use skep_sessions::{MemoryTable, PostgresTable, RedisTable, TableStore};
use skep_store::{Database, PostgresOptions, RedisOptions};
use skep_testkit::{PATIENCE, TestDatabase};
use std::sync::OnceLock;
use std::time::Duration;

pub fn redis_at(url: &str) -> skep_store::Redis {
    let options = RedisOptions {
        connect_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_secs(20),
    };
    skep_store::Redis::new(&url.parse().expect("an address"), &options).expect("a handle")
}

/// The server that tests share which do not harm it.
pub fn shared_redis() -> skep_store::Redis {
    static SHARED: OnceLock<skep_testkit::Redis> = OnceLock::new();
    redis_at(&SHARED.get_or_init(skep_testkit::Redis::start).url())
}

pub fn postgres_at(url: &str) -> skep_store::Postgres {
    let options = PostgresOptions { connections_max: 4, ..PostgresOptions::default() };
    skep_store::Postgres::new(&url.parse().expect("an address"), &options).expect("a pool")
}

/// A pool on a database with the tables.
pub async fn migrated(url: &str) -> skep_store::Postgres {
    let postgres = postgres_at(url);
    let database = Database::Postgres(postgres.clone());
    database.migrate(&[skep_sessions::SCHEMA]).await.expect("migrates");
    postgres
}

/// A table in some store, that knows nothing yet.
pub struct Fixture {
    pub store: TableStore,
    /// The server, and the installation on it.
    pub redis: Option<(skep_store::Redis, String)>,
    pub database: Option<TestDatabase<'static>>,
}

impl Fixture {
    pub fn memory() -> Self {
        Fixture::of(TableStore::Memory(MemoryTable::new()))
    }

    pub fn redis() -> Self {
        let (redis, id) = (shared_redis(), uuid::Uuid::new_v4().to_string());
        let store = TableStore::Redis(RedisTable::new(&redis, &id));
        Fixture { redis: Some((redis, id)), ..Fixture::of(store) }
    }

    pub async fn postgres() -> Self {
        let database = skep_testkit::Postgres::shared().database();
        let postgres = migrated(&database.url()).await;
        let store = TableStore::Postgres(PostgresTable::new(&postgres).with_limit(PATIENCE));
        Fixture { database: Some(database), ..Fixture::of(store) }
    }

    fn of(store: TableStore) -> Self {
        Fixture { store, redis: None, database: None }
    }

    /// One in each store.
    pub async fn all() -> Vec<Self> {
        vec![Fixture::memory(), Fixture::redis(), Fixture::postgres().await]
    }

    /// The same table, through a connection of its own.
    pub async fn another(&self) -> TableStore {
        match &self.store {
            TableStore::Memory(table) => TableStore::Memory(table.clone()),
            TableStore::Redis(_) => {
                let (_, id) = self.redis.as_ref().expect("has its server");
                TableStore::Redis(RedisTable::new(&shared_redis(), id))
            }
            TableStore::Postgres(_) => {
                let database = self.database.as_ref().expect("has its database");
                let postgres = postgres_at(&database.url());
                TableStore::Postgres(PostgresTable::new(&postgres).with_limit(PATIENCE))
            }
        }
    }

    /// Lets the store lose everything.
    pub async fn lose(&self) {
        match &self.store {
            TableStore::Memory(table) => table.change(|fleet| *fleet = Fleet::new()),
            TableStore::Redis(_) => {
                let (redis, id) = self.redis.as_ref().expect("has its server");
                let mut forget = redis::cmd("UNLINK");
                for key in ["rows", "index"] {
                    forget.arg(format!("skep:{{{id}}}:sessions:{key}"));
                }
                redis.command::<i64>(&forget).await.expect("is forgotten");
            }
            TableStore::Postgres(_) => {
                let database = self.database.as_ref().expect("has its database");
                database.run("DELETE FROM skep_session_meta");
            }
        }
    }
}
