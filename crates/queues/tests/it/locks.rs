//! Somebody else has rows of one queue locked in PostgreSQL, as a node does that hangs in the
//! middle of a transaction. Only those who want these rows may notice.

use crate::kit::*;
use skep_policy::queues::{Settled, Start, Verdict};
use skep_queues::record::{Records, Wishes};
use skep_queues::store::*;
use skep_queues::{NewItem, Pop, Popped, PushStatus, Queues, QueuesMetrics, QueuesOptions};
use skep_store::Database;
use std::future::Future;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A statement waits so long for a lock before it fails.
const STATEMENT: Duration = Duration::from_secs(30);
/// What has nothing to do with the lock takes a small part of that at most.
const BRIEFLY: Duration = Duration::from_secs(3);
const OTHERS: usize = 4;
const TURNS: usize = 6;

async fn node(place: &Place) -> Queues {
    let (store, metrics) = (place.open().await.whole(), QueuesMetrics::default());
    let options = QueuesOptions::default();
    Queues::open(store, None, None, metrics, &options).await.expect("opens")
}

/// Locks rows until it is dropped or told to commit.
async fn lock(place: &Place, rows: &str) -> skep_store::PostgresClient {
    let Database::Postgres(postgres) = &place.database else { panic!("not on PostgreSQL") };
    let client = postgres.client().await.expect("connects");
    // It is no node: nobody ends it.
    let hold = "SET idle_in_transaction_session_timeout = 0; BEGIN";
    client.batch_execute(&format!("{hold}; {rows} FOR UPDATE")).await.expect("locks");
    client
}

fn item(queue: &str, transaction: &str) -> NewItem {
    NewItem {
        queue: queue.into(),
        partition: "p".into(),
        payload: payload_of(transaction).into_bytes().into(),
        transaction: Some(transaction.into()),
        trace: None,
        producer: None,
        wishes: Wishes::default(),
    }
}

async fn push(node: &Queues, queue: &str, transaction: &str) {
    let pushed = node.push(&[item(queue, transaction)]).await.expect("is kept");
    assert_eq!(pushed[0].status, PushStatus::Queued);
}

fn pop_of(target: Target, wait: Option<Duration>) -> Pop {
    Pop {
        target,
        group: "g".into(),
        start: Some(Start::All),
        batch: 1,
        partitions: 1,
        lease_seconds: Some(600),
        auto_ack: false,
        wait,
    }
}

fn of(queue: &str, wait: Option<Duration>) -> Pop {
    pop_of(Target::Queue(queue.into()), wait)
}

fn names_of(popped: &Popped) -> Vec<String> {
    let parts = popped.claimed().lanes.iter().flat_map(|lane| &lane.parts);
    let records = parts.flat_map(|part| Records::of(&part.records));
    records.map(|record| record.expect("is whole").transaction.into_owned()).collect()
}

/// Says that all of it is done; the names.
async fn settle(node: &Queues, popped: Popped) -> Vec<String> {
    let names = names_of(&popped);
    let partition = popped.claimed().lanes.first().map(|lane| lane.id);
    let lease = popped.lease();
    popped.arrived();
    let word = |name: &String| SettleItem {
        partition,
        transaction: name.as_str().into(),
        verdict: Verdict::Completed,
        lease: Some(lease),
        error: None,
        after: None,
    };
    let settled = node.settle("g".into(), names.iter().map(word).collect()).await.expect("settles");
    assert!(settled.iter().all(|one| matches!(one.settled, Settled::Done { .. })), "{settled:?}");
    names
}

async fn briefly<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(BRIEFLY, work).await.unwrap_or_else(|_| panic!("{what} waited for a foreign lock"))
}

