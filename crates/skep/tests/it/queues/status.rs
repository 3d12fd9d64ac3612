//! What happened in queues and what they cost, and what is not there.

use super::kit::Bench;
use crate::common::until;
use serde_json::{Value, json};

/// The sums of the points of an answer.
fn sum(points: &Value, field: &str) -> u64 {
    points.as_array().into_iter().flatten().filter_map(|point| point[field].as_u64()).sum()
}

/// Pushes 5 messages, completes 2, fails one and lets one die.
fn work(bench: &Bench) {
    let options = json!({ "retryDelay": 0 });
    bench.post("/api/v1/configure", &json!({ "queue": "q", "options": options }));
    bench.push_all("q", "p", &["1", "2", "3", "4", "4"]);
    bench.push_all("other", "p", &["1"]);
    let popped = bench.pop("q?batch=2");
    bench.ack(&popped["messages"][0], &json!({}));
    bench.ack(&popped["messages"][1], &json!({}));
    let third = bench.pop("q");
    bench.ack(&third["messages"][0], &json!({ "status": "failed" }));
    until("it comes again", || {
        let again = bench.pop("q");
        if again.is_null() {
            return false;
        }
        bench.ack(&again["messages"][0], &json!({ "status": "dlq" }));
        true
    });
    assert_eq!(bench.pop("q?autoAck=true")["messages"][0]["transactionId"], "4");
}

#[test]
fn a_delayed_message_counts_once_when_its_time_has_come() {
    Bench::each(|bench| {
        let late = json!([{ "queue": "late", "payload": 1, "delay": 1 }]);
        bench.push(&late);
        let pushed = || {
            bench.node.send("POST", "/api/v1/stats/refresh", &[], None);
            let answer = bench.get("/api/v1/status/analytics?queue=late").json();
            sum(&answer["points"], "pushed")
        };
        let depth = || bench.get("/api/v1/resources/queues/late/depth").json();
        until("its time has come", || {
            let depth = depth();
            (depth["delayed"].as_u64(), depth["total"].as_u64()) == (Some(0), Some(1))
        });
        assert_eq!(pushed(), 1);
    });
}

#[test]
fn what_happened_is_told_by_queue_and_in_all() {
    Bench::each(|bench| {
        work(bench);
        let refreshed = bench.node.send("POST", "/api/v1/stats/refresh", &[], None);
        assert_eq!((refreshed.status, refreshed.json()), (200, json!({ "success": true })));
        for path in ["status/analytics?queue=q", "analytics/queue-ops?queue=q&interval=minute"] {
            let answer = bench.get(&format!("/api/v1/{path}")).json();
            assert_eq!((&answer["queue"], &answer["interval"]), (&json!("q"), &json!("minute")));
            let points = &answer["points"];
            assert_eq!(points.as_array().map(Vec::len), Some(60), "{answer}");
            let sums = ["pushed", "popped", "acked", "failed", "deadLetter"];
            assert_eq!(sums.map(|field| sum(points, field)), [4, 5, 3, 1, 1], "{path}");
            assert!(sum(points, "bytes") > 0);
        }
        let hours = bench.get("/api/v1/status/analytics?interval=hour&from=2020-01-01").status;
        assert_eq!(hours, 400, "that is too long");
        let days = bench.get("/api/v1/status/analytics?interval=day").json();
        assert_eq!((sum(&days["points"], "pushed"), &days["queue"]), (5, &Value::Null));

        let status = bench.get("/api/v1/status").json();
        assert_eq!((&status["queues"], &status["consumerGroups"]), (&json!(2), &json!(1)));
        assert_eq!(status["messages"]["total"], 5, "{status}");
        assert_eq!(status["messages"]["deadLetter"], 1);
        assert_eq!(status["throughput"].as_array().map(Vec::len), Some(60));
        assert_eq!(sum(&status["throughput"], "pushed"), 5);
        assert_eq!(status["node"]["maintenanceMode"], false);
        assert_eq!(status["node"]["parkedPops"], 0);
        assert!(status["node"]["name"].is_string() && status["timestamp"].is_string());

        let page = bench.get("/api/v1/status/queues?limit=1").json();
        assert_eq!((&page["queues"][0]["name"], &page["next"]), (&json!("other"), &json!("other")));
        let page = bench.get("/api/v1/status/queues?after=other").json();
        assert_eq!((&page["queues"][0]["name"], &page["next"]), (&json!("q"), &Value::Null));
        assert!(page["queues"][0]["lastMinute"]["pushed"].is_u64(), "{page}");
        let one = bench.get("/api/v1/status/queues/q").json();
        assert_eq!((&one["name"], &one["messages"]["pending"]), (&json!("q"), &json!(0)));
        assert_eq!(sum(&one["throughput"], "acked"), 3);
        let group = &one["consumerGroups"][0];
        assert_eq!(
            (&group["consumerGroup"], &group["pending"]),
            (&json!("__QUEUE_MODE__"), &json!(0))
        );

        bench.push_all("q", "p", &["5"]);
        let lag = bench.get("/api/v1/analytics/queue-lag?queue=q").json();
        assert_eq!((&lag["lag"][0]["queue"], &lag["lag"][0]["pending"]), (&json!("q"), &json!(1)));
        assert!(lag["lag"][0]["oldestAt"].is_string(), "{lag}");
        assert!(bench.get("/api/v1/analytics/queue-lag").json()["lag"].is_array());
    });
}

