//! Messages that wait: for their time, for their next try, for whoever takes them; and clearing.

use crate::kit::*;
use skep_policy::Time;
use skep_policy::queues::{Settled, Verdict};
use skep_queues::record::{Records, Wishes};
use skep_queues::store::*;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;

on_each_store!(
    a_message_fails_as_often_as_it_says_itself,
    a_message_waits_after_a_failure_as_long_as_it_says_itself,
    a_consumer_says_when_a_message_comes_again,
    a_dead_letter_is_taken_once,
    what_is_not_there_to_take_leaves_nothing_behind,
    a_transaction_that_fails_gives_back_what_it_took,
    two_transactions_of_one_batch_never_take_the_same,
    a_message_that_is_wanted_again_is_kept_although_it_is_known,
    a_delayed_message_waits_apart_and_holds_up_nobody,
    a_time_that_has_passed_is_no_delay,
    a_delayed_message_that_comes_again_is_known,
    a_delayed_message_counts_for_the_maximum_and_moving_it_needs_no_room,
    a_moved_message_obeys_the_ordinary_rules,
    a_group_that_looked_before_finds_what_is_moved,
    two_competitors_move_every_message_once_and_in_order,
    what_waits_is_listed_page_by_page_and_can_be_deleted,
    what_waits_goes_with_its_queue,
    a_cleared_queue_hands_out_only_what_comes_after,
    what_waits_is_cleared_too,
    what_is_moved_while_its_queue_is_cleared_is_cleared,
    clearing_leaves_what_is_worked_on_and_dead_letters,
    cleared_messages_are_removed_and_counted,
);

const HOUR: Duration = Duration::from_secs(3_600);
/// Long enough to do a few things before, even on a busy machine.
const SOON: Duration = Duration::from_millis(1_500);

/// Calls the same function of either.
macro_rules! either {
    ($store:expr, $inner:ident => $call:expr) => {
        match $store {
            Store::Sqlite($inner) => $call,
            Store::Postgres($inner) => $call,
        }
    };
}

async fn due(store: &Store, limit: u32) -> Due {
    either!(store, store => store.due(limit).await).expect("reads")
}

async fn later(
    store: &Store,
    queue: &str,
    after: Option<(Time, i64)>,
    limit: u32,
) -> Vec<LaterMessage> {
    either!(store, store => store.later(queue, after, limit).await).expect("reads")
}

async fn delete_later(store: &Store, id: i64) -> bool {
    either!(store, store => store.delete_later(id).await).expect("deletes")
}

async fn clear(store: &Store, queue: &str) -> Option<Time> {
    either!(store, store => store.clear(queue).await).expect("clears")
}

/// A store keeps whole microseconds.
fn same_time(kept: Option<Time>, told: Time) -> bool {
    kept.is_some_and(|kept| kept.max(told).since(kept.min(told)) < Duration::from_micros(2))
}

fn own(limit: Option<u32>, delay: Option<u32>) -> Wishes {
    Wishes { retry_limit: limit, retry_delay: delay, ..Wishes::default() }
}

fn at(due: Time) -> Wishes {
    Wishes { due: Some(due), ..Wishes::default() }
}

/// Pushes one that waits until then.
async fn push_at(store: &Store, queue: &str, partition: &str, name: &str, due: Time) -> Pushed {
    store.try_push(vec![wished(queue, partition, name, at(due))]).await.expect("is kept")[0]
}

fn push(message: NewMessage) -> TransactionJob {
    TransactionJob { steps: vec![Step::Push(message)], ..TransactionJob::default() }
}

fn taking(takes: &[Take], message: NewMessage) -> TransactionJob {
    TransactionJob { takes: takes.to_vec(), ..push(message) }
}

/// Moves a message whose time has come. Tells whether it was this call that did.
async fn moves(store: &Store, one: &DueMessage) -> Option<Pushed> {
    let job = taking(&[Take::Later(one.id)], one.message.clone());
    match store.try_transact(job).await.expect("is answered") {
        Ok(done) => match done[..] {
            [StepDone::Pushed(pushed)] => Some(pushed),
            _ => panic!("{done:?}"),
        },
        Err(NotDone::Gone(0)) => None,
        Err(other) => panic!("{other:?}"),
    }
}

