//! Either store behind one face, and short words for what tests do with it.

use skep_policy::Time;
use skep_policy::queues::{LeaseId, Settled, Start, Verdict};
use skep_queues::record::{Record, Records, Wishes};
use skep_queues::store::*;
use skep_queues::{QueueOptions, QueuesOptions};
use skep_store::{DataFolder, Database, PostgresOptions, Sqlite, SqliteOptions};
use skep_testkit::{Folder, TestDatabase};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;
use uuid::Uuid;

/// Where a store keeps what it is told; it can be opened again and again.
pub struct Place {
    pub database: Database,
    /// Both go after it.
    _folder: Option<Folder>,
    _server: Option<TestDatabase<'static>>,
}

impl Place {
    pub async fn sqlite() -> Self {
        let folder = Folder::new("queues");
        let database = in_folder(folder.path()).await;
        Place { database, _folder: Some(folder), _server: None }
    }

    pub async fn postgres() -> Self {
        let server = skep_testkit::Postgres::shared().database();
        let database = at_server(&server.url()).await;
        Place { database, _folder: None, _server: Some(server) }
    }

    /// One that lasts longer than this value.
    pub async fn of(kind: &str, place: &str) -> Self {
        let database = match kind {
            "sqlite" => in_folder(Path::new(place)).await,
            _ => at_server(place).await,
        };
        Place { database, _folder: None, _server: None }
    }

    /// A store that knows nothing but what is kept. There may be several on PostgreSQL; on SQLite
    /// the one before must be gone.
    pub async fn open(&self) -> Store {
        self.open_with(&QueuesOptions::default()).await
    }

    pub async fn open_with(&self, options: &QueuesOptions) -> Store {
        match &self.database {
            Database::Sqlite(sqlite) => {
                let store = SqliteQueues::open(sqlite.clone(), options).await;
                Store::Sqlite(store.expect("opens"))
            }
            Database::Postgres(postgres) => {
                Store::Postgres(PostgresQueues::new(postgres.clone(), options))
            }
        }
    }

    /// Gives it back, so that another process or another value may have it.
    pub async fn close(&self) {
        self.database.close().await;
    }

    pub fn shared_by_many(&self) -> bool {
        matches!(self.database, Database::Postgres(_))
    }
}

async fn in_folder(folder: &Path) -> Database {
    let data = Arc::new(DataFolder::open(folder).expect("locks"));
    let sqlite = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
    let database = Database::Sqlite(sqlite);
    database.migrate(&[SCHEMA]).await.expect("migrates");
    database
}

async fn at_server(url: &str) -> Database {
    let url = url.parse().expect("an address");
    let pool = skep_store::Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    let database = Database::Postgres(pool);
    database.migrate(&[SCHEMA]).await.expect("migrates");
    database
}

