//! Ten thousand sessions at once over two gateways: all are served, all are counted, and whoever
//! does not read, does not speak or does not end costs only what is his.

mod fleet;
mod parts;

use crate::common::{skep, until};
use fleet::Fleet;
use parts::Part;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use skep_testkit::{EchoWorker, Folder, Node, PATIENCE, Postgres, Redis, WebSocket};
use std::time::Instant;

const SESSIONS_MAX: usize = 10_000;
const SESSIONS_MIN: usize = 2_000;
/// Files that a process of the test needs beyond one for each of the sessions.
const FILES_RESERVED: usize = 1_536;

const WORKERS: usize = 20;
const CHURNED: usize = 1_500;
const HALF_OPEN: usize = 300;
const HALF_CLOSED: usize = 200;
const STALLED: usize = 200;
/// What a session may have in memory at its gateway: a buffer in each direction, and its records.
const STALLED_BYTES: usize = 2 * (64 << 10);
/// What else may come and go in a process meanwhile.
const MEMORY_SPARE: usize = 16 << 20;

/// As many sessions as the system lets one process have, which every end of them is in once.
fn sessions() -> usize {
    let files = getrlimit(Resource::Nofile).maximum;
    let files = usize::try_from(files.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let sessions = files.saturating_sub(FILES_RESERVED).min(SESSIONS_MAX) & !1;
    if sessions < SESSIONS_MAX {
        println!("only {sessions} sessions: the hard limit on open files is {files}");
    }
    assert!(sessions >= SESSIONS_MIN, "raise the hard limit on open files (ulimit -Hn)");
    sessions
}

/// Two gateways over one table.
struct Place {
    a: Node,
    b: Node,
    fleet: Fleet,
}

impl Place {
    fn new(database: &str, redis: &str, folder: &Folder, slots: usize) -> Self {
        let start = |name: &str| {
            let mut arguments = vec!["--database", database, "--coordination", redis];
            let name_set = format!("node.name={name}");
            let settings = [
                &*name_set,
                "gateway.listen=127.0.0.1:0",
                "gateway.header_timeout=2s",
                "sessions.lifetime_max=0",
                // Nobody speaks for these workers.
                "sessions.heartbeat_timeout=1h",
                "log.access=false",
            ];
            arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
            Node::start(skep(), &folder.join(name), &arguments)
        };
        let place = Place { a: start("a"), b: start("b"), fleet: Fleet::start(WORKERS) };
        for (number, url) in place.fleet.urls().iter().enumerate() {
            let name = format!("w{number}");
            let slots = slots.div_ceil(WORKERS);
            register(&place.a, &json!({ "name": name, "url": url, "slots": slots }));
        }
        place
    }

    /// Sessions that the table counts: by worker, and in all.
    fn counted(&self) -> (u64, u64) {
        let workers = self.a.get("/api/v1/sessions/workers").json();
        let workers = workers["workers"].as_array().cloned().unwrap_or_default();
        let by_worker = workers.iter().filter_map(|worker| worker["active"].as_u64()).sum();
        let kinds = self.b.get("/api/v1/sessions/capacity").json();
        (by_worker, kinds["kinds"][0]["active"].as_u64().unwrap_or(u64::MAX))
    }

    /// Waits until table and workers agree that there are so many.
    fn wait_for(&self, sessions: usize, when: &str) {
        let wanted = sessions as u64;
        let deadline = Instant::now() + PATIENCE / 2;
        let seen = || (self.counted(), self.fleet.figures().open);
        skep_testkit::eventually("the counts are right", || {
            let seen = seen();
            assert!(Instant::now() < deadline, "{sessions} sessions {when}, but {seen:?}");
            (seen == ((wanted, wanted), sessions)).then_some(())
        });
    }
}

fn register(node: &Node, more: &Value) {
    let mut body = json!({ "kind": "chromium", "start": "1" });
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    let answer = node.send("POST", "/api/v1/sessions/workers", &[], Some(&body.to_string()));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// What a process has in memory.
fn resident(node: &Node) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process().pid()));
    let status = status.expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("is there");
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
    kib.expect("is a number") << 10
}

