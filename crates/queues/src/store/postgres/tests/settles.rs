//! Settlements, transactions, leases.

use super::super::jobs::Needs;
use super::*;
use skep_policy::queues::Refusal;

/// Pushes, claims everything as `g`, and returns the partition and the lease.
async fn claimed(rig: &Rig, names: &[&str]) -> (PartitionId, LeaseId) {
    let pushed = push(&rig.store, messages("q", "p", names)).await;
    let job = from_queue("q", "g", 100);
    let lease = job.lease;
    claim(&rig.store, job).await;
    (pushed[0].partition, lease)
}

#[tokio::test]
async fn words_count_only_with_the_lease_and_never_move_back() {
    let rig = rig().await;
    let (p, lease) = claimed(&rig, &["a", "b", "c"]).await;
    let say = async |name: &str, lease: Option<LeaseId>| {
        settle(&rig.store, "g", vec![item(p, name, Verdict::Completed, lease)]).await[0]
    };
    let foreign = Some(LeaseId(7));
    assert_eq!(say("a", foreign).await, Settled::Refused(Refusal::Stale));
    assert_eq!(say("a", None).await, Settled::Refused(Refusal::Held));
    assert_eq!(say("x", Some(lease)).await, Settled::Refused(Refusal::Unknown));
    assert_eq!(say("b", Some(lease)).await, Settled::Done { released: false });
    assert_eq!(say("a", Some(lease)).await, Settled::Noop);
    assert_eq!(say("c", Some(lease)).await, Settled::Done { released: true });
    assert_eq!(say("c", Some(lease)).await, Settled::Noop, "the answer may have been lost");
    assert_eq!(say("a", None).await, Settled::Noop);
    let elsewhere = rig.another();
    let items = vec![item(p, "b", Verdict::Completed, None)];
    assert_eq!(settle(&elsewhere, "g", items).await, [Settled::Noop]);
    let items = vec![item(PartitionId(999), "b", Verdict::Completed, None)];
    assert_eq!(settle(&rig.store, "g", items).await, [Settled::Refused(Refusal::Unknown)]);
}

/// The bodies that come along with what is read first for a settlement, on a node that gives out
/// leases with this mark.
async fn brought(rig: &Rig, items: Vec<SettleItem>, here: u16) -> usize {
    let job = Job::Settle { group: "g".into(), items, answer: oneshot::channel().0 };
    let shared = &rig.store.shared;
    let mut link = shared.links.link().await.expect("a connection");
    let desk = shared.read(&mut link, &Needs::of([&job], here)).await;
    desk.map_err(|_| "it cannot be read").expect("reads").bodies.len()
}

#[tokio::test]
async fn what_another_node_gave_out_is_read_with_the_lease_unless_it_is_large() {
    let rig = rig().await;
    let (p, lease) = claimed(&rig, &["a", "b"]).await;
    let here = crate::lease_tag(Uuid::from_u128(lease.0));
    let items = |lease| vec![item(p, "b", Verdict::Completed, lease)];
    assert_eq!(brought(&rig, items(Some(lease)), here).await, 0, "it is remembered here");
    assert_eq!(brought(&rig, items(Some(lease)), here.wrapping_add(1)).await, 1);
    assert_eq!(brought(&rig, items(None), here.wrapping_add(1)).await, 0, "nobody says whose");
    let released = [Settled::Done { released: true }];
    assert_eq!(settle(&rig.another(), "g", items(Some(lease))).await, released);
    let large = "x".repeat(40_000);
    let (p, lease) = claimed(&rig, &[&large, "c"]).await;
    let items = || vec![item(p, "c", Verdict::Completed, Some(lease))];
    let here = crate::lease_tag(Uuid::from_u128(lease.0));
    assert_eq!(brought(&rig, items(), here.wrapping_add(1)).await, 0, "it is large");
    assert_eq!(settle(&rig.another(), "g", items()).await, released);
}

#[tokio::test]
async fn failures_come_again_until_they_are_dead_letters_with_their_payload() {
    let rig = rig().await;
    let change = |options| QueueOptions { retry_limit: 1, retry_delay: 0, ..options };
    configure(&rig.store, "q", change).await;
    let (p, lease) = claimed(&rig, &["a", "b"]).await;
    let settled = settle(&rig.store, "g", vec![item(p, "a", Verdict::Failed, Some(lease))]).await;
    assert!(matches!(settled[0], Settled::Again { .. }), "{settled:?}");
    let job = from_queue("q", "g", 100);
    let lease = job.lease;
    assert_eq!(all_names(&claim(&rig.another(), job).await), ["a", "b"]);
    let failed =
        SettleItem { error: Some("broken".into()), ..item(p, "a", Verdict::Failed, Some(lease)) };
    let completed = item(p, "b", Verdict::Completed, Some(lease));
    let settled = settle(&rig.store, "g", vec![completed, failed]).await;
    assert_eq!(settled[1], Settled::Dead { failures: 1, released: false });
    assert_eq!(settled[0], Settled::Done { released: true });
    let filter = DeadFilter { queue: Some("q".into()), limit: 10, ..DeadFilter::default() };
    let dead = rig.store.dead_letters(filter.clone()).await.expect("reads");
    assert_eq!(dead.total, 1);
    let letter = &dead.letters[0];
    let record = Records::of(&letter.record).next().expect("one").expect("whole");
    assert_eq!((&*record.transaction, record.payload), ("a", &b"{\"of\":\"a\"}"[..]));
    assert_eq!((letter.failures, letter.error.as_deref()), (1, Some("broken")));
    let other = DeadFilter { group: Some("other".into()), ..filter };
    assert_eq!(rig.store.dead_letters(other).await.expect("reads").total, 0);
}

