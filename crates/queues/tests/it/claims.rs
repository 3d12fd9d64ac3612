//! Order, leases, fairness, and who is woken.

use crate::kit::*;
use skep_policy::queues::{Refusal, Settled, Start, Verdict};
use skep_queues::QueuesOptions;
use skep_queues::store::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

on_each_store!(
    a_partition_is_read_in_order_under_one_lease,
    partitions_are_read_beside_each_other,
    groups_read_the_same_messages_each_at_its_own_pace,
    a_batch_is_a_cap_over_all_partitions_and_they_share_a_lease,
    the_partition_that_waits_longest_is_served_first,
    partitions_that_nobody_looked_at_are_found_beside_those_that_are_ready,
    a_thousand_partitions_are_all_read_by_two_groups,
    a_pop_of_one_partition_says_why_it_gets_nothing,
    a_queue_with_a_higher_priority_is_served_first,
    what_is_settled_when_handed_out_is_not_handed_out_again,
    a_lease_that_ran_out_gives_its_messages_to_the_next,
    a_lease_lasts_as_long_as_it_was_asked_to_and_can_be_given_more,
    a_lease_that_is_given_back_is_free_at_once,
    a_lease_survives_a_restart_and_so_does_its_end,
    what_is_leased_to_a_vanished_connection_returns_at_once,
    a_new_group_may_read_only_what_is_pushed_from_now_on,
    a_group_may_begin_at_a_time,
    pushes_and_settlements_wake_those_who_wait,
    a_claim_and_a_push_of_the_same_batch_meet,
    many_claims_of_one_batch_never_share_a_partition,
    payloads_that_are_not_in_memory_are_read_from_the_store,
);

async fn a_partition_is_read_in_order_under_one_lease(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    store.push(&[("q", "p", "3")]).await;
    let first = store.pop(up_to(2, "q")).await;
    assert_eq!(first.names(), ["1", "2"]);
    let second = store.pop(up_to(9, "q")).await;
    assert_eq!((second.names().len(), second.claimed.nothing), (0, Some(Nothing::Empty)));
    assert_eq!(second.claimed.next_at, Some(first.claimed.until), "when the lease is over");
    assert_eq!(store.settle(first.all_done()).await, [DONE, DONE_ALL]);
    let third = store.pop(up_to(9, "q")).await;
    assert_eq!(third.names(), ["3"]);
    assert_eq!(store.settle(third.all_done()).await, [DONE_ALL]);
    let none = store.pop(up_to(9, "q")).await;
    assert_eq!((none.claimed.nothing, none.claimed.next_at), (Some(Nothing::Empty), None));
}

async fn partitions_are_read_beside_each_other(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "b", "b1"), ("q", "a", "a2")]).await;
    let (one, other) = (store.pop(from("q")).await, store.pop(from("q")).await);
    let both: BTreeSet<_> = one.names().into_iter().chain(other.names()).collect();
    assert_eq!(both, BTreeSet::from(["a1".to_owned(), "b1".to_owned()]));
    assert!(store.pop(from("q")).await.claimed.lanes.is_empty());
}

async fn groups_read_the_same_messages_each_at_its_own_pace(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    let other = |batch| ClaimJob { group: "others".into(), ..up_to(batch, "q") };
    assert_eq!(store.pop(from("q")).await.names(), ["1"]);
    let got = store.pop(other(9)).await;
    assert_eq!(got.names(), ["1", "2"]);
    assert_eq!(store.settle_for("others", got.all_done()).await, [DONE, DONE_ALL]);
    assert!(store.pop(other(9)).await.claimed.lanes.is_empty());
}

async fn a_batch_is_a_cap_over_all_partitions_and_they_share_a_lease(place: Place) {
    let store = place.open().await;
    for partition in ["a", "b", "c", "d"] {
        let names = [1, 2].map(|number| format!("{partition}{number}"));
        store.push(&[("q", partition, &names[0]), ("q", partition, &names[1])]).await;
    }
    let got = store.pop(ClaimJob { batch: 5, partitions: 3, ..from("q") }).await;
    assert_eq!(got.names(), ["a1", "a2", "b1", "b2", "c1"]);
    let rest = store.pop(ClaimJob { batch: 9, partitions: 3, ..from("q") }).await;
    assert_eq!(rest.names(), ["d1", "d2"], "the others are leased");
    let extended = store.extend(got.lease, 600).await;
    assert!(extended.is_some_and(|until| until > got.claimed.until));
    let expected = [DONE, DONE_ALL, DONE, DONE_ALL, DONE_ALL];
    assert_eq!(store.settle(got.all_done()).await, expected, "each partition ends by itself");
    assert_eq!(store.extend(got.lease, 600).await, None, "nothing is left of it");
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["c2"]);
}

