//! Seeking, deleting, counting, retention.

use super::*;
use skep_policy::Time;

async fn consume(store: &PostgresQueues, group: &str) -> Vec<String> {
    let job = ClaimJob { partitions: 10, ..from_queue("q", group, 100) };
    let lease = job.lease;
    let claimed = claim(store, job).await;
    complete(store, group, lease, &claimed).await;
    all_names(&claimed)
}

#[tokio::test]
async fn a_group_is_moved_as_a_whole_or_in_one_partition() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a", "b"])).await;
    let middle = rig.store.now().await.expect("a time");
    push(&rig.store, messages("q", "p", &["c"])).await;
    push(&rig.store, messages("q", "r", &["d"])).await;
    assert_eq!(consume(&rig.store, "g").await, ["a", "b", "c", "d"]);
    let other = rig.another();
    let seek = async |partition: Option<&str>, to| {
        other.seek("q", "g", partition, to).await.expect("seeks")
    };
    assert_eq!(seek(None, SeekTo::Time(Time::ZERO)).await, Sought::Moved(2));
    assert_eq!(consume(&rig.store, "g").await, ["a", "b", "c", "d"]);
    assert_eq!(seek(None, SeekTo::Time(middle)).await, Sought::Moved(2));
    assert_eq!(consume(&rig.store, "g").await, ["c", "d"]);
    assert_eq!(seek(Some("p"), SeekTo::Time(middle)).await, Sought::Moved(1));
    assert_eq!(consume(&rig.store, "g").await, ["c"]);
    assert_eq!(seek(Some("none"), SeekTo::End).await, Sought::NoPartition);
    assert_eq!(other.seek("none", "g", None, SeekTo::End).await.expect("looks"), Sought::NoQueue);
    assert_eq!(other.seek("q", "new", None, SeekTo::End).await.expect("seeks"), Sought::Moved(2));
    assert!(consume(&rig.store, "new").await.is_empty());
    push(&rig.store, messages("q", "p", &["e"])).await;
    assert_eq!(consume(&rig.store, "new").await, ["e"]);
    assert_eq!(seek(Some("p"), SeekTo::End).await, Sought::Moved(1));
    assert!(consume(&rig.store, "g").await.is_empty());
}

#[tokio::test]
async fn a_seek_takes_the_lease_away() {
    let rig = rig().await;
    let pushed = push(&rig.store, messages("q", "p", &["a"])).await;
    let job = from_queue("q", "g", 1);
    let lease = job.lease;
    claim(&rig.store, job).await;
    rig.another().seek("q", "g", None, SeekTo::Time(Time::ZERO)).await.expect("seeks");
    let word = item(pushed[0].partition, "a", Verdict::Completed, Some(lease));
    let settled = settle(&rig.store, "g", vec![word]).await;
    assert!(matches!(settled[0], Settled::Refused(_)), "{settled:?}");
    assert_eq!(consume(&rig.store, "g").await, ["a"]);
}

#[tokio::test]
async fn a_deleted_group_reads_again_and_its_rows_go() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a"])).await;
    push(&rig.store, messages("q", "r", &["b"])).await;
    assert_eq!(consume(&rig.store, "g").await.len(), 2);
    assert_eq!(rig.another().delete_group("g", Some("q"), false).await.expect("deletes"), 2);
    assert_eq!(rig.store.delete_group("g", None, false).await.expect("looks"), 0);
    while rig.store.tidy(1).await.expect("tidies").more {}
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queue_lanes"), "0");
    assert_eq!(consume(&rig.store, "g").await.len(), 2);
}

#[tokio::test]
async fn nothing_is_left_of_a_deleted_queue_in_the_end() {
    let rig = rig().await;
    for partition in ["a", "b", "c"] {
        push(&rig.store, messages("q", partition, &["1", "2"])).await;
    }
    let job = from_queue("q", "g", 2);
    let lease = job.lease;
    let claimed = claim(&rig.store, job).await;
    let id = claimed.lanes[0].id;
    settle(&rig.store, "g", vec![item(id, "1", Verdict::Dead, Some(lease))]).await;
    assert!(rig.store.delete_queue("q").await.expect("deletes"));
    let (mut messages, mut rounds) = (0, 0);
    loop {
        let tidied = rig.store.tidy(2).await.expect("tidies");
        messages += tidied.messages;
        rounds += 1;
        if !tidied.more {
            break;
        }
        assert!(rounds < 100, "it ends");
    }
    assert_eq!(messages, 6);
    for table in [
        "skep_queues",
        "skep_queue_partitions",
        "skep_queue_segments",
        "skep_queue_groups",
        "skep_queue_lanes",
        "skep_queue_dead",
        "skep_queue_counts",
        "skep_queue_group_counts",
    ] {
        assert_eq!(rig.database.run(&format!("SELECT count(*) FROM {table}")), "0", "{table}");
    }
}

