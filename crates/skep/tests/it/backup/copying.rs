//! `skep migrate copy`: a node with everything in it goes from SQLite to PostgreSQL.

use super::verb;
use crate::common::{skep, until};
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, Receiver};

fn ask(node: &Node, method: &str, path: &str, body: Value) -> Value {
    let answer = node.send(method, path, &[], Some(&body.to_string()));
    assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

fn pop(node: &Node, query: &str) -> Vec<Value> {
    let answer = node.get(&format!("/api/v1/pop/queue/{query}"));
    if answer.status == 204 {
        return Vec::new();
    }
    answer.json()["messages"].as_array().cloned().unwrap_or_default()
}

fn payloads(messages: &[Value]) -> Vec<i64> {
    messages.iter().filter_map(|message| message["data"].as_i64()).collect()
}

fn ack(node: &Node, message: &Value, status: &str) {
    let body = json!({
        "transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "consumerGroup": message["consumerGroup"],
        "status": status, "error": "it broke",
    });
    let said = ask(node, "POST", "/api/v1/ack", body);
    assert!(said.to_string().contains("\"success\":true"), "{said}");
}

/// What a node is asked before and after.
const LOOKS: &[&str] = &[
    "/api/v1/resources/queues",
    "/api/v1/resources/queues/orders",
    "/api/v1/resources/queues/orders/partitions",
    "/api/v1/resources/queues/orders/depth",
    "/api/v1/queues/orders/delayed",
    "/api/v1/consumer-groups",
    "/api/v1/messages?queue=orders&limit=100",
    "/api/v1/dlq",
    "/api/v1/schedules",
    "/api/v1/traces/names",
    "/api/v1/traces/by-name/order-7",
    "/api/v1/system/maintenance/pop",
    "/api/v1/polls/endpoints?limit=10",
    "/api/v1/polls/endpoints/quiet/results",
    "/api/v1/accounts",
    "/api/v1/accounts/ann",
    "/api/v1/monitors",
    "/api/v1/servers",
    "/api/v1/servers/ntp1/monitors",
    "/api/v1/servers/ntp1/samples",
    "/api/v1/routes/shop",
    "/api/v1/keys",
    "/api/v1/audit",
    "/api/v1/pools/dead",
];

/// Fields that say how it is at the moment, or how long ago something was.
const PASSING: &[&str] =
    &["rates", "maxTimeLag", "lagSeconds", "made_at", "owner", "token", "next_due", "now"];

fn without_passing(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            fields.values_mut().for_each(without_passing);
        }
        Value::Array(all) => all.iter_mut().for_each(without_passing),
        _ => {}
    }
}

fn looks(node: &Node) -> Vec<(&'static str, Value)> {
    let look = |path: &&'static str| {
        let answer = node.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let mut shown = answer.json();
        without_passing(&mut shown);
        (*path, shown)
    };
    LOOKS.iter().map(look).collect()
}

/// One of everything, made as its users make it.
fn furnish(node: &Node, target: &str) {
    let short = json!({ "queue": "leases", "options": { "leaseTime": 2 } });
    ask(node, "POST", "/api/v1/configure", short);
    let two =
        [json!({ "queue": "leases", "payload": 1 }), json!({ "queue": "leases", "payload": 2 })];
    ask(node, "POST", "/api/v1/push", json!({ "items": two }));
    let known = pop(node, "leases?consumerGroup=readers&autoAck=true");
    assert_eq!(payloads(&known), [1]);
    let options = json!({ "leaseTime": 60, "retryLimit": 0, "priority": 4,
                          "retentionEnabled": true, "completedRetentionSeconds": 86_400 });
    ask(node, "POST", "/api/v1/configure", json!({ "queue": "orders", "options": options }));
    let item = |partition: &str, n: i64| {
        json!({ "queue": "orders", "partition": partition, "payload": n,
                "transactionId": format!("{partition}-{n}") })
    };
    for partition in ["a", "b", "c"] {
        let items: Vec<Value> = (1..=10).map(|n| item(partition, n)).collect();
        ask(node, "POST", "/api/v1/push", json!({ "items": items }));
    }
    let mut urgent = item("a", 99);
    urgent["priority"] = json!(7);
    let mut late = item("c", 77);
    late["delay"] = json!(3_600);
    ask(node, "POST", "/api/v1/push", json!({ "items": [urgent, late] }));
    // Cursors: one group is past three messages of one partition, and one has a dead letter.
    let first = pop(node, "orders/partition/b?batch=3&consumerGroup=readers");
    assert_eq!(payloads(&first), [1, 2, 3]);
    for message in &first {
        ack(node, message, "completed");
    }
    let bad = pop(node, "orders/partition/c?batch=1&consumerGroup=readers");
    ack(node, &bad[0], "failed");
    ask(
        node,
        "DELETE",
        &format!("/api/v1/messages/{}/b-9", first[0]["partitionId"].as_str().expect("it has one")),
        Value::Null,
    );
    let told = json!({ "transactionId": "b-1", "partitionId": first[0]["partitionId"],
                       "consumerGroup": "readers", "traceNames": ["order-7"],
                       "data": { "text": "begun" }, "eventType": "info" });
    ask(node, "POST", "/api/v1/traces", told);
    let beat =
        json!({ "name": "beat", "queue": "beats", "cron": "0 0 1 1 *", "payload": { "n": 1 } });
    ask(node, "POST", "/api/v1/schedules", beat);

    let endpoint =
        |id: &str, interval: &str| json!({ "id": id, "url": target, "interval": interval });
    ask(node, "POST", "/api/v1/polls/endpoints", endpoint("shop", "1s"));
    ask(node, "POST", "/api/v1/polls/endpoints", endpoint("quiet", "24h"));
    until("both are polled", || {
        ["shop", "quiet"].iter().all(|id| {
            let path = format!("/api/v1/polls/endpoints/{id}/results");
            node.get(&path).json()["results"].as_array().is_some_and(|all| !all.is_empty())
        })
    });
    for id in ["shop", "quiet"] {
        ask(node, "POST", &format!("/api/v1/polls/endpoints/{id}/pause"), json!({}));
    }
    ask(node, "POST", "/api/v1/accounts", json!({ "id": "ann", "name": "Ann" }));
    let monitor = json!({ "id": "m1", "ip": "10.1.0.1", "status": "active", "account": "ann" });
    ask(node, "POST", "/api/v1/monitors", monitor);
    let server = json!({ "id": "ntp1", "ip": "192.0.2.7", "probe": { "kind": "ntp" } });
    ask(node, "POST", "/api/v1/servers", server);
    ask(node, "POST", "/api/v1/servers/ntp1/pause", json!({}));
    let address = target.split('/').nth(2).unwrap_or_default();
    let route = json!({ "name": "shop", "host": "shop.example", "upstreams": [address] });
    ask(node, "POST", "/api/v1/routes", route);
}

