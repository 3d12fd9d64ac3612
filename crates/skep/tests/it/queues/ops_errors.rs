//! What is wrong with a question about queues is said with its field, its value and what would be
//! right.

use super::kit::Bench;
use serde_json::{Value, json};

const NO_PARTITION: &str = "2c7e4bd1-9e4b-4f7d-8d7d-9a3d1c2b3a4f";

fn code(bench: &Bench, method: &str, path: &str) -> (u16, String) {
    let answer = bench.node.send(method, path, &[], None);
    let problem = answer.json();
    assert!(problem["error"].is_string(), "{method} {path}: {problem}");
    (answer.status, problem["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn what_is_not_there_is_told_so() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1"]);
        let of_none = format!("/api/v1/messages/{NO_PARTITION}/1");
        let page = bench.get("/api/v1/messages?queue=q").json();
        let partition = page["messages"][0]["partitionId"].as_str().expect("an id");
        let other = format!("/api/v1/messages/{partition}/none");
        let queue = "E_QUEUE_UNKNOWN";
        for (method, path, expected) in [
            ("GET", "/api/v1/resources/queues/none", queue),
            ("GET", "/api/v1/resources/queues/none/depth", queue),
            ("GET", "/api/v1/resources/queues/none/partitions", queue),
            ("GET", "/api/v1/resources/partitions?queue=none", queue),
            ("GET", "/api/v1/messages?queue=none", queue),
            ("GET", "/api/v1/messages?queue=q&partition=none", "E_PARTITION_UNKNOWN"),
            ("GET", "/api/v1/queues/none/export", queue),
            ("GET", "/api/v1/queues/q/export?partition=none", "E_PARTITION_UNKNOWN"),
            ("GET", "/api/v1/queues/none/delayed", queue),
            ("DELETE", "/api/v1/queues/none/delayed/1-1", queue),
            ("DELETE", "/api/v1/queues/q/delayed/1-1", "E_MESSAGE_UNKNOWN"),
            ("DELETE", "/api/v1/queues/none/clear", queue),
            ("DELETE", "/api/v1/dlq?queue=none", queue),
            ("GET", "/api/v1/dlq/999999", "E_DEAD_LETTER_UNKNOWN"),
            ("DELETE", "/api/v1/dlq/999999", "E_DEAD_LETTER_UNKNOWN"),
            ("POST", "/api/v1/dlq/999999/retry", "E_DEAD_LETTER_UNKNOWN"),
            ("GET", "/api/v1/consumer-groups?queue=none", queue),
            ("GET", "/api/v1/consumer-groups/none", "E_GROUP_UNKNOWN"),
        ] {
            assert_eq!(code(bench, method, path), (404, expected.to_owned()), "{method} {path}");
        }
        for path in [&of_none, &other] {
            for (method, rest) in
                [("GET", ""), ("DELETE", ""), ("POST", "/retry"), ("POST", "/dlq")]
            {
                let expected = (404, "E_MESSAGE_UNKNOWN".to_owned());
                let path = format!("{path}{rest}");
                assert_eq!(code(bench, method, &path), expected, "{method} {path}");
            }
        }
        let body = json!({ "queue": "none", "subscriptionTimestamp": "2026-01-31T12:00:00Z" });
        let subscribed = bench.post("/api/v1/consumer-groups/g/subscription", &body);
        assert_eq!(subscribed.json()["code"], queue, "{}", subscribed.body);
    });
}

