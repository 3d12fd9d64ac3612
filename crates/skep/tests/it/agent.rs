//! `skep agent` as a process: real targets, and a node that the test controls.

mod peer;

use crate::common::{command, run, skep, until};
use peer::{Mood, Peer, server};
use rustix::process::Signal;
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, NtpManner, NtpServer, Process, Receiver, free_port, pause};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::{Duration, Instant};

fn start(folder: &Folder, peer: &Peer, more: &[&str]) -> Process {
    let url = peer.url();
    let mut arguments = vec!["agent", "--server", &url, "--report-interval", "1s"];
    arguments.extend(more);
    Process::start("agent", &command(folder.path(), &arguments), "KILL")
}

fn times(results: &[Value]) -> BTreeSet<i64> {
    results.iter().filter_map(|one| one["at"].as_i64()).collect()
}

#[test]
fn an_agent_measures_what_it_is_assigned_and_reports_what_it_found() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    clock.set(NtpManner { offset: 2.0, ..NtpManner::default() });
    let (good, bad) = (Receiver::start(0, &[204]), Receiver::start(0, &[500]));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let open = listener.local_addr().expect("bound").to_string();
    let closed = format!("127.0.0.1:{}", free_port());
    let mut picky = server("picky", "http", &good.url(), 1_000);
    picky["probe"]["expect_status"] = 200.into();
    let peer = Peer::start(vec![
        server("clock", "ntp", &clock.address(), 1_000),
        server("good", "http", &good.url(), 1_000),
        server("bad", "http", &bad.url(), 1_000),
        picky,
        server("open", "tcp", &open, 1_000),
        server("closed", "tcp", &closed, 1_000),
        server("unknown", "smoke", "signals", 1_000),
    ]);
    let agent = start(&folder, &peer, &["--key", "skep_secret", "--monitor", "m1"]);
    for id in ["clock", "good", "bad", "picky", "open", "closed"] {
        until(id, || peer.results(id).len() >= 2);
    }
    let one = |id: &str| peer.results(id)[0].clone();
    let clock = one("clock");
    let offset = clock["offset_ms"].as_f64().expect("an offset");
    assert!((1_500.0..2_500.0).contains(&offset), "{clock}");
    assert!(clock["rtt_ms"].as_f64().is_some_and(|rtt| rtt >= 0.0), "{clock}");
    assert_eq!(clock["error"], Value::Null);
    let good = one("good");
    assert!(good["rtt_ms"].as_f64().is_some_and(|rtt| rtt > 0.0), "{good}");
    assert_eq!((&good["offset_ms"], &good["error"]), (&Value::Null, &Value::Null));
    assert_eq!(one("bad")["error"], "wrong: the status is 500, not 200-399");
    assert_eq!(one("picky")["error"], "wrong: the status is 204, not 200");
    assert_eq!(one("open")["error"], Value::Null);
    assert_eq!(one("closed")["error"], "refused");
    assert!(agent.wait_for_line("cannot be measured").contains("unknown"));
    until("unchanged assignments are not sent again", || peer.state().unchanged >= 1);
    let state = peer.state();
    assert_eq!(state.last_headers["authorization"], "Bearer skep_secret");
    assert!(state.last_path.ends_with("?monitor=m1"), "{}", state.last_path);
    assert!(state.agent.starts_with("skep "), "{}", state.agent);
    assert!(!agent.log().contains("skep_secret"));
}

#[test]
fn results_wait_for_a_node_that_is_away_and_none_is_lost_or_counted_twice() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    let peer = Peer::start(vec![server("clock", "ntp", &clock.address(), 100)]);
    let agent = start(&folder, &peer, &[]);
    until("the first results", || peer.results("clock").len() >= 3);
    peer.set(Mood::Away);
    agent.wait_for_line("results wait");
    let before = (peer.results("clock").len(), clock.asked());
    until("it goes on measuring", || clock.asked() > before.1 + 10);
    assert_eq!(peer.results("clock").len(), before.0);
    peer.set(Mood::Well);
    agent.wait_for_line("results are taken again");
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code, 0);
    let (found, asked) = (peer.results("clock"), clock.asked() as usize);
    assert_eq!(times(&found).len(), found.len());
    // One may have been under way at the end.
    assert!((asked - 1..=asked).contains(&found.len()), "{} of {asked}", found.len());
    assert!(agent.log().contains("everything is reported"), "{}", agent.log());
}

