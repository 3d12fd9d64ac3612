//! Messages that wait for their time, many of them.

use super::kit::{Kit, delayed, want};
use crate::store::{Job, Step, Take, TransactionJob, WorkError};
use std::time::Duration;
use tokio::sync::oneshot;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn more_than_one_round_of_what_waits_is_cleared() {
    let kit = Kit::new().await;
    let due = kit.queues.now() + HOUR;
    for queue in ["q", "other"] {
        let new = |number| delayed(queue, "p", &format!("{number}"), due);
        kit.try_push((0..2_500).map(new).collect()).await.unwrap();
    }
    assert_eq!(kit.count("SELECT sum(later) FROM skep_queues").await, 5_000);
    kit.queues.clear("q").await.unwrap().unwrap();
    assert_eq!(kit.count("SELECT later FROM skep_queues WHERE name = 'q'").await, 0);
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_later").await, 2_500);
    kit.clock.advance(2 * HOUR);
    let first = kit.queues.due(10).await.unwrap();
    assert_eq!((first.messages.len(), first.next_at), (10, Some(first.now)), "there is more");
    assert!(first.messages.iter().all(|one| &*one.message.queue == "other"));
}

#[tokio::test]
async fn jobs_of_one_batch_know_what_waits_and_what_is_taken() {
    let kit = Kit::new().await;
    let due = kit.queues.now() + HOUR;
    kit.try_push(vec![delayed("q", "p", "1", due)]).await.unwrap();
    let row = kit.queues.later("q", None, 9).await.unwrap()[0].id;
    let transaction = |takes: &[Take], id: &str| {
        let (answer, told) = oneshot::channel();
        let steps = vec![Step::Push(delayed("q", "p", id, due + HOUR))];
        let job = TransactionJob { steps, takes: takes.to_vec(), ..TransactionJob::default() };
        (Job::Transaction(job, answer), told)
    };
    let (again, again_told) = transaction(&[], "1");
    let (taken, taken_told) = transaction(&[Take::Later(row)], "1");
    let (same, same_told) = transaction(&[], "1");
    kit.queues.run(vec![again, taken, same]).await;
    let mut duplicates = Vec::new();
    for told in [again_told, taken_told, same_told] {
        let done = told.await.unwrap().unwrap().unwrap();
        let crate::store::StepDone::Pushed(pushed) = &done[0] else { panic!("{done:?}") };
        duplicates.push(pushed.duplicate);
    }
    assert_eq!(duplicates, [true, false, true], "it waits; it was taken; the new one waits");
    let rows = kit.queues.later("q", None, 9).await.unwrap();
    assert_eq!((rows.len(), rows[0].due), (1, due + HOUR));
    assert_eq!(kit.count("SELECT later FROM skep_queues").await, 1);
}

#[tokio::test]
async fn a_refused_push_lets_nothing_wait() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.max_size = 2).await;
    let due = kit.queues.now() + HOUR;
    let three = |from: u32| (from..from + 3).map(|n| delayed("q", "p", &n.to_string(), due));
    let full = kit.try_push(three(0).collect()).await;
    assert!(matches!(full, Err(WorkError::Full { waiting: 0, .. })), "{full:?}");
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_later").await, 0);
    let pushed = kit.try_push(three(0).take(2).collect()).await.unwrap();
    assert!(pushed.iter().all(|one| !one.duplicate), "{pushed:?}");
    assert!(kit.take(want("q", "g", 1, 9)).await.is_empty());
}
