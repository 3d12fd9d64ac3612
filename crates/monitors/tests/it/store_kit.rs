//! Databases and rows for the tests of the store.

use serde_json::json;
use skep_monitors::store::{self, *};
use skep_monitors::{Account, Monitor, NewAccount, NewMonitor, NewServer, SampleRow, Server};
use skep_policy::monitors::{GlobalStatus, Status};
use skep_store::{DataFolder, Database, Postgres, PostgresOptions, Sqlite, SqliteOptions};
use skep_testkit::{Folder, TestDatabase};
use std::sync::Arc;

pub const LIMITS: Limits = Limits { monitors_max: 1_000, servers_max: 1_000 };

/// An empty, migrated embedded database.
pub async fn sqlite(folder: &Folder) -> Database {
    let data = Arc::new(DataFolder::open(folder.path()).expect("locks"));
    let sqlite = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
    let database = Database::Sqlite(sqlite);
    database.migrate(&[store::SCHEMA]).await.expect("migrates");
    database
}

/// The same on a server.
pub async fn postgres(server: &TestDatabase<'_>) -> Database {
    let url = server.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    let database = Database::Postgres(postgres);
    database.migrate(&[store::SCHEMA]).await.expect("migrates");
    database
}

pub async fn on_each_database(check: impl AsyncFn(Database)) {
    check(sqlite(&Folder::new("monitors")).await).await;
    let server = skep_testkit::Postgres::shared().database();
    check(postgres(&server).await).await;
}

pub fn new_account(id: &str, flags: serde_json::Value) -> NewAccount {
    NewAccount::parse(&json!({ "id": id, "flags": flags })).expect("an account")
}

pub fn new_monitor(id: &str, account: Option<&str>, ip: &str, status: &str) -> NewMonitor {
    let body = json!({ "id": id, "account": account, "ip": ip, "status": status });
    NewMonitor::parse(&body).expect("a monitor")
}

pub fn new_server(id: &str, account: Option<&str>, ip: &str) -> NewServer {
    let body = json!({ "id": id, "account": account, "ip": ip, "probe": { "kind": "ntp" } });
    NewServer::parse(&body).expect("a server")
}

pub async fn add_account(db: &Database, id: &str, flags: serde_json::Value) -> Account {
    create_account(db, new_account(id, flags), 1).await.expect("is created")
}

/// A monitor of nobody, globally active.
pub async fn add_monitor(db: &Database, id: &str, ip: &str) -> Monitor {
    let new = new_monitor(id, None, ip, "active");
    create_monitor(db, new, None, LIMITS, 1).await.expect("is created")
}

pub async fn add_server(db: &Database, id: &str, ip: &str) -> Server {
    create_server(db, new_server(id, None, ip), LIMITS, 1).await.expect("is created")
}

pub async fn see_server(db: &Database, id: &str) -> Server {
    server(db, id).await.expect("reads").expect("is there")
}

pub async fn see_monitor(db: &Database, id: &str) -> Monitor {
    monitor(db, id).await.expect("reads").expect("is there")
}

pub fn sample(server: &Server, at_ms: i64, step: f64) -> SampleRow {
    SampleRow {
        server: server.number,
        monitor: 0,
        at_ms,
        rtt_us: (step > -5.0).then_some(20_000),
        offset_us: None,
        step,
        error: (step <= -4.0).then(|| "timeout".to_owned()),
    }
}

pub fn report(monitor: &Monitor, samples: Vec<SampleRow>, now_ms: i64) -> Report {
    let agent = Some("skep test".to_owned());
    Report { monitor: monitor.number, samples, agent, now_ms, oldest_ms: 0, newest_ms: i64::MAX }
}

/// A plan for a server as it is now, with these changes and nothing else.
pub async fn plan(db: &Database, server: &str, changes: &[(&Monitor, Status, Status)]) -> Apply {
    let server = see_server(db, server).await;
    let change = |&(monitor, from, to): &(&Monitor, Status, Status)| Change {
        monitor: monitor.number,
        from,
        to,
        pause_reason: (to == Status::Paused).then(|| "same subnet".to_owned()),
        rule: "3".to_owned(),
        reason: format!("{from} becomes {to}"),
    };
    Apply {
        server: server.number,
        fence: None,
        index: server.index,
        roster_version: roster_version(db).await.expect("reads"),
        changes: changes.iter().map(change).collect(),
        marks: vec![],
        next_review_ms: 10_000,
        now_ms: 100,
    }
}

/// Moves monitors of a server.
pub async fn shift(db: &Database, server: &str, changes: &[(&Monitor, Status, Status)]) {
    let plan = plan(db, server, changes).await;
    let applied = apply(db, plan).await.expect("applies");
    assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
}

pub async fn set_status(db: &Database, id: &str, status: GlobalStatus, now_ms: i64) -> Monitor {
    set_monitor_status(db, id, status, now_ms).await.expect("is set")
}

/// The counts in the rows of servers and monitors are those of the assignments, each pair has one
/// family, and the book knows how many there are.
pub async fn check_counts(db: &Database) {
    let roster = roster(db).await.expect("reads");
    let page = Page { limit: 1_000, ..Page::default() };
    let listed = servers(db, page.clone(), ServerFilter::default()).await.expect("reads");
    assert_eq!(listed.total, listed.rows.len() as u64, "servers");
    let live = roster.monitors.iter().filter(|one| one.status != GlobalStatus::Deleted);
    let total = monitors(db, page.clone(), MonitorFilter::default()).await.expect("reads").total;
    assert_eq!(total, live.clone().count() as u64, "monitors");
    let count = |all: &[Status]| {
        Status::ALL.map(|status| all.iter().filter(|one| **one == status).count() as u32)
    };
    let mut of_monitors = std::collections::HashMap::<i64, Vec<Status>>::new();
    for server in &listed.rows {
        let mut of_server = Vec::new();
        for row in assignments_of_server(db, server.number).await.expect("reads") {
            let monitor = roster.monitors.iter().find(|one| one.number == row.monitor);
            let monitor = monitor.expect("no pair without its monitor");
            assert_eq!(monitor.ip.is_ipv4(), server.ip.is_ipv4(), "{} {}", monitor.id, server.id);
            of_server.push(row.status);
            of_monitors.entry(row.monitor).or_default().push(row.status);
        }
        let of = server.counts;
        let kept = [of.candidate, of.testing, of.active, of.paused];
        assert_eq!(kept, count(&of_server), "server {}", server.id);
        for monitor in live.clone().filter(|one| one.status.may_serve()) {
            if monitor.ip.is_ipv4() == server.ip.is_ipv4() {
                let pair = assignment(db, server.number, monitor.number).await.expect("reads");
                assert!(pair.is_some(), "{} and {} are a pair", monitor.id, server.id);
            }
        }
    }
    for monitor in &roster.monitors {
        let of = monitor.counts;
        let kept = [of.candidate, of.testing, of.active, of.paused];
        let found = of_monitors.remove(&monitor.number).unwrap_or_default();
        assert_eq!(kept, count(&found), "monitor {}", monitor.id);
    }
    for account in &roster.accounts {
        let of_monitors = live.clone().filter(|one| one.account.as_ref() == Some(&account.id));
        assert_eq!(account.monitors, of_monitors.count() as u32, "monitors of {}", account.id);
        let of_servers = listed.rows.iter().filter(|one| one.account.as_ref() == Some(&account.id));
        assert_eq!(account.servers, of_servers.count() as u32, "servers of {}", account.id);
    }
    let total = accounts(db, page).await.expect("reads").total;
    assert_eq!(total, roster.accounts.len() as u64, "accounts");
}