#[test]
fn a_batch_whose_answer_was_lost_is_sent_again() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    let peer = Peer::start(vec![server("clock", "ntp", &clock.address(), 200)]);
    peer.state().taking = Mood::Mute;
    let agent = start(&folder, &peer, &[]);
    until("a batch arrives twice", || {
        let state = peer.state();
        state.arrived.len() > state.taken.len()
    });
    peer.state().taking = Mood::Well;
    agent.wait_for_line("results are taken again");
    let found = peer.results("clock");
    assert_eq!(times(&found).len(), found.len());
}

#[test]
fn the_next_node_is_asked_when_one_is_away() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    let list = || vec![server("clock", "ntp", &clock.address(), 200)];
    let (first, second) = (Peer::start(list()), Peer::start(list()));
    let agent = start(&folder, &first, &["--server", &second.url()]);
    until("the first has results", || !first.results("clock").is_empty());
    first.set(Mood::Away);
    until("the second has results", || second.results("clock").len() >= 3);
    second.set(Mood::Away);
    first.set(Mood::Well);
    let before = first.results("clock").len();
    until("the first has results again", || first.results("clock").len() > before);
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code, 0);
}

#[test]
fn results_in_a_file_survive_a_kill_and_half_a_line() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    let peer = Peer::start(vec![server("clock", "ntp", &clock.address(), 100)]);
    peer.state().taking = Mood::Away;
    let file = folder.path().join("results");
    let flags = ["--buffer", file.to_str().expect("a name")];
    let agent = start(&folder, &peer, &flags);
    let lines = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    until("some are in the file", || lines().len() >= 5);
    let (ended, second) = run(folder.path(), &["agent", "--buffer", flags[1]]);
    assert_eq!(ended.code, 75, "{second}");
    assert!(second.contains("another agent"), "{second}");
    agent.kill();
    let kept: BTreeSet<i64> = lines()
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["at"].as_i64())
        .collect();
    assert!(kept.len() >= 5);
    let mut torn = std::fs::read(&file).expect("reads");
    torn.extend(b"{\"n\":999,\"server\":\"clo");
    std::fs::write(&file, torn).expect("writes");
    peer.state().taking = Mood::Well;
    let agent = start(&folder, &peer, &flags);
    agent.wait_for_line("results that no node has yet");
    until("all of them arrive", || times(&peer.results("clock")).is_superset(&kept));
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code, 0);
    // And what is reported is not there again.
    let count = peer.state().arrived.len();
    peer.assign(Vec::new());
    let agent = start(&folder, &peer, &flags);
    agent.wait_for_line("assigned");
    agent.signal(Signal::TERM);
    agent.wait_for_line("everything is reported");
    assert_eq!(peer.state().arrived.len(), count);
}

#[test]
fn the_oldest_results_go_when_there_are_too_many_and_it_says_so() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    let peer = Peer::start(vec![server("clock", "ntp", &clock.address(), 50)]);
    peer.state().taking = Mood::Refusing(503, "busy");
    let agent = start(&folder, &peer, &["--buffer-max", "5"]);
    agent.wait_for_line("the oldest are gone");
    let asked = clock.asked();
    until("more are measured", || clock.asked() > asked + 20);
    let first = *times(&peer.state().arrived).first().expect("it was tried");
    peer.state().taking = Mood::Well;
    until("some are taken", || !peer.results("clock").is_empty());
    assert!(*times(&peer.results("clock")).first().expect("some") > first, "it is too old");
    let most = peer.state().batches.iter().copied().max();
    assert!(most.is_some_and(|most| most <= 6), "{most:?}: five wait, one may come meanwhile");
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code, 0);
}

#[test]
fn what_a_node_will_never_take_is_given_up_and_the_rest_goes_on() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    let list = ["good", "unwanted", "poison"];
    let peer =
        Peer::start(list.iter().map(|id| server(id, "ntp", &clock.address(), 1_000)).collect());
    peer.state().unwanted = vec!["unwanted"];
    peer.state().poison = Some("poison");
    let agent = start(&folder, &peer, &[]);
    let line = agent.wait_for_line("a result was refused and is gone");
    assert!(line.contains("poison") && line.contains("A field is wrong"), "{line}");
    let line = agent.wait_for_line("results were refused and are gone");
    assert!(line.contains("not assigned"), "{line}");
    // Assigned no more: its results do not come any longer, and the others are whole again.
    peer.assign(vec![server("good", "ntp", &clock.address(), 1_000)]);
    let before = peer.results("good").len();
    until("the good ones arrive", || peer.results("good").len() > before + 2);
    let asked = clock.asked() as usize;
    let count = peer.results("good").len();
    until("more good ones", || peer.results("good").len() > count + 2);
    let (asked, found) = (clock.asked() as usize - asked, peer.results("good").len() - count);
    assert!(asked <= found + 2, "only one server is asked now: {asked} for {found}");
}

