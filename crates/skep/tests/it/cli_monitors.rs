//! `skep accounts`, `skep servers` and `skep monitors`, as their users meet them.

use crate::cli_queues::{Place, Said};
use serde_json::{Value, json};
use std::fmt::Write;

/// A node that reviews nothing by itself, so that a plan stays good until somebody applies it.
fn place() -> Place {
    Place::with(&["--set", "monitors.enabled=false"])
}

fn done(said: &Said) -> &str {
    assert_eq!(said.code, Some(0), "{said:?}");
    &said.text
}

fn refused(said: &Said, parts: &[&str]) {
    assert_eq!(said.code, Some(1), "{said:?}");
    for part in parts {
        assert!(said.beside.contains(part), "no {part:?} in {said:?}");
    }
}

fn wrong_usage(said: &Said, parts: &[&str]) {
    assert_eq!(said.code, Some(64), "{said:?}");
    for part in parts {
        assert!(said.beside.contains(part), "no {part:?} in {said:?}");
    }
}

/// A server and twelve monitors of as many accounts and networks.
fn fleet() -> String {
    let server = json!({ "id": "ntp-1", "ip": "192.0.2.1", "probe": { "kind": "ntp" } });
    let mut lines = format!("{}\n", json!({ "server": server }));
    for number in 1..=12 {
        let account = json!({ "id": format!("a{number}") });
        let monitor = json!({ "id": format!("m{number:02}"), "account": format!("a{number}"),
                              "ip": format!("10.{number}.0.1"), "status": "active" });
        let _ = writeln!(lines, "{}", json!({ "account": account }));
        let _ = writeln!(lines, "{}", json!({ "monitor": monitor }));
    }
    lines
}

fn with_fleet() -> Place {
    let place = place();
    let said = place.feed(&["monitors", "import", "-"], &fleet());
    assert!(done(&said).contains("12 monitors"), "{said:?}");
    place
}

#[test]
fn accounts_are_added_changed_listed_and_deleted() {
    let place = place();
    let line = ["accounts", "add", "acme", "--name", "Acme Ltd.", "--monitor-limit", "2"];
    assert!(done(&place.skep(&line)).contains("acme is added"));
    let shown = place.json(&["accounts", "show", "acme"]);
    assert_eq!(
        (&shown["name"], &shown["flags"]["monitor_limit"]),
        (&json!("Acme Ltd."), &json!(2))
    );

    let line = ["accounts", "set", "acme", "--monitor-limit", "none", "--per-server-limit", "1"];
    assert!(done(&place.skep(&line)).contains("any number"));
    let shown = place.json(&["accounts", "show", "acme"]);
    assert_eq!(shown["name"], "Acme Ltd.", "what is not given stays");
    assert_eq!(shown["flags"]["monitor_per_server_limit"], 1);
    assert!(done(&place.skep(&["accounts", "set", "acme", "--disable"])).contains("disabled"));
    let listed = place.skep(&["accounts", "ls", "ac"]);
    assert!(done(&listed).contains("disabled") && listed.text.contains("Acme Ltd."), "{listed:?}");
    assert!(done(&place.skep(&["accounts", "ls", "nobody"])).contains("no account"));

    let said = place.skep(&["accounts", "rm", "acme", "nobody"]);
    assert!(said.text.contains("acme deleted"), "those that can be are: {said:?}");
    refused(&said, &["E_ACCOUNT_UNKNOWN", "nobody"]);
}

#[test]
fn servers_are_added_changed_paused_and_deleted() {
    let place = place();
    done(&place.skep(&["servers", "add", "ntp-1", "--ip", "192.0.2.1"]));
    let shown = place.json(&["servers", "show", "ntp-1"]);
    assert_eq!(shown["server"]["probe"]["target"], "192.0.2.1:123");

    let said = place.skep(&["servers", "set", "ntp-1", "--ip", "192.0.2.2", "--timeout", "2s"]);
    assert!(done(&said).contains("ntp 192.0.2.2:123"), "{said:?}");
    let line =
        ["servers", "set", "ntp-1", "--http", "http://127.0.0.1:1/", "--expect-status", "204"];
    done(&place.skep(&line));
    let probe = place.json(&["servers", "show", "ntp-1"])["server"]["probe"].clone();
    let expected = json!({ "kind": "http", "target": "http://127.0.0.1:1/", "timeout_ms": 2000,
                           "expect_status": 204 });
    assert_eq!(probe, expected);

    assert!(done(&place.skep(&["servers", "pause", "ntp-1"])).contains("ntp-1 is paused"));
    assert!(done(&place.skep(&["servers", "ls"])).contains("paused"));
    let resumed = place.json(&["servers", "resume", "ntp-1"]);
    assert_eq!(resumed[0]["paused"], false);
    done(&place.skep(&["servers", "review", "ntp-1"]));
    assert!(done(&place.skep(&["servers", "ls", "--below-target"])).contains("0 of 7"));
    assert!(done(&place.skep(&["servers", "samples", "ntp-1"])).contains("no measurement yet"));
    assert!(done(&place.skep(&["servers", "history", "ntp-1"])).contains("no change"));
    assert!(done(&place.skep(&["servers", "rm", "ntp-1"])).contains("ntp-1 deleted"));
    refused(&place.skep(&["servers", "show", "ntp-1"]), &["E_SERVER_UNKNOWN", "ntp-1"]);
}