/// Waits until something is due.
async fn due_soon(store: &Store) -> Vec<DueMessage> {
    let some = async || Some(due(store, 100).await.messages).filter(|all| !all.is_empty());
    soon("something is due", some).await
}

fn name_of(record: &[u8]) -> String {
    Records::of(record).next().expect("one").expect("can be read").transaction.into_owned()
}

async fn names_later(store: &Store, queue: &str) -> Vec<String> {
    later(store, queue, None, 100).await.iter().map(|one| name_of(&one.record)).collect()
}

async fn a_message_fails_as_often_as_it_says_itself(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| (options.retry_delay, options.retry_limit) = (0, 1)).await;
    let messages = [("never", Some(0)), ("thrice", Some(3)), ("once", None)];
    let new = |(name, limit): &(&str, Option<u32>)| wished("q", name, name, own(*limit, None));
    store.try_push(messages.iter().map(new).collect()).await.expect("is kept");
    for (name, expected) in [("never", 0), ("thrice", 3), ("once", 1)] {
        let mut failures = 0;
        loop {
            let got = store.pop(from_partition("q", name)).await;
            match store.say(got.failed(name)).await {
                Settled::Again { .. } => failures += 1,
                settled => {
                    assert_eq!(settled, Settled::Dead { failures, released: true });
                    break;
                }
            }
        }
        assert_eq!(failures, expected, "{name}");
    }
}

async fn a_message_waits_after_a_failure_as_long_as_it_says_itself(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.retry_delay = 0).await;
    let hour = wished("q", "slow", "slow", own(None, Some(3_600_000)));
    store.try_push(vec![hour, message("q", "fast", "fast")]).await.expect("is kept");
    let got = store.pop(up_to(9, "q")).await;
    let before = store.now().await;
    let fast = store.say(got.failed("fast")).await;
    assert!(matches!(fast, Settled::Again { at } if at < before + HOUR / 4), "{fast:?}");
    let Settled::Again { at } = store.say(got.failed("slow")).await else {
        panic!("it comes again")
    };
    assert!(at >= before + HOUR / 2 && at < before + 2 * HOUR, "between half and all of it");
    let again = store.pop(up_to(9, "q")).await;
    assert_eq!(again.names(), ["fast"]);
    store.settle(again.all_done()).await;
    let next = store.pop(up_to(9, "q")).await.claimed.next_at;
    assert!(same_time(next, at), "{next:?} {at:?}");
}

async fn a_consumer_says_when_a_message_comes_again(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.retry_delay = 0).await;
    for (name, verdict) in [("f", Verdict::Failed), ("r", Verdict::Retry)] {
        store.push(&[("q", name, name)]).await;
        let got = store.pop(from_partition("q", name)).await;
        let word = SettleItem { after: Some(HOUR), ..got.word(name, verdict) };
        let before = store.now().await;
        let Settled::Again { at } = store.say(word).await else { panic!("it comes again") };
        assert!(at >= before + HOUR && at < before + 2 * HOUR, "{verdict:?}");
        let none = store.pop(from_partition("q", name)).await.claimed;
        assert!(none.lanes.is_empty() && same_time(none.next_at, at), "{none:?} {at:?}");
    }
}

/// Sets a message aside; its letter is the first of the store.
async fn set_aside(store: &Store) {
    store.push(&[("q", "p", "1")]).await;
    let got = store.pop(from("q")).await;
    store.say(got.word("1", Verdict::Dead)).await;
}

