//! The store against a real server.

mod admin;
mod browsing;
mod claims;
mod limits;
mod operations;
mod plans;
mod pushes;
mod races;
mod settles;
mod waiting;

use super::PostgresQueues;
use crate::ids::PartitionId;
use crate::options::{QueueOptions, QueuesOptions};
use crate::record::{Record, Records, Wishes};
use crate::store::*;
use skep_policy::queues::{LeaseId, Settled, Start, Verdict};
use skep_store::{Database, Postgres, PostgresOptions};
use skep_testkit::TestDatabase;
use std::borrow::Cow;
use std::sync::Arc;
use tokio::sync::oneshot;
use uuid::Uuid;

pub(super) struct Rig {
    pub database: TestDatabase<'static>,
    pub postgres: Postgres,
    pub store: PostgresQueues,
}

pub(super) async fn rig() -> Rig {
    let database = skep_testkit::Postgres::shared().database();
    let url = database.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    Database::Postgres(postgres.clone()).migrate(&[SCHEMA]).await.expect("migrates");
    let store = PostgresQueues::new(postgres.clone(), &QueuesOptions::default());
    Rig { database, postgres, store }
}

impl Rig {
    /// Another node.
    pub(super) fn another(&self) -> PostgresQueues {
        let url = self.database.url().parse().expect("an address");
        let postgres = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
        PostgresQueues::new(postgres, &QueuesOptions::default())
    }
}

pub(super) fn message(queue: &str, partition: &str, transaction: &str) -> NewMessage {
    wished(queue, partition, transaction, Wishes::default())
}

pub(super) fn wished(
    queue: &str,
    partition: &str,
    transaction: &str,
    wishes: Wishes,
) -> NewMessage {
    let id = Uuid::now_v7();
    let payload = format!("{{\"of\":\"{transaction}\"}}");
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

pub(super) fn messages(queue: &str, partition: &str, names: &[&str]) -> Vec<NewMessage> {
    names.iter().map(|name| message(queue, partition, name)).collect()
}

pub(super) async fn try_push(
    store: &PostgresQueues,
    messages: Vec<NewMessage>,
) -> Result<Vec<Pushed>, WorkError> {
    let (answer, answered) = oneshot::channel();
    store.run(vec![Job::Push(messages, answer)]).await;
    answered.await.expect("an answer")
}

pub(super) async fn push(store: &PostgresQueues, messages: Vec<NewMessage>) -> Vec<Pushed> {
    try_push(store, messages).await.expect("pushes")
}

pub(super) fn from_queue(queue: &str, group: &str, batch: u32) -> ClaimJob {
    ClaimJob {
        target: Target::Queue(queue.into()),
        group: group.into(),
        start: Some(Start::All),
        batch,
        partitions: 1,
        lease: LeaseId(Uuid::new_v4().as_u128()),
        lease_seconds: None,
        auto_ack: false,
    }
}

pub(super) fn from_partition(queue: &str, partition: &str, group: &str) -> ClaimJob {
    let target = Target::Partition(queue.into(), partition.into());
    ClaimJob { target, ..from_queue(queue, group, 100) }
}

pub(super) async fn claim(store: &PostgresQueues, job: ClaimJob) -> Claimed {
    let (answer, answered) = oneshot::channel();
    store.run(vec![Job::Claim(job, answer)]).await;
    answered.await.expect("an answer").expect("claims")
}

/// The transaction ids of what was claimed, by partition.
pub(super) fn names(claimed: &Claimed) -> Vec<(String, Vec<String>)> {
    let of_lane = |lane: &ClaimedLane| {
        let records = lane.parts.iter().flat_map(|part| Records::of(&part.records));
        let names = records.map(|record| record.expect("whole").transaction.into_owned());
        (lane.partition.to_string(), names.collect())
    };
    claimed.lanes.iter().map(of_lane).collect()
}

/// The transaction ids of what was claimed.
pub(super) fn all_names(claimed: &Claimed) -> Vec<String> {
    names(claimed).into_iter().flat_map(|lane| lane.1).collect()
}

pub(super) fn item(
    partition: PartitionId,
    transaction: &str,
    verdict: Verdict,
    lease: Option<LeaseId>,
) -> SettleItem {
    let partition = Some(partition);
    SettleItem {
        partition,
        transaction: transaction.into(),
        verdict,
        lease,
        error: None,
        after: None,
    }
}

pub(super) async fn settle(
    store: &PostgresQueues,
    group: &str,
    items: Vec<SettleItem>,
) -> Vec<Settled> {
    let (answer, answered) = oneshot::channel();
    store.run(vec![Job::Settle { group: group.into(), items, answer }]).await;
    let settled = answered.await.expect("an answer").expect("settles");
    settled.into_iter().map(|one| one.settled).collect()
}

/// Settles everything that was claimed.
pub(super) async fn complete(
    store: &PostgresQueues,
    group: &str,
    lease: LeaseId,
    claimed: &Claimed,
) -> Vec<Settled> {
    let mut items = Vec::new();
    for (lane, (_, names)) in claimed.lanes.iter().zip(names(claimed)) {
        let item = |name: &String| item(lane.id, name, Verdict::Completed, Some(lease));
        items.extend(names.iter().map(item));
    }
    settle(store, group, items).await
}

pub(super) async fn configure(
    store: &PostgresQueues,
    name: &str,
    change: impl Fn(QueueOptions) -> QueueOptions + Send + Sync + 'static,
) -> Configured {
    let change = Change(Arc::new(move |options: &QueueOptions| change(options.clone())));
    let wish = Configure { name: name.into(), namespace: None, task: None, change };
    store.configure(wish).await.expect("configures")
}
