//! A node as a process: where everything is, how it starts and how it stops.

use crate::common::skep;
use rustix::process::Signal;
use skep_testkit::{Folder, Node, Process};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn it_says_where_everything_is_and_everything_is_there() {
    let folder = Folder::new("serve");
    let node = Node::start(skep(), &folder.join("data"), &["--set", "node.name=hive-1"]);
    let log = node.process().log();
    assert!(log.contains("runs as hive-1"), "{log}");
    for place in ["dashboard", "API", "metrics", "data"] {
        assert!(log.lines().any(|line| line.trim_start().starts_with(place)), "{place}: {log}");
    }
    let page = node.get("/");
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.body.contains("<title>Skep"));
    let outside = ["src=\"http", "href=\"http", "url(http", "import "];
    assert!(outside.iter().all(|text| !page.body.contains(text)), "it loads from outside");

    let health = node.get("/health");
    assert_eq!(health.status, 200);
    assert_eq!(health.json()["status"], "healthy");
    assert_eq!(health.json()["database"], "connected");

    let metrics = node.get("/metrics");
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    assert!(metrics.body.contains("skep_build_info{version="), "{}", metrics.body);
    assert!(metrics.body.ends_with("# EOF\n"));

    let about = node.get("/api/v1/node").json();
    assert_eq!(about["name"], "hive-1");
    assert_eq!(about["state"], "ready");
    assert_eq!(about["stores"][0]["store"], "sqlite");
    assert_eq!(node.get("/nowhere").status, 404);
}

#[test]
fn an_installation_outlives_a_restart() {
    let folder = Folder::new("serve");
    let data = folder.join("data");
    let id = |node: &Node| node.get("/api/v1/node").json()["installation"].clone();
    let node = Node::start(skep(), &data, &[]);
    let first = id(&node);
    assert_eq!(node.stop().code, 0);
    assert!(first.is_string());
    assert_eq!(id(&Node::start(skep(), &data, &[])), first);
}

#[test]
fn either_signal_stops_an_idle_node_cleanly_although_clients_stay_connected() {
    let folder = Folder::new("serve");
    for signal in [Signal::TERM, Signal::INT] {
        // Whoever waited for the idle client would wait for an hour.
        let settings = ["--set", "shutdown.drain_timeout=1h"];
        let node = Node::start(skep(), &folder.join("data"), &settings);
        let idle = connect(&node);
        node.get("/health");
        node.process().signal(signal);
        assert_eq!(node.process().wait().code, 0);
        drop(idle);
    }
}

#[test]
fn a_request_in_progress_is_finished_before_the_end() {
    let folder = Folder::new("serve");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let mut slow = half_a_request(&node);
    node.process().signal(Signal::TERM);
    node.process().wait_for_line("SIGTERM: stopping");
    slow.write_all(BODY_END).expect("the connection is still there");
    let mut answer = String::new();
    slow.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert_eq!(node.process().wait().code, 0);
}

#[test]
fn a_request_that_never_ends_is_cut_at_the_limit() {
    let folder = Folder::new("serve");
    let settings = ["--set", "shutdown.drain_timeout=50ms"];
    let node = Node::start(skep(), &folder.join("data"), &settings);
    let mut slow = half_a_request(&node);
    node.process().signal(Signal::TERM);
    node.process().wait_for_line("still in progress after 50ms and are cut");
    assert_eq!(node.process().wait().code, 0);
    assert_eq!(slow.read(&mut [0; 1]).unwrap_or(0), 0, "the connection is gone");
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = Folder::new("serve");
    let node = Node::start(skep(), &folder.join("data"), &["--set", "shutdown.drain_timeout=1h"]);
    let _slow = half_a_request(&node);
    node.process().signal(Signal::INT);
    node.process().wait_for_line("Ctrl-C: stopping");
    node.process().signal(Signal::INT);
    assert_eq!(node.process().wait().code, 1);
    assert!(node.process().log().contains("ended without waiting"), "{}", node.process().log());
}

#[test]
fn json_logs_are_json_from_the_first_line() {
    let folder = Folder::new("serve");
    let data = folder.join("data").display().to_string();
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--data", &data, "--set", "log.format=json"];
    let process =
        Process::start("skep", &crate::common::command(folder.path(), &arguments), "KILL");
    process.wait_for_line("ready in");
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code, 0);
    for line in process.log().lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(event["message"].is_string(), "{line}");
    }
}

fn connect(node: &Node) -> TcpStream {
    let address = node.url("").replace("http://", "");
    TcpStream::connect(address).expect("connects")
}

const BODY_END: &[u8] = b"key\":\"x\"}";

/// A client whose request is being handled and whose body is not complete: the node has asked for
/// it with `100 Continue`.
fn half_a_request(node: &Node) -> TcpStream {
    let mut stream = connect(node);
    let head = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\
                Content-Type: application/json\r\nConnection: close\r\n\
                Expect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("writes");
    let mut answer = [0; 25];
    stream.read_exact(&mut answer).expect("it wants the body");
    assert!(answer.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&answer));
    stream.write_all(b"{\"").expect("writes");
    stream
}
