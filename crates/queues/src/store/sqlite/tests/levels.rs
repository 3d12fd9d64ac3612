//! Priorities: partitions in several levels.

use super::kit::{Kit, item, leveled, message, of_partition, want};
use crate::ids::PartitionId;
use crate::store::{Nothing, Pushed, SeekTo, Sought};
use skep_policy::queues::{Settled, Verdict};
use std::sync::Arc;

/// Pushes messages given as partition, name and level.
async fn push(kit: &Kit, all: &[(&str, &str, u8)]) -> Vec<Pushed> {
    let messages = all.iter().map(|(p, name, level)| leveled("q", p, name, *level)).collect();
    kit.try_push(messages).await.unwrap()
}

#[tokio::test]
async fn the_highest_level_of_a_partition_goes_first() {
    let kit = Kit::new().await;
    push(&kit, &[("p", "low1", 0), ("p", "high1", 9), ("p", "low2", 0), ("p", "mid", 4)]).await;
    push(&kit, &[("other", "o1", 0), ("p", "high2", 9)]).await;
    let mut order = Vec::new();
    for lease in 1..=6 {
        let claimed = kit.claim(want("q", "g", lease, 1)).await;
        let lane = &claimed.lanes[0];
        let id = super::kit::ids(&claimed)[0].clone();
        order.push((lane.partition.to_string(), lane.level, id.clone()));
        let pushed = Pushed { id: uuid::Uuid::nil(), partition: lane.id, duplicate: false };
        kit.settle("g", vec![item(pushed, &id, Verdict::Completed, Some(lease))]).await;
    }
    let told: Vec<_> = order.iter().map(|(p, level, id)| (&**p, *level, &**id)).collect();
    let expected = [
        ("p", 9, "high1"),
        // Still the turn of p, whose level 0 waits longest; its highest goes first.
        ("p", 9, "high2"),
        ("p", 4, "mid"),
        ("p", 0, "low1"),
        ("other", 0, "o1"),
        ("p", 0, "low2"),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn each_level_is_a_lane_of_its_own() {
    let kit = Kit::new().await;
    let pushed = push(&kit, &[("p", "a", 0), ("p", "b", 3), ("p", "a", 3), ("p", "b", 3)]).await;
    assert_ne!(pushed[0].partition, pushed[1].partition);
    assert_eq!(pushed[1].partition, pushed[2].partition);
    let duplicates: Vec<bool> = pushed.iter().map(|one| one.duplicate).collect();
    assert_eq!(duplicates, [false, false, false, true], "known within partition and level");
    assert_eq!(kit.take(want("q", "g", 1, 1)).await, ["b"]);
    assert_eq!(kit.take(want("q", "g", 2, 9)).await, ["a"], "of level 0, beside the other");
    let none = kit.claim(want("q", "g", 3, 9)).await;
    assert_eq!(none.nothing, Some(Nothing::Empty));
    let retry = vec![item(pushed[1], "b", Verdict::Retry, Some(1))];
    assert!(matches!(kit.settle("g", retry).await[0], Settled::Again { .. }));
    assert_eq!(kit.take(want("q", "g", 4, 9)).await, ["b", "a"]);
}

#[tokio::test]
async fn a_level_that_a_group_has_not_come_to_goes_first_too() {
    let kit = Kit::new().await;
    push(&kit, &[("p", "1", 0), ("p", "2", 0)]).await;
    let pushed = kit.push("q", "p2", &["x"]).await;
    kit.take(of_partition("q", "p2", want("q", "g", 1, 9))).await;
    kit.settle("g", vec![item(pushed[0], "x", Verdict::Completed, Some(1))]).await;
    push(&kit, &[("p", "urgent", 7)]).await;
    assert_eq!(kit.take(want("q", "g", 2, 1)).await, ["urgent"]);
    let mut job = want("q", "g", 3, 9);
    job.partitions = 9;
    assert_eq!(kit.take(job).await, ["1", "2"]);
}

#[tokio::test]
async fn a_pop_of_a_partition_tries_its_levels_from_high_to_low() {
    let kit = Kit::new().await;
    let of_p = |lease| of_partition("q", "p", want("q", "g", lease, 9));
    push(&kit, &[("p", "low", 0), ("p", "high", 8)]).await;
    assert_eq!(kit.take(of_p(1)).await, ["high"]);
    assert_eq!(kit.take(of_p(2)).await, ["low"]);
    let none = kit.claim(of_p(3)).await;
    assert_eq!(none.nothing, Some(Nothing::Leased));
    assert!(none.next_at.is_some());
    let unknown = kit.claim(of_partition("q", "never", want("q", "g", 4, 9))).await;
    assert_eq!(unknown.nothing, Some(Nothing::NoPartition));
    push(&kit, &[("only high", "x", 8)]).await;
    let only = of_partition("q", "only high", want("q", "g", 5, 9));
    assert_eq!(kit.take(only).await, ["x"], "there need not be a level 0");
}

#[tokio::test]
async fn a_seek_of_a_partition_moves_all_its_levels() {
    let kit = Kit::new().await;
    push(&kit, &[("p", "low", 0), ("p", "high", 8), ("other", "o", 8)]).await;
    let mut all = want("q", "g", 1, 9);
    (all.partitions, all.auto_ack) = (9, true);
    assert_eq!(kit.take(all.clone()).await, ["high", "low", "o"]);
    let begin = SeekTo::Time(skep_policy::Time::ZERO);
    let sought = kit.queues.seek("q", "g", Some("p"), begin).await.unwrap();
    assert_eq!(sought, Sought::Moved(2));
    assert_eq!(kit.take(all.clone()).await, ["high", "low"]);
    let sought = kit.queues.seek("q", "g", Some("p"), SeekTo::End).await.unwrap();
    assert_eq!(sought, Sought::Moved(2));
    assert!(kit.take(all).await.is_empty());
}

#[tokio::test]
async fn levels_are_shown_and_dead_letters_of_all_are_found_by_the_name() {
    let kit = Kit::new().await;
    let pushed = push(&kit, &[("p", "low", 0), ("p", "high", 8)]).await;
    let kit = kit.reopen(&crate::QueuesOptions::default()).await;
    kit.push("q", "p2", &["x"]).await;
    let shown = kit.queues.show("q", 10).await.unwrap().unwrap();
    let levels: Vec<_> = shown.partitions.iter().map(|one| (&*one.name, one.level)).collect();
    assert_eq!(levels, [("p", 0), ("p", 8), ("p2", 0)]);
    for (lease, pushed, name) in [(1, pushed[1], "high"), (2, pushed[0], "low")] {
        kit.take(want("q", "g", lease, 1)).await;
        kit.settle("g", vec![item(pushed, name, Verdict::Dead, Some(lease))]).await;
    }
    let filter = |partition: &str| crate::store::DeadFilter {
        queue: Some("q".into()),
        partition: Some(Arc::from(partition)),
        limit: 9,
        ..Default::default()
    };
    assert_eq!(kit.queues.dead_letters(filter("p")).await.unwrap().total, 2);
    assert_eq!(kit.queues.dead_letters(filter("p2")).await.unwrap().total, 0);
}

#[tokio::test]
async fn a_refused_push_leaves_no_level_behind() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.max_size = 1).await;
    kit.try_push(vec![message("q", "p", "1"), leveled("q", "p", "2", 5)]).await.unwrap_err();
    assert_eq!(kit.count("SELECT levels FROM skep_queues").await, 0);
    push(&kit, &[("p", "2", 5)]).await;
    assert_eq!(kit.count("SELECT levels FROM skep_queues").await, 1 << 5);
    let ids = kit.count("SELECT count(*) FROM skep_queue_partitions WHERE name = 'p'").await;
    assert_eq!(ids, 1);
    let PartitionId(first) = kit.push("r", "p", &["1"]).await[0].partition;
    assert!(first > 0);
}
