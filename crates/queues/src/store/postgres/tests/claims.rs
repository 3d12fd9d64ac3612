//! Claims: order, fairness, lanes that are made late.

use super::*;
use skep_store::Heard;
use skep_testkit::PATIENCE;
use std::collections::BTreeSet;

#[tokio::test]
async fn a_partition_comes_in_order_and_to_one_consumer_at_a_time() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a", "b", "c"])).await;
    let job = from_queue("q", "g", 2);
    let lease = job.lease;
    let first = claim(&rig.store, job).await;
    assert_eq!(all_names(&first), ["a", "b"]);
    let second = claim(&rig.another(), from_queue("q", "g", 2)).await;
    assert_eq!(second.nothing, Some(Nothing::Empty));
    assert_eq!(second.next_at, Some(first.until), "when the lease runs out");
    let named = claim(&rig.store, from_partition("q", "p", "g")).await;
    assert_eq!(named.nothing, Some(Nothing::Leased));
    let settled = complete(&rig.store, "g", lease, &first).await;
    assert_eq!(settled[1], Settled::Done { released: true });
    assert_eq!(all_names(&claim(&rig.another(), from_queue("q", "g", 2)).await), ["c"]);
}

#[tokio::test]
async fn a_batch_is_a_cap_over_partitions_under_one_lease() {
    let rig = rig().await;
    for partition in ["a", "b", "c"] {
        push(&rig.store, messages("q", partition, &["1", "2", "3"])).await;
    }
    let job = ClaimJob { partitions: 3, ..from_queue("q", "g", 7) };
    let lease = job.lease;
    let claimed = claim(&rig.store, job).await;
    let counts: Vec<usize> = names(&claimed).iter().map(|lane| lane.1.len()).collect();
    assert_eq!(counts, [3, 3, 1]);
    let settled = complete(&rig.store, "g", lease, &claimed).await;
    assert_eq!(settled.iter().filter(|one| matches!(one, Settled::Done { .. })).count(), 7);
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "g", 7)).await), ["2", "3"]);
}

#[tokio::test]
async fn the_partition_that_waits_longest_is_served_first() {
    let rig = rig().await;
    for partition in ["a", "b", "c"] {
        push(&rig.store, messages("q", partition, &["1", "2"])).await;
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        let job = from_queue("q", "g", 1);
        let lease = job.lease;
        let claimed = claim(&rig.store, job).await;
        complete(&rig.store, "g", lease, &claimed).await;
        served.push(names(&claimed)[0].0.clone());
    }
    assert_eq!(served, ["a", "b", "c", "a", "b", "c"]);
}

#[tokio::test]
async fn groups_come_to_a_thousand_partitions_each_in_its_own_time() {
    let rig = rig().await;
    let all = |round: u32| {
        let name = format!("r{round}");
        (0..1_000).map(|number| message("q", &format!("p{number}"), &name)).collect::<Vec<_>>()
    };
    push(&rig.store, all(0)).await;
    for group in ["one", "two"] {
        let mut seen = BTreeSet::new();
        while seen.len() < 1_000 {
            let job = ClaimJob { partitions: 50, ..from_queue("q", group, 50) };
            let lease = job.lease;
            let claimed = claim(&rig.store, job).await;
            assert!(!claimed.lanes.is_empty(), "{group} has seen {}", seen.len());
            complete(&rig.store, group, lease, &claimed).await;
            seen.extend(names(&claimed).into_iter().map(|lane| lane.0));
        }
        let nothing = claim(&rig.store, from_queue("q", group, 50)).await;
        assert_eq!((nothing.nothing, nothing.next_at), (Some(Nothing::Empty), None));
    }
    let lanes = rig.database.run("SELECT count(*) FROM skep_queue_lanes");
    assert_eq!(lanes, "2000");
    push(&rig.store, messages("q", "late", &["x"])).await;
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "two", 5)).await), ["x"]);
    let newcomer = ClaimJob { start: None, ..from_queue("q", "new", 5) };
    let nothing = claim(&rig.store, newcomer).await;
    assert_eq!(nothing.nothing, Some(Nothing::Empty));
    eventually_empty(&rig, "new").await;
    push(&rig.store, messages("q", "p7", &["y"])).await;
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "new", 5)).await), ["y"]);
}

