//! `skep top`: once against real nodes, and in a terminal.

use crate::cli_queues::Place;
use crate::common::skep;
use serde_json::Value;
use skep_testkit::{eventually, free_port, programs};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

#[test]
fn once_it_prints_every_section_and_names_what_does_not_answer() {
    let place = Place::with(&["--set", "node.name=web-1"]);
    let nobody = format!("http://127.0.0.1:{}", free_port());
    place.skep(&["push", "orders", "1"]);
    let add = ["polls", "add", "away", "--tcp", &nobody["http://".len()..], "--interval", "1s"];
    assert_eq!(place.skep(&add).code, Some(0));
    let failing = || {
        let seen = place.json(&["top", "--once"]);
        let row = seen["sections"]["polls"]["rows"][0].clone();
        (row["failures"].as_u64() > Some(0)).then_some((seen, row))
    };
    let (seen, row) = eventually("the endpoint fails", failing);
    assert_eq!((row["endpoint"].as_str(), row["owner"].as_str()), (Some("away"), Some("web-1")));
    assert_eq!(place.skep(&["explain", row["explain"].as_str().expect("an id")]).code, Some(0));
    let names: Vec<&str> =
        seen["sections"].as_object().expect("sections").keys().map(String::as_str).collect();
    assert_eq!(names, ["cluster", "monitors", "polls", "pools", "queues", "sessions"]);
    assert_eq!(seen["sections"]["pools"]["rows"].as_array().map(Vec::len), Some(5));
    for section in ["cluster", "pools", "queues"] {
        let id = &seen["sections"][section]["rows"][0]["explain"];
        let said = place.skep(&["explain", id.as_str().expect("an id")]);
        assert_eq!(said.code, Some(0), "{section}: {said:?}");
    }

    // Where there is no terminal it is printed once, without colours.
    let said = place.skep(&["top"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.text.contains('\u{1b}'), "{:?}", said.text);
    for part in ["1 node", "5 POLLS", "1 failing", "orders"] {
        assert!(said.text.contains(part), "{part}: {}", said.text);
    }
    let both = place.skep(&["top", "--url", &nobody, "--url", &place.node.url("")]);
    assert_eq!(both.code, Some(0), "{both:?}");
    assert!(both.text.contains(&format!("no answer from {nobody}")), "{}", both.text);
    let none = place.skep(&["top", "--once", "--url", &nobody]);
    assert_eq!(none.code, Some(69), "{none:?}");
}

/// `skep top` in a terminal of its own, whose settings are compared afterwards.
struct Terminal {
    child: Child,
    shown: PathBuf,
}

impl Terminal {
    fn start(place: &Place, name: &str, top: &str) -> Self {
        let shown = place.folder.join(&format!("{name}.shown"));
        let line = format!(
            "stty -a > {name}.before; {top}; code=$?; stty -a > {name}.after; \
             cmp {name}.before {name}.after && exit $code"
        );
        let mut script = Command::new(programs::require("script"));
        script.args(["-qfec", &line]).arg(&shown).current_dir(place.folder.path());
        script.env("PATH", path()).env("SKEP_URL", place.node.url("")).env("TERM", "xterm");
        script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Terminal { child: script.spawn().expect("starts"), shown }
    }

    fn shown(&self) -> String {
        let bytes = std::fs::read(&self.shown).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?} is shown"), || self.shown().contains(text).then_some(()));
    }

    fn press(&mut self, keys: &str) {
        let input = self.child.stdin.as_mut().expect("it has an input");
        input.write_all(keys.as_bytes()).expect("writes");
        input.flush().expect("writes");
    }

    /// Waits for its end: with success, and the terminal as it was.
    fn ends_well(mut self) {
        let ended = eventually("it ends", || self.child.try_wait().expect("is asked"));
        let shown = self.shown();
        assert!(ended.success(), "{ended}: {shown:?}");
        let (_, after) = shown.rsplit_once("\u{1b}[?1049l").expect("the screen is given back");
        assert!(!after.contains("POOLS"), "{after:?}");
        assert!(shown.contains("\u{1b}[?25h"), "the cursor is given back");
    }
}

fn path() -> std::ffi::OsString {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let ours = skep().parent().expect("it is in a folder").to_path_buf();
    let all = [ours].into_iter().chain(std::env::split_paths(&usual));
    std::env::join_paths(all).expect("folders without colons")
}

#[test]
fn a_terminal_shows_it_follows_keys_and_is_given_back_as_it_was() {
    let place = Place::with(&["--set", "node.name=web-1"]);
    let mut terminal = Terminal::start(&place, "keys", "NO_COLOR=1 skep top");
    terminal.wait_for(">1 CLUSTER");
    terminal.press("\t");
    terminal.wait_for(">2 POOLS");
    terminal.wait_for("why: skep explain pool:web-1/");
    terminal.press("?");
    terminal.wait_for("choose a section");
    terminal.press("x/lo");
    terminal.wait_for("/lo_");
    terminal.press("\r");
    terminal.wait_for("> low");
    assert!(!terminal.shown().contains("\u{1b}[33m"), "there are no colours");
    terminal.press("q");
    terminal.ends_well();

    let mut interrupted = Terminal::start(&place, "interrupt", "skep top");
    interrupted.wait_for(">1 CLUSTER");
    interrupted.press("\u{3}");
    interrupted.ends_well();

    let stopping = "timeout --foreground --preserve-status -s TERM 1 skep top";
    let stopped = Terminal::start(&place, "stop", stopping);
    stopped.wait_for("1 CLUSTER");
    stopped.ends_well();
}

#[test]
fn one_node_of_several_names_the_others() {
    let database = skep_testkit::Postgres::shared().database();
    let url = database.url();
    let shared = ["--database", url.as_str(), "--set", "cluster.listen=127.0.0.1:0"];
    let first = Place::with(&[&shared[..], &["--set", "node.name=web-1"]].concat());
    let _second = Place::with(&[&shared[..], &["--set", "node.name=web-2"]].concat());
    let names = |seen: &Value| {
        let nodes = seen["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().map(|one| one["name"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    let seen = eventually("both are seen", || {
        let seen = first.json(&["top", "--once"]);
        (names(&seen) == ["web-1", "web-2"]).then_some(seen)
    });
    assert_eq!(seen["sections"]["pools"]["rows"].as_array().map(Vec::len), Some(10));
    assert_eq!(seen["sections"]["cluster"]["rows"].as_array().map(Vec::len), Some(2));
    let id = "pool:web-2/critical";
    assert_eq!(first.json(&["explain", id])["by"], "node web-2");
}
