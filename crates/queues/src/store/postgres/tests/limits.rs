//! Limits: lanes that are blocked and let go, and many who do so at once.

use super::*;
use skep_policy::Time;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// So long nobody can be waiting for anything but the end of a lease.
const PATIENCE: Duration = Duration::from_secs(120);

async fn limited(rig: &Rig, partitions: usize, change: fn(&mut QueueOptions)) {
    configure(&rig.store, "q", move |mut options| {
        options.limit_key_separator = "/".to_owned();
        change(&mut options);
        options
    })
    .await;
    for number in 0..partitions {
        push(&rig.store, messages("q", &format!("k/{number}"), &["a", "b"])).await;
    }
}

async fn take(store: &PostgresQueues, batch: u32) -> (LeaseId, Claimed) {
    let job = ClaimJob { partitions: batch, ..from_queue("q", "g", batch) };
    (job.lease, claim(store, job).await)
}

#[tokio::test]
async fn blocked_lanes_are_not_looked_at_again_by_every_claim() {
    let rig = rig().await;
    limited(&rig, 12, |options| options.key_max_in_flight = 2).await;
    let (lease, claimed) = take(&rig.store, 1).await;
    assert_eq!(take(&rig.store, 9).await.1.lanes.len(), 1);
    assert!(take(&rig.store, 9).await.1.lanes.is_empty());
    let blocked = "SELECT count(*) FROM skep_queue_lanes WHERE blocked_key = 'k'";
    assert_eq!(rig.database.run(blocked), "10");
    let versions = "SELECT string_agg(xmin::text, ',' ORDER BY partition) FROM skep_queue_lanes";
    let before = rig.database.run(versions);
    for _ in 0..3 {
        let (_, none) = take(&rig.another(), 9).await;
        assert!(none.lanes.is_empty());
        assert!(none.next_at.is_some_and(|at| at > none.now + Duration::from_secs(200)));
    }
    push(&rig.store, messages("q", "k/11", &["c"])).await;
    assert_eq!(rig.database.run(versions), before, "nobody has touched a lane");
    complete(&rig.store, "g", lease, &claimed).await;
    assert_eq!(rig.database.run(blocked), "9", "as many are let go as there is room for");
}

