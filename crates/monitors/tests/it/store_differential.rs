//! Both databases give the same answers to the same questions, whatever they are.

use super::store_kit::{check_counts, new_account, new_monitor, new_server, postgres, sqlite};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use skep_monitors::store::*;
use skep_monitors::{Entity, NewAssignment, NewServer, SampleRow};
use skep_policy::monitors::{GlobalStatus, Kind, Status};
use skep_store::{Database, StoreError};
use skep_testkit::Folder;

const ACCOUNTS: [&str; 3] = ["a", "b", "C"];
const MONITORS: [&str; 4] = ["m", "n", "O", "p"];
const SERVERS: [&str; 3] = ["s", "t", "U"];
const IPS: [&str; 3] = ["192.0.2.1", "198.51.100.2", "2001:db8::3"];
const LIMITS: Limits = Limits { monitors_max: 4, servers_max: 2 };

/// Something to do; numbers stand for names.
#[derive(Clone, Debug)]
enum Step {
    Account(bool, usize, Option<u32>, bool),
    DropAccount(usize),
    Monitor(bool, usize, usize, usize, usize),
    Status(usize, usize),
    Key(usize, bool),
    DropMonitor(usize),
    Purge(u32),
    Server(bool, usize, usize, usize, Option<bool>),
    Pause(usize, bool),
    Now(usize),
    DropServer(usize),
    Import(Vec<(usize, usize, usize)>, bool),
    Record(usize, Vec<(usize, i64, i8)>),
    Claim(u32),
    Release(usize, i64),
    Apply(usize, Vec<(usize, usize)>, Option<i64>, i64),
    Tidy(i64, i64, u32),
    List(Option<usize>, u32, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let account = || 0..ACCOUNTS.len() + 1;
    let (monitor, server, ip) = (|| 0..MONITORS.len(), || 0..SERVERS.len(), || 0..IPS.len());
    let status = || 0..Status::ALL.len();
    let samples = vec((server(), 0..30_i64, -5..2_i8), 0..12);
    let seldom = || prop::option::weighted(0.3, 0..4_i64);
    let late = prop_oneof![5 => Just(0), 1 => 1..3_i64];
    prop_oneof![
        3 => (any::<bool>(), 0..3_usize, prop::option::of(0..3_u32), prop::bool::weighted(0.9))
            .prop_map(|(a, b, c, d)| Step::Account(a, b, c, d)),
        1 => (0..3_usize).prop_map(Step::DropAccount),
        6 => (prop::bool::weighted(0.7), monitor(), account(), ip(), 0..4_usize)
            .prop_map(|(a, b, c, d, e)| Step::Monitor(a, b, c, d, e)),
        3 => (monitor(), 0..5_usize).prop_map(|(a, b)| Step::Status(a, b)),
        1 => (monitor(), any::<bool>()).prop_map(|(a, b)| Step::Key(a, b)),
        1 => monitor().prop_map(Step::DropMonitor),
        2 => (0..4_u32).prop_map(Step::Purge),
        5 => (prop::bool::weighted(0.7), server(), account(), ip(), any::<Option<bool>>())
            .prop_map(|(a, b, c, d, e)| Step::Server(a, b, c, d, e)),
        1 => (server(), any::<bool>()).prop_map(|(a, b)| Step::Pause(a, b)),
        1 => server().prop_map(Step::Now),
        1 => server().prop_map(Step::DropServer),
        2 => (vec((server(), monitor(), status()), 0..4), prop::bool::weighted(0.2))
            .prop_map(|(a, b)| Step::Import(a, b)),
        6 => (monitor(), samples).prop_map(|(a, b)| Step::Record(a, b)),
        3 => (0..3_u32).prop_map(Step::Claim),
        1 => (server(), 0..4_i64).prop_map(|(a, b)| Step::Release(a, b)),
        8 => (server(), vec((monitor(), status()), 0..4), seldom(), late)
            .prop_map(|(a, b, c, d)| Step::Apply(a, b, c, d)),
        2 => (0..30_i64, 0..60_i64, 0..9_u32).prop_map(|(a, b, c)| Step::Tidy(a, b, c)),
        2 => (prop::option::of(monitor()), 1..4_u32, 0..6_usize)
            .prop_map(|(a, b, c)| Step::List(a, b, c)),
    ]
}

/// One database.
struct Side {
    db: Database,
}

impl Side {
    async fn reset(&self) {
        let empty = "DELETE FROM skep_monitor_accounts; DELETE FROM skep_monitor_monitors;
            DELETE FROM skep_monitor_servers; DELETE FROM skep_monitor_assignments;
            DELETE FROM skep_monitor_samples; DELETE FROM skep_monitor_gone;
            DELETE FROM skep_monitor_history;
            UPDATE skep_monitors SET version = 0, changes = 0, last_number = 0, accounts = 0,
                   monitors = 0, servers = 0;";
        match &self.db {
            Database::Sqlite(store) => {
                let restart = "DELETE FROM sqlite_sequence WHERE name = 'skep_monitor_history'";
                let work = move |db: &rusqlite::Connection| {
                    Ok::<_, StoreError>(db.execute_batch(&format!("{empty}{restart}"))?)
                };
                store.write(work).await.expect("is emptied");
            }
            Database::Postgres(store) => {
                let client = store.client().await.expect("connects");
                let restart = "ALTER TABLE skep_monitor_history ALTER COLUMN id RESTART";
                client.batch_execute(&format!("{empty}{restart}")).await.expect("is emptied");
            }
        }
    }

