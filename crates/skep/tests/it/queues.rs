//! Queues over HTTP, as their clients meet them.

mod away;
mod errors;
mod fleet;
mod kit;
mod letters;
mod load;
mod messages;
mod mutations;
mod ops;
mod ops_errors;
mod schedules;
mod status;
mod switches;
mod tail;
mod traces;
mod waiting;

use kit::{Bench, transactions};
use serde_json::{Value, json};

#[test]
fn a_message_is_pushed_popped_and_acknowledged_in_the_words_of_the_clients() {
    Bench::each(|bench| {
        let trace = "2c7e4bd1-9e4b-4f7d-8d7d-9a3d1c2b3a4f";
        let pushed = bench.push(&json!([
            { "queue": "jobs.mail", "payload": { "a": [1, "x", null] }, "transactionId": "t1",
              "traceId": trace, "potato": true },
            { "queue": "jobs.mail", "partition": "Default", "payload": null },
            { "queue": "jobs.mail", "transactionId": "t3" },
            { "queue": "jobs.mail", "payload": 1, "transactionId": "t1" },
        ]));
        assert_eq!(pushed[0]["index"], 0);
        assert_eq!(pushed[0]["transaction_id"], "t1");
        assert_eq!(pushed[0]["trace_id"], trace);
        assert_eq!(pushed[0]["queueName"], "jobs.mail");
        assert_eq!(pushed[0]["status"], "queued");
        assert!(pushed[0]["message_id"].is_string() && pushed[0]["partition_id"].is_string());
        assert!(pushed[1]["transaction_id"].as_str().is_some_and(|id| id.len() == 36));
        assert_eq!(pushed[1]["trace_id"], Value::Null);
        assert_eq!(pushed[3]["status"], "duplicate");
        assert_eq!(pushed[3]["message_id"], pushed[0]["message_id"]);
        assert!(pushed[3].get("partition_id").is_none(), "{}", pushed[3]);

        let popped = bench.pop("jobs.mail?batch=10");
        assert_eq!(popped["success"], true);
        assert_eq!(popped["queue"], "jobs.mail");
        assert_eq!(popped["partition"], "Default");
        assert_eq!(popped["partitionId"], pushed[0]["partition_id"]);
        assert_eq!(popped["consumerGroup"], "__QUEUE_MODE__");
        assert_eq!(popped["partitionsClaimed"], 1);
        let messages = popped["messages"].as_array().expect("messages");
        assert_eq!(messages.len(), 3, "{popped}");
        assert_eq!(messages[0]["id"], pushed[0]["message_id"]);
        assert_eq!(messages[0]["data"], json!({ "a": [1, "x", null] }));
        assert_eq!(messages[0]["traceId"], trace);
        assert_eq!(messages[0]["producerSub"], Value::Null);
        assert_eq!((&messages[1]["data"], &messages[2]["data"]), (&Value::Null, &Value::Null));
        for name in ["queue", "partition", "partitionId", "leaseId", "consumerGroup"] {
            assert_eq!(messages[2][name], popped[name], "{name}");
        }
        let at = messages[0]["createdAt"].as_str().expect("a time");
        assert!(at.len() == "2026-01-31T12:00:00.000001Z".len() && at.ends_with('Z'), "{at}");

        // While it is leased there is nothing else.
        assert_eq!(bench.pop("jobs.mail"), Value::Null);
        assert_eq!(bench.pop("jobs.mail/partition/Default"), Value::Null);
        let first = bench.ack(
            &messages[0],
            &json!({ "status": "completed", "error": null,
                                                     "consumerGroup": null }),
        );
        let expected = json!({
            "index": 0, "transactionId": "t1", "success": true, "error": null,
            "queueName": "jobs.mail", "partitionName": "Default", "leaseReleased": false,
            "dlq": false, "noop": false,
        });
        assert_eq!(first, expected);
        assert_eq!(bench.ack(&messages[0], &json!({}))["noop"], true);
        let batch = json!({ "consumerGroup": null, "acknowledgments": [
            { "transactionId": messages[1]["transactionId"], "status": "success", "error": null,
              "partitionId": popped["partitionId"], "leaseId": popped["leaseId"] },
            { "transactionId": "t3", "status": "ok", "partitionId": popped["partitionId"],
              "leaseId": popped["leaseId"] },
            { "transactionId": "t9", "partitionId": popped["partitionId"] },
            { "transactionId": "t9", "partitionId": "no partition" },
        ] });
        let answer = bench.post("/api/v1/ack/batch", &batch);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let items = answer.json();
        assert_eq!((&items[0]["success"], &items[1]["success"]), (&json!(true), &json!(true)));
        assert_eq!(items[1]["leaseReleased"], true, "{items}");
        for refused in [&items[2], &items[3]] {
            assert_eq!(refused["success"], false, "{items}");
            assert!(refused["error"].as_str().is_some_and(|text| text.contains("Unknown message")));
        }
        assert_eq!(bench.pop("jobs.mail"), Value::Null);
        // Another group reads all of it again, from several partitions under one lease.
        bench.push_all("jobs.mail", "p2", &["u1", "u2"]);
        let both = bench.pop("jobs.mail?batch=10&partitions=5&group=g");
        assert_eq!(transactions(&both).len(), 5, "{both}");
        assert_eq!((&both["partitionsClaimed"], &both["consumerGroup"]), (&json!(2), &json!("g")));
        assert_eq!(bench.push(&json!([])), Vec::<Value>::new());
    });
}