#[test]
fn the_end_reports_what_there_is_or_says_what_is_lost_within_its_time() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    let peer = Peer::start(vec![server("clock", "ntp", &clock.address(), 100)]);
    let url = peer.url();
    let patient = ["agent", "--server", &url, "--report-interval", "5m"];
    let agent = Process::start("agent", &command(folder.path(), &patient), "KILL");
    until("the first goes at once", || peer.results("clock").len() == 1);
    until("others wait", || clock.asked() > 5);
    assert_eq!(peer.state().batches.len(), 1);
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code, 0);
    assert!(peer.results("clock").len() >= 5);
    assert_eq!(peer.state().batches.len(), 2, "all in one batch");

    let agent = Process::start("agent", &command(folder.path(), &patient), "KILL");
    let asked = clock.asked();
    until("others wait", || clock.asked() > asked + 5);
    peer.state().taking = Mood::Away;
    let told = Instant::now();
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code, 0);
    assert!(told.elapsed() >= Duration::from_secs(4), "it tries for a while");
    assert!(agent.log().contains("results that no node has are lost"), "{}", agent.log());
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    let peer = Peer::start(vec![server("clock", "ntp", &clock.address(), 100)]);
    peer.state().taking = Mood::Away;
    let agent = start(&folder, &peer, &[]);
    agent.wait_for_line("results wait");
    agent.signal(Signal::TERM);
    agent.wait_for_line("once more ends at once");
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code, 1);
}

#[test]
fn a_key_that_is_not_good_is_said_and_the_agent_waits_for_a_better_one() {
    let folder = Folder::new("agent");
    let peer = Peer::start(Vec::new());
    let denied = r#"{"title":"The key is unknown","detail":"x","code":"E_KEY_UNKNOWN"}"#;
    peer.state().asking = Mood::Refusing(401, denied);
    let agent = start(&folder, &peer, &["--key", "skep_wrong"]);
    let line = agent.wait_for_line("no assignments");
    assert!(line.contains("answered 401: The key is unknown"), "{line}");
    pause(Duration::from_secs(2));
    assert_eq!(agent.wait_for(Duration::ZERO), None, "it goes on");
    assert_eq!(peer.state().asked, 1, "ten seconds apart");
    let (ended, said) = run(folder.path(), &["agent", "--once", "--server", &peer.url()]);
    assert_eq!(ended.code, 77, "{said}");
    let (ended, said) = run(folder.path(), &["agent", "--key-file", "none"]);
    assert_eq!(ended.code, 64, "{said}");
    assert!(said.contains("--key-file none"), "{said}");
}

#[test]
fn once_measures_reports_and_shows() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    clock.set(NtpManner { kiss: Some(*b"RATE"), ..NtpManner::default() });
    let web = Receiver::start(0, &[200]);
    let peer = Peer::start(vec![
        server("clock", "ntp", &clock.address(), 60_000),
        server("web", "http", &web.url(), 60_000),
    ]);
    let url = peer.url();
    let (ended, said) = run(folder.path(), &["agent", "--once", "--server", &url]);
    assert_eq!(ended.code, 0, "{said}");
    assert!(said.contains("RTT MS") && said.contains("code RATE"), "{said}");
    let (ended, said) = run(folder.path(), &["agent", "--once", "--json", "--server", &url]);
    let shown: Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((ended.code, &shown["accepted"], &shown["monitor"]), (0, &2.into(), &"m1".into()));
    assert_eq!(shown["results"][1]["server"], "web");
    assert_eq!(peer.results("web").len(), 2);

    peer.state().taking = Mood::Away;
    let buffered = ["agent", "--once", "--server", &url, "--buffer", "results"];
    let (ended, said) = run(folder.path(), &buffered);
    assert_eq!(ended.code, 69, "{said}");
    assert!(said.contains("2 results wait in --buffer"), "{said}");
    peer.state().taking = Mood::Well;
    let (ended, said) = run(folder.path(), &buffered);
    assert_eq!(ended.code, 0, "{said}");
    assert_eq!(peer.results("web").len(), 4, "with those of the time before");
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let (ended, said) = run(folder.path(), &["agent", "--once", "--server", &nowhere]);
    assert_eq!(ended.code, 69, "{said}");
    for wrong in [&["--monitor", "a b"][..], &["--concurrency", "0"], &["--server", "skep:1"]] {
        let (ended, said) = run(folder.path(), &[&["agent", "--once"], wrong].concat());
        assert_eq!(ended.code, 64, "{said}");
    }
}

