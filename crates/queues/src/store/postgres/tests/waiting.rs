//! Messages that wait for their time, rows that are used up, clearing, and retries of their own.

use super::*;
use skep_policy::Time;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

async fn now(rig: &Rig) -> Time {
    rig.store.now().await.expect("a time")
}

async fn delayed(rig: &Rig, transaction: &str, delay: Duration) -> NewMessage {
    let due = Some(now(rig).await + delay);
    wished("q", "p", transaction, Wishes { due, ..Wishes::default() })
}

/// Lets time pass for what waits.
fn later_is_now(rig: &Rig) {
    rig.database.run("UPDATE skep_queue_later SET due = 1 + id");
}

fn count(rig: &Rig, column: &str) -> String {
    rig.database.run(&format!("SELECT coalesce(sum({column}), 0) FROM skep_queue_counts"))
}

async fn transact(store: &PostgresQueues, takes: Vec<Take>, steps: Vec<Step>) -> Transacted {
    let (answer, answered) = oneshot::channel();
    let job = TransactionJob { steps, required: Vec::new(), takes };
    store.run(vec![Job::Transaction(job, answer)]).await;
    answered.await.expect("an answer")
}

type Transacted = Result<Result<Vec<StepDone>, NotDone>, WorkError>;

/// Moves everything that is due, one by one; tells how many were there.
async fn move_all(store: &PostgresQueues) -> usize {
    let mut moved = 0;
    for due in store.due(100).await.expect("reads").messages {
        let steps = vec![Step::Push(due.message)];
        match transact(store, vec![Take::Later(due.id)], steps).await.expect("is done") {
            Ok(_) => moved += 1,
            Err(NotDone::Gone(0)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    moved
}

#[tokio::test]
async fn a_message_waits_for_its_time_and_holds_nobody_up() {
    let rig = rig().await;
    let pushed = push(&rig.store, vec![delayed(&rig, "late", HOUR).await]).await;
    assert!(!pushed[0].duplicate);
    let soon = push(&rig.store, messages("q", "p", &["soon"])).await;
    assert_eq!(soon[0].partition, pushed[0].partition, "its partition is there");
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "g", 9)).await), ["soon"]);
    let due = rig.store.due(10).await.expect("reads");
    assert!(due.messages.is_empty());
    let waiting = rig.store.later("q", None, 10).await.expect("reads");
    assert_eq!((waiting.len(), due.next_at), (1, Some(waiting[0].due)));
    assert_eq!(&*waiting[0].partition, "p");
    let after = Some((waiting[0].due, waiting[0].id));
    assert!(rig.store.later("q", after, 10).await.expect("reads").is_empty());
    assert_eq!(count(&rig, "later"), "1");
    later_is_now(&rig);
    let before = now(&rig).await;
    assert_eq!(move_all(&rig.store).await, 1);
    assert_eq!((count(&rig, "later"), count(&rig, "pushed")), ("0".into(), "2".into()));
    let claimed = claim(&rig.another(), from_queue("q", "other", 9)).await;
    assert_eq!(all_names(&claimed), ["soon", "late"]);
    assert!(claimed.lanes[0].parts[1].at >= before, "pushed when it was moved");
}

#[tokio::test]
async fn due_messages_come_in_the_order_of_their_time() {
    let rig = rig().await;
    for (name, hours) in [("c", 3), ("a", 1), ("b", 2)] {
        push(&rig.store, vec![delayed(&rig, name, HOUR * hours).await]).await;
    }
    rig.database.run("UPDATE skep_queue_later SET due = due - 10 * 3600 * 1000000::bigint");
    let due = rig.store.due(2).await.expect("reads");
    let names = |due: &Due| -> Vec<String> {
        let of_record = |one: &DueMessage| {
            let record = Records::of(&one.message.record).next().expect("one").expect("whole");
            record.transaction.into_owned()
        };
        due.messages.iter().map(of_record).collect()
    };
    assert_eq!(names(&due), ["a", "b"]);
    assert!(due.next_at.is_some_and(|next| next == due.now), "there is one more");
    assert_eq!(names(&rig.store.due(9).await.expect("reads")), ["a", "b", "c"]);
    assert!(due.messages[0].message.due.is_none());
    assert_eq!((&*due.messages[0].message.queue, &*due.messages[0].message.partition), ("q", "p"));
}

