//! Durable, visible, once.

use crate::kit::*;
use skep_queues::record::Wishes;
use skep_queues::store::*;
use skep_queues::{NewItem, Queues, QueuesMetrics, QueuesOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;

on_each_store!(
    what_is_acknowledged_is_there_for_everybody_at_once,
    a_queue_and_its_partition_are_made_on_the_spot,
    a_transaction_id_that_comes_again_gets_the_first_id,
    a_batch_may_name_a_transaction_id_twice,
    a_transaction_id_is_known_in_its_partition_only,
    a_transaction_id_is_known_after_a_restart_and_without_memory,
    a_transaction_id_is_known_while_its_message_is_leased_and_settled,
    a_transaction_id_is_forgotten_after_its_window,
    a_large_batch_comes_back_whole_and_in_order,
    pushes_of_one_batch_keep_their_order_and_find_each_other,
    a_job_that_is_refused_harms_no_other_of_its_batch,
    a_queue_that_wants_encryption_takes_nothing_else,
    an_empty_push_is_answered,
    who_wants_to_hear_no_more_of_pushes_is_forgotten,
);

async fn what_is_acknowledged_is_there_for_everybody_at_once(place: Place) {
    let store = place.open().await;
    for number in 0..20 {
        let name = number.to_string();
        store.push(&[("q", "p", &name)]).await;
        let reader = if place.shared_by_many() { place.open().await } else { store.clone() };
        let got = reader.pop(up_to(9, "q")).await;
        assert_eq!(got.names(), [name]);
        reader.settle(got.all_done()).await;
    }
    store.push(&[("q", "p", "last")]).await;
    drop(store);
    assert_eq!(place.open().await.pop(up_to(9, "q")).await.names(), ["last"]);
}

async fn a_queue_and_its_partition_are_made_on_the_spot(place: Place) {
    let store = place.open().await;
    assert_eq!(store.queue("shop.orders.eu").await, None);
    let pushed = store.push(&[("shop.orders.eu", "p", "1"), ("plain", "p", "1")]).await;
    assert_ne!(pushed[0].partition, pushed[1].partition);
    let queue = store.queue("shop.orders.eu").await.expect("it was made");
    assert_eq!((&*queue.namespace, &*queue.task), ("shop", "orders.eu"));
    let plain = store.queue("plain").await.expect("it was made");
    assert_eq!((&*plain.namespace, &*plain.task), ("", ""));
    assert_eq!(*plain.options, skep_queues::QueueOptions::default());
}

async fn a_transaction_id_that_comes_again_gets_the_first_id(place: Place) {
    let store = place.open().await;
    let first = store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    assert!(first.iter().all(|pushed| !pushed.duplicate));
    let again = store.push(&[("q", "p", "3"), ("q", "p", "2"), ("q", "p", "1")]).await;
    let duplicates: Vec<bool> = again.iter().map(|pushed| pushed.duplicate).collect();
    assert_eq!(duplicates, [false, true, true]);
    assert_eq!((again[1].id, again[2].id), (first[1].id, first[0].id));
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1", "2", "3"]);
}

async fn a_batch_may_name_a_transaction_id_twice(place: Place) {
    let store = place.open().await;
    let pushed = store.push(&[("q", "p", "1"), ("q", "p", "1"), ("q", "p", "2")]).await;
    let duplicates: Vec<bool> = pushed.iter().map(|pushed| pushed.duplicate).collect();
    assert_eq!(duplicates, [false, true, false]);
    assert_eq!(pushed[0].id, pushed[1].id);
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1", "2"]);
}

async fn a_transaction_id_is_known_in_its_partition_only(place: Place) {
    let store = place.open().await;
    let pushed = store.push(&[("q", "a", "1"), ("q", "b", "1"), ("r", "a", "1")]).await;
    assert!(pushed.iter().all(|pushed| !pushed.duplicate));
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1", "1"]);
}

async fn a_transaction_id_is_known_after_a_restart_and_without_memory(place: Place) {
    let store = place.open().await;
    let first = store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    drop(store);
    let nothing =
        QueuesOptions { dedup_bytes: 1 << 20, cache_bytes: 0, ..QueuesOptions::default() };
    for options in [QueuesOptions::default(), nothing] {
        let store = place.open_with(&options).await;
        for number in 0..50 {
            store.push(&[("q", &format!("other{number}"), "1")]).await;
        }
        let again = store.push(&[("q", "p", "2"), ("q", "p", "1")]).await;
        assert!(again.iter().all(|pushed| pushed.duplicate));
        assert_eq!((again[0].id, again[1].id), (first[1].id, first[0].id));
    }
}

async fn a_transaction_id_is_known_while_its_message_is_leased_and_settled(place: Place) {
    let store = place.open().await;
    let first = store.push(&[("q", "p", "1")]).await;
    let got = store.pop(up_to(9, "q")).await;
    let again = store.push(&[("q", "p", "1")]).await;
    assert_eq!((again[0].duplicate, again[0].id), (true, first[0].id));
    store.settle(got.all_done()).await;
    store.tidy_all().await;
    let again = store.push(&[("q", "p", "1")]).await;
    assert_eq!((again[0].duplicate, again[0].id), (true, first[0].id));
    assert!(store.pop(up_to(9, "q")).await.claimed.lanes.is_empty());
}

async fn a_transaction_id_is_forgotten_after_its_window(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.dedup_window_seconds = 1).await;
    let first = store.push(&[("q", "p", "1")]).await;
    let before = store.now().await;
    let new = soon("the window is over", async || {
        let again = store.push(&[("q", "p", "1")]).await;
        if again[0].duplicate {
            assert_eq!(again[0].id, first[0].id);
        }
        (!again[0].duplicate).then_some(again[0].id)
    })
    .await;
    let got = store.pop(up_to(9, "q")).await;
    let all = read(&got.claimed.lanes[0]);
    assert_eq!((all[0].id, all[1].id, all.len()), (first[0].id, new, 2));
    assert!(all[1].at >= all[0].at + std::time::Duration::from_secs(1), "not before");
    assert!(store.now().await >= before);
}

