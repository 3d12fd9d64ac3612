//! Writes that go to the node where somebody waits for them.

use super::kit::{Trio, payloads};
use super::load::Load;
use crate::common::until;
use serde_json::json;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

#[test]
fn pushes_go_to_the_node_with_consumers_and_acknowledgements_to_that_of_the_lease() {
    let trio = Trio::start(&["cluster.forward_writes=true"]);
    assert_eq!(trio.status(0)["writes"], "forwarded");
    let queue = trio.queue_of(1, "g");
    let answer = trio.push(0, &queue, "nobody waits");
    assert_eq!(answer.header("x-served-by"), "a", "here, if there are consumers nowhere");
    // A group that begins with what is new has to be there before it: that a consumer has come is
    // told a moment earlier.
    let path = format!("{queue}?consumerGroup=g&subscriptionMode=new");
    assert_eq!(trio.get(1, &format!("/api/v1/pop/queue/{path}")).status, 204);
    let pop = trio.pop_later(2, &format!("{path}&wait=true&timeout=25000"), LONG);
    let explained = |place: usize| {
        let path = format!("/api/v1/cluster/explain?queue={queue}&group=g&for=push");
        trio.get(place, &path).json()["place"].as_str().map(str::to_owned)
    };
    until("everybody knows of the consumer", || {
        (0..3).all(|place| explained(place).as_deref() == Some("b"))
    });
    let answer = trio.push(0, &queue, "somebody waits");
    assert_eq!((answer.header("x-served-by"), answer.header("x-forwarded-by")), ("b", "a"));
    let popped = pop.join().expect("does not panic").expect("is answered");
    assert_eq!(payloads(&popped), ["somebody waits"]);
    let one = popped.json()["messages"][0].clone();
    let settle = json!({ "transactionId": one["transactionId"], "partitionId": one["partitionId"],
                         "leaseId": one["leaseId"], "consumerGroup": "g" });
    let answer = trio.post(2, "/api/v1/ack", &settle);
    assert_eq!(answer.json()[0]["success"], true, "{}", answer.body);
    assert_eq!((answer.header("x-served-by"), answer.header("x-forwarded-by")), ("b", "c"));
    // What is wrong is said in the words of the route, wherever it is.
    let answer = trio.post(0, "/api/v1/push", &json!({ "items": 3 }));
    assert_eq!((answer.status, answer.header("x-forwarded-by")), (400, ""), "{}", answer.body);
}

#[test]
fn forwarded_writes_are_neither_lost_nor_doubled_when_a_node_is_killed() {
    let mut trio = Trio::start(&["cluster.forward_writes=true"]);
    let load = Load::start(&trio);
    trio.kill(2);
    load.wait_for_more();
    trio.revive(2);
    trio.wait_until_together();
    load.wait_for_more();
    let report = load.finish(&trio);
    report.assert_only_at(2);
    assert!(report.forwarded > 0 && report.messages > 100, "{} messages", report.messages);
}