#[test]
fn a_node_with_everything_in_it_goes_on_in_postgres_where_it_was() {
    let folder = Folder::new("copying");
    let target = Receiver::start(0, &[200]);
    let small = ["--set", "gateway.listen=127.0.0.1:0", "--set", "node.name=one"];
    let node = Node::start(skep(), &folder.join("data"), &small);
    furnish(&node, &target.url());
    // Before the first look, because it is noted in the audit log.
    assert_eq!(verb(&folder, Some(&node), &["backup", "whole.backup"]).0, 0);
    let (before, polled) = (looks(&node), results(&node, "shop"));

    let database = skep_testkit::Postgres::shared().database();
    let url = database.url();
    let copy = ["migrate", "copy", "--from", "data", "--to", &url];
    let (code, said) = verb(&folder, None, &copy);
    assert_eq!(code, 75, "a node has it open: {said}");
    // Stopped while this is leased.
    assert_eq!(payloads(&pop(&node, "leases?consumerGroup=readers")), [2]);
    assert_eq!(node.stop().code, 0);
    let (code, said) = verb(&folder, None, &[&copy[..], &["--dry-run"]].concat());
    assert!(code == 0 && said.contains("skep_queue_segments"), "{said}");
    assert_eq!(database.run("SELECT to_regclass('skep_migrations') IS NULL"), "t");
    let (code, said) = verb(&folder, None, &copy);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("everything is in postgres://") && !said.contains("NO\n"), "{said}");
    let (code, said) = verb(&folder, None, &copy);
    assert!(code == 64 && said.contains("the target is not empty"), "{code}: {said}");
    let newer = "SELECT epoch > (SELECT max(token_epoch) FROM skep_poll_state)
                 FROM skep_ownership_meta";
    assert_eq!(database.run(newer), "t", "owners are given newer tokens than all before");
    // The same from a backup, as its node was a moment before.
    let other = skep_testkit::Postgres::shared().database();
    let from = ["migrate", "copy", "--from", "whole.backup", "--to", &other.url(), "--json"];
    let (code, said) = verb(&folder, None, &from);
    assert_eq!(code, 0, "{said}");
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((&told["same"], &told["copied"]), (&json!(true), &json!(true)));

    let shared = [&small[..], &["--database", &url]].concat();
    let node = Node::start(skep(), &folder.join("elsewhere"), &shared);
    let pairs = before.into_iter().zip(looks(&node));
    let other: Vec<_> = pairs.filter(|(before, after)| before != after).collect();
    assert!(other.is_empty(), "{other:#?}");
    // Groups go on where they were, and what was pushed before is known again.
    let next = pop(&node, "orders/partition/b?batch=100&consumerGroup=readers&autoAck=true");
    assert_eq!(payloads(&next), [4, 5, 6, 7, 8, 10], "9 was deleted");
    let again = json!({ "items": [{ "queue": "orders", "partition": "b", "payload": 10,
                                    "transactionId": "b-10" }] });
    assert_eq!(ask(&node, "POST", "/api/v1/push", again)[0]["status"], "duplicate");
    let more = json!({ "items": [{ "queue": "orders", "partition": "b", "payload": 11 },
                                 { "queue": "fresh", "partition": "x", "payload": 1 }] });
    ask(&node, "POST", "/api/v1/push", more);
    let next = pop(&node, "orders/partition/b?batch=100&consumerGroup=readers&autoAck=true");
    assert_eq!(payloads(&next), [11]);
    let all = pop(
        &node,
        "orders/partition/c?batch=100&consumerGroup=late&autoAck=true\
                          &subscriptionMode=all",
    );
    assert_eq!(payloads(&all), (1..=10).collect::<Vec<i64>>());
    // What was leased comes again when the lease is over, and not lost.
    let lease = "leases?consumerGroup=readers&wait=true&timeout=10000";
    assert_eq!(payloads(&pop(&node, lease)), [2]);
    let urgent = pop(&node, "orders/partition/a?batch=2&consumerGroup=readers&autoAck=true");
    assert_eq!(payloads(&urgent), [99], "priorities are as they were");
    // Its results count: tokens are newer than all before.
    ask(&node, "POST", "/api/v1/polls/endpoints/shop/resume", json!({}));
    until("it is polled from here", || results(&node, "shop") > polled);
    let key = json!({ "name": "later", "scopes": ["admin"] });
    ask(&node, "POST", "/api/v1/keys", key);
}

fn results(node: &Node, endpoint: &str) -> usize {
    let path = format!("/api/v1/polls/endpoints/{endpoint}/results?limit=1000");
    node.get(&path).json()["results"].as_array().map_or(0, Vec::len)
}
