//! Maintenance: pushes that are held back on the node's disk, and pops that get nothing.

use super::away::Away;
use super::kit::{Bench, rest, transactions};
use crate::common::{skep, until};
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, Postgres};

const PUSH: &str = "/api/v1/system/maintenance";
const POP: &str = "/api/v1/system/maintenance/pop";

fn switch(node: &Node, path: &str, on: bool) -> Value {
    let body = json!({ "enabled": on }).to_string();
    let answer = node.send("POST", path, &[], Some(&body));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// Pushes one message; the status it got.
fn push(node: &Node, partition: &str, transaction: &str) -> String {
    let item = json!({ "queue": "q", "partition": partition, "transactionId": transaction,
                       "payload": { "t": transaction } });
    let body = json!({ "items": [item] }).to_string();
    let answer = node.send("POST", "/api/v1/push", &[], Some(&body));
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()[0]["status"].as_str().expect("a status").to_owned()
}

/// Everything that a partition has, in order.
fn drain(node: &Node, partition: &str) -> Vec<String> {
    let path = format!("/api/v1/pop/queue/q/partition/{partition}?batch=1000&autoAck=true");
    let answer = node.get(&path);
    if answer.status == 204 {
        return Vec::new();
    }
    assert_eq!(answer.status, 200, "{}", answer.body);
    let popped = answer.json();
    transactions(&popped).into_iter().map(str::to_owned).collect()
}

fn nothing_is_buffered(node: &Node) {
    until("what was held back is in the database", || {
        node.get(PUSH).json()["bufferedMessages"] == 0
    });
}

fn gauge(node: &Node, switch: &str) -> bool {
    let line = format!("\nskep_queues_maintenance{{switch=\"{switch}\"}} ");
    let metrics = node.get("/metrics").body;
    let value = metrics.split(&line).nth(1).and_then(|rest| rest.chars().next());
    value.expect("the gauge is there") == '1'
}

#[test]
fn pushes_that_are_held_back_go_to_their_queues_in_order_when_they_are_let_go() {
    Bench::each(|bench| {
        let node = &bench.node;
        assert_eq!(push(node, "p", "0"), "queued");
        let before = bench.get(PUSH).json();
        assert_eq!((&before["maintenanceMode"], &before["since"]), (&json!(false), &Value::Null));
        assert_eq!((before["bufferHealthy"].clone(), gauge(node, "push")), (json!(true), false));

        let on = switch(node, PUSH, true);
        assert_eq!(on["maintenanceMode"], true, "{on}");
        assert_eq!(on["popMaintenanceMode"], false);
        assert!(on["since"].as_str().is_some_and(|at| at.ends_with('Z')), "{on}");
        assert_eq!(on["by"], "somebody on this machine");
        for transaction in ["1", "2", "1", "3"] {
            assert_eq!(push(node, "p", transaction), "buffered");
        }
        assert_eq!(drain(node, "p"), ["0"], "pops go on, and what is held back is not there");
        let held = bench.get(PUSH).json();
        assert_eq!((&held["bufferedMessages"], &held["bufferHealthy"]), (&json!(4), &json!(true)));
        assert_eq!(held["bufferStats"]["messages"], 4);
        assert!(held["bufferStats"]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{held}");
        assert!(gauge(node, "push") && !gauge(node, "pop"));

        let operations = json!([{ "type": "push", "items": [{ "queue": "q", "payload": 1 }] }]);
        let refused = bench.post("/api/v1/transaction", &json!({ "operations": operations }));
        assert_eq!(refused.status, 503, "{}", refused.body);
        assert_eq!(refused.json()["code"], "E_PUSHES_HELD");
        assert!(refused.json()["error"].as_str().is_some_and(|text| text.contains("held back")));
        assert!(refused.header("retry-after").parse::<u64>().is_ok());

        assert_eq!(switch(node, PUSH, true)["since"], on["since"], "it is on already");
        assert_eq!(switch(node, PUSH, false)["maintenanceMode"], false);
        nothing_is_buffered(node);
        assert_eq!(drain(node, "p"), ["1", "2", "3"]);
        assert_eq!(push(node, "p", "4"), "queued");
        assert_eq!(push(node, "p", "2"), "duplicate");
        assert!(!gauge(node, "push"));
        let audit = bench.get("/api/v1/audit").json();
        let entries = audit["entries"].as_array().expect("entries");
        let noted: Vec<(&str, &str)> = entries
            .iter()
            .filter(|entry| entry["action"] == "queues.maintenance")
            .filter_map(|entry| Some((entry["target"].as_str()?, entry["detail"].as_str()?)))
            .collect();
        assert_eq!(noted, [("push", "off"), ("push", "on")], "{audit}");
    });
}

#[test]
fn a_switch_that_is_neither_on_nor_off_is_refused_and_stays_as_it_is() {
    let bench = Bench::embedded(&[]);
    for path in [PUSH, POP] {
        for body in ["{}", r#"{"enabled":"yes"}"#, r#"{"enabled":1}"#, r#"{"enabled":null}"#, "[]"]
        {
            let answer = bench.node.send("POST", path, &[], Some(body));
            assert_eq!(answer.status, 400, "{body}");
            let problem = answer.json();
            assert_eq!(problem["field"], "enabled", "{problem}");
            assert_eq!(problem["error"], "enabled must be true or false");
        }
        let answer = bench.node.send("POST", path, &[], Some("{"));
        assert!(answer.json()["error"].as_str().is_some_and(|text| text.starts_with("Invalid")));
        let now = bench.get(path).json();
        assert_eq!(now["maintenanceMode"], false);
        assert_eq!(now["popMaintenanceMode"], false);
    }
}

#[test]
fn a_node_that_is_killed_while_it_holds_goes_on_holding_and_loses_nothing() {
    let folder = Folder::new("switches");
    let database = Postgres::shared().database();
    let url = database.url();
    for (name, arguments) in [("embedded", vec![]), ("postgres", vec!["--database", &*url])] {
        let data = folder.join(name);
        let mut node = Node::start(skep(), &data, &arguments);
        switch(&node, PUSH, true);
        let mut expected = Vec::new();
        for life in 0..3 {
            for number in 0..10 {
                let transaction = format!("{life}-{number}");
                assert_eq!(push(&node, "p", &transaction), "buffered");
                expected.push(transaction);
            }
            node.process().kill();
            node = Node::start(skep(), &data, &arguments);
            let now = node.get(PUSH).json();
            assert_eq!(now["maintenanceMode"], true, "{now}");
            assert_eq!(now["bufferedMessages"], expected.len(), "{now}");
            assert_eq!(drain(&node, "p"), Vec::<String>::new());
        }
        switch(&node, PUSH, false);
        // It dies somewhere on the way to the database.
        node.process().kill();
        node = Node::start(skep(), &data, &arguments);
        nothing_is_buffered(&node);
        assert_eq!(drain(&node, "p"), expected);
    }
}

#[test]
fn what_is_held_back_outlives_postgresql_and_comes_once_and_in_order() {
    let mut away = Away::start(false);
    let partitions = ["a", "b", "c"];
    let mut number = 0;
    let mut some = |away: &Away, status: &str| {
        for _ in 0..5 {
            for partition in partitions {
                assert_eq!(push(&away.node, partition, &format!("{number:03}")), status);
            }
            number += 1;
        }
    };
    some(&away, "queued");
    switch(&away.node, PUSH, true);
    some(&away, "buffered");
    for _ in 0..2 {
        away.server.kill();
        // What was last read holds.
        some(&away, "buffered");
        let body = json!({ "enabled": false }).to_string();
        let refused = away.node.send("POST", PUSH, &[], Some(&body));
        assert_eq!(refused.status, 503, "{}", refused.body);
        assert_eq!(away.node.get(PUSH).json()["maintenanceMode"], true);
        away.server.start_again();
        some(&away, "buffered");
    }
    let body = json!({ "enabled": false }).to_string();
    until("it is switched off", || away.node.send("POST", PUSH, &[], Some(&body)).status == 200);
    // It is away again while what was held goes there, and the node with it.
    away.server.kill();
    away.node.process().kill();
    away.server.start_again();
    away.serve_again();
    away.wait_until_nothing_is_buffered();
    assert_eq!(push(&away.node, "a", "last"), "queued");
    let expected: Vec<String> = (0..30).map(|number| format!("{number:03}")).collect();
    for partition in ["b", "c"] {
        assert_eq!(drain(&away.node, partition), expected, "{partition}");
    }
    assert_eq!(drain(&away.node, "a"), [&expected[..], &["last".to_owned()]].concat());
}

fn is_paused(answer: &str) -> bool {
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    answer.starts_with("HTTP/1.1 200 ") && body == r#"{"messages":[],"paused":true,"success":true}"#
}

#[test]
fn paused_pops_are_answered_at_once_and_those_that_wait_too() {
    Bench::each(|bench| {
        let waiting: Vec<_> = ["queue/q", "queue/q/partition/p", "queue/other"]
            .iter()
            .map(|path| bench.ask(&format!("/api/v1/pop/{path}?wait=true&timeout=120000&group=g")))
            .chain([bench.ask("/api/v1/pop?wait=true&timeout=120000")])
            .collect();
        bench.parked(4);
        let on = switch(&bench.node, POP, true);
        assert_eq!(
            (&on["popMaintenanceMode"], &on["maintenanceMode"]),
            (&json!(true), &json!(false))
        );
        for stream in waiting {
            let answer = rest(stream);
            assert!(is_paused(&answer), "{answer}");
        }
        bench.parked(0);
        assert!(gauge(&bench.node, "pop") && !gauge(&bench.node, "push"));
        bench.push_all("q", "p", &["1"]);
        for path in ["queue/q", "queue/q?wait=true&timeout=120000", "queue/q/partition/p"] {
            let answer = bench.get(&format!("/api/v1/pop/{path}"));
            let expected = json!({ "messages": [], "paused": true, "success": true });
            assert_eq!((answer.status, answer.json()), (200, expected), "{path}");
        }
        assert_eq!(switch(&bench.node, POP, false)["popMaintenanceMode"], false);
        let popped = bench.pop("q");
        assert_eq!(transactions(&popped), ["1"]);
        // What was handed out before can be settled meanwhile.
        switch(&bench.node, POP, true);
        assert_eq!(bench.ack(&popped["messages"][0], &json!({}))["success"], true);
        switch(&bench.node, POP, false);
        let waiting = bench.ask("/api/v1/pop/queue/q?wait=true&timeout=120000");
        bench.parked(1);
        bench.push_all("q", "p", &["2"]);
        assert!(rest(waiting).contains("\"transactionId\":\"2\""));
    });
}

#[test]
fn a_switch_reaches_every_node_of_the_database() {
    let database = Postgres::shared().database();
    let folder = Folder::new("switches");
    let start = |name: &str| {
        let url = database.url();
        Node::start(skep(), &folder.join(name), &["--database", &url])
    };
    let here = start("a");
    let there = Bench::over(start("b"), Folder::new("switches"));
    let waiting = there.ask("/api/v1/pop/queue/q?wait=true&timeout=120000");
    there.parked(1);
    switch(&here, POP, true);
    let answer = rest(waiting);
    assert!(is_paused(&answer), "{answer}");
    switch(&here, PUSH, true);
    until("the other node holds pushes back", || there.get(PUSH).json()["maintenanceMode"] == true);
    assert_eq!(push(&there.node, "p", "1"), "buffered");
    assert_eq!(push(&here, "p", "2"), "buffered");
    // Each has what it took, and a node that comes later knows.
    assert_eq!(there.get(PUSH).json()["bufferedMessages"], 1);
    let late = start("c");
    assert_eq!(push(&late, "p", "3"), "buffered");
    switch(&late, PUSH, false);
    switch(&late, POP, false);
    for node in [&here, &there.node, &late] {
        until("it holds nothing back any more", || {
            let now = node.get(PUSH).json();
            now["maintenanceMode"] == false && now["bufferedMessages"] == 0
        });
    }
    let mut got = drain(&late, "p");
    got.sort();
    assert_eq!(got, ["1", "2", "3"]);
}