async fn a_dead_letter_is_taken_once(place: Place) {
    let store = place.open().await;
    set_aside(&store).await;
    let again = || NewMessage { again: true, ..message("q", "p", "1") };
    let done = store.try_transact(taking(&[Take::Dead(1)], again())).await.expect("is answered");
    let Ok(done) = done else { panic!("{done:?}") };
    assert!(matches!(&done[0], StepDone::Pushed(pushed) if !pushed.duplicate));
    assert_eq!(store.dead_letters(of_queue("q")).await.total, 0);
    assert_eq!(store.show("q").await.expect("is there").summary.dead, 0);
    let done = store.try_transact(taking(&[Take::Dead(1)], again())).await.expect("is answered");
    assert_eq!(done, Err(NotDone::Gone(0)));
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1"]);
}

async fn what_is_not_there_to_take_leaves_nothing_behind(place: Place) {
    let store = place.open().await;
    set_aside(&store).await;
    push_at(&store, "q", "p", "later", store.now().await + HOUR).await;
    let row = later(&store, "q", None, 9).await[0].id;
    for (bad, at) in [(Take::Dead(77), 2), (Take::Later(row + 7), 2), (Take::Later(row), 2)] {
        let job = taking(&[Take::Dead(1), Take::Later(row), bad], message("q", "p", "x"));
        let done = store.try_transact(job).await.expect("is answered");
        assert_eq!(done, Err(NotDone::Gone(at)), "{bad:?}");
    }
    assert_eq!(store.dead_letters(of_queue("q")).await.total, 1);
    assert_eq!(names_later(&store, "q").await, ["later"]);
    assert!(store.pop(up_to(9, "q")).await.claimed.lanes.is_empty());
}

async fn a_transaction_that_fails_gives_back_what_it_took(place: Place) {
    let store = place.open().await;
    set_aside(&store).await;
    store.push(&[("small", "p", "1")]).await;
    store.configure("small", |options| options.max_size = 1).await;
    let takes = [Take::Dead(1)];
    let full = store.try_transact(taking(&takes, message("small", "p", "2"))).await;
    assert!(matches!(full, Err(WorkError::Full { .. })), "{full:?}");
    let got = store.pop(from("small")).await;
    let item = SettleItem { lease: Some(lease()), ..got.done("1") };
    let stale = Step::Settle { group: GROUP.into(), item };
    let job = TransactionJob { steps: vec![stale], takes: takes.to_vec(), ..Default::default() };
    let refused = store.try_transact(job).await.expect("is answered");
    assert!(matches!(refused, Err(NotDone::Step(0, _))), "{refused:?}");
    let lost = lease();
    let job = TransactionJob { required: vec![lost], ..taking(&takes, message("q", "p", "x")) };
    assert_eq!(store.try_transact(job).await.expect("is answered"), Err(NotDone::Lease(lost)));
    assert_eq!(store.show("q").await.expect("is there").summary.dead, 1);
    let done = store.try_transact(taking(&takes, message("q", "p", "x"))).await;
    assert!(done.expect("is answered").is_ok(), "it is still there");
}

async fn two_transactions_of_one_batch_never_take_the_same(place: Place) {
    let store = place.open().await;
    set_aside(&store).await;
    let jobs = ["a", "b", "c"].map(|name| taking(&[Take::Dead(1)], message("out", "p", name)));
    let (jobs, told): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .map(|job| {
            let (answer, told) = oneshot::channel();
            (Job::Transaction(job, answer), told)
        })
        .unzip();
    store.run(jobs).await;
    let mut fates = Vec::new();
    for told in told {
        fates.push(told.await.expect("is answered").expect("works").map(|_| ()));
    }
    assert_eq!(fates, [Ok(()), Err(NotDone::Gone(0)), Err(NotDone::Gone(0))]);
    assert_eq!(store.pop(up_to(9, "out")).await.names(), ["a"]);
}

