//! `skep push`, `skep pop`, `skep ack` and `skep queues`, as their users meet them.

use crate::common::{command, run, skep};
use serde_json::Value;
use skep_testkit::{Folder, Node, free_port};
use std::io::Write;
use std::process::{Output, Stdio};

/// A node, and verbs against it.
pub struct Place {
    pub folder: Folder,
    pub node: Node,
}

impl Place {
    pub fn new() -> Self {
        Place::with(&[])
    }

    /// The same, with further arguments of the node.
    pub fn with(arguments: &[&str]) -> Self {
        let folder = Folder::new("cli-queues");
        let node = Node::start(skep(), &folder.join("data"), arguments);
        Place { folder, node }
    }

    /// Runs a verb with `input`, with the node's address in the environment.
    pub fn feed(&self, arguments: &[&str], input: &str) -> Said {
        let mut command = command(self.folder.path(), arguments);
        command.env("SKEP_URL", self.node.url(""));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut stdin = child.stdin.take().expect("it has an input");
        // A verb that refuses its arguments does not read.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        Said::of(&child.wait_with_output().expect("ends"))
    }

    pub fn skep(&self, arguments: &[&str]) -> Said {
        self.feed(arguments, "")
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let said = self.skep(&[arguments, &["--json"]].concat());
        let read = serde_json::from_str(&said.text);
        read.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said:?}"))
    }

    /// Runs a command line as a shell would.
    pub fn shell(&self, line: &str) -> Said {
        let line = line.trim().replacen("skep", &format!("'{}'", skep().display()), 1);
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &line]).current_dir(self.folder.path());
        shell.env("SKEP_URL", self.node.url("")).stdin(Stdio::null());
        Said::of(&shell.output().expect("starts"))
    }
}

/// How a verb ended, and what it said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub text: String,
    pub beside: String,
}

impl Said {
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said {
            code: output.status.code(),
            text: text(&output.stdout),
            beside: text(&output.stderr),
        }
    }

    /// The commands that acknowledge what was popped.
    fn hints(&self) -> Vec<&str> {
        self.beside.lines().filter(|line| line.trim().starts_with("skep ack")).collect()
    }
}

