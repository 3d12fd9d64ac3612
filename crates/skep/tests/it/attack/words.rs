//! Words that were chosen to be taken for something else: line breaks, escape sequences, shapes of
//! requests that two readers understand differently, and bodies that are more than they seem.

use super::kit::{code, operations, raw, raw_within};
use crate::common::{run, skep};
use serde_json::{Value, json};
use skep_testkit::{Folder, Node};
use std::time::{Duration, Instant};

/// Ends a line, clears a screen, sets a title, and ends a label of a metric.
const EVIL: &str = "evil\r\n{\"level\":\"ERROR\"}\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\"} 1\n# x";

/// Commands that show what others have named.
const LISTS: [&[&str]; 12] = [
    &["queues", "ls"],
    &["queues", "show", "q"],
    &["groups", "ls"],
    &["messages", "ls", "q"],
    &["dlq", "ls"],
    &["traces", "names"],
    &["polls", "ls"],
    &["monitors", "ls"],
    &["accounts", "ls"],
    &["workers"],
    &["log"],
    &["audit"],
];

#[test]
fn nothing_that_somebody_names_steers_a_log_or_a_terminal() {
    let folder = Folder::new("attack-words");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let post = |path: &str, body: Value| {
        let answer = node.send("POST", path, &[], Some(&body.to_string()));
        assert!(answer.status < 500, "{path}: {}", answer.body);
        assert!(!answer.body.contains('\u{1b}') && !answer.body.contains('\r'), "{path}");
        answer
    };
    for queue in [EVIL, "q"] {
        let item = json!({ "queue": queue, "partition": EVIL, "transactionId": EVIL,
                           "payload": { "text": EVIL }, "traceId": EVIL });
        post("/api/v1/push", json!({ "items": [item] }));
        let plain = json!({ "queue": queue, "partition": EVIL, "transactionId": EVIL,
                            "payload": { "text": EVIL } });
        post("/api/v1/push", json!({ "items": [plain] }));
    }
    let group = "consumerGroup=evil%0d%0a%1b%5B2J&batch=1";
    let popped = node.get(&format!("/api/v1/pop/queue/q?{group}")).body;
    let popped: Value = serde_json::from_str(&popped).unwrap_or_default();
    let first = &popped["messages"][0];
    post(
        "/api/v1/ack",
        json!({ "transactionId": first["transactionId"], "partitionId": first["partitionId"],
                "leaseId": first["leaseId"], "status": "failed", "error": EVIL,
                "consumerGroup": "evil\r\n\u{1b}[2J" }),
    );
    post("/api/v1/configure", json!({ "queue": "q", "namespace": EVIL, "task": EVIL }));
    post("/api/v1/keys", json!({ "name": EVIL, "scopes": ["read"] }));
    post("/api/v1/accounts", json!({ "id": "a", "name": EVIL, "email": EVIL }));
    post("/api/v1/routes", json!({ "name": EVIL, "upstreams": ["127.0.0.1:1"], "host": EVIL }));
    post("/api/v1/polls/endpoints", json!({ "id": EVIL, "url": "http://127.0.0.1:1/" }));
    let labelled = json!({ "id": "p", "url": "http://127.0.0.1:1/", "labels": { EVIL: EVIL } });
    post("/api/v1/polls/endpoints", labelled);
    let worker = json!({ "name": "w", "kind": EVIL, "url": "ws://127.0.0.1:1/", "start": EVIL,
                         "labels": [EVIL] });
    post("/api/v1/sessions/workers", worker);
    let trace = json!({ "transactionId": EVIL, "partitionId": first["partitionId"],
                        "traceNames": [EVIL], "data": { "text": EVIL, "eventType": EVIL } });
    post("/api/v1/traces", trace);
    // What comes with the head of a request.
    let long = "x".repeat(20_000);
    for line in [
        "GET /evil%0d%0a%1b[2J?q=%0d%0aevil HTTP/1.1\r\nHost: localhost\r\n".to_owned(),
        "GET /x HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a\u{9b}31m\r\n".to_owned(),
        "GET /x HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\tb\r\n".to_owned(),
        "EVIL\u{1b} /x HTTP/1.1\r\nHost: localhost\r\n".to_owned(),
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n"),
        format!("{} /x HTTP/1.1\r\nHost: localhost\r\n", "M".repeat(2_000)),
        format!("GET /x HTTP/1.1\r\nHost: {long}.localhost\r\n"),
    ] {
        raw(node.address(), format!("{line}Connection: close\r\n\r\n").as_bytes());
    }
    node.send("GET", "/api/v1/node", &[("x-request-id", "the-last-one")], None);
    node.process().wait_for_line("the-last-one");

    let log = node.process().log();
    for line in log.lines() {
        assert!(!line.starts_with('{'), "a line was made up: {line}");
        assert!(line.len() < 4_000, "{} bytes: {line}", line.len());
    }
    assert!(!log.contains(['\u{1b}', '\u{7}', '\u{9b}', '\r']), "{log:?}");
    let metrics = node.get("/metrics").body;
    assert!(!metrics.contains("evil") && !metrics.contains("]0;"), "{metrics}");
    let address = node.url("");
    for list in LISTS {
        let (ended, shown) = run(folder.path(), &[list, &["--url", &address]].concat());
        assert!([0, 1].contains(&ended.code), "{list:?} ended with {}: {shown}", ended.code);
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(steers), "{list:?}: {shown:?}");
    }
}