async fn the_partition_that_waits_longest_is_served_first(place: Place) {
    let store = place.open().await;
    for partition in ["c", "a", "b"] {
        let names = [1, 2, 3].map(|number| format!("{partition}{number}"));
        let all: Vec<_> = names.iter().map(|name| ("q", partition, name.as_str())).collect();
        store.push(&all).await;
    }
    let mut served = Vec::new();
    for _ in 0..9 {
        let got = store.pop(from("q")).await;
        served.extend(got.names());
        store.settle(got.all_done()).await;
    }
    assert_eq!(served, ["c1", "a1", "b1", "c2", "a2", "b2", "c3", "a3", "b3"]);
    store.push(&[("q", "b", "b4")]).await;
    store.push(&[("q", "c", "c4")]).await;
    assert_eq!(store.pop(from("q")).await.names(), ["b4"], "ready since its push");
}

async fn partitions_that_nobody_looked_at_are_found_beside_those_that_are_ready(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "a", "a2")]).await;
    let got = store.pop(from("q")).await;
    store.push(&[("q", "b", "b1")]).await;
    store.push(&[("q", "c", "c1")]).await;
    store.settle(got.all_done()).await;
    // a is ready since just now, b and c since before.
    assert_eq!(store.pop(from("q")).await.names(), ["b1"]);
    store.push(&[("q", "d", "d1")]).await;
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["c1", "a2", "d1"]);
}

async fn a_thousand_partitions_are_all_read_by_two_groups(place: Place) {
    let store = place.open().await;
    let names: Vec<String> = (0..1_000).map(|number| format!("{number:04}")).collect();
    for chunk in names.chunks(250) {
        let all: Vec<_> = chunk.iter().map(|name| ("q", name.as_str(), name.as_str())).collect();
        store.push(&all).await;
    }
    for group in ["first", "second"] {
        let mut seen = Vec::new();
        loop {
            let job = ClaimJob { group: group.into(), batch: 70, partitions: 70, ..from("q") };
            let got = store.pop(job).await;
            if got.claimed.lanes.is_empty() {
                break;
            }
            assert!(store.settle_for(group, got.all_done()).await.iter().all(|s| *s == DONE_ALL));
            seen.extend(got.names());
        }
        seen.sort_unstable();
        assert_eq!(seen, names, "{group} reads each once");
    }
}

async fn a_pop_of_one_partition_says_why_it_gets_nothing(place: Place) {
    let store = place.open().await;
    let nothing = async |job| store.pop(job).await.claimed.nothing;
    assert_eq!(nothing(from("q")).await, Some(Nothing::NoQueue));
    assert_eq!(nothing(from_partition("q", "p")).await, Some(Nothing::NoQueue));
    store.push(&[("q", "p", "1"), ("q", "other", "x")]).await;
    assert_eq!(nothing(from_partition("q", "no")).await, Some(Nothing::NoPartition));
    let got = store.pop(from_partition("q", "p")).await;
    assert_eq!((got.names(), got.claimed.nothing), (vec!["1".to_owned()], None));
    assert_eq!(nothing(from_partition("q", "p")).await, Some(Nothing::Leased));
    store.settle(got.all_done()).await;
    assert_eq!(nothing(from_partition("q", "p")).await, Some(Nothing::Empty));
    store.configure("q", |options| options.window_buffer = 600).await;
    store.push(&[("q", "p", "2")]).await;
    let waits = store.pop(from_partition("q", "p")).await.claimed;
    assert_eq!(waits.nothing, Some(Nothing::Window));
    assert!(waits.next_at.is_some_and(|at| at > waits.now + Duration::from_secs(500)));
    assert_eq!(
        nothing(ClaimJob { target: any(None, None), ..from("") }).await,
        Some(Nothing::Empty)
    );
}

fn any(namespace: Option<&str>, task: Option<&str>) -> Target {
    Target::Matching { namespace: namespace.map(Arc::from), task: task.map(Arc::from) }
}

async fn a_queue_with_a_higher_priority_is_served_first(place: Place) {
    let store = place.open().await;
    store.push(&[("shop.mail", "p", "old"), ("shop.bills", "p", "late")]).await;
    store.configure("shop.urgent", |options| options.priority = 7).await;
    store.push(&[("shop.urgent", "p", "new"), ("garden.mail", "p", "other")]).await;
    let pop = async |target| {
        let got = store.pop(ClaimJob { target, batch: 9, partitions: 9, ..from("") }).await;
        got.names().join(" ")
    };
    assert_eq!(pop(any(Some("shop"), None)).await, "new");
    assert_eq!(pop(any(Some("garden"), Some("bills"))).await, "");
    assert_eq!(pop(any(Some("shop"), Some("bills"))).await, "late");
    assert_eq!(pop(any(None, Some("mail"))).await, "old", "it waits longest, and is of one queue");
    assert_eq!(pop(any(None, None)).await, "other");
    assert_eq!(pop(any(None, None)).await, "");
}