#[tokio::test]
async fn queues_are_counted() {
    let rig = rig().await;
    push(&rig.store, messages("b", "p", &["1", "2", "3"])).await;
    push(&rig.store, messages("q", "p", &["1", "2", "3"])).await;
    push(&rig.store, messages("q", "r", &["4"])).await;
    let job = from_queue("q", "g", 2);
    let lease = job.lease;
    let claimed = claim(&rig.store, job).await;
    let id = claimed.lanes[0].id;
    settle(&rig.store, "g", vec![item(id, "1", Verdict::Dead, Some(lease))]).await;
    let queues = rig.store.queues(None, 10).await.expect("lists");
    let names: Vec<&str> = queues.iter().map(|one| &*one.queue.name).collect();
    assert_eq!(names, ["b", "q"]);
    assert_eq!(rig.store.queues(Some("b"), 10).await.expect("lists").len(), 1);
    let q = &queues[1];
    assert_eq!((q.partitions, q.total, q.pending, q.dead), (2, 4, 3, 1));
    let detail = rig.store.show("q", 1).await.expect("shows").expect("is there");
    assert_eq!((detail.partitions.len(), detail.partitions[0].tail), (1, 3));
    assert_eq!((detail.groups[0].pending, detail.groups[0].leased), (3, 1));
    assert!(rig.store.show("none", 1).await.expect("looks").is_none());
}

#[tokio::test]
async fn configuring_changes_what_is_said_and_keeps_the_rest() {
    let rig = rig().await;
    let made =
        configure(&rig.store, "a.b", |options| QueueOptions { priority: 3, ..options }).await;
    assert_eq!((&*made.queue.namespace, &*made.queue.task), ("a", "b"));
    let again =
        configure(&rig.another(), "a.b", |options| QueueOptions { lease_time: 9, ..options }).await;
    assert_eq!((again.queue.options.priority, again.queue.options.lease_time), (3, 9));
    assert_eq!((again.queue.id, again.partition), (made.queue.id, made.partition));
    let read = rig.store.queue("a.b").await.expect("reads").expect("is there");
    assert_eq!(read, again.queue);
    assert_eq!(rig.store.queues(None, 1).await.expect("lists")[0].partitions, 1);
}

#[tokio::test]
async fn retention_keeps_what_the_slowest_group_needs_and_ids_that_may_come_again() {
    let rig = rig().await;
    configure(&rig.store, "q", |options| QueueOptions {
        retention_enabled: true,
        completed_retention_seconds: 60,
        retention_seconds: 1_000,
        ..options
    })
    .await;
    for name in ["a", "b", "c"] {
        push(&rig.store, messages("q", "p", &[name])).await;
    }
    let age = |seconds: u32| {
        let sql = format!("UPDATE skep_queue_segments SET at = at - {seconds} * 1000000::bigint");
        rig.database.run(&sql);
    };
    let kept =
        || rig.database.run("SELECT count(*) FROM skep_queue_segments WHERE body IS NOT NULL");
    age(61);
    assert_eq!(consume(&rig.store, "fast").await, ["a", "b", "c"]);
    let slow = claim(&rig.store, ClaimJob { auto_ack: true, ..from_queue("q", "slow", 1) }).await;
    assert_eq!(all_names(&slow), ["a"]);
    assert_eq!(rig.store.tidy(100).await.expect("tidies").messages, 1);
    assert_eq!(kept(), "2");
    let again = push(&rig.another(), messages("q", "p", &["a"])).await;
    assert!(again[0].duplicate, "its id is still known");
    assert_eq!(consume(&rig.store, "slow").await, ["b", "c"]);
    age(1_000);
    push(&rig.store, messages("q", "p", &["d"])).await;
    assert_eq!(rig.store.tidy(100).await.expect("tidies").messages, 2);
    let newcomer = claim(&rig.store, from_queue("q", "new", 10)).await;
    assert_eq!(all_names(&newcomer), ["d"], "what was removed is passed");
    age(4_000);
    rig.store.tidy(100).await.expect("tidies");
    rig.store.tidy(100).await.expect("tidies");
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queue_segments"), "0");
    let queue = &rig.store.queues(None, 1).await.expect("lists")[0];
    assert_eq!(queue.total, 0);
}
