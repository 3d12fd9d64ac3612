//! The verbs around queues: configuring, looking, repairing, scheduling.

use crate::cli_queues::{Place, Said};
use crate::common::{command, run, skep, until};
use serde_json::Value;
use skep_testkit::{Folder, Node, free_port};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

impl Place {
    /// Runs a verb that must work.
    fn ok(&self, arguments: &[&str]) -> String {
        let said = self.skep(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.text
    }

    /// Runs a verb that must not.
    fn refused(&self, arguments: &[&str], code: i32) -> String {
        let said = self.skep(arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        said.beside
    }

    /// Makes a message a dead letter of its queue.
    fn set_aside(&self, queue: &str, transaction: &str, error: &str) {
        self.ok(&["push", queue, r#"{"n": 1.0}"#, "--transaction-id", transaction]);
        let popped = self.json(&["pop", queue]);
        let message = &popped["messages"][0];
        let of = |field: &str| message[field].as_str().expect("it has one").to_owned();
        let (partition, lease) = (of("partitionId"), format!("--lease={}", of("leaseId")));
        let ack = ["ack", &lease, "--status=dlq", "--error", error, &partition, transaction];
        self.ok(&ack);
    }
}

#[test]
fn a_queue_is_configured_listed_cleared_and_deleted() {
    let place = Place::new();
    let told = place.ok(&["queues", "configure", "orders", "--set=leaseTime=7m"]);
    assert!(told.contains("leaseTime") && told.contains("420"), "{told}");
    place.ok(&["queues", "configure", "orders", "--set=retryLimit=9"]);
    let options = &place.json(&["queues", "show", "orders"])["options"];
    assert_eq!((&options["leaseTime"], &options["retryLimit"]), (&420.into(), &9.into()));
    place.ok(&["queues", "configure", "orders", "--set=retryLimit=9", "--replace"]);
    assert_ne!(place.json(&["queues", "show", "orders"])["options"]["leaseTime"], 420);
    let slip = place.refused(&["queues", "configure", "orders", "--set=leastTime=1"], 64);
    assert!(slip.contains("leaseTime"), "{slip}");
    let wrong = place.refused(&["queues", "configure", "orders", "--set=leaseTime=0"], 1);
    assert!(wrong.contains("leaseTime"), "{wrong}");

    place.ok(&["push", "orders", "1", "--partition", "a"]);
    place.ok(&["push", "orders", "2", "--partition", "b"]);
    let listed = place.ok(&["queues", "ls", "ord"]);
    for part in ["orders", "PENDING", "OLDEST", "DELAYED", "DEAD", "PUSHED/S"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert!(!place.ok(&["queues", "ls", "x"]).contains("orders"));
    let partitions = place.ok(&["queues", "partitions", "orders", "--prefix", "b"]);
    assert!(partitions.contains("b ") && !partitions.contains("a "), "{partitions}");

    let asked = place.refused(&["queues", "clear", "orders"], 64);
    assert!(asked.contains("--yes"), "nobody can be asked: {asked}");
    place.ok(&["queues", "clear", "orders", "--yes"]);
    assert_eq!(place.skep(&["pop", "orders"]).code, Some(1), "nothing is left");
    let asked = place.refused(&["queues", "rm", "orders"], 64);
    assert!(asked.contains("--yes"), "{asked}");
    assert!(place.ok(&["queues", "rm", "orders", "--yes"]).contains("orders deleted"));
    assert_eq!(place.skep(&["queues", "show", "orders"]).code, Some(1));
}

#[test]
fn a_message_is_held_back_and_priorities_go_first() {
    let place = Place::new();
    let later = place.ok(&["push", "q", "1", "--delay", "1h"]);
    assert!(later.contains("held back until"), "{later}");
    assert_eq!(place.skep(&["pop", "q"]).code, Some(1), "it is held back");
    assert_eq!(place.json(&["queues", "ls"])["queues"][0]["messages"]["delayed"], 1);
    place.ok(&["push", "q", "2", "--at", "2020-01-01T00:00:00Z"]);
    place.ok(&["push", "q", "3", "--priority", "9"]);
    let first = place.ok(&["pop", "q", "--payload-only", "--ack"]);
    let second = place.ok(&["pop", "q", "--payload-only", "--ack"]);
    assert_eq!((first.trim(), second.trim()), ("3", "2"));

    place.ok(&["push", "q", "4", "--transaction-id", "t-4"]);
    let message = &place.json(&["pop", "q"])["messages"][0];
    let of = |field: &str| message[field].as_str().expect("it has one");
    let lease = format!("--lease={}", of("leaseId"));
    let ack = ["ack", &lease, "--status=retry", "--retry-after=1h", of("partitionId"), "t-4"];
    assert!(place.ok(&ack).contains("comes again after"));
    assert_eq!(place.skep(&["pop", "q"]).code, Some(1), "it rests");
    let ack = ["ack", &lease, "--retry-after=1h", of("partitionId"), "t-4"];
    assert!(place.refused(&ack, 64).contains("--status retry"));
}

#[test]
fn groups_are_listed_moved_and_forgotten() {
    let place = Place::new();
    assert!(place.ok(&["groups", "ls"]).contains("no group"));
    for number in ["1", "2"] {
        place.ok(&["push", "q", number]);
    }
    place.ok(&["pop", "q", "--group", "audit", "--batch", "2", "--ack"]);
    let listed = place.ok(&["groups", "ls", "--queue", "q"]);
    assert!(listed.contains("audit") && listed.contains("BEHIND"), "{listed}");
    assert!(place.ok(&["groups", "lag"]).contains("no group is behind by 60s"));

    assert_eq!(place.skep(&["pop", "q", "--group", "audit"]).code, Some(1));
    let moved = place.ok(&["groups", "seek", "audit", "q", "--beginning"]);
    assert!(moved.contains("audit goes on at the first message"), "{moved}");
    let again = ["pop", "q", "--group", "audit", "--batch", "2", "--payload-only", "--ack"];
    assert_eq!(place.ok(&again), "1\n2\n");
    place.ok(&["groups", "seek", "audit", "q", "--to", "1h", "--partition", "Default"]);
    assert_eq!(place.ok(&again), "1\n2\n");
    place.ok(&["groups", "seek", "audit", "q", "--to", "1h"]);
    place.ok(&["groups", "seek", "audit", "q", "--end"]);
    assert_eq!(place.skep(&again).code, Some(1));
    place.refused(&["groups", "seek", "audit", "q"], 64);
    place.refused(&["groups", "seek", "audit", "nothing", "--end"], 1);

    assert!(place.ok(&["groups", "rm", "audit", "--queue", "q"]).contains("is forgotten"));
    assert_eq!(place.ok(&again), "1\n2\n", "it is a new one");
    place.ok(&["groups", "rm", "audit", "--keep-start"]);
}

#[test]
fn dead_letters_are_shown_pushed_again_and_deleted() {
    let place = Place::new();
    assert!(place.ok(&["dlq", "ls"]).contains("no dead letter"));
    for (transaction, error) in [("t-1", "time out"), ("t-2", "no room"), ("t-3", "time out")] {
        place.set_aside("orders", transaction, error);
    }
    let all = place.json(&["dlq", "ls", "orders"]);
    assert_eq!(all["total"], 3, "{all}");
    let some = place.json(&["dlq", "ls", "orders", "--error", "room", "--from", "1h"]);
    assert_eq!(some["messages"].as_array().map(Vec::len), Some(1), "{some}");
    let id = some["messages"][0]["id"].as_str().expect("an id").to_owned();
    let shown = place.ok(&["dlq", "show", &id]);
    assert!(shown.contains("no room") && shown.contains(r#"{"n": 1.0}"#), "{shown}");
    assert!(place.ok(&["dlq", "ls"]).contains("no room"));

    assert!(place.ok(&["dlq", "retry", &id]).contains("1 pushed again"));
    assert_eq!(place.ok(&["pop", "orders", "--ack", "--payload-only"]).trim(), r#"{"n": 1.0}"#);
    let gone = place.skep(&["dlq", "retry", &id, "--json"]);
    assert_eq!(gone.code, Some(1), "it went back: {gone:?}");
    assert!(gone.text.contains("refused"), "{gone:?}");
    assert!(place.refused(&["dlq", "retry", &id, "--rate", "5/s"], 64).contains("--queue"));

    let back = ["dlq", "retry", "--queue", "orders", "--error", "time", "--rate", "50/s"];
    let back = place.ok(&[&back[..], &["--target", "mended", "--wait"]].concat());
    assert!(back.contains("2 dead letters went to mended"), "{back}");
    let redrives = place.ok(&["dlq", "redrives"]);
    assert!(redrives.contains("error=time") && redrives.contains("mended"), "{redrives}");
    assert_eq!(place.ok(&["pop", "mended", "--batch", "9", "--payload-only"]).lines().count(), 2);

    place.set_aside("orders", "t-4", "odd");
    place.set_aside("orders", "t-5", "odd");
    assert!(place.refused(&["dlq", "rm", "--queue", "orders"], 64).contains("--yes"));
    let newest = &place.json(&["dlq", "ls", "--limit", "1"])["messages"][0]["id"];
    assert!(place.ok(&["dlq", "rm", newest.as_str().expect("an id")]).contains("1 deleted"));
    assert!(place.ok(&["dlq", "rm", "--queue", "orders", "--yes"]).contains("1 deleted"));
    assert!(place.ok(&["dlq", "ls"]).contains("no dead letter"));
}

#[test]
fn messages_are_found_shown_deleted_and_pushed_again() {
    let place = Place::new();
    for number in 1..=5 {
        let payload = format!(r#"{{"customer": {{"id": {number}, "name": "bee {number}"}}}}"#);
        let id = format!("t-{number}");
        place.ok(&["push", "orders", &payload, "--transaction-id", &id]);
    }
    let all = place.json(&["messages", "ls", "orders", "--limit", "2"]);
    assert_eq!(all["messages"][0]["transactionId"], "t-5", "the newest first: {all}");
    let next = all["next"].as_str().expect("there is more");
    let rest = place.json(&["messages", "ls", "orders", "--after", next]);
    assert_eq!(rest["messages"].as_array().map(Vec::len), Some(3), "{rest}");
    let found = place.json(&["messages", "ls", "orders", "--where", "customer.id=3"]);
    assert_eq!(found["messages"].as_array().map(Vec::len), Some(1), "{found}");
    let part = found["messages"][0]["partitionId"].as_str().expect("it has one").to_owned();
    let text = place.ok(&["messages", "ls", "orders", "--contains", "customer.name=bee 4"]);
    assert!(text.contains("t-4") && !text.contains("t-3"), "{text}");

    let shown = place.ok(&["messages", "show", &part, "t-3"]);
    assert!(shown.contains("bee 3") && shown.contains("pending"), "{shown}");
    let pending = place.refused(&["messages", "retry", &part, "t-3"], 1);
    assert!(pending.contains("E_MESSAGE_PENDING"), "{pending}");
    assert!(place.refused(&["messages", "rm", &part, "t-3"], 64).contains("--yes"));
    place.ok(&["messages", "rm", &part, "t-3", "--yes"]);
    assert!(place.refused(&["messages", "show", &part, "t-3"], 1).contains("E_MESSAGE_UNKNOWN"));
    place.ok(&["pop", "orders", "--batch", "9", "--ack"]);
    assert!(place.ok(&["messages", "retry", &part, "t-4"]).contains("t-4 comes again"));
    assert!(place.ok(&["pop", "orders", "--payload-only"]).contains("bee 4"));
}

#[test]
fn a_schedule_is_added_shown_paused_fired_and_deleted() {
    let place = Place::new();
    let flags = ["--queue", "reports", "--timezone", "Europe/Berlin", "--payload", r#"{"n": 1.0}"#];
    let add = [&["schedule", "add", "morning", "--cron", "0 9 * * 1-5"], &flags[..]].concat();
    let added = place.ok(&add);
    let times = added.lines().filter(|line| line.contains(":00:00Z")).count();
    assert!(times >= 5 && added.contains("0 9 * * 1-5"), "{added}");
    place.refused(&add, 1);
    place.ok(&[&add[..], &["--replace"]].concat());
    let wrong = [&["schedule", "add", "odd", "--cron", "61 9 * * *"], &flags[..]].concat();
    assert!(place.refused(&wrong, 1).contains("cron"));

    assert!(place.ok(&["schedule", "ls"]).contains("morning"));
    assert!(place.ok(&["schedule", "pause", "morning"]).contains("paused"));
    assert_eq!(place.json(&["schedule", "show", "morning"])["paused"], true);
    place.ok(&["schedule", "resume", "morning"]);
    assert_eq!(place.json(&["schedule", "show", "morning"])["paused"], false);
    assert!(place.ok(&["schedule", "fire", "morning"]).contains("morning has pushed"));
    assert_eq!(place.ok(&["pop", "reports", "--payload-only"]).trim(), r#"{"n": 1.0}"#);
    place.ok(&["schedule", "rm", "morning"]);
    assert!(place.ok(&["schedule", "ls"]).contains("no schedule"));
    place.refused(&["schedule", "show", "morning"], 1);
}

#[test]
fn what_consumers_told_is_shown() {
    let place = Place::new();
    place.ok(&["push", "q", "1", "--transaction-id", "t-1"]);
    let message = &place.json(&["pop", "q"])["messages"][0];
    let part = message["partitionId"].as_str().expect("it has one");
    let body = serde_json::json!({
        "transactionId": "t-1", "partitionId": part, "traceNames": ["customer-17"],
        "eventType": "step", "data": {"n": 1},
    });
    let json = [("content-type", "application/json")];
    let told = place.node.send("POST", "/api/v1/traces", &json, Some(&body.to_string()));
    assert_eq!(told.status, 201, "{}", told.body);
    let shown = place.ok(&["traces", "show", part, "t-1"]);
    assert!(shown.contains("step") && shown.contains(r#"{"n":1}"#), "{shown}");
    assert!(place.ok(&["traces", "by-name", "customer-17"]).contains("t-1"));
    assert!(place.ok(&["traces", "names"]).contains("customer-17"));
    assert!(place.ok(&["traces", "by-name", "nobody"]).contains("nothing was told"));
}

#[test]
fn pops_are_paused_and_resumed() {
    let place = Place::new();
    place.ok(&["push", "q", "1"]);
    let paused = place.ok(&["queues", "pause", "--pop"]);
    assert!(paused.contains("pops paused") && paused.contains("pushes go on"), "{paused}");
    let nothing = place.skep(&["pop", "q"]);
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.text.contains("skep queues resume"), "{nothing:?}");
    let both = place.json(&["queues", "pause"]);
    assert_eq!(both["maintenanceMode"], true, "{both}");
    assert!(place.ok(&["push", "q", "2"]).starts_with("buffered"));
    let resumed = place.ok(&["queues", "resume"]);
    assert!(resumed.contains("pushes go on\npops go on"), "{resumed}");
    let popped = place.ok(&["pop", "q", "--payload-only", "--ack"]);
    assert_eq!(popped.trim(), "1");
    let next = place.ok(&["pop", "q", "--wait", "30", "--payload-only"]);
    assert_eq!(next.trim(), "2", "what was held back is pushed");
}

#[test]
fn what_happened_is_drawn() {
    let place = Place::new();
    for number in ["1", "2", "3"] {
        place.ok(&["push", "q", number]);
    }
    place.ok(&["pop", "q", "--ack"]);
    place.ok(&["pop", "q", "--ack"]);
    let counted = |what: &str, count: &str| {
        place.node.send("POST", "/api/v1/stats/refresh", &[], None);
        let drawn = place.ok(&["queues", "stats", "q"]);
        let row = drawn.lines().find(|line| line.trim_start().starts_with(what)).map(str::to_owned);
        row.is_some_and(|row| row.split_whitespace().nth(1) == Some(count))
    };
    until("three were pushed", || counted("pushed", "3"));
    until("two were acknowledged", || counted("acked", "2"));
    let points = place.json(&["queues", "stats", "--since", "10m"]);
    assert!(points["points"].is_array(), "{points}");
    assert!(place.refused(&["queues", "stats", "nothing"], 1).contains("E_QUEUE_UNKNOWN"));
}

#[test]
fn a_tail_shows_messages_as_they_come_and_finds_the_node_again() {
    let mut place = Place::new();
    place.ok(&["push", "q", "0"]);
    let address = place.node.address().to_owned();
    let mut tail = command(place.folder.path(), &["queues", "tail", "q", "--count", "2", "--json"]);
    tail.env("SKEP_URL", place.node.url(""));
    tail.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tail.spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("an output")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("is JSON")
    };
    let listens = |place: &Place| {
        until("it listens", || place.node.get("/metrics").body.contains("live_streams 1\n"));
    };
    listens(&place);
    place.ok(&["push", "q", "1"]);
    let message = next();
    assert_eq!((&message["queue"], &message["payload"]), (&"q".into(), &1.into()));

    place.node.stop();
    place.node = Node::start(skep(), &place.folder.join("data"), &["--listen", &address]);
    listens(&place);
    place.ok(&["push", "q", "2"]);
    assert_eq!(next()["payload"], 2);
    let said = Said::of(&child.wait_with_output().expect("ends"));
    assert_eq!(said.code, Some(0), "two have come: {said:?}");
    assert!(said.beside.contains("not shown"), "{said:?}");
    let unknown = place.refused(&["queues", "tail", "nothing"], 1);
    assert!(unknown.contains("E_QUEUE_UNKNOWN"), "{unknown}");
}

#[test]
fn without_a_node_every_verb_says_so() {
    let folder = Folder::new("cli-ops");
    let url = format!("http://127.0.0.1:{}", free_port());
    for verb in [
        &["queues", "configure", "q"][..],
        &["queues", "rm", "q", "--yes"],
        &["queues", "clear", "q", "--yes"],
        &["queues", "tail", "q"],
        &["queues", "stats"],
        &["queues", "pause"],
        &["queues", "partitions", "q"],
        &["groups", "ls"],
        &["groups", "lag"],
        &["groups", "seek", "g", "q", "--end"],
        &["groups", "rm", "g"],
        &["dlq", "ls"],
        &["dlq", "show", "1"],
        &["dlq", "retry", "1"],
        &["dlq", "retry", "--queue", "q"],
        &["dlq", "rm", "1"],
        &["dlq", "redrives"],
        &["messages", "ls", "q"],
        &["messages", "show", "p", "t"],
        &["messages", "retry", "p", "t"],
        &["schedule", "ls"],
        &["schedule", "add", "s", "--queue=q", "--every=1m", "--payload=1"],
        &["schedule", "fire", "s"],
        &["traces", "names"],
        &["export", "q"],
        &["bench", "queues", "--messages", "1"],
    ] {
        let (ended, text) = run(folder.path(), &[verb, &["--url", &url]].concat());
        assert_eq!(ended.code, 69, "{verb:?}: {text}");
    }
    let file = folder.join("one.jsonl");
    std::fs::write(&file, "{\"payload\":1}\n").expect("writes");
    let (ended, text) = run(folder.path(), &["import", "q", "one.jsonl", "--url", &url]);
    assert_eq!(ended.code, 69, "{text}");
    assert!(text.contains("--skip 0"), "{text}");
}

#[test]
fn a_bench_through_a_node_keeps_the_contract_and_leaves_nothing() {
    let place = Place::new();
    let other = Place::new();
    let against = other.node.url("");
    let small = ["bench", "queues", "--messages", "60", "--connections", "2", "--partitions", "4"];
    let report = place.json(&[&small[..], &["--batch", "10", "--against", &against]].concat());
    let report: skep::report::Report = serde_json::from_value(report).expect("keeps the contract");
    assert!(report.ok && report.name == "bench queues", "{report:?}");
    assert!(report.figures["batch_10_push_ratio"] > 0.0, "{report:?}");
    let shown = place.ok(&small);
    for part in ["MESSAGES/S", "P99", "AGAINST 1", "consume"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for node in [&place, &other] {
        let left = node.json(&["queues", "ls"]);
        assert_eq!(left["queues"].as_array().map(Vec::len), Some(0), "{left}");
    }
}

#[test]
fn an_interrupted_bench_deletes_its_queue() {
    let place = Place::new();
    let arguments = ["bench", "queues", "--messages", "1000000", "--batch", "1", "--duration=1h"];
    let mut bench = command(place.folder.path(), &arguments);
    bench.env("SKEP_URL", place.node.url(""));
    bench.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = bench.spawn().expect("starts");
    let queues = || place.json(&["queues", "ls"])["queues"].as_array().map_or(0, Vec::len);
    until("it has begun", || queues() == 1);
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it is there");
    let said = Said::of(&child.wait_with_output().expect("ends"));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.beside.contains("Ctrl-C"), "{said:?}");
    assert_eq!(queues(), 0, "nothing is left");
}
