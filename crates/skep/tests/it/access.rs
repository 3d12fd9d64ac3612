//! Who is let in, and who is not.

use crate::common::{run, skep};
use skep_testkit::{Folder, Node, Postgres, http::Answer};
use std::path::Path;

/// Makes a key in the database of a folder, before a node has it.
fn make_key(data: &Path, name: &str, scopes: &str, more: &[&str]) -> (String, String) {
    let data = data.display().to_string();
    let mut arguments =
        vec!["keys", "create", "--json", "--data", &data, "--name", name, "--scopes", scopes];
    arguments.extend(more);
    let (ended, log) = run(Path::new("/"), &arguments);
    assert_eq!(ended.code, 0, "{log}");
    let answer: serde_json::Value = serde_json::from_str(&log).expect("is JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    (text(&answer["key"]["id"]), text(&answer["secret"]))
}

fn with_key(node: &Node, method: &str, path: &str, key: &str) -> Answer {
    node.send(method, path, &[("authorization", &format!("Bearer {key}"))], None)
}

fn code(answer: &Answer) -> String {
    answer.json()["code"].as_str().unwrap_or_default().to_owned()
}

/// Every route of the description with its method and scope; parameters get a value.
fn routes(node: &Node) -> Vec<(String, String, String)> {
    let document = node.get("/api/openapi.json").json();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let scope = operation["x-scope"].as_str().unwrap_or_else(|| panic!("{path}: no scope"));
            let path = path.replace("{id}", "k000000000000").replace("{*path}", "app.js");
            let path = path.replace("{server}", "x").replace("{monitor}", "x");
            routes.push((method.to_uppercase(), path, scope.to_owned()));
        }
    }
    assert!(routes.len() > 10);
    routes
}

#[test]
fn without_any_key_this_machine_is_trusted_and_the_first_key_ends_that() {
    let folder = Folder::new("access");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    assert_eq!(node.get("/api/v1/session").json()["open"], true);
    let body = r#"{"name":"ops","scopes":["admin"]}"#;
    let made = node.send("POST", "/api/v1/keys", &[], Some(body));
    assert_eq!(made.status, 201, "{}", made.body);
    let refused = node.get("/api/v1/node");
    assert_eq!((refused.status, code(&refused)), (401, "E_KEY_MISSING".to_owned()));
    assert_eq!(refused.header("content-type"), "application/problem+json");
    let key = made.json()["secret"].as_str().expect("a key").to_owned();
    assert_eq!(with_key(&node, "GET", "/api/v1/node", &key).status, 200);
    let header = [("x-api-key", key.as_str())];
    assert_eq!(node.send("GET", "/api/v1/node", &header, None).status, 200);
    assert!(!node.process().log().contains(&key), "the key is in the log");
}

#[test]
fn every_route_asks_for_the_scope_that_its_description_names() {
    let folder = Folder::new("access");
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", "admin", &[]);
    let (_, agent) = make_key(&data, "agent", "agent", &[]);
    let (_, worker) = make_key(&data, "worker", "worker", &[]);
    let node = Node::start(skep(), &data, &[]);
    for (method, path, scope) in routes(&node) {
        // Of somebody who may do something else.
        let stranger = if scope == "agent" { &worker } else { &agent };
        if path.ends_with("/live") && scope != "none" {
            // A stream that is let in does not end by itself; that it is refused is seen below.
            assert_eq!(node.get(&path).status, 401, "{path}");
            continue;
        }
        let without = node.send(&method, &path, &[], None);
        if path == "/api/v1/backup" {
            // Whoever is let in gets bytes that are no text.
            assert_eq!(code(&without), "E_KEY_MISSING", "{method} {path}");
            assert_eq!(code(&with_key(&node, &method, &path, stranger)), "E_SCOPE", "{path}");
            continue;
        }
        let wrong = with_key(&node, &method, &path, &agent.replace('a', "b"));
        let other = with_key(&node, &method, &path, stranger);
        let let_in = with_key(&node, &method, &path, &admin);
        assert!(![401, 403].contains(&let_in.status) || path == "/api/v1/session", "{path}");
        if scope == "none" {
            assert!(![403].contains(&without.status), "{method} {path}: {}", without.body);
        } else {
            assert_eq!(code(&without), "E_KEY_MISSING", "{method} {path}");
            assert_eq!(code(&wrong), "E_KEY_WRONG", "{method} {path}");
            assert_eq!(code(&other), "E_SCOPE", "{method} {path}");
            assert!(other.body.contains(&scope), "{}", other.body);
        }
    }
}

