//! Who is told to look at the table.

use crate::common::{Asker, join, migrated, shared_redis, tick};
use skep_nodes::{Hints, MemoryTable, PostgresTable, RedisTable, TableStore};
use skep_policy::ownership::{Ask, Caller, Status};
use skep_store::Heard;
use skep_testkit::PATIENCE;
use std::time::Duration;

async fn is_told(hints: &mut Hints) {
    tokio::time::timeout(PATIENCE, hints.next()).await.expect("a hint comes");
}

/// A life in which each step should tell somebody, or nobody.
async fn live(store: &TableStore) -> [&'static str; 7] {
    let mut asker = Asker::of(store);
    let (ant, mut bee) = (asker.join("ant").await, asker.join("bee").await);
    asker.settle(&ant).await;
    asker.claim(&ant, &["a", "b", "c"]).await;
    let give = |key: &str| (key.into(), bee.session, 0);
    asker.rows(Ask::Handoff(ant.clone(), vec![give("a"), give("b")])).await;
    asker.tick(&mut bee, 0, 0).await;
    asker.rows(Ask::Release(ant.clone(), vec![("c".into(), 0)])).await;
    let Caller { name, session, .. } = bee.clone();
    let (weight, status, info) = (1, Status::Draining, "".into());
    asker.ask(Ask::Tick { name, session, weight, status, info, since: 0, floor: 0 }).await;
    asker.ask(Ask::Bye(ant)).await;
    // The epoch and the first node are one step and one hint.
    ["*", "*", "*", "bee", "*", "*", "*"]
}

async fn heard(hints: &mut skep_store::Hints, count: usize) -> Vec<String> {
    let mut payloads = Vec::new();
    while payloads.len() < count {
        let next = tokio::time::timeout(PATIENCE, hints.next()).await.expect("more is heard");
        if let Heard::Notice { payload, .. } = next {
            payloads.push(payload);
        }
    }
    payloads
}

async fn connected(hints: &mut skep_store::Hints) {
    let first = tokio::time::timeout(PATIENCE, hints.next()).await.expect("it connects");
    assert_eq!(first, Heard::Reconnected);
}

#[tokio::test]
async fn redis_tells_each_change_to_those_it_concerns() {
    let (redis, id) = (shared_redis(), uuid::Uuid::new_v4().to_string());
    let mut hints = redis.subscribe(&format!("skep:{{{id}}}:hints"));
    connected(&mut hints).await;
    let store = TableStore::Redis(RedisTable::new(&redis, &id));
    let expected = live(&store).await;
    // One more, so that one too many would be seen.
    Asker::of(&store).join("last").await;
    let payloads = heard(&mut hints, expected.len() + 1).await;
    assert_eq!(payloads[..expected.len()], expected);
    assert_eq!(payloads[expected.len()], "*");
}

#[tokio::test]
async fn postgres_tells_each_change_to_those_it_concerns() {
    let database = skep_testkit::Postgres::shared().database();
    let postgres = migrated(&database.url()).await;
    database.run("DELETE FROM skep_ownership_meta");
    let mut hints = postgres.listen(&["skep_nodes"]);
    connected(&mut hints).await;
    let store = TableStore::Postgres(PostgresTable::new(&postgres));
    let expected = live(&store).await;
    Asker::of(&store).join("last").await;
    let payloads = heard(&mut hints, expected.len() + 1).await;
    assert_eq!(payloads[..expected.len()], expected);
}

#[tokio::test]
async fn a_node_is_woken_by_what_concerns_it_and_by_nothing_else() {
    let database = skep_testkit::Postgres::shared().database();
    let postgres = migrated(&database.url()).await;
    for store in [
        TableStore::Memory(MemoryTable::embedded(1)),
        TableStore::Redis(RedisTable::new(&shared_redis(), &uuid::Uuid::new_v4().to_string())),
        TableStore::Postgres(PostgresTable::new(&postgres)),
    ] {
        let mut asker = Asker::of(&store);
        let ant = asker.join("ant").await;
        let bee = asker.join("bee").await;
        asker.settle(&ant).await;
        asker.claim(&ant, &["a"]).await;
        let mut for_bee = store.hints("bee");
        is_told(&mut for_bee).await; // It listens from now on, and looks.
        asker.rows(Ask::Handoff(ant.clone(), vec![("a".into(), bee.session, 0)])).await;
        is_told(&mut for_bee).await;
        asker.rows(Ask::Handoff(bee.clone(), vec![("a".into(), ant.session, 0)])).await;
        asker.ask(tick(&bee, 0, 0)).await;
        let nothing = tokio::time::timeout(Duration::ZERO, for_bee.next()).await;
        assert!(nothing.is_err(), "{}: nothing concerned it", store.name());
        asker.ask(join("cat", "first")).await;
        is_told(&mut for_bee).await;
    }
}