#[test]
fn a_body_that_is_more_than_it_seems_is_refused_by_every_route() {
    let folder = Folder::new("attack-words");
    let node = Node::start(skep(), &folder.join("data"), &["--set", "log.access=false"]);
    let before = resident(&node);
    let deep = "[".repeat(200_000);
    let deep_field = format!("{{\"items\":[{{\"queue\":\"q\",\"payload\":{deep}");
    let bomb = "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\
                \r\n\x1f\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let huge = "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n[";
    let (mut asked, mut waiting) = (0, Vec::new());
    for one in operations(&node) {
        if !one.has_body {
            continue;
        }
        asked += 1;
        let name = format!("{} {}", one.method, one.route);
        for body in [&deep, &deep_field] {
            let answer = node.send(&one.method, &one.path, &[], Some(body));
            let fine = answer.status < 500 || answer.status == 501;
            assert!(fine, "{name}: {} {}", answer.status, answer.body);
            assert!(answer.body.len() < 4_000, "{name}: {}", answer.body);
            let done = (200..300).contains(&answer.status);
            assert!(!done, "{name}: {}", answer.body);
        }
        let shaped =
            |shape: &str| shape.replacen("POST", &one.method, 1).replacen("{}", &one.path, 1);
        let answer = raw(node.address(), shaped(bomb).as_bytes());
        assert!(answer.contains("E_BODY_ENCODING"), "{name}: {answer}");
        waiting.push((name, shaped(huge)));
    }
    // All at once, because the node waits a second for what it was promised.
    let address = node.address();
    std::thread::scope(|scope| {
        for (name, shape) in &waiting {
            scope.spawn(move || {
                let answer = raw(address, shape.as_bytes());
                let status = answer.split(' ').nth(1).unwrap_or_default();
                assert!(["413", "501"].contains(&status), "{name}: {answer}");
            });
        }
    });
    assert!(asked > 20, "{asked}");
    let grown = resident(&node).saturating_sub(before);
    assert!(grown < 200 << 20, "{grown} bytes more");
    assert!(!node.process().log().contains("panicked"));
}

/// Memory of the node.
fn resident(node: &Node) -> u64 {
    let metrics = node.get("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    line.and_then(|bytes| bytes.trim().parse().ok()).expect("is counted")
}

#[test]
fn a_request_that_two_readers_understand_differently_is_not_served_twice() {
    let folder = Folder::new("attack-words");
    let node = Node::start(skep(), &folder.join("data"), &["--set", "log.access=false"]);
    let next = "GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled\r\n\
                Connection: close\r\n\r\n";
    let begin = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\n";
    for (shape, body) in [
        ("Content-Length: 3\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        ("Content-Length: +5\r\n", "0\r\n\r\n"),
        ("Content-Length: 0x5\r\n", "0\r\n\r\n"),
        ("Content-Length: 5, 6\r\n", "0\r\n\r\n"),
        ("Content-Length: -1\r\n", ""),
        ("Content-Length: 99999999999999999999\r\n", ""),
        ("Content-Length : 5\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: \u{b}chunked\r\n", "0\r\n\r\n"),
        (" folded: x\r\nContent-Length: 0\r\n", ""),
        ("X: a\r\n folded\r\nContent-Length: 0\r\n", ""),
        ("X: a\0b\r\nContent-Length: 0\r\n", ""),
        ("X: a\rb\r\nContent-Length: 0\r\n", ""),
        ("Transfer-Encoding: chunked\r\n", "5;\nx\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\nx"),
        ("Transfer-Encoding: chunked\r\n", "-5\r\nx\r\n0\r\n\r\n"),
    ] {
        for place in [node.address(), node.gateway()] {
            let head = format!("{begin}{shape}\r\n{body}{next}");
            let answer = raw_within(place, head.as_bytes(), Duration::from_secs(1));
            assert!(!answer.contains("smuggled"), "{place} {shape:?}: {answer}");
            assert!(!answer.starts_with("HTTP/1.1 2"), "{place} {shape:?}: {answer}");
        }
    }
    assert_eq!(node.get("/health").status, 200);
}

#[test]
fn those_who_come_slowly_do_not_keep_others_out() {
    let folder = Folder::new("attack-words");
    let limits = ["--set", "api.idle_timeout=300ms", "--set", "api.request_timeout=500ms"];
    let places = ["--set", "api.connections_max=8", "--set", "gateway.header_timeout=300ms"];
    let more = [&limits[..], &places].concat();
    let node = Node::start(skep(), &folder.join("data"), &more);
    // Every place is taken by somebody who sends a letter now and then and never comes to an end.
    let slow: Vec<_> = (0..8)
        .map(|number| {
            let address = node.address().to_owned();
            std::thread::spawn(move || {
                use std::io::Write;
                let mut stream = std::net::TcpStream::connect(address).expect("connects");
                let head = if number % 2 == 0 { "GET /health HTTP/1.1\r\nX: " } else { "POST " };
                let began = Instant::now();
                let _ = stream.write_all(head.as_bytes());
                // Until the node has had enough.
                while stream.write_all(b"a").is_ok() && began.elapsed() < Duration::from_secs(20) {
                    std::thread::park_timeout(Duration::from_millis(50));
                }
                began.elapsed()
            })
        })
        .collect();
    let answer = node.get("/health");
    assert_eq!(answer.status, 200, "somebody honest gets a place");
    for one in slow {
        let took = one.join().expect("ends");
        assert!(took < Duration::from_secs(15), "it was let go on for {took:?}");
    }
    let login = r#"{"key":"x"}"#;
    assert_eq!(code(&node.send("POST", "/api/v1/session", &[], Some(login))), "E_KEY_WRONG");
}
