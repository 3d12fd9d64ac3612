//! Several nodes that review the same servers.

use crate::review_kit::{World, on_each_database};
use serde_json::json;
use skep_monitors::{HistoryRow, Monitors, MonitorsMetrics, MonitorsOptions, Reviewed};
use skep_policy::monitors::{Settings, Status};
use skep_pools::{Options, Pools};
use skep_store::{Database, wall_ms};
use skep_testkit::PATIENCE;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Whether every change begins with what the one before it left: two nodes that applied the same
/// plan, or plans for the same moment, would leave a change that does not.
fn assert_each_change_follows_the_last(history: &[HistoryRow]) {
    let mut now: HashMap<(&str, &str), Status> = HashMap::new();
    for row in history {
        let pair = (row.server.as_str(), row.monitor.as_str());
        let before = now.insert(pair, row.to).unwrap_or(Status::Candidate);
        assert_eq!(before, row.from, "{row:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_that_review_at_once_never_apply_a_change_twice() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(8).await;
        let servers: Vec<String> = (0..20).map(|number| format!("s{number:02}")).collect();
        for server in &servers {
            world.server(server).await;
            world.feed_all(server, &monitors, 40).await;
        }
        let nodes: Vec<Monitors> = ["a", "b", "c"].map(|name| world.node(name)).into();
        let (mut reviews, rounds) = (0, 5);
        for _ in 0..rounds {
            for server in &servers {
                world.monitors.review_soon(server).await.expect("is due");
            }
            let now = world.now();
            let tasks = nodes.iter().map(|node| {
                let (node, db) = (node.clone(), world.db.clone());
                tokio::spawn(async move {
                    let mut done = Vec::new();
                    loop {
                        let claims = skep_monitors::store::claim(&db, "x", now, 30_000, 3).await;
                        let claims = claims.expect("claims");
                        if claims.is_empty() {
                            return done;
                        }
                        for claim in claims {
                            done.push(node.review(&claim).await.expect("is reviewed"));
                        }
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                let done = task.await.expect("ends");
                assert!(!done.contains(&Reviewed::Fenced) && !done.contains(&Reviewed::Stale));
                reviews += done.len();
            }
            world.pass(1_000);
        }
        assert_eq!(reviews, rounds * servers.len(), "each once a round");
        assert_each_change_follows_the_last(&world.history().await);
        assert_eq!(world.those("s07", Status::Active).await.len(), 7);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_service_of_each_node_reviews_what_is_due_and_one_bad_server_does_not_stop_it() {
    on_each_database(async |db| {
        let policy = Settings {
            review_unchanged: Duration::from_millis(300),
            review_changed: Duration::from_millis(300),
            samples_for_testing: 0,
            samples_for_active: 0,
            ..Settings::default()
        };
        let options = MonitorsOptions {
            policy,
            review_check: Duration::from_millis(100),
            review_batch: 4,
            ..MonitorsOptions::default()
        };
        let node = |name: &str| {
            let clock = Arc::new(wall_ms);
            Monitors::new(db.clone(), name, options.clone(), MonitorsMetrics::default(), clock)
        };
        let first = node("one");
        for number in 1..=9 {
            let ip = format!("10.{number}.0.1");
            let monitor = json!({ "id": format!("m{number}"), "ip": ip, "status": "active" });
            first.create_monitor(&monitor).await.expect("a monitor");
        }
        for number in 0..12 {
            let id = format!("s{number:02}");
            let server = json!({ "id": id, "ip": "192.0.2.1", "probe": { "kind": "ntp" } });
            first.create_server(&server).await.expect("a server");
        }
        spoil(&db, "s03").await;
        let stop = CancellationToken::new();
        let pools = Pools::start(Options::new(2)).expect("starts");
        let running: Vec<_> = [first.clone(), node("two")]
            .into_iter()
            .map(|one| tokio::spawn(skep_monitors::run(one, pools.clone(), true, stop.clone())))
            .collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let fleet = first.fleet().await.expect("reads");
            let (_, failed) = first.reviews();
            // Unmeasured candidates are tried in testing; all servers but the bad one get there.
            let tried = fleet.assignments
                [Status::ALL.iter().position(|one| *one == Status::Testing).expect("is one")];
            if fleet.unreviewed == 1 && tried >= 11 * 9 && failed > 0 {
                break;
            }
            assert!(Instant::now() < deadline, "{fleet:?}, {failed} failed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stop.cancel();
        for task in running {
            task.await.expect("ends");
        }
        pools.shutdown(Duration::from_secs(5)).await;
        let history = first.history(skep_monitors::store::HistoryOf::All, None, 10_000).await;
        let mut history = history.expect("reads");
        history.reverse();
        assert_each_change_follows_the_last(&history);
        assert!(history.iter().all(|row| row.server != "s03"));
    })
    .await;
}

/// Makes an assignment of a server unreadable, as no program of ours would.
async fn spoil(db: &Database, server: &str) {
    let update = format!(
        "UPDATE skep_monitor_assignments SET status = 'potato' WHERE server = \
         (SELECT number FROM skep_monitor_servers WHERE id = '{server}')"
    );
    match db {
        Database::Sqlite(sqlite) => {
            let spoilt = sqlite.write(move |db| {
                db.execute_batch(&update)?;
                Ok::<_, skep_store::StoreError>(())
            });
            spoilt.await.expect("is spoilt");
        }
        Database::Postgres(postgres) => {
            let client = postgres.client().await.expect("connects");
            client.batch_execute(&update).await.expect("is spoilt");
        }
    }
}
