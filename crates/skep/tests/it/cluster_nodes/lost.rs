//! Answers that are lost between two nodes, after the other one did the work.

use super::kit::{Trio, payloads};
use crate::common::until;
use serde_json::{Value, json};
use skep_testkit::http;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

#[test]
fn a_pop_whose_answer_is_lost_gets_it_when_it_asks_again() {
    let trio = Trio::proxied(&[]);
    let queue = trio.queue_of(1, "g");
    let path = format!("{queue}?consumerGroup=g&subscriptionMode=all");
    trio.push(1, &queue, "once");
    trio.proxy(1).mute();
    let pop = trio.pop_later(0, &path, LONG);
    until("the other node has taken it", || trio.leased(1, &queue) == 1);
    trio.proxy(1).cut();
    trio.proxy(1).heal();
    let answer = pop.join().expect("does not panic").expect("is answered");
    assert_eq!(payloads(&answer), ["once"], "{}", answer.body);
    let by = (answer.header("x-served-by"), answer.header("x-forwarded-by"));
    assert_eq!(by, ("b", "a"));
    let answer = trio.get(0, &format!("/api/v1/pop/queue/{path}"));
    assert_eq!(answer.status, 204, "it is leased once: {}", answer.body);
}

#[test]
fn what_a_lost_answer_had_comes_again_when_its_lease_ends() {
    let trio = Trio::proxied(&[]);
    let queue = trio.queue_of(1, "g");
    let path = format!("{queue}?consumerGroup=g&subscriptionMode=all&leaseSeconds=5");
    trio.push(1, &queue, "kept");
    trio.proxy(1).mute();
    let pop = trio.pop_later(0, &path, LONG);
    until("the other node has taken it", || trio.leased(1, &queue) == 1);
    trio.proxy(1).cut();
    let answer = pop.join().expect("does not panic").expect("is answered");
    // No other node is asked for what this one may have.
    let told = (answer.status, answer.header("x-fallback"), answer.header("x-served-by"));
    assert_eq!(told, (204, "answer-lost", "a"), "{}", answer.body);
    let again = skep_testkit::eventually("it comes again", || {
        let answer = trio.get(0, &format!("/api/v1/pop/queue/{path}"));
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(payloads(&again), ["kept"]);
}

/// A consumer of a queue waits at `b`, so that is where `a` sends pushes.
fn wait_for_consumer(trio: &Trio, queue: &str) {
    until("everybody knows", || {
        let status = trio.status(0);
        let presence = status["presence"].as_array().cloned().unwrap_or_default();
        presence.iter().any(|one| one["queue"] == queue && one["nodes"] == json!(["b"]))
    });
}

#[test]
fn a_push_whose_answer_is_lost_is_there_once() {
    let trio = Trio::proxied(&["cluster.forward_writes=true"]);
    let queue = trio.queue_of(1, "g");
    let path = format!("{queue}?consumerGroup=g&wait=true&timeout=25000&subscriptionMode=all");
    let consumer = trio.pop_later(1, &path, LONG);
    wait_for_consumer(&trio, &queue);
    trio.proxy(1).mute();
    let url = format!("http://{}/api/v1/push", trio.address(0));
    // Nobody gave it an id by which it could be known again.
    let body = json!({ "items": [{ "queue": queue, "payload": "once" }] }).to_string();
    let push = std::thread::spawn(move || http::send("POST", &url, &[], Some(&body)));
    let consumed = consumer.join().expect("does not panic").expect("is answered");
    assert_eq!(payloads(&consumed), ["once"], "the other node did it");
    trio.proxy(1).cut();
    let answer = push.join().expect("does not panic").expect("is answered");
    assert_eq!(answer.status, 201, "{}", answer.body);
    let told = (answer.header("x-fallback"), answer.header("x-served-by"));
    assert!(told.0 == "answer-lost" && told.1 != "b", "{told:?}");
    assert_eq!(answer.json()[0]["message_id"], consumed.json()["messages"][0]["id"]);
    let audit =
        format!("/api/v1/pop/queue/{queue}?consumerGroup=audit&subscriptionMode=all&batch=9");
    assert_eq!(payloads(&trio.get(0, &audit)), ["once"]);
}

fn ack(popped: &Value) -> Value {
    let one = &popped["messages"][0];
    json!({ "transactionId": one["transactionId"], "partitionId": one["partitionId"],
            "leaseId": one["leaseId"], "consumerGroup": "g", "status": "failed", "error": "no" })
}

/// A failure that is told twice would cost two of the message's tries.
#[test]
fn an_acknowledgement_whose_answer_is_lost_counts_once() {
    let trio = Trio::proxied(&["cluster.forward_writes=true"]);
    let queue = trio.queue_of(1, "g");
    let options = json!({ "queue": queue, "options": { "retryLimit": 1 } });
    assert_eq!(trio.post(0, "/api/v1/configure", &options).status, 200);
    trio.push(1, &queue, "tried");
    let path = format!("/api/v1/pop/queue/{queue}?consumerGroup=g&subscriptionMode=all");
    let popped = trio.get(1, &path).json();
    trio.proxy(1).mute();
    let url = format!("http://{}/api/v1/ack", trio.address(0));
    let body = ack(&popped).to_string();
    let acked = std::thread::spawn(move || http::send("POST", &url, &[], Some(&body)));
    until("the other node has done it", || trio.leased(1, &queue) == 0);
    trio.proxy(1).cut();
    trio.proxy(1).heal();
    let answer = acked.join().expect("does not panic").expect("is answered");
    assert_eq!((answer.status, &answer.json()[0]["success"]), (200, &json!(true)));
    assert_eq!(answer.header("x-served-by"), "b", "the one that remembers: {}", answer.body);
    let again = skep_testkit::eventually("one failure of two brings it back", || {
        let answer = trio.get(0, &path);
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(payloads(&again), ["tried"]);
    let dead = trio.get(0, &format!("/api/v1/dlq?queue={queue}")).json();
    assert_eq!(dead["total"], json!(0), "{dead}");
}
