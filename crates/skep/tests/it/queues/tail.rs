//! New messages as they come, as server-sent events.

use super::kit::Bench;
use crate::common::{skep, until};
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, Postgres};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;

/// A stream of events.
struct Events {
    lines: BufReader<TcpStream>,
}

impl Events {
    /// Begins to watch; what is pushed after this returns is seen.
    fn open(bench: &Bench, path: &str) -> Self {
        let mut events = Events { lines: BufReader::new(bench.ask(path)) };
        let (event, _) = events.next().expect("it begins");
        assert_eq!(event, "begin");
        events
    }

    /// The next event and its data; `None` at the end.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut event = None;
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(name) = line.trim_end().strip_prefix("event: ") {
                event = Some(name.to_owned());
            }
            if let (Some(data), Some(event)) = (line.strip_prefix("data: "), &event) {
                let data = serde_json::from_str(data.trim_end()).expect("is JSON");
                return Some((event.clone(), data));
            }
        }
    }

    /// The next message.
    fn message(&mut self) -> Value {
        let (event, data) = self.next().expect("it goes on");
        assert_eq!(event, "message", "{data}");
        data
    }
}

#[test]
fn every_new_message_is_seen_once_in_order_and_old_ones_are_not() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["old"]);
        bench.push_all("other", "p", &["old"]);
        let mut all = Events::open(bench, "/api/v1/queues/q/tail");
        let mut one = Events::open(bench, "/api/v1/queues/q/tail?partition=x&group=g");
        for number in 0..30 {
            bench.push_all("q", "p", &[&format!("p{number}")]);
            bench.push_all("other", "p", &[&format!("o{number}")]);
            if number % 10 == 0 {
                bench.push_all("q", "x", &[&format!("x{number}")]);
            }
        }
        let expected: Vec<String> = (0..30)
            .flat_map(|number| {
                let x = (number % 10 == 0).then(|| format!("x{number}"));
                [Some(format!("p{number}")), x]
            })
            .flatten()
            .collect();
        let seen: Vec<Value> = (0..33).map(|_| all.message()["transactionId"].clone()).collect();
        assert_eq!(seen, expected);
        for number in [0, 10, 20] {
            let message = one.message();
            assert_eq!(message["transactionId"], format!("x{number}"));
            assert_eq!((&message["queue"], &message["partition"]), (&json!("q"), &json!("x")));
            assert_eq!(message["payload"], json!({ "t": format!("x{number}") }));
            assert_eq!(
                (&message["status"], &message["consumerGroups"]),
                (&json!("pending"), &json!([]))
            );
            assert!(message["createdAt"].is_string() && message["partitionId"].is_string());
        }
        bench.push(&json!([{ "queue": "q", "partition": "x", "transactionId": "last" }]));
        assert_eq!(all.message()["transactionId"], "last");
        assert_eq!(one.message()["transactionId"], "last");
    });
}

#[test]
fn what_comes_too_fast_is_counted() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["old"]);
        let mut tail = Events::open(bench, "/api/v1/queues/q/tail");
        let items: Vec<Value> = (0..1_000)
            .map(|number| json!({ "queue": "q", "partition": "p", "payload": number }))
            .collect();
        bench.push(&json!(items));
        let (event, data) = tail.next().expect("it goes on");
        assert_eq!((event.as_str(), &data["messages"]), ("skipped", &json!(800)), "{data}");
        for number in 800..1_000 {
            assert_eq!(tail.message()["payload"], number);
        }
        bench.push_all("q", "p", &["next"]);
        assert_eq!(tail.message()["transactionId"], "next");
    });
}

#[test]
fn what_other_nodes_push_is_seen_too_and_streams_end_with_the_node() {
    let database = Postgres::shared().database();
    let folder = Folder::new("tail");
    let start = |name: &str| {
        let url = database.url();
        let node = Node::start(skep(), &folder.join(name), &["--database", &url]);
        Bench::over(node, Folder::new("tail"))
    };
    let (here, there) = (start("a"), start("b"));
    there.push_all("q", "p", &["old"]);
    let mut tail = Events::open(&here, "/api/v1/queues/q/tail");
    there.push_all("q", "p", &["new"]);
    assert_eq!(tail.message()["transactionId"], "new");
    here.node.process().signal(rustix::process::Signal::TERM);
    assert_eq!(tail.next(), None);
    assert_eq!(here.node.process().wait().code, 0, "{}", here.node.process().log());
}

#[test]
fn tails_are_limited_and_need_a_queue() {
    let bench = Bench::embedded(&["api.streams_max=100"]);
    let unknown = bench.get("/api/v1/queues/q/tail");
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("E_QUEUE_UNKNOWN")));
    bench.push_all("q", "p", &["1"]);
    let long = format!("/api/v1/queues/q/tail?partition={}", "x".repeat(256));
    let wrong = bench.get(&long);
    assert_eq!((wrong.status, &wrong.json()["field"]), (400, &json!("partition")));
    let mut open: Vec<Events> =
        (0..50).map(|_| Events::open(&bench, "/api/v1/queues/q/tail")).collect();
    let refused = bench.get("/api/v1/queues/q/tail");
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("E_TAILS_MAX")));
    assert!(refused.header("retry-after").parse::<u64>().is_ok());
    bench.push_all("q", "p", &["2"]);
    for tail in &mut open {
        assert_eq!(tail.message()["transactionId"], "2");
    }
    drop(open);
    until("there is room again", || {
        let mut one = BufReader::new(bench.ask("/api/v1/queues/q/tail"));
        let mut line = String::new();
        one.read_line(&mut line).is_ok_and(|_| line.starts_with("HTTP/1.1 200"))
    });
}