    /// The number of a monitor, deleted or not; 0 if there is none.
    async fn monitor(&self, monitor: usize) -> i64 {
        let roster = roster(&self.db).await.expect("reads");
        let found = roster.monitors.iter().find(|one| one.id == MONITORS[monitor]);
        found.map_or(0, |one| one.number)
    }

    async fn server(&self, server: usize) -> i64 {
        let found = server_numbers(&self.db, vec![SERVERS[server].to_owned()]).await;
        found.expect("reads").into_values().next().unwrap_or(0)
    }

    async fn take(&self, step: &Step, now: i64) -> String {
        let db = &self.db;
        let account_of = |place: usize| ACCOUNTS.get(place).copied();
        match step {
            Step::Account(create, place, limit, enabled) => {
                let flags = json!({ "monitor_limit": limit, "monitor_enabled": enabled });
                let new = new_account(ACCOUNTS[*place], flags);
                match create {
                    true => format!("{:?}", create_account(db, new, now).await),
                    false => format!("{:?}", replace_account(db, new, now).await),
                }
            }
            Step::DropAccount(place) => format!("{:?}", delete_account(db, ACCOUNTS[*place]).await),
            Step::Monitor(create, place, account, ip, status) => {
                let status = GlobalStatus::ALL[*status].as_str();
                let new = new_monitor(MONITORS[*place], account_of(*account), IPS[*ip], status);
                match create {
                    true => format!("{:?}", create_monitor(db, new, None, LIMITS, now).await),
                    false => format!("{:?}", replace_monitor(db, new, now).await),
                }
            }
            Step::Status(place, status) => {
                let status = GlobalStatus::ALL[*status];
                format!("{:?}", set_monitor_status(db, MONITORS[*place], status, now).await)
            }
            Step::Key(place, some) => {
                let key = some.then(|| format!("key of {place}"));
                format!("{:?}", set_monitor_key(db, MONITORS[*place], key, now).await)
            }
            Step::DropMonitor(place) => {
                format!("{:?}", delete_monitor(db, MONITORS[*place], now).await)
            }
            Step::Purge(rows) => format!("{:?}", purge(db, *rows).await),
            Step::Server(create, place, account, ip, paused) => {
                let new = new_server(SERVERS[*place], account_of(*account), IPS[*ip]);
                let new = NewServer { paused: *paused, ..new };
                match create {
                    true => format!("{:?}", create_server(db, new, LIMITS, now).await),
                    false => format!("{:?}", replace_server(db, new, now).await),
                }
            }
            Step::Pause(place, paused) => {
                format!("{:?}", set_server_paused(db, SERVERS[*place], *paused, now).await)
            }
            Step::Now(place) => format!("{:?}", review_now(db, SERVERS[*place], now).await),
            Step::DropServer(place) => format!("{:?}", delete_server(db, SERVERS[*place]).await),
            Step::Import(rows, dry) => {
                let entity = |&(server, monitor, status): &(usize, usize, usize)| {
                    Entity::Assignment(NewAssignment {
                        server: SERVERS[server].to_owned(),
                        monitor: MONITORS[monitor].to_owned(),
                        status: Status::ALL[status],
                        since_ms: None,
                        score: (server > 0).then_some(1.5),
                        violation: (monitor > 1).then_some((Kind::Limit, None)),
                        pause_reason: (status > 1).then(|| "why".to_owned()),
                        last_check_ms: None,
                    })
                };
                let all = rows.iter().map(entity).collect();
                format!("{:?}", import(db, all, LIMITS, now, *dry).await)
            }
            Step::Record(monitor, rows) => {
                let monitor = self.monitor(*monitor).await;
                let mut samples = Vec::new();
                for (server, at_ms, step) in rows {
                    samples.push(SampleRow {
                        server: self.server(*server).await,
                        monitor,
                        at_ms: *at_ms,
                        rtt_us: (*step > -5).then_some(i64::from(*step) * 1_000 + 9_000),
                        offset_us: None,
                        step: f64::from(*step) / 3.0,
                        error: None,
                    });
                }
                let (agent, oldest_ms, newest_ms) = (Some(format!("v{now}")), 3, 27);
                let report = Report { monitor, samples, agent, now_ms: now, oldest_ms, newest_ms };
                format!("{:?}", record(db, report).await)
            }
            Step::Claim(limit) => format!("{:?}", claim(db, "n", now, 5, *limit).await),
            Step::Release(server, token) => {
                let server = self.server(*server).await;
                format!("{:?}", release(db, server, *token, now + 3).await)
            }
            Step::Apply(server, moves, fence, behind) => {
                let number = self.server(*server).await;
                let found = facts(db, number, 0).await.expect("reads");
                let mut changes = Vec::new();
                let mut marks = Vec::new();
                for (monitor, to) in moves {
                    let monitor = self.monitor(*monitor).await;
                    let is = found.iter().flat_map(|one| &one.assignments);
                    let is = is.clone().find(|one| one.monitor == monitor);
                    let from = is.map_or(Status::Candidate, |one| one.status);
                    let pause_reason = Some("why".to_owned());
                    let (rule, reason) = ("3".to_owned(), format!("at {now}"));
                    let to = Status::ALL[*to];
                    changes.push(Change { monitor, from, to, pause_reason, rule, reason });
                    let (violation, challenge) = (Some((Kind::Account, now)), Some((monitor, 2)));
                    let last_check_ms = (now % 2 == 0).then_some(now);
                    marks.push(Mark { monitor, violation, last_check_ms, challenge });
                }
                let plan = Apply {
                    server: number,
                    fence: *fence,
                    index: found.as_ref().map_or(0, |one| one.server.index) - behind / 2,
                    roster_version: found.as_ref().map_or(0, |one| one.roster_version) - behind % 2,
                    changes,
                    marks,
                    next_review_ms: now + 4,
                    now_ms: now,
                };
                format!("{:?}", apply(db, plan).await)
            }
            Step::Tidy(samples, history, rows) => {
                // Which rows go first is open; how many go is not.
                let removed = tidy(db, *samples, *history, *rows).await;
                let rest = tidy(db, *samples, *history, 1_000).await;
                format!("{removed:?} {rest:?}")
            }
            Step::List(after, limit, filter) => {
                let page = Page {
                    after: after.map(|place| MONITORS[place].to_owned()),
                    limit: *limit,
                    search: (*filter == 5).then(|| "O".to_owned()),
                };
                let status = GlobalStatus::ALL.get(*filter).copied();
                let monitors_filter = MonitorFilter { status, ..MonitorFilter::default() };
                let account = ACCOUNTS.get(*filter).map(|id| (*id).to_owned());
                let servers_filter = ServerFilter { account, below: (*filter == 4).then_some(1) };
                format!(
                    "{:?} {:?} {:?}",
                    accounts(db, page.clone()).await,
                    monitors(db, page.clone(), monitors_filter).await,
                    servers(db, page, servers_filter).await
                )
            }
        }
    }