#[tokio::test]
async fn a_time_that_has_passed_is_now() {
    let rig = rig().await;
    let due = Some(now(&rig).await);
    push(&rig.store, vec![wished("q", "p", "a", Wishes { due, ..Wishes::default() })]).await;
    assert_eq!(count(&rig, "later"), "0");
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "g", 9)).await), ["a"]);
}

#[tokio::test]
async fn an_id_that_waits_or_was_pushed_lately_is_a_duplicate() {
    let rig = rig().await;
    let pair = vec![delayed(&rig, "a", HOUR).await, delayed(&rig, "a", HOUR).await];
    let first = push(&rig.store, pair).await;
    assert_eq!((first[1].duplicate, first[1].id), (true, first[0].id), "within a push");
    let again = push(&rig.another(), vec![delayed(&rig, "a", HOUR * 2).await]).await;
    assert_eq!((again[0].duplicate, again[0].id), (true, first[0].id));
    let plain = push(&rig.store, messages("q", "p", &["b"])).await;
    let known = push(&rig.store, vec![delayed(&rig, "b", HOUR).await]).await;
    assert_eq!((known[0].duplicate, known[0].id), (true, plain[0].id));
    assert_eq!(count(&rig, "later"), "1");
    // It comes before its time by another way; the one that waits is known then.
    assert!(!push(&rig.store, messages("q", "p", &["a"])).await[0].duplicate);
    later_is_now(&rig);
    let due = rig.store.due(1).await.expect("reads").messages.remove(0);
    let done = transact(&rig.store, vec![Take::Later(due.id)], vec![Step::Push(due.message)]).await;
    let Ok(Ok(steps)) = done else { panic!("{done:?}") };
    assert!(matches!(&steps[0], StepDone::Pushed(pushed) if pushed.duplicate), "{steps:?}");
    assert_eq!((count(&rig, "later"), count(&rig, "pushed")), ("0".into(), "2".into()));
}

#[tokio::test]
async fn one_that_is_taken_may_be_made_to_wait_again() {
    let rig = rig().await;
    push(&rig.store, vec![delayed(&rig, "a", HOUR).await]).await;
    let id = rig.store.later("q", None, 1).await.expect("reads")[0].id;
    let steps = vec![Step::Push(delayed(&rig, "a", HOUR * 2).await)];
    let done = transact(&rig.store, vec![Take::Later(id)], steps).await;
    assert!(matches!(&done, Ok(Ok(steps))
        if matches!(&steps[0], StepDone::Pushed(one) if !one.duplicate)));
    let waiting = rig.store.later("q", None, 9).await.expect("reads");
    assert_eq!(waiting.len(), 1);
    assert!(waiting[0].id > id);
    assert!(rig.store.delete_later(waiting[0].id).await.expect("deletes"));
    assert!(!rig.store.delete_later(waiting[0].id).await.expect("looks"));
    assert_eq!(count(&rig, "later"), "0");
}