#[test]
fn payloads_come_back_byte_for_byte() {
    let bench = Bench::embedded(&[]);
    let odd =
        r#"{"a" : 1e400, "b":[ ],"c":"é\u00e9\ud83d\ude00","a":2, "n":123456789012345678901}"#;
    let body =
        format!(r#"{{"items":[{{"queue":"q","payload":{odd}}},{{"payload":{{}},"queue":"q"}}]}}"#);
    let answer = bench.node.send("POST", "/api/v1/push", &[], Some(&body));
    assert_eq!(answer.status, 201, "{}", answer.body);
    let popped = bench.get("/api/v1/pop/queue/q?batch=2&autoAck=true");
    assert!(popped.body.contains(&format!("\"data\":{odd},")), "{}", popped.body);
    assert!(popped.body.contains("\"data\":{},"), "{}", popped.body);
    assert!(popped.body.contains("\"leaseId\":\"\""), "{}", popped.body);
    assert_eq!(popped.header("content-type"), "application/json");
    assert_eq!(popped.header("content-encoding"), "");
    // With autoAck they are settled already.
    assert_eq!(bench.pop("q"), Value::Null);
}

#[test]
fn failures_come_again_and_end_as_dead_letters() {
    Bench::each(|bench| {
        let options = json!({ "retryLimit": 1, "retryDelay": 0 });
        bench.post("/api/v1/configure", &json!({ "queue": "q", "options": options }));
        bench.push_all("q", "Default", &["a", "b", "c"]);
        for round in 0..2 {
            let popped = bench.pop("q?batch=1");
            assert_eq!(transactions(&popped), ["a"], "round {round}");
            let message = &popped["messages"][0];
            let said = bench.ack(message, &json!({ "status": "failed", "error": "no honey" }));
            assert_eq!((&said["success"], &said["dlq"]), (&json!(true), &json!(round == 1)));
            assert_eq!(said["leaseReleased"], true, "{said}");
        }
        let popped = bench.pop("q?batch=1");
        let said = bench.ack(&popped["messages"][0], &json!({ "status": "retry" }));
        assert_eq!((&said["success"], &said["dlq"]), (&json!(true), &json!(false)));
        let popped = bench.pop("q?batch=2");
        assert_eq!(transactions(&popped), ["b", "c"]);
        let said = bench.ack(&popped["messages"][0], &json!({ "status": "dlq" }));
        assert_eq!(said["dlq"], true);

        let dead = bench.get("/api/v1/dlq?queue=q&limit=1&offset=1").json();
        assert_eq!((&dead["total"], &dead["pagination"]["offset"]), (&json!(2), &json!(1)));
        let letter = &dead["messages"][0];
        assert_eq!(letter["transactionId"], "a");
        assert_eq!(letter["errorMessage"], "no honey");
        assert_eq!((&letter["retryCount"], &letter["data"]), (&json!(1), &json!({ "t": "a" })));
        assert_eq!((&letter["queue"], &letter["partition"]), (&json!("q"), &json!("Default")));
        assert_eq!(letter["consumerGroup"], "__QUEUE_MODE__");
        assert!(letter["failedAt"].is_string() && letter["createdAt"].is_string(), "{letter}");
        let none = bench.get("/api/v1/dlq?queue=q&consumerGroup=g").json();
        assert_eq!(none["total"], 0);
    });
}

#[test]
fn queues_are_configured_listed_shown_and_deleted() {
    Bench::each(|bench| {
        let empty = bench.post("/api/v1/configure", &json!({ "queue": "a.b", "namespace": null }));
        assert_eq!(empty.status, 200, "{}", empty.body);
        let empty = empty.json();
        assert_eq!(empty["configured"], true);
        assert_eq!((&empty["namespace"], &empty["task"]), (&json!("a"), &json!("b")));
        assert!(empty["queueId"].is_string() && empty["partitionId"].is_string());
        let defaults = json!({
            "priority": 0, "leaseTime": 300, "retryLimit": 3, "retryDelay": 1000, "ttl": 3600,
            "deadLetterQueue": false, "dlqAfterMaxRetries": false, "delayedProcessing": 0,
            "windowBuffer": 0, "retentionSeconds": 0, "completedRetentionSeconds": 0,
            "retentionEnabled": false, "encryptionEnabled": false, "maxWaitTimeSeconds": 0,
            "maxSize": 0, "retryDelayMax": 3_600_000, "dedupWindowSeconds": 3600,
            "maxInFlight": 0, "rateLimit": 0, "ratePeriodSeconds": 1, "keyMaxInFlight": 0,
            "keyRateLimit": 0, "keyRatePeriodSeconds": 1, "limitKeySeparator": "",
        });
        assert_eq!(empty["options"], defaults);
        let set = |options: Value, mode: &str| {
            let body = json!({ "queue": "a.b", "options": options, "mode": mode });
            bench.post("/api/v1/configure", &body).json()
        };
        let some = set(json!({ "leaseTime": 10, "ttl": 60, "frames": 1 }), "merge");
        assert_eq!(
            (&some["options"]["leaseTime"], &some["options"]["ttl"]),
            (&json!(10), &json!(60))
        );
        assert_eq!(some["ignoredOptions"], json!(["frames"]));
        let more = set(json!({ "priority": 4, "ttl": null }), "merge");
        assert_eq!(more["options"]["leaseTime"], 10);
        assert_eq!(
            (&more["options"]["priority"], &more["options"]["ttl"]),
            (&json!(4), &json!(3600))
        );
        assert_eq!(set(json!({}), "replace")["options"], defaults);
        assert_eq!(more["queueId"], empty["queueId"]);

        bench.push_all("a.b", "p", &["1", "2", "3"]);
        bench.push_all("c", "Default", &["1"]);
        bench.pop("a.b?batch=1&consumerGroup=g&autoAck=true");
        let list = bench.get("/api/v1/resources/queues?limit=1").json();
        assert_eq!((&list["queues"][0]["name"], &list["next"]), (&json!("a.b"), &json!("a.b")));
        assert_eq!(list["queues"][0]["messages"]["total"], 3);
        assert_eq!(list["queues"][0]["messages"]["pending"], 2);
        assert_eq!(list["queues"][0]["partitions"], 2);
        let rest = bench.get("/api/v1/resources/queues?after=a.b").json();
        assert_eq!((&rest["queues"][0]["name"], &rest["next"]), (&json!("c"), &Value::Null));
        let shown = bench.get("/api/v1/resources/queues/a.b").json();
        assert_eq!(shown["options"], defaults);
        assert_eq!(shown["totals"]["pending"], 2, "{shown}");
        assert_eq!(shown["consumerGroups"][0]["name"], "g");
        assert!(shown["partitions"].as_array().is_some_and(|all| all.len() == 2), "{shown}");

        for existed in [true, false] {
            let gone = bench.node.send("DELETE", "/api/v1/resources/queues/a.b", &[], None);
            assert_eq!(gone.json(), json!({ "deleted": true, "queue": "a.b", "existed": existed }));
        }
        assert_eq!(bench.get("/api/v1/resources/queues/a.b").json()["code"], "E_QUEUE_UNKNOWN");
        assert_eq!(bench.pop("a.b"), Value::Null);
    });
}

#[test]
fn groups_begin_where_they_say_and_go_on_where_they_are_sent() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1"]);
        assert_eq!(bench.pop("q?consumerGroup=late&subscriptionMode=new"), Value::Null);
        assert_eq!(bench.pop("q?consumerGroup=later&subscriptionFrom=now"), Value::Null);
        bench.push_all("q", "p", &["2"]);
        for group in ["late", "later"] {
            let popped = bench.pop(&format!("q?batch=9&consumerGroup={group}"));
            assert_eq!(transactions(&popped), ["2"], "{group}");
        }
        let all = bench.pop("q?batch=9&consumerGroup=all&autoAck=true");
        assert_eq!(transactions(&all), ["1", "2"]);
        let from = "q?batch=9&consumerGroup=old&subscriptionFrom=1999-12-31T23%3A59%3A59Z";
        assert_eq!(transactions(&bench.pop(from)), ["1", "2"]);

        let second = all["messages"][1]["createdAt"].as_str().expect("a time").to_owned();
        let seek = |path: &str, body: Value| {
            let path = format!("/api/v1/consumer-groups/all/queues/q{path}/seek");
            let answer = bench.post(&path, &body);
            (answer.status, answer.json())
        };
        let (status, sought) = seek("", json!({ "timestamp": second }));
        assert_eq!((status, &sought["partitionsUpdated"]), (200, &json!(1)), "{sought}");
        assert_eq!((&sought["success"], &sought["consumerGroup"]), (&json!(true), &json!("all")));
        assert_eq!(transactions(&bench.pop("q?batch=9&consumerGroup=all")), ["2"]);
        let (status, sought) =
            seek("/partitions/p", json!({ "timestamp": "2000-01-01T00:00:00Z" }));
        assert_eq!((status, &sought["partitionsUpdated"]), (200, &json!(1)), "{sought}");
        assert_eq!(transactions(&bench.pop("q?batch=9&consumerGroup=all")), ["1", "2"]);
        assert_eq!(seek("", json!({ "toEnd": true })).0, 200);
        assert_eq!(bench.pop("q?consumerGroup=all"), Value::Null);
        assert_eq!(
            seek("/partitions/none", json!({ "toEnd": true })).1["code"],
            "E_PARTITION_UNKNOWN"
        );
        let nowhere = bench.node.send("POST", "/api/v1/consumer-groups/g/queues/q/seek", &[], None);
        assert_eq!(nowhere.json()["error"], "timestamp or toEnd is required");

        let path = "/api/v1/consumer-groups/all/queues/q?deleteMetadata=true";
        let gone = bench.node.send("DELETE", path, &[], None).json();
        assert_eq!((&gone["success"], &gone["metadataDeleted"]), (&json!(true), &json!(true)));
        assert_eq!(transactions(&bench.pop("q?batch=9&consumerGroup=all")), ["1", "2"]);
        let gone = bench.node.send("DELETE", "/api/v1/consumer-groups/all", &[], None).json();
        assert_eq!(
            (&gone["consumerGroup"], &gone["deletedPartitions"]),
            (&json!("all"), &json!(1))
        );
    });
}

