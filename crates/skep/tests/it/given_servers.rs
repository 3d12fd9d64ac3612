//! `skep demo` and `skep soak` on servers that are there already: they use them, tell at once what
//! is wrong with them, and whatever becomes of them leave no process behind.

use crate::common::{command, run, until};
use serde_json::Value;
use skep_testkit::{Folder, Postgres, Process, Redis};
use std::collections::BTreeMap;
use std::time::Duration;

/// Far longer than it takes; what a busy machine needs is no failure.
const ENDS_WITHIN: Duration = Duration::from_secs(150);

/// A process: its id, and when it started, so that nobody is taken for it who has its id later.
type Known = (i32, String);

/// All processes of this machine, each with the one that started it.
fn processes() -> BTreeMap<Known, i32> {
    let folder = std::fs::read_dir("/proc").expect("there are processes");
    let read = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Its name may have spaces and brackets.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let is_gone = fields[0] == "Z";
        (!is_gone).then(|| ((pid, fields[19].to_owned()), fields[1].parse().unwrap_or(0)))
    };
    let number = |name: std::ffi::OsString| name.to_str()?.parse().ok();
    folder.flatten().filter_map(|file| number(file.file_name())).filter_map(read).collect()
}

/// Those that a process started, and those that these started.
fn descendants(pid: i32) -> Vec<Known> {
    let all = processes();
    let (mut found, mut parents) = (Vec::new(), vec![pid]);
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|(_, by)| **by == parent).map(|(known, _)| known);
        for child in children {
            parents.push(child.0);
            found.push(child.clone());
        }
    }
    found
}

/// Waits until none of them is there.
fn until_gone(those: &[Known]) {
    until("no process is left behind", || {
        let all = processes();
        !those.iter().any(|one| all.contains_key(one))
    });
}

#[test]
fn addresses_where_nobody_answers_or_lets_us_in_are_told_at_once_by_their_flag() {
    let folder = Folder::new("given");
    let (server, redis) = (Postgres::shared(), Redis::start_with_password("right"));
    let nobody = "postgres://skep:secret@127.0.0.1:1/skep";
    let elsewhere = format!("postgres://skep:secret@127.0.0.1:{}/there_is_none", server.port());
    let good = server.database();
    let good = good.url();
    let locked = redis.url().replace("right", "secret");
    for verb in ["demo", "soak"] {
        let with = |redis| ["--postgres", good.as_str(), "--redis", redis];
        for (flags, code, expected) in [
            (vec!["--postgres", nobody], 69, "--postgres: postgres at"),
            (vec!["--postgres", &elsewhere], 77, "there_is_none"),
            (with("redis://:secret@127.0.0.1:1").to_vec(), 69, "--redis: redis at"),
            (with(&locked).to_vec(), 77, "--redis: redis at"),
        ] {
            let arguments = [&[verb][..], &flags].concat();
            let (ended, log) = run(folder.path(), &arguments);
            assert_eq!(ended.code, code, "{arguments:?}: {log}");
            assert!(log.contains(expected), "{arguments:?}: {log}");
            assert!(!log.contains("secret"), "{arguments:?}: {log}");
        }
    }
}

#[test]
fn a_demo_of_three_processes_on_given_servers_holds_what_it_promises() {
    let folder = Folder::new("given-demo");
    let (database, redis) = (Postgres::shared().database(), Redis::start());
    let (postgres, redis) = (database.url(), redis.url());
    let servers = ["--postgres", &postgres, "--redis", &redis];
    let arguments = ["demo", "--listen", "127.0.0.1:0", "--for", "8s", "--every", "1s", "--json"];
    let arguments = [&arguments[..], &servers].concat();
    let demo = Process::start("skep demo", &command(folder.path(), &arguments), "KILL");
    demo.wait_for_line("#/demo");
    let nodes = descendants(demo.pid());
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    let ended = demo.wait_for(ENDS_WITHIN).unwrap_or_else(|| panic!("it ends: {}", demo.log()));
    let log = demo.log();
    let (from, to) = (log.find("{\n"), log.rfind('}'));
    let outcome = &log[from.expect("there is an answer")..=to.expect("it has an end")];
    let outcome: Value = serde_json::from_str(outcome).expect("it is JSON");
    assert_eq!((ended.code, &outcome["ok"]), (0, &Value::Bool(true)), "{outcome:#}");
    let events = outcome["events"].as_array().expect("a list");
    let killed = events.iter().find(|one| one["what"] == "kill").expect("one was killed");
    assert!(killed["outcome"].to_string().contains("took over"), "{killed:#}");
    until_gone(&nodes);

    // Once more it would be mixed with what is there.
    let (ended, log) =
        run(folder.path(), &[&["demo", "--listen", "127.0.0.1:0"], &servers[..]].concat());
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("already"), "{log}");
}

#[test]
fn nodes_of_a_demo_that_is_killed_end_by_themselves() {
    let folder = Folder::new("given-demo");
    let database = Postgres::shared().database();
    let arguments = ["demo", "--listen", "127.0.0.1:0", "--postgres", &database.url()];
    let demo = Process::start("skep demo", &command(folder.path(), &arguments), "KILL");
    demo.wait_for_line("#/demo");
    let nodes = descendants(demo.pid());
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    demo.kill();
    until_gone(&nodes);
}

#[test]
fn a_soak_on_given_servers_breaks_only_what_is_its_own_and_refuses_them_afterwards() {
    let folder = Folder::new("given-soak");
    let (database, redis) = (Postgres::shared().database(), Redis::start());
    let (postgres, redis) = (database.url(), redis.url());
    let servers = ["--postgres", &postgres, "--redis", &redis];
    let arguments = ["soak", "--for", "10s", "--every", "1s", "--load", "0.3", "--seed", "3"];
    let arguments = [&arguments[..], &servers, &["--json"]].concat();
    let soak = Process::start("skep soak", &command(folder.path(), &arguments), "KILL");
    let ended = soak.wait_for(ENDS_WITHIN).unwrap_or_else(|| panic!("it ends: {}", soak.log()));
    let log = soak.log();
    let lines: Vec<Value> = log.lines().filter_map(|one| serde_json::from_str(one).ok()).collect();
    let outcome = lines.last().expect("there is an answer");
    assert_eq!((ended.code, &outcome["ok"]), (0, &Value::Bool(true)), "{outcome:#}");
    let faults = lines.iter().filter(|line| line["event"] == "fault");
    let faults: Vec<&str> = faults.filter_map(|fault| fault["what"].as_str()).collect();
    assert!(faults.len() >= 3, "{faults:?}");
    let theirs = |fault: &&&str| fault.starts_with("redis-") || fault.starts_with("postgres-");
    assert_eq!(faults.iter().find(theirs), None, "{faults:?}");

    let (ended, log) = run(folder.path(), &["soak", "--postgres", &postgres]);
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("--postgres: the database has tables"), "{log}");
    let (ended, log) = run(folder.path(), &["soak", "--redis", &redis]);
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("--redis: the database has keys"), "{log}");
}

#[test]
fn nodes_and_servers_of_a_soak_that_is_killed_end_by_themselves() {
    let folder = Folder::new("given-soak");
    let database = Postgres::shared().database();
    let arguments = ["soak", "--for", "60s", "--postgres", &database.url()];
    let soak = Process::start("skep soak", &command(folder.path(), &arguments), "KILL");
    soak.wait_for_line("three nodes are ready");
    let those = descendants(soak.pid());
    assert!(those.len() >= 4, "three nodes and a Redis: {those:?}");
    soak.kill();
    until_gone(&those);
}
