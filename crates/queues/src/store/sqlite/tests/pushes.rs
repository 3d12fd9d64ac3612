//! Transaction ids that come again, sizes.

use super::kit::{Kit, item, message, want};
use crate::QueuesOptions;
use crate::store::WorkError;
use skep_policy::queues::Verdict;

fn duplicates(pushed: &[crate::store::Pushed]) -> Vec<bool> {
    pushed.iter().map(|pushed| pushed.duplicate).collect()
}

#[tokio::test]
async fn an_id_that_comes_again_gets_the_original_back() {
    let options = QueuesOptions::default();
    let kit = Kit::new().await;
    let first = kit.push("q", "p", &["a", "b", "a"]).await;
    assert_eq!(duplicates(&first), [false, false, true]);
    assert_eq!(first[2].id, first[0].id, "within one push");
    let again = kit.push("q", "p", &["b", "c"]).await;
    assert_eq!(duplicates(&again), [true, false]);
    assert_eq!(again[0].id, first[1].id, "across pushes");
    assert_eq!(duplicates(&kit.push("q", "other", &["a"]).await), [false], "by partition");

    let kit = kit.reopen(&options).await;
    let again = kit.push("q", "p", &["c", "a", "d"]).await;
    assert_eq!(duplicates(&again), [true, true, false], "after a restart");
    assert_eq!(again[1].id, first[0].id);
    kit.pass(3_601);
    assert_eq!(duplicates(&kit.push("q", "p", &["a"]).await), [false], "only in its window");
    assert_eq!(kit.take(want("q", "g", 1, 9)).await, ["a", "b", "c", "d", "a"]);
}

#[tokio::test]
async fn ids_are_known_again_after_they_were_forgotten() {
    let options = QueuesOptions { dedup_bytes: 5_000, ..QueuesOptions::default() };
    let kit = Kit::with(&options).await;
    let first = kit.push("q", "p0", &["a"]).await;
    for number in 1..50 {
        kit.push("q", &format!("p{number}"), &["a"]).await;
    }
    let known = kit.queues.state.lock().unwrap().prints.known_through(first[0].partition);
    assert_eq!(known, None, "others took its place");
    let again = kit.push("q", "p0", &["a"]).await;
    assert_eq!((again[0].id, again[0].duplicate), (first[0].id, true));
}

#[tokio::test]
async fn a_full_queue_takes_nothing_of_a_push_until_its_slowest_group_has_settled() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.max_size = 3).await;
    kit.push("q", "p", &["a", "b"]).await;
    let push = |ids: &[&str]| ids.iter().map(|id| message("q", "p", id)).collect::<Vec<_>>();
    let mut both = vec![message("other", "p", "x")];
    both.extend(push(&["c", "d"]));
    let full = kit.try_push(both).await.unwrap_err();
    assert!(matches!(full, WorkError::Full { waiting: 2, max_size: 3, .. }), "{full}");
    assert!(kit.queues.queue("other").await.unwrap().is_none(), "nothing of it stays");
    let pushed = kit.try_push(push(&["c", "a"])).await.unwrap();
    assert_eq!(duplicates(&pushed), [false, true], "one that came before takes no room");
    assert!(kit.try_push(push(&["d"])).await.is_err());

    assert_eq!(kit.take(want("q", "fast", 1, 9)).await, ["a", "b", "c"]);
    let done = vec![item(pushed[0], "c", Verdict::Completed, Some(1))];
    kit.settle("fast", done).await;
    kit.push("q", "p", &["d", "e"]).await;
    assert_eq!(kit.take(want("q", "slow", 2, 1)).await, ["a"]);
    assert!(kit.try_push(push(&["f"])).await.is_err(), "the slow group has settled nothing");
    let done = vec![item(pushed[0], "a", Verdict::Completed, Some(2))];
    kit.settle("slow", done).await;
    assert!(kit.try_push(push(&["f"])).await.is_err(), "four wait for it");
    assert_eq!(kit.take(want("q", "fast", 3, 9)).await, ["d", "e"]);
}

#[tokio::test]
async fn a_payload_that_is_not_encrypted_as_its_queue_wants_is_refused() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.encryption_enabled = true).await;
    let both = vec![message("made", "p", "x"), message("q", "p", "a")];
    let refused = kit.try_push(both).await.unwrap_err();
    assert!(matches!(refused, WorkError::Encryption { .. }), "{refused}");
    assert!(kit.queues.queue("made").await.unwrap().is_none());
    let mut encrypted = message("q", "p", "a");
    encrypted.encrypted = true;
    kit.try_push(vec![encrypted]).await.unwrap();
}

#[tokio::test]
async fn a_queue_made_by_a_push_is_named_by_its_dot() {
    let kit = Kit::new().await;
    kit.push("shop.orders.new", "p", &["a"]).await;
    let queue = kit.queues.queue("shop.orders.new").await.unwrap().unwrap();
    assert_eq!((&*queue.namespace, &*queue.task), ("shop", "orders.new"));
    let listed = kit.queues.queues(None, 10).await.unwrap();
    assert_eq!((listed.len(), listed[0].total, listed[0].pending), (1, 1, 1));
    assert!(kit.queues.queues(Some("shop.orders.new"), 10).await.unwrap().is_empty());
}
