//! What a queue's owner set is enforced.

use crate::kit::*;
use skep_queues::store::*;
use std::time::Duration;

on_each_store!(
    a_message_is_passed_over_after_its_time_to_live,
    without_a_time_to_live_nothing_is_passed_over,
    a_message_that_waited_too_long_is_passed_over,
    a_delayed_message_is_handed_out_when_it_is_due,
    a_partition_with_a_window_is_handed_out_when_its_pushes_calm_down,
    a_queue_takes_no_more_than_its_maximum,
    room_is_made_by_the_slowest_group,
    a_group_that_begins_late_takes_no_room,
    retention_deletes_what_is_old_consumed_or_not,
    completed_retention_keeps_what_the_slowest_group_has_not_read,
    retention_that_is_not_enabled_deletes_nothing,
    deleted_messages_leave_their_transaction_ids,
);

const SECOND: Duration = Duration::from_secs(1);

/// Waits until the store's clock says so.
async fn until(store: &Store, time: skep_policy::Time) {
    soon("the store's clock goes on", async || (store.now().await > time).then_some(())).await;
}

async fn a_message_is_passed_over_after_its_time_to_live(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.ttl = Some(1)).await;
    store.push(&[("q", "p", "old"), ("q", "gone", "old")]).await;
    let start = store.now().await;
    until(&store, start + SECOND).await;
    store.push(&[("q", "p", "new")]).await;
    let got = store.pop(up_to(9, "q")).await;
    assert_eq!(got.names(), ["new"]);
    store.settle(got.all_done()).await;
    let none = store.pop(up_to(9, "q")).await;
    assert_eq!((none.names().len(), none.claimed.next_at), (0, None));
}

async fn without_a_time_to_live_nothing_is_passed_over(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1")]).await;
    store.configure("q", |options| options.lease_time = 10).await;
    let start = store.now().await;
    until(&store, start + SECOND).await;
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1"]);
}

async fn a_message_that_waited_too_long_is_passed_over(place: Place) {
    let store = place.open().await;
    let options = |options: &mut skep_queues::QueueOptions| {
        (options.max_wait_time_seconds, options.ttl) = (1, Some(100));
    };
    store.configure("q", options).await;
    store.push(&[("q", "p", "held"), ("q", "p", "waits")]).await;
    let held = store.pop(from("q")).await;
    let start = store.now().await;
    until(&store, start + SECOND).await;
    assert_eq!(store.say(held.done("held")).await, DONE_ALL, "who works on it is not disturbed");
    assert!(store.pop(up_to(9, "q")).await.claimed.lanes.is_empty());
    store.tidy_all().await;
    store.push(&[("q", "p", "new")]).await;
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["new"]);
}

async fn a_delayed_message_is_handed_out_when_it_is_due(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.delayed_processing = 1).await;
    store.push(&[("q", "p", "1")]).await;
    let none = store.pop(up_to(9, "q")).await.claimed;
    assert_eq!(none.nothing, Some(Nothing::Empty));
    let due = none.next_at.expect("it is known");
    let got = store.pop_soon(up_to(9, "q")).await;
    let pushed = got.claimed.lanes[0].parts[0].at;
    assert_eq!(due, pushed + SECOND);
    assert!(got.claimed.now >= due, "not before");
}

async fn a_partition_with_a_window_is_handed_out_when_its_pushes_calm_down(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.window_buffer = 1).await;
    store.push(&[("q", "p", "1")]).await;
    assert_eq!(store.pop(from_partition("q", "p")).await.claimed.nothing, Some(Nothing::Window));
    store.push(&[("q", "p", "2")]).await;
    let got = store.pop_soon(up_to(9, "q")).await;
    assert_eq!(got.names(), ["1", "2"]);
    let last = read(&got.claimed.lanes[0])[1].at;
    assert!(got.claimed.now >= last + SECOND, "not before");
}

async fn a_queue_takes_no_more_than_its_maximum(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.max_size = 3).await;
    store.push(&[("q", "a", "1"), ("q", "b", "2")]).await;
    let push = async |all: &[(&str, &str)]| {
        store.try_push(all.iter().map(|(p, t)| message("q", p, t)).collect()).await
    };
    let Err(WorkError::Full { queue, waiting, max_size }) = push(&[("a", "3"), ("c", "4")]).await
    else {
        panic!("it is full")
    };
    assert_eq!((&*queue, waiting, max_size), ("q", 2, 3));
    assert!(push(&[("a", "1"), ("b", "2"), ("a", "3")]).await.is_ok(), "duplicates need no room");
    assert!(matches!(push(&[("a", "4")]).await, Err(WorkError::Full { waiting: 3, .. })));
    assert!(push(&[("a", "3")]).await.is_ok_and(|all| all[0].duplicate));
    let got = store.pop(from("q")).await;
    assert!(push(&[("a", "4")]).await.is_err(), "leased is not settled");
    store.settle(got.all_done()).await;
    assert!(push(&[("a", "4")]).await.is_ok());
    store.configure("q", |options| options.max_size = 0).await;
    assert!(push(&[("a", "5"), ("a", "6")]).await.is_ok(), "0 is no limit");
}

