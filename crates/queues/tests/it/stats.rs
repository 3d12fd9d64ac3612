//! Sums by the minute.

use crate::kit::*;
use skep_policy::Time;
use skep_queues::store::*;
use skep_queues::tally::Tally;
use std::sync::Arc;

on_each_store!(
    what_is_added_adds_up_and_the_greatest_stays,
    buckets_hold_the_minutes_of_a_range_and_empty_ones_are_left_out,
    rows_of_a_queue_that_is_not_there_are_dropped,
    a_queue_that_is_made_again_has_no_past,
    nodes_that_add_at_once_lose_nothing,
    a_question_looks_back_only_so_far,
    the_oldest_minutes_are_forgotten_a_few_at_a_time,
);

fn counts(number: u64) -> StatCounts {
    StatCounts {
        pushed: number,
        bytes: number * 2,
        popped: number * 3,
        acked: number * 4,
        failed: number * 5,
        dead: number * 6,
        expired: number * 7,
        pending_max: number,
    }
}

fn row(queue: &str, minute: u64, number: u64) -> StatRow {
    let queue = (!queue.is_empty()).then(|| Arc::from(queue));
    StatRow { queue, minute, counts: counts(number) }
}

/// The minute of each point, and its pushes.
async fn pushed(
    store: &QueueStore,
    queue: &str,
    range: std::ops::Range<u64>,
    bucket: u32,
) -> Vec<(u64, u64)> {
    let (from, to) = (minute_start(range.start), minute_start(range.end));
    let queue = (!queue.is_empty()).then_some(queue);
    let points = store.stats(queue, from, to, bucket).await.expect("reads");
    points.iter().map(|point| (minute_of(point.from), point.counts.pushed)).collect()
}

async fn what_is_added_adds_up_and_the_greatest_stays(place: Place) {
    let store = place.open().await;
    store.configure("q", |_| {}).await;
    let store = store.whole();
    store.add_stats(&[]).await.expect("is nothing");
    store.add_stats(&[row("q", 5, 3), row("", 5, 3), row("q", 5, 1)]).await.expect("writes");
    store.add_stats(&[row("q", 5, 2), row("", 5, 2)]).await.expect("writes");
    let points = store.stats(Some("q"), Time::ZERO, minute_start(6), 1).await.expect("reads");
    let expected = StatCounts { pending_max: 3, ..counts(6) };
    assert_eq!(points, [StatPoint { from: minute_start(5), counts: expected }]);
    let points = store.stats(None, Time::ZERO, minute_start(6), 1).await.expect("reads");
    let expected = StatCounts { pending_max: 3, ..counts(5) };
    assert_eq!(points, [StatPoint { from: minute_start(5), counts: expected }]);
}

async fn buckets_hold_the_minutes_of_a_range_and_empty_ones_are_left_out(place: Place) {
    let store = place.open().await;
    store.configure("q", |_| {}).await;
    let store = store.whole();
    let rows: Vec<StatRow> = [9, 10, 11, 14, 15, 31].map(|minute| row("q", minute, 1)).into();
    store.add_stats(&rows).await.expect("writes");
    assert_eq!(pushed(&store, "q", 10..31, 1).await, [(10, 1), (11, 1), (14, 1), (15, 1)]);
    assert_eq!(pushed(&store, "q", 10..31, 5).await, [(10, 3), (15, 1)]);
    assert_eq!(pushed(&store, "q", 9..32, 10).await, [(0, 1), (10, 4), (30, 1)]);
    assert_eq!(pushed(&store, "q", 9..32, 0).await.len(), 6, "no less than a minute");
    assert_eq!(pushed(&store, "q", 16..31, 1).await, []);
    let backwards = store.stats(Some("q"), minute_start(31), minute_start(10), 1).await;
    assert_eq!(backwards.expect("reads"), []);
    let points = store.stats(Some("q"), Time::ZERO, minute_start(32), 60).await.expect("reads");
    let all = StatCounts { pending_max: 1, ..counts(6) };
    assert_eq!(points, [StatPoint { from: Time::ZERO, counts: all }]);
}

