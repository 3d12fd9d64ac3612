//! Schedules over HTTP, and redrives of dead letters.

use super::kit::Bench;
use serde_json::{Value, json};
use skep_testkit::http::Answer;

fn put(bench: &Bench, name: &str, body: &Value) -> Answer {
    let path = format!("/api/v1/schedules/{name}");
    bench.node.send("PUT", &path, &[], Some(&body.to_string()))
}

fn delete(bench: &Bench, path: &str) -> Answer {
    bench.node.send("DELETE", path, &[], None)
}

#[test]
fn a_schedule_is_made_shown_changed_paused_and_deleted() {
    Bench::each(|bench| {
        let body = json!({
            "name": "report", "queue": "mail", "partition": "daily", "payload": { "a": [1] },
            "priority": 3, "cron": "0 9 * * mon-fri", "timezone": "utc", "catchUp": "skip",
        });
        let made = bench.post("/api/v1/schedules", &body);
        assert_eq!(made.status, 201, "{}", made.body);
        let made = made.json();
        for (field, value) in [
            ("name", json!("report")),
            ("queue", json!("mail")),
            ("partition", json!("daily")),
            ("payload", json!({ "a": [1] })),
            ("priority", json!(3)),
            ("cron", json!("0 9 * * mon-fri")),
            ("every", Value::Null),
            ("timezone", json!("UTC")),
            ("catchUp", json!("skip")),
            ("paused", json!(false)),
            ("lastAt", Value::Null),
            ("lastMessageId", Value::Null),
            ("fired", json!(0)),
            ("version", json!(1)),
        ] {
            assert_eq!(made[field], value, "{field}: {made}");
        }
        let next: Vec<&str> =
            made["next"].as_array().expect("times").iter().filter_map(Value::as_str).collect();
        assert_eq!((next.len(), made["nextAt"].as_str()), (5, next.first().copied()));
        assert!(next.iter().all(|at| at.ends_with("T09:00:00.000000Z")), "{next:?}");
        assert!(next.is_sorted(), "{next:?}");
        assert_eq!(bench.get("/api/v1/schedules/report").json(), made);

        let again = bench.post("/api/v1/schedules", &body);
        let code = again.json()["code"].clone();
        assert_eq!((again.status, code), (409, json!("E_SCHEDULE_EXISTS")));

        let paused = bench.post("/api/v1/schedules/report/pause", &json!({})).json();
        assert_eq!((&paused["paused"], &paused["nextAt"]), (&json!(true), &Value::Null));
        assert_eq!((&paused["next"], &paused["version"]), (&json!([]), &json!(2)));
        let resumed = bench.node.send("POST", "/api/v1/schedules/report/resume", &[], None).json();
        assert_eq!(resumed["paused"], false, "{resumed}");
        assert_eq!((&resumed["nextAt"], &resumed["version"]), (&made["nextAt"], &json!(3)));

        let every = json!({ "queue": "mail", "every": 3600, "version": 3 });
        let replaced = put(bench, "report", &every);
        assert_eq!(replaced.status, 200, "{}", replaced.body);
        let replaced = replaced.json();
        assert_eq!((&replaced["every"], &replaced["cron"]), (&json!(3600), &Value::Null));
        assert_eq!(
            (&replaced["payload"], &replaced["partition"]),
            (&Value::Null, &json!("Default"))
        );
        assert_eq!((&replaced["catchUp"], &replaced["version"]), (&json!("latest"), &json!(4)));
        let stale = put(bench, "report", &every);
        assert_eq!(stale.status, 409, "{}", stale.body);
        let problem = stale.json();
        assert_eq!(
            (&problem["code"], &problem["field"]),
            (&json!("E_SCHEDULE_CONFLICT"), &json!("version"))
        );
        assert!(problem["error"].as_str().is_some_and(|text| text.contains("version 4, not 3")));
        // Another payload does not change the rhythm.
        let same = put(bench, "report", &json!({ "queue": "mail", "every": 3600, "payload": 2 }));
        assert_eq!(same.json()["nextAt"], replaced["nextAt"], "{}", same.body);
        let new = put(bench, "new%20one", &json!({ "queue": "other", "every": 1, "paused": true }));
        assert_eq!((new.status, &new.json()["next"]), (201, &json!([])));

        let all = bench.get("/api/v1/schedules").json();
        assert_eq!(all["schedules"].as_array().map(Vec::len), Some(2), "{all}");
        assert_eq!((&all["schedules"][0]["name"], &all["next"]), (&json!("new one"), &Value::Null));
        let page = bench.get("/api/v1/schedules?limit=1").json();
        assert_eq!(page["next"], "new one", "{page}");
        let page = bench.get("/api/v1/schedules?limit=1&after=new%20one").json();
        assert_eq!(page["schedules"][0]["name"], "report", "{page}");
        let of_queue = bench.get("/api/v1/schedules?queue=mail").json();
        assert_eq!(of_queue["schedules"].as_array().map(Vec::len), Some(1), "{of_queue}");

        assert_eq!(delete(bench, "/api/v1/schedules/report").json()["success"], true);
        for answer in [
            delete(bench, "/api/v1/schedules/report"),
            bench.get("/api/v1/schedules/report"),
            put(bench, "report", &json!({ "queue": "q", "every": 1, "version": 1 })),
            bench.post("/api/v1/schedules/report/pause", &json!({})),
            bench.post("/api/v1/schedules/report/resume", &json!({})),
            bench.post("/api/v1/schedules/report/fire", &json!({})),
        ] {
            let problem = answer.json();
            assert_eq!((answer.status, &problem["code"]), (404, &json!("E_SCHEDULE_UNKNOWN")));
            assert!(problem["error"].as_str().is_some_and(|text| text.contains("\"report\"")));
        }
    });
}

