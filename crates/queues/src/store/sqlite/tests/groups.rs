//! Groups that come early, late, and go elsewhere.

use super::kit::{Kit, item, of_partition, want};
use crate::store::{SeekTo, Sought};
use skep_policy::queues::{Refusal, Settled, Start, Verdict};

#[tokio::test]
async fn every_group_comes_to_a_thousand_partitions_and_to_those_made_later() {
    let kit = Kit::new().await;
    let names: Vec<String> = (0..1_000).map(|number| format!("p{number}")).collect();
    for chunk in names.chunks(100) {
        let messages = chunk.iter().map(|name| super::kit::message("q", name, name)).collect();
        kit.try_push(messages).await.unwrap();
    }
    for group in ["g", "h"] {
        assert_eq!(take_all(&kit, group).await, names, "the oldest first");
    }
    let lanes = kit.count("SELECT count(*) FROM skep_queue_lanes").await;
    assert_eq!(lanes, 2_000);
    kit.push("q", "late", &["late"]).await;
    kit.push("q", "p500", &["more"]).await;
    assert_eq!(take_all(&kit, "g").await, ["late", "more"]);
    assert_eq!(take_all(&kit, "h").await, ["late", "more"]);
}

async fn take_all(kit: &Kit, group: &str) -> Vec<String> {
    let mut job = want("q", group, 1, 10);
    job.partitions = 10;
    job.auto_ack = true;
    let mut all = Vec::new();
    loop {
        let taken = kit.take(job.clone()).await;
        if taken.is_empty() {
            return all;
        }
        all.extend(taken);
    }
}

#[tokio::test]
async fn a_partition_made_before_a_lane_was_ready_is_served_before_it() {
    let kit = Kit::new().await;
    let pushed = kit.push("q", "first", &["a", "b"]).await;
    kit.take(want("q", "g", 1, 1)).await;
    kit.push("q", "second", &["c"]).await;
    let done = vec![item(pushed[0], "a", Verdict::Completed, Some(1))];
    kit.settle("g", done).await;
    assert_eq!(kit.take(want("q", "g", 2, 1)).await, ["c"]);
    assert_eq!(kit.take(want("q", "g", 3, 1)).await, ["b"]);
}

#[tokio::test]
async fn a_group_can_begin_now_or_at_a_time() {
    let kit = Kit::new().await;
    for id in ["a", "b"] {
        kit.push("q", "p", &[id]).await;
        kit.pass(10);
    }
    let time = kit.queues.now();
    kit.pass(10);
    for id in ["c", "d"] {
        kit.push("q", "p", &[id]).await;
        kit.pass(10);
    }
    let mut job = want("q", "timed", 1, 9);
    job.start = Some(Start::From(time));
    assert_eq!(kit.take(job).await, ["c", "d"]);
    let mut job = want("q", "new", 2, 9);
    job.start = None;
    assert!(kit.claim(job.clone()).await.lanes.is_empty());
    kit.push("q", "p", &["e"]).await;
    kit.push("q", "other", &["f"]).await;
    job.partitions = 9;
    assert_eq!(kit.take(job).await.len(), 2);
    let detail = kit.queues.show("q", 10).await.unwrap().unwrap();
    let pending: Vec<_> =
        detail.groups.iter().map(|group| (&*group.name, group.pending, group.leased)).collect();
    assert_eq!(pending, [("new", 2, 2), ("timed", 4, 1)]);
}