async fn a_message_that_is_wanted_again_is_kept_although_it_is_known(place: Place) {
    let store = place.open().await;
    let first = store.push(&[("q", "p", "1")]).await[0];
    let again = NewMessage { again: true, ..message("q", "p", "1") };
    let id = again.id;
    let pushed = store.try_push(vec![again]).await.expect("is kept")[0];
    assert_eq!((pushed.duplicate, pushed.id), (false, id));
    assert_ne!(pushed.id, first.id);
    let third = store.push(&[("q", "p", "1")]).await[0];
    assert_eq!((third.duplicate, third.id), (true, id), "it is known as the new one");
    drop(store);
    let store = place.open().await;
    let fourth = store.push(&[("q", "p", "1")]).await[0];
    assert_eq!((fourth.duplicate, fourth.id), (true, id), "and after a restart");
    let got = store.pop(up_to(9, "q")).await;
    assert_eq!(got.names(), ["1", "1"]);
    let settled = store.settle(got.all_done()).await;
    assert!(settled.contains(&DONE_ALL), "{settled:?}");
    assert!(store.pop(up_to(9, "q")).await.claimed.lanes.is_empty());
}

async fn a_delayed_message_waits_apart_and_holds_up_nobody(place: Place) {
    let store = place.open().await;
    let now = store.now().await;
    let soon = now + 2 * SOON;
    let messages = vec![
        message("q", "p", "1"),
        wished("q", "p", "late", at(soon)),
        message("q", "p", "2"),
        wished("q", "alone", "alone", at(now + HOUR)),
    ];
    let ids: Vec<_> = messages.iter().map(|one| one.id).collect();
    let pushed = store.try_push(messages).await.expect("is kept");
    assert_eq!(pushed.iter().map(|one| one.id).collect::<Vec<_>>(), ids);
    assert!(pushed.iter().all(|one| !one.duplicate));
    let p = pushed[0].partition;
    assert!(pushed[..3].iter().all(|one| one.partition == p) && pushed[3].partition != p);
    let got = store.pop(up_to(9, "q")).await;
    assert_eq!(got.names(), ["1", "2"]);
    store.settle(got.all_done()).await;
    let shown = store.show("q").await.expect("is there");
    let tails: BTreeMap<_, _> = shown.partitions.iter().map(|one| (&*one.name, one.tail)).collect();
    let expected = BTreeMap::from([("p", 2), ("alone", 0)]);
    assert_eq!(tails, expected, "the partition is there and else unchanged");
    assert_eq!(store.pop(from_partition("q", "alone")).await.claimed.nothing, Some(Nothing::Empty));
    let none = due(&store, 9).await;
    assert!(none.messages.is_empty() && none.next_at == Some(soon), "{none:?}");
    let found = due_soon(&store).await;
    assert_eq!((found.len(), name_of(&found[0].message.record)), (1, "late".to_owned()));
    assert_eq!(found[0].message.due, None);
    let pushed = moves(&store, &found[0]).await.expect("nobody else did");
    assert_eq!((pushed.id, pushed.partition, pushed.duplicate), (ids[1], p, false));
    let got = store.pop(up_to(9, "q")).await;
    assert_eq!(got.names(), ["late"]);
    assert!(read(&got.claimed.lanes[0])[0].at >= soon, "it is pushed when it is due");
    let rest = due(&store, 9).await;
    assert!(rest.messages.is_empty() && rest.next_at == Some(now + HOUR), "{rest:?}");
}

async fn a_time_that_has_passed_is_no_delay(place: Place) {
    let store = place.open().await;
    push_at(&store, "q", "p", "1", store.now().await).await;
    push_at(&store, "q", "p", "2", Time::from_millis(1)).await;
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1", "2"]);
    let none = due(&store, 9).await;
    assert_eq!((none.messages.len(), none.next_at), (0, None));
}

