//! Messages that are looked at, searched, deleted, set aside and brought back.

use super::kit::{Bench, transactions};
use serde_json::{Value, json};

/// A page of messages by what follows the `?`.
fn list(bench: &Bench, query: &str) -> Value {
    let answer = bench.get(&format!("/api/v1/messages?{query}"));
    assert_eq!(answer.status, 200, "{query}: {}", answer.body);
    answer.json()
}

/// Where a message is, as a path.
fn path_of(bench: &Bench, queue: &str, transaction: &str) -> String {
    let all = list(bench, &format!("queue={queue}&limit=1000"));
    let all = all["messages"].as_array().expect("a list");
    let one = all.iter().find(|one| one["transactionId"] == transaction).expect("is there");
    format!("/api/v1/messages/{}/{transaction}", one["partitionId"].as_str().expect("an id"))
}

#[test]
fn messages_are_listed_newest_first_with_what_became_of_them() {
    Bench::each(|bench| {
        let trace = "2c7e4bd1-9e4b-4f7d-8d7d-9a3d1c2b3a4f";
        bench.push(&json!([{ "queue": "shop.q", "partition": "p", "transactionId": "1",
            "traceId": trace, "payload": { "a": [1, null] } }]));
        bench.push_all("shop.q", "p", &["2", "3"]);
        bench.push_all("shop.r", "p", &["4"]);
        let popped = bench.pop("shop.q?batch=1&consumerGroup=g&autoAck=true");
        assert_eq!(transactions(&popped), ["1"]);
        let popped = bench.pop("shop.q?batch=1&consumerGroup=g");

        let all = list(bench, "queue=shop.q&potato=1");
        assert_eq!(transactions(&all), ["3", "2", "1"]);
        assert_eq!((&all["next"], &all["scanned"]), (&Value::Null, &json!(3)));
        assert_eq!(all["pagination"], json!({ "limit": 100, "offset": 0 }));
        let first = &all["messages"][2];
        let expected = json!({
            "id": first["id"], "transactionId": "1", "traceId": trace, "queue": "shop.q",
            "partition": "p", "partitionId": popped["partitionId"], "priority": 0,
            "status": "completed", "payload": { "a": [1, null] }, "data": { "a": [1, null] },
            "producerSub": null, "createdAt": first["createdAt"],
            "consumerGroups": [{ "name": "g", "status": "completed" }],
            "explain": format!("message:{}/1", popped["partitionId"].as_str().unwrap_or("?")),
            "wouldChange": "`skep messages retry` pushes it again",
        });
        assert_eq!(*first, expected);
        for (query, expected) in [
            ("queue=shop.q&status=pending", vec!["3"]),
            ("queue=shop.q&status=processing", vec!["2"]),
            ("queue=shop.q&status=completed", vec!["1"]),
            ("queue=shop.q&status=pending&consumerGroup=never", vec!["3", "2", "1"]),
            ("queue=shop.q&status=completed&consumerGroup=g", vec!["1"]),
            ("queue=shop.q&partition=p&limit=2", vec!["3", "2"]),
            ("queue=shop.q&offset=1", vec!["2", "1"]),
            ("queue=shop.q&offset=9", vec![]),
            ("namespace=shop", vec!["4", "3", "2", "1"]),
            ("task=r", vec!["4"]),
            ("queue=shop.q&task=r", vec![]),
            ("", vec!["4", "3", "2", "1"]),
            ("queue=shop.q&from=2500-01-01T00:00:00Z", vec![]),
            ("queue=shop.q&to=2500-01-01T00:00:00Z&limit=1", vec!["3"]),
        ] {
            assert_eq!(transactions(&list(bench, query)), expected, "{query}");
        }
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = list(bench, &format!("queue=shop.q&limit=1&after={after}"));
            seen.extend(transactions(&page).into_iter().map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, ["3", "2", "1"]);

        let path = path_of(bench, "shop.q", "2");
        let shown = bench.get(&path).json();
        assert_eq!(
            (&shown["transactionId"], &shown["status"]),
            (&json!("2"), &json!("processing"))
        );
        assert_eq!(shown["payload"], json!({ "t": "2" }));
        assert_eq!(shown["queueConfig"]["leaseTime"], 300, "{shown}");
    });
}

