//! The access log in either database: writing, looking, forgetting, and databases of before.

use crate::common::on_each_database;
use skep::node::SCHEMAS;
use skep::work::store::{access_page, forget_before, write_access};
use skep::work::{AccessEntry, AccessFilter, AccessPage, Column, Noted, SCANNED_MAX, Test};
use skep_store::{
    DataFolder, Database, Postgres, PostgresOptions, Schema, Sqlite, SqliteOptions, StoreError,
};
use skep_testkit::Folder;
use std::sync::Arc;

const MINUTE: i64 = 60_000;

fn entry(number: i64) -> AccessEntry {
    let kind = number % 3;
    AccessEntry {
        at_ms: number,
        node: "hive-1".into(),
        route: ["", "shop", "wiki"][kind as usize].into(),
        host: ["127.0.0.1:6632", "shop.example", "wiki.example"][kind as usize].to_owned(),
        method: if number % 7 == 0 { "POST" } else { "GET" }.into(),
        path: format!("/api/v1/things/{number}"),
        status: if number % 10 == 0 { 503 } else { 200 },
        duration_us: number * 10,
        address: format!("192.0.{}.7", number % 4),
        actor: "ops (k1)".to_owned(),
        request_id: format!("r-{number}"),
        upstream: ["", "10.0.0.1:80", "10.0.0.2:80"][kind as usize].into(),
        bytes_in: number,
        bytes_out: 2 * number,
        tries: kind,
        protocol: "1.1".into(),
        error: if number % 10 == 0 { "upstream-timeout" } else { "" }.into(),
        ..AccessEntry::default()
    }
}

fn noted(entries: impl IntoIterator<Item = AccessEntry>) -> Vec<Noted> {
    entries.into_iter().map(Arc::new).collect()
}

fn is(column: Column, text: &str) -> AccessFilter {
    AccessFilter::default().and(column, Test::Is(text.to_owned()))
}

fn between(column: Column, low: i64, high: i64) -> AccessFilter {
    AccessFilter::default().and(column, Test::AtLeast(low)).and(column, Test::AtMost(high))
}

async fn all(db: &Database, filter: &AccessFilter) -> Vec<AccessEntry> {
    access_page(db, filter, None, 10_000, SCANNED_MAX).await.expect("reads").entries
}

fn without_id(entry: AccessEntry) -> AccessEntry {
    AccessEntry { id: 0, ..entry }
}