#[tokio::test]
async fn what_waits_counts_for_the_maximum_and_is_moved_although_it_is_reached() {
    let rig = rig().await;
    configure(&rig.store, "q", |options| QueueOptions { max_size: 2, ..options }).await;
    push(&rig.store, vec![delayed(&rig, "a", HOUR).await, delayed(&rig, "b", HOUR).await]).await;
    let third = try_push(&rig.store, vec![delayed(&rig, "c", HOUR).await]).await;
    assert!(matches!(third, Err(WorkError::Full { waiting: 2, max_size: 2, .. })), "{third:?}");
    assert_eq!(count(&rig, "later"), "2", "nothing of it is kept");
    configure(&rig.store, "q", |options| QueueOptions { max_size: 1, ..options }).await;
    later_is_now(&rig);
    assert_eq!(move_all(&rig.store).await, 2);
    assert!(matches!(
        try_push(&rig.store, messages("q", "p", &["d"])).await,
        Err(WorkError::Full { waiting: 2, max_size: 1, .. })
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_is_moved_once_however_many_try() {
    const COUNT: usize = 60;
    let rig = rig().await;
    let mut all = Vec::new();
    for number in 0..COUNT {
        all.push(delayed(&rig, &number.to_string(), HOUR).await);
    }
    push(&rig.store, all).await;
    later_is_now(&rig);
    let mut movers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let store = rig.another();
        movers.spawn(async move { move_all(&store).await });
    }
    let mut moved = 0;
    while let Some(one) = movers.join_next().await {
        moved += one.expect("moves");
    }
    assert_eq!(moved, COUNT);
    let job = ClaimJob { batch: 1_000, ..from_partition("q", "p", "g") };
    assert_eq!(all_names(&claim(&rig.store, job).await).len(), COUNT);
    assert_eq!(count(&rig, "later"), "0");
}

#[tokio::test]
async fn of_two_transactions_in_a_batch_the_second_finds_the_row_gone() {
    let rig = rig().await;
    push(&rig.store, vec![delayed(&rig, "a", HOUR).await]).await;
    let id = rig.store.later("q", None, 1).await.expect("reads")[0].id;
    let job = |names: &[&str]| TransactionJob {
        steps: messages("q", "p", names).into_iter().map(Step::Push).collect(),
        required: Vec::new(),
        takes: vec![Take::Later(id)],
    };
    let refused = TransactionJob { required: vec![LeaseId(7)], ..job(&["w"]) };
    let nowhere = TransactionJob { takes: vec![Take::Later(id), Take::Later(id)], ..job(&["v"]) };
    let jobs = [refused, nowhere, job(&["x"]), job(&["y"])];
    let channels = (0..jobs.len()).map(|_| oneshot::channel());
    let (answers, told): (Vec<_>, Vec<_>) = channels.unzip();
    let jobs = jobs.into_iter().zip(answers);
    rig.store.run(jobs.map(|(job, answer)| Job::Transaction(job, answer)).collect()).await;
    let mut done = Vec::new();
    for one in told {
        done.push(one.await.expect("an answer").expect("works").map(|steps| steps.len()));
    }
    assert_eq!(done[0], Err(NotDone::Lease(LeaseId(7))));
    assert_eq!(done[1..], [Err(NotDone::Gone(1)), Ok(1), Err(NotDone::Gone(0))]);
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "g", 9)).await), ["x"]);
}

#[tokio::test]
async fn a_dead_letter_is_pushed_again_with_its_own_id_and_once() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a"])).await;
    let job = from_queue("q", "g", 1);
    let lease = job.lease;
    let claimed = claim(&rig.store, job).await;
    let word = item(claimed.lanes[0].id, "a", Verdict::Dead, Some(lease));
    settle(&rig.store, "g", vec![word]).await;
    let id: i64 = rig.database.run("SELECT id FROM skep_queue_dead").parse().expect("a number");
    let again = NewMessage { again: true, ..message("q", "p", "a") };
    let steps = || vec![Step::Push(again.clone())];
    let done = transact(&rig.store, vec![Take::Dead(id)], steps()).await;
    assert!(matches!(&done, Ok(Ok(steps))
        if matches!(&steps[0], StepDone::Pushed(one) if !one.duplicate)));
    let gone = transact(&rig.another(), vec![Take::Dead(id)], steps()).await;
    assert!(matches!(gone, Ok(Err(NotDone::Gone(0)))), "{gone:?}");
    assert_eq!(count(&rig, "dead"), "0");
    for store in [rig.store.clone(), rig.another()] {
        let known = push(&store, messages("q", "p", &["a"])).await;
        assert_eq!((known[0].duplicate, known[0].id), (true, again.id), "by its new number");
    }
    let both = vec![NewMessage { again: true, ..message("q", "p", "a") }, message("q", "p", "a")];
    let newest = both[0].id;
    let known = push(&rig.store, both).await;
    assert_eq!((known[1].duplicate, known[1].id), (true, newest));
}

