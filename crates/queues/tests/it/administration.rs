//! Making, looking, moving, deleting.

use crate::kit::*;
use skep_policy::queues::{Refusal, Settled};
use skep_queues::store::*;

on_each_store!(
    configuring_makes_a_queue_and_changes_only_what_it_says,
    a_list_of_queues_goes_on_where_it_ended,
    a_queue_shows_its_partitions_and_groups,
    a_deleted_queue_is_gone_and_its_name_is_free,
    a_group_reads_again_from_a_time,
    a_group_skips_to_the_end,
    one_partition_is_read_again,
    a_seek_ends_every_claim_of_the_group,
    a_seek_of_what_is_not_there_says_so,
    a_deleted_group_begins_anew,
    what_was_deleted_is_tidied_away_and_nothing_else,
);

async fn configuring_makes_a_queue_and_changes_only_what_it_says(place: Place) {
    let store = place.open().await;
    let made = store.configure("shop.orders", |options| options.priority = 3).await;
    assert_eq!((&*made.queue.namespace, &*made.queue.task), ("shop", "orders"));
    let changed = store.configure("shop.orders", |options| options.lease_time = 9).await;
    assert_eq!((changed.queue.id, changed.partition), (made.queue.id, made.partition));
    let options = &changed.queue.options;
    assert_eq!((options.priority, options.lease_time), (3, 9));
    assert_eq!(store.queue("shop.orders").await, Some(changed.queue.clone()));
    let pushed = store.push(&[("shop.orders", DEFAULT_PARTITION, "1")]).await;
    assert_eq!(pushed[0].partition, made.partition);
    drop(store);
    assert_eq!(place.open().await.queue("shop.orders").await, Some(changed.queue));
}

async fn a_list_of_queues_goes_on_where_it_ended(place: Place) {
    let store = place.open().await;
    for name in ["c", "a", "d", "b"] {
        store.push(&[(name, "p", "1"), (name, "p", "2")]).await;
    }
    let names = async |after, limit| {
        let list = store.queues(after, limit).await;
        list.iter().map(|one| one.queue.name.to_string()).collect::<Vec<_>>().join("")
    };
    assert_eq!(names(None, 3).await, "abc");
    assert_eq!(names(Some("c"), 3).await, "d");
    assert_eq!(names(Some("d"), 3).await, "");
    let got = store.pop(up_to(1, "a")).await;
    store.settle(got.all_done()).await;
    let list = store.queues(None, 1).await;
    let first = &list[0];
    assert_eq!((first.partitions, first.total, first.pending, first.dead), (1, 2, 1, 0));
}

async fn a_queue_shows_its_partitions_and_groups(place: Place) {
    let store = place.open().await;
    assert!(store.show("q").await.is_none());
    store.push(&[("q", "b", "1"), ("q", "b", "2")]).await;
    store.push(&[("q", "a", "3")]).await;
    let got = store.pop(from("q")).await;
    let other = ClaimJob { group: "others".into(), auto_ack: true, ..up_to(9, "q") };
    store.pop(other).await;
    let shown = store.show("q").await.expect("is there");
    let partitions: Vec<_> = shown
        .partitions
        .iter()
        .map(|one| (&*one.name, one.tail, one.last_push.is_some()))
        .collect();
    assert_eq!(partitions, [("b", 2, true), ("a", 1, true)], "by age");
    let groups: Vec<_> =
        shown.groups.iter().map(|one| (&*one.name, one.pending, one.leased)).collect();
    assert_eq!(groups, [("others", 0, 0), (GROUP, 3, 1)]);
    assert_eq!((shown.summary.total, shown.summary.pending), (3, 3));
    store.settle(got.all_done()).await;
    let shown = store.show("q").await.expect("is there");
    assert_eq!((shown.summary.pending, shown.groups[1].leased), (2, 0));
}

async fn a_deleted_queue_is_gone_and_its_name_is_free(place: Place) {
    let store = place.open().await;
    let first = store.push(&[("q", "p", "1"), ("r", "p", "1")]).await;
    let got = store.pop(from("q")).await;
    assert!(store.delete_queue("q").await);
    assert!(!store.delete_queue("q").await);
    assert_eq!(store.queue("q").await, None);
    assert_eq!(store.pop(from("q")).await.claimed.nothing, Some(Nothing::NoQueue));
    let said = store.say(got.done("1")).await;
    assert!(matches!(said, Settled::Refused(_)), "{said:?}");
    assert_eq!(store.extend(got.lease, 9).await, None);
    let again = store.push(&[("q", "p", "1")]).await;
    assert!(!again[0].duplicate && again[0].partition != first[0].partition);
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1"]);
    store.tidy_all().await;
    assert_eq!(store.pop(up_to(9, "r")).await.names(), ["1"], "others are untouched");
}

