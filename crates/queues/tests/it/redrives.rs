//! Redrives go through dead letters by their numbers, each step by compare-and-set.

use crate::kit::*;
use skep_policy::Time;
use skep_policy::queues::Verdict;
use skep_queues::record::Records;
use skep_queues::store::*;
use std::time::Duration;

on_each_store!(
    a_redrive_of_no_queue_is_not_made,
    a_redrive_is_made_found_listed_and_stopped,
    letters_that_came_later_are_not_touched,
    letters_that_do_not_fit_are_skipped_and_counted,
    of_many_who_take_a_turn_one_gets_it,
    a_redrive_that_ended_goes_no_further_and_is_forgotten,
);

async fn kill(store: &Store, queue: &str, partition: &str, names: &[&str]) {
    let pushes: Vec<_> = names.iter().map(|name| (queue, partition, *name)).collect();
    store.push(&pushes).await;
    let got = store.pop(from_partition(queue, partition)).await;
    let words = names.iter().map(|name| SettleItem {
        error: Some(format!("{name} broke").into()),
        ..got.word(name, Verdict::Dead)
    });
    store.settle(words.collect()).await;
}

fn wish(queue: &str) -> MakeRedrive {
    MakeRedrive {
        queue: queue.into(),
        filter: RedriveFilter::default(),
        target: None,
        rate: None,
        by: "ada".into(),
    }
}

async fn make(store: &QueueStore, wish: MakeRedrive) -> Redrive {
    store.make_redrive(wish).await.expect("writes").expect("there is a queue")
}

fn names(letters: &RedriveLetters) -> Vec<String> {
    let name = |letter: &RedriveLetter| {
        let record = Records::of(&letter.record).next().expect("one").expect("can be read");
        record.transaction.to_string()
    };
    letters.letters.iter().map(name).collect()
}

/// What was done, with the next turn a second later.
fn progress(was: RedriveMark, position: i64, moved: u64, state: RedriveState) -> RedriveProgress {
    let next_at = was.next_at + Duration::from_secs(1);
    RedriveProgress { mark: RedriveMark { position, next_at }, moved, skipped: 1, state }
}

async fn a_redrive_of_no_queue_is_not_made(place: Place) {
    let store = place.open().await.whole();
    assert_eq!(store.make_redrive(wish("no")).await.expect("answers"), None);
    assert_eq!(store.redrives(None, 9).await.expect("reads"), []);
    assert_eq!(store.redrive(1).await.expect("reads"), None);
    assert_eq!(store.stop_redrive(1).await.expect("answers"), None);
}

async fn a_redrive_is_made_found_listed_and_stopped(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1")]).await;
    let store = store.whole();
    let filter = RedriveFilter {
        partition: Some("p".into()),
        group: Some(GROUP.into()),
        from: Some(Time::from_millis(5)),
        to: Some(Time::from_millis(6)),
        error: Some("broke".into()),
    };
    let (target, rate) = (Some("other".into()), Some(7));
    let first =
        make(&store, MakeRedrive { filter: filter.clone(), target, rate, ..wish("q") }).await;
    assert_eq!((&first.filter, first.target.as_deref()), (&filter, Some("other")));
    assert_eq!((&*first.queue_name, &*first.created_by, first.rate), ("q", "ada", Some(7)));
    assert_eq!((first.moved, first.skipped, first.upto), (0, 0, 0), "there are no letters");
    assert_eq!(first.state, RedriveState::Running);
    let next_at = first.created_at;
    assert_eq!((first.mark, first.ended_at), (RedriveMark { position: 0, next_at }, None));
    let other = make(&store, wish("q")).await;
    let list = store.redrives(None, 9).await.expect("reads");
    assert_eq!(list, [other.clone(), first.clone()]);
    let list = store.redrives(Some(other.id), 9).await.expect("reads");
    assert_eq!(list, std::slice::from_ref(&first));
    assert_eq!(store.redrive(first.id).await.expect("reads"), Some(first.clone()));
    let due = store.due_redrives(first.created_at, 9).await.expect("reads");
    assert_eq!(due, std::slice::from_ref(&first), "the other one was made later");
    let stopped = store.stop_redrive(first.id).await.expect("stops").expect("is there");
    assert_eq!(stopped.state, RedriveState::Stopped);
    assert!(stopped.ended_at >= Some(stopped.created_at));
    let again = store.stop_redrive(first.id).await.expect("stops");
    assert_eq!(again, Some(stopped), "it ended once");
    let due = store.due_redrives(other.mark.next_at, 9).await.expect("reads");
    assert_eq!(due, [other]);
}