async fn a_large_batch_comes_back_whole_and_in_order(place: Place) {
    let store = place.open().await;
    let names: Vec<String> =
        (0..1_000).map(|number| format!("{number}-{}", "x".repeat(number % 97))).collect();
    let all: Vec<_> = names.iter().map(|name| ("q", "p", name.as_str())).collect();
    store.push(&all).await;
    let huge = "y".repeat(600 << 10);
    store.push(&[("q", "p", "small"), ("q", "p", &huge), ("q", "p", "after")]).await;
    let mut read = Vec::new();
    loop {
        let got = store.pop(ClaimJob { batch: 333, ..from("q") }).await;
        let Some(last) = got.names().last().cloned() else { break };
        assert_eq!(store.settle(vec![got.done(&last)]).await, [DONE_ALL]);
        read.extend(got.names());
    }
    let expected: Vec<&str> =
        names.iter().map(String::as_str).chain(["small", &huge, "after"]).collect();
    assert!(read == expected, "{} of {}", read.len(), expected.len());
}

async fn pushes_of_one_batch_keep_their_order_and_find_each_other(place: Place) {
    let store = place.open().await;
    let (jobs, told): (Vec<_>, Vec<_>) = (0..30)
        .map(|number| {
            let (answer, told) = oneshot::channel();
            let names = [format!("{number}"), format!("{}", number / 2 * 2)];
            let both = names.map(|name| message("q", "p", &name)).to_vec();
            (Job::Push(both, answer), told)
        })
        .unzip();
    store.run(jobs).await;
    for (number, told) in told.into_iter().enumerate() {
        let pushed = told.await.expect("is answered").expect("works");
        let duplicates: Vec<bool> = pushed.iter().map(|pushed| pushed.duplicate).collect();
        assert_eq!(duplicates, [false, true], "{number}");
    }
    let expected: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    assert_eq!(store.pop(ClaimJob { batch: 100, ..from("q") }).await.names(), expected);
}