#[test]
fn messages_are_searched_by_fields_of_their_payloads() {
    Bench::each(|bench| {
        let items: Vec<Value> = (0..450)
            .map(|number| {
                json!({ "queue": "q", "partition": format!("p{}", number % 3),
                    "transactionId": format!("t{number}"),
                    "payload": { "order": { "items": [{ "id": number % 90 }, {}],
                        "note": format!("honey no {number}") }, "paid": number % 2 == 0,
                        "left": null } })
            })
            .collect();
        bench.push(&json!(items));
        bench.push(&json!([{ "queue": "q", "transactionId": "odd", "payload": "honey" }]));
        for (query, count) in [
            ("field=order.items[0].id&equals=7", 5),
            ("field=order.items.0.id&equals=7.0", 5),
            ("field=order.note&contains=no%2044", 11),
            ("field=order.note&equals=honey%20no%2044", 1),
            ("field=paid&equals=true", 225),
            ("field=left&equals=null", 450),
            ("field=missing&equals=null", 0),
            ("field=paid&equals=true&partition=p0", 75),
        ] {
            let found = list(bench, &format!("queue=q&limit=1000&{query}"));
            assert_eq!(transactions(&found).len(), count, "{query}");
            assert_eq!(found["next"], Value::Null, "{query}");
        }
        // In pages it is the same, each once and in the same order.
        let whole = list(bench, "queue=q&limit=1000&field=paid&equals=true");
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let query = format!("queue=q&limit=50&field=paid&equals=true&after={after}");
            let page = list(bench, &query);
            assert!(transactions(&page).len() <= 50);
            seen.extend(transactions(&page).into_iter().map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, transactions(&whole));
        let tail = list(bench, "queue=q&limit=7&offset=40&field=paid&equals=true");
        assert_eq!(transactions(&tail), &transactions(&whole)[40..47]);
        assert_eq!(tail["pagination"], json!({ "limit": 7, "offset": 40 }));
    });
}

#[test]
fn a_call_looks_at_ten_thousand_messages_at_most_and_says_where_to_go_on() {
    Bench::each(|bench| {
        let items: Vec<Value> = (0..10_500)
            .map(|number| {
                json!({ "queue": "q", "partition": format!("p{}", number / 1_000),
                        "transactionId": format!("t{number}"), "payload": { "n": number } })
            })
            .collect();
        items.chunks(3_500).for_each(|some| drop(bench.push(&json!(some))));
        let mut query = "queue=q&field=n&equals=0".to_owned();
        let (mut scanned, mut found, mut calls) = (0, Vec::new(), 0);
        loop {
            let page = list(bench, &query);
            let looked = page["scanned"].as_u64().expect("a number");
            assert!(looked <= 10_000, "{page}");
            scanned += looked;
            calls += 1;
            found.extend(transactions(&page).into_iter().map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => query = format!("queue=q&field=n&equals=0&after={next}"),
                None => break,
            }
        }
        assert_eq!((scanned, found), (10_500, vec!["t0".to_owned()]));
        assert!(calls >= 2);
    });
}

#[test]
fn a_message_is_deleted_once_and_nobody_gets_it_any_more() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1", "2", "3"]);
        let path = path_of(bench, "q", "2");
        let gone = bench.node.send("DELETE", &path, &[], None);
        assert_eq!(gone.status, 200, "{}", gone.body);
        let gone = gone.json();
        assert_eq!((&gone["success"], &gone["transactionId"]), (&json!(true), &json!("2")));
        assert_eq!((&gone["queue"], &gone["partition"]), (&json!("q"), &json!("p")));
        for answer in [bench.node.send("DELETE", &path, &[], None), bench.get(&path)] {
            assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("E_MESSAGE_UNKNOWN")));
        }
        assert_eq!(transactions(&list(bench, "queue=q")), ["3", "1"]);
        assert_eq!(transactions(&bench.pop("q?batch=9&autoAck=true")), ["1", "3"]);
        // Its transaction id stays known.
        let again = json!([{ "queue": "q", "partition": "p", "transactionId": "2" }]);
        assert_eq!(bench.push(&again)[0]["status"], "duplicate");
    });
}

