//! Taking messages out.

use crate::browsing::{name_of, names, newest};
use crate::kit::*;
use skep_policy::queues::{Refusal, Settled, Verdict};
use skep_policy::{Chance, SeededChance};
use skep_queues::QueuesOptions;
use skep_queues::ids::PartitionId;
use skep_queues::store::*;

on_each_store!(
    a_message_is_taken_out_wherever_it_stands,
    what_was_taken_out_is_known_for_its_window,
    what_was_taken_out_may_come_again_where_nothing_is_known,
    who_works_on_it_goes_on_with_the_others,
    a_lease_ends_without_the_last_that_was_taken_out,
    a_lease_of_nothing_but_what_was_taken_out_is_over,
    a_lane_whose_next_message_was_taken_out_is_drained,
    a_lane_goes_on_behind_what_was_taken_out,
    each_group_passes_what_was_taken_out,
    what_failed_and_was_taken_out_does_not_come_again,
    a_message_is_set_aside_in_one_step,
    what_is_set_aside_tells_how_often_it_had_failed,
    two_who_take_the_same_out_agree,
    no_node_hands_out_what_another_took_out,
    retention_and_removals_count_each_message_once,
    what_is_left_comes_in_order_whatever_is_taken_out,
    nothing_else_is_lost_while_messages_are_taken_out,
);

async fn push(store: &Store, names: &[&str]) -> PartitionId {
    let messages: Vec<_> = names.iter().map(|name| ("q", "p", *name)).collect();
    store.push(&messages).await[0].partition
}

async fn delete(store: &Store, id: PartitionId, name: &str) -> Option<Removed> {
    store.whole().delete_message(id, name).await.expect("deletes")
}

async fn counts(store: &Store) -> (u64, u64) {
    let shown = store.show("q").await.expect("is there").summary;
    (shown.total, shown.pending)
}

fn all() -> ClaimJob {
    ClaimJob { auto_ack: true, ..up_to(1_000, "q") }
}

async fn a_message_is_taken_out_wherever_it_stands(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2", "3", "4", "5"]).await;
    push(&store, &["6"]).await;
    push(&store, &["7", "8"]).await;
    let whole = store.whole();
    let mut left = vec!["1", "2", "3", "4", "5", "6", "7", "8"];
    // In the middle, first, last, alone, and what is left of a segment that was cut before.
    for (number, name) in [(3, "3"), (1, "1"), (5, "5"), (6, "6"), (8, "8"), (4, "4")] {
        let removed = delete(&store, id, name).await.expect("was there");
        assert_eq!((&*removed.queue, &*removed.partition), ("q", "p"));
        assert_eq!(removed.number, number);
        left.retain(|one| *one != name);
        assert_eq!(delete(&store, id, name).await, None, "only once");
        assert_eq!(whole.message(id, name).await.expect("reads"), None);
        let mut newest_first = names(&whole, newest("q", 2)).await;
        newest_first.reverse();
        assert_eq!(newest_first, left);
        let filter = MessageFilter { partition: Some("p".into()), ..newest("q", 2) };
        assert_eq!(names(&whole, filter).await.len(), left.len());
        assert_eq!(counts(&store).await, (left.len() as u64, left.len() as u64));
        let found = whole.message(id, "7").await.expect("reads").expect("is there");
        assert_eq!((found.number, name_of(&found)), (7, "7".to_owned()), "numbers stay");
        let got = store.pop(up_to(100, "q")).await;
        assert_eq!(got.names(), left);
        store.release(got.lease).await;
    }
    drop((store, whole));
    let store = place.open().await;
    assert_eq!(store.pop(all()).await.names(), ["2", "7"]);
    assert!(store.pop(all()).await.names().is_empty());
    assert_eq!(counts(&store).await, (2, 0));
}

async fn what_was_taken_out_is_known_for_its_window(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2", "3"]).await;
    for name in ["3", "1", "2"] {
        delete(&store, id, name).await.expect("was there");
    }
    for store in [store, place.open().await] {
        // The first knows it still, the second has to read it.
        let pushed = store.push(&[("q", "p", "1"), ("q", "p", "2"), ("q", "p", "3")]).await;
        assert!(pushed.iter().all(|one| one.duplicate), "{pushed:?}");
        assert!(store.pop(all()).await.names().is_empty());
    }
    let store = place.open().await;
    push(&store, &["4"]).await;
    assert_eq!(store.pop(all()).await.names(), ["4"]);
    assert_eq!(counts(&store).await, (1, 0));
}