#[tokio::test]
async fn the_access_log_is_written_whole_and_in_order_and_read_page_by_page() {
    on_each_database(async |db| {
        write_access(&db, noted((0..253).map(entry))).await.expect("writes");
        write_access(&db, Vec::new()).await.expect("nothing is fine too");
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let filter = AccessFilter::default();
            let page = access_page(&db, &filter, before, 100, SCANNED_MAX).await.expect("reads");
            seen.extend(page.entries);
            assert!(!page.stopped_early);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert!(seen.is_sorted_by(|one, other| one.id > other.id), "the newest first");
        let seen: Vec<_> = seen.into_iter().rev().map(without_id).collect();
        assert_eq!(seen, (0..253).map(entry).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn every_filter_means_the_same_in_both_databases_and_to_those_who_follow() {
    let begins = |text: &str| Test::Begins(text.to_owned());
    let contains = |text: &str| Test::Contains(text.to_owned());
    let filters = [
        (AccessFilter::default(), 250),
        (is(Column::Route, "shop"), 83),
        (is(Column::Route, ""), 84),
        (is(Column::Host, "wiki.example"), 83),
        (is(Column::Upstream, "10.0.0.2:80"), 83),
        (is(Column::Method, "POST"), 36),
        (is(Column::Address, "192.0.2.7"), 62),
        (AccessFilter::default().and(Column::Address, begins("192.0.2")), 62),
        (AccessFilter::default().and(Column::Address, begins("192.")), 250),
        (AccessFilter::default().and(Column::Path, contains("things/24")), 11),
        (AccessFilter::default().and(Column::Actor, contains("%")), 0),
        (AccessFilter::default().and(Column::Path, contains("' OR 1=1 --")), 0),
        (between(Column::Status, 500, 599), 25),
        (AccessFilter::default().and(Column::Duration, Test::AtLeast(2_400)), 10),
        (between(Column::At, 100, 109), 10),
        (between(Column::At, 200, i64::MAX), 50),
        (between(Column::At, i64::MIN, 9), 10),
        (between(Column::At, 1_000_000, 2_000_000), 0),
        (is(Column::Route, "shop").and(Column::Status, Test::AtLeast(500)), 8),
    ];
    on_each_database(async |db| {
        write_access(&db, noted((0..250).map(entry))).await.expect("writes");
        for (filter, count) in &filters {
            let found: Vec<_> = all(&db, filter).await.into_iter().map(without_id).collect();
            let expected: Vec<_> =
                (0..250).rev().map(entry).filter(|one| filter.lets_through(one)).collect();
            assert_eq!(found, expected, "{filter:?}");
            assert_eq!(found.len(), *count, "{filter:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_search_that_finds_little_stops_after_some_rows_and_goes_on_from_there() {
    on_each_database(async |db| {
        write_access(&db, noted((0..1_000).map(entry))).await.expect("writes");
        let rare =
            AccessFilter::default().and(Column::Path, Test::Contains("things/33".to_owned()));
        let page = async |before| access_page(&db, &rare, before, 100, 100).await.expect("reads");
        let first = page(None).await;
        assert!(first.stopped_early && first.entries.is_empty(), "{first:?}");
        let (mut found, mut before, mut pages) = (0, first.next, 1);
        while before.is_some() {
            let AccessPage { entries, next, .. } = page(before).await;
            (found, before, pages) = (found + entries.len(), next, pages + 1);
        }
        // 33, and 330 to 339.
        assert_eq!((found, pages), (11, 10));
        // A span of time is found without looking at what is outside of it.
        let rows = (0..1_000).map(|one| AccessEntry { at_ms: one * MINUTE, ..entry(one) });
        write_access(&db, noted(rows)).await.expect("writes");
        let hour = between(Column::At, 500 * MINUTE, 509 * MINUTE);
        let page = access_page(&db, &hour, None, 100, 20).await.expect("reads");
        assert_eq!((page.entries.len(), page.next, page.stopped_early), (10, None, false));
    })
    .await;
}

#[tokio::test]
async fn entries_that_come_up_to_a_minute_late_are_found_by_their_time_and_forgotten_in_time() {
    // A shuffle that is the same each time: each entry is late by up to a minute.
    let late = |number: i64| (number * 7_919) % MINUTE;
    let mut rows: Vec<(i64, i64)> =
        (0..2_000).map(|one| (one * 500 + late(one), one * 500)).collect();
    rows.sort_unstable();
    let rows: Vec<i64> = rows.into_iter().map(|(_, at)| at).collect();
    assert!(!rows.is_sorted(), "they are out of order");
    on_each_database(async |db| {
        let entries = rows.iter().map(|at| AccessEntry { at_ms: *at, ..entry(1) });
        write_access(&db, noted(entries)).await.expect("writes");
        for from in (0..1_000_000).step_by(77_777) {
            let to = from + 100_000;
            let expected = rows.iter().filter(|at| (from..=to).contains(*at)).count();
            let found = all(&db, &between(Column::At, from, to)).await.len();
            assert_eq!(found, expected, "from {from} to {to}");
        }
        let cut = 600_250;
        assert!(forget_before(&db, cut, || true).await.expect("deletes"));
        let left = all(&db, &AccessFilter::default()).await;
        assert_eq!(left.len(), rows.iter().filter(|at| **at >= cut).count());
        assert!(left.iter().all(|one| one.at_ms >= cut));
    })
    .await;
}

#[tokio::test]
async fn forgetting_goes_in_steps_and_can_be_stopped_between_them() {
    on_each_database(async |db| {
        assert!(forget_before(&db, i64::MAX, || true).await.expect("an empty log is fine"));
        write_access(&db, noted((0..12_000).map(entry))).await.expect("writes");
        let steps = std::cell::Cell::new(0);
        let once = || steps.replace(steps.get() + 1) == 0;
        assert!(!forget_before(&db, 11_990, once).await.expect("deletes"), "it was stopped");
        assert_eq!(all(&db, &AccessFilter::default()).await.len(), 7_000);
        assert!(forget_before(&db, 11_990, || true).await.expect("deletes"));
        assert_eq!(all(&db, &AccessFilter::default()).await.len(), 10);
    })
    .await;
}

/// The tables as the version before made them.
fn schemas_before() -> Vec<Schema> {
    let before = |one: &Schema| match one.part {
        "work" => Schema { sqlite: &one.sqlite[..1], postgres: &one.postgres[..1], ..*one },
        _ => *one,
    };
    SCHEMAS.iter().map(before).collect()
}

async fn insert_as_before(db: &Database) -> Result<(), StoreError> {
    let insert = "INSERT INTO skep_access (at, node, method, path, status, duration_us, address,
                                           actor, request_id)
                  VALUES (5, 'hive-0', 'GET', '/old', 200, 7, '127.0.0.1', 'ops', 'r-old')";
    match db {
        Database::Sqlite(sqlite) => {
            sqlite.write(move |db| Ok::<_, StoreError>(db.execute_batch(insert)?)).await
        }
        Database::Postgres(postgres) => Ok(postgres.client().await?.batch_execute(insert).await?),
    }
}

#[tokio::test]
async fn a_database_of_the_version_before_keeps_its_entries_and_takes_new_ones() {
    let folder = Folder::new("database");
    let data = Arc::new(DataFolder::open(folder.path()).expect("locks"));
    let sqlite = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
    let server = skep_testkit::Postgres::shared().database();
    let url = server.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    for db in [Database::Sqlite(sqlite), Database::Postgres(postgres)] {
        db.migrate(&schemas_before()).await.expect("as before");
        insert_as_before(&db).await.expect("writes");
        db.migrate(SCHEMAS).await.expect("migrates");
        write_access(&db, noted([entry(41)])).await.expect("writes");
        let found: Vec<_> =
            all(&db, &AccessFilter::default()).await.into_iter().map(without_id).collect();
        let old = AccessEntry {
            at_ms: 5,
            node: "hive-0".into(),
            method: "GET".into(),
            path: "/old".to_owned(),
            status: 200,
            duration_us: 7,
            address: "127.0.0.1".to_owned(),
            actor: "ops".to_owned(),
            request_id: "r-old".to_owned(),
            ..AccessEntry::default()
        };
        assert_eq!(found, [entry(41), old]);
    }
}
