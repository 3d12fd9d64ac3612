//! Queues as the users of Queen's client for Python meet them: the client as it is published, a
//! node on each store, and programs such as theirs.
//!
//! The programs are in the folder beside this file; each prints what it tries and ends at the first
//! thing that is not as it should be.

use crate::common::skep;
use skep_testkit::{Folder, Node, Postgres, Process, Proxy, free_port, queen};
use std::path::Path;

/// For the queues that ask for encryption.
const KEY: &str = "queues.encryption_key=\
                   000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn start(data: &Path, more: &[&str]) -> Node {
    let mut arguments = vec!["--set", KEY, "--set", "log.access=false"];
    arguments.extend(more);
    Node::start(skep(), data, &arguments)
}

fn program(name: &str, arguments: &[&str]) -> Process {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/queen");
    let mut command = queen::command(&folder.join(format!("{name}.py")));
    command.args(arguments);
    Process::start(name, &command, "KILL")
}

/// Runs a program against a node on SQLite and one on PostgreSQL, beside each other.
fn on_each_store(name: &str) {
    let folder = Folder::new("queen");
    let database = Postgres::shared().database();
    let url = database.url();
    let embedded = start(&folder.join("embedded"), &[]);
    let shared = start(&folder.join("shared"), &["--database", &url]);
    let runs = [&embedded, &shared].map(|node| program(name, &[&node.url("")]));
    for (run, store) in runs.iter().zip(["SQLite", "PostgreSQL"]) {
        assert_eq!(run.wait().code, 0, "{name} on {store}:\n{}", run.log());
        assert!(run.log().contains("passed "), "{name} on {store} tried nothing");
    }
}

#[test]
fn messages_are_pushed_and_popped() {
    on_each_store("pushing");
}

#[test]
fn messages_are_consumed_by_one_and_by_many() {
    on_each_store("consuming");
}

#[test]
fn groups_read_what_they_want_from_where_they_want() {
    on_each_store("groups");
}

#[test]
fn transactions_are_done_as_a_whole_or_not_at_all() {
    on_each_store("transactions");
}

#[test]
fn leases_end_and_are_renewed() {
    on_each_store("leases");
}

#[test]
fn what_fails_is_retried_and_becomes_a_dead_letter() {
    on_each_store("dead_letters");
}

#[test]
fn partitions_are_ordered_and_do_not_wait_for_each_other() {
    on_each_store("partitions");
}

#[test]
fn the_options_of_a_queue_are_kept_to() {
    on_each_store("waiting");
}

/// What a program printed after a mark, as numbers, in order.
fn numbers(log: &str, mark: &str) -> Vec<usize> {
    let after = |line: &str| line.strip_prefix(mark)?.trim().parse().ok();
    log.lines().filter_map(after).collect()
}

/// Cuts the client's connections and kills the node while messages flow.
fn survives(more: &[&str]) {
    const MESSAGES: usize = 300;
    let folder = Folder::new("queen");
    let listen = format!("127.0.0.1:{}", free_port());
    let arguments = [more, &["--listen", &listen]].concat();
    let mut node = start(&folder.join("data"), &arguments);
    let port = listen.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let proxy = Proxy::start(("127.0.0.1", port));
    let url = format!("http://127.0.0.1:{}", proxy.port());
    let run = program("faults", &[&url, &MESSAGES.to_string()]);
    for number in (20..MESSAGES - 20).step_by(40) {
        run.wait_for_line(&format!("@pushed {number}"));
        if number % 80 == 20 {
            proxy.cut();
            proxy.heal();
        } else {
            node.process().kill();
            node = start(&folder.join("data"), &arguments);
        }
    }
    run.wait_for_line("@done");
    let log = run.log();
    let all: Vec<usize> = (0..MESSAGES).collect();
    assert_eq!(numbers(&log, "@pushed "), all);
    let mut first: Vec<usize> = Vec::new();
    for number in numbers(&log, "@got ") {
        match number.cmp(&first.len()) {
            std::cmp::Ordering::Equal => first.push(number),
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Greater => panic!("{number} came before {}", first.len()),
        }
    }
    assert_eq!(first, all, "every message was handed out, in order");
    // One whose answer was lost with a connection is acknowledged and not known to be.
    let acked = numbers(&log, "@acked ");
    assert!(acked.is_sorted_by(|a, b| a < b), "and acknowledged once, in order: {acked:?}");
    let unsure = numbers(&log, "@unsure ");
    let mut untold = all.iter().filter(|number| !acked.contains(number));
    assert!(untold.all(|number| unsure.contains(number)), "{acked:?}, but not known: {unsure:?}");
    let answer = node.get("/api/v1/pop/queue/faults?batch=10");
    assert_eq!(answer.status, 204, "nothing is left, and nothing was there twice");
}

#[test]
fn on_sqlite_nothing_is_lost_or_twice_when_connections_are_cut_and_the_node_is_killed() {
    survives(&[]);
}

#[test]
fn on_postgresql_nothing_is_lost_or_twice_when_connections_are_cut_and_the_node_is_killed() {
    let database = Postgres::shared().database();
    survives(&["--database", &database.url()]);
}