#[tokio::test]
async fn a_message_fails_as_often_as_it_says_itself() {
    let rig = rig().await;
    let wishes = Wishes { retry_limit: Some(0), ..Wishes::default() };
    let own = wished("q", "p", "own", wishes);
    let id = push(&rig.store, vec![own, message("q", "p", "plain")]).await[0].partition;
    // Without a lease too, where the message has to be found by its transaction id.
    for store in [rig.store.clone(), rig.another()] {
        claim(&store, ClaimJob { lease_seconds: Some(0), ..from_queue("q", "g", 9) }).await;
        let told = settle(&store, "g", vec![item(id, "own", Verdict::Failed, None)]).await;
        assert!(matches!(told[0], Settled::Dead { failures: 0, .. } | Settled::Noop), "{told:?}");
    }
    let told = settle(&rig.store, "g", vec![item(id, "plain", Verdict::Failed, None)]).await;
    assert!(matches!(told[0], Settled::Again { .. }), "{told:?}");
    let wishes = Wishes { retry_delay: Some(7_200_000), ..Wishes::default() };
    push(&rig.store, vec![wished("slow", "p", "a", wishes)]).await;
    let job = from_queue("slow", "g", 1);
    let lease = job.lease;
    let claimed = claim(&rig.store, job).await;
    let word = item(claimed.lanes[0].id, "a", Verdict::Failed, Some(lease));
    let told = settle(&rig.store, "g", vec![word]).await;
    let Settled::Again { at } = told[0] else { panic!("{told:?}") };
    assert!(at.since(claimed.now) >= Duration::from_secs(1_800), "half of the longest delay");
}