#[test]
fn a_message_is_pushed_popped_and_acknowledged_with_the_command_that_pop_prints() {
    let place = Place::new();
    let pushed = place.skep(&["push", "orders", r#"{"id": 1.0}"#, "--transaction-id", "it's 17"]);
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    assert!(pushed.text.starts_with("queued ") && pushed.text.contains("it's 17"), "{pushed:?}");
    let again = place.skep(&["push", "orders", r#"{"id": 1.0}"#, "--transaction-id", "it's 17"]);
    assert_eq!(again.code, Some(0), "a duplicate is no error: {again:?}");
    assert!(again.text.starts_with("duplicate "), "{again:?}");

    let popped = place.skep(&["pop", "orders", "--group", "my group"]);
    assert_eq!(popped.code, Some(0), "{popped:?}");
    assert!(popped.text.contains(r#"{"id": 1.0}"#), "it is as it was pushed: {popped:?}");
    let held = place.skep(&["pop", "orders", "--group", "my group"]);
    assert_eq!((held.code, held.text.trim()), (Some(1), "no message"), "it is leased");

    let [hint] = popped.hints()[..] else { panic!("one command: {popped:?}") };
    let acked = place.shell(hint);
    assert_eq!(acked.code, Some(0), "{acked:?}");
    assert!(acked.text.contains("it's 17 in partition Default of orders is done"), "{acked:?}");
    let acked = place.shell(hint);
    assert!(acked.code == Some(0) && acked.text.contains("settled before"), "{acked:?}");
    assert_eq!(place.skep(&["pop", "orders", "--group", "my group"]).code, Some(1));
    let other = place.skep(&["pop", "orders", "--payload-only"]);
    assert_eq!(other.text, "{\"id\": 1.0}\n", "another group has it for itself");
}

#[test]
fn a_refused_acknowledgement_ends_with_1_and_its_reason() {
    let place = Place::new();
    place.skep(&["push", "orders", "1", "--transaction-id", "t-1"]);
    let popped = place.json(&["pop", "orders"]);
    let partition = popped["messages"][0]["partitionId"].as_str().expect("it has one");
    let stranger = "00000000-0000-7000-8000-000000000000";
    let refused = place.skep(&["ack", partition, "t-1", "--lease", stranger]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.beside.contains("Invalid or expired lease"), "{refused:?}");
    let unfenced = place.skep(&["ack", partition, "t-1"]);
    assert_eq!(unfenced.code, Some(1), "somebody holds it: {unfenced:?}");

    let lease = popped["messages"][0]["leaseId"].as_str().expect("it has one");
    let unknown = place.skep(&["ack", partition, "t-2", "--lease", lease]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    let dead = ["ack", partition, "t-1", "--lease", lease, "--status", "dlq", "--error", "why"];
    let dead = place.skep(&dead);
    assert!(dead.code == Some(0) && dead.text.contains("is a dead letter"), "{dead:?}");
    let shown = place.skep(&["queues", "show", "orders"]);
    assert!(shown.text.contains("1 dead letter\n"), "{shown:?}");
}

#[test]
fn lines_are_pushed_in_order_and_a_second_run_pushes_nothing_twice() {
    let place = Place::new();
    let text: String = (1..=250).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    let flags = ["push", "orders", "--lines", "--batch", "60", "--transaction-id", "load"];
    let first = place.feed(&flags, &text);
    assert_eq!((first.code, first.text.trim()), (Some(0), "250 queued"), "{first:?}");
    let second = place.feed(&flags, &format!("{text}{{\"n\":251}}\n"));
    assert_eq!(second.text.trim(), "1 queued, 250 pushed before", "{second:?}");

    let popped = place.skep(&["pop", "orders", "--batch", "1000", "--ack", "--payload-only"]);
    assert_eq!(popped.code, Some(0), "{popped:?}");
    let all: String = (1..=251).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    assert_eq!(popped.text, all);
    assert!(popped.hints().is_empty(), "there is nothing left to acknowledge");
    let empty = place.skep(&["pop", "orders", "--json"]);
    assert_eq!((empty.code, empty.text.trim()), (Some(1), "{\"messages\":[]}"));
}

#[test]
fn a_wrong_line_says_from_where_to_go_on() {
    let place = Place::new();
    let wrong = place.feed(&["push", "q", "--lines", "--batch", "2"], "1\n2\n3\nfour\n5\n");
    assert_eq!(wrong.code, Some(64), "{wrong:?}");
    assert!(wrong.beside.contains("line 4 is no JSON"), "{wrong:?}");
    assert!(wrong.beside.contains("from line 3"), "{wrong:?}");
    let popped = place.skep(&["pop", "q", "--batch", "10", "--payload-only", "--ack"]);
    assert_eq!(popped.text, "1\n2\n");
}

#[test]
fn text_is_refused_with_a_hint_and_pushed_with_a_flag() {
    let place = Place::new();
    let refused = place.skep(&["push", "notes", "call back"]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.beside.contains("--text"), "{refused:?}");
    assert_eq!(place.skep(&["push", "notes", "call back", "--text"]).code, Some(0));
    assert_eq!(place.feed(&["push", "notes", "--text"], "and \"again\"\n").code, Some(0));
    assert_eq!(place.feed(&["push", "notes", "-"], "\n null \n").code, Some(0));
    let popped = place.skep(&["pop", "notes", "--batch", "5", "--payload-only", "--ack"]);
    assert_eq!(popped.text, "\"call back\"\n\"and \\\"again\\\"\"\nnull\n");
}

#[test]
fn whoever_leaves_before_the_end_has_acknowledged_nothing() {
    let place = Place::new();
    // More than a pipe holds, so that the reader is missed.
    let text: String = (0..200).map(|number| format!("\"{number}{:1000}\"\n", "")).collect();
    assert_eq!(place.feed(&["push", "q", "--lines"], &text).code, Some(0));
    let pop = "set -o pipefail; skep pop q --batch 200 --payload-only --ack | head -c 1";
    let left = place.shell(pop);
    assert_eq!(left.code, Some(74), "{left:?}");
    assert!(left.beside.contains("nothing is acknowledged"), "{left:?}");
    assert_eq!(place.skep(&["pop", "q"]).code, Some(1), "it is still leased");
    let other = place.json(&["queues", "show", "q"]);
    assert!(other.to_string().contains("\"pending\":200"), "{other}");
}

#[test]
fn a_pop_waits_for_what_is_pushed_meanwhile() {
    let place = Place::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| place.skep(&["pop", "later", "--wait", "60", "--ack"]));
        let parked = || place.node.get("/metrics").body.contains("skep_queue_parked 1");
        crate::common::until("it waits", parked);
        assert_eq!(place.skep(&["push", "later", "7"]).code, Some(0));
        let popped = waiting.join().expect("ends");
        assert_eq!(popped.code, Some(0), "{popped:?}");
        assert!(popped.text.contains('7'), "{popped:?}");
    });
    let nothing = place.skep(&["pop", "later", "--wait", "1"]);
    assert_eq!((nothing.code, nothing.text.trim()), (Some(1), "no message"), "{nothing:?}");
}

#[test]
fn a_group_begins_where_it_is_told_to() {
    let place = Place::new();
    place.skep(&["push", "q", "1"]);
    assert_eq!(place.skep(&["pop", "q", "--group", "late", "--from", "new"]).code, Some(1));
    let future = ["pop", "q", "--group", "future", "--from", "2999-01-01T00:00:00Z"];
    assert_eq!(place.skep(&future).code, Some(1));
    assert_eq!(place.skep(&["pop", "q", "--group", "all", "--from", "all"]).code, Some(0));
    place.skep(&["push", "q", "2"]);
    let late = place.skep(&["pop", "q", "--group", "late", "--batch", "9", "--payload-only"]);
    assert_eq!(late.text, "2\n");
}

#[test]
fn queues_are_listed_and_shown_with_what_waits() {
    let place = Place::new();
    let none = place.skep(&["queues", "ls"]);
    assert!(none.code == Some(0) && none.text.contains("skep push"), "{none:?}");
    for (queue, partition) in [("shop.orders", "a"), ("shop.orders", "b c"), ("x", "Default")] {
        place.skep(&["push", queue, "{}", "--partition", partition]);
    }
    let all = place.skep(&["queues", "ls"]);
    assert!(all.text.contains("shop.orders") && all.text.contains("PENDING"), "{all:?}");
    let one = place.skep(&["queues", "ls", "--limit", "1"]);
    assert!(one.text.contains("--after shop.orders"), "{one:?}");
    let rest = place.json(&["queues", "ls", "--after", "shop.orders"]);
    assert_eq!(rest["queues"].as_array().map(Vec::len), Some(1));

    place.skep(&["pop", "shop.orders", "--group", "audit", "--partitions", "2", "--batch", "2"]);
    let shown = place.skep(&["queues", "show", "shop.orders"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for part in ["namespace shop", "task orders", "leaseTime", "audit", "b c", "0 dead letters"] {
        assert!(shown.text.contains(part), "{part}: {shown:?}");
    }
    let some = place.skep(&["queues", "show", "shop.orders", "--partitions", "1"]);
    assert!(some.text.contains("and 1 more"), "{some:?}");
    let unknown = place.skep(&["queues", "show", "nothing"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.beside.contains("E_QUEUE_UNKNOWN"), "{unknown:?}");
}

#[test]
fn without_a_node_every_verb_says_so() {
    let folder = Folder::new("cli-queues");
    let url = format!("http://127.0.0.1:{}", free_port());
    for verb in [
        &["push", "q", "1"][..],
        &["pop", "q"],
        &["ack", "p", "t"],
        &["queues", "ls"],
        &["queues", "show", "q"],
    ] {
        let (ended, text) = run(folder.path(), &[verb, &["--url", &url]].concat());
        assert_eq!(ended.code, 69, "{verb:?}: {text}");
    }
}
