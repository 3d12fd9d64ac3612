//! A page of somebody else, open in a browser that reaches the node.

use super::kit::{code, make_key, raw};
use crate::common::skep;
use serde_json::json;
use skep_testkit::{Folder, Node, WebSocket};

const MESSAGE: &str = r#"{"items":[{"queue":"orders","payload":{"id":17}}]}"#;

/// Messages that nobody has taken.
fn left(node: &Node, with: &[(&str, &str)]) -> u64 {
    let depth = node.send("GET", "/api/v1/resources/queues/orders/depth", with, None);
    assert_eq!(depth.status, 200, "{}", depth.body);
    let depth = depth.json();
    depth["pending"].as_u64().or(depth["depth"].as_u64()).unwrap_or_else(|| panic!("{depth}"))
}

#[test]
fn a_page_of_another_site_gets_nothing_of_a_node_that_trusts_its_machine() {
    let folder = Folder::new("attack-pages");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    assert_eq!(node.send("POST", "/api/v1/push", &[], Some(MESSAGE)).status, 201);
    let pop = "/api/v1/pop/queue/orders?autoAck=true";
    // An image, a script, a link: browsers send no Origin with these, and popping is a GET.
    for site in ["cross-site", "same-site"] {
        for path in [pop, "/api/v1/keys", "/metrics", "/api/v1/live"] {
            let answer = node.send("GET", path, &[("sec-fetch-site", site)], None);
            assert_eq!(code(&answer), "E_CROSS_SITE", "{site} {path}");
        }
    }
    assert_eq!(left(&node, &[]), 1, "nobody has taken the message");
    for site in ["same-origin", "none"] {
        let own = [("sec-fetch-site", site)];
        assert_eq!(node.send("GET", "/api/v1/keys", &own, None).status, 200, "{site}");
    }
    // A form can send these without asking first.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let body = r#"{"name":"x","scopes":["admin"]}"#;
        let head = format!(
            "POST /api/v1/keys HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = raw(node.address(), head.as_bytes());
        assert!(answer.contains("E_BODY_TYPE"), "{kind}: {answer}");
    }
    // A name of the page's own that leads to this machine.
    let own = node.address().to_owned();
    let port = own.rsplit(':').next().expect("a port");
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example#localhost",
        "localhost@evil.example",
        "0x7f000001",
        "[::ffff:1.2.3.4]",
        "192.168.1.7",
        "",
    ] {
        for (place, path) in [(&*own, "/api/v1/node"), (node.gateway(), "/v1/capacity")] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = raw(place, head.as_bytes());
            let refused = answer.contains("E_HOST") || answer.starts_with("HTTP/1.1 400");
            assert!(refused, "{host} at {path}: {answer}");
        }
    }
    // Two names, or one in the target and another in the field.
    let heads = [
        "GET /api/v1/node HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
        "GET /api/v1/node HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n",
        "GET http://evil.example/api/v1/node HTTP/1.1\r\nHost: localhost\r\n",
        "GET /api/v1/node HTTP/1.0\r\n",
    ];
    let served = |head: &&str| {
        let answer = raw(&own, format!("{head}Connection: close\r\n\r\n").as_bytes());
        answer.split(' ').nth(1) == Some("200")
    };
    let believed: Vec<&str> = heads.into_iter().filter(served).collect();
    assert!(believed.is_empty(), "{believed:?}");
    let worker = skep_testkit::EchoWorker::start();
    let body = json!({ "name": "w", "kind": "chromium", "url": worker.url(), "start": "s" });
    let path = "/api/v1/sessions/workers";
    assert_eq!(node.send("POST", path, &[], Some(&body.to_string())).status, 200);
    let foreign = WebSocket::connect(node.gateway(), "/", &[("Origin", "https://evil.example")]);
    assert_eq!(foreign.refusal()["code"], "E_CROSS_SITE");
    assert_eq!(WebSocket::connect(node.gateway(), "/", &[]).status(), 101);
}

#[test]
fn a_page_beside_the_dashboard_cannot_use_its_login() {
    let folder = Folder::new("attack-pages");
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", &[]);
    let node = Node::start(skep(), &data, &[]);
    let bearer = format!("Bearer {admin}");
    let known = [("authorization", bearer.as_str())];
    assert_eq!(node.send("POST", "/api/v1/push", &known, Some(MESSAGE)).status, 201);
    let body = format!(r#"{{"key":"{admin}"}}"#);
    let login = node.send("POST", "/api/v1/session", &[], Some(&body));
    let set = login.header("set-cookie").to_owned();
    for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(word), "{set}");
    }
    let cookie = set.split(';').next().expect("a cookie");
    let csrf = login.json()["csrf"].as_str().expect("a token").to_owned();
    // Another port of the same host is the same site for a browser: the cookie comes along.
    let pop = "/api/v1/pop/queue/orders?autoAck=true";
    let stolen = node.send("GET", pop, &[("cookie", cookie)], None);
    assert_eq!(code(&stolen), "E_CSRF", "popping changes something: {}", stolen.body);
    let beside = [("cookie", cookie), ("sec-fetch-site", "same-site")];
    assert_eq!(code(&node.send("GET", "/api/v1/keys", &beside, None)), "E_CROSS_SITE");
    // The handshake of a WebSocket has nothing but its origin.
    let beside = [("cookie", cookie), ("origin", "http://127.0.0.1:1")];
    assert_eq!(code(&node.send("GET", "/api/v1/live", &beside, None)), "E_CROSS_SITE");
    let own = node.url("");
    let own = [("cookie", cookie), ("origin", own.as_str())];
    assert_eq!(node.send("GET", "/api/v1/keys", &own, None).status, 200);
    assert_eq!(left(&node, &known), 1, "nobody has taken the message");
    let meant = [("cookie", cookie), ("x-csrf-token", csrf.as_str())];
    assert_eq!(node.send("GET", pop, &meant, None).status, 200);
    // A login of the attacker's own choosing, by a form.
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let head = format!(
            "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = raw(node.address(), head.as_bytes());
        assert!(!answer.to_ascii_lowercase().contains("set-cookie: skep_login=k"), "{answer}");
    }
    // Whatever is answered forbids to be framed, guessed at, and to load from elsewhere.
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/assets/app.js"),
        ("GET", "/api/v1/keys"),
        ("GET", "/nowhere"),
        ("PATCH", "/api/v1/keys"),
        ("GET", "/health"),
        ("GET", "/api/openapi.json"),
    ] {
        let answer = node.send(method, path, &[("origin", "https://evil.example")], None);
        let policy = answer.header("content-security-policy");
        for rule in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "", "{path}");
        assert_eq!(answer.header("access-control-allow-credentials"), "", "{path}");
    }
}