async fn what_is_settled_when_handed_out_is_not_handed_out_again(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1"), ("q", "p", "2"), ("q", "p", "3")]).await;
    let at_most_once = |batch| ClaimJob { auto_ack: true, ..up_to(batch, "q") };
    assert_eq!(store.pop(at_most_once(2)).await.names(), ["1", "2"]);
    let got = store.pop(at_most_once(2)).await;
    assert_eq!(got.names(), ["3"], "nothing is held");
    assert!(store.pop(at_most_once(2)).await.claimed.lanes.is_empty());
    let word = SettleItem { lease: None, ..got.done("3") };
    assert_eq!(store.say(word).await, Settled::Noop);
}

async fn a_lease_that_ran_out_gives_its_messages_to_the_next(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.lease_time = 1).await;
    store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    let slow = store.pop(up_to(2, "q")).await;
    assert_eq!(slow.claimed.until, slow.claimed.now + Duration::from_secs(1));
    let next = store.pop_soon(up_to(2, "q")).await;
    assert_eq!(next.names(), ["1", "2"]);
    assert!(next.claimed.now >= slow.claimed.until, "not before");
    let stale = Settled::Refused(Refusal::Stale);
    assert_eq!(store.settle(slow.all_done()).await, [stale, stale]);
    assert_eq!(store.extend(slow.lease, 60).await, None);
    assert_eq!(store.settle(next.all_done()).await, [DONE, DONE_ALL]);
    let dead = store.dead_letters(of_queue("q")).await;
    assert_eq!(dead.total, 0, "running out is no failure");
}

async fn a_lease_lasts_as_long_as_it_was_asked_to_and_can_be_given_more(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1")]).await;
    let got = store.pop(ClaimJob { lease_seconds: Some(2), ..from("q") }).await;
    assert_eq!(got.claimed.until, got.claimed.now + Duration::from_secs(2));
    let until = store.extend(got.lease, 60).await.expect("it holds");
    assert!(until >= got.claimed.now + Duration::from_secs(60));
    let none = store.pop(from("q")).await;
    assert_eq!(none.claimed.next_at, Some(until));
    let until = store.extend(got.lease, 1).await.expect("it holds");
    let next = store.pop_soon(from("q")).await;
    assert!(next.claimed.now >= until, "it was given less");
    assert_eq!(store.extend(lease(), 60).await, None, "nobody's");
}

async fn a_lease_that_is_given_back_is_free_at_once(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "a", "a2"), ("q", "b", "b1")]).await;
    let got = store.pop(up_to(9, "q")).await;
    store.say(got.done("a1")).await;
    assert_eq!(store.release(got.lease).await, 2);
    assert_eq!(store.release(got.lease).await, 0);
    let mut names = store.pop(up_to(9, "q")).await.names();
    names.sort_unstable();
    assert_eq!(names, ["a2", "b1"]);
    assert_eq!(store.say(got.done("b1")).await, Settled::Refused(Refusal::Stale));
}

async fn a_lease_survives_a_restart_and_so_does_its_end(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1")]).await;
    let got = store.pop(ClaimJob { lease_seconds: Some(2), ..from("q") }).await;
    drop(store);
    let store = place.open().await;
    let none = store.pop(from("q")).await;
    assert_eq!((none.names().len(), none.claimed.next_at), (0, Some(got.claimed.until)));
    assert!(none.claimed.now >= got.claimed.now, "time does not go back");
    assert!(store.pop_soon(from("q")).await.claimed.now >= got.claimed.until);
}

async fn what_is_leased_to_a_vanished_connection_returns_at_once(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1")]).await;
    let (answer, told) = oneshot::channel();
    drop(told);
    store.run(vec![Job::Claim(from("q"), answer)]).await;
    assert_eq!(store.pop_soon(from("q")).await.names(), ["1"]);
}

async fn a_new_group_may_read_only_what_is_pushed_from_now_on(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "b", "b1")]).await;
    let new = || ClaimJob { start: None, ..up_to(9, "q") };
    assert_eq!(store.pop(new()).await.claimed.nothing, Some(Nothing::Empty));
    store.push(&[("q", "a", "a2"), ("q", "c", "c1")]).await;
    let mut names = store.pop(new()).await.names();
    names.sort_unstable();
    assert_eq!(names, ["a2", "c1"]);
    let all = ClaimJob { start: Some(Start::All), ..new() };
    assert!(store.pop(all).await.claimed.lanes.is_empty(), "it said where when it was new");
}

