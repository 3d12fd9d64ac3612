//! Dead letters that are found, deleted and brought back; queues that are exported and cleared.

use super::kit::{Bench, transactions};
use serde_json::{Value, json};

/// Sets messages aside for a group, each with an error of its own.
fn bury(bench: &Bench, queue: &str, partition: &str, group: &str, ids: &[&str]) {
    bench.push_all(queue, partition, ids);
    for id in ids {
        let popped = bench.pop(&format!("{queue}/partition/{partition}?consumerGroup={group}"));
        assert_eq!(transactions(&popped), [*id]);
        let word = json!({ "status": "dlq", "error": format!("no honey for {id}"),
                           "consumerGroup": group });
        assert_eq!(bench.ack(&popped["messages"][0], &word)["dlq"], true);
    }
}

fn dead(bench: &Bench, query: &str) -> Value {
    let answer = bench.get(&format!("/api/v1/dlq?{query}"));
    assert_eq!(answer.status, 200, "{query}: {}", answer.body);
    answer.json()
}

#[test]
fn dead_letters_are_found_by_every_filter_and_page() {
    Bench::each(|bench| {
        bury(bench, "q", "a", "g", &["1", "2"]);
        bury(bench, "q", "b", "h", &["3"]);
        bury(bench, "r", "a", "g", &["4"]);
        for (query, expected) in [
            ("", vec!["4", "3", "2", "1"]),
            ("queue=q", vec!["3", "2", "1"]),
            ("queue=q&partition=a", vec!["2", "1"]),
            ("queue=q&partition=none", vec![]),
            ("consumerGroup=g", vec!["4", "2", "1"]),
            ("transactionId=3", vec!["3"]),
            ("error=for%202", vec!["2"]),
            ("queue=q&from=2500-01-01T00:00:00Z", vec![]),
            ("queue=q&to=2500-01-01T00:00:00Z&potato=1", vec!["3", "2", "1"]),
        ] {
            let found = dead(bench, query);
            assert_eq!(transactions(&found), expected, "{query}");
            assert_eq!(found["total"], expected.len(), "{query}");
        }
        let first = dead(bench, "queue=q&limit=2");
        assert_eq!(transactions(&first), ["3", "2"]);
        let last = first["messages"][1]["id"].as_str().expect("an id");
        let rest = dead(bench, &format!("queue=q&limit=2&before={last}"));
        assert_eq!((transactions(&rest), &rest["total"]), (vec!["1"], &json!(3)));
        assert_eq!(transactions(&dead(bench, "queue=q&limit=2&offset=2")), ["1"]);

        let letter = bench.get(&format!("/api/v1/dlq/{last}")).json();
        assert_eq!(letter, first["messages"][1]);
        assert_eq!(letter["errorMessage"], "no honey for 2");
        assert!(letter["messageId"].as_str().is_some_and(|id| id.len() == 36), "{letter}");
    });
}

#[test]
fn dead_letters_are_deleted_one_by_one_or_by_filter() {
    Bench::each(|bench| {
        bury(bench, "q", "a", "g", &["1", "2", "3"]);
        bury(bench, "r", "a", "g", &["4"]);
        let found = dead(bench, "queue=q");
        let id = found["messages"][0]["id"].as_str().expect("an id");
        let path = format!("/api/v1/dlq/{id}");
        let gone = bench.node.send("DELETE", &path, &[], None);
        assert_eq!((gone.status, &gone.json()["deleted"]), (200, &json!(1)), "{}", gone.body);
        for answer in [
            bench.node.send("DELETE", &path, &[], None),
            bench.get(&path),
            bench.node.send("POST", &format!("{path}/retry"), &[], None),
        ] {
            let code = answer.json()["code"].clone();
            assert_eq!((answer.status, code), (404, json!("E_DEAD_LETTER_UNKNOWN")));
        }
        let delete = |query: &str| {
            bench.node.send("DELETE", &format!("/api/v1/dlq?{query}"), &[], None).json()
        };
        assert_eq!(delete("queue=q&error=for%201"), json!({ "deleted": 1, "more": false }));
        assert_eq!(delete("queue=q"), json!({ "deleted": 1, "more": false }));
        assert_eq!(delete("queue=q"), json!({ "deleted": 0, "more": false }));
        assert_eq!(transactions(&dead(bench, "")), ["4"]);
        let shown = bench.get("/api/v1/resources/queues/q").json();
        assert_eq!(shown["totals"]["deadLetter"], 0, "{shown}");
    });
}

#[test]
fn a_dead_letter_goes_back_once_however_many_ask() {
    Bench::each(|bench| {
        bury(bench, "q", "a", "g", &["1"]);
        let found = dead(bench, "queue=q");
        let id = found["messages"][0]["id"].as_str().expect("an id");
        let path = format!("/api/v1/dlq/{id}/retry");
        let answers: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..8).map(|_| scope.spawn(|| bench.node.send("POST", &path, &[], None))).collect();
            all.into_iter().map(|one| one.join().expect("ends")).collect()
        });
        let (good, bad): (Vec<_>, Vec<_>) = answers.iter().partition(|one| one.status == 200);
        assert_eq!(good.len(), 1, "{answers:?}");
        assert!(bad.iter().all(|one| one.json()["code"] == "E_DEAD_LETTER_UNKNOWN"), "{bad:?}");
        let back = good[0].json();
        assert_eq!((&back["success"], &back["transactionId"]), (&json!(true), &json!("1")));
        assert_eq!((&back["queue"], &back["partition"]), (&json!("q"), &json!("a")));
        assert_eq!(dead(bench, "queue=q")["total"], 0);
        let popped = bench.pop("q?consumerGroup=g&batch=9");
        assert_eq!(transactions(&popped), ["1"]);
        assert_eq!(popped["messages"][0]["id"], back["messageId"]);
    });
}

