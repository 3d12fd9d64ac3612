//! Many partitions, many groups, retried requests, and more than there is room for.

use super::kit::Bench;
use crate::common::until;
use serde_json::{Value, json};
use skep_testkit::{Proxy, http};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Consumes everything there is for a group; numbers by partition, in the order of their coming.
fn consume(bench: &Bench, queue: &str, group: &str) -> HashMap<String, Vec<u64>> {
    let mut seen: HashMap<String, Vec<u64>> = HashMap::new();
    loop {
        let rest = format!("{queue}?consumerGroup={group}&batch=1000&partitions=1000");
        let popped = bench.pop(&rest);
        let Some(messages) = popped["messages"].as_array() else { return seen };
        for message in messages {
            let partition = message["partition"].as_str().expect("a name").to_owned();
            seen.entry(partition).or_default().push(message["data"].as_u64().expect("a number"));
        }
        let acks: Vec<Value> = messages.iter().map(ack_of).collect();
        let body = json!({ "acknowledgments": acks, "consumerGroup": group });
        let answer = bench.post("/api/v1/ack/batch", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let refused = answer
            .json()
            .as_array()
            .expect("an array")
            .iter()
            .find_map(|item| (item["success"] != true).then(|| item.clone()));
        assert_eq!(refused, None);
    }
}

fn ack_of(message: &Value) -> Value {
    json!({
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "leaseId": message["leaseId"],
        "status": "completed",
    })
}

/// Pushes the same numbers to each partition, a thousand messages at a time.
fn fill(bench: &Bench, queue: &str, partitions: usize, numbers: u64) {
    let mut items = Vec::new();
    for number in 0..numbers {
        for partition in 0..partitions {
            items.push(json!({
                "queue": queue, "partition": format!("p{partition}"), "payload": number,
            }));
        }
    }
    for chunk in items.chunks(1_000) {
        bench.push(&json!(chunk));
    }
}

#[test]
fn five_thousand_partitions_are_consumed_in_order_and_replayed() {
    Bench::each(|bench| {
        fill(bench, "wide", 5_000, 2);
        for round in ["first", "replay"] {
            let seen = consume(bench, "wide", "readers");
            assert_eq!(seen.len(), 5_000, "{round}");
            assert!(seen.values().all(|numbers| numbers == &[0, 1]), "{round}");
            let seek = "/api/v1/consumer-groups/readers/queues/wide/seek";
            let answer = bench.post(seek, &json!({ "timestamp": "2020-01-01T00:00:00Z" }));
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    });
}

#[test]
fn a_hundred_groups_each_see_everything_once() {
    Bench::each(|bench| {
        fill(bench, "shared", 20, 3);
        for group in 0..100 {
            let seen = consume(bench, "shared", &format!("g{group}"));
            assert_eq!(seen.len(), 20, "group {group}");
            assert!(seen.values().all(|numbers| numbers == &[0, 1, 2]), "group {group}");
        }
    });
}

/// Sends a request whose answer never comes, as clients see it: the server does it, and the
/// connection ends.
fn lose_the_answer(bench: &Bench, proxy: &Proxy, path: &str, body: &Value, done: &str) {
    proxy.mute();
    let url = format!("http://127.0.0.1:{}{path}", proxy.port());
    std::thread::scope(|scope| {
        let body = body.to_string();
        let asking = scope.spawn(move || http::send("POST", &url, &[], Some(&body)));
        until("it is done", || bench.get("/metrics").body.contains(done));
        proxy.cut();
        assert!(asking.join().expect("no panic").is_err(), "an answer came");
    });
    proxy.heal();
}

#[test]
fn requests_whose_answers_are_lost_are_repeated_without_harm() {
    Bench::each(|bench| {
        let (host, port) = bench.node.address().rsplit_once(':').expect("host and port");
        let proxy = Proxy::start((host, port.parse().expect("a port")));
        for number in 1..=5 {
            let item = json!({ "queue": "q", "payload": number,
                               "transactionId": format!("t{number}") });
            let body = json!({ "items": [item] });
            let done = format!("skep_queue_pushed_messages_total{{status=\"queued\"}} {number}\n");
            lose_the_answer(bench, &proxy, "/api/v1/push", &body, &done);
            let again = bench.post("/api/v1/push", &body);
            assert_eq!((again.status, &again.json()[0]["status"]), (201, &json!("duplicate")));
        }
        let popped = bench.pop("q?batch=100");
        let messages = popped["messages"].as_array().expect("messages");
        assert_eq!(messages.len(), 5, "each came once: {popped}");
        let acks: Vec<Value> = messages.iter().map(ack_of).collect();
        let body = json!({ "acknowledgments": acks, "consumerGroup": null });
        let done = "skep_queue_settled_messages_total{result=\"completed\"} 5\n";
        lose_the_answer(bench, &proxy, "/api/v1/ack/batch", &body, done);
        let again = bench.post("/api/v1/ack/batch", &body);
        let all = again.json().as_array().cloned().expect("an array");
        let noop = |item: &Value| item["success"] == true && item["noop"] == true;
        assert!(all.iter().all(noop), "{all:?}");
        assert_eq!(bench.pop("q"), Value::Null);
    });
}

#[test]
fn what_is_too_much_is_refused_and_what_was_taken_is_kept() {
    let bench = Bench::embedded(&["queues.waiting_max=16"]);
    let (taken, refused) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for producer in 0..64 {
            let (bench, taken, refused) = (&bench, &taken, &refused);
            scope.spawn(move || {
                for number in 0..20 {
                    let id = format!("{producer}-{number}");
                    let item = json!({ "queue": "storm", "partition": format!("p{producer}"),
                                       "payload": id, "transactionId": id });
                    let body = json!({ "items": [item] });
                    let answer = bench.post("/api/v1/push", &body);
                    match answer.status {
                        201 => drop(taken.lock().expect("no panic").insert(id)),
                        429 => {
                            let wait = answer.header("retry-after").parse::<u64>();
                            assert!(wait.is_ok_and(|wait| wait >= 1), "{}", answer.body);
                            assert!(answer.json()["error"].is_string(), "{}", answer.body);
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        status => panic!("{status}: {}", answer.body),
                    }
                }
            });
        }
    });
    let taken = taken.into_inner().expect("no panic");
    let refused = refused.into_inner();
    assert_eq!(taken.len() + refused, 64 * 20);
    assert!(refused > 0, "64 producers never met a limit of 16");
    let mut kept = BTreeSet::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let popped = bench.pop("storm?batch=1000&partitions=100&autoAck=true");
        let Some(messages) = popped["messages"].as_array() else { break };
        for message in messages {
            let id = message["data"].as_str().expect("an id").to_owned();
            let (producer, number) = id.split_once('-').expect("two parts");
            let number = number.parse::<u64>().expect("a number") + 1;
            let before = last.insert(producer.to_owned(), number);
            assert!(before.is_none_or(|before| before < number), "out of order: {id}");
            kept.insert(id);
        }
    }
    assert_eq!(kept, taken);
    until("the refusals are counted", || {
        bench.get("/metrics").body.contains("skep_queue_overloaded_total{kind=\"push\"}")
    });
}
