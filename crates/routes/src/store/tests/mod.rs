//! What the store promises, on each database.

mod faults;
mod history;
mod races;
mod routes;

use super::*;
use crate::spec::RouteSpec;
use skep_store::{DataFolder, PostgresOptions, SqliteOptions};
use skep_testkit::{Folder, TestDatabase};
use std::sync::Arc;

/// An empty, migrated embedded database.
async fn sqlite(folder: &Folder) -> RouteStore {
    let data = Arc::new(DataFolder::open(folder.path()).expect("locks"));
    let sqlite = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
    migrated(Database::Sqlite(sqlite)).await
}

/// The same on a server.
async fn postgres(server: &TestDatabase<'_>) -> RouteStore {
    let url = server.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    migrated(Database::Postgres(postgres)).await
}

async fn migrated(database: Database) -> RouteStore {
    database.migrate(&[SCHEMA]).await.expect("migrates");
    RouteStore::new(database)
}

async fn on_each_database(check: impl AsyncFn(RouteStore)) {
    check(sqlite(&Folder::new("routes")).await).await;
    let server = skep_testkit::Postgres::shared().database();
    check(postgres(&server).await).await;
}

/// A route for a path of its own.
fn route(name: &str) -> RouteSpec {
    RouteSpec { path: format!("/{name}"), ..RouteSpec::minimal(name, "10.0.0.1:8080") }
}

/// The same to another upstream.
fn moved(name: &str, upstream: &str) -> RouteSpec {
    RouteSpec { path: format!("/{name}"), ..RouteSpec::minimal(name, upstream) }
}

async fn put(store: &RouteStore, spec: &RouteSpec, expected: Option<i64>, now_ms: i64) -> Put {
    store.put(spec, expected, "ann", now_ms).await.expect("answers")
}
