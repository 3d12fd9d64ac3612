//! A node's own work: pools, dead letters, access log, alerts.

use crate::common::{run, skep};
use crate::dashboard::picture;
use serde_json::Value;
use skep::node::Node as InProcess;
use skep::settings::{Layers, resolve};
use skep_pools::{Failure, Task, Tier};
use skep_store::{BootClock, Stores};
use skep_testkit::{Browser, Folder, Node, Postgres, Proxy, Receiver, eventually, free_port, http};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SECRET: &str = "a secret that nobody guesses";

async fn start(folder: &Folder, settings: &[(&str, &str)]) -> (InProcess, Stores) {
    let mut layers = Layers::default();
    layers.add_flag("--data", "data", &folder.path().display().to_string());
    layers.add_flag("--listen", "api.listen", "127.0.0.1:0");
    layers.add_flag("--set", "node.name", "hive");
    for (key, value) in settings {
        layers.add_flag("--set", key, value);
    }
    let settings = resolve(layers).expect("is valid").settings;
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let node = InProcess::start(settings, stores.clone(), Arc::new(BootClock));
    let node = node.await.expect("starts");
    assert!(node.ready().await);
    (node, stores)
}

async fn stop(mut node: InProcess, stores: Stores) {
    node.stop();
    node.ended().await.expect("ends well");
    stores.close().await;
}

fn ask(node: &InProcess, method: &str, path: &str) -> http::Answer {
    let url = format!("http://{}{path}", node.shared().address);
    http::send(method, &url, &[("x-skep-request", "test")], None).expect("answers")
}

