//! Migrations, the same on both databases.

use skep_store::{
    DataFolder, Database, MigrateError, Migration, Postgres, PostgresOptions, SCHEMA, Schema,
    Sqlite, SqliteOptions,
};
use skep_testkit::{Folder, TestDatabase};
use std::sync::Arc;
use tokio::task::JoinSet;

const FIRST: Migration =
    Migration { number: 1, name: "0001_jars", sql: "CREATE TABLE jars (honey INTEGER)" };
const SECOND: Migration =
    Migration { number: 2, name: "0002_labels", sql: "ALTER TABLE jars ADD COLUMN label TEXT" };
const BROKEN: Migration = Migration {
    number: 2,
    name: "0002_broken",
    sql: "CREATE TABLE lids (size INTEGER); INSERT INTO nowhere VALUES (1)",
};
const ALTERED: Migration =
    Migration { number: 1, name: "0001_jars", sql: "CREATE TABLE jars (honey BIGINT)" };

const fn schema(migrations: &'static [Migration]) -> Schema {
    Schema { part: "honey", sqlite: migrations, postgres: migrations }
}

const ONE: Schema = schema(&[FIRST]);
const TWO: Schema = schema(&[FIRST, SECOND]);
const ONE_AND_BROKEN: Schema = schema(&[FIRST, BROKEN]);
const ONE_ALTERED: Schema = schema(&[ALTERED]);

/// Runs a check on an empty database of each kind.
async fn on_each_database(check: impl AsyncFn(Database)) {
    let folder = Folder::new("migrate");
    let data = Arc::new(DataFolder::open(folder.path()).expect("locks"));
    let sqlite = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
    check(Database::Sqlite(sqlite)).await;
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    check(Database::Postgres(connect(&database))).await;
}

fn connect(database: &TestDatabase<'_>) -> Postgres {
    let url = database.url().parse().expect("an address");
    Postgres::new(&url, &PostgresOptions::default()).expect("a pool")
}

async fn numbers(database: &Database, schemas: &[Schema]) -> Vec<(u32, bool)> {
    let status = database.migration_status(schemas).await.expect("a status");
    status.iter().map(|one| (one.number, one.applied_at.is_some())).collect()
}

#[tokio::test]
async fn what_is_pending_is_applied_once_and_in_order() {
    on_each_database(async |database| {
        assert_eq!(numbers(&database, &[TWO]).await, [(1, false), (2, false)]);
        let applied = database.migrate(&[ONE]).await.expect("applies");
        assert_eq!(applied.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["0001_jars"]);
        assert_eq!(numbers(&database, &[TWO]).await, [(1, true), (2, false)]);
        let applied = database.migrate(&[TWO]).await.expect("applies");
        assert_eq!(applied.iter().map(|one| one.number).collect::<Vec<_>>(), [2]);
        let applied_at = applied[0].applied_at.clone().expect("a time");
        assert!(applied_at.starts_with("20") && applied_at.ends_with('Z'), "{applied_at}");
        assert_eq!(database.migrate(&[TWO]).await.expect("nothing to do"), []);
        assert_eq!(numbers(&database, &[TWO]).await, [(1, true), (2, true)]);
    })
    .await;
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    on_each_database(async |database| {
        database.migrate(&[TWO]).await.expect("applies");
        for error in [
            database.migrate(&[ONE]).await.expect_err("2 is unknown"),
            database.migration_status(&[ONE]).await.expect_err("2 is unknown"),
        ] {
            let MigrateError::Newer { ref part, found: 2, known: 1, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(part, "honey");
            assert!(error.to_string().contains("newer skep"), "{error}");
        }
        let error = database.migrate(&[SCHEMA]).await.expect_err("the whole part is unknown");
        assert!(matches!(error, MigrateError::Newer { known: 0, .. }), "{error}");
        assert_eq!(numbers(&database, &[TWO]).await, [(1, true), (2, true)]);
    })
    .await;
}

#[tokio::test]
async fn a_migration_that_changed_after_it_was_applied_is_refused() {
    on_each_database(async |database| {
        database.migrate(&[ONE]).await.expect("applies");
        let error = database.migrate(&[ONE_ALTERED]).await.expect_err("the checksum differs");
        assert!(matches!(error, MigrateError::Altered { number: 1, .. }), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_migration_that_fails_half_way_leaves_nothing_behind() {
    on_each_database(async |database| {
        let error = database.migrate(&[ONE_AND_BROKEN]).await.expect_err("it is broken");
        assert!(matches!(error, MigrateError::Failed { number: 2, .. }), "{error}");
        assert!(error.to_string().contains("nowhere"), "{error}");
        assert_eq!(numbers(&database, &[ONE]).await, [(1, false)]);
        // Had `lids` or `jars` survived, this could not create them again.
        database.migrate(&[TWO]).await.expect("applies");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_nodes_that_migrate_one_postgres_at_once_agree_on_one_installation() {
    let database = skep_testkit::Postgres::shared().database();
    let mut nodes = JoinSet::new();
    for _ in 0..10 {
        let node = Database::Postgres(connect(&database));
        nodes.spawn(async move {
            let applied = node.migrate(&[SCHEMA, TWO]).await.expect("migrates");
            (applied.len(), node.installation().await.expect("an installation"))
        });
    }
    let results = nodes.join_all().await;
    let applied: usize = results.iter().map(|(count, _)| count).sum();
    assert_eq!(applied, 3, "each migration ran on exactly one node");
    assert!(results.iter().all(|(_, one)| one == &results[0].1), "{results:?}");
    assert_eq!(database.run("SELECT count(*) FROM skep_migrations"), "3");
}

#[tokio::test]
async fn an_installation_keeps_its_id() {
    on_each_database(async |database| {
        database.migrate(&[SCHEMA]).await.expect("migrates");
        let first = database.installation().await.expect("an installation");
        assert_eq!(database.installation().await.expect("the same"), first);
        assert_eq!(first.created_by, env!("CARGO_PKG_VERSION"));
    })
    .await;
}