async fn what_was_taken_out_may_come_again_where_nothing_is_known(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.dedup_window_seconds = 0).await;
    let id = push(&store, &["1", "2"]).await;
    let got = store.pop(up_to(9, "q")).await;
    delete(&store, id, "1").await.expect("was there");
    assert_eq!(store.say(got.done("1")).await, Settled::Refused(Refusal::Unknown));
    let pushed = store.push(&[("q", "p", "1")]).await;
    assert!(!pushed[0].duplicate);
    assert_eq!(store.say(got.done("2")).await, DONE_ALL);
    assert_eq!(store.pop(all()).await.names(), ["1"]);
}

async fn who_works_on_it_goes_on_with_the_others(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2", "3", "4", "5"]).await;
    let got = store.pop(up_to(9, "q")).await;
    delete(&store, id, "3").await.expect("was there");
    assert_eq!(store.say(got.done("3")).await, Settled::Refused(Refusal::Unknown));
    assert_eq!(store.say(got.failed("3")).await, Settled::Refused(Refusal::Unknown));
    assert_eq!(store.say(got.word("3", Verdict::Dead)).await, Settled::Refused(Refusal::Unknown));
    assert_eq!(store.dead_letters(of_queue("q")).await.total, 0);
    assert_eq!(store.say(got.done("2")).await, DONE);
    assert_eq!(store.say(got.done("4")).await, DONE);
    delete(&store, id, "4").await.expect("it is settled, and still kept");
    assert!(store.extend(got.lease, 60).await.is_some(), "it still holds");
    let settled = store.settle(vec![got.done("3"), got.done("5")]).await;
    assert_eq!(settled, [Settled::Refused(Refusal::Unknown), DONE_ALL]);
    assert_eq!(counts(&store).await, (3, 0));
}

async fn a_lease_ends_without_the_last_that_was_taken_out(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2", "3"]).await;
    push(&store, &["4", "5"]).await;
    let got = store.pop(up_to(4, "q")).await;
    assert_eq!(got.names(), ["1", "2", "3", "4"]);
    delete(&store, id, "4").await.expect("was there");
    delete(&store, id, "3").await.expect("was there");
    assert!(store.pop(up_to(9, "q")).await.names().is_empty(), "the lease holds");
    assert_eq!(store.settle(vec![got.done("1"), got.done("2")]).await, [DONE, DONE_ALL]);
    assert_eq!(store.pop(all()).await.names(), ["5"]);
    assert_eq!(counts(&store).await, (3, 0));
}

async fn a_lease_of_nothing_but_what_was_taken_out_is_over(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2", "3"]).await;
    let got = store.pop(up_to(2, "q")).await;
    delete(&store, id, "2").await.expect("was there");
    assert!(store.pop(up_to(9, "q")).await.names().is_empty(), "the lease holds");
    delete(&store, id, "1").await.expect("was there");
    assert_eq!(store.extend(got.lease, 60).await, None);
    assert_eq!(store.say(got.done("1")).await, Settled::Refused(Refusal::Unknown));
    let got = store.pop(up_to(9, "q")).await;
    assert_eq!(got.names(), ["3"]);
    assert_eq!(store.say(got.done("3")).await, DONE_ALL);
    assert_eq!(counts(&store).await, (1, 0));
}

async fn a_lane_whose_next_message_was_taken_out_is_drained(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2"]).await;
    let got = store.pop(up_to(1, "q")).await;
    store.settle(got.all_done()).await;
    delete(&store, id, "2").await.expect("was there");
    let nothing = store.pop(up_to(9, "q")).await.claimed;
    assert_eq!((nothing.lanes.len(), nothing.nothing), (0, Some(Nothing::Empty)));
    assert_eq!(nothing.next_at, None, "it is not looked at again before a push");
    assert_eq!(counts(&store).await, (1, 0));
    push(&store, &["3"]).await;
    assert_eq!(store.pop(all()).await.names(), ["3"]);
}

