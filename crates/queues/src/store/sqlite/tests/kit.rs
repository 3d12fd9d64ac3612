//! A store whose time a test moves, and short ways to ask it something.

use crate::options::{QueueOptions, QueuesOptions};
use crate::record::{Record, Records, Wishes};
use crate::store::{
    Change, ClaimJob, Claimed, Configure, DeadFilter, DeadLetter, ItemSettled, Job, NewMessage,
    NotDone, Pushed, SCHEMA, SettleItem, SqliteQueues, Step, StepDone, Target, TransactionJob,
    Wake, WorkError,
};
use skep_policy::Time;
use skep_policy::queues::{LeaseId, Settled, Start, Verdict};
use skep_store::{Database, Sqlite, StoreOptions, Stores};
use skep_testkit::FakeClock;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use uuid::Uuid;

pub struct Kit {
    pub queues: SqliteQueues,
    pub clock: Arc<FakeClock>,
    stores: Stores,
    folder: TempDir,
}

impl Kit {
    pub async fn new() -> Self {
        Self::with(&QueuesOptions::default()).await
    }

    pub async fn with(options: &QueuesOptions) -> Self {
        Self::open(tempfile::tempdir().unwrap(), options).await
    }

    async fn open(folder: TempDir, options: &QueuesOptions) -> Self {
        let stores = Stores::open(&StoreOptions::embedded(folder.path())).unwrap();
        stores.migrate(&[skep_store::SCHEMA, SCHEMA]).await.unwrap();
        let clock = Arc::new(FakeClock::at(Time::from_millis(5)));
        let Database::Sqlite(sqlite) = stores.database() else { unreachable!() };
        let queues = SqliteQueues::open_by(sqlite.clone(), options, clock.clone()).await.unwrap();
        Kit { queues, clock, stores, folder }
    }

    pub async fn reopen(self, options: &QueuesOptions) -> Self {
        drop(self.queues);
        self.stores.close().await;
        drop(self.stores);
        Self::open(self.folder, options).await
    }

    pub fn sqlite(&self) -> &Sqlite {
        let Database::Sqlite(sqlite) = self.stores.database() else { unreachable!() };
        sqlite
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        let read = move |db: &rusqlite::Connection| {
            Ok::<_, skep_store::StoreError>(db.query_row(sql, [], |row| row.get(0))?)
        };
        self.sqlite().read(read).await.unwrap()
    }

    pub fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub async fn configure(
        &self,
        name: &str,
        change: impl Fn(&mut QueueOptions) + Send + Sync + 'static,
    ) {
        let change = move |before: &QueueOptions| {
            let mut options = before.clone();
            change(&mut options);
            options
        };
        let wish = Configure {
            name: name.into(),
            namespace: None,
            task: None,
            change: Change(Arc::new(change)),
        };
        self.queues.configure(wish).await.unwrap();
    }

    pub async fn try_push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, WorkError> {
        let (answer, got) = oneshot::channel();
        self.queues.run(vec![Job::Push(messages, answer)]).await;
        got.await.unwrap()
    }

    /// Pushes messages with these transaction ids.
    pub async fn push(&self, queue: &str, partition: &str, ids: &[&str]) -> Vec<Pushed> {
        let messages = ids.iter().map(|id| message(queue, partition, id)).collect();
        self.try_push(messages).await.unwrap()
    }

    pub async fn claim(&self, job: ClaimJob) -> Claimed {
        let (answer, got) = oneshot::channel();
        self.queues.run(vec![Job::Claim(job, answer)]).await;
        got.await.unwrap().unwrap()
    }

    /// The transaction ids that a claim gets.
    pub async fn take(&self, job: ClaimJob) -> Vec<String> {
        ids(&self.claim(job).await)
    }

    pub async fn settle(&self, group: &str, items: Vec<SettleItem>) -> Vec<Settled> {
        let settled = self.settle_items(group, items).await.0;
        settled.into_iter().map(|item| item.settled).collect()
    }

    pub async fn settle_items(
        &self,
        group: &str,
        items: Vec<SettleItem>,
    ) -> (Vec<ItemSettled>, Vec<Wake>) {
        let (answer, got) = oneshot::channel();
        let group = group.into();
        let wakes = self.queues.run(vec![Job::Settle { group, items, answer }]).await;
        (got.await.unwrap().unwrap(), wakes)
    }