#[test]
fn a_revoked_or_expired_key_is_told_so_on_every_node() {
    let (first_folder, second_folder) = (Folder::new("access"), Folder::new("access"));
    let database = Postgres::shared().database();
    let url = database.url();
    let shared = ["--database", url.as_str()];
    let (_, admin) = make_key(&first_folder.join("data"), "admin", "admin", &shared);
    let brief = [&shared[..], &["--expires-in", "1ms"]].concat();
    let (_, over) = make_key(&first_folder.join("data"), "brief", "read", &brief);
    let (id, doomed) = make_key(&first_folder.join("data"), "doomed", "read", &shared);
    let first = Node::start(skep(), &first_folder.join("data"), &shared);
    let second = Node::start(skep(), &second_folder.join("data"), &shared);
    for node in [&first, &second] {
        assert_eq!(code(&with_key(node, "GET", "/api/v1/node", &over)), "E_KEY_EXPIRED");
        assert_eq!(with_key(node, "GET", "/api/v1/node", &doomed).status, 200);
    }
    let revoked = with_key(&first, "DELETE", &format!("/api/v1/keys/{id}"), &admin);
    assert_eq!(revoked.status, 200, "{}", revoked.body);
    assert_eq!(code(&with_key(&first, "GET", "/api/v1/node", &doomed)), "E_KEY_REVOKED");
    skep_testkit::eventually("the other node has heard of it", || {
        let answer = with_key(&second, "GET", "/api/v1/node", &doomed);
        (answer.status == 401).then_some(())
    });
    let audit = with_key(&second, "GET", "/api/v1/audit", &admin).json();
    let actions: Vec<&str> = audit["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    assert_eq!(actions, ["key.revoke", "key.create", "key.create", "key.create"]);
    assert!(!audit.to_string().contains(&doomed), "a secret is in the audit log");
}

#[test]
fn a_login_needs_its_token_for_changes_and_ends_with_its_key() {
    let folder = Folder::new("access");
    let data = folder.join("data");
    let (id, admin) = make_key(&data, "admin", "admin", &[]);
    let node = Node::start(skep(), &data, &[]);
    let body = format!(r#"{{"key":"{admin}"}}"#);
    let login = node.send("POST", "/api/v1/session", &[], Some(&body));
    assert_eq!(login.status, 200, "{}", login.body);
    let set = login.header("set-cookie").to_owned();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    let cookie = set.split(';').next().expect("a cookie");
    let csrf = login.json()["csrf"].as_str().expect("a token").to_owned();
    assert_eq!(node.send("GET", "/api/v1/keys", &[("cookie", cookie)], None).status, 200);

    let new = r#"{"name":"x","scopes":["read"]}"#;
    let forged = node.send("POST", "/api/v1/keys", &[("cookie", cookie)], Some(new));
    assert_eq!(code(&forged), "E_CSRF");
    let headers = [("cookie", cookie), ("x-csrf-token", "0000")];
    assert_eq!(code(&node.send("POST", "/api/v1/keys", &headers, Some(new))), "E_CSRF");
    let headers = [("cookie", cookie), ("x-csrf-token", csrf.as_str())];
    assert_eq!(node.send("POST", "/api/v1/keys", &headers, Some(new)).status, 201);

    let changed = format!("{cookie}0");
    let answer = node.send("GET", "/api/v1/keys", &[("cookie", &changed)], None);
    assert_eq!(code(&answer), "E_LOGIN_OVER");
    let revoked = node.send("DELETE", &format!("/api/v1/keys/{id}"), &headers, None);
    assert_eq!(revoked.status, 200, "{}", revoked.body);
    let answer = node.send("GET", "/api/v1/keys", &[("cookie", cookie)], None);
    assert_eq!(code(&answer), "E_KEY_REVOKED");
    assert_eq!(node.get("/api/v1/session").json()["login_required"], true, "it stays closed");
    let log = node.process().log();
    assert!(!log.contains(&admin) && !log.contains(cookie), "a secret is in the log");
}

/// Opens a live stream and reads until the node ends it.
fn follow(node: &Node, key: Option<&str>) -> std::thread::JoinHandle<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(node.address()).expect("connects");
    stream.set_read_timeout(Some(skep_testkit::PATIENCE)).expect("a timeout can be set");
    let key = key.map(|key| format!("X-API-Key: {key}\r\n")).unwrap_or_default();
    let head = format!("GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n{key}\r\n");
    stream.write_all(head.as_bytes()).expect("writes");
    let mut begin = vec![0; 12];
    stream.read_exact(&mut begin).expect("it begins");
    assert_eq!(begin, b"HTTP/1.1 200");
    std::thread::spawn(move || {
        let mut seen = Vec::new();
        let mut part = [0; 4_096];
        while let Ok(read @ 1..) = stream.read(&mut part) {
            seen.extend_from_slice(&part[..read]);
            if seen.ends_with(b"0\r\n\r\n") {
                return "ended".to_owned();
            }
        }
        "cut".to_owned()
    })
}

#[test]
fn a_stream_ends_with_the_permission_it_was_opened_with() {
    let folder = Folder::new("access");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let trusted = follow(&node, None);
    let body = r#"{"name":"ops","scopes":["admin"]}"#;
    let made = node.send("POST", "/api/v1/keys", &[], Some(body)).json();
    assert_eq!(trusted.join().expect("reads"), "ended", "the first key ends trust");
    let (key, id) = (made["secret"].as_str().expect("a key"), made["key"]["id"].as_str());
    let known = follow(&node, Some(key));
    let path = format!("/api/v1/keys/{}", id.expect("an id"));
    assert_eq!(with_key(&node, "DELETE", &path, key).status, 200);
    assert_eq!(known.join().expect("reads"), "ended", "revoking ends it");
}

#[test]
fn a_key_pasted_in_the_wrong_place_is_not_repeated() {
    let folder = Folder::new("access");
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", "admin", &[]);
    let node = Node::start(skep(), &data, &[]);
    let secret = admin.rsplit('_').next().expect("a secret");
    let mut answers = vec![
        node.send("GET", &format!("/api/v1/{admin}"), &[], None).body,
        with_key(&node, "DELETE", &format!("/api/v1/keys/{admin}"), &admin).body,
        node.send("POST", "/api/v1/session", &[], Some(&format!("\"{admin}\""))).body,
    ];
    let (_, log) = run(folder.path(), &["keys", "revoke", &format!("{admin}!")]);
    answers.push(log);
    node.send("GET", "/health", &[("x-request-id", "the-last-one")], None);
    node.process().wait_for_line("the-last-one");
    answers.push(node.process().log());
    assert!(answers.iter().all(|text| !text.contains(secret)), "{answers:#?}");
}

#[test]
fn failed_logins_are_slowed_down_and_keys_are_not() {
    let folder = Folder::new("access");
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", "admin", &[]);
    let node = Node::start(skep(), &data, &[]);
    let attempt = || node.send("POST", "/api/v1/session", &[], Some(r#"{"key":"skep_wrong"}"#));
    let limited = (0..20).map(|_| attempt()).find(|answer| answer.status == 429);
    let limited = limited.expect("the limit comes within twenty");
    assert_eq!(code(&limited), "E_LOGIN_TOO_OFTEN");
    let wait: u64 = limited.header("retry-after").parse().expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    let body = format!(r#"{{"key":"{admin}"}}"#);
    let right = node.send("POST", "/api/v1/session", &[], Some(&body));
    assert_eq!(right.status, 200, "others may share the address with whoever guesses");
    assert_eq!(with_key(&node, "GET", "/api/v1/keys", &admin).status, 200);
}

#[test]
fn while_this_machine_is_trusted_pages_of_others_are_not() {
    let folder = Folder::new("access");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let rebound = node.send("GET", "/api/v1/node", &[("host", "evil.example")], None);
    assert_eq!(code(&rebound), "E_HOST");
    let host = node.address().replace("127.0.0.1", "localhost");
    assert_eq!(node.send("GET", "/api/v1/node", &[("host", &host)], None).status, 200);
    let new = r#"{"name":"x","scopes":["admin"]}"#;
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let foreign = [("origin", origin)];
        let answer = node.send("POST", "/api/v1/keys", &foreign, Some(new));
        assert_eq!(code(&answer), "E_CROSS_SITE", "{origin}");
        assert_eq!(code(&node.send("GET", "/api/v1/keys", &foreign, None)), "E_CROSS_SITE");
    }
    let answer = node.send("POST", "/api/v1/keys", &[("sec-fetch-site", "cross-site")], Some(new));
    assert_eq!(code(&answer), "E_CROSS_SITE");
    for name in ["x-forwarded-for", "forwarded", "via"] {
        let answer = node.send("GET", "/api/v1/node", &[(name, "203.0.113.9")], None);
        assert_eq!(code(&answer), "E_KEY_MISSING", "{name}: a proxy speaks for somebody else");
    }
    let stale = [("cookie", "skep_login=k1.1.1.1")];
    assert_eq!(node.send("GET", "/api/v1/node", &stale, None).status, 200);
    let own = node.url("");
    assert_eq!(node.send("POST", "/api/v1/keys", &[("origin", &own)], Some(new)).status, 201);
}

#[test]
fn a_node_that_others_can_reach_does_not_start_without_a_key() {
    let folder = Folder::new("access");
    let data = folder.join("data").display().to_string();
    let arguments = ["serve", "--listen", "0.0.0.0:0", "--data", &data];
    let (ended, log) = run(folder.path(), &arguments);
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("skep keys add") && log.contains("--insecure"), "{log}");

    let open = [&arguments[..], &["--insecure"]].concat();
    let command = crate::common::command(folder.path(), &open);
    let mut node = Node::watch(skep_testkit::Process::start("skep", &command, "KILL"));
    node.wait_until_ready();
    node.process().wait_for_line("may do anything");
    assert_eq!(node.stop().code, 0);

    make_key(&folder.join("data"), "admin", "admin", &[]);
    let command = crate::common::command(folder.path(), &arguments);
    let mut node = Node::watch(skep_testkit::Process::start("skep", &command, "KILL"));
    node.wait_until_ready();
    assert_eq!(node.stop().code, 0);
}

#[test]
fn keys_are_managed_through_a_running_node_too() {
    let folder = Folder::new("access");
    let data = folder.join("data").display().to_string();
    let node = Node::start(skep(), &folder.join("data"), &[]);
    // The folder is in use, so the node is asked, where the settings say it listens.
    let listen = ["--data", &data, "--listen", node.address()];
    let create = ["keys", "create", "--json", "--name", "ops", "--scopes", "admin"];
    let (ended, log) = run(folder.path(), &[&create[..], &listen].concat());
    assert_eq!(ended.code, 0, "{log}");
    let made: serde_json::Value = serde_json::from_str(&log).expect("is JSON");
    let key = made["secret"].as_str().expect("a key");
    let (ended, log) = run(folder.path(), &[&["keys", "ls"][..], &listen].concat());
    assert_eq!(ended.code, 77, "without the key: {log}");
    assert!(log.contains("E_KEY_MISSING"), "{log}");
    let list = [&["keys", "ls", "--key", key][..], &listen].concat();
    let (ended, log) = run(folder.path(), &list);
    assert_eq!(ended.code, 0, "{log}");
    assert!(log.contains("ops") && !log.contains(key), "{log}");
    let url = node.url("");
    let asking = ["--url", url.as_str(), "--key", key];
    let (ended, log) = run(folder.path(), &[&["log", "level", "warn"][..], &asking].concat());
    assert_eq!((ended.code, log.trim()), (0, "warn"));
    let (_, log) = run(folder.path(), &[&["audit"][..], &asking].concat());
    assert!(log.contains("log.level") && log.contains("key.create"), "{log}");
    let (ended, log) =
        run(folder.path(), &[&["keys", "revoke", "k000000000000"][..], &asking].concat());
    assert_eq!(ended.code, 1, "{log}");
    assert!(log.contains("E_KEY_UNKNOWN"), "{log}");
}
