//! Two minutes of everything at once under faults, and how `skep soak` is asked for.

use crate::common::{run, skep};
use skep_chaos::soak::{Given, Kind, Options, pace, run as soak};
use skep_testkit::Folder;
use std::collections::HashSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Of a seed whose first round has every kind of fault within the time.
const SEED: u64 = 12;

#[test]
fn whatever_breaks_for_two_minutes_every_promise_holds() {
    let options = Options {
        skep: skep().to_path_buf(),
        span: Duration::from_secs(110),
        every: Duration::from_secs(4),
        kinds: Kind::ALL.to_vec(),
        pace: pace(SEED),
        given: Given::default(),
        settings: Vec::new(),
        keep: false,
    };
    let stop = CancellationToken::new();
    let outcome = soak(&options, &stop, &mut |told| println!("{told:?}"));
    let outcome = outcome.expect("the servers are installed");
    for row in &outcome.rows {
        println!("{}: {}", row.part, row.done);
    }
    let (failures, folder) = (&outcome.failures, &outcome.folder);
    assert!(failures.is_empty(), "seed {SEED}: {failures:#?}\nthe logs are in {folder:?}");

    // A check that saw nothing would have found nothing. How much there is depends on the machine.
    let parts: Vec<&str> = outcome.rows.iter().map(|row| row.part).collect();
    let expected =
        ["queues", "sessions", "polls", "monitors", "tasks", "routes", "nodes", "memory", "files"];
    for part in expected {
        assert!(parts.contains(&part), "{part}: {parts:?}");
    }
    let kinds: HashSet<&str> =
        outcome.faults.iter().filter_map(|fault| fault.what.split([' ', ',']).next()).collect();
    assert!(kinds.len() >= 8, "{kinds:?}");
    assert!(outcome.faults.iter().all(|fault| fault.healed.is_some()), "{:?}", outcome.faults);
    let seen = outcome.progress;
    for (what, count) in [
        ("pushed", seen.pushed),
        ("consumed", seen.consumed),
        ("sessions", seen.sessions),
        ("polls", seen.polls),
        ("samples", seen.samples),
        ("tasks", seen.tasks),
        ("requests", seen.requests),
    ] {
        assert!(count > 100, "{what}: {seen:?}");
    }
    assert!(outcome.memory_thirds.is_some(), "one node lives for long enough to be compared");
}

#[test]
fn faults_and_settings_that_there_are_not_are_refused_before_anything_starts() {
    let folder = Folder::new("soak-usage");
    for (arguments, expected) in [
        (&["soak", "--faults", "earthquake"][..], "cut-peers"),
        (&["soak", "--for", "1s"][..], "10s is the shortest"),
        (&["soak", "--load", "0"][..], "from 0.1 to 100"),
        (&["soak", "--faults", "kill", "--except", "kill"][..], "leaves no fault"),
        (&["soak", "--redis", "rediss://127.0.0.1"][..], "over TLS"),
        (&["soak", "--set", "queues.bufer=true"][..], "queues.buffer"),
    ] {
        let (ended, log) = run(folder.path(), arguments);
        assert_eq!(ended.code, 64, "{arguments:?}: {log}");
        assert!(log.contains(expected), "{arguments:?}: {log}");
    }
}