/// Makes a test on each store of each function.
macro_rules! on_each_store {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::kit::Place::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::kit::Place::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_each_store;

/// Either store.
#[derive(Clone)]
pub enum Store {
    Sqlite(SqliteQueues),
    Postgres(PostgresQueues),
}

/// Calls the same function of either.
macro_rules! either {
    ($store:expr, $inner:ident => $call:expr) => {
        match $store {
            Store::Sqlite($inner) => $call,
            Store::Postgres($inner) => $call,
        }
    };
}

/// One job by itself.
macro_rules! one {
    ($store:expr, $answer:ident => $job:expr) => {{
        let ($answer, told) = oneshot::channel();
        $store.run(vec![$job]).await;
        told.await.expect("every job is answered")
    }};
}

impl Store {
    pub async fn run(&self, jobs: Vec<Job>) -> Vec<Wake> {
        either!(self, store => store.run(jobs).await)
    }

    pub async fn try_push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, WorkError> {
        one!(self, answer => Job::Push(messages, answer))
    }

    /// Pushes messages given as queue, partition, transaction id.
    pub async fn push(&self, messages: &[(&str, &str, &str)]) -> Vec<Pushed> {
        let messages = messages.iter().map(|(q, p, t)| message(q, p, t)).collect();
        self.try_push(messages).await.expect("is kept")
    }

    pub async fn pop(&self, job: ClaimJob) -> Got {
        let lease = job.lease;
        let claimed = one!(self, answer => Job::Claim(job, answer)).expect("is answered");
        Got { claimed, lease }
    }

    /// Pops until there is something.
    pub async fn pop_soon(&self, job: ClaimJob) -> Got {
        soon("there is something", async || {
            let job = ClaimJob { lease: lease(), ..job.clone() };
            Some(self.pop(job).await).filter(|got| !got.claimed.lanes.is_empty())
        })
        .await
    }

    pub async fn settle_for(&self, group: &str, items: Vec<SettleItem>) -> Vec<Settled> {
        let group: Arc<str> = group.into();
        let settled = one!(self, answer => Job::Settle { group, items, answer });
        settled.expect("is answered").into_iter().map(|item| item.settled).collect()
    }

    pub async fn settle(&self, items: Vec<SettleItem>) -> Vec<Settled> {
        self.settle_for(GROUP, items).await
    }

    /// Settles one message.
    pub async fn say(&self, item: SettleItem) -> Settled {
        self.settle(vec![item]).await[0]
    }

    pub async fn try_transact(
        &self,
        job: TransactionJob,
    ) -> Result<Result<Vec<StepDone>, NotDone>, WorkError> {
        one!(self, answer => Job::Transaction(job, answer))
    }

    pub async fn transact(
        &self,
        steps: Vec<Step>,
        required: &[LeaseId],
    ) -> Result<Vec<StepDone>, NotDone> {
        let required = required.to_vec();
        self.try_transact(TransactionJob { steps, required, takes: Vec::new() })
            .await
            .expect("is answered")
    }

    pub async fn extend(&self, lease: LeaseId, seconds: u32) -> Option<Time> {
        one!(self, answer => Job::Extend { lease, seconds, answer }).expect("is answered")
    }

    pub async fn release(&self, lease: LeaseId) -> usize {
        one!(self, answer => Job::Release { lease, answer }).expect("is answered")
    }

    /// Sets options of a queue, which is made if it is not there.
    pub async fn configure(
        &self,
        name: &str,
        change: impl Fn(&mut QueueOptions) + Send + Sync + 'static,
    ) -> Configured {
        let changed = move |before: &QueueOptions| {
            let mut after = before.clone();
            change(&mut after);
            after
        };
        let change = Change(Arc::new(changed));
        let wish = Configure { name: name.into(), namespace: None, task: None, change };
        either!(self, store => store.configure(wish).await).expect("is configured")
    }

    pub async fn queue(&self, name: &str) -> Option<QueueInfo> {
        either!(self, store => store.queue(name).await).expect("reads")
    }

    pub async fn queues(&self, after: Option<&str>, limit: u32) -> Vec<QueueSummary> {
        either!(self, store => store.queues(after, limit).await).expect("reads")
    }

    pub async fn show(&self, name: &str) -> Option<QueueDetail> {
        either!(self, store => store.show(name, 1_000).await).expect("reads")
    }

    pub async fn delete_queue(&self, name: &str) -> bool {
        either!(self, store => store.delete_queue(name).await).expect("deletes")
    }

    pub async fn seek(&self, queue: &str, partition: Option<&str>, to: SeekTo) -> Sought {
        self.seek_for(GROUP, queue, partition, to).await
    }

    pub async fn seek_for(
        &self,
        group: &str,
        queue: &str,
        partition: Option<&str>,
        to: SeekTo,
    ) -> Sought {
        either!(self, store => store.seek(queue, group, partition, to).await).expect("seeks")
    }

    pub async fn delete_group(&self, group: &str, queue: Option<&str>) -> u64 {
        either!(self, store => store.delete_group(group, queue, false).await).expect("deletes")
    }

    pub async fn dead_letters(&self, filter: DeadFilter) -> DeadLetters {
        either!(self, store => store.dead_letters(filter).await).expect("reads")
    }

    /// The store as the rest of the server has it.
    pub fn whole(&self) -> QueueStore {
        match self {
            Store::Sqlite(store) => QueueStore::Sqlite(store.clone()),
            Store::Postgres(store) => QueueStore::Postgres(store.clone()),
        }
    }

    pub async fn tidy(&self, limit: u32) -> Tidied {
        either!(self, store => store.tidy(limit).await).expect("tidies")
    }

    /// Tidies until there is nothing more to do.
    pub async fn tidy_all(&self) -> Tidied {
        let mut sum = Tidied::default();
        for _ in 0..10_000 {
            let round = self.tidy(10).await;
            sum.messages += round.messages;
            sum.rows += round.rows;
            if !round.more {
                return sum;
            }
        }
        panic!("tidying never ends: {sum:?}")
    }

    pub async fn now(&self) -> Time {
        match self {
            Store::Sqlite(store) => store.now(),
            Store::Postgres(store) => store.now().await.expect("reads"),
        }
    }
}

/// Looks again and again until there is something.
pub async fn soon<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let runtime = tokio::runtime::Handle::current();
    let look = || runtime.block_on(look());
    tokio::task::block_in_place(|| skep_testkit::eventually(what, look))
}

/// The group of tests that need no more than one.
pub const GROUP: &str = "workers";

