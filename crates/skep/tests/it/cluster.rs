//! The cluster's routes of a node that is alone, and `skep cluster`.

use crate::cluster_told::{Told, balance};
use crate::common::{command, run, skep};
use serde_json::{Value, json};
use skep_policy::explain::would;
use skep_testkit::{Folder, Node};

const CLUSTER: &str = "/api/v1/cluster";

fn start(folder: &Folder) -> Node {
    Node::start(skep(), &folder.join("data"), &["--set", "node.name=a"])
}

/// Runs a verb of the cluster against `url`.
fn verb(folder: &Folder, url: &str, arguments: &[&str]) -> (i32, String) {
    let all = [&["cluster"], arguments, &["--url", url]].concat();
    let (ended, log) = run(folder.path(), &all);
    (ended.code, log)
}

#[test]
fn a_node_that_is_alone_says_so_everywhere() {
    let folder = Folder::new("cluster");
    let node = start(&folder);
    let seen = node.get(&format!("{CLUSTER}/balance")).json();
    assert_eq!((&seen["balanced"], &seen["forwarding"]), (&json!(true), &json!("alone")));
    assert_eq!((&seen["here"], &seen["imbalance_score"]), (&json!("a"), &json!(0.0)));
    let server = &seen["servers"][0];
    assert_eq!(seen["servers"].as_array().map(Vec::len), Some(1));
    assert_eq!((&server["server_id"], &server["healthy"]), (&json!("a"), &json!(true)));
    assert_eq!(server["url"], json!(node.url("")));
    assert!(server["load_score"].as_f64().is_some_and(|load| (0.0..=1.0).contains(&load)));
    let seen = node.get(&format!("{CLUSTER}/status")).json();
    assert_eq!((&seen["forwarding"], &seen["draining"]), (&json!("alone"), &json!(false)));
    let seen = node.get(&format!("{CLUSTER}/affinity?limit=10")).json();
    assert_eq!(seen, json!({ "entries": [], "total": 0 }));
    // Whoever has asked before it started anew is led back.
    for path in ["moves", "moves?after=7"] {
        let seen = node.get(&format!("{CLUSTER}/{path}")).json();
        assert_eq!(seen, json!({ "moves": [], "next": 0 }));
    }
    let seen = node.get(&format!("{CLUSTER}/explain?queue=orders&partition=7&group=mail")).json();
    assert_eq!((&seen["key"], &seen["for"]), (&json!("orders:7:mail"), &json!("pop")));
    assert_eq!((&seen["place"], &seen["here"]), (&json!("a"), &json!(true)));
    let seen = node.get(&format!("{CLUSTER}/explain?key=orders:mail&for=push")).json();
    assert_eq!((&seen["key"], &seen["for"]), (&json!("orders:mail"), &json!("push")));
}

#[test]
fn what_is_wrong_with_a_question_is_named() {
    let folder = Folder::new("cluster");
    let node = start(&folder);
    for (path, part) in [
        ("explain", "name one thing"),
        ("explain?key=a:b&queue=a", "name one thing"),
        ("explain?key=a:b&for=peek", "for cannot be \\\"peek\\\", it must be pop or push"),
        ("explain?kee=a:b", "unknown field `kee`"),
        ("affinity?limit=0", "limit cannot be \\\"0\\\", it must be a whole number from 1 to 1000"),
        ("affinity?limit=1001", "from 1 to 1000"),
        ("moves?after=soon", "after"),
    ] {
        let answer = node.get(&format!("{CLUSTER}/{path}"));
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert!(answer.body.contains("E_QUERY_INVALID"), "{path}: {}", answer.body);
        assert!(answer.body.contains(part), "{path}: {}", answer.body);
    }
    let drain =
        |body: Value| node.send("POST", &format!("{CLUSTER}/drain"), &[], Some(&body.to_string()));
    let answer = drain(json!({ "node": "b" }));
    assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("E_NODE_UNKNOWN")));
    assert!(answer.body.contains("there is no node \\\"b\\\"; there are: a"), "{}", answer.body);
    let answer = drain(json!({ "node": "a" }));
    assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("E_NODE_LAST")));
    let answer = drain(json!({ "nodes": ["a"] }));
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("E_BODY_INVALID")));
    assert_eq!(node.get("/health/ready").status, 200, "nothing was drained");
}