async fn letters_that_came_later_are_not_touched(place: Place) {
    let store = place.open().await;
    kill(&store, "q", "a", &["1", "2", "3"]).await;
    kill(&store, "r", "a", &["no"]).await;
    let redrive = make(&store.whole(), wish("q")).await;
    kill(&store, "q", "b", &["4"]).await;
    let store = store.whole();
    let found = store.letters_to_redrive(&redrive, 2).await.expect("reads");
    assert_eq!((names(&found), found.skipped, found.end), (vec!["1".into(), "2".into()], 0, false));
    assert_eq!(found.position, found.letters[1].id);
    let letter = &found.letters[0];
    assert_eq!((&*letter.partition, &*letter.group), ("a", GROUP));
    assert_eq!(letter.error.as_deref(), Some("1 broke"));
    let done = progress(redrive.mark, found.position, 2, RedriveState::Running);
    assert!(store.progress_redrive(redrive.id, redrive.mark, done).await.expect("writes"));
    let redrive = store.redrive(redrive.id).await.expect("reads").expect("is there");
    assert_eq!((redrive.mark, redrive.moved, redrive.skipped), (done.mark, 2, 1));
    let found = store.letters_to_redrive(&redrive, 2).await.expect("reads");
    assert_eq!((names(&found), found.end), (vec!["3".to_owned()], true));
    assert_eq!(found.position, redrive.upto);
}

async fn letters_that_do_not_fit_are_skipped_and_counted(place: Place) {
    let store = place.open().await;
    kill(&store, "q", "a", &["1", "2"]).await;
    kill(&store, "q", "b", &["3"]).await;
    let store = store.whole();
    let all = make(&store, wish("q")).await;
    let all = store.letters_to_redrive(&all, 9).await.expect("reads");
    let third = all.letters[2].failed_at;
    let none = RedriveFilter::default;
    let filters = [
        (none(), vec!["1", "2", "3"]),
        (RedriveFilter { partition: Some("b".into()), ..none() }, vec!["3"]),
        (RedriveFilter { group: Some("nobody".into()), ..none() }, vec![]),
        (RedriveFilter { from: Some(third), ..none() }, vec!["3"]),
        (RedriveFilter { to: Some(third), ..none() }, vec!["1", "2"]),
        (RedriveFilter { error: Some("2 br".into()), ..none() }, vec!["2"]),
    ];
    for (filter, expected) in filters {
        let redrive = make(&store, MakeRedrive { filter, ..wish("q") }).await;
        let found = store.letters_to_redrive(&redrive, 9).await.expect("reads");
        assert_eq!(names(&found), expected, "{:?}", redrive.filter);
        assert_eq!(found.skipped, 3 - expected.len() as u64);
        assert_eq!((found.position, found.end), (redrive.upto, true), "all were looked at");
    }
}

async fn of_many_who_take_a_turn_one_gets_it(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1")]).await;
    let store = store.whole();
    let redrive = make(&store, wish("q")).await;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, id, was) = (store.clone(), redrive.id, redrive.mark);
        // The turn alone: nothing was looked at yet.
        let done = progress(was, was.position, 0, RedriveState::Running);
        tries.spawn(async move { store.progress_redrive(id, was, done).await.expect("answers") });
    }
    assert_eq!(tries.join_all().await.into_iter().filter(|mine| *mine).count(), 1);
    let now = store.redrive(redrive.id).await.expect("reads").expect("is there");
    assert_eq!(now.skipped, 1, "one counted");
    let due = store.due_redrives(redrive.mark.next_at, 9).await.expect("reads");
    assert_eq!(due, [], "it is somebody's until then");
    assert_eq!(store.due_redrives(now.mark.next_at, 9).await.expect("reads"), [now]);
}

async fn a_redrive_that_ended_goes_no_further_and_is_forgotten(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1")]).await;
    let store = store.whole();
    let mut ended = Vec::new();
    for _ in 0..3 {
        let redrive = make(&store, wish("q")).await;
        let done = progress(redrive.mark, 0, 1, RedriveState::Done);
        assert!(store.progress_redrive(redrive.id, redrive.mark, done).await.expect("writes"));
        let again = progress(done.mark, 5, 1, RedriveState::Running);
        let again = store.progress_redrive(redrive.id, done.mark, again).await;
        assert!(!again.expect("answers"), "it is over");
        let redrive = store.redrive(redrive.id).await.expect("reads").expect("is there");
        assert_eq!((redrive.state, redrive.moved), (RedriveState::Done, 1));
        ended.push(redrive.ended_at.expect("it ended"));
    }
    let running = make(&store, wish("q")).await;
    let forget = async |before, limit| store.forget_redrives(before, limit).await.expect("deletes");
    assert_eq!(forget(ended[0], 9).await, 0);
    assert_eq!(forget(ended[2], 1).await, 1);
    assert_eq!(forget(ended[2] + Duration::from_secs(9), 9).await, 2);
    assert_eq!(store.redrives(None, 9).await.expect("reads"), [running]);
}
