//! Fenced, in order, and what fails.

use crate::kit::*;
use skep_policy::queues::{Refusal, Settled, Verdict};
use skep_queues::store::*;
use std::time::Duration;

on_each_store!(
    a_stale_or_foreign_lease_is_refused_item_by_item,
    without_a_lease_a_word_counts_only_while_nobody_holds_the_partition,
    settling_an_older_message_later_moves_nothing_back,
    completing_a_later_message_completes_those_before_it,
    a_failure_is_not_skipped_by_a_later_completion_of_the_same_call,
    an_unknown_message_fails_and_harms_no_other,
    a_settlement_may_be_said_again,
    a_failure_brings_the_rest_back_after_the_delay,
    a_message_that_fails_too_often_is_a_dead_letter_with_its_payload,
    a_batch_that_fails_for_the_last_time_is_dead_as_a_whole,
    a_retry_comes_at_once_and_charges_nothing,
    a_message_can_be_set_aside_at_once,
    dead_letters_are_of_one_group_and_others_still_read_the_message,
    dead_letters_are_found_by_what_is_asked,
    lanes_of_one_call_are_settled_each_by_itself,
    settlements_of_one_batch_are_taken_in_their_order,
    failures_survive_a_restart,
);

const STALE: Settled = Settled::Refused(Refusal::Stale);
const UNKNOWN: Settled = Settled::Refused(Refusal::Unknown);

/// A queue without delays between tries.
async fn filled(place: &Place, names: &[&str]) -> Store {
    let store = place.open().await;
    store.configure("q", |options| options.retry_delay = 0).await;
    let all: Vec<_> = names.iter().map(|name| ("q", "p", *name)).collect();
    store.push(&all).await;
    store
}

fn comes_again(settled: Settled) -> bool {
    matches!(settled, Settled::Again { .. })
}

async fn a_stale_or_foreign_lease_is_refused_item_by_item(place: Place) {
    let store = filled(&place, &["1", "2"]).await;
    let old = store.pop(up_to(9, "q")).await;
    store.release(old.lease).await;
    let got = store.pop(up_to(9, "q")).await;
    let foreign = SettleItem { lease: Some(lease()), ..got.done("1") };
    assert_eq!(
        store.settle(vec![old.done("1"), foreign, got.done("1")]).await,
        [STALE, STALE, DONE]
    );
    assert_eq!(store.say(got.done("2")).await, DONE_ALL);
    assert_eq!(store.say(old.done("2")).await, STALE);
    let elsewhere = store.settle_for("nobody", vec![got.done("1")]).await;
    assert!(matches!(elsewhere[0], Settled::Refused(_)), "{elsewhere:?}");
}

async fn without_a_lease_a_word_counts_only_while_nobody_holds_the_partition(place: Place) {
    let store = filled(&place, &["1", "2", "3"]).await;
    let got = store.pop(from("q")).await;
    let free = |name| SettleItem { lease: None, transaction: name, ..got.done("1") };
    assert_eq!(store.say(free("1".into())).await, Settled::Refused(Refusal::Held));
    store.release(got.lease).await;
    assert_eq!(store.say(free("2".into())).await, DONE);
    assert_eq!(store.say(free("1".into())).await, Settled::Noop);
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["3"]);
    assert_eq!(store.say(free("2".into())).await, Settled::Noop);
}

async fn settling_an_older_message_later_moves_nothing_back(place: Place) {
    let store = filled(&place, &["1", "2", "3"]).await;
    let got = store.pop(up_to(9, "q")).await;
    assert_eq!(store.say(got.done("2")).await, DONE);
    assert_eq!(store.say(got.done("1")).await, Settled::Noop);
    assert_eq!(store.say(got.failed("1")).await, Settled::Noop);
    assert_eq!(store.release(got.lease).await, 1);
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["3"]);
    assert_eq!(store.dead_letters(of_queue("q")).await.total, 0);
}

async fn completing_a_later_message_completes_those_before_it(place: Place) {
    let store = filled(&place, &["1", "2", "3"]).await;
    let got = store.pop(up_to(9, "q")).await;
    assert_eq!(store.say(got.done("3")).await, DONE_ALL);
    let none = store.pop(up_to(9, "q")).await;
    assert_eq!((none.names().len(), none.claimed.next_at), (0, None));
}

async fn a_failure_is_not_skipped_by_a_later_completion_of_the_same_call(place: Place) {
    let store = filled(&place, &["1", "2", "3", "4"]).await;
    let got = store.pop(up_to(9, "q")).await;
    let call = vec![got.done("4"), got.done("1"), got.failed("2"), got.done("3")];
    let said = store.settle(call).await;
    let overtaken = Settled::Refused(Refusal::Overtaken);
    assert_eq!((said[0], said[1], said[3]), (overtaken, DONE, overtaken));
    assert!(comes_again(said[2]));
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["2", "3", "4"]);
}

