//! Every example in the help runs, or it is said why it does not here.
//!
//! The pages are those of the program's own command line. Their examples run one after the other in
//! one shell, against a real node with a worker and a session, in an empty folder. Addresses and
//! files that examples name become those of the test. Each example is also read as the program
//! reads it, so that one that is not run is spelled rightly too.

mod pages;
mod ready;

use crate::common::skep;
use pages::{Page, commands, pages};
use ready::{ASKING, FIRST, INSTEAD, LAST, LEFT_OUT, PRELUDE, READY};
use serde_json::json;
use skep_testkit::{EchoWorker, Folder, Node, Process, WebSocket, programs};
use std::path::Path;
use std::time::Duration;

/// How long all of them may take. Nothing takes this long unless it hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Why an example is only read.
fn left_out(example: &str) -> Option<&'static str> {
    if ASKING.contains(&example) {
        return Some("asks on a terminal");
    }
    let line = format!("{example} ");
    LEFT_OUT.iter().find(|(part, _)| line.contains(part)).map(|(_, why)| *why)
}

#[test]
fn every_verb_has_examples_of_itself_that_are_spelled_rightly() {
    let mut command = skep::cli::command();
    for Page { verb, examples } in pages(&command.clone()) {
        assert!(!examples.is_empty(), "skep {verb}: its help has no examples");
        let shows = format!("skep {verb}");
        let shown = |example: &String| verb.is_empty() || example.contains(shows.trim());
        assert!(examples.iter().any(shown), "skep {verb}: none of its examples is of itself");
        for example in &examples {
            let found = commands(example);
            assert!(!found.is_empty(), "skep {verb}: {example:?} runs nothing of ours");
            for words in found {
                let read = command.try_get_matches_from_mut(&words);
                assert!(read.is_ok(), "skep {verb}: {example}\n{}", read.expect_err("is wrong"));
            }
        }
    }
}

#[test]
fn what_is_not_run_is_little_and_is_there() {
    let all: Vec<String> =
        pages(&skep::cli::command()).into_iter().flat_map(|page| page.examples).collect();
    let skipped = all.iter().filter(|example| left_out(example).is_some()).count();
    println!("{} examples are run, {skipped} are read", all.len() - skipped);
    assert!(all.len() > 3 * skipped, "{skipped} of {} examples are not run", all.len());
    for part in LEFT_OUT.iter().map(|(part, _)| part).chain(ASKING) {
        let there = all.iter().any(|example| format!("{example} ").contains(part));
        assert!(there, "no example has {part:?}");
    }
}

#[test]
fn every_example_in_the_help_runs() {
    let folder = Folder::new("cli-examples");
    let more = ["--set", "sessions.heartbeat_timeout=10m", "--set", "node.name=web-1"];
    let node = Node::start(skep(), &folder.join("data"), &more);
    let made = json!({ "name": "admin", "scopes": ["admin"] }).to_string();
    let made = node.send("POST", "/api/v1/keys", &[], Some(&made)).json();
    let key = made["secret"].as_str().expect("a secret").to_owned();
    let bearer = format!("Bearer {key}");
    let echo = EchoWorker::start();
    for name in ["browser-1", "browser-2"] {
        let worker = json!({
            "name": name, "kind": "chromium", "url": echo.url(), "slots": 5, "start": name,
            "labels": ["eu", "gpu"], "version": "1.62.1",
        });
        let headers = [("authorization", bearer.as_str())];
        let path = "/api/v1/sessions/workers";
        let answer = node.send("POST", path, &headers, Some(&worker.to_string()));
        assert!(answer.status < 300, "{}", answer.body);
    }
    let headers = [("Authorization", bearer.as_str())];
    let client = WebSocket::connect(node.gateway(), "/?kind=chromium", &headers);
    let session = client.session().expect("it has a session");

    std::fs::write(folder.join("all.sh"), script()).expect("writes");
    std::fs::write(folder.join("skep.toml"), "[log]\nlevel = \"info\"\n").expect("writes");
    let process = start(folder.path(), &node, &key, &session);
    let ended = process.wait_for(LIMIT).map(|ended| ended.code);
    let log = process.log();
    assert_eq!(ended, Some(0), "{log}");
    assert!(!log.contains("@failed"), "{log}");
    assert!(log.contains("@done"), "{log}");
    drop(client);
}

/// All examples as one script.
fn script() -> String {
    let mut pages = pages(&skep::cli::command());
    pages.sort_by_key(|page| {
        let first = FIRST.iter().position(|verb| page.verb == *verb);
        let word = page.verb.split(' ').next_back();
        let last = LAST.iter().position(|last| Some(*last) == word);
        (last.map_or(0, |place| place + 1), first.unwrap_or(FIRST.len()))
    });
    let mut script = PRELUDE.to_owned();
    for Page { verb, examples } in pages {
        script.push_str(&format!("place='skep {verb}'\n"));
        let before = READY.iter().find(|(page, _)| *page == verb).map(|(_, before)| *before);
        for example in examples.iter().filter(|example| left_out(example).is_none()) {
            let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
            if let Some(before) = before {
                script.push_str(&format!("ready {} {}\n", quoted(example), quoted(before)));
            }
            let here =
                INSTEAD.iter().fold(example.clone(), |text, (from, to)| text.replace(from, to));
            script.push_str(&format!("try {}\n", quoted(&here)));
        }
    }
    script.push_str("echo @done\n");
    script
}

fn start(folder: &Path, node: &Node, key: &str, session: &str) -> Process {
    let mut command = Node::command(&programs::require("bash"));
    command.arg("all.sh").current_dir(folder);
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let ours = skep().parent().expect("it is in a folder").to_path_buf();
    let path = std::env::join_paths([ours].into_iter().chain(std::env::split_paths(&usual)));
    command.env("PATH", path.expect("folders without colons")).env("HOME", folder);
    command.env("SKEP_URL", node.url("")).env("SKEP_API_KEY", key).env("SESSION", session);
    command.env("SKEP_API__LISTEN", "127.0.0.1:0");
    Process::start("examples", &command, "TERM")
}
