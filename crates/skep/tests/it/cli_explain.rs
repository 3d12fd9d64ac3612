//! `skep explain` of decisions that a real node made.

use crate::cli_queues::Place;
use crate::common::until;
use serde_json::{Value, json};
use skep_testkit::{EchoWorker, WebSocket};

/// Every explanation has all of these.
const FIELDS: [&str; 11] = [
    "id",
    "decided",
    "by",
    "at_ms",
    "rule",
    "why",
    "numbers",
    "candidates",
    "would_change",
    "kept",
    "see",
];

/// Asks as programs and as people do, and gives what programs get.
fn explained(place: &Place, id: &str) -> Value {
    let told = place.json(&["explain", id]);
    for field in FIELDS {
        assert!(told.get(field).is_some(), "{id}: {field} is missing: {told}");
    }
    for field in ["id", "decided", "rule", "kept"] {
        assert!(told[field].as_str().is_some_and(|text| !text.is_empty()), "{id}: {field}: {told}");
    }
    let said = place.skep(&["explain", id]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for part in ["  decided   ", "  when      ", "  rule      ", "  kept      "] {
        assert!(said.text.contains(part), "{id}: {part:?}: {}", said.text);
    }
    told
}

fn taken(told: &Value) -> Vec<&str> {
    let candidates = told["candidates"].as_array().expect("candidates").iter();
    candidates.filter(|one| one["taken"] == true).filter_map(|one| one["who"].as_str()).collect()
}

#[test]
fn every_kind_of_decision_is_explained_in_the_same_form() {
    let name = ["--set", "node.name=web-1"];
    let place = Place::with(&name);
    let ok = |arguments: &[&str]| {
        let said = place.skep(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.text
    };
    ok(&["polls", "add", "shop", "--tcp", "127.0.0.1:9", "--interval", "1h"]);
    ok(&["servers", "add", "ntp-1", "--ip", "192.0.2.17"]);
    ok(&["monitors", "add", "ams-3", "--ip", "192.0.2.7", "--status", "active", "--no-key"]);
    ok(&["routes", "add", "shop", "--host", "shop.example", "--to", "127.0.0.1:9"]);

    // Who polls an endpoint.
    let moved =
        || !place.json(&["polls", "show", "shop"])["moves"].as_array().expect("moves").is_empty();
    until("somebody polls it", moved);
    let told = explained(&place, "poll:shop");
    assert_eq!((taken(&told), &told["rule"]), (vec!["web-1"], &json!("unowned")));
    let shown = ok(&["polls", "show", "shop"]);
    assert!(shown.contains("skep explain poll:shop"), "{shown}");

    // Who watches a server: the whole, one of them, and a change.
    ok(&["servers", "review", "ntp-1"]);
    let history = || place.json(&["servers", "history", "ntp-1"])["changes"].clone();
    until("it is reviewed", || history().as_array().is_some_and(|found| !found.is_empty()));
    let told = explained(&place, "monitor:ntp-1/ams-3");
    assert!(told["why"].as_str().expect("why").contains("own /24"), "{told}");
    assert_eq!(told["candidates"][0]["who"], "ams-3");
    explained(&place, "server:ntp-1");
    let id = format!("change:ntp-1/{}", history()[0]["id"]);
    assert!(ok(&["servers", "history", "ntp-1"]).contains(&id));
    assert!(explained(&place, &id)["decided"].as_str().expect("text").contains("became paused"));

    // Where requests go.
    assert_eq!(taken(&explained(&place, "key:orders:mail")), ["web-1"]);
    assert_eq!(explained(&place, "node:web-1")["rule"], "healthy");
    let told = explained(&place, "route:http://shop.example/cart");
    assert_eq!(taken(&told), ["127.0.0.1:9"]);

    // How many workers a pool has.
    let shown = place.json(&["pools", "show", "critical"]);
    let number = format!("scale:web-1/{}", shown["scaling"][0]["number"]);
    assert!(ok(&["pools", "show", "critical"]).contains(&number));
    assert_eq!(explained(&place, &number)["rule"], "below-minimum");
    assert_eq!(explained(&place, "pool:web-1/critical")["numbers"]["queue"], 0.0);

    // What became of messages.
    ok(&["push", "orders", "{\"id\": 17}"]);
    let popped = place.json(&["pop", "orders"]);
    let of = |field: &str| popped["messages"][0][field].as_str().expect(field).to_owned();
    let (partition, transaction) = (of("partitionId"), of("transactionId"));
    let message = format!("message:{partition}/{transaction}");
    assert_eq!(explained(&place, &message)["rule"], "processing");
    let lease = format!("--lease={}", of("leaseId"));
    let why = "no such customer";
    ok(&["ack", &lease, "--status", "dlq", "--error", why, &partition, &transaction]);
    let letters = place.json(&["dlq", "ls", "orders"]);
    let letter = format!("letter:{}", letters["messages"][0]["id"].as_str().expect("an id"));
    assert_eq!(explained(&place, &letter)["candidates"][0]["why"], why);
    let redrive = place.json(&["dlq", "retry", "--queue", "orders"]);
    explained(&place, &format!("redrive:{}", redrive["id"].as_str().expect("an id")));

    // Who asked for what, and who changed what.
    let answer = place.node.get("/api/v1/nothing");
    let id = answer.header("x-request-id").to_owned();
    let is_logged = || place.skep(&["explain", &id]).code == Some(0);
    until("it is in the log", is_logged);
    assert!(explained(&place, &id)["decided"].as_str().expect("text").contains("404"));
    let audit = place.json(&["audit", "--limit", "1"]);
    let id = format!("audit:{}", audit[0]["id"]);
    assert!(ok(&["audit"]).contains(&id));
    assert_eq!(explained(&place, &id)["rule"], audit[0]["action"]);
}

#[test]
fn a_session_is_explained_by_its_id_and_a_worker_by_its_name() {
    let place = Place::new();
    let echo = EchoWorker::start();
    for (name, labels) in [("browser-1", json!(["eu"])), ("browser-2", json!([]))] {
        let body = json!({ "name": name, "kind": "chromium", "url": echo.url(), "start": name,
                           "slots": 1, "labels": labels });
        let path = "/api/v1/sessions/workers";
        let answer = place.node.send("POST", path, &[], Some(&body.to_string()));
        assert!(answer.status < 300, "{}", answer.body);
    }
    let client = WebSocket::connect(place.node.gateway(), "/?kind=chromium&label=eu", &[]);
    let id = client.session().expect("it has an id");
    let told = explained(&place, &id);
    assert_eq!(taken(&told), ["browser-1"]);
    assert_eq!(told["id"], format!("session:{id}"));
    let others = told["candidates"][1]["who"].as_str().expect("the others");
    assert!(others.starts_with("1 "), "{told}");

    assert_eq!(explained(&place, "worker:browser-1")["rule"], "full");
    assert_eq!(taken(&explained(&place, "kind:chromium")), ["browser-2"]);
    let told = explained(&place, "kind:chromium,eu");
    assert_eq!(told["rule"], "nobody-free");
    assert_eq!(told["candidates"][0]["numbers"]["active"], 1);
    drop(client);
    // What is over is explained for as long as its node remembers it.
    let gone = || place.skep(&["sessions", "show", &id]).code == Some(1);
    until("the session is over", gone);
    assert_eq!(taken(&explained(&place, &id)), ["browser-1"]);
}

#[test]
fn what_is_not_there_is_told_with_what_is_and_with_the_right_code() {
    let place = Place::new();
    let said = place.skep(&["polls", "add", "shop", "--tcp", "127.0.0.1:9", "--interval", "1h"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for (id, code, part) in [
        ("poll:shp", 1, "did you mean poll:shop?"),
        ("poll:shop@9.9", 1, "there is nothing to explain about poll:shop@9.9"),
        ("session:s-1f2e3d-42", 1, "the last 256 choices of each node"),
        ("move:7", 1, "kept: the last 1,000"),
        ("scale:7777", 1, "kept: the last 256"),
        ("dead:4f1a0c9e55d2b37a", 1, "until it is tried again"),
        ("request:r-0", 1, "access_log.keep"),
        ("monitor:ntp-1/ams-3", 1, "there is nothing to explain"),
        ("pool:critcal", 1, "did you mean pool:critical?"),
        ("scale:elsewhere/1", 1, "node:elsewhere"),
        ("monitor:ntp-1", 64, "give monitor:SERVER/MONITOR"),
        ("scale:soon", 64, "give scale:[NODE/]NUMBER"),
        ("polll:shop", 64, "did you mean poll:shop?"),
        ("shop", 64, "says no kind"),
        ("E_NONSENSE", 64, "there is no code"),
    ] {
        let said = place.skep(&["explain", id]);
        assert_eq!(said.code, Some(code), "{id}: {said:?}");
        assert!(said.beside.contains(part), "{id}: {said:?}");
    }
    let kinds = place.json(&["explain"]);
    let kinds = kinds.as_array().expect("a list");
    assert!(kinds.iter().any(|one| one["kind"] == "poll" && one["id"] == "poll:ENDPOINT[@GRANT]"));
}
