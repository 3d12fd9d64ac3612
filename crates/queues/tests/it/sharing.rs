//! Who goes first, and how much a group may have: priorities and limits.

use crate::kit::*;
use skep_policy::Time;
use skep_policy::queues::Verdict;
use skep_queues::QueueOptions;
use skep_queues::record::Wishes;
use skep_queues::store::*;
use std::collections::BTreeSet;
use std::time::Duration;

mod crowd;

on_each_store!(
    within_a_partition_the_highest_priority_goes_first,
    order_is_kept_within_a_priority,
    across_partitions_the_one_that_waits_longest_goes_first,
    a_higher_level_that_is_leased_holds_nobody_up,
    a_partition_is_popped_by_name_from_its_highest_level_down,
    a_seek_by_name_moves_every_level,
    ids_are_known_per_level,
    no_more_is_in_flight_than_may_be,
    no_more_of_a_key_is_in_flight_than_may_be_and_other_keys_go_on,
    the_partitions_of_a_key_take_turns,
    what_ends_makes_room,
    a_lease_that_runs_out_makes_room,
    no_more_is_handed_out_in_a_time_than_may_be,
    what_is_settled_at_once_counts_for_rates_only,
    groups_have_limits_of_their_own,
    limits_that_change_hold_at_once,
    whoever_waits_for_room_is_woken,
    a_crowd_never_exceeds_a_limit_and_consumes_everything,
    a_lane_without_anything_left_gives_its_turn_to_another,
);

const SECOND: Duration = Duration::from_secs(1);

/// Another node, where there may be several.
async fn another(place: &Place, store: &Store) -> Store {
    if place.shared_by_many() { place.open().await } else { store.clone() }
}

fn at_level(partition: &str, transaction: &str, priority: u8) -> NewMessage {
    wished("q", partition, transaction, Wishes { priority, ..Wishes::default() })
}

async fn push_at(store: &Store, messages: &[(&str, &str, u8)]) -> Vec<Pushed> {
    let messages = messages.iter().map(|(p, t, level)| at_level(p, t, *level)).collect();
    store.try_push(messages).await.expect("is kept")
}

/// Takes everything one by one and settles it.
async fn drained(store: &Store) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let got = store.pop(from("q")).await;
        if got.claimed.lanes.is_empty() {
            return all;
        }
        store.settle(got.all_done()).await;
        all.extend(got.names());
    }
}

async fn within_a_partition_the_highest_priority_goes_first(place: Place) {
    let store = place.open().await;
    push_at(&store, &[("p", "low 1", 0), ("p", "low 2", 0)]).await;
    let got = store.pop(from("q")).await;
    assert_eq!(got.names(), ["low 1"]);
    assert_eq!(got.claimed.lanes[0].level, 0);
    store.settle(got.all_done()).await;
    push_at(&store, &[("p", "middle", 5), ("p", "high", 9)]).await;
    let got = another(&place, &store).await.pop(from("q")).await;
    assert_eq!((got.names(), got.claimed.lanes[0].level), (vec!["high".to_owned()], 9));
    assert_eq!(&*got.claimed.lanes[0].partition, "p");
    store.settle(got.all_done()).await;
    assert_eq!(drained(&store).await, ["middle", "low 2"]);
    push_at(&store, &[("p", "low 3", 0)]).await;
    push_at(&store, &[("p", "high 2", 9)]).await;
    assert_eq!(drained(&store).await, ["high 2", "low 3"]);
    let shown = store.show("q").await.expect("is there");
    let levels: BTreeSet<(String, u8)> =
        shown.partitions.iter().map(|one| (one.name.to_string(), one.level)).collect();
    let p = |level| ("p".to_owned(), level);
    assert!(levels.is_superset(&BTreeSet::from([p(0), p(5), p(9)])), "{levels:?}");
}

async fn order_is_kept_within_a_priority(place: Place) {
    let store = place.open().await;
    for number in 0..6 {
        push_at(&store, &[("p", &format!("low {number}"), 1)]).await;
        push_at(&store, &[("p", &format!("high {number}"), 2)]).await;
    }
    let all = drained(&store).await;
    let expected: Vec<String> = ["high", "low"]
        .iter()
        .flat_map(|level| (0..6).map(move |number| format!("{level} {number}")))
        .collect();
    assert_eq!(all, expected);
}