fn letters(node: &InProcess) -> Vec<Value> {
    let answer = ask(node, "GET", "/api/v1/pools/dead").json();
    answer["letters"].as_array().expect("a list").clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_reaches_its_webhook_signed_and_a_dead_one_can_be_sent_after_a_restart() {
    let folder = Folder::new("work");
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/hook");
    let settings =
        [("alerts.webhooks", url.as_str()), ("alerts.secret", SECRET), ("pools.retry_base", "1ms")];
    let (node, stores) = start(&folder, &settings).await;
    // A dead letter is an alert, the alert a webhook, and nobody listens there.
    let broken = Task::blocking("broken", |_| Err(Failure::permanent("as planned")));
    node.shared().work.pools.try_submit(Tier::Normal, broken).expect("there is room");
    let hook = eventually("the webhook is dead too", || {
        letters(&node).into_iter().find(|one| one["kind"] == "alert-webhook")
    });
    assert_eq!((&hook["tier"], &hook["attempts"]), (&"high".into(), &4.into()), "{hook}");
    assert_eq!(hook["cause"], "failed");
    let alerts = ask(&node, "GET", "/metrics/pools/normal").json();
    assert_eq!(alerts["alerts"][0]["kind"], "dead-letters", "{alerts}");
    assert!(
        ask(&node, "GET", "/metrics").body.contains("skep_pool_alerts_firing{pool=\"normal\"} 1")
    );
    stop(node, stores).await;

    let (node, stores) = start(&folder, &settings).await;
    let receiver = Receiver::start(port, &[500, 200]);
    let id = hook["id"].as_str().expect("an id").to_owned();
    let shown = ask(&node, "GET", &format!("/api/v1/pools/dead/{id}")).json();
    assert!(shown["payload_text"].as_str().expect("JSON").contains(&url), "{shown}");
    let retried = ask(&node, "POST", &format!("/api/v1/pools/dead/{id}/retry"));
    assert_eq!(retried.status, 202, "{}", retried.body);
    let received = eventually("it arrives, at the second attempt", || {
        let all = receiver.received();
        (all.len() >= 2).then(|| all[1].clone())
    });
    let body: Value = serde_json::from_str(&received.body).expect("JSON");
    assert_eq!((&body["pool"], &body["state"]), (&"normal".into(), &"firing".into()), "{body}");
    let signature = received.header("x-skep-signature");
    let at = signature.trim_start_matches("t=").split(',').next().expect("a time");
    let secret = skep::settings::Secret(SECRET.to_owned());
    let expected = skep::work::sign(&secret, at.parse().expect("a number"), &received.body);
    assert!(signature.ends_with(&format!("v1={expected}")), "{signature}");
    eventually("the letter is gone", || {
        letters(&node).iter().all(|l| l["id"] != *id).then_some(())
    });
    // The other one has no payload, and its process is gone.
    let other = letters(&node).into_iter().find(|one| one["kind"] == "broken").expect("kept");
    assert_eq!(other["retryable"], false);
    let id = other["id"].as_str().expect("an id");
    let refused = ask(&node, "POST", &format!("/api/v1/pools/dead/{id}/retry"));
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (409, Some("E_LETTER_KEPT_ONLY"))
    );
    assert_eq!(ask(&node, "DELETE", &format!("/api/v1/pools/dead/{id}")).status, 204);
    assert_eq!(ask(&node, "DELETE", &format!("/api/v1/pools/dead/{id}")).status, 404);
    stop(node, stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_whose_process_lives_is_tried_again_once_and_keeps_its_id_if_it_fails() {
    let folder = Folder::new("work");
    let (node, stores) = start(&folder, &[]).await;
    let pools = &node.shared().work.pools;
    let well = Arc::new(AtomicBool::new(false));
    let mended = well.clone();
    let task = Task::blocking("sick", move |_| match mended.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(Failure::permanent("not yet")),
    });
    pools.try_submit(Tier::Low, task).expect("there is room");
    let first = eventually("it is dead", || letters(&node).pop());
    let path = format!("/api/v1/pools/dead/{}", first["id"].as_str().expect("an id"));
    assert_eq!(first["retryable"], true);
    assert_eq!(ask(&node, "POST", &format!("{path}/retry")).status, 202);
    let again = eventually("it is dead again", || {
        let one = ask(&node, "GET", &path).json();
        (one["died_at_ms"] != first["died_at_ms"] || one["state"] == "dead").then_some(one)
    });
    assert_eq!((&again["id"], &again["attempts"]), (&first["id"], &1.into()), "{again}");
    well.store(true, Ordering::SeqCst);
    eventually("it may be tried", || {
        (ask(&node, "POST", &format!("{path}/retry")).status == 202).then_some(())
    });
    eventually("it is done", || (ask(&node, "GET", &path).status == 404).then_some(()));
    assert_eq!(pools.stats()[3].failed_tasks, 0);
    stop(node, stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_shows_the_pools_and_tries_a_dead_letter_again() {
    let folder = Folder::new("work");
    let (node, stores) = start(&folder, &[]).await;
    let pools = node.shared().work.pools.clone();
    let well = Arc::new(AtomicBool::new(false));
    let mended = well.clone();
    let sick = Task::blocking("sick-task", move |_| match mended.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(Failure::permanent("the patient has a cold")),
    });
    pools.try_submit(Tier::Low, sick).expect("there is room");
    let mut browser = Browser::start();
    let url = format!("http://{}/#/pools", node.shared().address);
    let mut page = browser.open(&url, (1_280, 1_400));
    page.wait_for("document.querySelector('main')?.innerText.includes('the patient has a cold')");
    // A load that lets high grow, while the page looks on.
    for _ in 0..300 {
        let slow = Task::blocking("slow", |_| {
            std::thread::park_timeout(Duration::from_millis(5));
            Ok(())
        });
        pools.try_submit(Tier::High, slow).expect("there is room");
    }
    page.wait_for("document.querySelector('main').innerText.includes('queue-over-scale-up')");
    page.wait_for("/dead-letters/.test(document.querySelector('main').innerText)");
    page.screenshot(&picture("pools-at-work"));
    well.store(true, Ordering::SeqCst);
    page.eval(
        "[...document.querySelectorAll('main table button')]
             .find(one => one.innerText === 'Retry').click()",
    );
    page.wait_for("document.querySelector('main').innerText.includes('No task has failed.')");
    assert_eq!(letters(&node), Vec::<Value>::new());
    assert!(page.errors().is_empty(), "{:#?}", page.errors());
    drop(browser);
    stop(node, stores).await;
}

/// Sends `count` requests over one connection, as fast as they are answered.
fn hammer(address: &str, count: usize) {
    let mut stream = TcpStream::connect(address).expect("connects");
    let request = format!("GET /api/v1/pages HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..count {
        stream.write_all(request.as_bytes()).expect("sends");
        let (mut read, mut wanted) = (0, usize::MAX);
        while read < wanted {
            let more = stream.read(&mut buffer[read..]).expect("answers");
            assert!(more > 0, "the node closed");
            read += more;
            let text = String::from_utf8_lossy(&buffer[..read]);
            if let Some(head) = text.find("\r\n\r\n") {
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
                wanted = head + 4 + length.expect("a length").parse::<usize>().expect("a number");
            }
        }
    }
}

fn entries_of(node: &Node) -> u64 {
    let metrics = node.get("/metrics").body;
    let line = metrics
        .lines()
        .find(|line| line.starts_with("skep_access_log_entries_total{outcome=\"written\"}"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_burst_of_ten_thousand_requests_is_in_the_access_log_to_the_last() {
    let folder = Folder::new("work");
    let data = folder.join("data");
    let node = Node::start(skep(), &data, &["--set", "pools.idle_timeout=200ms"]);
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| hammer(node.address(), 1_000));
        }
    });
    eventually("all are written", || (entries_of(&node) == 10_000).then_some(()));
    let metrics = node.get("/metrics").body;
    assert!(metrics.contains("skep_access_log_entries_total{outcome=\"dropped\"} 0"), "{metrics}");
    let batches = metrics.lines().find(|line| line.starts_with("skep_access_log_batches_total"));
    let batches: u64 =
        batches.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("some");
    // What comes slowly is written by time.
    let by_time = started.elapsed().as_millis() as u64 / 100;
    assert!(batches <= 10_000 / 50 + by_time, "{batches} transactions");
    eventually("only the workers that are always there are left", || {
        let pools = node.get("/metrics/pools").json();
        let workers = pools["pools"].as_array()?.iter().map(|pool| pool["active_workers"].as_u64());
        (workers.flatten().sum::<u64>() == 4).then_some(())
    });
    // Stopped in the middle of the next ones: what was answered is there after the restart.
    hammer(node.address(), 137);
    assert_eq!(node.stop().code, 0);
    let node = Node::start(skep(), &data, &[]);
    let (mut total, mut before) = (0, String::new());
    loop {
        let page =
            node.get(&format!("/api/v1/access?limit=1000&path=/api/v1/pages{before}")).json();
        total += page["entries"].as_array().expect("a list").len();
        let Some(next) = page["next"].as_i64() else { break };
        before = format!("&before={next}");
    }
    assert_eq!(total, 10_137);
}

#[test]
fn a_thousand_requests_a_second_are_all_kept_in_few_transactions() {
    let folder = Folder::new("work");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for round in 1..=30 {
                    hammer(node.address(), 10);
                    let due = started + Duration::from_millis(100) * round;
                    let wait = due.saturating_duration_since(std::time::Instant::now());
                    std::thread::park_timeout(wait);
                }
            });
        }
    });
    eventually("all are written", || (entries_of(&node) == 3_000).then_some(()));
    let metrics = node.get("/metrics").body;
    assert!(metrics.contains("skep_access_log_entries_total{outcome=\"dropped\"} 0"), "{metrics}");
    let batches = metrics.lines().find(|line| line.starts_with("skep_access_log_batches_total"));
    let batches: u64 =
        batches.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("some");
    assert!(batches <= 100, "{batches} transactions");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn entries_wait_for_a_database_that_is_away_and_are_written_when_it_is_back() {
    let folder = Folder::new("work");
    let database = Postgres::shared().database();
    let proxy = Proxy::start(Postgres::shared().address());
    let url = database.url_through(proxy.port());
    let node = Node::start(skep(), &folder.join("data"), &["--database", &url]);
    hammer(node.address(), 10);
    eventually("they are written", || (entries_of(&node) == 10).then_some(()));
    proxy.cut();
    hammer(node.address(), 250);
    eventually("writing has failed", || {
        let high = node.get("/metrics/pools/high").json();
        (high["pool"]["totals"]["failed_attempts"].as_u64()? > 0).then_some(())
    });
    proxy.heal();
    eventually("all are written", || (entries_of(&node) == 260).then_some(()));
    let rows = database.run("SELECT count(*) FROM skep_access WHERE path = '/api/v1/pages'");
    assert_eq!(rows.trim(), "260");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn the_command_line_shows_pools_and_letters_and_says_what_is_wrong() {
    let folder = Folder::new("work");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let url = node.url("");
    let cli = |words: &[&str]| {
        let (ended, log) = run(folder.path(), &[words, &["--url", &url]].concat());
        (ended.code, log)
    };
    let (code, log) = cli(&["pools", "ls"]);
    assert!(code == 0 && log.contains("critical") && log.contains("0 of 500"), "{log}");
    let (code, log) = cli(&["pools", "show", "low"]);
    assert!(code == 0 && log.contains("below-minimum"), "{log}");
    let (code, log) = cli(&["pools", "show", "lo/../w?x"]);
    assert!(code == 1 && log.contains("E_POOL_UNKNOWN"), "{code} {log}");
    assert_eq!(cli(&["pools", "stuck"]), (0, "nothing is stuck".to_owned()));
    let (code, log) = cli(&["pools", "watch", "--count", "2", "--json"]);
    assert!(code == 0 && log.lines().count() == 2, "{log}");
    assert_eq!(cli(&["pools", "dead", "ls"]), (0, "no task has failed".to_owned()));
    let (code, log) = cli(&["pools", "dead", "retry", "0000000000000000"]);
    assert!(
        code == 1 && log.contains("E_LETTER_UNKNOWN") && log.contains("0 tried again"),
        "{log}"
    );
    assert_eq!(cli(&["pools", "dead", "rm"]).0, 64, "which ones?");
    assert_eq!(cli(&["pools", "dead", "rm", "--all"]), (0, "0 discarded".to_owned()));
    eventually("what was asked is in the log", || {
        let (code, log) = cli(&["access", "--status", "404"]);
        (code == 0 && log.contains("/api/v1/pools/dead/0000000000000000/retry")).then_some(())
    });
    assert_eq!(cli(&["access", "--status", "banana"]).0, 1);
    for path in [
        "/api/v1/pools/dead?before=x",
        "/api/v1/pools/dead?tier=urgent",
        "/api/v1/access?status=6xx",
    ] {
        let refused = node.get(path);
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (400, Some("E_QUERY_INVALID"))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hangs_is_listed_and_a_node_stops_in_spite_of_it() {
    let folder = Folder::new("work");
    let settings = [("shutdown.drain_timeout", "300ms")];
    let (node, stores) = start(&folder, &settings).await;
    let pools = node.shared().work.pools.clone();
    let (end, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let hung = Task::blocking("hung", move |_| {
        let _ = wait.lock().map(|wait| wait.recv());
        Ok(())
    });
    let hung = hung.timeout(Duration::from_millis(50)).payload(*b"half");
    pools.try_submit(Tier::High, hung).expect("there is room");
    let stuck = eventually("it is listed", || {
        let answer = ask(&node, "GET", "/metrics/pools/high/stuck").json();
        let one = answer["stuck"].get(0)?.clone();
        (one["abandoned"] == true).then_some(one)
    });
    assert_eq!((&stuck["kind"], &stuck["timeout_ms"]), (&"hung".into(), &50.into()), "{stuck}");
    assert_eq!(ask(&node, "GET", "/metrics/pools/medium/stuck").status, 404);
    stop(node, stores).await;
    drop(end);
    let (node, stores) = start(&folder, &[]).await;
    let left = letters(&node);
    assert_eq!((left.len(), &left[0]["cause"]), (1, &"shutdown".into()), "{left:?}");
    assert_eq!((&left[0]["kind"], &left[0]["payload_bytes"]), (&"hung".into(), &4.into()));
    // It could be built anew, if anybody here knew how.
    let path = format!("/api/v1/pools/dead/{}/retry", left[0]["id"].as_str().expect("an id"));
    let refused = ask(&node, "POST", &path).json();
    assert_eq!(refused["code"], "E_LETTER_KEPT_ONLY", "{refused}");
    assert_eq!(letters(&node)[0]["state"], "dead", "and may be tried elsewhere");
    stop(node, stores).await;
}

#[test]
fn a_simulation_says_how_it_went_and_repeats_itself_from_its_seed() {
    let folder = Folder::new("work");
    let words = ["sim", "pools", "chaos", "--events", "1000000", "--seed", "42", "--json"];
    let (ended, first) = run(folder.path(), &words);
    assert_eq!(ended.code, 0, "{first}");
    let report: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(report["ok"], true);
    assert!(report["figures"]["chaos_events"].as_f64().is_some_and(|events| events >= 1e6));
    assert_eq!(run(folder.path(), &words).1, first);
    let (ended, log) = run(folder.path(), &["sim", "pools", "lifecycle", "--seed", "1"]);
    assert!(ended.code == 0 && log.contains("shared workers      12"), "{log}");
    assert_eq!(run(folder.path(), &["sim", "pools", "apocalypse"]).0.code, 64);
}
