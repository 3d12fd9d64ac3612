//! Many jobs at once, and commits that are lost.

use super::kit::{ALL_DONE, DONE, Kit, ids, item, message, want};
use crate::store::{Job, WorkError};
use skep_policy::queues::{LeaseId, Verdict};
use skep_store::StoreError;
use tokio::sync::oneshot;

#[tokio::test]
async fn a_batch_of_everything_answers_each_as_if_alone() {
    let kit = Kit::new().await;
    kit.configure("small", |options| options.max_size = 1).await;
    let pushed = kit.push("q", "p", &["a", "b", "c"]).await;
    kit.take(want("q", "g", 1, 2)).await;

    let (claim, claimed) = oneshot::channel();
    let (parked, woken) = oneshot::channel();
    let (push, got) = oneshot::channel();
    let (again, got_again) = oneshot::channel();
    let (full, refused) = oneshot::channel();
    let (settle, settled) = oneshot::channel();
    let (extend, extended) = oneshot::channel();
    let (release, released) = oneshot::channel();
    let done = |id| item(pushed[0], id, Verdict::Completed, Some(1));
    let wakes = kit
        .queues
        .run(vec![
            Job::Claim(want("q", "g", 2, 9), claim),
            Job::Claim(want("q2", "g", 3, 9), parked),
            Job::Push(vec![message("q2", "p", "x"), message("q2", "p", "y")], push),
            Job::Push(vec![message("q2", "p", "y"), message("q2", "p", "z")], again),
            Job::Push(
                vec![
                    message("q2", "p", "no"),
                    message("small", "p", "1"),
                    message("small", "p", "2"),
                ],
                full,
            ),
            Job::Settle { group: "g".into(), items: vec![done("a"), done("b")], answer: settle },
            Job::Extend { lease: LeaseId(1), seconds: 9, answer: extend },
            Job::Release { lease: LeaseId(77), answer: release },
        ])
        .await;
    let settled = settled.await.unwrap().unwrap();
    assert_eq!([settled[0].settled, settled[1].settled], [DONE, ALL_DONE]);
    assert_eq!(extended.await.unwrap().unwrap(), None, "its lease has ended before");
    assert_eq!(released.await.unwrap().unwrap(), 0);
    assert_eq!(ids(&claimed.await.unwrap().unwrap()), ["c"], "after the settlement");
    let (first, second) = (got.await.unwrap().unwrap(), got_again.await.unwrap().unwrap());
    assert_eq!(second[0].id, first[1].id);
    assert!(second[0].duplicate && !second[1].duplicate);
    assert!(matches!(refused.await.unwrap(), Err(WorkError::Full { .. })));
    assert_eq!(ids(&woken.await.unwrap().unwrap()), ["x", "y", "z"], "woken by the push");
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_segments").await, 2, "one for both");
    let groups: Vec<_> = wakes.iter().map(|wake| (&*wake.queue, wake.group.as_deref())).collect();
    assert_eq!(groups, [("q", Some("g")), ("q2", None)]);
}

#[tokio::test]
async fn claims_of_one_batch_get_different_partitions() {
    let kit = Kit::new().await;
    for number in 0..40 {
        kit.push("q", &format!("p{number}"), &[&format!("{number}")]).await;
    }
    let mut jobs = Vec::new();
    let mut answers = Vec::new();
    for lease in 0..50 {
        let (answer, got) = oneshot::channel();
        jobs.push(Job::Claim(want("q", "g", lease, 5), answer));
        answers.push(got);
    }
    kit.queues.run(jobs).await;
    let mut taken = Vec::new();
    for got in answers {
        taken.extend(ids(&got.await.unwrap().unwrap()));
    }
    let expected: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    assert_eq!(taken, expected, "each once, the oldest first");
}

#[tokio::test]
async fn what_a_lost_commit_did_is_forgotten() {
    let kit = Kit::new().await;
    kit.push("q", "p", &["a"]).await;
    let lost = kit.queues.write(|work| {
        work.push(&[message("q", "p", "b"), message("made", "p", "c")]).unwrap();
        work.write_messages()?;
        Err::<(), _>(StoreError::Closed { store: "test" })
    });
    assert!(lost.await.is_err());
    let fresh = kit.push("q", "p", &["b", "a", "d"]).await;
    let duplicates: Vec<bool> = fresh.iter().map(|pushed| pushed.duplicate).collect();
    assert_eq!(duplicates, [false, true, false]);
    kit.push("made", "p", &["c"]).await;
    assert_eq!(kit.take(want("q", "g", 1, 9)).await, ["a", "b", "d"]);
    assert_eq!(kit.take(want("made", "g", 2, 9)).await, ["c"]);
}

#[tokio::test]
async fn what_a_batch_that_panicked_did_is_forgotten() {
    let kit = Kit::new().await;
    kit.push("q", "p", &["a"]).await;
    let panicked = kit.queues.write(|work| -> Result<(), StoreError> {
        work.push(&[message("q", "p", "b")]).unwrap();
        work.write_messages()?;
        panic!("on purpose")
    });
    assert!(matches!(panicked.await, Err(StoreError::Panicked { .. })));
    assert!(!kit.push("q", "p", &["b"]).await[0].duplicate);
    assert_eq!(kit.take(want("q", "g", 1, 9)).await, ["a", "b"]);
}

#[tokio::test]
async fn a_batch_that_changes_nothing_writes_nothing() {
    let kit = Kit::new().await;
    kit.push("q", "p", &["a"]).await;
    kit.take(want("q", "g", 1, 9)).await;
    let version = "SELECT version FROM skep_queue_clock";
    let before = kit.count(version).await;
    assert!(kit.claim(want("q", "g", 2, 9)).await.lanes.is_empty());
    assert!(kit.push("q", "p", &["a"]).await[0].duplicate);
    assert_eq!(kit.count(version).await, before);
}

#[tokio::test]
async fn when_the_store_is_closed_every_job_is_told() {
    let kit = Kit::new().await;
    kit.sqlite().close().await;
    let pushed = kit.try_push(vec![message("q", "p", "a")]).await;
    assert!(matches!(pushed, Err(WorkError::Store(StoreError::Closed { .. }))));
}

#[tokio::test]
async fn the_clock_goes_on_where_it_was() {
    let kit = Kit::new().await;
    kit.pass(1_000_000);
    kit.push("q", "p", &["a"]).await;
    let before = kit.queues.now();
    let kit = kit.reopen(&crate::QueuesOptions::default()).await;
    assert!(kit.queues.now() >= before, "though the wall clock says otherwise");
}