#[test]
fn sums_are_written_by_themselves_and_when_a_node_stops() {
    let folder = skep_testkit::Folder::new("status");
    let start = || {
        let node = skep_testkit::Node::start(crate::common::skep(), &folder.join("data"), &[]);
        Bench::over(node, skep_testkit::Folder::new("status"))
    };
    let bench = start();
    bench.push_all("q", "p", &["1"]);
    let pushed =
        |bench: &Bench| sum(&bench.get("/api/v1/status/analytics").json()["points"], "pushed");
    until("it is written", || pushed(&bench) == 1);
    bench.push_all("q", "p", &["2", "3"]);
    bench.node.process().signal(rustix::process::Signal::TERM);
    assert_eq!(bench.node.process().wait().code, 0);
    assert_eq!(pushed(&start()), 3);
}

#[test]
fn what_the_node_and_the_database_do_is_told() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1"]);
        let system = bench.get("/api/v1/analytics/system-metrics").json();
        for field in ["memoryBytes", "threads", "openFiles", "connections"] {
            assert!(system[field].as_u64().is_some_and(|number| number > 0), "{field}: {system}");
        }
        assert!(system["points"].is_array() && system["cpuSeconds"].is_f64(), "{system}");
        let worker = bench.get("/api/v1/analytics/worker-metrics").json();
        assert!(worker["batches"].as_u64().is_some_and(|number| number > 0), "{worker}");
        assert!(worker["millisecondsPerBatch"].as_f64().is_some_and(|number| number > 0.0));
        assert_eq!(worker["waitingRequests"], 0);
        let retention = bench.get("/api/v1/analytics/retention").json();
        assert_eq!(retention["points"].as_array().map(Vec::len), Some(60), "{retention}");
        assert_eq!(retention["points"][0]["removed"], 0);
    });
    let embedded = Bench::embedded(&[]).get("/api/v1/analytics/postgres-stats");
    assert_eq!((embedded.status, &embedded.json()["code"]), (501, &json!("E_NOT_SUPPORTED")));
    let bench = Bench::postgres(&[]);
    bench.push_all("q", "p", &["1"]);
    let stats = bench.get("/api/v1/analytics/postgres-stats").json();
    let tables = stats["tables"].as_array().expect("tables");
    let names: Vec<&str> = tables.iter().filter_map(|table| table["name"].as_str()).collect();
    assert!(names.contains(&"skep_queues") && names.contains(&"skep_queue_segments"), "{stats}");
    assert!(tables[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{stats}");
    assert!(stats["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert!(stats["cacheHits"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)));
    assert!(stats["connections"].as_u64() <= stats["connectionsMax"].as_u64());
}

#[test]
fn questions_that_make_no_sense_are_refused_by_field() {
    let bench = Bench::embedded(&[]);
    bench.push_all("q", "p", &["1"]);
    for (path, field, words) in [
        ("status/analytics?from=soon", "from", "cannot be \"soon\""),
        ("status/analytics?from=2026-01-02&to=2026-01-01", "from", "before to"),
        ("status/analytics?from=2026-01-01&to=2026-03-01", "from", "31 days"),
        ("analytics/queue-ops?interval=week", "interval", "minute, hour or day"),
        (
            "analytics/queue-ops?interval=minute&from=2026-01-01&to=2026-01-09",
            "interval",
            "11520 points",
        ),
        ("analytics/retention?to=x", "to", "cannot be \"x\""),
        ("analytics/queue-lag?limit=0", "limit", "from 1 to 1000"),
        ("analytics/queue-lag?after=x", "after", "next of the page before"),
        ("status/queues?limit=101", "limit", "from 1 to 100"),
    ] {
        let answer = bench.get(&format!("/api/v1/{path}"));
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        let problem = answer.json();
        assert_eq!(problem["field"], field, "{problem}");
        let error = problem["error"].as_str().unwrap_or_default();
        assert!(error.contains(words), "{error} should have {words}");
    }
    for path in
        ["status/queues/none", "status/analytics?queue=none", "analytics/queue-lag?queue=none"]
    {
        let answer = bench.get(&format!("/api/v1/{path}"));
        let code = answer.json()["code"].clone();
        assert_eq!((answer.status, code), (404, json!("E_QUEUE_UNKNOWN")), "{path}");
    }
}

#[test]
fn what_is_not_in_this_version_says_so() {
    let bench = Bench::embedded(&[]);
    for (method, path) in [
        ("POST", "/api/v1/kv"),
        ("GET", "/api/v1/kv/some/key"),
        ("PUT", "/api/v1/kv/x"),
        ("POST", "/api/v1/timers"),
        ("DELETE", "/api/v1/timers/1"),
        ("POST", "/api/v1/locks/a/acquire"),
        ("GET", "/api/v1/ephemeral/q"),
        ("GET", "/api/v1/fetch/q/p?offset=3"),
        ("GET", "/api/v1/partitions/changed"),
        ("POST", "/streams/v1/state/get"),
    ] {
        let body = (method != "GET").then_some("{}");
        let answer = bench.node.send(method, path, &[], body);
        assert_eq!(answer.status, 501, "{method} {path}: {}", answer.body);
        let problem = answer.json();
        assert_eq!(problem["code"], "E_NOT_SUPPORTED");
        assert!(problem["error"].as_str().is_some_and(|text| text.contains("not in this version")));
    }
    let headers = [("content-type", "application/octet-stream")];
    let binary = bench.node.send("POST", "/api/v1/push", &headers, Some("\u{1}\u{2}"));
    assert_eq!((binary.status, &binary.json()["field"]), (501, &json!("Content-Type")));
    let conflated = bench.get("/api/v1/pop/queue/q?conflation=true");
    assert_eq!((conflated.status, &conflated.json()["field"]), (501, &json!("conflation")));
}
