//! What is refused, in which words, and that nothing of it was done.

use super::kit::Bench;
use serde_json::{Value, json};
use skep_testkit::{Postgres, Proxy};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The status, `error` and `field` of the answer to a body.
fn refused(bench: &Bench, path: &str, body: &str) -> (u16, String, String) {
    let answer = bench.node.send("POST", path, &[], Some(body));
    let problem = answer.json();
    assert!(problem["code"].as_str().is_some_and(|code| code.starts_with("E_")), "{problem}");
    assert_eq!(problem["status"], answer.status);
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    (answer.status, text("error"), text("field"))
}

#[test]
fn bad_pushes_are_refused_in_the_words_that_clients_know_and_keep_nothing() {
    let bench = Bench::embedded(&[]);
    let long = "x".repeat(256);
    let good = r#"{"queue":"q","payload":1}"#;
    for (body, error, field) in [
        (r#"{}"#.to_owned(), "items array is required", "items"),
        (r#"[]"#.to_owned(), "items array is required", "items"),
        (r#"{"items":{}}"#.to_owned(), "items array is required", "items"),
        (r#"{"items":null}"#.to_owned(), "items array is required", "items"),
        (format!(r#"{{"items":[{good},{{}}]}}"#), "Queue must be a string", "items[1].queue"),
        (format!(r#"{{"items":[{good},7]}}"#), "Queue must be a string", "items[1].queue"),
        (format!(r#"{{"items":[{good},["q"]]}}"#), "Queue must be a string", "items[1].queue"),
        (r#"{"items":[{"queue":5}]}"#.to_owned(), "Queue must be a string", "items[0].queue"),
        (r#"{"items":[{"queue":""}]}"#.to_owned(), "Queue must not be empty", "items[0].queue"),
        (
            format!(r#"{{"items":[{{"queue":"{long}"}}]}}"#),
            "Queue must not be longer than 255 bytes",
            "items[0].queue",
        ),
        (
            r#"{"items":[{"queue":"a\u0000b"}]}"#.to_owned(),
            "Queue must not have control characters",
            "items[0].queue",
        ),
        (
            r#"{"items":[{"queue":"q","partition":{}}]}"#.to_owned(),
            "Partition must be a string",
            "items[0].partition",
        ),
        (
            r#"{"items":[{"queue":"q","transactionId":[1]}]}"#.to_owned(),
            "TransactionId must be a string",
            "items[0].transactionId",
        ),
        (
            r#"{"items":[{"queue":"q","transactionId":""}]}"#.to_owned(),
            "TransactionId must not be empty",
            "items[0].transactionId",
        ),
        (
            r#"{"items":[{"queue":"q","traceId":false}]}"#.to_owned(),
            "TraceId must be a string",
            "items[0].traceId",
        ),
    ] {
        let expected = (400, error.to_owned(), field.to_owned());
        assert_eq!(refused(&bench, "/api/v1/push", &body), expected, "{body}");
    }
    for body in ["", "{", r#"{"items":[}"#, r#"{"items":[{"queue":"q"}]} x"#, "\u{0}", "potato"] {
        let (status, error, _) = refused(&bench, "/api/v1/push", body);
        assert_eq!(status, 400);
        assert!(error.starts_with("Invalid JSON: "), "{body:?}: {error}");
    }
    assert_eq!(bench.get("/api/v1/resources/queues").json()["queues"], json!([]));
    // Null is the same as nothing.
    bench.push(
        &json!([{ "queue": "q", "partition": null, "transactionId": null, "traceId": null }]),
    );
    assert_eq!(bench.pop("q")["partition"], "Default");
}

#[test]
fn bodies_beyond_the_limit_are_refused_and_large_ones_below_are_not() {
    let body = |bytes: usize| {
        format!(r#"{{"items":[{{"queue":"q","payload":"{}"}}]}}"#, "x".repeat(bytes))
    };
    let small = Bench::embedded(&["api.body_max=100KiB"]);
    let (status, error, _) = refused(&small, "/api/v1/push", &body(200 << 10));
    assert_eq!(status, 413, "{error}");
    let bench = Bench::embedded(&[]);
    let bytes = (16 << 20) - 100;
    let large = bench.node.send("POST", "/api/v1/push", &[], Some(&body(bytes)));
    assert_eq!(large.status, 201, "{}", large.body);
    // The client of the tests reads no such long text, so it is looked at by its end.
    let popped = super::kit::rest(bench.ask("/api/v1/pop/queue/q"));
    assert!(popped.len() > bytes && popped.ends_with("}]}"), "{} bytes", popped.len());
}

#[test]
fn bad_words_about_messages_are_refused() {
    let bench = Bench::embedded(&[]);
    let both = "transactionId and partitionId are required, both as strings";
    for (body, error, field) in [
        (r#"{}"#, both, "transactionId"),
        (r#"{"transactionId":"a"}"#, both, "partitionId"),
        (r#"{"partitionId":"a"}"#, both, "transactionId"),
        (r#"{"transactionId":"a","partitionId":7}"#, both, "partitionId"),
        (
            r#"{"transactionId":"a","partitionId":"b","leaseId":7}"#,
            "leaseId must be a string",
            "leaseId",
        ),
        (
            r#"{"transactionId":"a","partitionId":"b","status":{}}"#,
            "status must be a string",
            "status",
        ),
        (
            r#"{"transactionId":"a","partitionId":"b","consumerGroup":1}"#,
            "consumerGroup must be a string",
            "consumerGroup",
        ),
    ] {
        let expected = (400, error.to_owned(), field.to_owned());
        assert_eq!(refused(&bench, "/api/v1/ack", body), expected, "{body}");
    }
    let path = "/api/v1/ack/batch";
    for body in ["{}", "[]", r#"{"acknowledgments":{}}"#] {
        let (status, error, _) = refused(&bench, path, body);
        assert_eq!((status, &*error), (400, "acknowledgments array is required"));
    }
    let (_, error, field) = refused(&bench, path, r#"{"acknowledgments":[{}]}"#);
    assert_eq!((&*error, &*field), (both, "acknowledgments[0].transactionId"));
    let two = r#"{"consumerGroup":"a","acknowledgments":[
        {"transactionId":"t","partitionId":"p","consumerGroup":"b"}]}"#;
    assert_eq!(refused(&bench, path, two).2, "acknowledgments[0].consumerGroup");
    assert_eq!(bench.post(path, &json!({ "acknowledgments": [] })).json(), json!([]));
    // One that cannot be right is refused by itself.
    let odd =
        json!({ "transactionId": "t", "partitionId": "p", "error": { "a": 1 }, "status": false });
    let item = bench.post("/api/v1/ack", &odd).json()[0].clone();
    assert_eq!((&item["success"], &item["queueName"]), (&json!(false), &Value::Null), "{item}");
}

#[test]
fn a_stale_or_foreign_lease_is_refused_for_its_item_alone() {
    let bench = Bench::embedded(&[]);
    bench.push_all("q", "p", &["1", "2"]);
    let popped = bench.pop("q?batch=2");
    let message = &popped["messages"][0];
    for lease in [json!("2c7e4bd1-9e4b-4f7d-8d7d-9a3d1c2b3a4f"), json!("no lease at all")] {
        let said = bench.ack(message, &json!({ "leaseId": lease }));
        assert_eq!(
            (&said["success"], &said["error"]),
            (&json!(false), &json!("Invalid or expired lease"))
        );
    }
    let held = bench.ack(message, &json!({ "leaseId": null }));
    assert!(held["error"].as_str().is_some_and(|text| text.contains("Lease required")), "{held}");
    // A failure is not passed over by what is said about a later message in the same call.
    let say = |place: usize, status: &str| {
        let message = &popped["messages"][place];
        json!({ "transactionId": message["transactionId"], "partitionId": message["partitionId"],
                "leaseId": message["leaseId"], "status": status })
    };
    let both = json!({ "acknowledgments": [say(1, "completed"), say(0, "failed")] });
    let items = bench.post("/api/v1/ack/batch", &both).json();
    assert_eq!((&items[0]["success"], &items[1]["success"]), (&json!(false), &json!(true)));
    assert!(items[0]["error"].as_str().is_some_and(|text| text.contains("comes again")), "{items}");
}

#[test]
fn bad_transactions_are_refused_and_do_nothing() {
    let bench = Bench::embedded(&[]);
    let path = "/api/v1/transaction";
    let push = r#"{"type":"push","items":[{"queue":"q","payload":1}]}"#;
    for (body, error, field) in [
        (r#"{}"#.to_owned(), "operations array is required", "operations"),
        (r#"{"operations":[]}"#.to_owned(), "operations array is required", "operations"),
        (
            format!(r#"{{"operations":[{push},{{"type":"pop"}}]}}"#),
            r#"operations[1].type must be "push" or "ack""#,
            "operations[1].type",
        ),
        (
            format!(r#"{{"operations":[{push},{{"type":"push"}}]}}"#),
            "items array is required",
            "operations[1].items",
        ),
        (
            format!(r#"{{"operations":[{push},{{"type":"push","items":[{{"queue":1}}]}}]}}"#),
            "Queue must be a string",
            "operations[1].items[0].queue",
        ),
        (
            format!(r#"{{"operations":[{push},{{"type":"ack","partitionId":"p"}}]}}"#),
            "transactionId and partitionId are required, both as strings",
            "operations[1].transactionId",
        ),
        (
            format!(r#"{{"operations":[{push}],"requiredLeases":[1]}}"#),
            "requiredLeases[0] must be a string",
            "requiredLeases[0]",
        ),
    ] {
        let expected = (400, error.to_owned(), field.to_owned());
        assert_eq!(refused(&bench, path, &body), expected, "{body}");
    }
    let rider = format!(r#"{{"operations":[{push}],"kv":[{{"key":"a"}}]}}"#);
    let (status, _, field) = refused(&bench, path, &rider);
    assert_eq!((status, &*field), (501, "kv"));
    assert_eq!(bench.get("/api/v1/resources/queues").json()["queues"], json!([]));
}

#[test]
fn bad_options_and_parameters_are_named() {
    let bench = Bench::embedded(&[]);
    let path = "/api/v1/configure";
    for body in ["{}", r#"{"queue":null}"#, r#"{"queue":""}"#, r#"{"queue":7}"#] {
        assert_eq!(refused(&bench, path, body), (400, "queue is required".into(), "queue".into()));
    }
    for (body, field) in [
        (r#"{"queue":"q","options":[]}"#, "options"),
        (r#"{"queue":"q","mode":"potato"}"#, "mode"),
        (r#"{"queue":"q","namespace":5}"#, "namespace"),
        (r#"{"queue":"q","options":{"leaseTime":"long"}}"#, "options.leaseTime"),
        (r#"{"queue":"q","options":{"leaseTime":0}}"#, "options.leaseTime"),
        (r#"{"queue":"q","options":{"retentionEnabled":"yes"}}"#, "options.retentionEnabled"),
        (r#"{"queue":"q","options":{"encryptionEnabled":true}}"#, "options.encryptionEnabled"),
    ] {
        let (status, error, named) = refused(&bench, path, body);
        assert_eq!((status, &*named), (400, field), "{body}: {error}");
        assert!(error.starts_with(field), "{error}");
    }
    assert_eq!(bench.get("/api/v1/resources/queues").json()["queues"], json!([]));
    for (query, field) in [
        ("batch=0", "batch"),
        ("batch=10001", "batch"),
        ("batch=many", "batch"),
        ("partitions=1001", "partitions"),
        ("wait=maybe", "wait"),
        ("timeout=-1", "timeout"),
        ("leaseSeconds=0", "leaseSeconds"),
        ("consumerGroup=a%00b", "consumerGroup"),
        ("consumerGroup=g&subscriptionFrom=soon", "subscriptionFrom"),
    ] {
        let answer = bench.get(&format!("/api/v1/pop/queue/q?{query}"));
        assert_eq!((answer.status, answer.json()["field"].clone()), (400, json!(field)), "{query}");
        assert!(answer.json()["error"].as_str().is_some_and(|text| text.starts_with(field)));
    }
    let conflated = bench.get("/api/v1/pop/queue/q?conflation=true");
    assert_eq!(
        (conflated.status, conflated.json()["code"].clone()),
        (501, json!("E_NOT_SUPPORTED"))
    );
    assert_eq!(bench.get("/api/v1/pop/queue/q?autopilot=true&frames=true").status, 204);
    assert_eq!(bench.get("/api/v1/pop/queue/q%ff").status, 400);
    assert_eq!(bench.get("/api/v1/dlq?limit=0").json()["field"], "limit");
    assert_eq!(bench.get("/api/v1/dlq?from=soon").json()["field"], "from");
    let seek = "/api/v1/consumer-groups/g/queues/none/seek";
    assert_eq!(refused(&bench, seek, r#"{"toEnd":true}"#).0, 404);
    assert_eq!(refused(&bench, seek, r#"{"toEnd":1}"#).2, "toEnd");
    assert_eq!(refused(&bench, seek, r#"{"timestamp":"soon"}"#).2, "timestamp");
}

#[test]
fn a_full_queue_refuses_and_says_which_limit_it_was() {
    Bench::each(|bench| {
        let options = json!({ "maxSize": 2 });
        bench.post("/api/v1/configure", &json!({ "queue": "q", "options": options }));
        bench.push_all("q", "p", &["1", "2"]);
        let body = json!({ "items": [{ "queue": "q", "partition": "p", "transactionId": "3" }] });
        let full = bench.post("/api/v1/push", &body);
        assert_eq!(full.status, 429, "{}", full.body);
        assert!(full.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
        let problem = full.json();
        assert_eq!(
            (&problem["code"], &problem["field"]),
            (&json!("E_QUEUE_FULL"), &json!("maxSize"))
        );
        assert_eq!(problem["queue"], "q");
        // What has come before does not count, and what is consumed makes room.
        bench.push_all("q", "p", &["1", "2"]);
        bench.pop("q?autoAck=true");
        assert_eq!(bench.post("/api/v1/push", &body).status, 201);
    });
}

#[test]
fn encrypted_queues_need_the_key_that_they_were_pushed_with() {
    let key = format!("queues.encryption_key={}", "a1".repeat(32));
    let bench = Bench::embedded(&[&key]);
    let options = json!({ "encryptionEnabled": true });
    let made = bench.post("/api/v1/configure", &json!({ "queue": "q", "options": options }));
    assert_eq!(made.status, 200, "{}", made.body);
    let push = |secret: &str| json!([{ "queue": "q", "payload": { "secret": secret } }]);
    bench.push(&push("honey"));
    bench.push(&push("wax"));
    let popped = bench.pop("q?autoAck=true");
    assert_eq!(popped["messages"][0]["data"], json!({ "secret": "honey" }));
    assert_eq!(bench.node.stop().code, 0);

    let data = bench.folder.join("data");
    let stored = std::fs::read_dir(&data).expect("a folder").filter_map(|one| one.ok());
    for file in stored.map(|one| one.path()).filter(|path| path.is_file()) {
        let bytes = std::fs::read(&file).unwrap_or_default();
        let shown = bytes.windows(9).any(|part| part == b"\"secret\":");
        assert!(!shown, "{} has a payload in it", file.display());
    }
    for other in [String::new(), format!("queues.encryption_key={}", "b2".repeat(32))] {
        let more: Vec<&str> = if other.is_empty() { vec![] } else { vec!["--set", &other] };
        let node = skep_testkit::Node::start(crate::common::skep(), &data, &more);
        let pop = node.get("/api/v1/pop/queue/q");
        assert_eq!((pop.status, pop.json()["code"].clone()), (503, json!("E_ENCRYPTION_KEY")));
        if more.is_empty() {
            let body = json!({ "items": push("x") }).to_string();
            let refused = node.send("POST", "/api/v1/push", &[], Some(&body));
            assert_eq!(refused.json()["code"], "E_ENCRYPTION_KEY", "{}", refused.body);
        }
        assert_eq!(node.stop().code, 0);
    }
    let node = skep_testkit::Node::start(crate::common::skep(), &data, &["--set", &key]);
    let popped = node.get("/api/v1/pop/queue/q").json();
    assert_eq!(popped["messages"][0]["data"], json!({ "secret": "wax" }), "it was given back");
}

#[test]
fn while_the_database_is_away_everything_is_refused_clearly_and_works_again_after() {
    let database = Postgres::shared().database();
    let proxy = Proxy::start(Postgres::shared().address());
    let folder = skep_testkit::Folder::new("queues");
    let url = database.url_through(proxy.port());
    let more = ["--database", &url, "--set", "store.postgres.connect_timeout=500ms"];
    let node = skep_testkit::Node::start(crate::common::skep(), &folder.join("data"), &more);
    let bench = Bench::over(node, folder);
    bench.push_all("q", "p", &["1"]);
    proxy.cut();
    let body = json!({ "items": [{ "queue": "q", "partition": "p", "transactionId": "2" }] });
    let ack = json!({ "transactionId": "1", "partitionId": "x" });
    for answer in [
        bench.post("/api/v1/push", &body),
        bench.get("/api/v1/pop/queue/q"),
        bench.get("/api/v1/pop/queue/q?wait=true&timeout=60000"),
        bench.post("/api/v1/ack", &ack),
    ] {
        assert_eq!(answer.status, 503, "{}", answer.body);
        assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
        let problem = answer.json();
        assert_eq!(problem["code"], "E_STORE_AWAY");
        // Consumers of existing clients go on only where they read this word.
        assert!(problem["error"].as_str().is_some_and(|text| text.contains("connection")));
    }
    proxy.heal();
    crate::common::until("pushes work again", || bench.post("/api/v1/push", &body).status == 201);
    let popped = bench.pop("q?batch=5&wait=true");
    assert_eq!(super::kit::transactions(&popped), ["1", "2"]);
}

#[test]
fn more_than_may_wait_is_refused_and_what_was_taken_on_is_done() {
    let database = Postgres::shared().database();
    let proxy = Proxy::start(Postgres::shared().address());
    let folder = skep_testkit::Folder::new("queues");
    let url = database.url_through(proxy.port());
    let more = ["--database", &url, "--set", "queues.waiting_max=16"];
    let node = skep_testkit::Node::start(crate::common::skep(), &folder.join("data"), &more);
    let bench = Bench::over(node, folder);
    bench.push_all("q", "p", &["first"]);
    proxy.freeze();
    let (kept, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..60 {
            let (bench, kept, refused) = (&bench, &kept, &refused);
            scope.spawn(move || {
                let item = json!({ "queue": "q", "transactionId": format!("t{number}") });
                let answer = bench.post("/api/v1/push", &json!({ "items": [item] }));
                match answer.status {
                    201 => kept.fetch_add(1, Ordering::Relaxed),
                    429 => {
                        assert_eq!(answer.json()["code"], "E_QUEUES_BUSY");
                        assert_ne!(answer.header("retry-after"), "");
                        refused.fetch_add(1, Ordering::Relaxed)
                    }
                    status => panic!("{status}: {}", answer.body),
                };
            });
        }
        crate::common::until("some are refused", || refused.load(Ordering::Relaxed) > 0);
        proxy.heal();
    });
    let (kept, refused) = (kept.into_inner(), refused.into_inner());
    assert_eq!(kept + refused, 60);
    let popped = bench.pop("q/partition/Default?batch=100");
    assert_eq!(super::kit::transactions(&popped).len(), kept);
}
