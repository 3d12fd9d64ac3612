//! Nodes that forget, vanish, lose answers and talk nonsense.

use crate::node::{FakeNode, Trick};
use crate::worker::{QUIET, Worker, lives, pid_of, script};
use serde_json::json;
use skep_testkit::{eventually, free_port};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_hears_of_the_same_start_again() {
    let node = FakeNode::start().await;
    node.sessions(17, 1, 0);
    let worker = Worker::start(script(&node, QUIET));
    let first = node.registration(1);
    eventually("two heartbeats", || (node.heard("heartbeat").len() >= 2).then_some(()));
    node.forget();
    let second = node.registration(2);
    assert_eq!((&first["start"], &first["url"]), (&second["start"], &second["url"]));
    assert_eq!((&second["lifetime"], &second["recycled"]), (&json!(17), &json!(false)));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_goes_away_and_comes_back_finds_the_same_program() {
    let node = FakeNode::start().await;
    node.sessions(4, 1, 0);
    let worker = Worker::start(script(&node, QUIET));
    let first = node.registration(1);
    eventually("two heartbeats", || (node.heard("heartbeat").len() >= 2).then_some(()));
    let port = node.port;
    drop(node);
    eventually("the port is closed", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_err().then_some(())
    });
    let node = FakeNode::start_at(port).await;
    let again = node.registration(1);
    assert_eq!((&again["start"], &again["lifetime"]), (&first["start"], &json!(4)));
    assert!(lives(pid_of(&first)));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_whose_answer_was_lost_is_repeated_with_the_same_start() {
    let node = FakeNode::start().await;
    node.trick("workers", Trick::LoseReply);
    let worker = Worker::start(script(&node, QUIET));
    let (first, second) = (node.registration(1), node.registration(2));
    assert_eq!(first, second);
    node.heartbeat("it is the same", |body| body["incarnation"] == 11);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_make_no_sense_are_failed_calls() {
    let nonsense = [
        ("workers", json!({ "worker": "w", "incarnation": 1, "heartbeat_ms": 0, "slots": 5 })),
        ("workers", json!("hello")),
        ("heartbeat", json!({ "order": "dance", "lifetime": 1, "active": 0, "leaving": 0 })),
        ("heartbeat", json!({ "order": "restart" })),
        ("heartbeat", json!({ "order": "succeed", "lifetime": 1, "active": 0, "leaving": 0 })),
    ];
    for (what, body) in nonsense {
        let node = FakeNode::start().await;
        node.trick(what, Trick::Say(200, body.clone()));
        let worker = Worker::start(script(&node, QUIET));
        let registration = node.registration(1);
        let said = |count| {
            eventually("it is said again", || (node.heard(what).len() >= count).then_some(()))
        };
        said(2);
        node.heartbeat("it serves", |heartbeat| heartbeat["phase"] == "serving");
        assert!(lives(pid_of(&registration)), "{body}");
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_node_is_asked_when_one_does_not_answer() {
    let node = FakeNode::start().await;
    let mut options = script(&node, QUIET);
    options.servers.insert(0, format!("http://127.0.0.1:{}", free_port()));
    let worker = Worker::start(options);
    let first = node.registration(1);
    node.trick("heartbeat", Trick::LoseReply);
    let so_far = node.heard("heartbeat").len();
    eventually("it comes back", || (node.heard("heartbeat").len() > so_far + 3).then_some(()));
    assert!(lives(pid_of(&first)));
    assert_eq!(node.heard("workers").len(), 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_the_scope_leaves_the_program_running() {
    let node = FakeNode::start().await;
    node.trick("heartbeat", Trick::Say(403, json!({ "title": "Denied", "detail": "scope" })));
    let worker = Worker::start(script(&node, QUIET));
    let pid = pid_of(&node.registration(1));
    node.heartbeat("it is said", |_| true);
    assert!(lives(pid));
    worker.stop().await;
    assert!(!lives(pid));
}