#[test]
fn draining_is_for_admins_and_looking_for_those_who_may_read() {
    let folder = Folder::new("cluster");
    let node = start(&folder);
    let key = |name: &str, scope: &str, with: &[(&str, &str)]| {
        let body = json!({ "name": name, "scopes": [scope] }).to_string();
        let made = node.send("POST", "/api/v1/keys", with, Some(&body)).json();
        format!("Bearer {}", made["secret"].as_str().expect("a secret"))
    };
    let admin = key("admin", "admin", &[]);
    let admin = [("authorization", admin.as_str())];
    let reader = key("reader", "read", &admin);
    let pusher = key("pusher", "push", &admin);
    let status = |method: &str, path: &str, key: &str| {
        let body = (method == "POST").then_some(r#"{ "node": "b" }"#);
        node.send(method, &format!("{CLUSTER}/{path}"), &[("authorization", key)], body).status
    };
    for path in ["balance", "status", "affinity", "moves", "explain?key=a"] {
        assert_eq!(status("GET", path, &reader), 200, "{path}");
        assert_eq!(status("GET", path, &pusher), 403, "{path}");
    }
    assert_eq!(status("POST", "drain", &reader), 403);
    assert_eq!(status("POST", "drain", admin[0].1), 404, "it may, but there is none");
}

#[test]
fn tables_tell_how_every_node_is() {
    let folder = Folder::new("cluster");
    let node = start(&folder);
    let told = Told::before(&node);
    let mut three = balance(&[("b", 0.92), ("c", 0.2)]);
    three["balanced"] = json!(false);
    three["imbalance_score"] = json!(3.6);
    three["servers"][1]["breaker"] = json!("open");
    three["servers"][1]["breaker_reopens_ms"] = json!(3_200);
    three["servers"][1]["healthy"] = json!(false);
    three["servers"][2]["draining"] = json!(true);
    told.set_balance(three.clone());
    let (code, table) = verb(&folder, &told.url(""), &["balance"]);
    assert_eq!(code, 0, "{table}");
    for part in [
        "a (this one)",
        "healthy",
        "failing",
        "draining",
        "0.92 ██████████",
        "0.20 ██░░░░░░░░",
        "open for 3.2s",
        "140us / 590us",
        "0.7s ago",
        "not balanced, imbalance 3.60; forwarding is on; 4 migrations and 1 breaks, 2 in the last",
    ] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
    for place in [1, 2] {
        three["servers"][place]["alive"] = json!(false);
    }
    told.set_balance(three);
    let (_, table) = verb(&folder, &told.url(""), &["balance"]);
    for part in ["not heard", "left"] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
    let (code, json) = verb(&folder, &told.url(""), &["balance", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("is JSON");
    assert_eq!((code, &json["servers"][1]["breaker"]), (0, &json!("open")));
    assert_eq!(json["flows"][0], json!({ "from": "a", "to": "b", "forwarded": 7 }));
    let (code, table) = verb(&folder, &told.url(""), &["status"]);
    assert_eq!(code, 0, "{table}");
    for part in [
        "0.0.0.0:6634",
        "5 forged, 1 replayed, 2 malformed, 0 of another version, 3 stale, 0 crowded",
        "nothing: no such host",
        "120 sent, 0 unsent, 118 received",
        "a, b",
    ] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
}

#[test]
fn a_live_table_is_shown_so_many_times_and_moves_only_once() {
    let folder = Folder::new("cluster");
    let node = start(&folder);
    let told = Told::before(&node);
    told.add_move("orders:mail", ("b", "c"), "break");
    let watched = ["balance", "--watch", "--count", "2", "--json"];
    let (code, lines) = verb(&folder, &told.url(""), &watched);
    assert_eq!((code, lines.lines().count()), (0, 2), "{lines}");
    for line in lines.lines() {
        let seen: Value = serde_json::from_str(line).expect("is JSON");
        assert_eq!(seen["here"], json!("a"));
    }
    let (code, table) = verb(&folder, &told.url(""), &["moves", "--watch", "--count", "2"]);
    assert_eq!((code, table.matches("orders:mail").count()), (0, 1), "{table}");
    assert!(table.contains("load 0.93 to 0.31, better by 0.62"), "{table}");
    // The id that the list prints is the one that is explained.
    assert!(table.contains("move:a/1"), "{table}");
    let mut explain = command(folder.path(), &["explain", "move:a/1", "--json"]);
    let output = explain.env("SKEP_URL", told.url("")).output().expect("starts");
    let moved: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!((&moved["id"], &moved["rule"]), (&json!("move:a/1"), &json!("break")), "{moved}");
    assert_eq!(moved["would_change"], json!([would::MOVED]));
    let (code, table) = verb(&folder, &told.url(""), &["moves", "--after", "1"]);
    assert_eq!((code, table.trim()), (0, "no key has moved"));
    let (code, _) = verb(&folder, &told.url(""), &["balance", "--count", "2"]);
    assert_eq!(code, 64, "--count is of --watch");
}

#[test]
fn affinity_explain_and_drain_say_what_the_node_says() {
    let folder = Folder::new("cluster");
    let node = start(&folder);
    let told = Told::before(&node);
    let (code, table) = verb(&folder, &told.url(""), &["affinity"]);
    assert_eq!((code, table.trim()), (0, "nobody has popped anything lately"));
    told.set_affinity(&[("orders:mail", "b", true), ("bills:__QUEUE_MODE__", "c", false)]);
    let (_, table) = verb(&folder, &told.url(""), &["affinity"]);
    for part in ["orders:mail", "a move", "bills:(those who name none)", "its name", "2 of 2"] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
    let (code, table) = verb(&folder, &told.url(""), &["explain", "orders:mail"]);
    assert_eq!(code, 0, "{table}");
    assert!(table.contains("b owns the key"), "{table}");
    let parts = ["explain", "--queue", "a b", "--partition", "7", "--for", "push"];
    assert_eq!(verb(&folder, &told.url(""), &parts).0, 0);
    assert_eq!(told.explained(), ["key=orders%3Amail&for=pop", "queue=a%20b&partition=7&for=push"]);
    for wrong in [
        &["explain"][..],
        &["explain", "a", "--queue", "b"],
        &["explain", "--namespace", "a"],
        &["explain", "--partition", "1"],
        &["explain", "a", "--for", "peek"],
        &["drain"],
    ] {
        assert_eq!(verb(&folder, &told.url(""), wrong).0, 64, "{wrong:?}");
    }
    let (code, table) = verb(&folder, &told.url(""), &["drain", "b"]);
    assert_eq!((code, table.contains("b drains")), (0, true), "{table}");
    assert_eq!(told.drained(), ["b"]);
    let (code, told) = verb(&folder, &node.url(""), &["drain", "b"]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("there are: a (`skep explain E_NODE_UNKNOWN`)"), "{told}");
}

#[test]
fn a_node_does_not_start_exposed_without_a_secret_and_the_secret_is_never_shown() {
    let folder = Folder::new("cluster");
    let exposed = ["config", "print", "--set", "cluster.listen=0.0.0.0:6634"];
    let (ended, log) = run(folder.path(), &exposed);
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("without `cluster.secret` anybody could steer requests"), "{log}");
    let secret = "cluster.secret=correct horse battery";
    let (ended, log) = run(folder.path(), &[&exposed[..], &["--set", secret]].concat());
    assert_eq!(ended.code, 0, "{log}");
    assert!(log.contains("(set)") && !log.contains("correct horse"), "{log}");
}

#[test]
fn a_file_names_peers_as_a_list_and_what_is_wrong_with_it_by_its_line() {
    let folder = Folder::new("cluster");
    let check = |text: &str| {
        std::fs::write(folder.join("skep.toml"), text).expect("writes");
        let (ended, log) = run(folder.path(), &["config", "check", "skep.toml"]);
        (ended.code, log)
    };
    let good = "[cluster]\npeers = [\"node-2:6634\", \"[::1]:6635\"]\nheartbeat = \"500ms\"\n";
    let (code, log) = check(good);
    assert_eq!(code, 0, "{log}");
    assert_eq!(check("[cluster]\npeers = []\nzone = \"eu-1\"\n").0, 0);
    let (code, log) = check("[cluster]\npeers = [\"node-2:6634\", \"node-3\"]\n");
    assert_eq!(code, 64);
    assert!(log.contains("skep.toml:2: `cluster.peers` cannot be"), "{log}");
    assert!(log.contains("\"node-3\" has no port, as in node-2:6634"), "{log}");
    let (code, log) = check("[cluster]\nheartbeat_ms = 1000\n");
    assert_eq!(code, 64);
    assert!(log.contains("did you mean `cluster.heartbeat`?"), "{log}");
}