    /// Everything there is to see.
    async fn look(&self) -> String {
        let db = &self.db;
        let mut seen = format!(
            "{:?}\n{:?}\n{:?}\n{:?}",
            roster(db).await.expect("reads"),
            fleet(db, 1, 30).await.expect("counts"),
            history(db, HistoryOf::All, None, 100).await.expect("reads"),
            churn(db, 5, 7).await.expect("reads"),
        );
        for server in 0..SERVERS.len() {
            let number = self.server(server).await;
            let facts = facts(db, number, 10).await.expect("reads");
            let samples = samples(db, number, None, 25, 50).await.expect("reads");
            let scores = scores(db, vec![number]).await.expect("reads");
            let history = history(db, HistoryOf::Server(number), Some(9), 5).await;
            seen += &format!("\n{facts:?}\n{samples:?}\n{scores:?}\n{:?}", history.expect("reads"));
        }
        for monitor in 0..MONITORS.len() {
            let number = self.monitor(monitor).await;
            let pairs = assignments_of_monitor(db, number, Some("T".to_owned()), 2).await;
            seen += &format!("\n{:?}", pairs.expect("reads"));
        }
        seen
    }
}

async fn compare(sides: &[Side; 2], steps: &[Step]) -> Result<(), TestCaseError> {
    for side in sides {
        side.reset().await;
    }
    for (position, step) in steps.iter().enumerate() {
        let now = position as i64;
        let answers = [sides[0].take(step, now).await, sides[1].take(step, now).await];
        prop_assert_eq!(&answers[0], &answers[1], "step {}: {:?}", position, step);
        prop_assert!(!answers[0].contains("Store("), "{}", answers[0]);
        if position % 10 == 9 {
            prop_assert_eq!(sides[0].look().await, sides[1].look().await, "step {}", position);
        }
    }
    for side in sides {
        check_counts(&side.db).await;
    }
    Ok(())
}

#[test]
fn both_databases_give_the_same_answers() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (folder, server) = (Folder::new("monitors"), skep_testkit::Postgres::shared().database());
    let sides = runtime.block_on(async {
        [Side { db: sqlite(&folder).await }, Side { db: postgres(&server).await }]
    });
    let config = Config { cases: 25, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config)
        .run(&vec(step(), 80), |steps| runtime.block_on(compare(&sides, &steps)));
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