#[test]
fn a_schedule_can_be_fired_by_hand_paused_or_not() {
    Bench::each(|bench| {
        let body = json!({ "name": "s", "queue": "q", "partition": "p", "payload": { "a": 1.50 },
                           "every": 86400, "paused": true });
        assert_eq!(bench.post("/api/v1/schedules", &body).status, 201);
        let fired = bench.node.send("POST", "/api/v1/schedules/s/fire", &[], None);
        assert_eq!(fired.status, 200, "{}", fired.body);
        let fired = fired.json();
        assert_eq!((&fired["status"], &fired["queue"]), (&json!("queued"), &json!("q")));
        assert_eq!(bench.post("/api/v1/schedules/s/fire", &json!({})).status, 200);
        let popped = bench.pop("q/partition/p?batch=9");
        let messages = popped["messages"].as_array().expect("messages");
        assert_eq!(messages.len(), 2, "each time is a message of its own: {popped}");
        assert_eq!(messages[0]["id"], fired["messageId"]);
        assert_eq!(messages[0]["transactionId"], fired["transactionId"]);
        assert!(fired["transactionId"].as_str().is_some_and(|id| id.starts_with("schedule:s:")));
        assert_eq!(messages[0]["data"], json!({ "a": 1.5 }));
        assert_eq!(bench.get("/api/v1/schedules/s").json()["nextAt"], Value::Null);
    });
}

#[test]
fn schedules_that_cannot_be_are_refused_by_field() {
    let bench = Bench::embedded(&[]);
    let good = json!({ "name": "s", "queue": "q", "every": 5 });
    for (field, value, at, words) in [
        ("name", Value::Null, "name", "name is required"),
        ("name", json!(5), "name", "must be a string"),
        ("name", json!("x".repeat(256)), "name", "255 bytes"),
        ("queue", json!(""), "queue", "queue is required"),
        ("queue", json!("a\u{0}"), "queue", "control characters"),
        ("partition", json!([]), "partition", "must be a string"),
        ("priority", json!(10), "priority", "from 0 to 9"),
        ("priority", json!("high"), "priority", "from 0 to 9"),
        ("every", json!(0), "every", "cannot be 0"),
        ("every", json!(31_622_401), "every", "from 1 to 31622400"),
        ("every", json!("5s"), "every", "whole number of seconds"),
        ("every", Value::Null, "cron", "cron or every is required"),
        ("cron", json!("* * * * *"), "every", "cannot both be given"),
        ("timezone", json!("Mars/Olympus"), "timezone", "cannot be \"Mars/Olympus\""),
        ("timezone", json!(1), "timezone", "must be a string"),
        ("catchUp", json!("some"), "catchUp", "\"latest\", \"skip\" or \"all\""),
        ("paused", json!("no"), "paused", "true or false"),
        ("payload", json!("x".repeat(256 << 10)), "payload", "at most 262144"),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let answer = bench.post("/api/v1/schedules", &body);
        assert_eq!(answer.status, 400, "{field}: {}", answer.body);
        let problem = answer.json();
        assert_eq!(problem["field"], at, "{problem}");
        let error = problem["error"].as_str().unwrap_or_default();
        assert!(error.contains(words), "{error} should have {words}");
    }
    for cron in ["", "* * * *", "61 * * * *", "0 0 30 2 *", "@often", "a * * * *"] {
        let body = json!({ "name": "s", "queue": "q", "cron": cron });
        let answer = bench.post("/api/v1/schedules", &body);
        assert_eq!((answer.status, &answer.json()["field"]), (400, &json!("cron")), "{cron:?}");
    }
    let other = put(&bench, "s", &json!({ "name": "t", "queue": "q", "every": 5 }));
    assert_eq!((other.status, &other.json()["field"]), (400, &json!("name")));
    let version = put(&bench, "s", &json!({ "queue": "q", "every": 5, "version": "1" }));
    assert_eq!((version.status, &version.json()["field"]), (400, &json!("version")));
    for (query, field) in [("limit=0", "limit"), ("limit=1001", "limit")] {
        let answer = bench.get(&format!("/api/v1/schedules?{query}"));
        assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{query}");
    }
    assert_eq!(bench.get("/api/v1/schedules").json()["schedules"], json!([]));
}

