//! Every route with every wrong key. The routes and what they need come from the description that
//! the guard itself goes by; a route that is added is attacked here without anybody's doing.

use super::kit::{Operation, code, make_key, one_answer, operations, raw};
use crate::common::skep;
use serde_json::Value;
use skep_testkit::{Folder, Node};
use std::collections::BTreeSet;

const SCOPES: [&str; 8] = ["admin", "read", "push", "pop", "session", "worker", "poll", "agent"];

/// What anybody may ask for. Whoever opens another door writes it down here too.
const OPEN: [&str; 9] = [
    "GET /",
    "GET /api/openapi.json",
    "GET /api/v1/pages",
    "GET /assets/{*path}",
    "GET /health",
    "GET /health/live",
    "GET /health/ready",
    "GET /api/v1/session",
    "DELETE /api/v1/session",
];

/// Anybody may try to log in; it is the key in the body that lets them in or not.
const LOGIN: &str = "POST /api/v1/session";

fn send(node: &Node, one: &Operation, key: Option<&str>) -> (u16, String) {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let header = bearer.as_deref().map(|bearer| ("authorization", bearer));
    let answer = node.send(&one.method, &one.path, header.as_slice(), None);
    (answer.status, code(&answer))
}

#[test]
fn no_route_lets_anybody_in_who_may_not() {
    let folder = Folder::new("attack-doors");
    let data = folder.join("data");
    let keys: Vec<(&str, String)> =
        SCOPES.iter().map(|scope| (*scope, make_key(&data, scope, &[]).1)).collect();
    let (_, expired) = make_key(&data, "admin,read,push", &["--expires-in", "1ms"]);
    let (doomed, revoked) = make_key(&data, "admin,push,pop", &[]);
    let node = Node::start(skep(), &data, &["--set", "log.access=false"]);
    let admin = [("authorization", format!("Bearer {}", keys[0].1))];
    let admin = [(admin[0].0, admin[0].1.as_str())];
    let gone = node.send("DELETE", &format!("/api/v1/keys/{doomed}"), &admin, None);
    assert_eq!(gone.status, 200, "{}", gone.body);
    let changes = || {
        let audit = node.send("GET", "/api/v1/audit", &admin, None).json();
        audit["entries"].as_array().expect("entries").len()
    };
    let before = changes();

    let all = operations(&node);
    let mut open = BTreeSet::new();
    for one in &all {
        let name = format!("{} {}", one.method, one.route);
        let (status, said) = send(&node, one, None);
        if one.scope == "none" {
            // What is not here at all says so to everybody.
            if status != 501 {
                open.insert(name);
            }
            continue;
        }
        assert_eq!((status, &*said), (401, "E_KEY_MISSING"), "{name} without a key");
        for (key, told) in [
            (&expired, "E_KEY_EXPIRED"),
            (&revoked, "E_KEY_REVOKED"),
            (&revoked.replace("skep_", "skep_x"), "E_KEY_WRONG"),
        ] {
            assert_eq!(send(&node, one, Some(key)), (401, told.to_owned()), "{name}");
        }
        for (scope, key) in keys.iter().filter(|(scope, _)| !one.lets_in(scope)) {
            let got = send(&node, one, Some(key));
            assert_eq!(got, (403, "E_SCOPE".to_owned()), "{name} with `{scope}`");
        }
    }
    let listed: BTreeSet<String> =
        OPEN.iter().chain([&LOGIN]).map(|name| (*name).to_owned()).collect();
    assert_eq!(open, listed, "the doors that are open are those that are listed");

    // Methods that nobody has described, on paths that somebody has.
    let paths: BTreeSet<&str> = all.iter().map(|one| one.path.as_str()).collect();
    for path in paths {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"] {
            let get = if method == "HEAD" { "GET" } else { method };
            if all.iter().any(|one| one.path == path && one.method == get) {
                continue;
            }
            let answer = node.send(method, path, &[], None);
            assert!([401, 404, 405].contains(&answer.status), "{method} {path}: {}", answer.body);
        }
    }
    assert_eq!(changes(), before, "nothing of all that has changed anything");
}

