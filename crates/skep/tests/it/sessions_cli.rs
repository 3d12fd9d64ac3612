//! `skep worker`, `skep workers`, `skep sessions` and `skep capacity`, as their users meet them.

use crate::common::{command, run, skep, until};
use rustix::process::Signal;
use serde_json::Value;
use skep_testkit::{EchoWorker, Folder, Node, Process, WebSocket, free_port};

/// A node, and a program that says where this test's own worker listens.
struct Place {
    folder: Folder,
    node: Node,
    echo: EchoWorker,
}

impl Place {
    fn new(more: &[&str]) -> Self {
        let folder = Folder::new("sessions-cli");
        let node = Node::start(skep(), &folder.join("data"), more);
        Place { folder, node, echo: EchoWorker::start() }
    }

    /// Starts `skep worker` beside a program that lives until it is told to stop.
    fn worker(&self, name: &str, more: &[&str]) -> Process {
        let program = format!("echo listening on {}; exec sleep 600", self.echo.url());
        let flags = ["worker", "--kind", "echo", "--name", name];
        let arguments = [&flags[..], more, &["--", "sh", "-c", &program]].concat();
        let mut command = command(self.folder.path(), &arguments);
        command.env("SKEP_URL", self.node.url(""));
        let process = Process::start("worker", &command, "TERM");
        process.wait_for_line("registered as");
        process
    }

