//! All of it or nothing.

use crate::kit::*;
use skep_policy::queues::{Refusal, Settled, Verdict};
use skep_queues::store::*;

on_each_store!(
    a_transaction_settles_and_pushes_in_several_queues,
    a_step_that_is_refused_leaves_nothing_behind,
    a_queue_that_is_full_leaves_nothing_behind,
    a_lease_that_is_required_must_hold,
    a_step_without_a_lease_uses_the_one_that_is_required,
    a_push_that_came_before_is_no_failure,
    a_transaction_that_is_said_again_changes_nothing,
    a_transaction_sets_aside_and_sends_back,
    transactions_of_one_batch_do_not_share_their_fate,
);

fn push(queue: &str, name: &str) -> Step {
    Step::Push(message(queue, "p", name))
}

fn settle(item: SettleItem) -> Step {
    Step::Settle { group: GROUP.into(), item }
}

fn settled(done: &StepDone) -> Option<Settled> {
    match done {
        StepDone::Settled(item) => Some(item.settled),
        StepDone::Pushed(_) => None,
    }
}

async fn a_transaction_settles_and_pushes_in_several_queues(place: Place) {
    let store = place.open().await;
    store.push(&[("in", "p", "1"), ("in", "p", "2")]).await;
    store.push(&[("other", "p", "o")]).await;
    let (got, other) = (store.pop(up_to(9, "in")).await, store.pop(from("other")).await);
    let steps = vec![
        settle(got.done("1")),
        push("out", "from 1"),
        settle(other.done("o")),
        push("new.queue", "from 1"),
        settle(got.done("2")),
    ];
    let done = store.transact(steps, &[got.lease, other.lease]).await.expect("all is well");
    let said: Vec<_> = done.iter().map(settled).collect();
    assert_eq!(said, [Some(DONE), None, Some(DONE_ALL), None, Some(DONE_ALL)]);
    let StepDone::Settled(item) = &done[0] else { panic!("{done:?}") };
    assert_eq!((item.queue.as_deref(), item.partition.as_deref()), (Some("in"), Some("p")));
    assert!(store.pop(up_to(9, "in")).await.claimed.lanes.is_empty());
    assert_eq!(store.pop(up_to(9, "out")).await.names(), ["from 1"]);
    assert_eq!(store.pop(up_to(9, "new.queue")).await.names(), ["from 1"]);
}

async fn a_step_that_is_refused_leaves_nothing_behind(place: Place) {
    let store = place.open().await;
    store.push(&[("in", "p", "1"), ("in", "p", "2"), ("out", "p", "before")]).await;
    let got = store.pop(up_to(9, "in")).await;
    let unknown = SettleItem { transaction: "no".into(), ..got.done("1") };
    let foreign = SettleItem { lease: Some(lease()), ..got.done("2") };
    let free = SettleItem { lease: None, ..got.done("2") };
    let reasons = [Refusal::Unknown, Refusal::Stale, Refusal::Held];
    for (wrong, reason) in [unknown, foreign, free].into_iter().zip(reasons) {
        let aside = got.word("1", Verdict::Dead);
        let steps = vec![push("out", "x"), push("new", "x"), settle(aside), settle(wrong)];
        let Err(NotDone::Step(place, item)) = store.transact(steps, &[]).await else {
            panic!("it was done: {reason:?}")
        };
        assert_eq!((place, item.settled), (3, Settled::Refused(reason)));
    }
    assert_eq!(store.queue("new").await, None);
    assert_eq!(store.dead_letters(of_queue("in")).await.total, 0);
    assert!(!store.push(&[("out", "p", "x")]).await[0].duplicate, "its id is not known either");
    assert_eq!(store.pop(up_to(9, "out")).await.names(), ["before", "x"]);
    assert_eq!(store.settle(got.all_done()).await, [DONE, DONE_ALL]);
}

async fn a_queue_that_is_full_leaves_nothing_behind(place: Place) {
    let store = place.open().await;
    store.configure("small", |options| options.max_size = 1).await;
    store.push(&[("small", "p", "1"), ("in", "p", "1")]).await;
    let got = store.pop(from("in")).await;
    let steps = vec![settle(got.done("1")), push("out", "x"), push("small", "2")];
    let done = store.try_transact(TransactionJob { steps, ..TransactionJob::default() }).await;
    assert!(matches!(&done, Err(WorkError::Full { .. })), "{done:?}");
    assert_eq!(store.queue("out").await, None);
    assert_eq!(store.say(got.done("1")).await, DONE_ALL);
}

async fn a_lease_that_is_required_must_hold(place: Place) {
    let store = place.open().await;
    store.push(&[("in", "p", "1")]).await;
    let got = store.pop(from("in")).await;
    let lost = lease();
    let steps = || vec![settle(got.done("1")), push("out", "x")];
    let done = store.transact(steps(), &[got.lease, lost]).await;
    assert_eq!(done, Err(NotDone::Lease(lost)));
    store.release(got.lease).await;
    let done = store.transact(vec![push("out", "x")], &[got.lease]).await;
    assert_eq!(done, Err(NotDone::Lease(got.lease)));
    assert_eq!(store.queue("out").await, None);
    let got = store.pop(from("in")).await;
    let done = store.transact(vec![settle(got.done("1")), push("out", "x")], &[got.lease]).await;
    assert!(done.is_ok(), "{done:?}");
}