async fn an_unknown_message_fails_and_harms_no_other(place: Place) {
    let store = filled(&place, &["1", "2", "3"]).await;
    let got = store.pop(up_to(2, "q")).await;
    let unknown = |name: &str| SettleItem { transaction: name.into(), ..got.done("1") };
    let nowhere = SettleItem { partition: None, ..got.done("1") };
    let never =
        SettleItem { partition: Some(skep_queues::ids::PartitionId(987_654)), ..got.done("1") };
    let call = vec![unknown("no"), got.done("1"), unknown("3"), nowhere, never];
    assert_eq!(store.settle(call).await, [UNKNOWN, DONE, UNKNOWN, UNKNOWN, UNKNOWN]);
    assert_eq!(store.say(got.done("2")).await, DONE_ALL);
}

async fn a_settlement_may_be_said_again(place: Place) {
    let store = filled(&place, &["1", "2", "3"]).await;
    let got = store.pop(up_to(2, "q")).await;
    assert_eq!(store.settle(got.all_done()).await, [DONE, DONE_ALL]);
    assert_eq!(store.settle(got.all_done()).await, [Settled::Noop, Settled::Noop]);
    let next = store.pop(up_to(2, "q")).await;
    assert_eq!(store.settle(got.all_done()).await, [Settled::Noop, Settled::Noop]);
    assert_eq!(next.names(), ["3"]);
}

async fn a_failure_brings_the_rest_back_after_the_delay(place: Place) {
    let store = filled(&place, &["1", "2", "3"]).await;
    store.configure("q", |options| options.retry_delay = 1_000).await;
    let got = store.pop(up_to(2, "q")).await;
    let said = store.settle(vec![got.done("1"), got.failed("2")]).await;
    let Settled::Again { at } = said[1] else { panic!("{said:?}") };
    let wait = at.since(got.claimed.now);
    assert!(wait >= Duration::from_millis(500), "{wait:?}");
    let none = store.pop(up_to(9, "q")).await;
    assert!(none.claimed.lanes.is_empty() || none.claimed.now >= at);
    // Stores keep whole microseconds.
    let early = |then| at.since(then).max(then.since(at)) < Duration::from_micros(2);
    assert!(none.claimed.next_at.is_none_or(early), "{:?} {at}", none.claimed.next_at);
    let next = store.pop_soon(up_to(9, "q")).await;
    assert_eq!(next.names(), ["2", "3"]);
    assert!(next.claimed.now + Duration::from_micros(1) >= at, "not before");
    let said = store.say(next.failed("2")).await;
    let Settled::Again { at } = said else { panic!("{said:?}") };
    assert!(at.since(next.claimed.now) >= Duration::from_millis(1_000), "it doubles");
}

async fn a_message_that_fails_too_often_is_a_dead_letter_with_its_payload(place: Place) {
    let store = filled(&place, &["1", "2"]).await;
    store.configure("q", |options| options.retry_limit = 2).await;
    for _ in 0..2 {
        let got = store.pop(from("q")).await;
        assert_eq!(got.names(), ["1"]);
        assert!(comes_again(store.say(got.failed("1")).await));
    }
    let got = store.pop(from("q")).await;
    let word = SettleItem { error: Some("it broke".into()), ..got.failed("1") };
    let said = store.say(word).await;
    assert_eq!(said, Settled::Dead { failures: 2, released: true });
    let dead = store.dead_letters(of_queue("q")).await;
    assert_eq!((letters(&dead), dead.total), (vec![("1".to_owned(), 2)], 1));
    let letter = &dead.letters[0];
    assert_eq!((&*letter.queue, &*letter.partition, &*letter.group), ("q", "p", GROUP));
    assert_eq!(letter.error.as_deref(), Some("it broke"));
    assert!(letter.created_at <= got.claimed.now && letter.failed_at >= got.claimed.now);
    assert_eq!(letter.partition_id, got.claimed.lanes[0].id);
    assert_eq!(store.pop(from("q")).await.names(), ["2"]);
}

async fn a_batch_that_fails_for_the_last_time_is_dead_as_a_whole(place: Place) {
    let store = filled(&place, &["1", "2", "3"]).await;
    store.configure("q", |options| options.retry_limit = 1).await;
    let fail = async || {
        let got = store.pop(up_to(9, "q")).await;
        store.settle(got.names().iter().map(|name| got.failed(name)).collect()).await
    };
    assert!(fail().await.into_iter().all(comes_again));
    let dead = |released| Settled::Dead { failures: 1, released };
    assert_eq!(fail().await, [dead(false), dead(false), dead(true)]);
    let mut found = letters(&store.dead_letters(of_queue("q")).await);
    found.sort();
    assert_eq!(found, ["1", "2", "3"].map(|name| (name.to_owned(), 1)));
}

async fn a_retry_comes_at_once_and_charges_nothing(place: Place) {
    let store = filled(&place, &["1"]).await;
    store.configure("q", |options| (options.retry_limit, options.retry_delay) = (0, 60_000)).await;
    for _ in 0..5 {
        let got = store.pop(from("q")).await;
        assert_eq!(got.names(), ["1"]);
        assert!(comes_again(store.say(got.word("1", Verdict::Retry)).await));
    }
}