async fn a_delayed_message_that_comes_again_is_known(place: Place) {
    let store = place.open().await;
    let time = store.now().await + HOUR;
    let known = store.push(&[("q", "p", "known")]).await[0];
    let first = push_at(&store, "q", "p", "later", time).await;
    let again = push_at(&store, "q", "p", "later", time + HOUR).await;
    assert_eq!((again.duplicate, again.id), (true, first.id), "it waits already");
    let again = push_at(&store, "q", "p", "known", time).await;
    assert_eq!((again.duplicate, again.id), (true, known.id), "it is there already");
    let other = push_at(&store, "q", "other", "later", time).await;
    assert!(!other.duplicate, "another partition");
    let both = vec![
        wished("q", "p", "twice", at(time)),
        wished("q", "p", "twice", at(time)),
        message("q", "p", "now"),
        wished("q", "p", "now", at(time)),
    ];
    let pushed = store.try_push(both).await.expect("is kept");
    let duplicates: Vec<_> = pushed.iter().map(|one| one.duplicate).collect();
    assert_eq!(duplicates, [false, true, false, true], "within one push");
    assert_eq!((pushed[1].id, pushed[3].id), (pushed[0].id, pushed[2].id));
    assert_eq!(names_later(&store, "q").await, ["later", "later", "twice"]);
}

async fn a_delayed_message_counts_for_the_maximum_and_moving_it_needs_no_room(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.max_size = 2).await;
    let soon = store.now().await + SOON;
    store.push(&[("q", "p", "1")]).await;
    push_at(&store, "q", "p", "2", soon).await;
    for wishes in [Wishes::default(), at(soon + HOUR)] {
        let full = store.try_push(vec![wished("q", "p", "3", wishes)]).await;
        assert!(matches!(full, Err(WorkError::Full { waiting: 2, .. })), "{full:?}");
    }
    assert!(push_at(&store, "q", "p", "2", soon + HOUR).await.duplicate, "needs no room");
    store.configure("q", |options| options.max_size = 1).await;
    let found = due_soon(&store).await;
    assert!(moves(&store, &found[0]).await.is_some(), "it counted before");
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1", "2"]);
    store.configure("q", |options| options.max_size = 3).await;
    push_at(&store, "q", "p", "3", soon + HOUR).await;
    let row = later(&store, "q", None, 9).await[0].id;
    assert!(delete_later(&store, row).await);
    push_at(&store, "q", "p", "4", soon + HOUR).await;
}

async fn a_moved_message_obeys_the_ordinary_rules(place: Place) {
    let store = place.open().await;
    let soon = store.now().await + SOON;
    push_at(&store, "q", "p", "1", soon).await;
    let meanwhile = store.push(&[("q", "p", "1")]).await[0];
    let found = due_soon(&store).await;
    let pushed = moves(&store, &found[0]).await.expect("nobody else did");
    assert_eq!((pushed.duplicate, pushed.id), (true, meanwhile.id));
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1"]);
    assert!(names_later(&store, "q").await.is_empty());
}

async fn a_group_that_looked_before_finds_what_is_moved(place: Place) {
    let store = place.open().await;
    let soon = store.now().await + SOON;
    push_at(&store, "q", "p", "1", soon).await;
    assert!(store.pop(up_to(9, "q")).await.claimed.lanes.is_empty());
    let found = due_soon(&store).await;
    moves(&store, &found[0]).await.expect("nobody else did");
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1"]);
    store.configure("empty", |_| ()).await;
    assert!(store.pop(up_to(9, "empty")).await.claimed.lanes.is_empty());
    store.push(&[("empty", DEFAULT_PARTITION, "1")]).await;
    assert_eq!(store.pop(up_to(9, "empty")).await.names(), ["1"]);
}