#[test]
fn monitors_are_added_approved_paused_and_deleted() {
    let place = with_fleet();
    let said = place.skep(&["monitors", "add", "new", "--ip", "10.99.0.1", "--label", "city=ams"]);
    assert!(done(&said).contains("without a key"), "the node has no keys: {said:?}");
    assert!(said.beside.contains("skep agent"), "{said:?}");
    let shown = place.json(&["monitors", "show", "new"]);
    assert_eq!(shown["monitor"]["status"], "pending");
    assert_eq!(shown["assignments"], json!([]), "nobody has approved it");

    done(&place.skep(&["monitors", "status", "testing", "new"]));
    let shown = place.json(&["monitors", "show", "new"]);
    assert_eq!(shown["assignments"][0]["status"], "candidate");
    let listed = place.json(&["monitors", "ls", "--label", "city=ams"]);
    assert_eq!((&listed["total"], &listed["monitors"][0]["id"]), (&json!(1), &json!("new")));
    done(&place.skep(&["monitors", "set", "new", "--label", "city=", "--label", "rack=7"]));
    let labels = place.json(&["monitors", "show", "new"])["monitor"]["labels"].clone();
    assert_eq!(labels, json!({ "rack": "7" }));
    let paused = place.json(&["monitors", "status", "paused", "new", "m01"]);
    assert_eq!((&paused[0]["status"], &paused[1]["id"]), (&json!("paused"), &json!("m01")));

    let said = place.skep(&["monitors", "ls", "--limit", "5"]);
    assert!(done(&said).contains("5 of 13; the next with --after m05"), "{said:?}");
    let said = place.skep(&["monitors", "ls", "--after", "m11"]);
    assert!(done(&said).contains("new") && !said.text.contains("m11"), "{said:?}");
    assert!(done(&place.skep(&["monitors", "overview"])).contains("13"), "{said:?}");
    done(&place.skep(&["monitors", "rm", "new"]));
    let key = place.skep(&["monitors", "key", "m02"]);
    refused(&key, &["skep keys add"]);
}

#[test]
fn a_monitor_gets_a_key_of_its_own_which_is_shown_once() {
    let place = place();
    let made = place.json(&["keys", "create", "--name", "me", "--scopes", "admin"]);
    let admin = made["secret"].as_str().expect("a key");
    let skep = |line: &[&str], key: &str| place.skep(&[line, &["--key", key]].concat());
    let said = skep(&["monitors", "add", "ams-3", "--ip", "10.1.0.1"], admin);
    let key = done(&said).trim();
    assert!(key.starts_with("skep_") && said.beside.contains("not shown again"), "{said:?}");
    let denied = skep(&["monitors", "ls"], key);
    assert_eq!(denied.code, Some(77), "it may report, and nothing else: {denied:?}");
    let again = skep(&["monitors", "key", "ams-3"], admin);
    assert!(done(&again).trim() != key, "{again:?}");
    let shown = skep(&["monitors", "show", "ams-3", "--json"], admin);
    assert!(!done(&shown).contains(again.text.trim()), "it is shown once: {shown:?}");
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    let place = with_fleet();
    let bad = place.skep(&["monitors", "add", "x", "--ip", "10.1.0.999"]);
    refused(&bad, &["E_MONITOR_INVALID", "ip", "10.1.0.999"]);
    let bad = place.skep(&["servers", "add", "a b", "--ip", "here", "--tcp", "db"]);
    refused(&bad, &["E_SERVER_INVALID", "id", "ip", "probe.target"]);
    let bad = place.skep(&["servers", "add", "ntp-1", "--ip", "192.0.2.1"]);
    refused(&bad, &["E_SERVER_EXISTS"]);
    let bad = place.skep(&["monitors", "add", "x", "--ip", "10.1.0.1", "--account", "nobody"]);
    refused(&bad, &["E_ACCOUNT_UNKNOWN", "nobody"]);
    refused(&place.skep(&["accounts", "rm", "a1"]), &["E_ACCOUNT_IN_USE"]);
    done(&place.skep(&["accounts", "set", "a1", "--monitor-limit", "1"]));
    let bad = place.skep(&["monitors", "add", "x", "--ip", "10.1.0.1", "--account", "a1"]);
    refused(&bad, &["E_ACCOUNT_FULL", "1"]);
    refused(&place.skep(&["monitors", "explain", "ntp-1", "x"]), &["E_MONITOR_UNKNOWN"]);
    refused(&place.skep(&["monitors", "plan", "none"]), &["E_SERVER_UNKNOWN"]);

    let bad = place.skep(&["monitors", "status", "gone", "m01"]);
    wrong_usage(&bad, &["gone", "pending, testing, active, paused"]);
    let bad = place.skep(&["accounts", "set", "a1", "--per-server-limit", "-1"]);
    wrong_usage(&bad, &["-1", "from 0 on"]);
    wrong_usage(&place.skep(&["monitors", "set", "m01", "--label", "city"]), &["city=ams"]);
}