#[test]
fn ways_around_a_path_lead_to_no_other_door() {
    let folder = Folder::new("attack-doors");
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", &[]);
    let (_, pop) = make_key(&data, "pop", &[]);
    let node = Node::start(skep(), &data, &[]);
    // What one reader takes for an open path and another for a closed one.
    for target in [
        "//api/v1/keys",
        "/./api/v1/keys",
        "/health/../api/v1/keys",
        "/health/%2e%2e/api/v1/keys",
        "/assets/../api/v1/keys",
        "/assets/..%2fapi/v1/keys",
        "/assets/%2e%2e%2f%2e%2e%2fetc/passwd",
        "/assets/..\\..\\etc\\passwd",
        "/assets//etc/passwd",
        "/assets/%00",
        "/api/v1/keys/",
        "/api/v1/keys;health",
        "/api/v1/keys%20",
        "/api/v1/keys%2f",
        "/API/V1/KEYS",
        "/api/v1/%6beys",
        "/health%2f..%2fapi%2fv1%2fkeys",
        "http://localhost/api/v1/keys",
        "http://evil.example/api/v1/keys",
        "/api/v1/keys?key=admin#/health",
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = raw(node.address(), head.as_bytes());
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(["400", "401", "404", "405"].contains(&status), "{target}: {answer}");
        assert!(!answer.contains("root:") && !answer.contains("\"scopes\""), "{target}: {answer}");
    }
    // A second door of the same house: what a key may not do by itself it may not do in between.
    let bearer = format!("Bearer {pop}");
    let push = r#"{"operations":[{"type":"push","items":[{"queue":"q","payload":1}]}]}"#;
    let sneaked =
        node.send("POST", "/api/v1/transaction", &[("authorization", &bearer)], Some(push));
    assert_eq!((sneaked.status, &*code(&sneaked)), (403, "E_SCOPE"), "{}", sneaked.body);
    // Two keys: whichever is looked at, the other does not add to it.
    let both = [("authorization", bearer.as_str()), ("x-api-key", admin.as_str())];
    let answer = node.send("GET", "/api/v1/keys", &both, None);
    assert_eq!(code(&answer), "E_SCOPE", "{}", answer.body);
    for wrong in ["Basic YTpi", "Bearer", "Bearer  ", "bearer\tx", &format!("Token {admin}")] {
        let answer = node.send("GET", "/api/v1/keys", &[("authorization", wrong)], None);
        assert_eq!(answer.status, 401, "{wrong}");
    }
}

#[test]
fn the_gateway_lets_nobody_in_who_may_not() {
    let folder = Folder::new("attack-doors");
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", &[]);
    let (_, session) = make_key(&data, "session", &[]);
    let (_, read) = make_key(&data, "read", &[]);
    let (_, over) = make_key(&data, "session,read", &["--expires-in", "1ms"]);
    let node = Node::start(skep(), &data, &[]);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let ask = |path: &str, fields: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        let answer = one_answer(node.gateway(), head.as_bytes());
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let code = body["code"].as_str().unwrap_or_default().to_owned();
        (answer.split(' ').nth(1).unwrap_or_default().to_owned(), code)
    };
    let close = "Connection: close\r\n";
    for (key, told) in [
        (String::new(), "E_KEY_MISSING"),
        (format!("Authorization: Bearer {read}\r\n"), "E_SCOPE"),
        (format!("X-API-Key: {over}\r\n"), "E_KEY_EXPIRED"),
        ("X-API-Key: skep_k1_0\r\n".to_owned(), "E_KEY_WRONG"),
    ] {
        assert_eq!(ask("/v1/capacity", &format!("{key}{close}")).1, told, "{key}");
        assert_eq!(ask("/", &format!("{key}{upgrade}")).1, told, "{key}");
    }
    assert_eq!(ask(&format!("/?token={read}"), upgrade).1, "E_SCOPE");
    let good = format!("Authorization: Bearer {session}\r\n{close}");
    assert_eq!(ask("/v1/capacity", &good).0, "200");

    // A page of another origin on the same host has the cookie too: browsers do not look at ports
    // there, and for WebSockets they do not ask.
    let body = format!(r#"{{"key":"{admin}"}}"#);
    let login = node.send("POST", "/api/v1/session", &[], Some(&body));
    let cookie = login.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    for origin in ["http://localhost:3000", "https://evil.example", "null"] {
        let fields = format!("Cookie: {cookie}\r\nOrigin: {origin}\r\n");
        let (_, told) = ask("/", &format!("{fields}{upgrade}"));
        assert_eq!(told, "E_CROSS_SITE", "{origin}");
        assert_eq!(ask("/v1/capacity", &format!("{fields}{close}")).1, "E_CROSS_SITE");
    }
}
