//! Backups and restores that find no room, and what is counted about backups.

use super::{names, serve, verb};
use crate::common::skep;
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, Process};
use std::process::Command;

/// A program under a limit of what a file may have: to it a disk that is full. The signal that
/// would come with it is ignored, as a service manager does.
const LIMITED: &str = r#"trap "" XFSZ; ulimit -f 4096; exec "$@""#;
/// The limit is 2 or 4 MiB, by what the shell counts in; the database is larger.
const MESSAGES: usize = 40;
const MESSAGE_BYTES: usize = 200_000;

/// The program with these arguments and little room for files.
fn limited(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Node::command(std::path::Path::new("/bin/sh"));
    command.args(["-c", LIMITED, "sh"]).arg(skep()).args(arguments);
    command.current_dir(folder.path());
    command
}

fn fill(node: &Node) {
    let text = "x".repeat(MESSAGE_BYTES);
    for _ in 0..MESSAGES / 10 {
        let items = vec![json!({ "queue": "bulk", "payload": text }); 10];
        let body = json!({ "items": items }).to_string();
        let answer = node.send("POST", "/api/v1/push", &[], Some(&body));
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
}

/// The number of a metric.
fn metric(node: &Node, name: &str) -> f64 {
    let metrics = node.get("/metrics").body;
    let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

fn ended(node: &Node) -> [f64; 3] {
    ["ok", "failed", "left"]
        .map(|outcome| metric(node, &format!("skep_backups_total{{outcome=\"{outcome}\"}}")))
}

#[test]
fn a_node_without_room_for_a_copy_refuses_says_why_and_goes_on() {
    let folder = Folder::new("backup-room");
    let node = serve(&folder, "data");
    fill(&node);
    assert_eq!(ended(&node), [0.0; 3]);
    assert_eq!(metric(&node, "skep_backup_last_success_timestamp_seconds"), 0.0);
    assert_eq!(node.stop().code, 0);

    let serving = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--set"];
    let serving = [&serving[..], &["gateway.listen=127.0.0.1:0"]].concat();
    let process = Process::start("skep", &limited(&folder, &serving), "KILL");
    let mut node = Node::watch(process);
    node.wait_until_ready();
    let refused = node.send("POST", "/api/v1/backup", &[], None);
    assert_eq!(refused.status, 507, "{}", refused.body);
    let problem: Value = refused.json();
    assert_eq!(problem["code"], "E_BACKUP_ROOM");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("bytes") && detail.contains("ulimit -f"), "{detail}");
    let (code, said) = verb(&folder, Some(&node), &["backup", "none.backup"]);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains("E_BACKUP_ROOM") || said.contains("ulimit -f"), "{said}");
    let left = names(folder.path());
    assert!(!left.iter().any(|name| name.contains("backup")), "{left:?}");
    assert_eq!(ended(&node), [0.0, 2.0, 0.0]);
    assert!(metric(&node, "skep_backup_last_failure_timestamp_seconds") > 1e9);
    assert_eq!(metric(&node, "skep_backup_last_success_timestamp_seconds"), 0.0);
    // The node itself has what it needs.
    let body = json!({ "items": [{ "queue": "small", "payload": 1 }] }).to_string();
    assert_eq!(node.send("POST", "/api/v1/push", &[], Some(&body)).status, 201);
    assert_eq!(node.get("/health").status, 200);
    node.process().kill();

    // The same of a folder whose node does not run.
    let of_folder = limited(&folder, &["backup", "none.backup", "--data", "data"]);
    let process = Process::start("skep", &of_folder, "KILL");
    assert_eq!(process.wait().code, 74, "{}", process.log());
    assert!(process.log().contains("ulimit -f"), "{}", process.log());
    let left = names(folder.path());
    assert!(!left.iter().any(|name| name.contains("backup")), "{left:?}");
}

#[test]
fn whoever_takes_a_backup_to_a_full_disk_is_told_and_what_was_made_is_counted() {
    let folder = Folder::new("backup-room");
    let node = serve(&folder, "data");
    fill(&node);
    // The disk of whoever asks.
    let mut small = limited(&folder, &["backup", "small.backup"]);
    let process = Process::start("skep", small.env("SKEP_URL", node.url("")), "KILL");
    assert_eq!(process.wait().code, 74, "{}", process.log());
    assert!(process.log().contains("small.backup cannot be written"), "{}", process.log());
    let mut full = Node::command(std::path::Path::new("/bin/sh"));
    full.args(["-c", "exec \"$1\" backup - > /dev/full", "sh"]).arg(skep());
    let process = Process::start("skep", full.env("SKEP_URL", node.url("")), "KILL");
    assert_eq!(process.wait().code, 74, "{}", process.log());
    assert!(process.log().contains("No space left on device"), "{}", process.log());
    let left = names(folder.path());
    assert!(!left.iter().any(|name| name.contains("backup")), "{left:?}");
    // What was on its way when the first one left may have been the rest; of the second it was not.
    let [ok, failed, left] = skep_testkit::eventually("the node notices that they left", || {
        let now = ended(&node);
        (now.iter().sum::<f64>() == 2.0).then_some(now)
    });
    assert!(failed == 0.0 && left >= 1.0, "{ok} {failed} {left}");

    // What fails at once has a status, and is no 200 that is cut short.
    let copy = folder.join("data/skep.copy");
    std::fs::create_dir(&copy).expect("makes");
    let failed = node.send("POST", "/api/v1/backup", &[], None);
    assert!(failed.status >= 500 && failed.body.contains("skep.copy"), "{}", failed.body);
    assert_eq!(ended(&node), [ok, 1.0, left]);
    std::fs::remove_dir(&copy).expect("removes");

    let (code, said) = verb(&folder, Some(&node), &["backup", "good.backup"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(ended(&node), [ok + 1.0, 1.0, left]);
    let bytes = std::fs::metadata(folder.join("good.backup")).expect("it is there").len();
    assert_eq!(metric(&node, "skep_backup_last_bytes"), bytes as f64);
    assert!(metric(&node, "skep_backup_last_seconds") > 0.0);
    let made = metric(&node, "skep_backup_last_success_timestamp_seconds");
    assert!(made >= metric(&node, "skep_backup_last_failure_timestamp_seconds"));
    assert_eq!(node.stop().code, 0);

    // A restore replaces nothing before all of it is there.
    let restore = limited(&folder, &["restore", "good.backup", "--data", "restored"]);
    let process = Process::start("skep", &restore, "KILL");
    assert_eq!(process.wait().code, 74, "{}", process.log());
    assert!(!folder.join("restored/skep.db").exists());
    let (code, said) = verb(&folder, None, &["restore", "good.backup", "--data", "restored"]);
    assert_eq!(code, 0, "{said}");
}