async fn two_competitors_move_every_message_once_and_in_order(place: Place) {
    let store = place.open().await;
    let other = if place.shared_by_many() { place.open().await } else { store.clone() };
    let begin = store.now().await + SOON;
    let names: Vec<String> = (0..60).map(|number| format!("{number:02}")).collect();
    let new = |(number, name): (u32, &String)| {
        let partition = if number.is_multiple_of(2) { "even" } else { "odd" };
        wished("q", partition, name, at(begin + Duration::from_millis(2) * number))
    };
    store.try_push((0..).zip(&names).map(new).collect()).await.expect("is kept");
    // Whoever moves in the order of the times keeps it within a partition, if it does not begin
    // with the next before it knows that the one before is moved.
    let compete = async |store: &Store| {
        let mut moved = 0;
        while !later(store, "q", None, 1).await.is_empty() {
            for one in due(store, 7).await.messages {
                moved += usize::from(moves(store, &one).await.is_some());
            }
            tokio::task::yield_now().await;
        }
        moved
    };
    let (one, two) = tokio::join!(compete(&store), compete(&other));
    assert_eq!(one + two, names.len(), "each is moved by one of them");
    let mut read: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let got = store.pop(up_to(100, "q")).await;
    for lane in &got.claimed.lanes {
        let all = crate::kit::read(lane).into_iter().map(|one| one.transaction);
        read.entry(lane.partition.to_string()).or_default().extend(all);
    }
    let even: Vec<_> = names.iter().step_by(2).cloned().collect();
    let odd: Vec<_> = names.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!((&read["even"], &read["odd"]), (&even, &odd));
}

async fn what_waits_is_listed_page_by_page_and_can_be_deleted(place: Place) {
    let store = place.open().await;
    let time = store.now().await + HOUR;
    for (name, more) in [("c", 2), ("a", 1), ("b", 1)] {
        push_at(&store, "q", name, name, time + HOUR * more).await;
    }
    push_at(&store, "other", "p", "x", time).await;
    let page = later(&store, "q", None, 2).await;
    let shown = |page: &[LaterMessage]| -> Vec<(String, String, Time)> {
        page.iter().map(|one| (name_of(&one.record), one.partition.to_string(), one.due)).collect()
    };
    let row = |name: &str, more| (name.to_owned(), name.to_owned(), time + HOUR * more);
    assert_eq!(shown(&page), [row("a", 1), row("b", 1)]);
    let rest = later(&store, "q", Some((page[1].due, page[1].id)), 2).await;
    assert_eq!(shown(&rest), [row("c", 2)]);
    assert!(later(&store, "never", None, 2).await.is_empty());
    assert!(delete_later(&store, page[0].id).await);
    assert!(!delete_later(&store, page[0].id).await);
    assert_eq!(names_later(&store, "q").await, ["b", "c"]);
    assert!(!push_at(&store, "q", "a", "a", time).await.duplicate, "it waits no more");
}

async fn what_waits_goes_with_its_queue(place: Place) {
    let store = place.open().await;
    let soon = store.now().await + SOON;
    for name in ["1", "2", "3"] {
        push_at(&store, "q", "p", name, soon).await;
    }
    push_at(&store, "kept", "p", "1", soon).await;
    let rows = later(&store, "q", None, 9).await;
    assert!(store.delete_queue("q").await);
    let job = taking(&[Take::Later(rows[0].id)], message("q", "p", "1"));
    assert_eq!(store.try_transact(job).await.expect("is answered"), Err(NotDone::Gone(0)));
    let found = due_soon(&store).await;
    assert_eq!((found.len(), &*found[0].message.queue), (1, "kept"));
    assert_eq!(store.queue("q").await, None);
    assert!(store.tidy_all().await.rows >= 3);
    assert!(names_later(&store, "q").await.is_empty());
    assert!(!push_at(&store, "q", "p", "1", soon + HOUR).await.duplicate);
}

async fn a_cleared_queue_hands_out_only_what_comes_after(place: Place) {
    let store = place.open().await;
    assert_eq!(clear(&store, "q").await, None, "there is none");
    store.push(&[("q", "a", "1"), ("q", "b", "2"), ("other", "a", "1")]).await;
    store.pop(ClaimJob { group: "knows".into(), ..from("q") }).await;
    let before = store.now().await;
    let cleared = clear(&store, "q").await.expect("is there");
    assert!(cleared >= before);
    for (group, target) in [("new", up_to(9, "q")), ("newer", from_partition("q", "b"))] {
        let none = store.pop(ClaimJob { group: group.into(), ..target }).await.claimed;
        assert_eq!((none.nothing, none.next_at), (Some(Nothing::Empty), None), "{group}");
    }
    let again = store.push(&[("q", "a", "1"), ("q", "a", "3"), ("q", "c", "4")]).await;
    assert!(again[0].duplicate, "its transaction id is known for its window");
    drop(store);
    let store = place.open().await;
    let mut names = store.pop(up_to(9, "q")).await.names();
    names.sort_unstable();
    assert_eq!(names, ["3", "4"]);
    assert_eq!(store.pop(up_to(9, "other")).await.names(), ["1"]);
    store.configure("q", |options| options.lease_time = 9).await;
    let late = ClaimJob { group: "late".into(), ..up_to(9, "q") };
    assert_eq!(store.pop(late).await.names().len(), 2, "options do not bring it back");
}

