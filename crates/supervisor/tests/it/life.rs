//! How a worker lives when everything goes well.

use crate::node::FakeNode;
use crate::worker::{QUIET, Worker, kill, lives, pid_of, script};
use serde_json::json;
use skep_supervisor::{RunError, UrlFrom};
use skep_testkit::eventually;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_registered_with_everything_that_was_said_of_it() {
    let node = FakeNode::start().await;
    let text = "echo hello; echo oops >&2; echo at ws://127.0.0.1:7/x.; exec sleep 600";
    let mut options = script(&node, text);
    options.key = Some("sk-1".to_owned());
    options.slots = Some(4);
    options.labels = vec!["gpu".to_owned()];
    options.version = Some("1.62.1".to_owned());
    options.advertise_host = Some("box.example".to_owned());
    let worker = Worker::start(options);
    let mut registration = node.registration(1);
    assert_eq!(registration["start"].as_str().map(str::len), Some(32));
    registration["start"] = json!("any");
    let expected = json!({
        "name": "worker-1", "kind": "shell", "url": "ws://box.example:7/x", "slots": 4,
        "labels": ["gpu"], "version": "1.62.1", "start": "any", "lifetime": 0, "recycled": false,
        "successor": false,
    });
    assert_eq!(registration, expected);
    assert_eq!(node.heard("workers")[0].authorization, "Bearer sk-1");
    let heartbeat = node.heartbeat("memory is measured", |body| body["rss_bytes"] != 0);
    assert_eq!(heartbeat["phase"], "serving");
    let lines = worker.lines.clone();
    worker.stop().await;
    let lines: Vec<String> = lines
        .lock()
        .expect("lives")
        .iter()
        .map(|line| format!("{:?} {}", line.stream, line.text))
        .collect();
    for expected in ["Stdout hello", "Stderr oops", "Stdout at ws://127.0.0.1:7/x."] {
        assert!(lines.iter().any(|line| line == expected), "{lines:?}");
    }
    assert_eq!(node.heard("delete").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_restart_brings_a_fresh_program() {
    let node = FakeNode::start().await;
    let worker = Worker::start(script(&node, QUIET));
    let first = node.registration(1);
    node.order("restart");
    let second = node.registration(2);
    assert!(!lives(pid_of(&first)));
    assert_ne!(first["start"], second["start"]);
    assert_eq!((&second["recycled"], &second["lifetime"]), (&json!(true), &json!(0)));
    node.heartbeat("it was told", |body| body["phase"] == "restarting");
    worker.stop().await;
    assert!(!lives(pid_of(&second)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_program_is_reported_at_once_and_started_again() {
    let node = FakeNode::start().await;
    let mut options = script(&node, QUIET);
    // Nobody would hear of it this soon if the heartbeat were waited for.
    options.heartbeat_interval = Duration::from_secs(60);
    let worker = Worker::start(options);
    let first = node.registration(1);
    node.heartbeat("the first", |body| body["phase"] == "serving");
    kill(pid_of(&first));
    node.heartbeat("it was told", |body| body["phase"] == "down");
    let second = node.registration(2);
    assert_ne!(first["start"], second["start"]);
    assert_eq!((&second["recycled"], &second["lifetime"]), (&json!(false), &json!(0)));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_serves_before_the_old_program_is_stopped() {
    let node = FakeNode::start().await;
    let mut options = script(&node, QUIET);
    options.successor = true;
    let worker = Worker::start(options);
    let first = node.registration(1);
    assert_eq!(first["successor"], true);
    node.order("succeed");
    let second = node.registration(2);
    assert_eq!(second["recycled"], true);
    assert!(lives(pid_of(&first)) && lives(pid_of(&second)));
    node.heartbeat("both run", |body| body["old"] == "running");
    node.order("stop_old");
    node.heartbeat("it is gone", |body| body["order"] == "stop_old" && body["old"] == "gone");
    assert!(!lives(pid_of(&first)) && lives(pid_of(&second)));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_url_gets_a_port_and_is_registered_when_somebody_listens() {
    let node = FakeNode::start().await;
    let program = "import os, socket, sys, time\n\
                   assert sys.argv[1] == '--port=' + os.environ['PORT']\n\
                   listening = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n\
                   time.sleep(600)\n";
    let mut options = script(&node, "");
    options.command = vec!["python3".into(), "-c".into(), program.into(), "--port={port}".into()];
    options.url_from = UrlFrom::Fixed("ws://127.0.0.1:{port}/x".to_owned());
    let worker = Worker::start(options);
    let url = node.registration(1)["url"].as_str().expect("is text").to_owned();
    let port: u16 = url
        .strip_prefix("ws://127.0.0.1:")
        .and_then(|rest| rest.strip_suffix("/x"))
        .and_then(|port| port.parse().ok())
        .unwrap_or_else(|| panic!("{url}"));
    std::net::TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_grows_too_large_is_due() {
    let node = FakeNode::start().await;
    // The memory is a grandchild's, and not in the program's own group.
    let text = "setsid python3 -c 'import time; x = b\"x\" * (100 << 20); time.sleep(600)' & \
                echo ws://127.0.0.1:1/$$; wait";
    let mut options = script(&node, text);
    options.memory_max = Some(90 << 20);
    options.memory_grace = Duration::ZERO;
    let worker = Worker::start(options);
    let heartbeat = node.heartbeat("it is due", |body| body["due"] == "memory");
    assert!(heartbeat["rss_bytes"].as_u64() > Some(90 << 20), "{heartbeat}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_waits_for_the_last_session_and_takes_leave() {
    let node = FakeNode::start().await;
    node.sessions(3, 2, 0);
    let worker = Worker::start(script(&node, QUIET));
    let pid = pid_of(&node.registration(1));
    node.heartbeat("it serves", |body| body["phase"] == "serving");
    worker.stop.signal();
    eventually("it drains", || (!node.heard("drain").is_empty()).then_some(()));
    let so_far = node.heard("heartbeat").len();
    eventually("it waits", || (node.heard("heartbeat").len() > so_far + 2).then_some(()));
    assert!(lives(pid));
    node.sessions(3, 0, 0);
    worker.end().await.expect("ends well");
    assert!(!lives(pid));
    assert_eq!(node.heard("delete").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_worker_ends_well() {
    let node = FakeNode::start().await;
    let worker = Worker::start(script(&node, QUIET));
    let pid = pid_of(&node.registration(1));
    node.order("leave");
    worker.end().await.expect("ends well");
    assert!(!lives(pid));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_replaced_ends_and_says_who_has_the_name() {
    let node = FakeNode::start().await;
    let worker = Worker::start(script(&node, QUIET));
    let pid = pid_of(&node.registration(1));
    node.heartbeat("it serves", |body| body["phase"] == "serving");
    node.replace();
    let error = worker.end().await.expect_err("is an error");
    assert!(matches!(error, RunError::Replaced { .. }));
    let text = error.to_string();
    assert!(text.contains("\"worker-1\"") && text.contains("the start another"), "{text}");
    assert!(!lives(pid));
    assert!(node.heard("delete").is_empty());
}
