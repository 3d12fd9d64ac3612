//! `skep backup` and `skep restore`, of real nodes under load and under fire.

mod copying;
mod room;

use crate::common::{command, run, skep, until};
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, Process, http};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs a verb about a node; its code and all that it said.
fn verb(folder: &Folder, node: Option<&Node>, arguments: &[&str]) -> (i32, String) {
    let mut command = command(folder.path(), arguments);
    if let Some(node) = node {
        command.env("SKEP_URL", node.url(""));
    }
    let process = Process::start("skep", &command, "KILL");
    (process.wait().code, process.log())
}

fn serve(folder: &Folder, data: &str) -> Node {
    Node::start(skep(), &folder.join(data), &["--set", "gateway.enabled=false"])
}

/// Pushes a batch; whether it was answered.
fn push(url: &str, partition: &str, numbers: std::ops::Range<u64>) -> bool {
    let item = |n: u64| json!({ "queue": "orders", "partition": partition, "payload": n });
    let items: Vec<Value> = numbers.map(item).collect();
    let body = json!({ "items": items }).to_string();
    http::send("POST", url, &[], Some(&body)).is_ok_and(|answer| answer.status == 201)
}

/// All numbers of a partition, in the order in which they are handed out.
fn drained(node: &Node, partition: &str) -> Vec<u64> {
    let path = format!("/api/v1/pop/queue/orders/partition/{partition}?batch=1000&autoAck=true");
    let mut numbers = Vec::new();
    loop {
        let answer = node.get(&path);
        if answer.status == 204 {
            return numbers;
        }
        let popped = answer.json();
        let messages = popped["messages"].as_array().cloned().unwrap_or_default();
        numbers.extend(messages.iter().filter_map(|message| message["data"].as_u64()));
    }
}

/// Which installation a folder belongs to, as a backup of it says.
fn installation(folder: &Folder, data: &str) -> String {
    let (code, said) =
        verb(folder, None, &["backup", "looked", "--data", data, "--force", "--json"]);
    assert_eq!(code, 0, "{said}");
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    told["installation"].as_str().expect("it has one").to_owned()
}

#[test]
fn a_backup_under_load_has_every_push_that_was_answered_before_and_none_by_half() {
    let folder = Folder::new("backup");
    let node = serve(&folder, "data");
    let url = node.url("/api/v1/push");
    let (stop, answered) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    let mut before = [0; 3];
    std::thread::scope(|scope| {
        for (number, answered) in answered.iter().enumerate() {
            let (url, stop) = (&url, &stop);
            scope.spawn(move || {
                let partition = format!("p{number}");
                let mut next = 0;
                while !stop.load(Ordering::Relaxed) {
                    assert!(push(url, &partition, next..next + 10), "it is answered");
                    next += 10;
                    answered.store(next, Ordering::SeqCst);
                }
            });
        }
        until("there is something", || answered.iter().all(|n| n.load(Ordering::SeqCst) > 500));
        before = [0, 1, 2].map(|number: usize| answered[number].load(Ordering::SeqCst));
        let (code, said) = verb(&folder, Some(&node), &["backup", "one.backup"]);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("of installation") && said.contains("not in it"), "{said}");
    });
    let after = answered.map(AtomicU64::into_inner);
    let mode = std::fs::metadata(folder.join("one.backup")).expect("it is there").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    assert!(!folder.join("data/skep.copy").exists(), "nothing is left beside it");
    let audit = node.get("/api/v1/audit").json();
    assert_eq!(audit["entries"][0]["action"], "backup.make", "{audit}");
    node.stop();

    let (code, said) = verb(&folder, None, &["restore", "one.backup", "--data", "restored"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("skep serve --data restored"), "{said}");
    let restored = serve(&folder, "restored");
    for number in 0..3 {
        let found = drained(&restored, &format!("p{number}"));
        let count = found.len() as u64;
        assert!(found.iter().copied().eq(0..count), "in order, each once: {found:?}");
        assert!(
            count >= before[number] && count <= after[number] && count.is_multiple_of(10),
            "{count} of {} to {}",
            before[number],
            after[number]
        );
    }
}

