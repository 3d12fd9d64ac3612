//! Answers that are lost.

use super::*;
use skep_store::{Outcome, PostgresClient};
use skep_testkit::Proxy;
use std::time::Duration;

/// Lets a statement of `work` take effect on a server whose answer never arrives, and then `work`
/// once more in fair weather. The first must say that it does not know.
async fn with_a_lost_answer(
    table: &str,
    work: impl AsyncFn(RouteStore) -> Result<(), StoreError>,
) -> (RouteStore, TestDatabase<'static>) {
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    let near = postgres(&database).await;
    let proxy = Proxy::start(server.address());
    let url = database.url_through(proxy.port()).parse().expect("an address");
    let far = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    let far = RouteStore::new(Database::Postgres(far));

    let Database::Postgres(direct) = &near.db else { unreachable!("it is one") };
    let holder: PostgresClient = direct.client().await.expect("connects");
    // The first time prepares the statement, so that the second sends nothing but it.
    work(far.clone()).await.expect("has an answer");
    let lock = format!("BEGIN; DELETE FROM {table}; LOCK TABLE {table} IN EXCLUSIVE MODE");
    holder.batch_execute(&lock).await.expect("holds the table");
    let losing = async {
        let error = work(far.clone()).await.expect_err("has no answer");
        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    };
    let breaking = async {
        let waits = "SELECT 1 FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until(direct, waits).await;
        proxy.mute();
        holder.batch_execute("COMMIT").await.expect("lets the table go");
        until(direct, &format!("SELECT 1 FROM {table} LIMIT 1")).await;
        proxy.cut();
    };
    tokio::join!(losing, breaking);
    proxy.heal();
    work(far).await.expect("has an answer");
    (near, database)
}

/// Asks again and again, beside whatever else this task does, until a query finds something.
async fn until(server: &Postgres, sql: &str) {
    let client = server.client().await.expect("connects");
    let found = async { while client.query(sql, &[]).await.expect("reads").is_empty() {} };
    let found = tokio::time::timeout(skep_testkit::PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("it never happened: {sql}"));
}

#[tokio::test]
async fn minutes_whose_answer_was_lost_are_counted_once() {
    let row = MinuteRow { refused: 7, ..MinuteRow::default() };
    let given = vec![row.clone()];
    let (store, _database) = with_a_lost_answer("skep_route_minutes", async |store| {
        store.add_minutes(given.clone()).await
    })
    .await;
    let all = MinuteFilter { to: 9, ..MinuteFilter::default() };
    assert_eq!(store.minutes(&all, 10).await.expect("reads"), [row]);
}

#[tokio::test]
async fn events_whose_answer_was_lost_are_kept_once() {
    let given = vec![NewEvent { key: 1, ..NewEvent::default() }];
    let (store, _database) = with_a_lost_answer("skep_route_events", async |store| {
        store.write_events(given.clone()).await
    })
    .await;
    let kept = store.events(&EventFilter::default(), None, 10).await.expect("reads");
    assert_eq!(kept.len(), 1);
}

#[tokio::test]
async fn a_change_that_was_cut_off_holds_nobody_up() {
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    let near = postgres(&database).await;
    let Database::Postgres(direct) = &near.db else { unreachable!("it is one") };
    let proxy = Proxy::start(server.address());
    let url = database.url_through(proxy.port()).parse().expect("an address");
    let far = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    let far = RouteStore::new(Database::Postgres(far));
    // Slow enough to be in the middle of its transaction when it is cut off.
    far.revision().await.expect("connects");
    proxy.delay(Duration::from_millis(200));
    let cutting = async {
        let holds = "SELECT 1 FROM pg_stat_activity
                     WHERE datname = current_database() AND state = 'idle in transaction'";
        until(direct, holds).await;
        proxy.cut();
    };
    let (spec, other) = (route("shop"), moved("shop", "b:1"));
    let (answer, ()) = tokio::join!(far.put(&spec, None, "ann", 1), cutting);
    assert!(answer.is_err(), "{answer:?}");
    let put = tokio::time::timeout(skep_testkit::PATIENCE, near.put(&other, None, "ben", 2));
    let answer = put.await.expect("is not held up").expect("answers");
    let either = [Put::Created { version: 1 }, Put::Updated { version: 2 }];
    assert!(either.contains(&answer), "{answer:?}");
    assert_eq!(near.list().await.expect("reads").routes.len(), 1);
}