/// Claims until the group has looked at everything.
async fn eventually_empty(rig: &Rig, group: &str) {
    for _ in 0..100 {
        let claimed = claim(&rig.store, from_queue("q", group, 5)).await;
        assert!(claimed.lanes.is_empty());
        if claimed.next_at.is_none() {
            return;
        }
    }
    panic!("{group} never comes to an end");
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let rig = rig().await;
    let none = claim(&rig.store, from_queue("nowhere", "g", 1)).await;
    assert_eq!(none.nothing, Some(Nothing::NoQueue));
    let none = claim(&rig.store, from_partition("nowhere", "p", "g")).await;
    assert_eq!(none.nothing, Some(Nothing::NoQueue));
    push(&rig.store, messages("q", "p", &["a"])).await;
    let none = claim(&rig.store, from_partition("q", "other", "g")).await;
    assert_eq!(none.nothing, Some(Nothing::NoPartition));
    assert_eq!(all_names(&claim(&rig.store, from_partition("q", "p", "g")).await), ["a"]);
    assert_eq!(
        claim(&rig.store, from_partition("q", "p", "g")).await.nothing,
        Some(Nothing::Leased)
    );
}

#[tokio::test]
async fn the_queue_with_the_highest_priority_goes_first() {
    let rig = rig().await;
    for (name, priority) in [("shop.low", 1), ("shop.high", 9), ("other.high", 99)] {
        configure(&rig.store, name, move |options| QueueOptions { priority, ..options }).await;
        push(&rig.store, messages(name, "p", &[name])).await;
    }
    let any = |namespace: Option<&str>, task: Option<&str>| ClaimJob {
        target: Target::Matching {
            namespace: namespace.map(Into::into),
            task: task.map(Into::into),
        },
        ..from_queue("", "g", 10)
    };
    let shop = any(Some("shop"), None);
    assert_eq!(all_names(&claim(&rig.store, shop.clone()).await), ["shop.high"]);
    assert_eq!(all_names(&claim(&rig.store, shop.clone()).await), ["shop.low"]);
    let nothing = claim(&rig.store, shop).await;
    assert!(nothing.next_at.is_some(), "when a lease runs out");
    assert_eq!(all_names(&claim(&rig.store, any(None, Some("high"))).await), ["other.high"]);
    assert!(claim(&rig.store, any(Some("none"), None)).await.lanes.is_empty());
}

#[tokio::test]
async fn delays_and_windows_hold_messages_back_and_expired_ones_are_passed() {
    let rig = rig().await;
    configure(&rig.store, "late", |options| QueueOptions { delayed_processing: 60, ..options })
        .await;
    let pushed = push(&rig.store, messages("late", "p", &["a"])).await;
    let nothing = claim(&rig.store, from_queue("late", "g", 1)).await;
    let next = nothing.next_at.expect("it will be ripe");
    assert!(next.since(nothing.now).as_secs() >= 58, "{next}");
    let age = |partition: PartitionId, seconds: u32| {
        let move_back = format!(
            "UPDATE skep_queue_segments SET at = at - {seconds} * 1000000::bigint
                 WHERE partition = {0};
             UPDATE skep_queue_partitions SET last_push = last_push - {seconds} * 1000000::bigint
                 WHERE id = {0};
             UPDATE skep_queue_lanes SET ready_at = ready_at - {seconds} * 1000000::bigint
                 WHERE partition = {0}",
            partition.0
        );
        rig.database.run(&move_back);
    };
    age(pushed[0].partition, 61);
    assert_eq!(all_names(&claim(&rig.store, from_queue("late", "g", 1)).await), ["a"]);

    configure(&rig.store, "calm", |options| QueueOptions { window_buffer: 60, ..options }).await;
    let pushed = push(&rig.store, messages("calm", "p", &["a"])).await;
    let nothing = claim(&rig.store, from_partition("calm", "p", "g")).await;
    assert_eq!(nothing.nothing, Some(Nothing::Window));
    age(pushed[0].partition, 61);
    assert_eq!(all_names(&claim(&rig.store, from_partition("calm", "p", "g")).await), ["a"]);

    configure(&rig.store, "short", |options| QueueOptions { ttl: Some(60), ..options }).await;
    let pushed = push(&rig.store, messages("short", "p", &["a", "b"])).await;
    age(pushed[0].partition, 61);
    push(&rig.store, messages("short", "p", &["c"])).await;
    assert_eq!(all_names(&claim(&rig.store, from_queue("short", "g", 5)).await), ["c"]);
}