async fn room_is_made_by_the_slowest_group(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.max_size = 2).await;
    store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    let read = async |group: &str, batch: u32| {
        let job = ClaimJob { group: group.into(), auto_ack: true, ..up_to(batch, "q") };
        store.pop(job).await.names().len()
    };
    assert_eq!((read("slow", 1).await, read("fast", 2).await), (1, 2));
    let push = async |name| store.try_push(vec![message("q", "p", name)]).await;
    assert!(push("3").await.is_ok());
    assert!(push("4").await.is_err());
    assert_eq!(read("fast", 9).await, 1);
    assert!(push("4").await.is_err());
    assert_eq!(read("slow", 1).await, 1);
    assert!(push("4").await.is_ok());
}

async fn a_group_that_begins_late_takes_no_room(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.max_size = 2).await;
    let push = async |name: &str| store.try_push(vec![message("q", "p", name)]).await.is_ok();
    let all = || ClaimJob { auto_ack: true, ..up_to(9, "q") };
    assert!(push("1").await && push("2").await);
    assert_eq!(store.pop(all()).await.names().len(), 2);
    let late = || ClaimJob { group: "late".into(), start: None, ..all() };
    assert!(store.pop(late()).await.claimed.lanes.is_empty());
    assert!(push("3").await, "for it the first two do not wait");
    assert_eq!(store.seek("q", None, SeekTo::End).await, Sought::Moved(2));
    assert!(store.pop(all()).await.claimed.lanes.is_empty());
    assert_eq!(store.pop(late()).await.names(), ["3"]);
    assert!(push("4").await && push("5").await, "nothing waits for anybody");
    assert!(!push("6").await);
}

/// Puts two messages into a queue, and one a second later, and lets the first be old.
async fn aged(store: &Store) {
    store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    let start = store.now().await;
    until(store, start + 2 * SECOND).await;
    store.push(&[("q", "p", "3")]).await;
}

async fn retention_deletes_what_is_old_consumed_or_not(place: Place) {
    let store = place.open().await;
    let options = |options: &mut skep_queues::QueueOptions| {
        (options.retention_enabled, options.retention_seconds) = (true, 1);
    };
    store.configure("q", options).await;
    aged(&store).await;
    assert_eq!(store.tidy_all().await.messages, 2);
    assert_eq!(store.tidy_all().await.messages, 0);
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["3"]);
    assert_eq!(store.show("q").await.expect("is there").summary.total, 1);
}

async fn completed_retention_keeps_what_the_slowest_group_has_not_read(place: Place) {
    let store = place.open().await;
    let options = |options: &mut skep_queues::QueueOptions| {
        (options.retention_enabled, options.completed_retention_seconds) = (true, 1);
    };
    store.configure("q", options).await;
    aged(&store).await;
    assert_eq!(store.tidy_all().await.messages, 0, "nobody has read them");
    let read =
        |group: &str, batch| ClaimJob { group: group.into(), auto_ack: true, ..up_to(batch, "q") };
    assert_eq!(store.pop(read("slow", 1)).await.names(), ["1"]);
    assert_eq!(store.pop(read("fast", 2)).await.names(), ["1", "2"]);
    assert_eq!(store.tidy_all().await.messages, 0, "2 is not read by all");
    assert_eq!(store.pop(read("slow", 1)).await.names(), ["2"]);
    assert_eq!(store.tidy_all().await.messages, 2);
    assert_eq!(store.pop(read("fast", 9)).await.names(), ["3"]);
    assert_eq!(store.pop(read("slow", 9)).await.names(), ["3"]);
}

async fn retention_that_is_not_enabled_deletes_nothing(place: Place) {
    let store = place.open().await;
    let options = |options: &mut skep_queues::QueueOptions| {
        (options.completed_retention_seconds, options.retention_seconds) = (1, 1);
    };
    store.configure("q", options).await;
    aged(&store).await;
    assert_eq!(store.tidy_all().await.messages, 0);
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1", "2", "3"]);
}

async fn deleted_messages_leave_their_transaction_ids(place: Place) {
    let store = place.open().await;
    let options = |options: &mut skep_queues::QueueOptions| {
        (options.retention_enabled, options.retention_seconds) = (true, 1);
    };
    store.configure("q", options).await;
    aged(&store).await;
    assert_eq!(store.tidy_all().await.messages, 2);
    for _ in 0..2 {
        let again = place.open().await.push(&[("q", "p", "1"), ("q", "p", "3")]).await;
        assert!(again[0].duplicate && again[1].duplicate, "within their window they are known");
    }
}