async fn across_partitions_the_one_that_waits_longest_goes_first(place: Place) {
    let store = place.open().await;
    push_at(&store, &[("old", "old", 0)]).await;
    push_at(&store, &[("new", "new", 0)]).await;
    push_at(&store, &[("new", "new high", 9)]).await;
    assert_eq!(drained(&store).await, ["old", "new high", "new"]);
    push_at(&store, &[("a", "a", 0)]).await;
    push_at(&store, &[("b", "b", 3)]).await;
    push_at(&store, &[("a", "a high", 3)]).await;
    let all = store.pop(up_to(9, "q")).await;
    assert_eq!(all.names(), ["a high", "a", "b"], "several at once, as they wait");
}

async fn a_higher_level_that_is_leased_holds_nobody_up(place: Place) {
    let store = place.open().await;
    push_at(&store, &[("p", "low", 0), ("p", "high 1", 4), ("p", "high 2", 4)]).await;
    let high = store.pop(from("q")).await;
    assert_eq!(high.names(), ["high 1"]);
    let low = store.pop(from("q")).await;
    assert_eq!(low.names(), ["low"], "the high one is leased");
    assert_ne!(high.claimed.lanes[0].id, low.claimed.lanes[0].id);
    assert_eq!(store.pop(from("q")).await.claimed.nothing, Some(Nothing::Empty));
    assert_eq!(store.settle(high.all_done()).await, [DONE_ALL]);
    assert_eq!(store.pop(from("q")).await.names(), ["high 2"]);
}

async fn a_partition_is_popped_by_name_from_its_highest_level_down(place: Place) {
    let store = place.open().await;
    push_at(&store, &[("p", "low", 0), ("p", "high", 7), ("other", "x", 9)]).await;
    let high = store.pop(from_partition("q", "p")).await;
    assert_eq!(high.names(), ["high"]);
    let low = store.pop(from_partition("q", "p")).await;
    assert_eq!(low.names(), ["low"]);
    assert_eq!(store.pop(from_partition("q", "p")).await.claimed.nothing, Some(Nothing::Leased));
    store.settle(low.all_done()).await;
    assert_eq!(store.pop(from_partition("q", "p")).await.claimed.nothing, Some(Nothing::Leased));
    store.settle(high.all_done()).await;
    assert_eq!(store.pop(from_partition("q", "p")).await.claimed.nothing, Some(Nothing::Empty));
    let nowhere = store.pop(from_partition("q", "never")).await;
    assert_eq!(nowhere.claimed.nothing, Some(Nothing::NoPartition));
    // One that has only high levels.
    assert_eq!(store.pop(from_partition("q", "other")).await.names(), ["x"]);
}

async fn a_seek_by_name_moves_every_level(place: Place) {
    let store = place.open().await;
    push_at(&store, &[("p", "low", 0), ("p", "high", 7), ("r", "other", 7)]).await;
    assert_eq!(drained(&store).await.len(), 3);
    let sought = store.seek("q", Some("p"), SeekTo::Time(Time::ZERO)).await;
    assert!(matches!(sought, Sought::Moved(_)), "{sought:?}");
    assert_eq!(drained(&store).await, ["high", "low"]);
    store.seek("q", None, SeekTo::Time(Time::ZERO)).await;
    store.seek("q", Some("p"), SeekTo::End).await;
    assert_eq!(drained(&store).await, ["other"]);
}

async fn ids_are_known_per_level(place: Place) {
    let store = place.open().await;
    let first = push_at(&store, &[("p", "a", 3)]).await;
    let again = push_at(&store, &[("p", "a", 3), ("p", "a", 0)]).await;
    assert_eq!((again[0].duplicate, again[0].id), (true, first[0].id));
    assert!(!again[1].duplicate, "another level is another order");
    assert_ne!(again[0].partition, again[1].partition);
}