#[test]
fn values_that_cannot_be_are_named_with_what_would_be_right() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1"]);
        let long = "x".repeat(256);
        for (path, field, value) in [
            ("resources/queues?limit=0", "limit", "\"0\""),
            ("resources/queues?limit=many", "limit", "\"many\""),
            ("resources/queues?search=a%00", "search", "control"),
            ("resources/queues/q?partitions=-1", "partitions", "\"-1\""),
            ("resources/queues/q/partitions?limit=1001", "limit", "\"1001\""),
            ("resources/queues/q/partitions?after=7", "after", "\"7\""),
            (&format!("resources/queues/q/partitions?after={NO_PARTITION}"), "after", "2c7e"),
            (&format!("resources/queues/q/partitions?prefix={long}"), "prefix", "255"),
            ("resources/partitions", "queue", "required"),
            (&format!("resources/queues/q/depth?group={long}"), "group", "255"),
            ("messages?queue=q&limit=0", "limit", "\"0\""),
            ("messages?queue=q&limit=1001", "limit", "\"1001\""),
            ("messages?queue=q&offset=10001", "offset", "\"10001\""),
            ("messages?queue=q&offset=-1", "offset", "\"-1\""),
            ("messages?queue=q&status=lost", "status", "\"lost\""),
            ("messages?queue=q&from=soon", "from", "\"soon\""),
            ("messages?queue=q&to=1969-01-01T00:00:00Z", "to", "1969"),
            ("messages?queue=q&to=2999-01-01T00:00:00Z", "to", "2553"),
            ("messages?queue=q&after=potato", "after", "potato"),
            ("messages?queue=q&after=%F0%9F%98%80", "after", "\u{1f600}"),
            ("messages?partition=p", "partition", "\"p\""),
            ("messages?namespace=n&partition=p", "partition", "\"p\""),
            ("messages?queue=q&field=a", "field", "equals"),
            ("messages?queue=q&equals=a", "field", "equals"),
            ("messages?queue=q&field=a&equals=1&contains=1", "contains", "both"),
            ("messages?queue=q&field=a..b&equals=1", "field", "\"a..b\""),
            ("messages?queue=q&field=a[x]&equals=1", "field", "\"a[x]\""),
            ("messages/nonsense/1", "partitionId", "\"nonsense\""),
            ("queues/q/export?from=soon", "from", "\"soon\""),
            ("queues/q/delayed?limit=x", "limit", "\"x\""),
            ("queues/q/delayed?after=x", "after", "\"x\""),
            ("dlq?limit=0", "limit", "\"0\""),
            ("dlq?limit=ten", "limit", "\"ten\""),
            ("dlq?offset=-1", "offset", "\"-1\""),
            ("dlq?before=x", "before", "\"x\""),
            ("dlq?to=soon", "to", "\"soon\""),
            ("dlq/potato", "id", "\"potato\""),
            ("consumer-groups?limit=0", "limit", "\"0\""),
            ("consumer-groups?after=potato", "after", "potato"),
            ("consumer-groups/lagging?minLagSeconds=soon", "minLagSeconds", "\"soon\""),
        ] {
            let answer = bench.get(&format!("/api/v1/{path}"));
            let problem = answer.json();
            assert_eq!(
                (answer.status, &problem["field"]),
                (400, &json!(field)),
                "{path}: {problem}"
            );
            let words = problem["error"].as_str().unwrap_or_default();
            assert!(words.contains(value) && words == problem["detail"], "{path}: {words}");
        }
        for (path, field) in [
            ("dlq", "queue"),
            ("dlq?queue=q&offset=1", "offset"),
            ("dlq?queue=q&limit=10001", "limit"),
            ("dlq/potato", "id"),
            ("queues/q/delayed/potato", "id"),
            ("consumer-groups/g?deleteMetadata=maybe", "deleteMetadata"),
            ("consumer-groups/g/queues/q?deleteMetadata=maybe", "deleteMetadata"),
            ("messages/nonsense/1", "partitionId"),
        ] {
            let answer = bench.node.send("DELETE", &format!("/api/v1/{path}"), &[], None);
            assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{path}");
        }
        for (body, field) in [
            (json!({}), "subscriptionTimestamp"),
            (json!({ "subscriptionTimestamp": 7 }), "subscriptionTimestamp"),
            (json!({ "subscriptionTimestamp": "soon" }), "subscriptionTimestamp"),
            (json!({ "subscriptionTimestamp": "2026-01-31T12:00:00Z", "queue": 7 }), "queue"),
        ] {
            let answer = bench.post("/api/v1/consumer-groups/g/subscription", &body);
            assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{body}");
        }
        let path = format!("/api/v1/messages/{NO_PARTITION}/1/dlq");
        let answer = bench.post(&path, &json!({ "consumerGroup": [] }));
        assert_eq!(answer.json()["field"], "consumerGroup", "{}", answer.body);
    });
}

#[test]
fn what_changes_something_needs_more_than_what_reads() {
    let document: Value = Bench::embedded(&[]).get("/api/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    let of_queues = |path: &str| {
        let parts = ["/messages", "/dlq", "/consumer-groups", "/resources/", "/queues/"];
        parts.iter().any(|part| path.contains(part)) && !path.contains("/pop/")
    };
    let mut seen = 0;
    for (path, methods) in paths.iter().filter(|(path, _)| of_queues(path)) {
        for (method, route) in methods.as_object().expect("methods") {
            let scope = if method == "get" { "read" } else { "admin" };
            assert_eq!(route["x-scope"], scope, "{method} {path}");
            seen += 1;
        }
    }
    assert!(seen >= 25, "{seen}");
}