#[test]
fn a_message_comes_again_when_it_is_over_and_not_before() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1"]);
        let path = path_of(bench, "q", "1");
        let retry = || bench.node.send("POST", &format!("{path}/retry"), &[], None);
        let pending = |what: &str| {
            let answer = retry();
            let code = answer.json()["code"].clone();
            assert_eq!((answer.status, code), (409, json!("E_MESSAGE_PENDING")), "{what}");
        };
        pending("nobody came");
        let popped = bench.pop("q");
        let id = popped["messages"][0]["id"].clone();
        pending("somebody works on it");
        bench.ack(&popped["messages"][0], &json!({}));
        assert_eq!(bench.pop("q"), Value::Null);
        let again = retry();
        assert_eq!(again.status, 200, "{}", again.body);
        let again = again.json();
        assert_eq!((&again["success"], &again["deadLetters"]), (&json!(true), &json!(0)));
        assert_eq!((&again["transactionId"], &again["queue"]), (&json!("1"), &json!("q")));
        assert_eq!(again["messageId"], id);
        pending("it waits again");
        let popped = bench.pop("q?autoAck=true");
        assert_eq!(transactions(&popped), ["1"]);
        assert_eq!(popped["messages"][0]["id"], again["messageId"]);
        assert_eq!(popped["messages"][0]["data"], json!({ "t": "1" }));

        // Of a dead letter it is the letter that goes back, also when the message is long gone.
        bench.push_all("q", "p", &["2"]);
        let path = path_of(bench, "q", "2");
        let aside = json!({ "error": "no honey", "consumerGroup": "g" });
        let moved = bench.post(&format!("{path}/dlq"), &aside);
        assert_eq!(moved.status, 200, "{}", moved.body);
        assert_eq!(moved.json()["success"], true);
        assert_eq!(bench.pop("q"), Value::Null);
        let letters = bench.get("/api/v1/dlq?queue=q").json();
        let letter = &letters["messages"][0];
        assert_eq!((&letters["total"], &letter["transactionId"]), (&json!(1), &json!("2")));
        assert_eq!(letter["errorMessage"], "no honey");
        assert_eq!(letter["consumerGroup"], "g");
        let missing = bench.node.send("POST", &format!("{path}/dlq"), &[], None);
        assert_eq!(missing.json()["code"], "E_MESSAGE_UNKNOWN");
        let again = bench.node.send("POST", &format!("{path}/retry"), &[], None).json();
        assert_eq!((&again["success"], &again["deadLetters"]), (&json!(true), &json!(1)));
        assert_eq!(bench.get("/api/v1/dlq?queue=q").json()["total"], 0);
        assert_eq!(transactions(&bench.pop("q")), ["2"]);
    });
}

#[test]
fn encrypted_messages_are_searched_shown_and_brought_back_as_they_were() {
    let key = format!("queues.encryption_key={}", "a1".repeat(32));
    let bench = Bench::embedded(&[&key]);
    let options = json!({ "encryptionEnabled": true });
    bench.post("/api/v1/configure", &json!({ "queue": "q", "options": options }));
    bench.push(&json!([{ "queue": "q", "transactionId": "1", "payload": { "secret": "honey" } }]));
    let found = list(&bench, "queue=q&field=secret&contains=one");
    assert_eq!(found["messages"][0]["payload"], json!({ "secret": "honey" }));
    bench.pop("q?autoAck=true");
    let path = path_of(&bench, "q", "1");
    let again = bench.node.send("POST", &format!("{path}/retry"), &[], None);
    assert_eq!(again.status, 200, "{}", again.body);
    let popped = bench.pop("q?autoAck=true");
    assert_eq!(popped["messages"][0]["data"], json!({ "secret": "honey" }));
    let lines = bench.get("/api/v1/queues/q/export").body;
    assert_eq!(lines.matches(r#""payload":{"secret":"honey"}"#).count(), 2, "{lines}");
}
