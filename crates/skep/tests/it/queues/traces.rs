//! What consumers tell about messages.

use super::kit::Bench;
use crate::common::run;
use serde_json::{Value, json};
use skep_testkit::{Folder, Node};
use std::path::Path;

/// Pushes a message; its partition's id.
fn pushed(bench: &Bench, queue: &str, transaction: &str) -> String {
    let item = json!({ "queue": queue, "partition": "p/1", "payload": 1,
                       "transactionId": transaction });
    let answer = bench.push(&json!([item]));
    answer[0]["partition_id"].as_str().expect("an id").to_owned()
}

#[test]
fn what_is_told_about_a_message_is_found_by_it_and_by_its_names() {
    Bench::each(|bench| {
        let partition = pushed(bench, "q", "t 1");
        let tell = |body: &Value| {
            let answer = bench.post("/api/v1/traces", body);
            assert_eq!(answer.status, 201, "{}", answer.body);
            let told = answer.json();
            assert_eq!(told["success"], true);
            told["traceId"].as_str().expect("an id").to_owned()
        };
        let first = tell(&json!({
            "transactionId": "t 1", "partitionId": partition, "consumerGroup": "__QUEUE_MODE__",
            "traceNames": ["order-7", "mail", "mail"], "data": { "text": "begun", "n": [1, null] },
            "workerId": "w1", "more": 1,
        }));
        let second = tell(&json!({
            "transactionId": "t 1", "partitionId": partition, "traceNames": null,
            "eventType": "error", "consumerGroup": null,
        }));
        let traces = bench.get(&format!("/api/v1/traces/{partition}/t%201")).json();
        let traces = traces["traces"].as_array().expect("traces");
        assert_eq!(traces.len(), 2, "{traces:?}");
        assert_eq!((&traces[0]["id"], &traces[1]["id"]), (&json!(first), &json!(second)));
        assert_eq!(traces[0]["eventType"], "info");
        assert_eq!(traces[0]["data"], json!({ "text": "begun", "n": [1, null] }));
        assert_eq!(traces[0]["traceNames"], json!(["mail", "order-7"]));
        assert_eq!(traces[0]["consumerGroup"], "__QUEUE_MODE__");
        assert_eq!(traces[0]["workerId"], "w1");
        assert!(traces[0]["createdAt"].as_str().is_some_and(|at| at.ends_with('Z')));
        assert_eq!((&traces[1]["eventType"], &traces[1]["data"]), (&json!("error"), &Value::Null));
        assert_eq!(
            (&traces[1]["consumerGroup"], &traces[1]["traceNames"]),
            (&Value::Null, &json!([]))
        );

        let other = pushed(bench, "r", "t2");
        for number in 0..3 {
            tell(&json!({ "transactionId": "t2", "partitionId": other, "data": number,
                          "traceNames": ["mail"] }));
        }
        let page = bench.get("/api/v1/traces/by-name/mail?limit=2").json();
        assert_eq!(page["traces"].as_array().map(Vec::len), Some(2), "{page}");
        assert_eq!(page["traces"][0]["data"], 2, "the newest first");
        assert_eq!(page["traces"][0]["queue"], "r");
        assert_eq!(page["traces"][0]["partition"], "p/1");
        assert_eq!(page["traces"][0]["transactionId"], "t2");
        assert_eq!(page["traces"][0]["partitionId"], other);
        let next = page["next"].as_str().expect("there is more");
        let rest = bench.get(&format!("/api/v1/traces/by-name/mail?limit=9&before={next}")).json();
        assert_eq!(
            (&rest["traces"][0]["data"], &rest["traces"][1]["id"]),
            (&json!(0), &json!(first))
        );
        assert_eq!((&rest["traces"][2], &rest["next"]), (&Value::Null, &Value::Null));
        let offset = bench.get("/api/v1/traces/by-name/mail?limit=1&offset=3").json();
        assert_eq!(offset["traces"][0]["queue"], "q", "{offset}");

        let names = bench.get("/api/v1/traces/names").json();
        assert_eq!(
            (&names["names"][0]["name"], &names["names"][0]["count"]),
            (&json!("mail"), &json!(4))
        );
        assert_eq!((&names["names"][1]["name"], &names["next"]), (&json!("order-7"), &Value::Null));
        assert!(names["names"][0]["lastAt"].as_str().is_some_and(|at| at.ends_with('Z')));
        let page = bench.get("/api/v1/traces/names?limit=1").json();
        assert_eq!(page["next"], "mail");
        let page = bench.get("/api/v1/traces/names?limit=1&after=mail").json();
        assert_eq!(page["names"][0]["name"], "order-7");

        // A trace outlives its queue, whose names are gone then.
        bench.node.send("DELETE", "/api/v1/resources/queues/r", &[], None);
        let page = bench.get("/api/v1/traces/by-name/mail?limit=1").json();
        assert_eq!(
            (&page["traces"][0]["data"], &page["traces"][0]["queue"]),
            (&json!(2), &Value::Null)
        );
        assert_eq!(bench.get("/api/v1/traces/by-name/none").json()["traces"], json!([]));
        let none = bench.get(&format!("/api/v1/traces/{partition}/other")).json();
        assert_eq!(none["traces"], json!([]));
    });
}