pub fn lease() -> LeaseId {
    LeaseId(Uuid::now_v7().as_u128())
}

/// A message whose payload tells its transaction id.
pub fn message(queue: &str, partition: &str, transaction: &str) -> NewMessage {
    wished(queue, partition, transaction, Wishes::default())
}

/// The same with wishes.
pub fn wished(queue: &str, partition: &str, transaction: &str, wishes: Wishes) -> NewMessage {
    let id = Uuid::now_v7();
    let payload = payload_of(transaction);
    let record = Record {
        id,
        transaction: Cow::Borrowed(transaction),
        trace: None,
        producer: None,
        wishes,
        encrypted: false,
        payload: payload.as_bytes(),
    };
    NewMessage::of(queue.into(), partition.into(), &record, record.encode())
}

pub fn payload_of(transaction: &str) -> String {
    format!("{{\"says\":\"{transaction}\"}}")
}

/// A claim of one message from any partition of a queue, for [`GROUP`], which reads everything.
pub fn from(queue: &str) -> ClaimJob {
    ClaimJob {
        target: Target::Queue(queue.into()),
        group: GROUP.into(),
        start: Some(Start::All),
        batch: 1,
        partitions: 1,
        lease: lease(),
        lease_seconds: None,
        auto_ack: false,
    }
}

/// A claim of up to so many messages, from as many partitions as there are.
pub fn up_to(batch: u32, queue: &str) -> ClaimJob {
    ClaimJob { batch, partitions: 1_000, ..from(queue) }
}

pub fn from_partition(queue: &str, partition: &str) -> ClaimJob {
    let target = Target::Partition(queue.into(), partition.into());
    ClaimJob { target, batch: 100, ..from(queue) }
}

/// What a claim got.
#[derive(Debug)]
pub struct Got {
    pub claimed: Claimed,
    pub lease: LeaseId,
}

/// A message that was got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub id: Uuid,
    pub transaction: String,
    pub payload: String,
    pub at: Time,
}

impl Got {
    /// The transaction ids, in the order of the answer.
    pub fn names(&self) -> Vec<String> {
        self.claimed.lanes.iter().flat_map(read).map(|read| read.transaction).collect()
    }

    /// A word about one of them, under this lease.
    pub fn word(&self, transaction: &str, verdict: Verdict) -> SettleItem {
        let has = |lane: &&ClaimedLane| read(lane).iter().any(|one| one.transaction == transaction);
        let lane = self.claimed.lanes.iter().find(has).expect("was handed out");
        SettleItem {
            partition: Some(lane.id),
            transaction: transaction.into(),
            verdict,
            lease: Some(self.lease),
            error: None,
            after: None,
        }
    }

    pub fn done(&self, transaction: &str) -> SettleItem {
        self.word(transaction, Verdict::Completed)
    }

    pub fn failed(&self, transaction: &str) -> SettleItem {
        self.word(transaction, Verdict::Failed)
    }

    /// Words that complete everything.
    pub fn all_done(&self) -> Vec<SettleItem> {
        self.names().iter().map(|name| self.done(name)).collect()
    }
}

/// The messages of a lane; their payloads are as they were pushed.
pub fn read(lane: &ClaimedLane) -> Vec<Read> {
    let mut all = Vec::new();
    for part in &lane.parts {
        let records: Result<Vec<Record<'_>>, _> = Records::of(&part.records).collect();
        let records = records.expect("records can be read");
        assert_eq!(records.len(), part.count as usize, "a part has what it says");
        all.extend(records.iter().map(|record| Read {
            id: record.id,
            transaction: record.transaction.to_string(),
            payload: String::from_utf8_lossy(record.payload).into_owned(),
            at: part.at,
        }));
    }
    for one in &all {
        assert_eq!(one.payload, payload_of(&one.transaction), "payloads stay with their messages");
    }
    all
}

/// The letters' transaction ids with their failures, newest first; their payloads are checked.
pub fn letters(dead: &DeadLetters) -> Vec<(String, u32)> {
    let letter = |letter: &DeadLetter| {
        let record = Records::of(&letter.record).next().expect("one").expect("can be read");
        let transaction = record.transaction.to_string();
        assert_eq!(record.payload, payload_of(&transaction).as_bytes());
        (transaction, letter.failures)
    };
    dead.letters.iter().map(letter).collect()
}

pub fn of_queue(queue: &str) -> DeadFilter {
    DeadFilter { queue: Some(queue.into()), limit: 100, ..DeadFilter::default() }
}

pub const DONE: Settled = Settled::Done { released: false };
pub const DONE_ALL: Settled = Settled::Done { released: true };
