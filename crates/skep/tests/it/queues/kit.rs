//! What the tests of queues share: nodes over either store, and requests as clients send them.

use crate::common::skep;
use serde_json::{Value, json};
use skep_testkit::http::Answer;
use skep_testkit::{Folder, Node, Postgres, TestDatabase};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A node with a store of its own.
pub struct Bench {
    pub node: Node,
    pub folder: Folder,
    /// Kept as long as the node.
    _database: Option<TestDatabase<'static>>,
}

impl Bench {
    pub fn embedded(more: &[&str]) -> Self {
        Bench::start(Vec::new(), more)
    }

    /// A node that somebody else started.
    pub fn over(node: Node, folder: Folder) -> Self {
        Bench { node, folder, _database: None }
    }

    pub fn postgres(more: &[&str]) -> Self {
        let database = Postgres::shared().database();
        let bench = Bench::start(vec!["--database".to_owned(), database.url()], more);
        Bench { _database: Some(database), ..bench }
    }

    fn start(mut arguments: Vec<String>, more: &[&str]) -> Self {
        for setting in ["log.access=false"].iter().chain(more) {
            arguments.extend(["--set".to_owned(), (*setting).to_owned()]);
        }
        let folder = Folder::new("queues");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let node = Node::start(skep(), &folder.join("data"), &arguments);
        Bench::over(node, folder)
    }

    /// Runs a check on each store.
    pub fn each(check: impl Fn(&Bench)) {
        check(&Bench::embedded(&[]));
        check(&Bench::postgres(&[]));
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.node.send("POST", path, &[], Some(&body.to_string()))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.node.get(path)
    }

    /// Pushes and expects it to work.
    pub fn push(&self, items: &Value) -> Vec<Value> {
        let answer = self.post("/api/v1/push", &json!({ "items": items }));
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json().as_array().cloned().expect("an array")
    }

    /// Pushes messages with these transaction ids to one partition.
    pub fn push_all(&self, queue: &str, partition: &str, transactions: &[&str]) {
        let items: Vec<Value> = transactions
            .iter()
            .map(|one| {
                json!({ "queue": queue, "partition": partition, "transactionId": one,
                        "payload": { "t": one } })
            })
            .collect();
        self.push(&json!(items));
    }

    /// Pops by what follows `/api/v1/pop/queue/`; the whole answer, null if there is nothing.
    pub fn pop(&self, rest: &str) -> Value {
        let answer = self.get(&format!("/api/v1/pop/queue/{rest}"));
        match answer.status {
            204 => {
                assert_eq!(answer.body, "");
                Value::Null
            }
            200 => answer.json(),
            status => panic!("{status}: {}", answer.body),
        }
    }

    /// Says something about a popped message; the one item of the answer.
    pub fn ack(&self, message: &Value, more: &Value) -> Value {
        let mut body = json!({
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
            "leaseId": message["leaseId"],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let answer = self.post("/api/v1/ack", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let items = answer.json();
        assert_eq!(items.as_array().map(Vec::len), Some(1), "{items}");
        items[0].clone()
    }

    /// Opens a connection and sends a request on it.
    pub fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.node.address()).expect("connects");
        stream.set_read_timeout(Some(skep_testkit::PATIENCE)).expect("a timeout can be set");
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("sends");
        stream
    }

    /// Waits until so many pops are parked.
    pub fn parked(&self, count: usize) {
        crate::common::until("pops are parked", || {
            self.get("/metrics").body.contains(&format!("\nskep_queue_parked {count}\n"))
        });
    }
}

/// The transaction ids of popped messages.
pub fn transactions(popped: &Value) -> Vec<&str> {
    let messages = popped["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    messages.iter().filter_map(|one| one["transactionId"].as_str()).collect()
}

/// Everything that comes on a connection until its end.
pub fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}
