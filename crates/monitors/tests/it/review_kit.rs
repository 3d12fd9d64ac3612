//! A small network of monitors over a real database, with a clock that the test moves.

use serde_json::{Value, json};
use skep_monitors::store::{self, HistoryOf};
use skep_monitors::{
    HistoryRow, Measurement, Monitors, MonitorsMetrics, MonitorsOptions, Reviewed, Scored,
};
use skep_policy::monitors::{Settings, Status};
use skep_store::{DataFolder, Database, Postgres, PostgresOptions, Sqlite, SqliteOptions};
use skep_testkit::Folder;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

pub const MINUTE: i64 = 60_000;
pub const HOUR: i64 = 60 * MINUTE;

/// Some day in 2026.
const START: i64 = 1_780_000_000_000;

/// Runs a check on an empty, migrated database of each kind.
pub async fn on_each_database(check: impl AsyncFn(Database)) {
    let folder = Folder::new("monitors");
    let data = Arc::new(DataFolder::open(folder.path()).expect("locks"));
    let sqlite = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
    let server = skep_testkit::Postgres::shared().database();
    let url = server.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    for database in [Database::Sqlite(sqlite), Database::Postgres(postgres)] {
        database.migrate(&[store::SCHEMA]).await.expect("migrates");
        check(database).await;
    }
}

/// A node's monitors, and the time.
pub struct World {
    pub db: Database,
    pub monitors: Monitors,
    pub options: MonitorsOptions,
    clock: Arc<AtomicI64>,
}

impl World {
    pub fn new(db: Database) -> Self {
        World::with(db, Settings::default())
    }

    pub fn with(db: Database, policy: Settings) -> Self {
        let clock = Arc::new(AtomicI64::new(START));
        let options = MonitorsOptions { policy, ..MonitorsOptions::default() };
        let monitors = node(&db, "one", &options, &clock);
        World { db, monitors, options, clock }
    }

    /// Another node of the same network.
    pub fn node(&self, name: &str) -> Monitors {
        node(&self.db, name, &self.options, &self.clock)
    }

    pub fn now(&self) -> i64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub fn pass(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    pub async fn account(&self, id: &str, flags: Value) {
        let account = json!({ "id": id, "flags": flags });
        self.monitors.create_account(&account).await.expect("an account");
    }

    /// A globally active monitor in a network of its own: `10.N.0.1`.
    pub async fn monitor(&self, id: &str, account: Option<&str>, network: usize) {
        let ip = format!("10.{network}.0.1");
        let mut monitor = json!({ "id": id, "ip": ip, "status": "active" });
        if let Some(account) = account {
            monitor["account"] = account.into();
        }
        self.monitors.create_monitor(&monitor).await.expect("a monitor");
    }

    /// So many, `m01` and on, each with an account of its own.
    pub async fn crowd(&self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for number in 1..=count {
            let (id, account) = (format!("m{number:02}"), format!("a{number:02}"));
            self.account(&account, json!({})).await;
            self.monitor(&id, Some(&account), number).await;
            ids.push(id);
        }
        ids
    }

    pub async fn server(&self, id: &str) {
        let server = json!({ "id": id, "ip": "192.0.2.1", "probe": { "kind": "ntp" } });
        self.monitors.create_server(&server).await.expect("a server");
    }

    /// Makes an assignment what the test needs.
    pub async fn assign(&self, server: &str, monitor: &str, status: &str) {
        let line = json!({
            "assignment": { "server": server, "monitor": monitor, "status": status }
        });
        let done = self.monitors.import(line.to_string().as_bytes(), false).await;
        done.expect("is imported");
    }

    /// Reports one result.
    pub async fn report(&self, monitor: &str, one: Measurement) -> Scored {
        let monitor = self.monitors.monitor(monitor).await.expect("reads").expect("is there");
        self.monitors.report(&monitor, None, vec![one]).await.expect("is taken")
    }

    /// So many good samples of a monitor, ten minutes apart, the last one a minute ago.
    pub async fn feed(&self, server: &str, monitor: &str, count: i64, rtt_ms: f64) {
        let now = self.now();
        let sample = |number: i64| Measurement {
            server: server.to_owned(),
            at: now - MINUTE - number * 10 * MINUTE,
            rtt_ms: Some(rtt_ms),
            offset_ms: Some(1.0),
            error: None,
        };
        let samples: Vec<Measurement> = (0..count).map(sample).collect();
        let found = self.monitors.monitor(monitor).await.expect("reads").expect("is there");
        let scored = self.monitors.report(&found, None, samples).await.expect("is taken");
        assert_eq!(scored.refused, [], "{monitor}");
    }

    /// The same of each; the first is the nearest.
    pub async fn feed_all(&self, server: &str, monitors: &[String], count: i64) {
        for (place, monitor) in monitors.iter().enumerate() {
            self.feed(server, monitor, count, 10.0 + 10.0 * place as f64).await;
        }
    }

    /// Reviews a server now.
    pub async fn review(&self, server: &str) -> Reviewed {
        self.monitors.review_soon(server).await.expect("is due");
        let claims = self.claim(1_000, 30_000).await;
        let claim = claims.iter().find(|claim| claim.server.id == server).expect("is claimed");
        self.monitors.review(claim).await.expect("is reviewed")
    }

    pub async fn claim(&self, limit: u32, lease_ms: i64) -> Vec<store::Claim> {
        store::claim(&self.db, "one", self.now(), lease_ms, limit).await.expect("claims")
    }

    /// What each monitor is to a server.
    pub async fn statuses(&self, server: &str) -> BTreeMap<String, Status> {
        let look = self.look(server).await;
        let named = look.rows.iter().map(|row| {
            let place = look.book.place(row.monitor).expect("is on the roster");
            (look.book.name(place), row.status)
        });
        named.collect()
    }

    pub async fn look(&self, server: &str) -> skep_monitors::Look {
        let server = self.monitors.server(server).await.expect("reads").expect("is there");
        self.monitors.look(server.number).await.expect("reads").expect("is there")
    }

    pub async fn those(&self, server: &str, status: Status) -> Vec<String> {
        let all = self.statuses(server).await.into_iter();
        all.filter(|(_, found)| *found == status).map(|(id, _)| id).collect()
    }

    /// Everything that changed, the oldest first.
    pub async fn history(&self) -> Vec<HistoryRow> {
        let found = self.monitors.history(HistoryOf::All, None, 10_000).await;
        let mut rows = found.expect("reads");
        rows.reverse();
        rows
    }
}

fn node(db: &Database, name: &str, options: &MonitorsOptions, clock: &Arc<AtomicI64>) -> Monitors {
    let clock = clock.clone();
    let now = Arc::new(move || clock.load(Ordering::SeqCst));
    Monitors::new(db.clone(), name, options.clone(), MonitorsMetrics::default(), now)
}
