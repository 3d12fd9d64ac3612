//! Order, leases, fairness, delays.

use super::kit::{ALL_DONE, Kit, ids, item, of_partition, sized, want};
use crate::store::{Job, Nothing, Target};
use skep_policy::queues::{LeaseId, Refusal, Settled, Start, Verdict};
use std::time::Duration;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_partition_is_handed_out_in_order_to_one_at_a_time() {
    let kit = Kit::new().await;
    let pushed = kit.push("q", "p", &["a", "b"]).await;
    kit.push("q", "p", &["c"]).await;
    assert_eq!(kit.take(want("q", "g", 1, 2)).await, ["a", "b"]);
    let second = kit.claim(want("q", "g", 2, 2)).await;
    assert_eq!((second.lanes.len(), second.nothing), (0, Some(Nothing::Empty)));
    assert_eq!(second.next_at, Some(second.now + Duration::from_secs(300) - SINCE_FIRST));
    let named = kit.claim(of_partition("q", "p", want("q", "g", 2, 2))).await;
    assert_eq!(named.nothing, Some(Nothing::Leased));

    let foreign = kit.settle("g", vec![item(pushed[0], "a", Verdict::Completed, Some(2))]).await;
    assert_eq!(foreign, [Settled::Refused(Refusal::Stale)]);
    let own = kit.settle("g", vec![item(pushed[1], "b", Verdict::Completed, Some(1))]).await;
    assert_eq!(own, [ALL_DONE]);
    assert_eq!(kit.take(want("q", "g", 2, 2)).await, ["c"]);
    assert_eq!(kit.take(want("q", "other", 3, 9)).await, ["a", "b", "c"], "groups are apart");
}

/// Each batch has a microsecond of its own, even if the clock stands still.
const SINCE_FIRST: Duration = Duration::from_micros(1);

#[tokio::test]
async fn a_lease_that_ran_out_is_handed_out_again() {
    let kit = Kit::new().await;
    let pushed = kit.push("q", "p", &["a"]).await;
    kit.take(want("q", "g", 1, 1)).await;
    kit.pass(301);
    assert_eq!(kit.take(want("q", "g", 2, 1)).await, ["a"]);
    let late = kit.settle("g", vec![item(pushed[0], "a", Verdict::Completed, Some(1))]).await;
    assert_eq!(late, [Settled::Refused(Refusal::Stale)]);
}

#[tokio::test]
async fn a_batch_is_a_cap_over_partitions_under_one_lease() {
    let kit = Kit::new().await;
    let mut pushed = Vec::new();
    for partition in ["p1", "p2", "p3"] {
        let own = [1, 2, 3].map(|number| format!("{partition}-{number}"));
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        pushed.extend(kit.push("q", partition, &own).await);
    }
    let mut job = want("q", "g", 7, 5);
    job.partitions = 3;
    let claimed = kit.claim(job.clone()).await;
    assert_eq!(ids(&claimed), ["p1-1", "p1-2", "p1-3", "p2-1", "p2-2"]);
    assert_eq!(claimed.lanes.len(), 2);
    let (answer, got) = oneshot::channel();
    let extend = Job::Extend { lease: LeaseId(7), seconds: 900, answer };
    kit.queues.run(vec![extend]).await;
    assert_eq!(
        got.await.unwrap().unwrap(),
        Some(claimed.now + Duration::from_secs(900) + SINCE_FIRST)
    );
    kit.pass(600);
    assert_eq!(
        kit.take(want("q", "g", 8, 9)).await,
        ["p3-1", "p3-2", "p3-3"],
        "both were extended"
    );

    let (answer, got) = oneshot::channel();
    let wakes = kit.queues.run(vec![Job::Release { lease: LeaseId(7), answer }]).await;
    assert_eq!(got.await.unwrap().unwrap(), 2);
    assert_eq!(wakes.len(), 2);
    job.lease = LeaseId(9);
    assert_eq!(kit.take(job).await.len(), 5, "what was given back is there at once");
    let settled = kit.settle("g", vec![item(pushed[4], "p2-2", Verdict::Completed, Some(7))]).await;
    assert_eq!(settled, [Settled::Refused(Refusal::Stale)]);
}

#[tokio::test]
async fn the_partition_that_waits_longest_is_served_first() {
    let kit = Kit::new().await;
    for partition in ["p1", "p2", "p3"] {
        kit.push("q", partition, &["a", "b", "c"]).await;
    }
    let mut order = Vec::new();
    for lease in 1..=6 {
        let claimed = kit.claim(want("q", "g", lease, 1)).await;
        let lane = &claimed.lanes[0];
        order.push(lane.partition.to_string());
        let pushed =
            crate::store::Pushed { id: uuid::Uuid::nil(), partition: lane.id, duplicate: false };
        let id = &ids(&claimed)[0];
        let own = vec![item(pushed, id, Verdict::Completed, Some(lease))];
        assert_eq!(kit.settle("g", own).await, [ALL_DONE]);
    }
    assert_eq!(order, ["p1", "p2", "p3", "p1", "p2", "p3"]);
}