#[tokio::test]
async fn what_is_settled_at_once_is_drained_and_wakes_again_with_a_push() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a", "b", "c"])).await;
    let auto = || ClaimJob { auto_ack: true, ..from_queue("q", "g", 2) };
    assert_eq!(all_names(&claim(&rig.store, auto()).await), ["a", "b"]);
    assert_eq!(all_names(&claim(&rig.store, auto()).await), ["c"]);
    let nothing = claim(&rig.store, auto()).await;
    assert_eq!((nothing.nothing, nothing.next_at), (Some(Nothing::Empty), None));
    push(&rig.store, messages("q", "p", &["d"])).await;
    assert_eq!(all_names(&claim(&rig.store, auto()).await), ["d"]);
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_is_given_back() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a"])).await;
    let (answer, answered) = oneshot::channel();
    drop(answered);
    let wakes = rig.store.run(vec![Job::Claim(from_queue("q", "g", 1), answer)]).await;
    assert_eq!(wakes.len(), 1, "{wakes:?}");
    assert_eq!(wakes[0].group.as_deref(), Some("g"));
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "g", 1)).await), ["a"]);
}

#[tokio::test]
async fn other_nodes_hear_that_something_became_ready() {
    let rig = rig().await;
    let mut hints = rig.postgres.listen(&[CHANNEL]);
    let mut hear = async || tokio::time::timeout(PATIENCE, hints.next()).await.expect("is heard");
    assert_eq!(hear().await, Heard::Reconnected);
    push(&rig.store, messages("q", "p", &["a"])).await;
    let notice = || Heard::Notice { channel: CHANNEL.to_owned(), payload: "q".to_owned() };
    assert_eq!(hear().await, notice(), "a partition that nobody reads yet");
    claim(&rig.store, from_queue("q", "g", 1)).await;
    push(&rig.store, messages("q", "p", &["b"])).await;
    push(&rig.store, messages("r", "p", &["c"])).await;
    let Heard::Notice { payload, .. } = hear().await else { panic!("a notice") };
    assert_eq!(payload, "r", "a lane that is leased needs no notice");
}

#[tokio::test]
async fn other_nodes_hear_what_a_settlement_leaves_behind() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a", "b"])).await;
    let job = from_queue("q", "g", 1);
    let lease = job.lease;
    let first = claim(&rig.store, job).await;
    let mut hints = rig.postgres.listen(&[CHANNEL]);
    let mut hear = async || tokio::time::timeout(PATIENCE, hints.next()).await.expect("is heard");
    assert_eq!(hear().await, Heard::Reconnected);
    complete(&rig.store, "g", lease, &first).await;
    let notice = |queue: &str| Heard::Notice { channel: CHANNEL.into(), payload: queue.into() };
    assert_eq!(hear().await, notice("q"), "b is left");
    let job = from_queue("q", "g", 1);
    let lease = job.lease;
    let second = claim(&rig.store, job).await;
    complete(&rig.store, "g", lease, &second).await;
    push(&rig.store, messages("r", "p", &["c"])).await;
    assert_eq!(hear().await, notice("r"), "nothing was left in q");
}