    /// Runs a verb against the node, whose address is in the environment.
    fn skep(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = command(self.folder.path(), arguments);
        command.env("SKEP_URL", self.node.url(""));
        let process = Process::start("skep", &command, "KILL");
        (process.wait().code, process.log())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (_, text) = self.skep(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    fn standing(&self, name: &str) -> String {
        let shown = self.json(&["workers", "show", name]);
        shown["worker"]["standing"].as_str().unwrap_or_default().to_owned()
    }

    fn connect(&self, query: &str) -> WebSocket {
        WebSocket::connect(self.node.gateway(), &format!("/?kind=echo{query}"), &[])
    }
}

#[test]
fn a_worker_registers_serves_drains_and_leaves_with_success() {
    let place = Place::new(&[]);
    let (code, text) = place.skep(&["capacity"]);
    assert_eq!(code, 0);
    assert!(text.contains("skep help worker"), "{text}");

    let worker = place.worker("e-1", &["--slots", "3", "--label", "eu", "--version", "1.62.1"]);
    let mut client = place.connect("&label=eu");
    assert_eq!(client.status(), 101, "{}", client.head());
    assert!(client.echoes("hello"));
    let id = client.session().expect("it has an id");

    let (code, text) = place.skep(&["workers"]);
    assert_eq!(code, 0);
    for part in ["e-1", "echo", "ready", "1/3", "1/50", "eu", "1.62"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(place.skep(&["workers", "ls"]).1.lines().count(), text.lines().count());
    let (_, text) = place.skep(&["workers", "show", "e-1"]);
    assert!(text.contains(&id) && text.contains("due from"), "{text}");
    let (_, text) = place.skep(&["sessions"]);
    assert!(text.contains(&id) && text.contains("open") && text.contains("e-1"), "{text}");
    let (_, text) = place.skep(&["sessions", "show", &id]);
    assert!(text.contains(&id) && text.contains("echo"), "{text}");
    let room = place.json(&["capacity"]);
    assert_eq!(
        (room["kinds"][0]["free"].as_u64(), room["kinds"][0]["slots"].as_u64()),
        (Some(2), Some(3))
    );
    let (_, text) = place.skep(&["capacity"]);
    assert!(text.contains("WANTED") && text.contains("LABEL"), "{text}");

    worker.signal(Signal::TERM);
    until("it gets no new sessions", || place.standing("e-1") == "drained");
    assert!(client.echoes("still here"), "its session goes on");
    drop(client);
    assert_eq!(worker.wait().code, 0, "{}", worker.log());
    let (code, text) = place.skep(&["workers"]);
    assert_eq!((code, text.trim()), (0, "no worker"));
    let (_, text) = place.skep(&["sessions"]);
    assert!(text.contains(&format!("ws://{}", place.node.gateway())), "{text}");
}

#[test]
fn a_second_signal_stops_a_worker_without_waiting_for_its_sessions() {
    let place = Place::new(&[]);
    let worker = place.worker("e-1", &[]);
    let mut client = place.connect("");
    assert!(client.echoes("hello"));
    worker.signal(Signal::INT);
    worker.wait_for_line("a second signal stops at once");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait().code, 1);
    assert!(worker.log().contains("SIGTERM a second time"), "{}", worker.log());
    client.wait_for_end();
}

#[test]
fn a_drained_worker_gets_no_new_sessions_and_a_removed_one_ends_its_supervisor() {
    let place = Place::new(&["--set", "sessions.wait_max=10ms"]);
    let worker = place.worker("e-1", &[]);
    let (code, text) = place.skep(&["workers", "drain", "e-1", "e-2", "e-3"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("e-1 gets no new sessions"), "{text}");
    assert!(text.contains("\"e-2\"") && text.contains("\"e-3\""), "each is named: {text}");
    let refused = place.connect("");
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.refusal()["code"], "E_WORKERS_BUSY");
    let (code, text) = place.skep(&["sessions", "explain", "--kind", "echo"]);
    assert_eq!(code, 1, "nobody is free, and the answer is no");
    assert!(text.contains("nobody-free") && text.contains("drained"), "{text}");

    assert_eq!(place.skep(&["workers", "undrain", "e-1"]).0, 0);
    let mut client = place.connect("");
    assert!(client.echoes("hello"));
    let (code, text) = place.skep(&["sessions", "explain", "--kind", "echo"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("would get e-1"), "{text}");

    assert_eq!(place.skep(&["workers", "remove", "e-1"]).0, 0);
    client.wait_for_end();
    assert_eq!(worker.wait().code, 0, "{}", worker.log());
    assert_eq!(place.standing("e-1"), "removed");
}

#[test]
fn a_session_is_ended_by_an_operator_and_then_unknown() {
    let place = Place::new(&[]);
    let worker = place.worker("e-1", &[]);
    let mut client = place.connect("");
    let id = client.session().expect("it has an id");
    let (code, text) = place.skep(&["sessions", "end", &id]);
    assert_eq!(code, 0, "{text}");
    client.wait_for_end();
    until("it is gone", || place.skep(&["sessions", "show", &id]).0 == 1);
    let (code, text) = place.skep(&["sessions", "end", &id]);
    assert_eq!(code, 1);
    assert!(text.contains("skep explain E_SESSION_UNKNOWN"), "{text}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait().code, 0, "{}", worker.log());
}

#[test]
fn lists_are_filtered_and_a_wrong_filter_says_what_would_be_right() {
    let place = Place::new(&[]);
    let _first = place.worker("e-1", &["--label", "eu"]);
    let _second = place.worker("e-2", &["--label", "us", "--label", "gpu"]);
    let names = |arguments: &[&str]| {
        let answer = place.json(&[&["workers", "ls"], arguments].concat());
        let workers = answer["workers"].as_array().cloned().unwrap_or_default();
        workers.iter().map(|one| one["name"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--label", "gpu"]), ["e-2"]);
    assert_eq!(names(&["--standing", "ready", "--kind", "echo"]), ["e-1", "e-2"]);
    assert!(names(&["--kind", "other"]).is_empty());
    assert_eq!(names(&["--limit", "1"]), ["e-1"]);
    let (_, text) = place.skep(&["workers", "--limit", "1"]);
    assert!(text.contains("the next with --after 1"), "{text}");
    assert_eq!(names(&["--from", "2"]), ["e-2"]);

    let (code, text) = place.skep(&["workers", "--standing", "tired"]);
    assert_eq!(code, 1);
    assert!(text.contains("tired") && text.contains("suspect"), "{text}");
    assert_eq!(place.skep(&["sessions", "--state", "lost"]).0, 64);
    let explained = place.json(&["sessions", "explain", "--kind", "echo", "--label", "us"]);
    assert_eq!(explained["chosen"], "e-2");
    assert_eq!(explained["reason"]["rejected"][0]["rule"], "does-not-fit");
}

#[test]
fn a_worker_whose_name_is_taken_by_another_ends_and_says_so() {
    let place = Place::new(&[]);
    let first = place.worker("e-1", &[]);
    let second = place.worker("e-1", &[]);
    assert_eq!(first.wait().code, 1);
    assert!(first.log().contains("give each worker its own with --name"), "{}", first.log());
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code, 0, "{}", second.log());
}

#[test]
fn a_worker_told_nonsense_names_every_flag_and_starts_nothing() {
    let folder = Folder::new("sessions-cli");
    let said = |arguments: &[&str]| {
        let (ended, text) = run(folder.path(), &[&["worker"], arguments].concat());
        assert_eq!(ended.code, 64, "{text}");
        text
    };
    let text = said(&[
        "--kind",
        "a b",
        "--slots",
        "0",
        "--server",
        "skep-1",
        "--label",
        "",
        "--successor",
        "--url",
        "ws://127.0.0.1:9000/",
        "--",
        "no-such-program",
    ]);
    for part in [
        "--kind: \"a b\"",
        "--slots: \"0\"",
        "--server: \"skep-1\"",
        "--label: \"\"",
        "--url: \"ws://127.0.0.1:9000/\"",
        "{port}",
        "the program: \"no-such-program\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = said(&["--kind", "x", "--memory-max", "4", "--", "true"]);
    assert!(text.contains("--memory-max") && text.contains("64MiB"), "{text}");
    let text = said(&["--kind", "x", "--age-max", "soon", "--", "true"]);
    assert!(text.contains("--age-max") && text.contains("1h30m"), "{text}");
    assert!(said(&["--kind", "x"]).contains("PROGRAM"));
    assert!(said(&["--", "true"]).contains("--kind"));
    said(&["--kind", "x", "--url-from-stdout", "--url", "ws://h:1/", "--", "true"]);
}

#[test]
fn a_worker_outlasts_a_node_that_is_not_there_yet_and_the_other_verbs_say_so() {
    let folder = Folder::new("sessions-cli");
    let echo = EchoWorker::start();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    for verb in [&["workers"][..], &["sessions"], &["capacity"], &["sessions", "explain"]] {
        let (ended, text) = run(folder.path(), &[verb, &["--url", &url]].concat());
        assert_eq!(ended.code, 69, "{text}");
    }
    let program = format!("echo {}; exec sleep 600", echo.url());
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let arguments = [
        "worker", "--kind", "echo", "--server", &nobody, "--server", &url, "--", "sh", "-c",
        &program,
    ];
    let worker = Process::start("worker", &command(folder.path(), &arguments), "TERM");
    worker.wait_for_line("no node answers at");
    let listen = format!("127.0.0.1:{port}");
    let node = Node::start(skep(), &folder.join("data"), &["--listen", &listen]);
    worker.wait_for_line("registered as w1");
    let mut client = WebSocket::connect(node.gateway(), "/?kind=echo", &[]);
    assert!(client.echoes("hello"));
}