/// Lets messages of a queue die.
fn kill(bench: &Bench, queue: &str, transactions: &[&str]) {
    bench.push_all(queue, "p", transactions);
    for transaction in transactions {
        let popped = bench.pop(queue);
        assert_eq!(popped["messages"][0]["transactionId"], *transaction, "{popped}");
        let dead = json!({ "status": "dlq", "error": format!("no {transaction}") });
        assert_eq!(bench.ack(&popped["messages"][0], &dead)["dlq"], true);
    }
}

#[test]
fn a_redrive_is_made_listed_and_stopped() {
    Bench::each(|bench| {
        kill(bench, "q", &["1", "2", "3"]);
        let body = json!({ "queue": "q", "consumerGroup": "__QUEUE_MODE__", "error": "no",
                           "partition": "p", "from": "2020-01-01T00:00:00Z", "rate": 1,
                           "target": "elsewhere" });
        let made = bench.post("/api/v1/dlq/redrive", &body);
        assert_eq!(made.status, 202, "{}", made.body);
        let made = made.json();
        assert_eq!((&made["queue"], &made["target"]), (&json!("q"), &json!("elsewhere")));
        assert_eq!(made["rate"], 1);
        assert_eq!(made["filter"]["consumerGroup"], "__QUEUE_MODE__");
        assert_eq!(made["filter"]["from"], "2020-01-01T00:00:00.000000Z");
        assert_eq!(made["filter"].get("to"), None);
        assert_eq!((&made["total"], &made["state"]), (&json!(3), &json!("running")));
        assert_eq!(made["createdBy"], "somebody on this machine");
        let id = made["id"].as_str().expect("an id");
        let path = format!("/api/v1/dlq/redrives/{id}");
        assert_eq!(bench.get(&path).json()["id"], id);
        assert_eq!(bench.post("/api/v1/dlq/redrive", &json!({ "queue": "q" })).status, 202);
        let page = bench.get("/api/v1/dlq/redrives?limit=1").json();
        assert_eq!(page["redrives"].as_array().map(Vec::len), Some(1), "{page}");
        let next = page["next"].as_str().expect("there is more");
        let rest = bench.get(&format!("/api/v1/dlq/redrives?before={next}")).json();
        assert_eq!((&rest["redrives"][0]["id"], &rest["next"]), (&json!(id), &Value::Null));
        let stopped = delete(bench, &path).json();
        assert_ne!(stopped["state"], "running", "{stopped}");
        assert!(stopped["endedAt"].is_string(), "{stopped}");
        for answer in
            [bench.get("/api/v1/dlq/redrives/999999"), delete(bench, "/api/v1/dlq/redrives/x")]
        {
            let code = answer.json()["code"].clone();
            assert_eq!((answer.status, code), (404, json!("E_REDRIVE_UNKNOWN")));
        }
        for (field, value) in [
            ("queue", json!(null)),
            ("queue", json!(3)),
            ("consumerGroup", json!([])),
            ("from", json!("soon")),
            ("to", json!(5)),
            ("rate", json!(0)),
            ("rate", json!("fast")),
            ("target", json!({})),
            ("error", json!(1)),
        ] {
            let mut body = json!({ "queue": "q" });
            body[field] = value;
            let answer = bench.post("/api/v1/dlq/redrive", &body);
            assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{field}");
        }
        let unknown = bench.post("/api/v1/dlq/redrive", &json!({ "queue": "none" }));
        assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("E_QUEUE_UNKNOWN")));
    });
}
