//! Settling, dead letters, transactions.

use super::kit::{ALL_DONE, DONE, Kit, item, message, want};
use crate::record::Records;
use crate::store::{Job, NotDone, Step, StepDone};
use skep_policy::queues::{LeaseId, Refusal, Settled, Verdict};
use tokio::sync::oneshot;

#[tokio::test]
async fn settling_again_is_no_harm_and_the_unknown_is_refused() {
    let kit = Kit::new().await;
    let pushed = kit.push("q", "p", &["a", "b", "c"]).await;
    kit.take(want("q", "g", 1, 2)).await;
    let done = |id, lease| item(pushed[0], id, Verdict::Completed, lease);
    let settled = kit.settle("g", vec![done("b", Some(1)), done("a", Some(1))]).await;
    assert_eq!(settled, [ALL_DONE, DONE], "in the order of the messages");
    let settled = kit.settle("g", vec![done("a", Some(1)), done("b", None), done("x", None)]).await;
    let unknown = Settled::Refused(Refusal::Unknown);
    assert_eq!(settled, [Settled::Noop, Settled::Noop, unknown]);
    let mut nowhere = done("a", Some(1));
    nowhere.partition = None;
    assert_eq!(kit.settle("g", vec![nowhere]).await, [unknown]);
    let settled = kit.settle("never seen", vec![done("a", Some(1)), done("a", None)]).await;
    assert_eq!(settled, [Settled::Refused(Refusal::Stale), unknown]);
    assert_eq!(kit.take(want("q", "g", 2, 9)).await, ["c"]);
    assert_eq!(kit.settle("g", vec![done("c", None)]).await, [Settled::Refused(Refusal::Held)]);
}

#[tokio::test]
async fn what_fails_too_often_goes_to_the_dead_letters_with_its_payload() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.retry_limit = 2).await;
    let pushed = kit.push("q", "p", &["a", "b"]).await;
    for lease in 1..=2 {
        assert_eq!(kit.take(want("q", "g", lease, 9)).await, ["a", "b"]);
        let failed = vec![item(pushed[0], "a", Verdict::Failed, Some(lease))];
        assert!(matches!(kit.settle("g", failed).await[0], Settled::Again { .. }));
        let early = kit.claim(want("q", "g", 9, 9)).await;
        assert!(early.lanes.is_empty() && early.next_at.unwrap() > early.now, "a delay");
        kit.pass(10);
    }
    kit.take(want("q", "g", 3, 9)).await;
    let failed = vec![item(pushed[0], "a", Verdict::Failed, Some(3))];
    let settled = kit.settle("g", failed).await;
    assert_eq!(settled, [Settled::Dead { failures: 2, released: false }]);
    let retried = vec![item(pushed[0], "b", Verdict::Retry, Some(3))];
    assert!(matches!(kit.settle("g", retried).await[0], Settled::Again { .. }));
    assert_eq!(kit.take(want("q", "g", 4, 9)).await, ["b"], "at once");
    let dead = vec![item(pushed[1], "b", Verdict::Dead, Some(4))];
    assert_eq!(kit.settle("g", dead).await, [Settled::Dead { failures: 2, released: true }]);

    let letters = kit.dead("q").await;
    assert_eq!(letters.len(), 2, "newest first");
    let record = Records::of(&letters[1].record).next().unwrap().unwrap();
    assert_eq!((record.id, record.payload), (pushed[0].id, &b"\"a\""[..]));
    assert_eq!(letters[1].error.as_deref(), Some("a went wrong"));
    assert_eq!((letters[1].failures, &*letters[1].group), (2, "g"));
    assert!(letters[1].failed_at > letters[1].created_at);
    let listed = kit.queues.queues(None, 1).await.unwrap();
    assert_eq!((listed[0].dead, listed[0].pending), (2, 0));
    let filter = crate::store::DeadFilter {
        partition: Some("p".into()),
        group: Some("g".into()),
        from: Some(letters[0].failed_at),
        limit: 9,
        ..Default::default()
    };
    assert_eq!(kit.queues.dead_letters(filter.clone()).await.unwrap().total, 1);
    let none = crate::store::DeadFilter { group: Some("h".into()), ..filter };
    assert_eq!(kit.queues.dead_letters(none).await.unwrap().total, 0);
}

#[tokio::test]
async fn a_settlement_that_frees_a_lane_wakes_its_group() {
    let kit = Kit::new().await;
    let pushed = kit.push("q", "p", &["a", "b"]).await;
    kit.take(want("q", "g", 1, 1)).await;
    let done = vec![item(pushed[0], "a", Verdict::Completed, Some(1))];
    let (_, wakes) = kit.settle_items("g", done).await;
    assert_eq!(wakes.len(), 1);
    assert_eq!((&*wakes[0].partition, wakes[0].group.as_deref()), ("p", Some("g")));
    kit.take(want("q", "g", 2, 1)).await;
    let done = vec![item(pushed[0], "b", Verdict::Completed, Some(2))];
    assert_eq!(kit.settle_items("g", done).await.1, [], "nothing is left");
}