async fn a_group_reads_again_from_a_time(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "b", "b1")]).await;
    let time = store.now().await;
    store.push(&[("q", "a", "a2"), ("q", "c", "c1")]).await;
    let all = || ClaimJob { auto_ack: true, ..up_to(9, "q") };
    assert_eq!(store.pop(all()).await.names().len(), 4);
    assert_eq!(store.seek("q", None, SeekTo::Time(time)).await, Sought::Moved(3));
    let mut names = store.pop(all()).await.names();
    names.sort_unstable();
    assert_eq!(names, ["a2", "c1"]);
    let begin = SeekTo::Time(skep_policy::Time::ZERO);
    assert_eq!(store.seek("q", None, begin).await, Sought::Moved(3));
    assert_eq!(store.pop(all()).await.names().len(), 4);
}

async fn a_group_skips_to_the_end(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "b", "b1")]).await;
    assert_eq!(store.seek("q", None, SeekTo::End).await, Sought::Moved(2), "it was never seen");
    assert!(store.pop(up_to(9, "q")).await.claimed.lanes.is_empty());
    store.push(&[("q", "a", "a2"), ("q", "c", "c1")]).await;
    let mut names = store.pop(up_to(9, "q")).await.names();
    names.sort_unstable();
    assert_eq!(names, ["a2", "c1"]);
}

async fn one_partition_is_read_again(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "b", "b1")]).await;
    let all = || ClaimJob { auto_ack: true, ..up_to(9, "q") };
    store.pop(all()).await;
    let begin = SeekTo::Time(skep_policy::Time::ZERO);
    assert_eq!(store.seek("q", Some("b"), begin).await, Sought::Moved(1));
    assert_eq!(store.pop(all()).await.names(), ["b1"]);
    let seek = store.seek_for("new", "q", Some("a"), SeekTo::End).await;
    assert_eq!(seek, Sought::Moved(1));
    let new = ClaimJob { group: "new".into(), ..all() };
    assert_eq!(store.pop(new).await.names(), ["b1"], "a was skipped");
}

async fn a_seek_ends_every_claim_of_the_group(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    for partition in [None, Some("p")] {
        let got = store.pop(up_to(9, "q")).await;
        let begin = SeekTo::Time(skep_policy::Time::ZERO);
        store.seek("q", partition, begin).await;
        assert_eq!(store.say(got.done("2")).await, Settled::Refused(Refusal::Stale));
        assert_eq!(store.extend(got.lease, 9).await, None);
        let got = store.pop(up_to(9, "q")).await;
        assert_eq!(got.names(), ["1", "2"]);
        store.release(got.lease).await;
    }
}

async fn a_seek_of_what_is_not_there_says_so(place: Place) {
    let store = place.open().await;
    assert_eq!(store.seek("q", None, SeekTo::End).await, Sought::NoQueue);
    assert_eq!(store.seek("q", Some("p"), SeekTo::End).await, Sought::NoQueue);
    store.push(&[("q", "p", "1")]).await;
    assert_eq!(store.seek("q", Some("no"), SeekTo::End).await, Sought::NoPartition);
}

async fn a_deleted_group_begins_anew(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("r", "a", "r1")]).await;
    let job = |queue| ClaimJob { auto_ack: true, ..up_to(9, queue) };
    for queue in ["q", "r"] {
        assert_eq!(store.pop(job(queue)).await.names().len(), 1);
    }
    assert_eq!(store.delete_group(GROUP, Some("q")).await, 1);
    assert_eq!(store.delete_group(GROUP, Some("q")).await, 0);
    assert_eq!(store.pop(job("q")).await.names(), ["a1"]);
    assert!(store.pop(job("r")).await.claimed.lanes.is_empty());
    assert_eq!(store.delete_group(GROUP, None).await, 2);
    assert_eq!(store.pop(job("r")).await.names(), ["r1"]);
}

async fn what_was_deleted_is_tidied_away_and_nothing_else(place: Place) {
    let store = place.open().await;
    for number in 0..30 {
        let name = number.to_string();
        store.push(&[("gone", &name, &name), ("kept", &name, &name)]).await;
    }
    let all = |queue| ClaimJob { auto_ack: true, batch: 20, partitions: 20, ..from(queue) };
    store.pop(all("gone")).await;
    store.pop(all("kept")).await;
    store.delete_queue("gone").await;
    store.seek("kept", None, SeekTo::Time(skep_policy::Time::ZERO)).await;
    assert!(store.tidy_all().await.rows > 0);
    assert_eq!(store.tidy_all().await, Tidied::default());
    assert_eq!(store.pop(up_to(100, "kept")).await.names().len(), 30);
}