#[test]
fn an_import_is_done_as_a_whole_or_not_at_all() {
    let place = place();
    let wrong = fleet() + "{\"monitor\": {\"id\": \"m99\", \"ip\": \"nowhere\"}}\n{\"bee\": 1}\n";
    let said = place.feed(&["monitors", "import", "-"], &wrong);
    refused(&said, &["E_IMPORT_INVALID", "line 26: ", "ip", "nowhere", "line 27: "]);
    assert_eq!(place.json(&["monitors", "ls"])["total"], 0, "nothing was done");
    let said = place.feed(&["monitors", "import", "--dry-run", "-"], &fleet());
    assert!(done(&said).contains("it would be: "), "{said:?}");
    assert_eq!(place.json(&["servers", "ls"])["total"], 0, "nothing was done");
    let file = place.folder.join("fleet.jsonl");
    std::fs::write(&file, fleet()).expect("writes");
    let said = place.skep(&["monitors", "import", "fleet.jsonl"]);
    assert!(done(&said).contains("12 accounts, 12 monitors, 1 servers created"), "{said:?}");
    let again = place.skep(&["monitors", "import", "fleet.jsonl"]);
    assert!(done(&again).contains("nothing created, 0 changed, 25 unchanged"), "{again:?}");
    wrong_usage(&place.skep(&["monitors", "import", "nowhere.jsonl"]), &["nowhere.jsonl"]);
}