async fn a_lane_goes_on_behind_what_was_taken_out(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2", "3", "4"]).await;
    let got = store.pop(up_to(1, "q")).await;
    delete(&store, id, "3").await.expect("was there");
    delete(&store, id, "2").await.expect("was there");
    assert_eq!(store.say(got.done("1")).await, DONE_ALL);
    let got = store.pop(up_to(1, "q")).await;
    assert_eq!(got.names(), ["4"]);
    assert_eq!(store.say(got.done("4")).await, DONE_ALL);
    assert_eq!(counts(&store).await, (2, 0));
}

async fn each_group_passes_what_was_taken_out(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2", "3"]).await;
    let of = |group: &str, batch| ClaimJob { group: group.into(), ..up_to(batch, "q") };
    let ahead = store.pop(ClaimJob { auto_ack: true, ..of("ahead", 3) }).await;
    assert_eq!(ahead.names().len(), 3);
    let works = store.pop(of("works", 2)).await;
    let waits = store.pop(of("waits", 1)).await;
    store.release(waits.lease).await;
    delete(&store, id, "1").await.expect("was there");
    delete(&store, id, "3").await.expect("was there");
    for group in ["waits", "new"] {
        let job = ClaimJob { auto_ack: true, ..of(group, 9) };
        assert_eq!(store.pop(job).await.names(), ["2"], "{group}");
    }
    assert_eq!(store.settle_for("works", vec![works.done("2")]).await, [DONE_ALL]);
    let shown = store.show("q").await.expect("is there");
    for group in ["ahead", "works", "waits", "new"] {
        let job = ClaimJob { auto_ack: true, ..of(group, 9) };
        assert!(store.pop(job).await.names().is_empty(), "{group} has all");
    }
    assert_eq!(shown.summary.total, 1);
    let shown = store.show("q").await.expect("is there");
    assert!(shown.groups.iter().all(|group| group.pending == 0), "{:?}", shown.groups);
}

async fn what_failed_and_was_taken_out_does_not_come_again(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.retry_delay = 60_000).await;
    let id = push(&store, &["1", "2"]).await;
    let got = store.pop(up_to(1, "q")).await;
    let said = store.say(got.failed("1")).await;
    assert!(matches!(said, Settled::Again { .. }), "{said:?}");
    assert!(store.pop(all()).await.names().is_empty(), "it waits");
    delete(&store, id, "1").await.expect("was there");
    assert_eq!(store.pop(all()).await.names(), ["2"], "which has not failed and does not wait");
}

async fn a_message_is_set_aside_in_one_step(place: Place) {
    let store = place.open().await;
    let id = push(&store, &["1", "2", "3"]).await;
    let whole = store.whole();
    let aside = whole.set_aside(id, "2", GROUP, Some("broken")).await.expect("sets aside");
    assert_eq!(aside, Some(()));
    let again = whole.set_aside(id, "2", GROUP, Some("broken")).await.expect("looks");
    assert_eq!(again, None);
    let dead = store.dead_letters(of_queue("q")).await;
    assert_eq!((letters(&dead), dead.total), (vec![("2".to_owned(), 0)], 1));
    let letter = &dead.letters[0];
    assert_eq!((&*letter.group, letter.error.as_deref()), (GROUP, Some("broken")));
    assert_eq!((&*letter.partition, letter.partition_id), ("p", id));
    assert!(letter.created_at < letter.failed_at);
    assert_eq!(store.show("q").await.expect("is there").summary.dead, 1);
    let other = ClaimJob { group: "other".into(), ..all() };
    assert_eq!(store.pop(other).await.names(), ["1", "3"], "it is gone for everybody");
    assert_eq!(store.pop(all()).await.names(), ["1", "3"]);
    assert_eq!(counts(&store).await, (2, 0));
}