#[tokio::test]
async fn auto_ack_hands_everything_out_once() {
    let kit = Kit::new().await;
    kit.push("q", "p", &["a", "b", "c"]).await;
    let mut job = want("q", "g", 1, 2);
    job.auto_ack = true;
    assert_eq!(kit.take(job.clone()).await, ["a", "b"]);
    assert_eq!(kit.take(job.clone()).await, ["c"]);
    let nothing = kit.claim(job).await;
    assert_eq!((nothing.nothing, nothing.next_at), (Some(Nothing::Empty), None));
    let detail = kit.queues.show("q", 10).await.unwrap().unwrap();
    assert_eq!((detail.summary.total, detail.groups[0].pending), (3, 0));
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let kit = Kit::new().await;
    assert_eq!(kit.claim(want("q", "g", 1, 1)).await.nothing, Some(Nothing::NoQueue));
    kit.push("q", "p", &["a"]).await;
    let job = of_partition("q", "x", want("q", "g", 1, 1));
    assert_eq!(kit.claim(job).await.nothing, Some(Nothing::NoPartition));
}

#[tokio::test]
async fn messages_wait_for_their_delay_and_partitions_for_calm() {
    let kit = Kit::new().await;
    kit.configure("late", |options| options.delayed_processing = 10).await;
    kit.configure("calm", |options| options.window_buffer = 10).await;
    for queue in ["late", "calm"] {
        kit.push(queue, "p", &["a"]).await;
    }
    kit.pass(6);
    for queue in ["late", "calm"] {
        kit.push(queue, "p", &["b"]).await;
    }
    let late = kit.claim(want("late", "g", 1, 9)).await;
    assert_eq!(late.nothing, Some(Nothing::Empty));
    assert!(late.next_at.unwrap() > late.now + Duration::from_secs(3));
    kit.pass(5);
    assert_eq!(kit.take(want("late", "g", 1, 9)).await, ["a"]);
    let calm = kit.claim(of_partition("calm", "p", want("calm", "g", 1, 9))).await;
    assert_eq!(calm.nothing, Some(Nothing::Window));
    kit.pass(6);
    assert_eq!(kit.take(want("calm", "g", 1, 9)).await, ["a", "b"]);
}

#[tokio::test]
async fn a_shorter_delay_counts_for_what_waits() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.delayed_processing = 3_600).await;
    kit.push("q", "p", &["a"]).await;
    assert_eq!(kit.claim(want("q", "g", 1, 9)).await.nothing, Some(Nothing::Empty));
    kit.configure("q", |options| options.delayed_processing = 0).await;
    assert_eq!(kit.take(want("q", "g", 1, 9)).await, ["a"]);
}

#[tokio::test]
async fn messages_past_their_time_to_live_are_passed_over() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.ttl = Some(10)).await;
    for id in ["a", "b", "c"] {
        kit.push("q", "p", &[id]).await;
    }
    kit.pass(6);
    kit.push("q", "p", &["d"]).await;
    kit.pass(6);
    assert_eq!(kit.take(want("q", "g", 1, 9)).await, ["d"]);
    kit.pass(11);
    let nothing = kit.claim(want("q", "late", 1, 9)).await;
    assert_eq!((nothing.nothing, nothing.next_at), (Some(Nothing::Empty), None));
    let detail = kit.queues.show("q", 10).await.unwrap().unwrap();
    assert_eq!(detail.groups.iter().map(|group| group.pending).max(), Some(1));
}

#[tokio::test]
async fn a_claim_by_namespace_takes_the_highest_priority_that_has_something() {
    let kit = Kit::new().await;
    kit.configure("shop.low", |_| ()).await;
    kit.configure("shop.high", |options| options.priority = 5).await;
    kit.configure("other.top", |options| options.priority = 9).await;
    for queue in ["shop.low", "shop.high", "other.top"] {
        kit.push(queue, "p", &[queue]).await;
    }
    let mut job = want("", "g", 1, 9);
    job.target = Target::Matching { namespace: Some("shop".into()), task: None };
    let mut taken = Vec::new();
    for lease in 1..=3 {
        job.lease = LeaseId(lease);
        taken.extend(kit.take(job.clone()).await);
    }
    assert_eq!(taken, ["shop.high", "shop.low"]);
    job.target = Target::Matching { namespace: None, task: Some("top".into()) };
    assert_eq!(kit.take(job.clone()).await, ["other.top"]);
    job.target = Target::Matching { namespace: None, task: None };
    assert_eq!(kit.claim(job.clone()).await.nothing, Some(Nothing::Empty));
    job.target = Target::Matching { namespace: Some("none".into()), task: None };
    assert_eq!(kit.claim(job).await.nothing, Some(Nothing::NoQueue));
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_is_given_back_at_once() {
    let kit = Kit::new().await;
    kit.push("q", "p", &["a"]).await;
    let (answer, got) = oneshot::channel();
    drop(got);
    let wakes = kit.queues.run(vec![Job::Claim(want("q", "g", 1, 1), answer)]).await;
    assert_eq!(wakes.len(), 1);
    assert_eq!(wakes[0].group.as_deref(), Some("g"));
    assert_eq!(kit.take(want("q", "g", 2, 1)).await, ["a"]);
}

#[tokio::test]
async fn bodies_that_are_not_in_memory_are_read_from_the_database() {
    let options = crate::QueuesOptions { cache_bytes: 0, ..crate::QueuesOptions::default() };
    let kit = Kit::with(&options).await;
    let names: Vec<String> = (0..600).map(|number| format!("{number}")).collect();
    let messages = names.iter().map(|name| sized("q", "p", name, 2_000)).collect();
    kit.try_push(messages).await.unwrap();
    assert!(kit.count("SELECT count(*) FROM skep_queue_segments").await > 4, "cut by bytes");
    let mut job = want("q", "g", 1, 250);
    job.start = Some(Start::All);
    job.auto_ack = true;
    let mut taken = Vec::new();
    while taken.len() < 600 {
        taken.extend(kit.take(job.clone()).await);
    }
    assert_eq!(taken, names);
}