async fn rows_of_a_queue_that_is_not_there_are_dropped(place: Place) {
    let store = place.open().await;
    store.configure("q", |_| {}).await;
    let store = store.whole();
    store.add_stats(&[row("no", 1, 1), row("q", 1, 1), row("", 1, 2)]).await.expect("writes");
    assert_eq!(pushed(&store, "no", 0..9, 1).await, []);
    assert_eq!(pushed(&store, "q", 0..9, 1).await, [(1, 1)]);
    assert_eq!(pushed(&store, "", 0..9, 1).await, [(1, 2)]);
}

async fn a_queue_that_is_made_again_has_no_past(place: Place) {
    let store = place.open().await;
    store.configure("q", |_| {}).await;
    let desk = store.whole();
    desk.add_stats(&[row("q", 1, 1)]).await.expect("writes");
    store.delete_queue("q").await;
    assert_eq!(pushed(&desk, "q", 0..9, 1).await, []);
    store.configure("q", |_| {}).await;
    assert_eq!(pushed(&desk, "q", 0..9, 1).await, []);
    desk.add_stats(&[row("q", 1, 4)]).await.expect("writes");
    assert_eq!(pushed(&desk, "q", 0..9, 1).await, [(1, 4)]);
}

async fn nodes_that_add_at_once_lose_nothing(place: Place) {
    let store = place.open().await;
    let queues: Vec<Arc<str>> = (0..20).map(|number| format!("q{number}").into()).collect();
    for queue in &queues {
        store.configure(queue, |_| {}).await;
    }
    let mut nodes = tokio::task::JoinSet::new();
    for node in 0..4_usize {
        let (store, mut queues) = (store.whole(), queues.clone());
        nodes.spawn(async move {
            // Each in an order of its own, so that they would block each other in circles.
            queues.rotate_left(node * 5);
            let tally = Tally::default();
            for _ in 0..10 {
                for queue in &queues {
                    tally.add(queue, minute_start(3), &counts(1));
                }
                store.add_stats(&tally.take()).await.expect("writes");
            }
        });
    }
    nodes.join_all().await;
    let store = store.whole();
    for queue in &queues {
        assert_eq!(pushed(&store, queue, 0..9, 1).await, [(3, 40)]);
    }
    assert_eq!(pushed(&store, "", 0..9, 1).await, [(3, 800)]);
}

async fn a_question_looks_back_only_so_far(place: Place) {
    let store = place.open().await.whole();
    let end = STAT_MINUTES_MAX + 100;
    store.add_stats(&[row("", 99, 1), row("", 100, 1), row("", end, 1)]).await.expect("writes");
    assert_eq!(pushed(&store, "", 0..end, 1).await, [(100, 1)]);
    assert_eq!(pushed(&store, "", 0..u64::MAX, 1).await, [], "there is an end of time");
}

async fn the_oldest_minutes_are_forgotten_a_few_at_a_time(place: Place) {
    let store = place.open().await;
    store.configure("q", |_| {}).await;
    let store = store.whole();
    let rows: Vec<StatRow> = (0..10).flat_map(|m| [row("q", m, 1), row("", m, 1)]).collect();
    store.add_stats(&rows).await.expect("writes");
    let forget = async |minute, limit| {
        store.forget_stats(minute_start(minute), limit).await.expect("deletes")
    };
    assert_eq!(forget(0, 100).await, 0);
    assert_eq!(forget(5, 4).await, 4);
    assert_eq!(pushed(&store, "q", 0..4, 1).await, [(2, 1), (3, 1)], "the oldest went");
    assert_eq!(forget(5, 100).await, 6);
    assert_eq!(forget(5, 100).await, 0);
    assert_eq!(pushed(&store, "", 0..10, 1).await.len(), 5);
}
