//! Pushes: ids that come again, limits, all or nothing.

use super::*;

#[tokio::test]
async fn an_id_that_comes_again_gets_its_first_answer_within_a_batch_and_across() {
    let rig = rig().await;
    let first = push(&rig.store, messages("q", "p", &["a", "b", "a"])).await;
    assert_eq!(first.iter().map(|one| one.duplicate).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(first[2].id, first[0].id);
    let again = push(&rig.store, messages("q", "p", &["b", "c"])).await;
    assert_eq!((again[0].duplicate, again[0].id), (true, first[1].id));
    assert!(!again[1].duplicate);
    let elsewhere = push(&rig.store, messages("q", "other", &["a"])).await;
    assert!(!elsewhere[0].duplicate, "ids are known per partition");
    let claimed = claim(&rig.store, from_partition("q", "p", "g")).await;
    assert_eq!(all_names(&claimed), ["a", "b", "c"]);
}

#[tokio::test]
async fn two_nodes_know_each_others_ids() {
    let rig = rig().await;
    let other = rig.another();
    for round in 0..5 {
        let name = format!("m{round}");
        let first = push(&rig.store, vec![message("q", "p", &name)]).await;
        let second = push(&other, vec![message("q", "p", &name)]).await;
        assert_eq!((second[0].duplicate, second[0].id), (true, first[0].id));
        let own = format!("n{round}");
        let first = push(&other, vec![message("q", "p", &own)]).await;
        let second = push(&rig.store, vec![message("q", "p", &own)]).await;
        assert_eq!((second[0].duplicate, second[0].id), (true, first[0].id));
    }
    let cold = rig.another();
    assert!(push(&cold, messages("q", "p", &["m0"])).await[0].duplicate);
}

#[tokio::test]
async fn jobs_of_one_batch_know_each_others_ids() {
    let rig = rig().await;
    let (first, one) = oneshot::channel();
    let (second, two) = oneshot::channel();
    let job = |answer| Job::Push(messages("q", "p", &["a"]), answer);
    rig.store.run(vec![job(first), job(second)]).await;
    let (one, two) = (one.await.expect("one").expect("one"), two.await.expect("two").expect("two"));
    assert!(!one[0].duplicate && two[0].duplicate);
    assert_eq!(one[0].id, two[0].id);
}

#[tokio::test]
async fn without_a_window_every_id_is_new() {
    let rig = rig().await;
    configure(&rig.store, "q", |options| QueueOptions { dedup_window_seconds: 0, ..options }).await;
    let pushed = push(&rig.store, messages("q", "p", &["a", "a"])).await;
    assert!(pushed.iter().all(|one| !one.duplicate));
    assert!(!push(&rig.store, messages("q", "p", &["a"])).await[0].duplicate);
}

#[tokio::test]
async fn a_full_queue_takes_all_of_a_job_or_nothing() {
    let rig = rig().await;
    configure(&rig.store, "q", |options| QueueOptions { max_size: 3, ..options }).await;
    push(&rig.store, messages("q", "p", &["a", "b"])).await;
    let refused = try_push(&rig.store, messages("q", "new", &["c", "d"])).await;
    assert!(matches!(refused, Err(WorkError::Full { waiting: 2, max_size: 3, .. })), "{refused:?}");
    let detail = rig.store.show("q", 10).await.expect("shows").expect("is there");
    assert_eq!(detail.summary.total, 2);
    assert!(detail.partitions.iter().all(|one| &*one.name != "new"), "nothing of it was done");
    push(&rig.store, messages("q", "p", &["a", "b", "c"])).await;
    let job = from_queue("q", "g", 10);
    let lease = job.lease;
    let claimed = claim(&rig.store, job).await;
    complete(&rig.store, "g", lease, &claimed).await;
    push(&rig.store, messages("q", "p", &["d", "e", "f"])).await;
}

#[tokio::test]
async fn a_large_push_is_cut_into_segments_and_comes_back_whole() {
    let rig = rig().await;
    let names: Vec<String> = (0..1_000).map(|number| format!("m{number}")).collect();
    push(&rig.store, names.iter().map(|name| message("q", "p", name)).collect()).await;
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queue_segments"), "4");
    let reader = rig.another();
    let claimed = claim(&reader, from_queue("q", "g", 1_000)).await;
    assert_eq!(all_names(&claimed), names);
}

#[tokio::test]
async fn encryption_that_has_changed_refuses_the_job() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["a"])).await;
    let other = rig.another();
    configure(&other, "q", |options| QueueOptions { encryption_enabled: true, ..options }).await;
    let refused = try_push(&rig.store, messages("q", "p", &["b"])).await;
    assert!(matches!(refused, Err(WorkError::Encryption { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_queue_that_was_deleted_elsewhere_is_made_anew() {
    let rig = rig().await;
    push(&rig.store, messages("a.b.c", "p", &["a"])).await;
    let other = rig.another();
    assert!(other.delete_queue("a.b.c").await.expect("deletes"));
    assert!(!other.delete_queue("a.b.c").await.expect("deletes"));
    assert!(!push(&rig.store, messages("a.b.c", "p", &["a"])).await[0].duplicate);
    let info = rig.store.queue("a.b.c").await.expect("reads").expect("is there");
    assert_eq!((&*info.namespace, &*info.task), ("a", "b.c"));
    let claimed = claim(&rig.store, from_queue("a.b.c", "g", 10)).await;
    assert_eq!(all_names(&claimed), ["a"]);
}
