//! Several who write at the same time.

use super::*;
use std::collections::BTreeSet;
use tokio::task::JoinSet;

const WRITERS: i64 = 8;

/// Lets all of them do something at once, and gives what came of it.
async fn at_once<T: Send + 'static, F>(
    store: &RouteStore,
    work: impl Fn(RouteStore, i64) -> F,
) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let mut set = JoinSet::new();
    for writer in 0..WRITERS {
        set.spawn(work(store.clone(), writer));
    }
    set.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_who_change_the_same_version_one_wins() {
    on_each_database(async |store| {
        put(&store, &route("shop"), None, 1).await;
        for round in 1..=10 {
            let answers = at_once(&store, move |store, writer| async move {
                let mine = moved("shop", &format!("r{round}-w{writer}:1"));
                (put(&store, &mine, Some(round), 2).await, mine)
            })
            .await;
            let won = Put::Updated { version: round + 1 };
            let lost = Put::Conflict { version: round + 1 };
            let winners: Vec<_> = answers.iter().filter(|one| one.0 == won).collect();
            assert_eq!(winners.len(), 1, "{answers:?}");
            assert_eq!(answers.iter().filter(|one| one.0 == lost).count(), 7, "{answers:?}");
            let kept = store.get("shop").await.expect("reads").expect("is there");
            assert_eq!(kept.read().expect("is a route"), winners[0].1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_who_want_one_place_one_gets_it() {
    on_each_database(async |store| {
        let answers = at_once(&store, |store, writer| async move {
            let mine = RouteSpec { name: format!("w{writer}"), ..route("shop") };
            put(&store, &mine, Some(0), 1).await
        })
        .await;
        let got = answers.iter().filter(|one| **one == Put::Created { version: 1 }).count();
        let taken = answers.iter().filter(|one| matches!(one, Put::Taken { .. })).count();
        assert_eq!((got, taken), (1, 7), "{answers:?}");
        assert_eq!(store.list().await.expect("reads").routes.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_places_are_not_given_away_twice() {
    on_each_database(async |store| {
        let store = store.with_routes_max(20);
        let answers = at_once(&store, |store, writer| async move {
            let mut answers = Vec::new();
            for number in 0..5 {
                answers.push(put(&store, &route(&format!("w{writer}-{number}")), None, 1).await);
            }
            answers
        })
        .await;
        let answers: Vec<Put> = answers.into_iter().flatten().collect();
        let version = |put: &Put| match put {
            Put::Created { version } => Some(*version),
            _ => None,
        };
        let versions: BTreeSet<i64> = answers.iter().filter_map(version).collect();
        assert_eq!(versions, (1..=20).collect(), "each has a version of its own");
        let full = answers.iter().filter(|one| **one == Put::Full { max: 20 }).count();
        assert_eq!(full, 20);
        let all = store.list().await.expect("reads");
        assert_eq!((all.revision, all.routes.len()), (20, 20));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_list_is_what_was_there_at_its_revision() {
    on_each_database(async |store| {
        let answers = at_once(&store, |store, writer| async move {
            // Half of them change, the others look.
            for number in 0..20 {
                if writer % 2 == 0 {
                    put(&store, &route(&format!("w{writer}-{number}")), None, 1).await;
                } else {
                    let all = store.list().await.expect("reads");
                    let newest = all.routes.iter().map(|one| one.version).max().unwrap_or(0);
                    assert_eq!((newest, all.routes.len() as i64), (all.revision, all.revision));
                }
            }
        })
        .await;
        assert_eq!(answers.len(), 8);
        assert_eq!(store.revision().await.expect("reads"), 80);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_minutes_and_events_from_many_at_once_are_kept_once() {
    on_each_database(async |store| {
        let answers = at_once(&store, |store, writer| async move {
            let keys: Vec<u64> = (0..500).collect();
            let row = |key: &u64| MinuteRow {
                key: MinuteKey { minute: *key as i64, route: "r".into(), node: "n".into() },
                refused: *key,
                ..MinuteRow::default()
            };
            let event = |key: &u64| NewEvent { key: *key, ..NewEvent::default() };
            let mut rows: Vec<MinuteRow> = keys.iter().map(row).collect();
            if writer % 2 == 0 {
                rows.reverse();
            }
            store.add_minutes(rows).await.expect("nobody waits in a circle");
            store.write_events(keys.iter().map(event).collect()).await
        })
        .await;
        for answer in answers {
            answer.expect("keeps");
        }
        let all = MinuteFilter { to: 1_000, ..MinuteFilter::default() };
        let minutes = store.minutes(&all, 5_000).await.expect("reads");
        let refused: Vec<u64> = minutes.iter().map(|row| row.refused).collect();
        assert_eq!(refused, (0..500).collect::<Vec<_>>());
        let events = store.events(&EventFilter::default(), None, 5_000).await.expect("reads");
        assert_eq!(events.len(), 500);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_forget_at_once_forget_everything_old_and_nothing_else() {
    on_each_database(async |store| {
        for part in 0..4 {
            let row = |number: i64| MinuteRow {
                key: MinuteKey { minute: part, route: format!("r{number}"), node: "n".into() },
                ..MinuteRow::default()
            };
            store.add_minutes((0..4_000).map(row).collect()).await.expect("keeps");
        }
        at_once(&store, |store, _| async move {
            while store.forget_before(3).await.expect("forgets") {}
        })
        .await;
        let all = MinuteFilter { to: 9, ..MinuteFilter::default() };
        let left = store.minutes(&all, 5_000).await.expect("reads");
        assert_eq!(left.len(), 4_000);
        assert!(left.iter().all(|row| row.key.minute == 3));
    })
    .await;
}