async fn a_message_can_be_set_aside_at_once(place: Place) {
    let store = filled(&place, &["1", "2"]).await;
    let got = store.pop(up_to(9, "q")).await;
    let said = store.say(got.word("1", Verdict::Dead)).await;
    assert_eq!(said, Settled::Dead { failures: 0, released: false });
    assert_eq!(store.say(got.word("1", Verdict::Dead)).await, Settled::Noop);
    let dead = store.dead_letters(of_queue("q")).await;
    assert_eq!(letters(&dead), [("1".to_owned(), 0)]);
}

async fn dead_letters_are_of_one_group_and_others_still_read_the_message(place: Place) {
    let store = filled(&place, &["1"]).await;
    let got = store.pop(from("q")).await;
    store.say(got.word("1", Verdict::Dead)).await;
    let other = store.pop(ClaimJob { group: "others".into(), ..from("q") }).await;
    assert_eq!(other.names(), ["1"]);
    let again = store.push(&[("q", "p", "1")]).await;
    assert!(again[0].duplicate, "it was pushed, whatever became of it");
}

async fn dead_letters_are_found_by_what_is_asked(place: Place) {
    let store = place.open().await;
    for (queue, partition, name) in [("q", "a", "1"), ("q", "b", "2"), ("r", "a", "3")] {
        store.push(&[(queue, partition, name)]).await;
        let got = store.pop(from(queue)).await;
        store.say(got.word(name, Verdict::Dead)).await;
    }
    let find = async |filter: DeadFilter| {
        let found = store.dead_letters(DeadFilter { limit: filter.limit.max(1), ..filter }).await;
        let names: Vec<String> = letters(&found).into_iter().map(|(name, _)| name).collect();
        format!("{} of {}", names.join(" "), found.total)
    };
    let all = || DeadFilter { limit: 10, ..DeadFilter::default() };
    assert_eq!(find(all()).await, "3 2 1 of 3", "newest first");
    assert_eq!(find(DeadFilter { limit: 1, offset: 1, ..all() }).await, "2 of 3");
    assert_eq!(find(DeadFilter { queue: Some("q".into()), ..all() }).await, "2 1 of 2");
    let a = DeadFilter { queue: Some("q".into()), partition: Some("a".into()), ..all() };
    assert_eq!(find(a).await, "1 of 1");
    assert_eq!(find(DeadFilter { group: Some(GROUP.into()), ..all() }).await, "3 2 1 of 3");
    assert_eq!(find(DeadFilter { group: Some("others".into()), ..all() }).await, " of 0");
    let middle = store.dead_letters(all()).await.letters[1].failed_at;
    assert_eq!(find(DeadFilter { from: Some(middle), ..all() }).await, "3 2 of 2");
    assert_eq!(find(DeadFilter { to: Some(middle), ..all() }).await, "1 of 1");
    assert!(store.delete_queue("q").await);
    assert_eq!(find(DeadFilter { queue: Some("q".into()), ..all() }).await, " of 0");
}

async fn lanes_of_one_call_are_settled_each_by_itself(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.retry_delay = 0).await;
    store.push(&[("q", "a", "a1"), ("q", "a", "a2"), ("q", "b", "b1"), ("q", "b", "b2")]).await;
    let got = store.pop(up_to(9, "q")).await;
    let call = vec![got.done("b2"), got.failed("a1"), got.done("a2"), got.done("b1")];
    let said = store.settle(call).await;
    assert_eq!((said[0], said[3]), (DONE_ALL, DONE));
    assert!(comes_again(said[1]));
    assert_eq!(said[2], Settled::Refused(Refusal::Overtaken));
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["a1", "a2"]);
}

async fn settlements_of_one_batch_are_taken_in_their_order(place: Place) {
    let store = filled(&place, &["1", "2", "3"]).await;
    let got = store.pop(up_to(9, "q")).await;
    let (jobs, told): (Vec<_>, Vec<_>) = [got.done("1"), got.failed("2"), got.done("3")]
        .map(|item| {
            let (answer, told) = tokio::sync::oneshot::channel();
            (Job::Settle { group: GROUP.into(), items: vec![item], answer }, told)
        })
        .into_iter()
        .unzip();
    store.run(jobs).await;
    let mut said = Vec::new();
    for told in told {
        said.push(told.await.expect("is answered").expect("works")[0].settled);
    }
    assert!(said[0] == DONE && comes_again(said[1]) && said[2] == STALE, "{said:?}");
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["2", "3"]);
}

async fn failures_survive_a_restart(place: Place) {
    let store = filled(&place, &["1"]).await;
    store.configure("q", |options| options.retry_limit = 1).await;
    let got = store.pop(from("q")).await;
    assert!(comes_again(store.say(got.failed("1")).await));
    drop(store);
    let store = place.open().await;
    let got = store.pop(from("q")).await;
    let said = store.say(got.failed("1")).await;
    assert_eq!(said, Settled::Dead { failures: 1, released: true });
}