#[test]
fn an_export_has_every_message_in_order_and_an_end() {
    Bench::each(|bench| {
        let count = 2_300_usize;
        let items: Vec<Value> = (0..count)
            .map(|number| {
                let partition = if number.is_multiple_of(10) { "few" } else { "many" };
                json!({ "queue": "q", "partition": partition,
                        "transactionId": format!("{number}"), "payload": { "n": number } })
            })
            .collect();
        bench.push(&json!(items));
        let body =
            "{\"items\":[{\"queue\":\"q\",\"partition\":\"few\",\"payload\":{\n\"a\":\r\n1}}]}";
        bench.node.send("POST", "/api/v1/push", &[], Some(body));
        let export = |query: &str| -> Vec<Value> {
            let answer = super::kit::rest(bench.ask(&format!("/api/v1/queues/q/export{query}")));
            assert!(answer.contains("application/x-ndjson"), "{query}");
            // Pieces of the body stand between lines with their sizes.
            let lines = answer.lines().filter(|line| line.starts_with('{'));
            lines.map(|line| serde_json::from_str(line).expect(line)).collect()
        };
        let all = export("");
        let end = all.last().expect("an end");
        assert_eq!(*end, json!({ "end": true, "messages": count + 1 }));
        assert_eq!(all.len(), count + 2);
        for partition in ["few", "many"] {
            let own = all.iter().filter(|one| one["partition"] == partition);
            let numbers: Vec<u64> = own.filter_map(|one| one["payload"]["n"].as_u64()).collect();
            assert!(numbers.is_sorted(), "{partition}");
            assert_eq!(numbers.len(), if partition == "few" { 230 } else { 2_070 });
        }
        let one = &all[0];
        assert_eq!(one["priority"], 0);
        assert!(one["createdAt"].is_string() && one["traceId"].is_null(), "{one}");
        assert!(all.iter().any(|one| one["payload"] == json!({ "a": 1 })), "on one line");
        assert_eq!(export("?partition=few").len(), 232);
        assert_eq!(export("?from=2500-01-01T00:00:00Z"), [json!({ "end": true, "messages": 0 })]);
    });
}

#[test]
fn messages_that_wait_for_their_time_are_listed_and_deleted() {
    Bench::each(|bench| {
        let item = |id: &str, delay: u32| {
            json!({ "queue": "q", "partition": "p", "transactionId": id, "delay": delay,
                    "payload": { "t": id } })
        };
        bench.push(&json!([item("late", 9_000), item("soon", 5_000), item("mid", 7_000)]));
        bench.push_all("r", "p", &["1"]);
        let list = |query: &str| bench.get(&format!("/api/v1/queues/q/delayed?{query}")).json();
        let all = list("");
        assert_eq!(transactions(&all), ["soon", "mid", "late"]);
        let first = &all["messages"][0];
        assert_eq!(
            (&first["partition"], &first["payload"]),
            (&json!("p"), &json!({ "t": "soon" }))
        );
        assert!(first["delayUntil"].as_str().is_some_and(|text| text.ends_with('Z')), "{first}");
        let page = list("limit=2");
        let next = page["next"].as_str().expect("there is more");
        assert_eq!(transactions(&list(&format!("limit=2&after={next}"))), ["late"]);

        let id = first["id"].as_str().expect("an id");
        let other = bench.node.send("DELETE", &format!("/api/v1/queues/r/delayed/{id}"), &[], None);
        assert_eq!(other.json()["code"], "E_MESSAGE_UNKNOWN", "it is of another queue");
        let path = format!("/api/v1/queues/q/delayed/{id}");
        let gone = bench.node.send("DELETE", &path, &[], None);
        assert_eq!((gone.status, &gone.json()["success"]), (200, &json!(true)), "{}", gone.body);
        assert_eq!(bench.node.send("DELETE", &path, &[], None).status, 404);
        assert_eq!(transactions(&list("")), ["mid", "late"]);
    });
}

#[test]
fn a_cleared_queue_hands_out_only_what_comes_after() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1", "2"]);
        let cleared = bench.node.send("DELETE", "/api/v1/queues/q/clear", &[], None);
        assert_eq!(cleared.status, 200, "{}", cleared.body);
        let cleared = cleared.json();
        assert_eq!((&cleared["success"], &cleared["queue"]), (&json!(true), &json!("q")));
        assert_eq!(cleared["messages"], 2);
        assert!(cleared["clearedAt"].as_str().is_some_and(|text| text.ends_with('Z')));
        bench.push_all("q", "p", &["3"]);
        assert_eq!(transactions(&bench.pop("q?batch=9&consumerGroup=g")), ["3"]);
    });
}