#[tokio::test]
async fn a_blocked_lane_that_somebody_has_locked_is_let_go_a_little_later() {
    let rig = rig().await;
    limited(&rig, 2, |options| options.key_max_in_flight = 1).await;
    let (lease, claimed) = take(&rig.store, 1).await;
    assert!(take(&rig.store, 1).await.1.lanes.is_empty());
    let mut client = rig.postgres.client().await.expect("a connection");
    let held = client.transaction().await.expect("begins");
    let lock = "SELECT 1 FROM skep_queue_lanes WHERE blocked_key = 'k' FOR UPDATE";
    assert_eq!(held.query(lock, &[]).await.expect("locks").len(), 1);
    let (answer, told) = oneshot::channel();
    let words = all_names(&claimed);
    let words =
        words.iter().map(|name| item(claimed.lanes[0].id, name, Verdict::Completed, Some(lease)));
    let job = Job::Settle { group: "g".into(), items: words.collect(), answer };
    let settling = tokio::spawn({
        let store = rig.store.clone();
        async move { store.run(vec![job]).await }
    });
    told.await.expect("an answer").expect("nobody waits for the lock to settle");
    held.commit().await.expect("commits");
    let wakes = timeout(PATIENCE, settling).await.expect("ends").expect("settles");
    assert!(wakes.iter().any(|wake| &*wake.partition == "k/1"), "{wakes:?}");
    assert_eq!(names(&take(&rig.store, 1).await.1)[0].0, "k/1", "it is its turn");
    let none = take(&rig.store, 1).await.1;
    assert!(none.lanes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_blocks_while_something_ends_is_let_go() {
    let rig = rig().await;
    limited(&rig, 2, |options| options.key_max_in_flight = 1).await;
    let (lease, claimed) = take(&rig.store, 1).await;
    // A claim that has counted and not committed yet.
    let claiming = rig.postgres.client().await.expect("connects");
    let lock = "BEGIN; SELECT 1 FROM skep_queue_grants WHERE whole = 1 FOR UPDATE";
    claiming.batch_execute(lock).await.expect("locks");
    let settling = tokio::spawn({
        let store = rig.store.clone();
        async move { complete(&store, "g", lease, &claimed).await }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    skep_testkit::eventually("the settlement waits", || {
        (rig.database.run(waiting) == "1").then_some(())
    });
    let block = "UPDATE skep_queue_lanes SET blocked_key = 'k', ready_at = ready_at + 300000000
                 WHERE lease IS NULL AND ready_at IS NOT NULL; COMMIT";
    claiming.batch_execute(block).await.expect("blocks");
    settling.await.expect("settles");
    let blocked = "SELECT count(*) FROM skep_queue_lanes WHERE blocked_key IS NOT NULL";
    assert_eq!(rig.database.run(blocked), "0");
    assert_eq!(take(&rig.store, 1).await.1.lanes.len(), 1);
}

#[tokio::test]
async fn what_a_group_had_lately_it_has_had_after_a_seek_too() {
    let rig = rig().await;
    limited(&rig, 2, |options| {
        (options.rate_limit, options.rate_period_seconds) = (3, 600);
        (options.key_rate_limit, options.key_rate_period_seconds) = (2, 1);
    })
    .await;
    assert_eq!(all_names(&take(&rig.store, 9).await.1).len(), 2);
    rig.store.seek("q", "g", None, SeekTo::Time(Time::ZERO)).await.expect("seeks");
    let all = async || {
        let (lease, claimed) = take(&rig.another(), 9).await;
        complete(&rig.store, "g", lease, &claimed).await;
        all_names(&claimed).len()
    };
    let mut got = 0;
    while got == 0 {
        got = all().await;
    }
    assert_eq!(got, 1, "three in ten minutes");
    assert_eq!(all().await, 0);
    rig.database.run("UPDATE skep_queue_grants SET expires = 1 WHERE whole = 0");
    while rig.store.tidy(10).await.expect("tidies").more {}
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queue_grants WHERE whole = 0"), "0");
    assert_eq!(all().await, 0, "that of the queue stays");
    rig.store.delete_group("g", None, false).await.expect("deletes");
    while rig.store.tidy(10).await.expect("tidies").more {}
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queue_grants"), "0");
}

#[tokio::test]
async fn a_lane_that_is_asked_for_by_name_has_not_to_wait_for_its_turn() {
    let rig = rig().await;
    limited(&rig, 12, |options| options.key_max_in_flight = 1).await;
    let (lease, claimed) = take(&rig.store, 1).await;
    assert!(take(&rig.store, 20).await.1.lanes.is_empty());
    complete(&rig.store, "g", lease, &claimed).await;
    let named = claim(&rig.store, from_partition("q", "k/9", "g")).await;
    assert_eq!(all_names(&named), ["a"], "there is room for one");
    let named = claim(&rig.store, from_partition("q", "k/8", "g")).await;
    assert_eq!((named.nothing, named.lanes.len()), (Some(Nothing::Empty), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_is_left_blocked_and_no_locks_cross_while_others_push_and_move() {
    const PRODUCERS: usize = 3;
    const PUSHES: usize = 40;
    const PARTITIONS: usize = 9;
    let rig = rig().await;
    limited(&rig, 0, |options| {
        (options.key_max_in_flight, options.max_in_flight) = (1, 3);
    })
    .await;
    let nodes = [rig.another(), rig.another()];
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let moved = Arc::new(AtomicUsize::new(0));
    let mut work = tokio::task::JoinSet::new();
    for producer in 0..PRODUCERS {
        let store = nodes[producer % 2].clone();
        work.spawn(async move {
            for number in 0..PUSHES {
                let mut all = Vec::new();
                for place in 0..3 {
                    let place = (place * 4 + producer + number) % PARTITIONS;
                    let partition = format!("{}/{place}", place % 3);
                    all.push(message("q", &partition, &format!("{producer}.{number}.{place}")));
                }
                push(&store, all).await;
            }
        });
    }
    for consumer in 0..6 {
        let (store, seen, moved) = (nodes[consumer % 2].clone(), seen.clone(), moved.clone());
        work.spawn(async move {
            let enough = PRODUCERS * PUSHES * 3;
            while seen.lock().expect("not poisoned").len() < enough {
                let (lease, claimed) = take(&store, 2).await;
                let Some(lane) = claimed.lanes.first() else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let names = all_names(&claimed);
                if moved.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
                    complete(&store, "g", lease, &claimed).await;
                } else {
                    // Settles, and pushes into the same queue, which locks other lanes.
                    let mut steps = Vec::new();
                    for (lane, (_, names)) in claimed.lanes.iter().zip(self::names(&claimed)) {
                        steps.extend(names.iter().map(|name| Step::Settle {
                            group: "g".into(),
                            item: item(lane.id, name, Verdict::Completed, Some(lease)),
                        }));
                    }
                    let name = format!("extra {}", lease.0);
                    let partition = format!("{}/1", (lane.id.0 + 1) % 3);
                    steps.push(Step::Push(message("q", &partition, &name)));
                    let (answer, told) = oneshot::channel();
                    let job = TransactionJob { steps, ..TransactionJob::default() };
                    store.run(vec![Job::Transaction(job, answer)]).await;
                    told.await.expect("an answer").expect("works").expect("is done");
                }
                let own = names.into_iter().filter(|name| !name.starts_with("extra"));
                seen.lock().expect("not poisoned").extend(own);
            }
        });
    }
    let all = async {
        while let Some(done) = work.join_next().await {
            done.expect("works")
        }
    };
    let ended = timeout(PATIENCE, all).await;
    assert!(ended.is_ok(), "{} were seen", seen.lock().expect("not poisoned").len());
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(rig.database.run(deadlocks), "0");
}