/// Claims of one batch, each of one message.
async fn claim_together(store: &PostgresQueues, count: usize) -> Vec<Claimed> {
    let channels = (0..count).map(|_| oneshot::channel());
    let (answers, answered): (Vec<_>, Vec<_>) = channels.unzip();
    let job = |answer| Job::Claim(from_queue("q", "g", 1), answer);
    store.run(answers.into_iter().map(job).collect()).await;
    let mut claimed = Vec::new();
    for answered in answered {
        claimed.push(answered.await.expect("an answer").expect("claims"));
    }
    claimed
}

#[tokio::test]
async fn every_claim_of_a_batch_gets_a_partition_of_its_own_while_there_are_enough() {
    let rig = rig().await;
    for number in 0..40 {
        push(&rig.store, messages("q", &format!("p{number}"), &["1", "2"])).await;
    }
    let mut seen = BTreeSet::new();
    let mut count = async |wanted| {
        let claimed = claim_together(&rig.store, wanted).await;
        let lanes = claimed.iter().flat_map(|one| &one.lanes);
        let partitions: Vec<i64> = lanes.map(|lane| lane.id.0).collect();
        assert!(partitions.iter().all(|id| seen.insert(*id)), "one is leased to two");
        let empty = claimed.iter().filter(|one| one.lanes.is_empty());
        assert!(empty.clone().all(|one| one.next_at > Some(one.now)), "when a lease runs out");
        (partitions.len(), empty.count())
    };
    assert_eq!(count(32).await, (32, 0));
    assert_eq!(count(32).await, (8, 24));
}

/// A transaction of somebody else that has locked all lanes.
async fn lock_lanes(rig: &Rig) -> skep_store::PostgresClient {
    let other = rig.postgres.client().await.expect("connects");
    let lock = "BEGIN; SELECT 1 FROM skep_queue_lanes FOR UPDATE";
    other.batch_execute(lock).await.expect("locks");
    other
}

/// Claims while somebody else has locked all lanes, and returns once the claim waits for it.
fn claim_and_wait(rig: &Rig, job: ClaimJob) -> tokio::task::JoinHandle<Claimed> {
    let store = rig.store.clone();
    let claiming = tokio::spawn(async move { claim(&store, job).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    skep_testkit::eventually("the claim waits, or has marked the lane to look at it later", || {
        let waits = rig.database.run(waiting) == "1";
        (waits || !rig.store.shared.marks.is_empty()).then_some(())
    });
    claiming
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_waits_for_what_is_ready_but_locked() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a", "b"])).await;
    let auto = |job| ClaimJob { auto_ack: true, ..job };
    assert_eq!(all_names(&claim(&rig.store, auto(from_queue("q", "g", 1))).await), ["a"]);
    for job in [from_queue("q", "g", 1), from_partition("q", "p", "g")] {
        let lease = job.lease;
        let other = lock_lanes(&rig).await;
        let claiming = claim_and_wait(&rig, job);
        other.batch_execute("ROLLBACK").await.expect("lets go");
        let claimed = claiming.await.expect("claims");
        assert_eq!(all_names(&claimed), ["b"]);
        let (answer, _) = oneshot::channel();
        rig.store.run(vec![Job::Release { lease, answer }]).await;
    }
    let other = lock_lanes(&rig).await;
    let claiming = claim_and_wait(&rig, from_queue("q", "g", 1));
    let drain = "UPDATE skep_queue_lanes SET cursor = 2, ready_at = NULL; COMMIT";
    other.batch_execute(drain).await.expect("drains");
    let claimed = claiming.await.expect("claims");
    assert_eq!((claimed.nothing, claimed.next_at), (Some(Nothing::Empty), None));
}
