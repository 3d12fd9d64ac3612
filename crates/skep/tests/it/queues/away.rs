//! What producers and consumers see while PostgreSQL is away.

use crate::common::{skep, until};
use serde_json::json;
use skep_testkit::http::Answer;
use skep_testkit::{Folder, Node, Postgres};

/// A node on a PostgreSQL that this test may kill.
pub struct Away {
    pub node: Node,
    pub server: Postgres,
    folder: Folder,
    arguments: Vec<String>,
}

impl Away {
    pub fn start(buffer: bool) -> Self {
        let server = Postgres::start();
        server.run("postgres", "CREATE DATABASE away");
        let url = {
            let other = server.database();
            other.url().replace(other.name(), "away")
        };
        let folder = Folder::new("away");
        let buffer = format!("queues.buffer={buffer}");
        let arguments = ["--database", &url, "--set", &buffer].map(str::to_owned).to_vec();
        let node = serve(&folder, &arguments);
        Away { node, server, folder, arguments }
    }

    fn push(&self, number: u64) -> Answer {
        let transaction = format!("t{number}");
        let item = json!({ "queue": "q", "payload": number, "transactionId": transaction });
        let body = json!({ "items": [item] }).to_string();
        self.node.send("POST", "/api/v1/push", &[], Some(&body))
    }

    /// Everything that is in the queue, in order.
    fn drain(&self) -> Vec<u64> {
        let answer = self.node.get("/api/v1/pop/queue/q?batch=1000&autoAck=true");
        if answer.status == 204 {
            return Vec::new();
        }
        assert_eq!(answer.status, 200, "{}", answer.body);
        let popped = answer.json();
        let messages = popped["messages"].as_array().cloned().unwrap_or_default();
        messages.iter().filter_map(|message| message["data"].as_u64()).collect()
    }

    pub fn wait_until_nothing_is_buffered(&self) {
        until("what was kept is in the database", || {
            self.node.get("/metrics").body.contains("\nskep_queue_buffer_messages 0\n")
        });
    }
}

impl Away {
    /// The node's next life on the same folder, after it was killed.
    pub fn serve_again(&mut self) {
        self.node = serve(&self.folder, &self.arguments);
    }
}

fn serve(folder: &Folder, arguments: &[String]) -> Node {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Node::start(skep(), &folder.join("data"), &arguments)
}

fn has_retry_after(answer: &Answer) -> bool {
    answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1)
}

#[test]
fn without_a_buffer_everything_is_refused_cleanly_and_recovers_by_itself() {
    let mut away = Away::start(false);
    assert_eq!(away.push(1).status, 201);
    away.server.kill();
    let answer = away.push(2);
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(has_retry_after(&answer) && answer.json()["error"].is_string(), "{}", answer.body);
    let answer = away.node.get("/api/v1/pop/queue/q?wait=true&timeout=2000");
    assert_eq!(answer.status, 503, "{}", answer.body);
    away.server.start_again();
    until("pushes are taken again", || away.push(3).status == 201);
    let got = away.drain();
    assert!(got == [1, 3] || got == [1, 2, 3], "what was refused may have arrived: {got:?}");
}

#[test]
fn with_a_buffer_pushes_are_kept_here_and_arrive_in_order_once() {
    let mut away = Away::start(true);
    assert_eq!(away.push(0).json()[0]["status"], "queued");
    for outage in 0..3 {
        away.server.kill();
        for number in outage * 20 + 1..=outage * 20 + 20 {
            let answer = away.push(number);
            assert_eq!(answer.status, 201, "{}", answer.body);
            let item = &answer.json()[0];
            assert_eq!(item["status"], "buffered", "{item}");
            assert_eq!(item["transaction_id"], format!("t{number}"));
        }
        away.server.start_again();
    }
    away.wait_until_nothing_is_buffered();
    assert_eq!(away.push(61).json()[0]["status"], "queued");
    let all: Vec<u64> = (0..=61).collect();
    assert_eq!(away.drain(), all);
    assert_eq!(away.push(7).json()[0]["status"], "duplicate");
}

#[test]
fn a_buffer_outlives_its_process() {
    let mut away = Away::start(true);
    assert_eq!(away.push(0).status, 201);
    away.server.kill();
    for number in 1..=10 {
        assert_eq!(away.push(number).json()[0]["status"], "buffered");
    }
    away.node.process().kill();
    away.server.start_again();
    away.serve_again();
    away.wait_until_nothing_is_buffered();
    let all: Vec<u64> = (0..=10).collect();
    assert_eq!(away.drain(), all);
}