/// Everything that is done with queues, for some that nobody has locked.
async fn others_go_on(node: &Queues, kind: &'static str) {
    let mut work = JoinSet::new();
    for other in 0..OTHERS {
        let (node, queue) = (node.clone(), format!("other{other}"));
        work.spawn(async move {
            for turn in 0..TURNS {
                let name = format!("{kind}.{other}.{turn}");
                briefly("a push", push(&node, &queue, &name)).await;
                let pop = of(&queue, Some(STATEMENT));
                let popped = briefly("a pop", node.pop(&pop)).await.expect("is answered");
                let lease = popped.lease();
                let until = briefly("an extension", node.extend(lease, 60)).await;
                assert!(until.expect("is answered").is_some());
                assert_eq!(briefly("an ack", settle(&node, popped)).await, [name]);
            }
        });
    }
    while let Some(done) = work.join_next().await {
        done.expect("goes on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_queues_go_on_while_a_lane_is_locked_and_nothing_of_it_is_lost() {
    const IN_A_ROW: usize = 4;
    const BESIDE: usize = 8;
    let place = Place::postgres().await;
    let node = node(&place).await;
    push(&node, "stuck", "leased").await;
    let leased = node.pop(&of("stuck", None)).await.expect("is answered");
    assert_eq!(names_of(&leased), ["leased"]);
    // One that hands out at once, and one that somebody works on.
    push(&node, "ready", "first").await;
    let empty = node.pop(&of("ready", None)).await.expect("is answered");
    assert_eq!(settle(&node, empty).await, ["first"]);
    push(&node, "ready", "second").await;

    let held = lock(&place, "SELECT 1 FROM skep_queue_lanes").await;
    let mut stuck = JoinSet::new();
    let one_after_the_other = node.clone();
    stuck.spawn(async move {
        for number in 0..IN_A_ROW {
            push(&one_after_the_other, "ready", &format!("row.{number}")).await;
        }
    });
    for number in 0..BESIDE {
        let node = node.clone();
        stuck.spawn(async move { push(&node, "ready", &format!("beside.{number}")).await });
    }
    let acking = node.clone();
    stuck.spawn(async move {
        let until = acking.extend(leased.lease(), 600).await.expect("is answered");
        assert!(until.is_some(), "the lease is still its own");
        settle(&acking, leased).await;
    });
    let mut pops = JoinSet::new();
    for number in 0..BESIDE {
        let node = node.clone();
        let target = match number % 2 {
            0 => Target::Queue("ready".into()),
            _ => Target::Partition("ready".into(), "p".into()),
        };
        pops.spawn(async move { node.pop(&pop_of(target, Some(STATEMENT))).await });
    }
    others_go_on(&node, "lanes").await;
    let none = briefly("a look", node.pop(&of("ready", None))).await.expect("is answered");
    assert!(none.claimed().lanes.is_empty(), "what is locked is not handed out");
    assert!(stuck.try_join_next().is_none() && pops.try_join_next().is_none(), "it is locked");

    held.batch_execute("COMMIT").await.expect("lets go");
    while let Some(done) = timeout(BRIEFLY, stuck.join_next()).await.expect("goes on soon") {
        done.expect("is done once the lock is gone");
    }
    let mut got = Vec::new();
    while got.len() < 1 + IN_A_ROW + BESIDE {
        let popped = match timeout(BRIEFLY, pops.join_next()).await.expect("a pop is answered") {
            Some(popped) => popped.expect("pops"),
            None => node.pop(&of("ready", Some(BRIEFLY))).await,
        };
        got.extend(settle(&node, popped.expect("is answered")).await);
    }
    assert_eq!(got[0], "second", "what was there before comes first");
    let row: Vec<&String> = got.iter().filter(|name| name.starts_with("row")).collect();
    assert_eq!(row, ["row.0", "row.1", "row.2", "row.3"], "in their order");
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 1 + IN_A_ROW + BESIDE, "each once");
    let none = node.pop(&of("ready", None)).await.expect("is answered");
    assert!(none.claimed().lanes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_queues_go_on_while_partitions_and_limits_of_one_are_locked() {
    let place = Place::postgres().await;
    let (node, store) = (node(&place).await, place.open().await);
    store.configure("limited", |options| options.max_in_flight = 2).await;
    push(&node, "limited", "first").await;
    let leased = node.pop(&of("limited", None)).await.expect("is answered");
    push(&node, "limited", "second").await;
    let partitions = "SELECT 1 FROM skep_queue_partitions
                      WHERE queue = (SELECT id FROM skep_queues WHERE name = 'limited')";
    for (kind, rows) in [("limits", "SELECT 1 FROM skep_queue_grants"), ("p", partitions)] {
        let held = lock(&place, rows).await;
        let pop = of("limited", Some(STATEMENT));
        let (popping, pushing) = (node.clone(), node.clone());
        let pop = tokio::spawn(async move { popping.pop(&pop).await });
        let name = format!("while {kind}");
        let push = tokio::spawn(async move { push(&pushing, "limited", &name).await });
        others_go_on(&node, kind).await;
        held.batch_execute("COMMIT").await.expect("lets go");
        timeout(BRIEFLY, push).await.expect("goes on soon").expect("is kept");
        pop.abort();
        let _ = pop.await;
    }
    assert_eq!(settle(&node, leased).await, ["first"]);
    let second = node.pop(&of("limited", Some(BRIEFLY))).await.expect("is answered");
    assert_eq!(names_of(&second), ["second"]);
}