async fn a_group_may_begin_at_a_time(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "b", "b1")]).await;
    let time = store.now().await;
    store.push(&[("q", "a", "a2")]).await;
    let job = ClaimJob { start: Some(Start::From(time)), ..up_to(9, "q") };
    assert_eq!(store.pop(job).await.names(), ["a2"]);
}

async fn pushes_and_settlements_wake_those_who_wait(place: Place) {
    let store = place.open().await;
    let wakes = async |job: Job| {
        let all = store.run(vec![job]).await.into_iter();
        let told = |wake: Wake| {
            let group = wake.group.as_deref().unwrap_or("everybody").to_owned();
            format!("{} {} {} {} {group}", wake.namespace, wake.task, wake.queue, wake.partition)
        };
        all.map(told).collect::<BTreeSet<_>>()
    };
    let set = |all: &[&str]| all.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let push = |names: &[&str]| {
        let messages = names.iter().map(|name| message("n.t", "p", name)).collect();
        Job::Push(messages, oneshot::channel().0)
    };
    assert_eq!(wakes(push(&["1", "2", "3"])).await, set(&["n t n.t p everybody"]));
    let first = store.pop(from("n.t")).await;
    let settle = |items| {
        let answer = oneshot::channel().0;
        Job::Settle { group: GROUP.into(), items, answer }
    };
    let workers = set(&[&format!("n t n.t p {GROUP}")]);
    assert_eq!(wakes(settle(first.all_done())).await, workers, "there is more");
    let second = store.pop(from("n.t")).await;
    let release = |lease| Job::Release { lease, answer: oneshot::channel().0 };
    assert_eq!(wakes(release(second.lease)).await, workers);
    assert_eq!(wakes(release(second.lease)).await, set(&[]), "it was free already");
    let rest = store.pop(up_to(9, "n.t")).await;
    assert_eq!(wakes(settle(vec![rest.done("2")])).await, set(&[]), "it is still leased");
    let again = rest.word("3", Verdict::Retry);
    assert_eq!(wakes(settle(vec![again])).await, workers, "it comes again");
}

async fn a_claim_and_a_push_of_the_same_batch_meet(place: Place) {
    let store = place.open().await;
    store.configure("q", |_| {}).await;
    let ((claim, claimed), (push, _pushed)) = (oneshot::channel(), oneshot::channel());
    let jobs = vec![Job::Claim(from("q"), claim), Job::Push(vec![message("q", "p", "1")], push)];
    let wakes = store.run(jobs).await;
    let claimed = claimed.await.expect("is answered").expect("works");
    // Either it finds the message or it is told to look again.
    assert!(!claimed.lanes.is_empty() || !wakes.is_empty());
}

async fn many_claims_of_one_batch_never_share_a_partition(place: Place) {
    let store = place.open().await;
    for number in 0..10 {
        let name = number.to_string();
        store.push(&[("q", &name, &name)]).await;
    }
    let (jobs, told): (Vec<_>, Vec<_>) = (0..20)
        .map(|_| {
            let (answer, told) = oneshot::channel();
            (Job::Claim(ClaimJob { partitions: 2, ..up_to(2, "q") }, answer), told)
        })
        .unzip();
    store.run(jobs).await;
    let mut seen = Vec::new();
    for told in told {
        let claimed = told.await.expect("is answered").expect("works");
        seen.extend(Got { claimed, lease: lease() }.names());
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
}

async fn payloads_that_are_not_in_memory_are_read_from_the_store(place: Place) {
    let tiny = QueuesOptions { cache_bytes: 0, dedup_bytes: 1 << 20, ..QueuesOptions::default() };
    let store = place.open_with(&tiny).await;
    let names: Vec<String> = (0..700).map(|number| number.to_string()).collect();
    let all: Vec<_> = names.iter().map(|name| ("q", "p", name.as_str())).collect();
    store.push(&all).await;
    let got = store.pop(ClaimJob { batch: 300, ..from("q") }).await;
    assert_eq!(got.names(), names[..300]);
    assert_eq!(store.settle(vec![got.done("299")]).await, [DONE_ALL]);
    assert_eq!(store.pop(ClaimJob { batch: 1_000, ..from("q") }).await.names(), names[300..]);
    assert!(store.push(&all[10..20]).await.iter().all(|pushed| pushed.duplicate));
}
