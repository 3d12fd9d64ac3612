//! Tables to test, and somebody who asks them.

use skep_nodes::{MemoryTable, PostgresTable, RedisTable, TableStore};
use skep_policy::ownership::{
    Answer, Ask, Caller, Epoch, Key, Reply, Request, Row, Seen, Status, Table, Ticked,
};
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
    database.migrate(&[skep_nodes::SCHEMA]).await.expect("migrates");
    postgres
}

/// A table in some store, that knows nothing yet.
pub struct Fixture {
    pub store: TableStore,
    redis: Option<(skep_store::Redis, String)>,
    database: Option<TestDatabase<'static>>,
    run: std::cell::Cell<u64>,
}

impl Fixture {
    pub fn memory(tombstones_max: usize) -> Self {
        let table = MemoryTable::of(Table::shared(0).with_tombstones_max(tombstones_max));
        Fixture::of(TableStore::Memory(table))
    }

    pub fn redis(tombstones_max: usize) -> Self {
        let (redis, id) = (shared_redis(), uuid::Uuid::new_v4().to_string());
        let table = RedisTable::new(&redis, &id).with_tombstones_max(tombstones_max);
        Fixture { redis: Some((redis, id)), ..Fixture::of(TableStore::Redis(table)) }
    }

    pub async fn postgres(tombstones_max: usize) -> Self {
        let database = skep_testkit::Postgres::shared().database();
        let postgres = migrated(&database.url()).await;
        database.run("DELETE FROM skep_ownership_meta");
        let table = PostgresTable::new(&postgres).with_tombstones_max(tombstones_max);
        Fixture { database: Some(database), ..Fixture::of(TableStore::Postgres(table)) }
    }

    fn of(store: TableStore) -> Self {
        Fixture { store, redis: None, database: None, run: std::cell::Cell::default() }
    }

    /// One in each store.
    pub async fn all(tombstones_max: usize) -> [Self; 3] {
        [
            Fixture::memory(tombstones_max),
            Fixture::redis(tombstones_max),
            Fixture::postgres(tombstones_max).await,
        ]
    }

    /// Lets the store's next start find what this one left.
    pub async fn start_anew(&self) {
        self.run.set(self.run.get() + 1);
        if let TableStore::Memory(table) = &self.store {
            table.change(|table| table.restart(self.run.get()));
        }
        if let Some((redis, id)) = &self.redis {
            let mut forge = redis::cmd("HSET");
            forge.arg(format!("skep:{{{id}}}:meta")).arg("run").arg("another");
            redis.command::<i64>(&forge).await.expect("is forged");
        }
        if let Some(database) = &self.database {
            database.run("UPDATE skep_ownership_meta SET run = 'another'");
        }
    }

    pub fn asker(&self) -> Asker {
        Asker::of(&self.store)
    }
}

/// Somebody who asks and remembers the epoch it was told.
#[derive(Clone)]
pub struct Asker {
    pub store: TableStore,
    pub seen: Seen,
    nonce: u64,
}

impl Asker {
    pub fn of(store: &TableStore) -> Self {
        Asker { store: store.clone(), seen: Seen::default(), nonce: u64::MAX }
    }

    pub async fn reply(&mut self, ask: Ask) -> Reply {
        self.nonce -= 1;
        let request = Request { seen: self.seen, nonce: self.nonce, least: 0, ask };
        let reply = self.store.ask(&request, PATIENCE).await;
        let reply = reply.unwrap_or_else(|error| panic!("{}: {error}", self.store.name()));
        if reply.epoch != self.seen.epoch {
            self.seen = Seen { epoch: reply.epoch, counter: 0 };
        }
        reply
    }

    pub async fn ask(&mut self, ask: Ask) -> Answer {
        self.reply(ask).await.answer
    }

    /// Joins, and says who one is from then on.
    pub async fn join(&mut self, name: &str) -> Caller {
        match self.ask(join(name, "first")).await {
            Answer::Joined { session, seq } => Caller { name: name.into(), session, seq },
            other => panic!("{}: {other:?}", self.store.name()),
        }
    }

    pub async fn settle(&mut self, caller: &Caller) {
        assert_eq!(self.ask(Ask::EndGrace(caller.clone())).await, Answer::Done);
    }

    pub async fn rows(&mut self, ask: Ask) -> Vec<Row> {
        match self.ask(ask).await {
            Answer::Rows(rows) => rows,
            other => panic!("{}: {other:?}", self.store.name()),
        }
    }

    pub async fn claim(&mut self, caller: &Caller, keys: &[&str]) -> Vec<Row> {
        self.rows(Ask::Claim(caller.clone(), keys_of(keys))).await
    }

    pub async fn tick(&mut self, caller: &mut Caller, since: u64, floor: u64) -> Ticked {
        match self.ask(tick(caller, since, floor)).await {
            Answer::Ticked(ticked) => {
                caller.seq = ticked.seq;
                ticked
            }
            other => panic!("{}: {other:?}", self.store.name()),
        }
    }
}

pub fn join(name: &str, instance: &str) -> Ask {
    let (weight, status) = (1, Status::Online);
    Ask::Join { name: name.into(), instance: instance.into(), weight, status, info: "".into() }
}

pub fn tick(caller: &Caller, since: u64, floor: u64) -> Ask {
    Ask::Tick {
        name: caller.name.clone(),
        session: caller.session,
        weight: 1,
        status: Status::Online,
        info: "".into(),
        since,
        floor,
    }
}

pub fn keys_of(keys: &[&str]) -> Vec<Key> {
    keys.iter().map(|key| Key::from(*key)).collect()
}

pub fn owners(rows: &[Row]) -> Vec<u64> {
    rows.iter().map(|row| row.session).collect()
}

pub fn epoch(number: u64, tag: u64) -> Epoch {
    Epoch { number, tag }
}