async fn what_is_set_aside_tells_how_often_it_had_failed(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.retry_delay = 0).await;
    let id = push(&store, &["1", "2"]).await;
    for _ in 0..2 {
        let got = store.pop_soon(from("q")).await;
        store.say(got.failed("1")).await;
    }
    let whole = store.whole();
    whole.set_aside(id, "1", GROUP, None).await.expect("sets aside").expect("was there");
    whole.set_aside(id, "2", GROUP, None).await.expect("sets aside").expect("was there");
    let dead = letters(&store.dead_letters(of_queue("q")).await);
    assert_eq!(dead, [("2".to_owned(), 0), ("1".to_owned(), 2)]);
}

async fn two_who_take_the_same_out_agree(place: Place) {
    let store = place.open().await;
    let other = if place.shared_by_many() { place.open().await } else { store.clone() };
    for round in 0..10 {
        let names = [format!("{round}a"), format!("{round}b"), format!("{round}c")];
        let id = push(&store, &[&names[0], &names[1], &names[2]]).await;
        // One after the other and at once, of the same and of neighbours in one segment.
        let (one, two, three) = tokio::join!(
            delete(&store, id, &names[1]),
            delete(&other, id, &names[1]),
            delete(&other, id, &names[2])
        );
        assert!(one.is_some() != two.is_some(), "one of them: {one:?} {two:?}");
        assert!(three.is_some());
        assert_eq!(store.pop(all()).await.names(), [names[0].clone()]);
        assert!(store.pop(all()).await.names().is_empty());
        assert_eq!(counts(&store).await, (round + 1, 0));
    }
}

async fn no_node_hands_out_what_another_took_out(place: Place) {
    let store = place.open().await;
    let other = if place.shared_by_many() { place.open().await } else { store.clone() };
    let id = push(&store, &["1", "2", "3", "4"]).await;
    // Both have the bytes at hand.
    for store in [&store, &other] {
        let got = store.pop(up_to(9, "q")).await;
        assert_eq!(got.names().len(), 4);
        store.release(got.lease).await;
    }
    delete(&store, id, "4").await.expect("was there");
    let got = other.pop(up_to(9, "q")).await;
    assert_eq!(got.names(), ["1", "2", "3"]);
    delete(&store, id, "2").await.expect("was there");
    assert_eq!(other.say(got.done("2")).await, Settled::Refused(Refusal::Unknown));
    other.release(got.lease).await;
    let got = other.pop(up_to(9, "q")).await;
    assert_eq!(got.names(), ["1", "3"]);
    delete(&store, id, "1").await.expect("was there");
    assert_eq!(other.say(got.done("1")).await, Settled::Refused(Refusal::Unknown));
    let settled = other.settle(vec![got.word("3", Verdict::Dead)]).await;
    assert!(matches!(settled[0], Settled::Dead { released: true, .. }), "{settled:?}");
    assert_eq!(letters(&other.dead_letters(of_queue("q")).await), [("3".to_owned(), 0)]);
    for store in [&store, &other] {
        let pushed = store.push(&[("q", "p", "1"), ("q", "p", "2"), ("q", "p", "4")]).await;
        assert!(pushed.iter().all(|one| one.duplicate), "{pushed:?}");
        assert!(store.pop(all()).await.names().is_empty());
        assert_eq!(names(&store.whole(), newest("q", 9)).await, ["3"]);
    }
}

async fn retention_and_removals_count_each_message_once(place: Place) {
    let store = place.open().await;
    store
        .configure("q", |options| {
            options.retention_enabled = true;
            options.retention_seconds = 1;
        })
        .await;
    let id = push(&store, &["1", "2", "3", "4"]).await;
    delete(&store, id, "2").await.expect("was there");
    let tidied = soon("it is too old", async || {
        let tidied = store.tidy_all().await;
        (tidied.messages > 0).then_some(tidied)
    });
    assert_eq!(tidied.await.messages, 3);
    assert_eq!(counts(&store).await, (0, 0));
    assert_eq!(delete(&store, id, "1").await, None);
    let pushed = store.push(&[("q", "p", "1"), ("q", "p", "2"), ("q", "p", "4")]).await;
    assert!(pushed.iter().all(|one| one.duplicate), "{pushed:?}");
    push(&store, &["5"]).await;
    assert_eq!(store.pop(all()).await.names(), ["5"]);
}