    /// Gives a lease back. Tells who is woken.
    pub async fn release(&self, lease: u128) -> Vec<Wake> {
        let (answer, got) = oneshot::channel();
        let wakes = self.queues.run(vec![Job::Release { lease: LeaseId(lease), answer }]).await;
        assert!(got.await.unwrap().unwrap() > 0, "it holds something");
        wakes
    }

    pub async fn transaction(
        &self,
        steps: Vec<Step>,
        required: &[u128],
    ) -> Result<Result<Vec<StepDone>, NotDone>, WorkError> {
        let (answer, got) = oneshot::channel();
        let required = required.iter().map(|id| LeaseId(*id)).collect();
        let job = TransactionJob { steps, required, takes: Vec::new() };
        self.queues.run(vec![Job::Transaction(job, answer)]).await;
        got.await.unwrap()
    }

    pub async fn dead(&self, queue: &str) -> Vec<DeadLetter> {
        let filter = DeadFilter { queue: Some(queue.into()), limit: 100, ..DeadFilter::default() };
        let found = self.queues.dead_letters(filter).await.unwrap();
        assert_eq!(found.total, found.letters.len() as u64);
        found.letters
    }
}

/// A message whose payload is made of its transaction id.
pub fn message(queue: &str, partition: &str, id: &str) -> NewMessage {
    sized(queue, partition, id, 0)
}

pub fn sized(queue: &str, partition: &str, id: &str, bytes: usize) -> NewMessage {
    wished(queue, partition, id, bytes, Wishes::default())
}

/// A message of a level of its partition.
pub fn leveled(queue: &str, partition: &str, id: &str, level: u8) -> NewMessage {
    wished(queue, partition, id, 0, Wishes { priority: level, ..Wishes::default() })
}

/// A message that waits until then.
pub fn delayed(queue: &str, partition: &str, id: &str, due: Time) -> NewMessage {
    wished(queue, partition, id, 0, Wishes { due: Some(due), ..Wishes::default() })
}

fn wished(queue: &str, partition: &str, id: &str, bytes: usize, wishes: Wishes) -> NewMessage {
    let uuid = Uuid::now_v7();
    let payload = format!("\"{id}{}\"", "x".repeat(bytes));
    let record = Record {
        id: uuid,
        transaction: Cow::Borrowed(id),
        trace: None,
        producer: None,
        wishes,
        encrypted: false,
        payload: payload.as_bytes(),
    };
    NewMessage::of(queue.into(), partition.into(), &record, record.encode())
}

/// A claim of `batch` messages of one partition of a queue.
pub fn want(queue: &str, group: &str, lease: u128, batch: u32) -> ClaimJob {
    ClaimJob {
        target: Target::Queue(queue.into()),
        group: group.into(),
        start: Some(Start::All),
        batch,
        partitions: 1,
        lease: LeaseId(lease),
        lease_seconds: None,
        auto_ack: false,
    }
}

pub fn of_partition(queue: &str, partition: &str, mut job: ClaimJob) -> ClaimJob {
    job.target = Target::Partition(queue.into(), partition.into());
    job
}

pub fn ids(claimed: &Claimed) -> Vec<String> {
    let parts = claimed.lanes.iter().flat_map(|lane| &lane.parts);
    let mut ids = Vec::new();
    for part in parts {
        let before = ids.len();
        for record in Records::of(&part.records) {
            ids.push(record.unwrap().transaction.into_owned());
        }
        assert_eq!(ids.len() - before, part.count as usize);
    }
    ids
}

pub fn item(pushed: Pushed, id: &str, verdict: Verdict, lease: Option<u128>) -> SettleItem {
    SettleItem {
        partition: Some(pushed.partition),
        transaction: id.into(),
        verdict,
        lease: lease.map(LeaseId),
        error: Some(format!("{id} went wrong").into()),
        after: None,
    }
}

pub const DONE: Settled = Settled::Done { released: false };
pub const ALL_DONE: Settled = Settled::Done { released: true };