#[test]
fn a_transaction_is_done_as_a_whole_or_not_at_all() {
    Bench::each(|bench| {
        bench.push_all("in", "p", &["1", "2"]);
        let popped = bench.pop("in?batch=2");
        let message = &popped["messages"][0];
        let transact = |lease: &Value, transaction: &str| {
            let body = json!({ "requiredLeases": [lease], "operations": [
                { "type": "push", "items": [
                    { "queue": "out", "payload": 1, "transactionId": format!("x-{transaction}") },
                    { "queue": "more.out", "payload": 2 },
                ] },
                { "type": "ack", "transactionId": transaction, "status": "completed",
                  "partitionId": message["partitionId"] },
            ] });
            let answer = bench.post("/api/v1/transaction", &body);
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.json()
        };
        let lost = transact(&json!("00000000-0000-0000-0000-000000000001"), "1");
        assert_eq!(lost["success"], false);
        assert!(
            lost["error"].as_str().is_some_and(|text| text.contains("expired lease")),
            "{lost}"
        );
        let unknown = transact(&message["leaseId"], "7");
        assert_eq!(
            (&unknown["success"], &unknown["results"][0]["index"]),
            (&json!(false), &json!(2))
        );
        assert_eq!(bench.pop("out"), Value::Null, "nothing was done");

        let done = transact(&message["leaseId"], "1");
        assert_eq!(done["success"], true, "{done}");
        assert!(done["transactionId"].is_string());
        let results = done["results"].as_array().expect("results");
        let kinds: Vec<_> = results.iter().map(|one| one["type"].as_str().unwrap_or("")).collect();
        assert_eq!(kinds, ["push", "push", "ack"]);
        assert_eq!(
            (&results[0]["queueName"], &results[2]["queueName"]),
            (&json!("out"), &json!("in"))
        );
        assert!(results[0]["messageId"].is_string() && results[0]["partitionId"].is_string());
        assert!(results[1]["transactionId"].is_string(), "it was given one: {done}");
        assert_eq!(transactions(&bench.pop("out")), ["x-1"]);
        // The cursor is behind the first one: the second is still leased, and acknowledged alone.
        let second = bench.ack(&popped["messages"][1], &json!({}));
        assert_eq!((&second["success"], &second["leaseReleased"]), (&json!(true), &json!(true)));
    });
}

