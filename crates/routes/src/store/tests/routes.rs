//! Routes, their versions and limits.

use super::*;
use skep_store::Heard;
use skep_testkit::PATIENCE;

#[tokio::test]
async fn a_route_is_created_changed_and_deleted() {
    on_each_database(async |store| {
        assert_eq!(store.revision().await.expect("reads"), 0);
        let empty = Listing { revision: 0, routes: Vec::new() };
        assert_eq!(store.list().await.expect("reads"), empty);
        assert_eq!(store.get("shop").await.expect("reads"), None);

        assert_eq!(put(&store, &route("shop"), Some(0), 10).await, Put::Created { version: 1 });
        assert_eq!(put(&store, &route("blog"), None, 11).await, Put::Created { version: 2 });
        let changed = moved("shop", "10.0.0.2:8080");
        let answer = store.put(&changed, Some(1), "ben", 12).await.expect("answers");
        assert_eq!(answer, Put::Updated { version: 3 });

        let shop = store.get("shop").await.expect("reads").expect("is there");
        assert_eq!(shop.read().expect("is a route"), changed);
        let expected = (3, 10, 12, "ben");
        let StoredRoute { version, created_at_ms, updated_at_ms, updated_by, .. } = &shop;
        assert_eq!((*version, *created_at_ms, *updated_at_ms, updated_by.as_str()), expected);
        let all = store.list().await.expect("reads");
        assert_eq!((all.revision, all.routes[0].name.as_str()), (3, "blog"));
        assert_eq!(all.routes[1..], [shop]);

        let deleted = store.delete("shop", Some(3)).await.expect("answers");
        assert_eq!(deleted, Deleted::Done { revision: 4 });
        assert_eq!(store.get("shop").await.expect("reads"), None);
        assert_eq!(store.revision().await.expect("reads"), 4);
        assert_eq!(store.delete("shop", None).await.expect("answers"), Deleted::Missing);
        assert_eq!(store.revision().await.expect("reads"), 4, "nothing changed");
        assert_eq!(put(&store, &route("shop"), Some(0), 20).await, Put::Created { version: 5 });
    })
    .await;
}