#[tokio::test]
async fn a_lease_is_extended_and_given_back_on_all_its_lanes() {
    let rig = rig().await;
    push(&rig.store, messages("q", "a", &["1"])).await;
    push(&rig.store, messages("q", "b", &["1"])).await;
    let job = ClaimJob { partitions: 2, ..from_queue("q", "g", 10) };
    let lease = job.lease;
    let claimed = claim(&rig.store, job).await;
    assert_eq!(claimed.lanes.len(), 2);
    let (answer, answered) = oneshot::channel();
    rig.store.run(vec![Job::Extend { lease, seconds: 1_000, answer }]).await;
    let until = answered.await.expect("answers").expect("extends").expect("holds");
    assert!(until > claimed.until);
    let next = claim(&rig.store, from_queue("q", "g", 10)).await.next_at;
    assert_eq!(next, Some(until));
    let (answer, answered) = oneshot::channel();
    let wakes = rig.store.run(vec![Job::Release { lease, answer }]).await;
    assert_eq!(answered.await.expect("answers").expect("releases"), 2);
    assert_eq!(wakes.len(), 2);
    let job = ClaimJob { partitions: 2, ..from_queue("q", "g", 10) };
    assert_eq!(claim(&rig.store, job).await.lanes.len(), 2);
    let (answer, answered) = oneshot::channel();
    rig.store.run(vec![Job::Extend { lease, seconds: 5, answer }]).await;
    assert_eq!(answered.await.expect("answers").expect("looks"), None);
}

async fn transact(
    store: &PostgresQueues,
    steps: Vec<Step>,
    required: Vec<LeaseId>,
) -> Result<Vec<StepDone>, NotDone> {
    let (answer, answered) = oneshot::channel();
    store
        .run(vec![Job::Transaction(TransactionJob { steps, required, takes: Vec::new() }, answer)])
        .await;
    answered.await.expect("answers").expect("decides")
}

#[tokio::test]
async fn a_transaction_is_all_or_nothing() {
    let rig = rig().await;
    let (p, lease) = claimed(&rig, &["a", "b"]).await;
    let settle_step = |name: &str, lease: Option<LeaseId>| Step::Settle {
        group: "g".into(),
        item: item(p, name, Verdict::Completed, lease),
    };
    let out = || Step::Push(message("out", "p", "a-done"));
    let before = rig.database.run("SELECT * FROM skep_queue_lanes");
    let refused = transact(
        &rig.store,
        vec![out(), settle_step("a", Some(lease)), settle_step("x", Some(lease))],
        vec![],
    )
    .await;
    assert!(matches!(refused, Err(NotDone::Step(2, _))), "{refused:?}");
    let lost = LeaseId(9);
    let refused = transact(&rig.store, vec![out()], vec![lease, lost]).await;
    assert_eq!(refused, Err(NotDone::Lease(lost)));
    assert!(rig.store.queue("out").await.expect("reads").is_none(), "nothing is left of it");
    assert_eq!(rig.database.run("SELECT * FROM skep_queue_lanes"), before);
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queue_segments"), "1");
    let done = transact(&rig.store, vec![out(), settle_step("b", None)], vec![lease]).await;
    let done = done.expect("is done");
    assert!(matches!(done[0], StepDone::Pushed(Pushed { duplicate: false, .. })));
    assert!(matches!(&done[1], StepDone::Settled(one)
        if one.settled == Settled::Done { released: true }));
    assert_eq!(all_names(&claim(&rig.store, from_queue("out", "g", 1)).await), ["a-done"]);
}

#[tokio::test]
async fn a_batch_of_everything_answers_everybody() {
    let rig = rig().await;
    let (p, lease) = claimed(&rig, &["a"]).await;
    push(&rig.store, messages("q", "other", &["b"])).await;
    let (push_answer, pushed) = oneshot::channel();
    let (claim_answer, got) = oneshot::channel();
    let (settle_answer, settled) = oneshot::channel();
    let (extend_answer, extended) = oneshot::channel();
    let (transact_answer, transacted) = oneshot::channel();
    let steps = vec![Step::Push(message("t", "p", "t"))];
    let items = vec![item(p, "a", Verdict::Completed, Some(lease))];
    rig.store
        .run(vec![
            Job::Push(messages("q", "p", &["c"]), push_answer),
            Job::Claim(from_partition("q", "other", "g"), claim_answer),
            Job::Settle { group: "g".into(), items, answer: settle_answer },
            Job::Extend { lease: LeaseId(1), seconds: 1, answer: extend_answer },
            Job::Transaction(
                TransactionJob { steps, ..TransactionJob::default() },
                transact_answer,
            ),
        ])
        .await;
    assert!(!pushed.await.expect("answers").expect("pushes")[0].duplicate);
    assert_eq!(all_names(&got.await.expect("answers").expect("claims")), ["b"]);
    let settled = settled.await.expect("answers").expect("settles");
    assert_eq!(settled[0].settled, Settled::Done { released: true });
    assert_eq!(extended.await.expect("answers").expect("looks"), None);
    assert!(transacted.await.expect("answers").expect("decides").is_ok());
    assert_eq!(all_names(&claim(&rig.store, from_queue("q", "g", 1)).await), ["c"]);
}