#[test]
fn what_cannot_be_told_is_refused_by_field_and_nothing_is_kept() {
    let bench = Bench::embedded(&[]);
    let partition = pushed(&bench, "q", "t");
    let good = json!({ "transactionId": "t", "partitionId": partition, "traceNames": ["n"] });
    let long = "x".repeat(201);
    let many: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    for (field, value, at, words) in [
        ("transactionId", json!(""), "transactionId", "1 to 1024 bytes"),
        ("transactionId", Value::Null, "transactionId", "1 to 1024 bytes"),
        ("partitionId", json!("p"), "partitionId", "cannot be \"p\""),
        ("partitionId", json!(uuid::Uuid::nil().to_string()), "partitionId", "of a push or pop"),
        ("partitionId", Value::Null, "partitionId", "must be a string"),
        ("consumerGroup", json!(7), "consumerGroup", "must be a string"),
        ("traceNames", json!("n"), "traceNames", "an array of strings"),
        ("traceNames", json!([1]), "traceNames[0]", "must be a string"),
        ("traceNames", json!(["a", ""]), "traceNames[1]", "must not be empty"),
        ("traceNames", json!([long]), "traceNames[0]", "200 bytes"),
        ("traceNames", json!(many), "traceNames", "at most 16"),
        ("eventType", json!({}), "eventType", "must be a string"),
        ("data", json!("x".repeat(64 << 10)), "data", "at most 65536"),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let answer = bench.post("/api/v1/traces", &body);
        assert_eq!(answer.status, 400, "{field}: {}", answer.body);
        let problem = answer.json();
        assert_eq!(problem["field"], at, "{problem}");
        let error = problem["error"].as_str().unwrap_or_default();
        assert!(error.contains(words), "{error} should have {words}");
    }
    assert_eq!(bench.get("/api/v1/traces/names").json()["names"], json!([]));
    for (path, field) in [
        ("by-name/n?limit=0", "limit"),
        ("by-name/n?limit=1001", "limit"),
        ("by-name/n?limit=ten", "limit"),
        ("by-name/n?limit=1000&offset=1", "offset"),
        ("by-name/n?before=x", "before"),
        ("names?limit=-1", "limit"),
        ("no-partition/t", "partitionId"),
    ] {
        let answer = bench.get(&format!("/api/v1/traces/{path}"));
        assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{path}");
    }
}

#[test]
fn who_pushes_or_pops_may_tell_and_who_reads_may_look() {
    let folder = Folder::new("traces");
    let data = folder.join("data");
    let key = |scopes: &str| {
        let data = data.display().to_string();
        let arguments =
            ["keys", "create", "--json", "--data", &data, "--name", scopes, "--scopes", scopes];
        let (ended, log) = run(Path::new("/"), &arguments);
        assert_eq!(ended.code, 0, "{log}");
        let answer: Value = serde_json::from_str(&log).expect("is JSON");
        format!("Bearer {}", answer["secret"].as_str().expect("a key"))
    };
    let (push, pop, read) = (key("push"), key("pop"), key("read"));
    let node = Node::start(crate::common::skep(), &data, &[]);
    let ask = |key: &str, method: &str, path: &str| {
        let body = (method == "POST").then_some("{}");
        node.send(method, path, &[("authorization", key)], body).status
    };
    assert_eq!(ask(&push, "POST", "/api/v1/traces"), 400);
    assert_eq!(ask(&pop, "POST", "/api/v1/traces"), 400);
    assert_eq!(ask(&read, "POST", "/api/v1/traces"), 403);
    assert_eq!(ask(&read, "GET", "/api/v1/traces/names"), 200);
    assert_eq!(ask(&push, "GET", "/api/v1/traces/names"), 403);
}