#[test]
fn no_more_are_measured_at_a_time_than_allowed() {
    let folder = Folder::new("agent");
    let clock = NtpServer::start();
    clock.set(NtpManner { silent: true, ..NtpManner::default() });
    let ids: Vec<String> = (0..6).map(|number| format!("s{number}")).collect();
    let peer =
        Peer::start(ids.iter().map(|id| server(id, "ntp", &clock.address(), 600_000)).collect());
    let _agent = start(&folder, &peer, &["--concurrency", "2"]);
    until("all timed out", || peer.state().results.len() == 6);
    let mut began: Vec<i64> =
        peer.state().results.iter().filter_map(|one| one["at"].as_i64()).collect();
    began.sort_unstable();
    // Two at a time, each for two seconds.
    assert!(began[2] - began[0] >= 1_900 && began[4] - began[2] >= 1_900, "{began:?}");
    assert!(peer.state().results.iter().all(|one| one["error"] == "timeout"));
}

#[test]
fn a_real_node_takes_what_an_agent_measured_and_knows_it_the_second_time() {
    let folder = Folder::new("agent");
    let node = Node::start(skep(), &folder.path().join("data"), &[]);
    let clock = NtpServer::start();
    clock.set(NtpManner { offset: -10.0, ..NtpManner::default() });
    let add = |path: &str, body: Value| {
        let answer = node.send("POST", path, &[], Some(&body.to_string()));
        assert_eq!(answer.status, 201, "{}", answer.body);
    };
    let probe = |kind: &str, target: &str| json!({ "kind": kind, "target": target });
    add(
        "/api/v1/servers",
        json!({ "id": "clock", "ip": "192.0.2.1",
                                   "probe": probe("ntp", &clock.address()) }),
    );
    let web = node.url("/health");
    add("/api/v1/servers", json!({ "id": "web", "ip": "192.0.2.2", "probe": probe("http", &web) }));
    add("/api/v1/monitors", json!({ "id": "m1", "ip": "198.51.100.1", "status": "active" }));
    let url = node.url("");
    let once = ["agent", "--once", "--json", "--server", &url, "--monitor", "m1"];
    let (ended, said) = run(folder.path(), &once);
    assert_eq!(ended.code, 0, "{said}");
    let shown: Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&shown["monitor"], &shown["accepted"]), (&"m1".into(), &2.into()), "{shown}");
    let sample = |server: &str| {
        let page = node.get(&format!("/api/v1/servers/{server}/samples")).json();
        assert_eq!(page["samples"].as_array().map(Vec::len), Some(1), "{page}");
        page["samples"][0].clone()
    };
    let clock = sample("clock");
    assert_eq!((&clock["monitor"], &clock["step"]), (&"m1".into(), &(-4.0).into()), "{clock}");
    assert!(clock["offset_ms"].as_f64().is_some_and(|offset| (offset + 10_000.0).abs() < 500.0));
    assert_eq!(sample("web")["step"], 1.0);
    let report = json!({ "results": shown["results"] }).to_string();
    let again = node.send("POST", "/api/v1/agent/results?monitor=m1", &[], Some(&report)).json();
    assert_eq!((&again["accepted"], &again["known"]), (&0.into(), &2.into()), "{again}");
    let monitor = node.get("/api/v1/monitors/m1").json();
    assert!(monitor["agent"].as_str().is_some_and(|agent| agent.starts_with("skep ")), "{monitor}");

    // One that is nobody's: it says so, and keeps on.
    let (ended, said) = run(folder.path(), &["agent", "--once", "--server", &url]);
    assert_eq!(ended.code, 77, "{said}");
    assert!(said.contains("?monitor=ID"), "{said}");
}