/// Makes `q` with these options, and messages `0`, `1`, … in each of these partitions.
async fn limited(
    store: &Store,
    partitions: &[&str],
    count: usize,
    change: impl Fn(&mut QueueOptions) + Send + Sync + 'static,
) {
    store.configure("q", change).await;
    for partition in partitions {
        let names: Vec<String> = (0..count).map(|number| format!("{partition}.{number}")).collect();
        let messages = names.iter().map(|name| message("q", partition, name)).collect();
        store.try_push(messages).await.expect("is kept");
    }
}

async fn no_more_is_in_flight_than_may_be(place: Place) {
    let store = place.open().await;
    limited(&store, &["a", "b"], 4, |options| options.max_in_flight = 5).await;
    let first = store.pop(up_to(3, "q")).await;
    assert_eq!(first.names().len(), 3);
    let second = store.pop(up_to(9, "q")).await;
    assert_eq!(second.names().len(), 2, "as many as there is room for");
    let none = store.pop(from("q")).await.claimed;
    assert_eq!((none.lanes.len(), none.nothing), (0, Some(Nothing::Empty)));
    let next = none.next_at.expect("when a lease ends");
    assert!(next > none.now && next <= first.claimed.until.max(second.claimed.until));
    store.settle(vec![first.done(&first.names()[0])]).await;
    let other = another(&place, &store).await;
    assert!(other.pop(up_to(9, "q")).await.names().is_empty(), "all are leased");
    store.settle(second.all_done()).await;
    store.settle(first.all_done()).await;
    assert_eq!(store.pop(up_to(9, "q")).await.names().len(), 3, "what is left");
}