#[test]
fn a_backup_that_is_killed_leaves_no_file_and_the_node_as_it_was() {
    let folder = Folder::new("backup");
    let node = serve(&folder, "data");
    fill(&node, 12);
    // The client, in the middle: the file has its name at the end only.
    let mut killed = command(folder.path(), &["backup", "cut.backup"]);
    let process = Process::start("skep", killed.env("SKEP_URL", node.url("")), "KILL");
    until("it has begun", || names(folder.path()).iter().any(|name| name.contains(".partial")));
    process.kill();
    assert!(!folder.join("cut.backup").exists());
    // The node goes on, and is free for the next when it has noticed.
    until("the next one works", || {
        verb(&folder, Some(&node), &["backup", "next.backup", "--force"]).0 == 0
    });

    // The node itself.
    let mut asked = command(folder.path(), &["backup", "dead.backup"]);
    let process = Process::start("skep", asked.env("SKEP_URL", node.url("")), "KILL");
    until("it copies", || {
        folder.join("data/skep.copy").exists() || folder.join("dead.backup").exists()
    });
    node.process().kill();
    let ended = process.wait();
    if ended.code == 0 {
        assert_eq!(verb(&folder, None, &["backup", "--check", "dead.backup"]).0, 0);
    } else {
        assert_eq!(ended.code, 69, "{}", process.log());
        assert!(!folder.join("dead.backup").exists());
    }
    let again = serve(&folder, "data");
    assert!(!folder.join("data/skep.copy").exists(), "what was left is removed");
    assert_eq!(drained(&again, "p").len(), 12 * 100);
}