#[tokio::test]
async fn a_cleared_queue_hands_out_only_what_comes_afterwards() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a", "b", "c"])).await;
    push(&rig.store, messages("q", "r", &["d"])).await;
    push(&rig.store, vec![delayed(&rig, "late", HOUR).await]).await;
    push(&rig.store, messages("other", "p", &["stays"])).await;
    let job = from_partition("q", "p", "g");
    let job = ClaimJob { batch: 1, ..job };
    let lease = job.lease;
    let held = claim(&rig.store, job).await;
    assert_eq!(rig.store.clear("none").await.expect("looks"), None);
    let floor = rig.another().clear("q").await.expect("clears").expect("is there");
    assert!(floor > held.now);
    assert_eq!(count(&rig, "later"), "0");
    assert!(rig.store.later("q", None, 9).await.expect("reads").is_empty());
    for group in ["g", "new"] {
        let job = ClaimJob { partitions: 9, ..from_queue("q", group, 9) };
        assert!(claim(&rig.store, job).await.lanes.is_empty(), "{group}");
    }
    push(&rig.store, messages("q", "p", &["e"])).await;
    let tidied = rig.store.tidy(100).await.expect("tidies");
    assert_eq!(tidied.messages, 1, "but for what somebody works on");
    let settled = complete(&rig.store, "g", lease, &held).await;
    assert_eq!(settled, [Settled::Done { released: true }]);
    assert_eq!(rig.store.tidy(100).await.expect("tidies").messages, 3);
    let shown = rig.store.show("q", 9).await.expect("reads").expect("is there");
    assert_eq!(shown.summary.total, 1);
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "g", 9)).await), ["e"]);
    assert_eq!(all_names(&claim(&rig.another(), from_queue("q", "new", 9)).await), ["e"]);
    assert_eq!(all_names(&claim(&rig.store, from_queue("other", "g", 9)).await), ["stays"]);
    while rig.store.tidy(100).await.expect("tidies").more {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_delayed_before_a_clear_never_comes_however_it_is_moved_meanwhile() {
    let rig = rig().await;
    for round in 0..5 {
        let mut all = Vec::new();
        for number in 0..20 {
            all.push(delayed(&rig, &format!("{round}.{number}"), HOUR).await);
        }
        push(&rig.store, all).await;
        later_is_now(&rig);
        let (one, two) = (rig.another(), rig.another());
        let moves = (move_all(&one), move_all(&two), rig.store.clear("q"));
        let (_, _, cleared) = tokio::join!(moves.0, moves.1, moves.2);
        cleared.expect("clears").expect("is there");
        let claimed = claim(&rig.store, from_queue("q", "g", 100)).await;
        assert!(claimed.lanes.is_empty(), "{:?}", all_names(&claimed));
        assert_eq!(count(&rig, "later"), "0");
    }
}

#[tokio::test]
async fn what_waits_goes_with_its_queue() {
    let rig = rig().await;
    push(&rig.store, vec![delayed(&rig, "a", HOUR).await, delayed(&rig, "b", HOUR).await]).await;
    let id = rig.store.later("q", None, 1).await.expect("reads")[0].id;
    assert!(rig.store.delete_queue("q").await.expect("deletes"));
    later_is_now(&rig);
    assert!(rig.store.due(9).await.expect("reads").messages.is_empty());
    let steps = vec![Step::Push(message("q", "p", "a"))];
    let gone = transact(&rig.store, vec![Take::Later(id)], steps).await;
    assert!(matches!(gone, Ok(Err(NotDone::Gone(0)))), "{gone:?}");
    assert!(rig.store.queue("q").await.expect("reads").is_none(), "it is not made again for it");
    while rig.store.tidy(1).await.expect("tidies").more {}
    for table in ["later", "partitions", "counts"] {
        let count = rig.database.run(&format!("SELECT count(*) FROM skep_queue_{table}"));
        assert_eq!(count, "0", "{table}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_turn_of_a_schedule_is_taken_once_and_only_as_it_was_read() {
    let rig = rig().await;
    rig.database.run(
        "CREATE TABLE IF NOT EXISTS skep_queue_schedules (
             id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL,
             spec TEXT NOT NULL, paused BOOLEAN NOT NULL, next_at BIGINT, last_at BIGINT,
             last_message UUID,
             fired BIGINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL,
             updated_at BIGINT NOT NULL);
         INSERT INTO skep_queue_schedules (name, spec, paused, next_at, created_at, updated_at)
             VALUES ('s', '{}', FALSE, 1000000, 1, 1)",
    );
    let second = |seconds: u64| Time::from_millis(1_000 * seconds);
    let slot = |was, next| vec![Take::Slot { schedule: 1, was: second(was), next }];
    let steps = |name: &str| vec![Step::Push(message("q", "p", name))];
    let state = "SELECT concat_ws(',', next_at, last_at, fired) FROM skep_queue_schedules";
    let early = transact(&rig.store, slot(2, None), steps("early")).await;
    assert!(matches!(early, Ok(Err(NotDone::Gone(0)))), "{early:?}");
    let mut fires = tokio::task::JoinSet::new();
    for number in 0..3 {
        let (store, slot) = (rig.another(), slot(1, Some(second(5))));
        let steps = steps(&number.to_string());
        fires.spawn(async move { transact(&store, slot, steps).await.expect("works").is_ok() });
    }
    let fired: Vec<bool> = fires.join_all().await;
    assert_eq!(fired.iter().filter(|fired| **fired).count(), 1);
    assert_eq!(rig.database.run(state), "5000000,1000000,1");
    // Two turns in one batch, and one that is refused for another reason between them.
    let refused = TransactionJob {
        steps: steps("r"),
        required: vec![LeaseId(7)],
        takes: slot(6, Some(second(7))),
    };
    let job = |takes, name| TransactionJob { steps: steps(name), required: Vec::new(), takes };
    let jobs = [job(slot(5, Some(second(6))), "x"), refused, job(slot(6, None), "y")];
    let mut told = Vec::new();
    let jobs = jobs.into_iter().map(|job| {
        let (answer, one) = oneshot::channel();
        told.push(one);
        Job::Transaction(job, answer)
    });
    rig.store.run(jobs.collect()).await;
    let mut done = Vec::new();
    for one in told {
        done.push(one.await.expect("an answer").expect("works").is_ok());
    }
    assert_eq!(done, [true, false, true]);
    assert_eq!(rig.database.run(state), "6000000,3", "no turn is left");
    let job = ClaimJob { batch: 9, ..from_partition("q", "p", "g") };
    assert_eq!(all_names(&claim(&rig.store, job).await).len(), 3);
}