async fn a_step_without_a_lease_uses_the_one_that_is_required(place: Place) {
    let store = place.open().await;
    store.push(&[("in", "a", "a1"), ("in", "b", "b1")]).await;
    let (one, other) = (store.pop(from("in")).await, store.pop(from("in")).await);
    let free = |got: &Got| {
        let word = got.all_done().remove(0);
        settle(SettleItem { lease: None, ..word })
    };
    let refused = store.transact(vec![free(&one), free(&other)], &[one.lease]).await;
    assert!(matches!(refused, Err(NotDone::Step(1, _))), "{refused:?}");
    let done = store.transact(vec![free(&one), free(&other)], &[one.lease, other.lease]).await;
    let said: Vec<_> = done.expect("all is well").iter().map(settled).collect();
    assert_eq!(said, [Some(DONE_ALL), Some(DONE_ALL)]);
}

async fn a_push_that_came_before_is_no_failure(place: Place) {
    let store = place.open().await;
    let first = store.push(&[("out", "p", "x"), ("in", "p", "1")]).await;
    let got = store.pop(from("in")).await;
    let steps = vec![push("out", "x"), settle(got.done("1")), push("out", "y"), push("out", "y")];
    let done = store.transact(steps, &[]).await.expect("all is well");
    let StepDone::Pushed(again) = &done[0] else { panic!("{done:?}") };
    assert_eq!((again.duplicate, again.id), (true, first[0].id));
    assert!(matches!(&done[2], StepDone::Pushed(pushed) if !pushed.duplicate));
    assert!(matches!(&done[3], StepDone::Pushed(pushed) if pushed.duplicate));
    assert_eq!(store.pop(up_to(9, "out")).await.names(), ["x", "y"]);
}

async fn a_transaction_that_is_said_again_changes_nothing(place: Place) {
    let store = place.open().await;
    store.push(&[("in", "p", "1"), ("in", "p", "2")]).await;
    let got = store.pop(from("in")).await;
    let steps = || vec![settle(got.done("1")), push("out", "x")];
    store.transact(steps(), &[]).await.expect("all is well");
    let again = store.transact(steps(), &[]).await.expect("it was done");
    assert_eq!(settled(&again[0]), Some(Settled::Noop));
    assert!(matches!(&again[1], StepDone::Pushed(pushed) if pushed.duplicate));
    assert_eq!(store.pop(up_to(9, "in")).await.names(), ["2"]);
    assert_eq!(store.pop(up_to(9, "out")).await.names(), ["x"]);
}

async fn a_transaction_sets_aside_and_sends_back(place: Place) {
    let store = place.open().await;
    store.configure("in", |options| options.retry_delay = 0).await;
    store.push(&[("in", "p", "1"), ("in", "p", "2")]).await;
    let got = store.pop(up_to(9, "in")).await;
    let steps = vec![
        settle(got.word("1", Verdict::Dead)),
        push("out", "x"),
        settle(got.word("2", Verdict::Retry)),
    ];
    let done = store.transact(steps, &[got.lease]).await.expect("all is well");
    assert!(matches!(settled(&done[0]), Some(Settled::Dead { failures: 0, .. })));
    assert!(matches!(settled(&done[2]), Some(Settled::Again { .. })));
    assert_eq!(letters(&store.dead_letters(of_queue("in")).await), [("1".to_owned(), 0)]);
    assert_eq!(store.pop(up_to(9, "in")).await.names(), ["2"]);
}

async fn transactions_of_one_batch_do_not_share_their_fate(place: Place) {
    let store = place.open().await;
    store.push(&[("in", "p", "1")]).await;
    let got = store.pop(from("in")).await;
    let good = |name: &str| vec![push("out", name)];
    let bad = vec![push("out", "no"), settle(SettleItem { lease: Some(lease()), ..got.done("1") })];
    let all = [good("1"), bad, good("2"), vec![settle(got.done("1")), push("out", "3")]];
    let (jobs, told): (Vec<_>, Vec<_>) = all
        .into_iter()
        .map(|steps| {
            let (answer, told) = tokio::sync::oneshot::channel();
            (Job::Transaction(TransactionJob { steps, ..TransactionJob::default() }, answer), told)
        })
        .unzip();
    store.run(jobs).await;
    let mut fates = Vec::new();
    for told in told {
        fates.push(told.await.expect("is answered").expect("works").is_ok());
    }
    assert_eq!(fates, [true, false, true, true]);
    assert_eq!(store.pop(up_to(9, "out")).await.names(), ["1", "2", "3"]);
}