/// So many batches of 100 messages, each a few kilobytes.
fn fill(node: &Node, batches: u64) {
    for batch in 0..batches {
        let item = |n: u64| {
            let text = format!("{n:064}").repeat(64);
            json!({ "queue": "bulk", "partition": "p", "payload": text })
        };
        let items: Vec<Value> = (batch * 100..(batch + 1) * 100).map(item).collect();
        let body = json!({ "items": items }).to_string();
        let answer = node.send("POST", "/api/v1/push", &[], Some(&body));
        assert_eq!(answer.status, 201, "{}", answer.body);
        assert!(push(&node.url("/api/v1/push"), "p", batch * 100..(batch + 1) * 100));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_restore_that_is_killed_leaves_the_old_data_or_the_restored() {
    let folder = Folder::new("restore");
    let node = serve(&folder, "new");
    fill(&node, 12);
    assert_eq!(verb(&folder, Some(&node), &["backup", "new.backup"]).0, 0);
    node.stop();
    let old = serve(&folder, "data");
    assert!(push(&old.url("/api/v1/push"), "p", 0..10));
    // Killed, so that its log still holds something.
    old.process().kill();
    let (old, new) = (installation(&folder, "data"), installation(&folder, "new"));
    assert_ne!(old, new);

    let partial = folder.join("data/restore.partial");
    let whole = std::fs::metadata(folder.join("new.backup")).expect("it is there").len();
    let reached = |moment: usize| match moment {
        0 => partial.exists(),
        1 => std::fs::metadata(partial.join("skep.db")).is_ok_and(|file| file.len() > whole / 2),
        2 => partial.join("skep.lock").exists(),
        _ => folder.join("data/restore.ready").exists(),
    };
    let mut seen = Vec::new();
    for moment in 0..4 {
        let restore = ["restore", "new.backup", "--data", "data", "--force"];
        let process = Process::start("skep", &command(folder.path(), &restore), "KILL");
        until("it is so far, or at its end", || {
            reached(moment) || process.wait_for(std::time::Duration::ZERO).is_some()
        });
        process.kill();
        let found = installation(&folder, "data");
        assert!(found == old || found == new, "{found}");
        seen.push(found == old);
        let left = names(&folder.join("data"));
        assert!(!left.iter().any(|name| name.starts_with("restore.")), "{left:?}");
    }
    assert!(seen[0], "killed at its beginning it has replaced nothing");
    let (code, said) = run_restore(&folder, "data");
    assert_eq!(code, 0, "{said}");
    let restored = serve(&folder, "data");
    assert_eq!(drained(&restored, "p").len(), 12 * 100);
}

fn run_restore(folder: &Folder, data: &str) -> (i32, String) {
    let (ended, said) = run(folder.path(), &["restore", "new.backup", "--data", data, "--force"]);
    (ended.code, said)
}

#[test]
fn what_is_wrong_with_a_backup_is_said_and_nothing_is_replaced() {
    let folder = Folder::new("restore");
    let node = serve(&folder, "data");
    assert!(push(&node.url("/api/v1/push"), "p", 0..10));
    let ok = |arguments: &[&str]| {
        let (code, said) = verb(&folder, Some(&node), arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        said
    };
    ok(&["backup", "good"]);
    assert!(ok(&["backup", "--check", "good"]).contains("it is whole"));
    let bytes = std::fs::read(folder.join("good")).expect("reads");
    let piped = command(folder.path(), &["backup", "-"])
        .env("SKEP_URL", node.url(""))
        .output()
        .expect("runs");
    assert!(piped.status.success() && piped.stdout.starts_with(b"skep backup 1"));
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).expect("writes");
    };
    write("cut", &bytes[..bytes.len() / 2]);
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    write("flipped", &flipped);
    write("other", b"SQLite format 3\0 or something else that is no backup");
    write("empty", b"");
    let mut newer = bytes.clone();
    newer[12] = b'7';
    write("newer", &newer);
    // A database that a newer program has changed.
    let up = ["migrate", "up", "--data", "upgraded"];
    assert_eq!(run(folder.path(), &up).0.code, 0);
    let later = "INSERT INTO skep_migrations (part, number, name, checksum)
                 VALUES ('queues', 99, '0099_later', 'x')";
    let database = rusqlite::Connection::open(folder.join("upgraded/skep.db")).expect("opens");
    database.execute(later, []).expect("writes");
    drop(database);
    ok(&["backup", "upgraded.backup", "--data", "upgraded"]);

    let running = ["backup", "x", "--data", "data"];
    for (arguments, code, words) in [
        (&["restore", "cut", "--data", "r"][..], 65, "cut: the backup is cut short after"),
        (&["restore", "flipped", "--data", "r"], 65, "flipped: the backup is damaged"),
        (&["restore", "other", "--data", "r"], 65, "other: this is not a backup of skep"),
        (&["restore", "empty", "--data", "r"], 65, "empty: the backup is cut short after 0"),
        (&["restore", "newer", "--data", "r"], 78, "has format 7, this skep"),
        (&["restore", "upgraded.backup", "--data", "r"], 78, "queues schema 99"),
        (&["restore", "missing", "--data", "r"], 64, "missing cannot be read"),
        (&["backup", "--check", "flipped"], 65, "flipped: the backup is damaged"),
        (&["backup", "--check", "cut"], 65, "cut short"),
        (&["restore", "good", "--data", "data", "--force"], 75, "is in use by process"),
        (&running, 75, "is in use by process"),
        (&["restore", "good", "--data", "upgraded"], 64, "holds the data of a node; --force"),
        (&["backup", "good"], 64, "good is there already; --force"),
        (&["backup", "x", "--data", "nowhere"], 64, "there is no skep.db"),
        (&["backup", "no/where/x"], 74, "cannot be written"),
        (&["backup", "x", "--url", "http://127.0.0.1:1"], 69, "no node answers"),
    ] {
        let (found, said) = verb(&folder, Some(&node), arguments);
        assert_eq!(found, code, "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!folder.join("x").exists() && !folder.join("r/skep.db").exists());
    assert_eq!(std::fs::read(folder.join("good")).expect("reads"), bytes);

    // It has every message, so it is for admins alone.
    let make = |name: &str, scope: &str, with: &[(&str, &str)]| {
        let body = json!({ "name": name, "scopes": [scope] }).to_string();
        let made = node.send("POST", "/api/v1/keys", with, Some(&body)).json();
        format!("Bearer {}", made["secret"].as_str().expect("a secret"))
    };
    let admin = make("admin", "admin", &[]);
    let reader = make("reader", "read", &[("authorization", &admin)]);
    let refused = node.send("POST", "/api/v1/backup", &[("authorization", &reader)], None);
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("E_SCOPE")));
    let (code, said) = verb(&folder, Some(&node), &["backup", "x"]);
    assert_eq!(code, 77, "{said}");
}