#[test]
fn ten_thousand_sessions_are_served_counted_and_gone() {
    let sessions = sessions();
    let (database, redis, folder) =
        (Postgres::shared().database(), Redis::start(), Folder::new("load"));
    let place = Place::new(&database.url(), &redis.url(), &folder, sessions + 1_000);
    let (a, b) = (place.a.gateway(), place.b.gateway());
    let empty = resident(&place.a);

    let begun = Instant::now();
    let half = sessions / 2;
    let holders = [Part::hold(a, half, "/"), Part::hold(b, half, "/")];
    for holder in &holders {
        assert_eq!(holder.served(), half, "{}", holder.log());
    }
    let opened = begun.elapsed();
    place.wait_for(sessions, "after all have come");
    let each = resident(&place.a).saturating_sub(empty) / half;
    println!("{sessions} sessions opened in {opened:.1?}, {each} bytes each at their gateway");

    let churning = [Part::churn(a, CHURNED), Part::churn(b, CHURNED)];
    for churn in &churning {
        assert_eq!(churn.served(), CHURNED, "{}", churn.log());
    }
    place.wait_for(sessions, "after some came and went");

    let half_open = Part::half_open(a, HALF_OPEN);
    let mut late = WebSocket::connect(a, "/", &[]);
    assert!(late.echoes("nobody waits for those who do not speak"), "{}", late.head());
    drop(late);
    assert_eq!(half_open.served(), HALF_OPEN, "all were closed: {}", half_open.log());

    let [stays, goes] = holders;
    drop(goes);
    place.wait_for(half, "after half of the clients died");
    slow_readers_cost_no_memory(&place, half);

    // The worker never says its last, so that the gateway must.
    let half_closed = Part::hold(b, HALF_CLOSED, "/deaf");
    assert_eq!(half_closed.served(), HALF_CLOSED, "{}", half_closed.log());
    place.wait_for(half, "after some said their last");

    drop(stays);
    place.wait_for(0, "at the end");
}

/// Workers push to clients that do not read; the gateway keeps a buffer and stops to read itself.
fn slow_readers_cost_no_memory(place: &Place, others: usize) {
    let before = resident(&place.b);
    let stalled = Part::hold(place.b.gateway(), STALLED, "/push");
    assert_eq!(stalled.served(), STALLED, "{}", stalled.log());
    let mut pushed = (0, Instant::now());
    until_still(|| place.fleet.figures().pushed, &mut pushed);
    let grown = resident(&place.b).saturating_sub(before);
    println!("{STALLED} clients that do not read: {} bytes waited, {grown} in memory", pushed.0);
    assert!(grown < STALLED * STALLED_BYTES + MEMORY_SPARE, "{grown} bytes more in memory");
    let mut quick = WebSocket::connect(place.b.gateway(), "/", &[]);
    assert!(quick.echoes("others are served meanwhile"), "{}", quick.head());
    drop((quick, stalled));
    place.wait_for(others, "after those who did not read have gone");
}

/// Waits until a count has stood still for a second.
fn until_still(count: impl Fn() -> usize, last: &mut (usize, Instant)) {
    skep_testkit::eventually("nothing more is pushed", || {
        let now = count();
        if now != last.0 {
            *last = (now, Instant::now());
        }
        (now > 0 && last.1.elapsed().as_secs() >= 1).then_some(())
    });
}

#[test]
fn at_the_limit_of_connections_one_more_is_refused_with_the_reason() {
    let folder = Folder::new("load");
    let listen = "gateway.listen=127.0.0.1:0";
    let settings = [listen, "gateway.connections_max=50", "sessions.lifetime_max=0"];
    let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let node = Node::start(skep(), folder.path(), &arguments);
    let echo = EchoWorker::start();
    register(&node, &json!({ "name": "w", "url": echo.url(), "slots": 100 }));
    let mut sessions: Vec<WebSocket> =
        (0..50).map(|_| WebSocket::connect(node.gateway(), "/", &[])).collect();
    assert!(sessions.iter_mut().all(|session| session.echoes("in")));
    let refused = WebSocket::connect(node.gateway(), "/", &[]);
    assert_eq!(refused.status(), 503);
    let refusal = refused.refusal();
    assert_eq!(refusal["code"], "E_CONNECTIONS_MAX");
    assert!(refusal["detail"].as_str().is_some_and(|why| why.contains("50")), "{refusal}");
    assert!(sessions.iter_mut().all(|session| session.echoes("still in")));
    sessions.pop();
    until("there is room again", || WebSocket::connect(node.gateway(), "/", &[]).status() == 101);
}