async fn what_waits_is_cleared_too(place: Place) {
    let store = place.open().await;
    let soon = store.now().await + SOON;
    store.configure("q", |options| options.max_size = 2).await;
    push_at(&store, "q", "p", "1", soon).await;
    push_at(&store, "q", "p", "2", soon + HOUR).await;
    push_at(&store, "other", "p", "1", soon).await;
    clear(&store, "q").await.expect("is there");
    assert!(names_later(&store, "q").await.is_empty());
    let found = due_soon(&store).await;
    assert!(found.iter().all(|one| &*one.message.queue == "other"), "{found:?}");
    let again = push_at(&store, "q", "p", "1", soon + HOUR).await;
    assert!(!again.duplicate, "it waits no more, and takes no room");
    push_at(&store, "q", "p", "2", soon + HOUR).await;
}

async fn what_is_moved_while_its_queue_is_cleared_is_cleared(place: Place) {
    let store = place.open().await;
    let other = if place.shared_by_many() { place.open().await } else { store.clone() };
    for round in 0..5 {
        let soon = store.now().await + SOON / 3;
        let new = |number| wished("q", "p", &format!("{round}.{number}"), at(soon));
        store.try_push((0..40).map(new).collect()).await.expect("is kept");
        let found = due_soon(&other).await;
        let move_all = async {
            for one in &found {
                moves(&other, one).await;
            }
        };
        let ((), cleared) = tokio::join!(move_all, clear(&store, "q"));
        assert!(cleared.is_some());
        assert!(names_later(&store, "q").await.is_empty());
        assert_eq!(store.pop(up_to(100, "q")).await.names(), [""; 0], "in round {round}");
    }
}

async fn clearing_leaves_what_is_worked_on_and_dead_letters(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1"), ("q", "p", "2"), ("q", "p", "3"), ("q", "p", "4")]).await;
    let got = store.pop(up_to(3, "q")).await;
    let dead = Settled::Dead { failures: 0, released: false };
    assert_eq!(store.say(got.word("1", Verdict::Dead)).await, dead);
    clear(&store, "q").await.expect("is there");
    store.tidy_all().await;
    assert_eq!(store.say(got.word("2", Verdict::Dead)).await, dead);
    assert_eq!(store.say(got.done("3")).await, DONE_ALL);
    let aside: Vec<_> =
        letters(&store.dead_letters(of_queue("q")).await).into_iter().map(|one| one.0).collect();
    assert_eq!(aside, ["2", "1"]);
    assert!(store.pop(up_to(9, "q")).await.claimed.lanes.is_empty());
}

async fn cleared_messages_are_removed_and_counted(place: Place) {
    let store = place.open().await;
    for number in 0..30 {
        let name = number.to_string();
        store.push(&[("q", &format!("p{}", number % 7), &name), ("kept", "p", &name)]).await;
    }
    store.pop(ClaimJob { auto_ack: true, ..from("q") }).await;
    clear(&store, "q").await.expect("is there");
    store.push(&[("q", "p1", "new")]).await;
    assert_eq!(store.tidy_all().await.messages, 30);
    assert_eq!(store.tidy_all().await.messages, 0);
    let shown = store.show("q").await.expect("is there").summary;
    assert_eq!((shown.total, shown.pending), (1, 1));
    assert_eq!(store.show("kept").await.expect("is there").summary.total, 30);
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["new"]);
}