async fn what_is_left_comes_in_order_whatever_is_taken_out(place: Place) {
    for seed in 0..4 {
        let store = place.open().await;
        let queue = format!("q{seed}");
        let mut chance = SeededChance::new(seed);
        let mut left: Vec<String> = Vec::new();
        let mut kept: Vec<String> = Vec::new();
        let (mut next, mut id) = (0, None);
        for _ in 0..60 {
            match chance.up_to(5) {
                0 | 1 => {
                    let batch: Vec<String> =
                        (0..=chance.up_to(6)).map(|one| format!("{}", next + one)).collect();
                    next += batch.len() as u64;
                    let messages = batch.iter().map(|name| message(&queue, "p", name)).collect();
                    id = Some(store.try_push(messages).await.expect("is kept")[0].partition);
                    left.extend(batch.clone());
                    kept.extend(batch);
                }
                2..=4 if !kept.is_empty() => {
                    let place = chance.up_to(kept.len() as u64 - 1) as usize;
                    let name = kept.remove(place);
                    left.retain(|one| *one != name);
                    let id = id.expect("something was pushed");
                    assert!(delete(&store, id, &name).await.is_some(), "{name}");
                }
                _ => {
                    let batch = chance.up_to(4) as u32 + 1;
                    let job = up_to(batch, &queue);
                    let got = store.pop(job).await;
                    let expected: Vec<String> = left.iter().take(batch as usize).cloned().collect();
                    // Fewer, where numbers are missing.
                    let got_names = got.names();
                    assert!(expected.starts_with(&got_names), "seed {seed}: {got_names:?}");
                    assert_eq!(got_names.is_empty(), expected.is_empty(), "seed {seed}");
                    if chance.up_to(2) > 0 {
                        store.settle(got.all_done()).await;
                        left.drain(..got_names.len());
                    } else {
                        store.release(got.lease).await;
                    }
                }
            }
            let mut found = names(&store.whole(), newest(&queue, 3)).await;
            found.reverse();
            assert_eq!(found, kept, "seed {seed}");
        }
        let job = ClaimJob { auto_ack: true, ..up_to(1_000, &queue) };
        assert_eq!(store.pop(job).await.names(), left, "seed {seed}");
        store.pop(ClaimJob { auto_ack: true, ..up_to(1_000, &queue) }).await;
        let shown = store.show(&queue).await.expect("is there").summary;
        assert_eq!((shown.total, shown.pending), (kept.len() as u64, 0), "seed {seed}");
    }
}

async fn nothing_else_is_lost_while_messages_are_taken_out(place: Place) {
    // Nothing is at hand: every claim reads what it claimed a moment ago.
    let options = QueuesOptions { cache_bytes: 0, ..QueuesOptions::default() };
    let store = place.open_with(&options).await;
    let other = if place.shared_by_many() { place.open().await } else { store.clone() };
    let all: Vec<String> = (0..600).map(|number| number.to_string()).collect();
    let mut id = None;
    for batch in all.chunks(12) {
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        id = Some(push(&store, &batch).await);
    }
    let id = id.expect("pushed");
    let takes = tokio::spawn({
        let all = all.clone();
        async move {
            let mut gone = Vec::new();
            for name in all.iter().enumerate().filter(|(place, _)| place % 12 % 5 == 0) {
                if delete(&other, id, name.1).await.is_some() {
                    gone.push(name.1.clone());
                }
            }
            gone
        }
    });
    let mut got = Vec::new();
    while let Some(last) = all.last()
        && !got.contains(last)
    {
        let claimed = store.pop_soon(up_to(30, "q")).await;
        let names = claimed.names();
        assert!(names.is_sorted_by_key(|name| name.parse::<u32>().expect("a number")));
        store.settle(claimed.all_done()).await;
        // Its last may be one that was taken out a moment before it was handed out.
        store.release(claimed.lease).await;
        got.extend(names);
    }
    let gone = takes.await.expect("runs");
    let missing: Vec<&String> =
        all.iter().filter(|name| !gone.contains(name) && !got.contains(name)).collect();
    assert_eq!(missing, Vec::<&String>::new());
}