#[test]
fn leases_are_extended_and_those_that_are_over_are_refused() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1"]);
        let popped = bench.pop("q?leaseSeconds=60");
        let lease = popped["leaseId"].as_str().expect("a lease").to_owned();
        let path = format!("/api/v1/lease/{lease}/extend");
        // Clients send no body at all where they have nothing to say.
        let extended = bench.node.send("POST", &path, &[], None).json();
        assert_eq!((&extended["success"], &extended["leaseId"]), (&json!(true), &json!(lease)));
        assert_eq!(extended["renewed"], 1);
        let until = extended["newExpiresAt"].as_str().expect("a time").to_owned();
        assert_eq!(
            (&extended["expiresAt"], &extended["lease_expires_at"]),
            (&json!(until), &json!(until))
        );
        let longer = bench.post(&path, &json!({ "seconds": 600 })).json();
        assert!(longer["newExpiresAt"].as_str() > Some(&*until), "{longer}");
        let wrong = bench.post(&path, &json!({ "seconds": 0 }));
        assert_eq!((wrong.status, wrong.json()["field"].clone()), (400, json!("seconds")));

        bench.ack(&popped["messages"][0], &json!({}));
        for id in [&*lease, "no-lease"] {
            let over = bench.node.send("POST", &format!("/api/v1/lease/{id}/extend"), &[], None);
            assert_eq!(over.status, 200);
            assert_eq!(over.json()["success"], false);
            assert_eq!(over.json()["error"], "Invalid or expired lease");
            assert_eq!(over.json()["newExpiresAt"], Value::Null);
        }
    });
}