#[tokio::test]
async fn a_wrong_version_changes_nothing() {
    on_each_database(async |store| {
        put(&store, &route("shop"), None, 1).await;
        let changed = moved("shop", "b:1");
        for expected in [0, 2, -1, i64::MAX] {
            let answer = put(&store, &changed, Some(expected), 2).await;
            assert_eq!(answer, Put::Conflict { version: 1 }, "{expected}");
        }
        let missing = put(&store, &route("other"), Some(1), 2).await;
        assert_eq!(missing, Put::Conflict { version: 0 });
        let deleted = store.delete("shop", Some(7)).await.expect("answers");
        assert_eq!(deleted, Deleted::Conflict { version: 1 });

        // One that was created again is another, whoever still knows the first.
        store.delete("shop", None).await.expect("answers");
        assert_eq!(put(&store, &route("shop"), None, 3).await, Put::Created { version: 3 });
        assert_eq!(put(&store, &changed, Some(1), 4).await, Put::Conflict { version: 3 });
        let all = store.list().await.expect("reads");
        assert_eq!((all.revision, all.routes.len()), (3, 1));
        assert_eq!(all.routes[0].read().expect("is a route"), route("shop"));
    })
    .await;
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_can_be_repeated() {
    on_each_database(async |store| {
        put(&store, &route("shop"), Some(0), 1).await;
        let again = put(&store, &route("shop"), Some(0), 2).await;
        assert_eq!(again, Put::Unchanged { version: 1 });
        let changed = moved("shop", "b:1");
        assert_eq!(put(&store, &changed, Some(1), 3).await, Put::Updated { version: 2 });
        assert_eq!(put(&store, &changed, Some(1), 4).await, Put::Unchanged { version: 2 });
        let kept = store.get("shop").await.expect("reads").expect("is there");
        assert_eq!((kept.updated_at_ms, store.revision().await.expect("reads")), (3, 2));
    })
    .await;
}

#[tokio::test]
async fn two_routes_are_never_for_one_place() {
    on_each_database(async |store| {
        put(&store, &route("shop"), None, 1).await;
        let rival = RouteSpec { name: "rival".to_owned(), ..moved("shop", "b:1") };
        let taken = Put::Taken { by: "shop".to_owned() };
        assert_eq!(put(&store, &rival, None, 2).await, taken);
        let elsewhere = RouteSpec { path: "/rival".to_owned(), ..rival.clone() };
        assert_eq!(put(&store, &elsewhere, None, 3).await, Put::Created { version: 2 });
        assert_eq!(put(&store, &rival, None, 4).await, taken, "it cannot move there either");
        store.delete("shop", None).await.expect("answers");
        assert_eq!(put(&store, &rival, None, 5).await, Put::Updated { version: 4 });
        let other_host = RouteSpec { host: "a.example".to_owned(), ..route("shop") };
        assert_eq!(put(&store, &other_host, None, 6).await, Put::Created { version: 5 });
    })
    .await;
}

#[tokio::test]
async fn there_are_never_more_routes_than_allowed() {
    on_each_database(async |store| {
        let store = store.with_routes_max(2);
        put(&store, &route("a"), None, 1).await;
        put(&store, &route("b"), None, 1).await;
        assert_eq!(put(&store, &route("c"), None, 1).await, Put::Full { max: 2 });
        assert_eq!(store.revision().await.expect("reads"), 2);
        assert_eq!(put(&store, &moved("a", "b:1"), None, 2).await, Put::Updated { version: 3 });
        store.delete("b", None).await.expect("answers");
        assert_eq!(put(&store, &route("c"), None, 3).await, Put::Created { version: 5 });
        // Fewer are allowed from now on: what is there stays, and can be changed.
        let store = store.with_routes_max(1);
        assert_eq!(put(&store, &moved("a", "c:1"), None, 4).await, Put::Updated { version: 6 });
        assert_eq!(put(&store, &route("d"), None, 4).await, Put::Full { max: 1 });
    })
    .await;
}

#[tokio::test]
async fn a_flawed_route_is_not_kept_and_a_damaged_one_harms_no_other() {
    on_each_database(async |store| {
        let flawed = RouteSpec { host: "A.example".to_owned(), ..route("shop") };
        let answer = put(&store, &flawed, None, 1).await;
        assert!(matches!(&answer, Put::Flawed(flaws) if flaws[0].field == "host"), "{answer:?}");
        put(&store, &route("fine"), None, 1).await;
        put(&store, &route("torn"), None, 1).await;
        let tear = "UPDATE skep_routes SET spec = '{' WHERE name = 'torn'";
        match &store.db {
            Database::Sqlite(sqlite) => execute_embedded(sqlite, tear, []).await,
            Database::Postgres(postgres) => execute(postgres, tear, &[]).await,
        }
        .expect("tears");
        let all = store.list().await.expect("reads").routes;
        let fine: Vec<bool> = all.iter().map(|one| one.read().is_ok()).collect();
        assert_eq!(fine, [true, false]);
        assert_eq!(put(&store, &route("torn"), Some(2), 2).await, Put::Updated { version: 3 });
    })
    .await;
}

#[tokio::test]
async fn odd_names_are_answered_and_secrets_are_not_shown() {
    on_each_database(async |store| {
        for name in ["", "a\0b", "'; DROP TABLE skep_routes; --", &"x".repeat(9_999)] {
            assert_eq!(store.get(name).await.expect("reads"), None);
            assert_eq!(store.delete(name, None).await.expect("answers"), Deleted::Missing);
        }
        let mut spec = route("shop");
        spec.headers.request.set.insert("authorization".to_owned(), "s3cret".to_owned());
        store.put(&spec, None, "an\0n", 1).await.expect("answers");
        let kept = store.get("shop").await.expect("reads").expect("is there");
        assert_eq!(kept.updated_by, "an\u{fffd}n");
        assert_eq!(kept.read().expect("is a route"), spec);
        assert!(!format!("{kept:?}").contains("s3cret"));
    })
    .await;
}

#[tokio::test]
async fn a_change_is_said_to_whoever_listens() {
    let server = skep_testkit::Postgres::shared().database();
    let store = postgres(&server).await;
    let Database::Postgres(client) = &store.db else { unreachable!("it is one") };
    let mut hints = client.listen(&[CHANNEL]);
    let mut next = async || tokio::time::timeout(PATIENCE, hints.next()).await.expect("hears");
    assert_eq!(next().await, Heard::Reconnected);
    put(&store, &route("shop"), None, 1).await;
    put(&store, &route("shop"), None, 2).await;
    store.delete("shop", None).await.expect("answers");
    for revision in ["1", "2"] {
        let (channel, payload) = (CHANNEL.to_owned(), revision.to_owned());
        assert_eq!(next().await, Heard::Notice { channel, payload });
    }
}
