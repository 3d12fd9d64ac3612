//! What operators ask about queues, partitions and groups.

use super::kit::{Bench, transactions};
use serde_json::{Value, json};

/// The names in a list of an answer.
fn names<'answer>(answer: &'answer Value, list: &str, name: &str) -> Vec<&'answer str> {
    let all = answer[list].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|one| one[name].as_str()).collect()
}

fn fields(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn queues_are_found_by_namespace_task_and_the_beginning_of_their_names() {
    Bench::each(|bench| {
        for queue in ["shop.mail", "shop.print", "work.mail", "zoo"] {
            bench.push_all(queue, "p", &["1"]);
        }
        let list = |query: &str| {
            let answer = bench.get(&format!("/api/v1/resources/queues?{query}"));
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.json()
        };
        for (query, expected) in [
            ("namespace=shop", vec!["shop.mail", "shop.print"]),
            ("task=mail", vec!["shop.mail", "work.mail"]),
            ("namespace=shop&task=mail", vec!["shop.mail"]),
            ("search=sho", vec!["shop.mail", "shop.print"]),
            ("search=shop.mail", vec!["shop.mail"]),
            ("search=mail", vec![]),
            ("task=mail&potato=1", vec!["shop.mail", "work.mail"]),
        ] {
            let found = list(query);
            assert_eq!(names(&found, "queues", "name"), expected, "{query}");
            assert_eq!(found["next"], Value::Null, "{query}");
        }
        let first = list("task=mail&limit=1");
        assert_eq!(names(&first, "queues", "name"), ["shop.mail"]);
        let next = first["next"].as_str().expect("there is more");
        let rest = list(&format!("task=mail&limit=5&after={next}"));
        assert_eq!(names(&rest, "queues", "name"), ["work.mail"]);
        assert_eq!(list("limit=5000")["next"], Value::Null);

        let namespaces = bench.get("/api/v1/resources/namespaces").json();
        let expected = json!([{ "namespace": "", "queues": 1 },
            { "namespace": "shop", "queues": 2 }, { "namespace": "work", "queues": 1 }]);
        assert_eq!(namespaces, json!({ "namespaces": expected }));
        let tasks = bench.get("/api/v1/resources/tasks").json();
        let expected = json!([{ "task": "", "queues": 1 }, { "task": "mail", "queues": 2 },
            { "task": "print", "queues": 1 }]);
        assert_eq!(tasks, json!({ "tasks": expected }));
        bench.pop("zoo?consumerGroup=g");
        let overview = bench.get("/api/v1/resources/overview").json();
        let counts = ["queues", "namespaces", "tasks", "consumerGroups"];
        let counts = counts.map(|name| overview[name].as_u64().unwrap_or(99));
        assert_eq!(counts, [4, 2, 2, 1], "{overview}");
        assert_eq!(overview["messages"]["total"], 4);
        assert_eq!(overview["messages"]["pending"], 4);
        assert_eq!(overview["messages"]["deadLetter"], 0);
        assert!(overview["partitions"].as_u64().is_some_and(|count| count >= 4), "{overview}");
        assert!(overview["timestamp"].as_str().is_some_and(|text| text.ends_with('Z')));
    });
}

#[test]
fn a_queue_shows_its_depth_its_partitions_and_how_far_groups_are() {
    Bench::each(|bench| {
        for (partition, count) in [("a1", 3), ("a2", 2), ("b", 1)] {
            let ids: Vec<String> = (0..count).map(|one| format!("{partition}-{one}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            bench.push_all("q", partition, &ids);
        }
        let popped = bench.pop("q/partition/a1?consumerGroup=g&batch=1");
        bench.ack(&popped["messages"][0], &json!({ "consumerGroup": "g" }));
        let held = bench.pop("q/partition/a1?consumerGroup=g&batch=1");
        assert_eq!(transactions(&held), ["a1-1"]);

        let page = |rest: &str| {
            let one = bench.get(&format!("/api/v1/resources/queues/q/partitions?{rest}"));
            let other = bench.get(&format!("/api/v1/resources/partitions?queue=q&{rest}"));
            assert_eq!((one.status, &one.body), (200, &other.body), "{rest}");
            one.json()
        };
        let all = page("");
        assert_eq!(names(&all, "partitions", "name"), ["a1", "a2", "b"]);
        assert_eq!(all["next"], Value::Null);
        let first = &all["partitions"][0];
        for name in ["id", "lastPushAt", "createdAt"] {
            assert!(first[name].is_string(), "{name}: {first}");
        }
        assert_eq!(first["id"], popped["partitionId"]);
        assert_eq!((&first["pushed"], &first["messages"]), (&json!(3), &json!(3)));
        assert_eq!(first["groups"][0]["name"], "g");
        assert_eq!(first["groups"][0]["pending"], 2, "{first}");
        assert!(first["groups"][0]["leasedUntil"].is_string(), "{first}");
        assert_eq!(names(&page("prefix=a"), "partitions", "name"), ["a1", "a2"]);
        assert_eq!(names(&page("prefix=c"), "partitions", "name"), Vec::<&str>::new());
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let some = page(&format!("limit=1&after={after}"));
            seen.extend(names(&some, "partitions", "name").into_iter().map(str::to_owned));
            match some["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, ["a1", "a2", "b"]);

        let depth =
            |rest: &str| bench.get(&format!("/api/v1/resources/queues/q/depth{rest}")).json();
        let whole = depth("");
        assert_eq!((&whole["queue"], &whole["group"]), (&json!("q"), &Value::Null));
        assert_eq!((&whole["pending"], &whole["total"]), (&json!(5), &json!(6)), "{whole}");
        let of_group = depth("?group=g");
        assert_eq!((&of_group["group"], &of_group["pending"]), (&json!("g"), &json!(5)));
        assert_eq!(of_group["effectivePending"], 5);
        assert_eq!(depth("?group=never")["pending"], 6);

        let shown = bench.get("/api/v1/resources/queues/q?potato=1").json();
        let group = &shown["consumerGroups"][0];
        assert_eq!((&group["name"], &group["pending"]), (&json!("g"), &json!(5)), "{shown}");
        assert_eq!(group["leasedPartitions"], 1, "{group}");
        assert_eq!(group["waitingPartitionsMore"], false);
        assert!(group["waitingPartitions"].is_u64() && group["lagSeconds"].is_u64(), "{group}");
        assert!(group["oldestAt"].is_string() && group["createdAt"].is_string(), "{group}");
    });
}

#[test]
fn groups_are_listed_with_their_lag_and_by_their_queues() {
    Bench::each(|bench| {
        bench.push_all("a", "p", &["1", "2"]);
        bench.push_all("b", "p", &["1"]);
        bench.pop("a?consumerGroup=g&autoAck=true");
        bench.pop("b?consumerGroup=g&autoAck=true");
        bench.pop("a?consumerGroup=h&subscriptionMode=new");
        let all = bench.get("/api/v1/consumer-groups");
        assert_eq!((all.status, all.header("x-next")), (200, ""));
        let all = all.json();
        let list = all.as_array().expect("a list");
        assert_eq!(list.len(), 3, "{all}");
        let one = |name: &str, queue: &str| {
            let is = |one: &&Value| one["name"] == name && one["queueName"] == queue;
            list.iter().find(is).unwrap_or_else(|| panic!("{name} of {queue}: {all}")).clone()
        };
        let group = one("g", "a");
        let expected = [
            "createdAt",
            "maxTimeLag",
            "members",
            "name",
            "partitionsWithLag",
            "queueName",
            "state",
            "subscriptionTimestamp",
            "topics",
            "totalLag",
        ];
        assert_eq!(fields(&group), expected);
        assert_eq!(group["topics"], json!(["a"]));
        assert_eq!((&group["totalLag"], &group["members"]), (&json!(1), &json!(1)), "{group}");
        assert_eq!((&group["partitionsWithLag"], &group["state"]), (&json!(1), &json!("Stable")));
        assert!(group["maxTimeLag"].is_u64(), "{group}");
        assert_eq!(group["subscriptionTimestamp"], Value::Null);
        assert_eq!(one("g", "b")["totalLag"], 0);
        let late = one("h", "a");
        assert!(late["subscriptionTimestamp"].is_string(), "{late}");
        assert_eq!(late["totalLag"], 0, "{late}");

        let of_queue = bench.get("/api/v1/consumer-groups?queue=b").json();
        assert_eq!(of_queue.as_array().map(Vec::len), Some(1), "{of_queue}");
        let mut seen = 0;
        let mut after = String::new();
        loop {
            let page = bench.get(&format!("/api/v1/consumer-groups?limit=1&after={after}"));
            assert_eq!(page.status, 200, "{}", page.body);
            seen += page.json().as_array().map_or(0, Vec::len);
            match page.header("x-next") {
                "" => break,
                next => after = next.to_owned(),
            }
        }
        assert_eq!(seen, 3);

        let shown = bench.get("/api/v1/consumer-groups/g").json();
        let topics = shown["topics"].as_array().map(Vec::len);
        assert_eq!((&shown["name"], topics, &shown["totalLag"]), (&json!("g"), Some(2), &json!(1)));
        assert_eq!(shown["queues"].as_array().map(Vec::len), Some(2), "{shown}");
        let lagging = bench.get("/api/v1/consumer-groups/lagging?minLagSeconds=0").json();
        let lagging: Vec<&Value> = lagging.as_array().expect("a list").iter().collect();
        assert!(lagging.iter().any(|one| one["name"] == "g" && one["queueName"] == "a"));
        assert!(lagging.iter().all(|one| one["queueName"] != "b"), "{lagging:?}");
        assert_eq!(bench.get("/api/v1/consumer-groups/lagging").json(), json!([]));
    });
}

#[test]
fn where_a_group_begins_is_set_and_kept_if_it_is_wanted_so() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1", "2"]);
        let times = bench.get("/api/v1/messages?queue=q").json();
        let at = times["messages"][0]["createdAt"].as_str().expect("a time").to_owned();
        let later = "2500-01-01T00:00:00Z";
        let path = "/api/v1/consumer-groups/g/subscription";
        let set = bench.post(path, &json!({ "queue": "q", "subscriptionTimestamp": later }));
        assert_eq!(set.status, 200, "{}", set.body);
        let set = set.json();
        assert_eq!((&set["success"], &set["consumerGroup"]), (&json!(true), &json!("g")));
        assert_eq!((&set["queueName"], &set["queuesUpdated"]), (&json!("q"), &json!(1)));
        assert_eq!(set["subscriptionTimestamp"], "2500-01-01T00:00:00.000000Z");
        assert_eq!(bench.pop("q?consumerGroup=g"), Value::Null);
        // What it has begun is not changed; what it comes to is.
        let all = bench.post(path, &json!({ "subscriptionTimestamp": at }));
        assert_eq!(all.status, 200, "{}", all.body);
        assert!(all.json().get("queueName").is_none(), "{}", all.body);

        bench.pop("q?consumerGroup=k&batch=9&autoAck=true");
        assert_eq!(bench.pop("q?consumerGroup=k"), Value::Null);
        let kept = "/api/v1/consumer-groups/k/queues/q?deleteMetadata=false";
        let gone = bench.node.send("DELETE", kept, &[], None).json();
        assert_eq!((&gone["success"], &gone["metadataDeleted"]), (&json!(true), &json!(false)));
        let of_queue = bench.get("/api/v1/consumer-groups?queue=q").json();
        let is_there = |name: &str| {
            of_queue.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == name))
        };
        assert!(is_there("k"), "{of_queue}");
        assert_eq!(transactions(&bench.pop("q?consumerGroup=k&batch=9")), ["1", "2"]);
        let gone = bench.node.send("DELETE", "/api/v1/consumer-groups/k", &[], None).json();
        assert_eq!(gone["metadataDeleted"], true);
        let unknown = bench.get("/api/v1/consumer-groups/k").json();
        assert_eq!(unknown["code"], "E_GROUP_UNKNOWN");
    });
}