#[test]
fn pops_by_namespace_and_task_find_the_queue_that_matters_most() {
    Bench::each(|bench| {
        for (queue, priority) in [("mail.low", 1), ("mail.high", 5), ("other.high", 9)] {
            let options = json!({ "priority": priority });
            bench.post("/api/v1/configure", &json!({ "queue": queue, "options": options }));
            bench.push_all(queue, "p", &[queue]);
        }
        let pop = |query: &str| bench.get(&format!("/api/v1/pop?autoAck=true&{query}"));
        let first = pop("namespace=mail").json();
        assert_eq!(
            (&first["queue"], &first["messages"][0]["queue"]),
            (&json!("mail.high"), &json!("mail.high"))
        );
        assert_eq!(pop("task=high").json()["queue"], "other.high");
        assert_eq!(pop("namespace=mail&task=high").status, 204);
        assert_eq!(pop("").json()["queue"], "mail.low");
        assert_eq!(pop("").status, 204);
    });
}

#[test]
fn names_in_paths_are_taken_raw_or_encoded() {
    let bench = Bench::embedded(&[]);
    for (name, raw, encoded) in [
        ("a b", "a%20b", "a%20b"),
        ("a|b", "a|b", "a%7Cb"),
        ("é", "é", "%C3%A9"),
        ("50%", "50%", "50%25"),
        ("100% of it", "100%%20of%20it", "100%25%20of%20it"),
        ("a/b?c#d", "a%2Fb%3Fc%23d", "a%2Fb%3Fc%23d"),
        ("x{y}\"z", "x{y}\"z", "x%7By%7D%22z"),
        ("a+b", "a+b", "a%2Bb"),
    ] {
        for (number, path) in [raw, encoded].into_iter().enumerate() {
            let transaction = format!("{number}");
            bench.push_all(name, name, &[&transaction]);
            let target = format!("/api/v1/pop/queue/{path}/partition/{path}?autoAck=true");
            let answer = kit::rest(bench.ask(&target));
            assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
            let body = answer.split("\r\n\r\n").nth(1).expect("a body");
            let popped: Value = serde_json::from_str(body).expect("is JSON");
            assert_eq!(transactions(&popped), [&*transaction], "{path}");
            assert_eq!((&popped["queue"], &popped["partition"]), (&json!(name), &json!(name)));
        }
        let gone = kit::rest(bench.ask(&format!("/api/v1/resources/queues/{encoded}")));
        assert!(gone.contains("\"pushed\":2"), "{encoded}: {gone}");
    }
}

