//! Somebody who may name addresses names those that they should not have a node connect to.

use super::kit::{Trap, code, raw};
use crate::common::{run, skep, until};
use serde_json::json;
use skep_testkit::{Folder, Node, WebSocket};

/// The metadata service of a cloud, as people have written it to get past a list.
const METADATA: [&str; 11] = [
    "169.254.169.254",
    "169.254.169.254.",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "100.100.100.200",
];

/// The number of a metric's line.
fn counted(node: &Node, line: &str) -> u64 {
    let metrics = node.get("/metrics").body;
    let found = metrics.lines().find_map(|one| one.strip_prefix(line));
    found.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn an_address_that_is_denied_is_refused_where_it_is_written() {
    let folder = Folder::new("attack-reach");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let post = |path: &str, body: &serde_json::Value| {
        let answer = node.send("POST", path, &[], Some(&body.to_string()));
        (answer.status, code(&answer), answer.body)
    };
    for host in METADATA {
        let (status, told, body) = post(
            "/api/v1/polls/endpoints",
            &json!({ "id": "cloud", "url": format!("http://{host}/latest/meta-data") }),
        );
        // Some are no host at all for a reader that is strict.
        let refused = ["E_ADDRESS_DENIED", "E_ENDPOINT_INVALID"].contains(&&*told);
        assert!(status == 400 && refused, "{host}: {status} {body}");
        let line = json!({ "id": "a", "kind": "tcp", "address": format!("{host}:80") });
        let import = node.send("POST", "/api/v1/polls/import", &[], Some(&line.to_string()));
        assert_eq!(code(&import), "E_IMPORT_INVALID", "{host}: {}", import.body);
        let (status, told, body) = post(
            "/api/v1/routes",
            &json!({ "name": "r", "host": "a.test", "upstreams": [format!("{host}:80")] }),
        );
        let refused = ["E_ADDRESS_DENIED", "E_ROUTE_INVALID"].contains(&&*told);
        assert!(status == 400 && refused, "{host}: {status} {body}");
        let (status, told, body) = post(
            "/api/v1/sessions/workers",
            &json!({ "name": "w", "kind": "k", "url": format!("ws://{host}:80/"), "start": "s" }),
        );
        let refused = ["E_ADDRESS_DENIED", "E_WORKER_INVALID"].contains(&&*told);
        assert!(status == 400 && refused, "{host}: {status} {body}");
    }
    let (_, told, body) = post(
        "/api/v1/polls/endpoints",
        &json!({ "id": "cloud", "url": "http://169.254.169.254/latest" }),
    );
    assert_eq!(told, "E_ADDRESS_DENIED");
    for word in ["url", "169.254.0.0/16", "reach.allow"] {
        assert!(body.contains(word), "{word}: {body}");
    }
    let left = node.get("/api/v1/polls").json();
    assert_eq!(left["endpoints"], 0, "nothing was kept");

    // The owner's own file and webhooks are held to the same rule, before anything starts.
    let file = "[[routes]]\nname = \"r\"\nhost = \"a.test\"\nupstreams = [\"169.254.1.1:80\"]\n";
    std::fs::write(folder.join("skep.toml"), file).expect("writes");
    let data = folder.join("other").display().to_string();
    let (ended, log) = run(folder.path(), &["serve", "--data", &data]);
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("skep.toml:1") && log.contains("169.254.0.0/16"), "{log}");
    std::fs::write(folder.join("skep.toml"), "").expect("writes");
    let hooks = "alerts.webhooks=http://[fe80::1]/token-in-here";
    let set = ["serve", "--data", &data, "--set", hooks, "--set", "alerts.secret=0123456789abcdef"];
    let (ended, log) = run(folder.path(), &set);
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("fe80::/10") && !log.contains("token-in-here"), "{log}");
}

#[test]
fn a_name_or_a_redirect_that_leads_to_a_denied_address_is_not_followed() {
    let folder = Folder::new("attack-reach");
    let trap = Trap::set("127.0.0.1");
    let moved = format!("http://127.0.0.1:{}/", trap.port);
    let moved = format!("HTTP/1.1 302 -\r\nlocation: {moved}\r\ncontent-length: 0\r\n\r\n");
    let friend = Trap::that_says("127.0.0.3", moved);
    let limit = "gateway.connect_deadline=1s";
    let deny = ["--set", "reach.deny=127.0.0.1, ::1", "--set", limit];
    let node = Node::start(skep(), &folder.join("data"), &deny);
    let post = |path: &str, body: serde_json::Value| {
        let answer = node.send("POST", path, &[], Some(&body.to_string()));
        assert!([200, 201].contains(&answer.status), "{}", answer.body);
    };
    let lured = format!("localhost:{}", trap.port);
    for (id, url) in [
        ("named", format!("http://{lured}/")),
        ("moved", format!("http://127.0.0.3:{}/", friend.port)),
    ] {
        let fast = json!({ "id": id, "url": url, "interval": "1s", "timeout": "500ms",
                           "expect": { "status": 200 } });
        post("/api/v1/polls/endpoints", fast);
    }
    post("/api/v1/polls/endpoints", json!({ "id": "port", "kind": "tcp", "address": lured }));
    let health = json!({ "path": "/", "every": "1s" });
    let to_trap = json!({ "name": "r", "host": "a.test", "upstreams": [lured], "health": health });
    post("/api/v1/routes", to_trap);
    let worker = json!({ "name": "w", "kind": "chromium", "url": format!("ws://{lured}/"),
                         "start": "s", "slots": 1 });
    post("/api/v1/sessions/workers", worker);

    for (id, verdict, detail) in
        [("named", "unreachable", "not to be reached"), ("moved", "status", "302")]
    {
        let path = format!("/api/v1/polls/endpoints/{id}/results");
        let last = skep_testkit::eventually("a poll has ended", || {
            let found = node.get(&path).json()["results"][0].clone();
            (!found.is_null()).then_some(found)
        });
        assert_eq!(last["verdict"], verdict, "{last}");
        assert!(last["detail"].as_str().is_some_and(|text| text.contains(detail)), "{last}");
    }
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    let answer = raw(node.gateway(), request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    assert!(!answer.contains("secret"), "{answer}");
    let client = WebSocket::connect(node.gateway(), "/", &[]);
    assert_ne!(client.status(), 101);
    for what in ["poll", "route", "session"] {
        let line = format!("skep_reach_denied_total{{what=\"{what}\"}}");
        until("denials are counted", || counted(&node, &line) > 0);
    }
    assert!(friend.visits() > 0, "what is not denied is reached");
    assert_eq!(trap.visits(), 0, "nobody has come to what is denied");
}