#[tokio::test]
async fn a_transaction_is_done_as_a_whole() {
    let kit = Kit::new().await;
    let pushed = kit.push("in", "p", &["a", "b"]).await;
    kit.take(want("in", "g", 1, 9)).await;
    let settle = |id| Step::Settle {
        group: "g".into(),
        item: item(pushed[0], id, Verdict::Completed, None),
    };
    let steps = vec![Step::Push(message("out", "p", "x")), settle("a"), settle("b")];
    let done = kit.transaction(steps, &[1]).await.unwrap().unwrap();
    assert!(matches!(done[0], StepDone::Pushed(pushed) if !pushed.duplicate));
    assert!(matches!(&done[2], StepDone::Settled(item) if item.settled == ALL_DONE));
    assert_eq!(kit.take(want("out", "h", 2, 9)).await, ["x"]);
    assert!(kit.claim(want("in", "g", 3, 9)).await.lanes.is_empty());
}

#[tokio::test]
async fn a_transaction_that_is_refused_leaves_nothing() {
    let kit = Kit::new().await;
    let pushed = kit.push("in", "p", &["a", "b"]).await;
    kit.take(want("in", "g", 1, 1)).await;
    let settle = |id, verdict, lease| Step::Settle {
        group: "g".into(),
        item: item(pushed[0], id, verdict, lease),
    };
    let tables = "SELECT (SELECT count(*) FROM skep_queues) + (SELECT count(*) FROM
        skep_queue_partitions) + (SELECT count(*) FROM skep_queue_segments) + (SELECT count(*)
        FROM skep_queue_dead) + (SELECT version FROM skep_queue_clock)";
    let before = kit.count(tables).await;
    let steps = vec![
        Step::Push(message("new", "p", "x")),
        Step::Push(message("in", "p", "c")),
        settle("a", Verdict::Dead, Some(1)),
        settle("b", Verdict::Completed, Some(1)),
    ];
    let refused = kit.transaction(steps.clone(), &[1]).await.unwrap().unwrap_err();
    assert!(matches!(refused, NotDone::Step(3, item)
        if item.settled == Settled::Refused(Refusal::Stale)));
    let lease = kit.transaction(steps, &[1, 8]).await.unwrap().unwrap_err();
    assert_eq!(lease, NotDone::Lease(LeaseId(8)));
    assert_eq!(kit.count(tables).await, before);
    assert!(kit.queues.queue("new").await.unwrap().is_none());

    let again = kit.push("in", "p", &["c", "a"]).await;
    assert_eq!((again[0].duplicate, again[1].duplicate), (false, true));
    let fresh = kit.push("new", "p", &["x"]).await;
    assert!(!fresh[0].duplicate);
    let done = vec![item(pushed[0], "a", Verdict::Completed, Some(1))];
    assert_eq!(kit.settle("g", done).await, [ALL_DONE], "the lease still holds");
    assert_eq!(kit.take(want("in", "g", 2, 9)).await, ["b", "c"]);
    assert_eq!(kit.dead("in").await.len(), 0);
}

#[tokio::test]
async fn a_refused_transaction_does_no_harm_to_the_jobs_around_it() {
    let kit = Kit::new().await;
    let pushed = kit.push("q", "p", &["a", "b"]).await;
    kit.take(want("q", "g", 1, 9)).await;
    let step = |id, lease| Step::Settle {
        group: "g".into(),
        item: item(pushed[0], id, Verdict::Completed, Some(lease)),
    };
    let (first, got_first) = oneshot::channel();
    let (second, got_second) = oneshot::channel();
    let (third, got_third) = oneshot::channel();
    let transaction = |steps, answer| {
        let job = crate::store::TransactionJob { steps, ..Default::default() };
        Job::Transaction(job, answer)
    };
    kit.queues
        .run(vec![
            transaction(vec![Step::Push(message("q", "p", "c")), step("a", 1)], first),
            transaction(vec![Step::Push(message("q", "p", "d")), step("b", 5)], second),
            transaction(vec![Step::Push(message("q", "p", "c")), step("b", 1)], third),
        ])
        .await;
    assert!(got_first.await.unwrap().unwrap().is_ok());
    assert!(got_second.await.unwrap().unwrap().is_err());
    let third = got_third.await.unwrap().unwrap().unwrap();
    assert!(matches!(third[0], StepDone::Pushed(pushed) if pushed.duplicate));
    assert_eq!(kit.take(want("q", "g", 2, 9)).await, ["c"]);
}