async fn a_job_that_is_refused_harms_no_other_of_its_batch(place: Place) {
    let store = place.open().await;
    store.configure("small", |options| options.max_size = 1).await;
    let (jobs, mut told): (Vec<_>, Vec<_>) = [
        vec![message("q", "p", "1")],
        vec![message("q", "p", "no"), message("small", "p", "1"), message("small", "p", "2")],
        vec![
            message("q", "p", "no"),
            message("new", "p", "no"),
            NewMessage { encrypted: true, ..message("q", "p", "secret") },
        ],
        vec![message("q", "p", "2"), message("small", "p", "3")],
    ]
    .into_iter()
    .map(|messages| {
        let (answer, told) = oneshot::channel();
        (Job::Push(messages, answer), told)
    })
    .unzip();
    store.run(jobs).await;
    let mut answers = Vec::new();
    for told in told.drain(..) {
        answers.push(told.await.expect("is answered"));
    }
    assert!(answers[0].is_ok());
    assert!(matches!(&answers[1], Err(WorkError::Full { .. })), "{:?}", answers[1]);
    assert!(matches!(&answers[2], Err(WorkError::Encryption { .. })), "{:?}", answers[2]);
    assert!(answers[3].as_ref().is_ok_and(|all| all.iter().all(|pushed| !pushed.duplicate)));
    assert_eq!(store.pop(up_to(9, "q")).await.names(), ["1", "2"]);
    assert_eq!(store.pop(up_to(9, "small")).await.names(), ["3"]);
    assert!(!store.push(&[("q", "p", "no")]).await[0].duplicate);
    assert_eq!(store.queue("new").await, None, "nothing of it was done");
}

async fn a_queue_that_wants_encryption_takes_nothing_else(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.encryption_enabled = true).await;
    let plain = store.try_push(vec![message("q", "p", "1")]).await;
    assert!(matches!(&plain, Err(WorkError::Encryption { queue }) if **queue == *"q"));
    let sealed = NewMessage { encrypted: true, ..message("q", "p", "1") };
    assert!(!store.try_push(vec![sealed]).await.expect("is kept")[0].duplicate);
}

async fn an_empty_push_is_answered(place: Place) {
    let store = place.open().await;
    assert_eq!(store.push(&[]).await, []);
    assert_eq!(store.settle(Vec::new()).await, []);
    assert_eq!(store.transact(Vec::new(), &[]).await, Ok(Vec::new()));
    assert_eq!(store.run(Vec::new()).await, []);
}

async fn who_wants_to_hear_no_more_of_pushes_is_forgotten(place: Place) {
    let (metrics, options) = (QueuesMetrics::default(), QueuesOptions::default());
    let store = place.open().await.whole();
    let queues = Queues::open(store, None, None, metrics, &options).await.expect("opens");
    let hear = |most: usize| {
        let count = Arc::new(AtomicUsize::new(0));
        let told = count.clone();
        queues.on_wake(move |queue| queue == "q" && told.fetch_add(1, Ordering::SeqCst) + 1 < most);
        count
    };
    let (brief, long) = (hear(2), hear(usize::MAX));
    let item = NewItem {
        queue: "q".into(),
        partition: "p".into(),
        payload: b"1".as_slice().into(),
        transaction: None,
        trace: None,
        producer: None,
        wishes: Wishes::default(),
    };
    for number in 1..=4 {
        queues.push(std::slice::from_ref(&item)).await.expect("is kept");
        let heard = async || (long.load(Ordering::SeqCst) == number).then_some(());
        soon("it is told", heard).await;
        if number == 2 {
            let let_go = async || (Arc::strong_count(&brief) == 1).then_some(());
            soon("nothing of the first is kept", let_go).await;
        }
    }
    assert_eq!(brief.load(Ordering::SeqCst), 2);
}