#[test]
fn a_plan_is_shown_applied_and_refused_once_it_is_old() {
    let place = with_fleet();
    let shown = place.skep(&["monitors", "plan", "ntp-1"]);
    assert!(done(&shown).contains("m01") && shown.text.contains("testing"), "{shown:?}");
    let plan = place.json(&["monitors", "plan"]);
    assert_eq!(plan["plans"][0]["changes"].as_array().map(Vec::len), Some(12), "{plan}");
    assert_eq!(plan["plans"][0]["changes"][0]["rule"], "6", "testing is empty");
    std::fs::write(place.folder.join("plan.json"), plan.to_string()).expect("writes");

    let unasked = place.skep(&["monitors", "apply", "ntp-1"]);
    wrong_usage(&unasked, &["12 changes on 1 servers", "--yes"]);
    let applied = place.skep(&["monitors", "apply", "--plan", "plan.json", "--yes"]);
    assert!(done(&applied).contains("12 changes made on 1 servers"), "{applied:?}");
    let old = place.skep(&["monitors", "apply", "--plan", "plan.json", "--yes"]);
    refused(&old, &["E_PLAN_OLD", "ntp-1"]);
    let nothing = place.skep(&["monitors", "apply", "--yes"]);
    assert!(done(&nothing).contains("nothing to change"), "{nothing:?}");

    let server = place.skep(&["servers", "show", "ntp-1"]);
    assert!(done(&server).contains("12 of 12 testing"), "{server:?}");
    let history = place.json(&["servers", "history", "ntp-1", "--limit", "3"]);
    assert_eq!(history["changes"].as_array().map(Vec::len), Some(3));
    assert_eq!(history["changes"][0]["to"], "testing");
    let history = place.skep(&["monitors", "history", "m05"]);
    assert!(done(&history).contains("testing was empty"), "{history:?}");
    for (text, why) in [("{}", "missing"), ("[1", "EOF"), (r#"{"plans": 7}"#, "no list")] {
        std::fs::write(place.folder.join("odd.json"), text).expect("writes");
        let said = place.skep(&["monitors", "apply", "--plan", "odd.json", "--yes"]);
        assert_eq!(said.code, Some(65), "{said:?}");
        assert!(said.beside.contains("odd.json") && said.beside.contains(why), "{said:?}");
    }
}

#[test]
fn a_node_explains_one_and_says_what_would_be_otherwise() {
    let place = with_fleet();
    let explained = place.json(&["monitors", "explain", "ntp-1", "m03"]);
    assert_eq!(
        (&explained["status"], &explained["becomes"]),
        (&json!("candidate"), &json!("testing"))
    );
    assert!(!explained["would_flip"].as_array().expect("a list").is_empty(), "{explained}");
    let said = place.skep(&["monitors", "explain", "ntp-1", "m03"]);
    assert!(done(&said).contains("testing was empty"), "{said:?}");

    let differs = place.json(&["monitors", "what-if", "--drop-monitor", "m03"]);
    assert_eq!(differs["servers"][0]["server"], "ntp-1", "{differs}");
    assert_eq!(differs["compared"], 1);
    let same = place.json(&["monitors", "what-if", "--set", "target_active=7"]);
    assert_eq!(same["servers"], json!([]), "{same}");
    refused(&place.skep(&["monitors", "what-if", "--drop-monitor", "m9"]), &["m9"]);
    refused(&place.skep(&["monitors", "what-if", "--set", "target_actve=9"]), &["target_active"]);
    let odd = place.skep(&["monitors", "explain", "ntp-1", "m03", "--set", "budget=3"]);
    wrong_usage(&odd, &["--snapshot"]);
}

#[test]
fn a_fleet_of_more_than_a_page_is_planned_as_a_whole() {
    let place = with_fleet();
    let mut lines = String::new();
    for number in 2..=120 {
        let server = json!({ "id": format!("ntp-{number}"), "ip": format!("192.0.2.{number}"),
                             "probe": { "kind": "ntp" } });
        let _ = writeln!(lines, "{}", json!({ "server": server }));
    }
    done(&place.feed(&["monitors", "import", "-"], &lines));
    let plans = place.json(&["monitors", "plan"]);
    assert_eq!(plans["plans"].as_array().map(Vec::len), Some(120));
    assert_eq!(plans.get("next"), None);
    let differs = place.json(&["monitors", "what-if", "--drop-account", "a1"]);
    assert_eq!((&differs["compared"], &differs["totals"]["differ"]), (&json!(120), &json!(120)));
    let applied = place.json(&["monitors", "apply", "--yes"]);
    assert_eq!(applied["applied"].as_array().map(Vec::len), Some(120));
}

#[test]
fn a_snapshot_needs_no_node() {
    let place = place();
    place.node.stop();
    let monitors: Vec<Value> = (1..=8)
        .map(|number| {
            json!({ "id": number, "server_status": "candidate", "global_status": "active",
                    "account": number, "ip": format!("10.{number}.0.1"), "healthy": true,
                    "priority": 10 * number, "rtt_ms": 10.0, "count": 40 })
        })
        .collect();
    let server = json!({ "id": 1, "account": 99, "ip": "192.0.2.1" });
    let snapshot = json!({ "server": server, "monitors": monitors });
    let file = place.folder.join("snapshot.json");
    std::fs::write(&file, snapshot.to_string()).expect("writes");

    let said = place.skep(&["monitors", "plan", "--snapshot", "snapshot.json"]);
    assert!(done(&said).contains("testing"), "{said:?}");
    let plan = place.json(&["monitors", "plan", "--snapshot", "snapshot.json"]);
    assert!(!plan["plans"][0]["changes"].as_array().expect("a list").is_empty(), "{plan}");
    let said = place.skep(&["monitors", "explain", "1", "8", "--snapshot", "snapshot.json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let line = ["monitors", "what-if", "--drop-monitor", "1", "--snapshot", "snapshot.json"];
    let differs = place.json(&line);
    assert_eq!(differs["compared"], 1, "{differs}");
    let apply = place.skep(&["monitors", "apply", "--yes"]);
    assert_eq!(apply.code, Some(69), "the node is gone: {apply:?}");

    let mut broken = snapshot;
    broken["monitors"][3]["ip"] = json!("nowhere");
    std::fs::write(&file, broken.to_string()).expect("writes");
    let said = place.skep(&["monitors", "plan", "--snapshot", "snapshot.json"]);
    assert_ne!(said.code, Some(0));
    for part in ["snapshot.json", "monitors[3].ip", "nowhere"] {
        assert!(said.beside.contains(part), "no {part}: {said:?}");
    }
}
