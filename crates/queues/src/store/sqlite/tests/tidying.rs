//! What is removed for its age, and what is kept.

use super::kit::{Kit, item, of_partition, want};
use crate::store::Round;
use skep_policy::queues::Verdict;
use std::time::Duration;

async fn tidy(kit: &Kit) -> (u64, u64) {
    let (mut messages, mut rows) = (0, 0);
    loop {
        let round = kit.queues.tidy(2).await.unwrap();
        messages += round.messages;
        rows += round.rows;
        if !round.more {
            return (messages, rows);
        }
    }
}

#[tokio::test]
async fn completed_retention_keeps_what_the_slowest_group_has_not_settled() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.retention_enabled = true;
        options.completed_retention_seconds = 60;
        options.dedup_window_seconds = 600;
    })
    .await;
    let mut pushed = Vec::new();
    for id in ["a", "b", "c"] {
        pushed.extend(kit.push("q", "p", &[id]).await);
    }
    kit.push("q", "unread", &["x"]).await;
    let of_p = |group: &str, lease, batch| of_partition("q", "p", want("q", group, lease, batch));
    kit.take(of_p("fast", 1, 9)).await;
    kit.settle("fast", vec![item(pushed[2], "c", Verdict::Completed, Some(1))]).await;
    kit.take(of_p("slow", 2, 9)).await;
    kit.settle("slow", vec![item(pushed[1], "b", Verdict::Completed, Some(2))]).await;
    assert_eq!(tidy(&kit).await, (0, 0), "not yet");
    kit.pass(61);
    assert_eq!(tidy(&kit).await, (2, 0));
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_husks").await, 2);
    let listed = kit.queues.queues(None, 1).await.unwrap();
    assert_eq!(listed[0].total, 2);

    let kit = kit.reopen(&crate::QueuesOptions::default()).await;
    let again = kit.push("q", "p", &["a", "c"]).await;
    assert!(again.iter().all(|pushed| pushed.duplicate), "{again:?}");
    assert_eq!(again[1].id, pushed[2].id);
    kit.pass(600);
    assert_eq!(kit.take(of_p("slow", 3, 9)).await, ["c"]);
    assert_eq!(kit.take(of_p("late", 4, 9)).await, ["c"], "the others are gone");
    assert_eq!(tidy(&kit).await, (0, 2), "the husks");
    assert!(!kit.push("q", "p", &["a"]).await[0].duplicate);
}

#[tokio::test]
async fn a_round_without_time_removes_one_row_and_the_next_goes_on() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.retention_enabled = true;
        options.retention_seconds = 60;
    })
    .await;
    for id in ["a", "b", "c"] {
        kit.push("q", "p", &[id]).await;
    }
    kit.push("q", "other", &["d"]).await;
    kit.pass(61);
    let short = Round { rows: 100, hold: Duration::ZERO };
    for left in [3, 2, 1, 0] {
        let done = kit.queues.tidy(short).await.unwrap();
        assert_eq!((done.messages, done.more), (1, true), "{left} are left");
    }
    let last = kit.queues.tidy(short).await.unwrap();
    assert_eq!((last.messages, last.more), (0, false));
}

#[tokio::test]
async fn retention_removes_what_nobody_has_consumed_too() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.retention_enabled = true;
        options.retention_seconds = 60;
        options.dedup_window_seconds = 10;
    })
    .await;
    kit.push("kept", "p", &["k"]).await;
    for partition in ["p1", "p2", "p3"] {
        kit.push("q", partition, &["a", "b"]).await;
    }
    kit.take(of_partition("q", "p1", want("q", "g", 1, 1))).await;
    kit.pass(61);
    kit.push("q", "p1", &["c"]).await;
    assert_eq!(tidy(&kit).await, (6, 0));
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_husks").await, 0);
    kit.pass(300);
    let mut job = want("q", "g", 2, 9);
    job.partitions = 9;
    assert_eq!(kit.take(job).await, ["c"]);
    let detail = kit.queues.show("q", 10).await.unwrap().unwrap();
    assert_eq!((detail.summary.total, detail.groups[0].pending), (1, 1));
}

#[tokio::test]
async fn what_is_past_its_time_to_live_is_removed_when_nobody_works_on_it() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.ttl = Some(60);
        options.dedup_window_seconds = 0;
    })
    .await;
    let pushed = kit.push("q", "p", &["a"]).await;
    kit.push("q", "p2", &["b"]).await;
    kit.take(of_partition("q", "p", want("q", "g", 1, 1))).await;
    kit.pass(61);
    assert_eq!(tidy(&kit).await.0, 1, "b");
    let dead = vec![item(pushed[0], "a", Verdict::Dead, Some(1))];
    kit.settle("g", dead).await;
    assert_eq!(kit.dead("q").await.len(), 1);
    assert_eq!(tidy(&kit).await.0, 1, "a");
}