#[tokio::test]
async fn a_group_that_is_moved_reads_from_there_and_its_leases_are_void() {
    let kit = Kit::new().await;
    let pushed = kit.push("q", "p", &["a"]).await;
    kit.pass(10);
    let time = kit.queues.now();
    kit.push("q", "p", &["b"]).await;
    kit.push("q", "p2", &["c"]).await;
    kit.take(want("q", "g", 1, 9)).await;

    assert_eq!(
        kit.queues.seek("q", "g", None, SeekTo::Time(time)).await.unwrap(),
        Sought::Moved(2)
    );
    let done = vec![item(pushed[0], "a", Verdict::Completed, Some(1))];
    assert_eq!(kit.settle("g", done).await, [Settled::Refused(Refusal::Stale)]);
    let mut job = want("q", "g", 2, 9);
    job.partitions = 9;
    assert_eq!(kit.take(job.clone()).await, ["b", "c"]);

    kit.queues.seek("q", "g", None, SeekTo::End).await.unwrap();
    assert!(kit.claim(job.clone()).await.lanes.is_empty());
    kit.push("q", "p", &["d"]).await;
    assert_eq!(kit.take(job.clone()).await, ["d"]);

    let back = SeekTo::Time(skep_policy::Time::ZERO);
    assert_eq!(kit.queues.seek("q", "g", Some("p"), back).await.unwrap(), Sought::Moved(1));
    assert_eq!(kit.take(job.clone()).await, ["a", "b", "d"]);
    let end = kit.queues.seek("q", "g", Some("p"), SeekTo::End).await.unwrap();
    assert_eq!(end, Sought::Moved(1));
    assert!(kit.claim(job).await.lanes.is_empty());
    let detail = kit.queues.show("q", 10).await.unwrap().unwrap();
    assert_eq!(detail.groups[0].pending, 0, "what it passed is counted");

    let never = kit.queues.seek("q", "never seen", None, SeekTo::End).await.unwrap();
    assert_eq!(never, Sought::Moved(2));
    let none = kit.queues.seek("x", "g", None, SeekTo::End).await.unwrap();
    assert_eq!(none, Sought::NoQueue);
    let none = kit.queues.seek("q", "g", Some("x"), SeekTo::End).await.unwrap();
    assert_eq!(none, Sought::NoPartition);
}

#[tokio::test]
async fn a_deleted_group_begins_anew_and_its_rows_are_removed() {
    let kit = Kit::new().await;
    for partition in ["p1", "p2", "p3"] {
        kit.push("q", partition, &[partition]).await;
    }
    kit.push("other", "p", &["x"]).await;
    assert_eq!(take_all(&kit, "g").await.len(), 3);
    kit.take(want("other", "g", 1, 1)).await;
    assert_eq!(kit.queues.delete_group("g", Some("q"), false).await.unwrap(), 3);
    assert_eq!(kit.queues.delete_group("g", Some("q"), false).await.unwrap(), 0);
    assert_eq!(take_all(&kit, "g").await.len(), 3);
    assert_eq!(kit.queues.delete_group("g", None, false).await.unwrap(), 4);
    while kit.queues.tidy(2).await.unwrap().more {}
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_lanes").await, 0);
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_groups").await, 0);
}

#[tokio::test]
async fn a_deleted_queue_is_gone_at_once_and_its_rows_little_by_little() {
    let kit = Kit::new().await;
    let mut pushed = Vec::new();
    for partition in ["p1", "p2", "p3"] {
        pushed.extend(kit.push("q", partition, &["a"]).await);
        kit.push("q", partition, &["b"]).await;
    }
    kit.take(of_partition("q", "p1", want("q", "g", 1, 1))).await;
    kit.settle("g", vec![item(pushed[0], "a", Verdict::Dead, Some(1))]).await;
    kit.take(of_partition("q", "p2", want("q", "g", 2, 1))).await;
    assert!(kit.queues.delete_queue("q").await.unwrap());
    assert!(!kit.queues.delete_queue("q").await.unwrap());
    let late = kit.settle("g", vec![item(pushed[1], "a", Verdict::Completed, Some(2))]).await;
    assert_eq!(late, [Settled::Refused(Refusal::Unknown)]);
    let fresh = kit.push("q", "p1", &["a"]).await;
    assert!(!fresh[0].duplicate && fresh[0].partition != pushed[0].partition);
    assert_eq!(kit.take(want("q", "g", 3, 9)).await, ["a"]);
    let mut rounds = 0;
    while kit.queues.tidy(2).await.unwrap().more {
        rounds += 1;
    }
    assert!(rounds > 3, "each of them is small");
    for (table, left) in [
        ("SELECT count(*) FROM skep_queues", 1),
        ("SELECT count(*) FROM skep_queue_partitions", 1),
        ("SELECT count(*) FROM skep_queue_segments", 1),
        ("SELECT count(*) FROM skep_queue_lanes", 1),
        ("SELECT count(*) FROM skep_queue_groups", 1),
        ("SELECT count(*) FROM skep_queue_dead", 0),
    ] {
        assert_eq!(kit.count(table).await, left, "{table}");
    }
}