async fn no_more_of_a_key_is_in_flight_than_may_be_and_other_keys_go_on(place: Place) {
    let store = place.open().await;
    let partitions = ["x/1", "x/2", "x/3", "y/1", "z"];
    limited(&store, &partitions, 1, |options| {
        options.key_max_in_flight = 2;
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    let got = store.pop(up_to(9, "q")).await;
    assert_eq!(got.names(), ["x/1.0", "x/2.0", "y/1.0", "z.0"]);
    let none = store.pop(up_to(9, "q")).await.claimed;
    assert!(none.lanes.is_empty() && none.next_at.is_some_and(|at| at > none.now), "{none:?}");
    let named = store.pop(from_partition("q", "x/3")).await.claimed;
    assert_eq!((named.lanes.len(), named.nothing), (0, Some(Nothing::Empty)));
    store.settle(vec![got.done("y/1.0")]).await;
    assert!(store.pop(up_to(9, "q")).await.names().is_empty(), "that was another key");
    store.settle(vec![got.done("x/1.0")]).await;
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["x/3.0"]);
}

async fn the_partitions_of_a_key_take_turns(place: Place) {
    let store = place.open().await;
    limited(&store, &["k/a", "k/b", "k/c"], 3, |options| {
        (options.key_max_in_flight, options.limit_key_separator) = (1, "/".to_owned());
    })
    .await;
    let mut all = Vec::new();
    loop {
        let got = store.pop(from("q")).await;
        if got.claimed.lanes.is_empty() {
            break;
        }
        assert!(store.pop(up_to(9, "q")).await.names().is_empty(), "one at a time");
        store.settle(got.all_done()).await;
        all.extend(got.claimed.lanes.iter().map(|lane| lane.partition.to_string()));
    }
    assert_eq!(all.len(), 9);
    for turn in all.chunks(3) {
        let turn: BTreeSet<&String> = turn.iter().collect();
        assert_eq!(turn.len(), 3, "{all:?}");
    }
}

async fn what_ends_makes_room(place: Place) {
    let store = place.open().await;
    limited(&store, &["a", "b", "c", "d"], 2, |options| {
        (options.max_in_flight, options.retry_limit, options.retry_delay) = (3, 0, 0);
        (options.key_max_in_flight, options.limit_key_separator) = (1, "-".to_owned());
    })
    .await;
    let three = store.pop(up_to(9, "q")).await;
    assert_eq!(three.names().len(), 3);
    let next = async || store.pop(from("q")).await.names();
    assert!(next().await.is_empty());
    let first = three.names()[0].clone();
    store.settle(vec![three.failed(&first)]).await;
    let four = store.pop(from("q")).await;
    assert_eq!(four.names(), ["d.0"], "a dead letter is not in flight");
    assert!(next().await.is_empty());
    store.settle(vec![four.word("d.0", Verdict::Retry)]).await;
    let five = store.pop(from("q")).await;
    assert_eq!(five.names().len(), 1, "what comes again is not in flight");
    assert!(next().await.is_empty());
    assert_eq!(store.release(five.lease).await, 1);
    let six = store.pop(from("q")).await;
    assert_eq!(six.names().len(), 1, "what is given back is not in flight");
    assert!(next().await.is_empty());
    store.seek("q", Some(&six.claimed.lanes[0].partition), SeekTo::End).await;
    assert_eq!(next().await.len(), 1, "who is sent elsewhere has nothing in flight");
}

async fn a_lease_that_runs_out_makes_room(place: Place) {
    let store = place.open().await;
    limited(&store, &["a", "b"], 1, |options| options.max_in_flight = 1).await;
    let short = ClaimJob { lease_seconds: Some(1), ..from("q") };
    let got = store.pop(short).await;
    let none = store.pop(from("q")).await.claimed;
    assert_eq!((none.lanes.len(), none.next_at), (0, Some(got.claimed.until)));
    store.pop_soon(from("q")).await;
    assert!(store.pop(from("q")).await.claimed.lanes.is_empty(), "that one is in flight now");

    store.configure("k", |options| options.key_max_in_flight = 1).await;
    let messages = ["t1", "t2"].map(|name| message("k", "one", name));
    store.try_push(messages.into()).await.expect("is kept");
    let priority = Wishes { priority: 4, ..Wishes::default() };
    store.try_push(vec![wished("k", "one", "t3", priority)]).await.expect("is kept");
    let got = store.pop(ClaimJob { lease_seconds: Some(1), ..from("k") }).await;
    assert_eq!(got.names(), ["t3"]);
    let none = store.pop(from("k")).await.claimed;
    assert_eq!((none.lanes.len(), none.next_at), (0, Some(got.claimed.until)), "one key, one name");
    store.pop_soon(from("k")).await;
}

async fn no_more_is_handed_out_in_a_time_than_may_be(place: Place) {
    let store = place.open().await;
    limited(&store, &["a", "b"], 10, |options| {
        (options.rate_limit, options.rate_period_seconds) = (6, 2);
        (options.key_rate_limit, options.key_rate_period_seconds) = (4, 2);
    })
    .await;
    let first = store.pop(up_to(9, "q")).await;
    assert_eq!(first.names().len(), 6, "four of one key and two of the other");
    store.settle(first.all_done()).await;
    let none = store.pop(up_to(9, "q")).await.claimed;
    assert!(none.lanes.is_empty(), "it was settled, but the time is not over");
    let (next, over) = (none.next_at.expect("a time"), first.claimed.now + 2 * SECOND);
    assert!(next >= over && next < over + SECOND / 100, "{next:?}");
    let again = store.pop_soon(up_to(9, "q")).await;
    assert!(again.claimed.now >= first.claimed.now + 2 * SECOND);
    assert_eq!(again.names().len(), 6);
    let other = another(&place, &store).await;
    assert!(other.pop(up_to(9, "q")).await.claimed.lanes.is_empty());
}

async fn what_is_settled_at_once_counts_for_rates_only(place: Place) {
    let store = place.open().await;
    limited(&store, &["a", "b"], 10, |options| {
        (options.max_in_flight, options.key_max_in_flight) = (1, 1);
        (options.rate_limit, options.rate_period_seconds) = (7, 600);
    })
    .await;
    let auto = |batch| ClaimJob { auto_ack: true, ..up_to(batch, "q") };
    assert_eq!(store.pop(auto(5)).await.names().len(), 5);
    assert_eq!(store.pop(auto(5)).await.names().len(), 2);
    let none = store.pop(auto(1)).await.claimed;
    assert!(none.next_at.is_some_and(|at| at > none.now + 500 * SECOND), "{none:?}");
}

async fn groups_have_limits_of_their_own(place: Place) {
    let store = place.open().await;
    limited(&store, &["a", "b"], 2, |options| options.max_in_flight = 1).await;
    for group in ["one", "two"] {
        let job = || ClaimJob { group: group.into(), ..up_to(9, "q") };
        assert_eq!(store.pop(job()).await.names().len(), 1);
        assert_eq!(store.pop(job()).await.names().len(), 0);
    }
}

async fn limits_that_change_hold_at_once(place: Place) {
    let store = place.open().await;
    limited(&store, &["k/a", "k/b", "k/c", "k/d"], 2, |_| ()).await;
    let got = store.pop(from("q")).await;
    assert_eq!(got.names().len(), 1);
    store
        .configure("q", |options| {
            (options.key_max_in_flight, options.limit_key_separator) = (2, "/".to_owned());
        })
        .await;
    let other = another(&place, &store).await;
    assert_eq!(other.pop(up_to(9, "q")).await.names().len(), 1, "what was leased before counts");
    assert!(store.pop(up_to(9, "q")).await.names().is_empty());
    store.configure("q", |options| options.key_max_in_flight = 3).await;
    assert_eq!(other.pop(up_to(9, "q")).await.names().len(), 1, "blocked ones are looked at again");
    store.configure("q", |options| options.key_max_in_flight = 0).await;
    assert_eq!(other.pop(up_to(9, "q")).await.names().len(), 2);
}

async fn a_crowd_never_exceeds_a_limit_and_consumes_everything(place: Place) {
    crowd::works(place).await;
}

async fn whoever_waits_for_room_is_woken(place: Place) {
    let store = place.open().await;
    limited(&store, &["k/a", "k/b"], 1, |options| {
        (options.key_max_in_flight, options.limit_key_separator) = (1, "/".to_owned());
    })
    .await;
    let got = store.pop(from("q")).await;
    assert!(store.pop(from("q")).await.names().is_empty());
    let (answer, _told) = tokio::sync::oneshot::channel();
    let settle = Job::Settle { group: GROUP.into(), items: got.all_done(), answer };
    let wakes = store.run(vec![settle]).await;
    let wakes: Vec<(&str, Option<&str>)> =
        wakes.iter().map(|wake| (&*wake.partition, wake.group.as_deref())).collect();
    assert!(wakes.contains(&("k/b", Some(GROUP))), "{wakes:?}");

    store.configure("r", |options| options.max_in_flight = 1).await;
    store.push(&[("r", "a", "1"), ("r", "b", "2")]).await;
    let got = store.pop(from("r")).await;
    assert!(store.pop(from("r")).await.names().is_empty());
    let (answer, _told) = tokio::sync::oneshot::channel();
    let settle = Job::Settle { group: GROUP.into(), items: got.all_done(), answer };
    let wakes = store.run(vec![settle]).await;
    let of_it = |wake: &Wake| &*wake.queue == "r" && wake.group.as_deref() == Some(GROUP);
    assert!(wakes.iter().any(of_it), "{wakes:?}");
}

async fn a_lane_without_anything_left_gives_its_turn_to_another(place: Place) {
    let store = place.open().await;
    limited(&store, &["k/a", "k/b", "k/c", "k/d", "k/e"], 1, |options| {
        (options.key_max_in_flight, options.limit_key_separator) = (1, "/".to_owned());
        options.ttl = Some(1);
    })
    .await;
    let got = store.pop(from("q")).await;
    assert_eq!(got.names(), ["k/a.0"]);
    assert!(store.pop(from("q")).await.names().is_empty(), "the others are blocked");
    let start = store.now().await;
    soon("they are too old", async || (store.now().await > start + 2 * SECOND).then_some(())).await;
    store.push(&[("q", "k/e", "fresh")]).await;
    store.settle(got.all_done()).await;
    assert_eq!(store.pop(from("q")).await.names(), ["fresh"], "past those that have expired");
}
