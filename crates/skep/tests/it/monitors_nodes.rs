//! Reviews by several node processes over one database, and what is told of them live.

use crate::common::{skep, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, PATIENCE, Postgres, eventually, pause};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

const SERVERS: usize = 6;
const MONITORS: usize = 10;

/// Short spans, so that much happens in a test.
const SPANS: [&str; 8] = [
    "monitors.review_check=50ms",
    "monitors.review_changed=200ms",
    "monitors.review_unchanged=200ms",
    "monitors.review_lease=1s",
    "monitors.recheck_after=200ms",
    "monitors.samples_for_testing=0",
    "monitors.samples_for_active=0",
    "log.access=false",
];

fn start(folder: &Folder, name: &str, database: &str) -> Node {
    let set_name = format!("node.name={name}");
    let mut arguments = vec!["--database", database];
    for setting in SPANS.into_iter().chain([set_name.as_str()]) {
        arguments.extend(["--set", setting]);
    }
    Node::start(skep(), &folder.path().join(name), &arguments)
}

fn send(node: &Node, path: &str, body: &Value) -> Value {
    let answer = node.send("POST", path, &[], Some(&body.to_string()));
    assert!(answer.status < 300, "{path}: {}", answer.body);
    answer.json()
}

fn fill(node: &Node) {
    for number in 1..=MONITORS {
        let ip = format!("10.{number}.0.1");
        let monitor = json!({ "id": format!("m{number}"), "ip": ip, "status": "active" });
        send(node, "/api/v1/monitors", &monitor);
    }
    for number in 1..=SERVERS {
        let server = json!({ "id": format!("s{number}"), "ip": "192.0.2.7",
                             "probe": { "kind": "ntp" } });
        send(node, "/api/v1/servers", &server);
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = i64::try_from(now.expect("after 1970").as_millis()).expect("fits");
    for monitor in 1..=MONITORS {
        let one = |server: usize| {
            let id = format!("s{server}");
            json!({ "server": id, "at": now, "rtt_ms": 10 * monitor })
        };
        let results: Vec<Value> = (1..=SERVERS).map(one).collect();
        let path = format!("/api/v1/agent/results?monitor=m{monitor}");
        send(node, &path, &json!({ "results": results }));
    }
}

fn active(node: &Node) -> u64 {
    let overview = node.get("/api/v1/monitors/overview").json();
    overview["assignments"]["active"].as_u64().unwrap_or(0)
}

/// Of monitor `m1`, how many of its assignments are paused.
fn paused(node: &Node) -> u64 {
    let monitor = node.get("/api/v1/monitors/m1").json();
    monitor["assignments"]["paused"].as_u64().unwrap_or(0)
}

#[test]
fn a_node_that_was_stopped_past_its_leases_does_no_harm_when_it_goes_on() {
    let folder = Folder::new("monitors");
    let database = Postgres::shared().database();
    let (first, second) =
        (start(&folder, "first", &database.url()), start(&folder, "second", &database.url()));
    fill(&first);
    let all = (SERVERS * 7) as u64;
    until("every server has seven", || active(&second) == all);
    for _ in 0..3 {
        // Wherever it is in a review, it stays there for longer than its lease.
        first.process().signal(Signal::STOP);
        let status = |word: &str| {
            send(&second, "/api/v1/monitors/m1/status", &json!({ "status": word }));
        };
        status("paused");
        until("the other one reviews all servers", || paused(&second) == SERVERS as u64);
        pause(Duration::from_millis(1_100));
        status("active");
        until("it comes back", || paused(&second) == 0);
        first.process().signal(Signal::CONT);
        until("both go on", || active(&first) == all && active(&second) == all);
    }
    for number in 1..=SERVERS {
        let path = format!("/api/v1/servers/s{number}/history?limit=1000");
        let mut changes = first.get(&path).json()["changes"].as_array().cloned().expect("changes");
        changes.reverse();
        assert!(changes.len() > 12, "{changes:?}");
        let mut now: HashMap<String, Value> = HashMap::new();
        for change in changes {
            let monitor = change["monitor"].as_str().expect("a monitor").to_owned();
            let before = now.insert(monitor, change["to"].clone()).unwrap_or(json!("candidate"));
            assert_eq!(before, change["from"], "a change that does not follow the last: {change}");
        }
    }
    let reviews = |node: &Node| {
        let done = node.get("/api/v1/monitors/overview").json()["reviews"]["done"].as_u64();
        done.unwrap_or(0)
    };
    assert!(reviews(&first) > 0 && reviews(&second) > 0, "both take part");
    for node in [&first, &second] {
        assert_eq!(node.stop().code, 0);
    }
}

#[test]
fn a_change_by_any_node_is_told_live_on_every_node() {
    let folder = Folder::new("monitors");
    let database = Postgres::shared().database();
    let (first, second) =
        (start(&folder, "first", &database.url()), start(&folder, "second", &database.url()));
    let mut stream = TcpStream::connect(second.address()).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("sets");
    let request = b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).expect("writes");
    let mut lines = BufReader::new(stream).lines();
    let mut next = || {
        let mut found = false;
        loop {
            let line = lines.next().expect("the stream goes on").expect("is read");
            match line.strip_prefix("data: ") {
                Some(data) if found => {
                    return serde_json::from_str::<Value>(data).expect("is JSON");
                }
                _ => found = line == "event: monitors",
            }
        }
    };
    assert_eq!(next()["changes"], json!([]), "nothing has happened yet");
    fill(&first);
    let told = eventually("a change is told", || {
        let told = next();
        told["changes"].as_array().is_some_and(|all| !all.is_empty()).then_some(told)
    });
    let change = &told["changes"][0];
    assert_eq!(
        (&change["from"], &change["to"]),
        (&json!("candidate"), &json!("testing")),
        "{told}"
    );
    assert!(change["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{told}");
}