#[test]
fn health_and_metrics_have_the_form_that_clients_read() {
    let bench = Bench::embedded(&[]);
    bench.push_all("q", "p", &["1", "2"]);
    let health = bench.get("/health").json();
    assert_eq!((&health["status"], &health["database"]), (&json!("healthy"), &json!("connected")));
    let counted = "skep_queue_pushed_messages_total{status=\"queued\"} 2\n";
    for path in ["/metrics", "/metrics/prometheus"] {
        let text = bench.get(path);
        assert!(text.header("content-type").starts_with("application/openmetrics-text"));
        assert!(text.body.contains(counted), "{path}");
    }
    let accept = [("accept", "application/json")];
    let answer = bench.node.send("GET", "/metrics", &accept, None);
    assert_eq!(answer.header("content-type"), "application/json");
    let json = answer.json();
    assert_eq!(json["messages"]["total"], 2.0, "{json}");
    assert!(json["requests"]["total"].as_f64() > Some(0.0) && json["uptime"].is_f64(), "{json}");
}

#[test]
fn each_thing_needs_its_own_right_and_messages_carry_the_name_of_their_key() {
    let folder = skep_testkit::Folder::new("queues");
    let data = folder.join("data").display().to_string();
    let key = |name: &str, scopes: &str| {
        let arguments =
            ["keys", "create", "--name", name, "--scopes", scopes, "--data", &data, "--json"];
        let (ended, log) = crate::common::run(folder.path(), &arguments);
        assert_eq!(ended.code, 0, "{log}");
        let start = log.find("skep_").expect("a key");
        let end = log[start..].find('"').expect("its end");
        log[start..start + end].to_owned()
    };
    let keys = [("admin", "admin"), ("read", "read"), ("push", "push"), ("pop", "pop")];
    let keys = keys.map(|(name, scopes)| (name, key(name, scopes)));
    let node = skep_testkit::Node::start(crate::common::skep(), &folder.join("data"), &[]);
    let send = |key: &str, method: &str, path: &str, body: Option<&str>| {
        let bearer = format!("Bearer {key}");
        node.send(method, path, &[("authorization", &bearer)], body)
    };
    let transaction = r#"{"operations":[{"type":"push","items":[{"queue":"q"}]}]}"#;
    let item = r#"{"items":[{"queue":"q","transactionId":"1"}]}"#;
    let ack = r#"{"transactionId":"x","partitionId":"y"}"#;
    for (method, path, body, allowed) in [
        ("POST", "/api/v1/push", Some(item), "push"),
        ("GET", "/api/v1/pop/queue/none", None, "pop"),
        ("GET", "/api/v1/pop/queue/none/partition/p", None, "pop"),
        ("GET", "/api/v1/pop?namespace=none", None, "pop"),
        ("POST", "/api/v1/ack", Some(ack), "pop"),
        ("POST", "/api/v1/ack/batch", Some(r#"{"acknowledgments":[]}"#), "pop"),
        ("POST", "/api/v1/lease/x/extend", None, "pop"),
        ("POST", "/api/v1/transaction", Some(transaction), ""),
        ("GET", "/api/v1/dlq", None, "read"),
        ("GET", "/api/v1/resources/queues", None, "read"),
        ("GET", "/api/v1/resources/queues/q", None, "read"),
        ("POST", "/api/v1/configure", Some(r#"{"queue":"q"}"#), ""),
        ("POST", "/api/v1/consumer-groups/g/queues/q/seek", Some(r#"{"toEnd":true}"#), ""),
        ("DELETE", "/api/v1/consumer-groups/g/queues/q", None, ""),
        ("DELETE", "/api/v1/consumer-groups/g", None, ""),
        ("DELETE", "/api/v1/resources/queues/none", None, ""),
    ] {
        for (name, key) in &keys {
            let answer = send(key, method, path, body);
            let may = *name == "admin" || *name == allowed;
            assert_eq!(answer.status == 403, !may, "{name} {method} {path}: {}", answer.body);
            assert!(may || answer.json()["error"].is_string());
        }
    }
    let popped = send(&keys[3].1, "GET", "/api/v1/pop/queue/q", None).json();
    assert_eq!(popped["messages"][0]["producerSub"], "admin", "{popped}");
}
