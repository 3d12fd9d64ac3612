//! Several node processes over real stores: who polls what, when they come and go.

use crate::common::{skep, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, Postgres, Receiver, Redis, pause};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Short spans, so that a test need not wait for long ones.
const SPANS: [&str; 7] = [
    "nodes.ttl=5s",
    "nodes.tick=200ms",
    "nodes.margin=200ms",
    "nodes.observe=1",
    "nodes.cooldown=0s",
    "polls.drain=200ms",
    "log.access=false",
];

struct Fleet {
    folder: Folder,
    database: String,
    coordination: Option<String>,
}

impl Fleet {
    fn start(&self, name: &str) -> Node {
        self.start_with(name, &[])
    }

    fn start_with(&self, name: &str, more: &[&str]) -> Node {
        let mut arguments = vec!["--database", &self.database];
        if let Some(redis) = &self.coordination {
            arguments.extend(["--coordination", redis]);
        }
        let set_name = format!("node.name={name}");
        for setting in SPANS.iter().copied().chain([set_name.as_str()]).chain(more.iter().copied())
        {
            arguments.extend(["--set", setting]);
        }
        Node::start(skep(), &self.folder.path().join(name), &arguments)
    }
}

/// How many endpoints each node polls, as this one knows it.
fn shares(node: &Node) -> BTreeMap<String, usize> {
    let owners = node.get("/api/v1/polls/owners").json();
    let nodes = owners["nodes"].as_object().cloned().unwrap_or_default();
    let count = |ids: &Value| ids.as_array().map_or(0, Vec::len);
    nodes.iter().map(|(name, ids)| (name.clone(), count(ids))).collect()
}

fn import(node: &Node, count: usize, url: &str) {
    let lines: Vec<String> = (0..count)
        .map(|number| {
            json!({ "id": format!("ep-{number:04}"), "url": url, "interval": "1s",
                    "timeout": "500ms" })
            .to_string()
        })
        .collect();
    let answer = node.send("POST", "/api/v1/polls/import", &[], Some(&lines.join("\n")));
    assert_eq!(answer.json()["created"], count, "{}", answer.body);
}

fn each_has(node: &Node, share: usize, names: &[&str]) -> bool {
    let shares = shares(node);
    shares.len() == names.len() && names.iter().all(|name| shares.get(*name) == Some(&share))
}

/// Nodes come, one stops, one is killed: nine endpoints are always shared evenly, and no result is
/// of two owners at once.
fn nine_endpoints_are_shared(fleet: &Fleet) {
    let target = Receiver::start(0, &[200]);
    let (a, b) = (fleet.start("a"), fleet.start("b"));
    import(&a, 9, &target.url());
    until("two share them", || {
        let shares = shares(&a);
        shares.len() == 2 && shares.values().all(|count| (4..=5).contains(count))
    });
    let c = fleet.start("c");
    until("three have three each", || each_has(&a, 3, &["a", "b", "c"]));
    until("all agree", || each_has(&b, 3, &["a", "b", "c"]) && each_has(&c, 3, &["a", "b", "c"]));
    let polled = |node: &Node| {
        let list = node.get("/api/v1/polls/endpoints").json();
        let all = list["endpoints"].as_array().cloned().unwrap_or_default();
        all.len() == 9 && all.iter().all(|one| one["state"] == "ok")
    };
    until("all are polled", || polled(&a));

    // Stopped: gives its three away at once, long before a session could run out.
    let began = Instant::now();
    assert_eq!(b.stop().code, 0, "{}", b.process().log());
    until("the others have its share", || {
        let shares = shares(&a);
        !shares.contains_key("b") && shares.values().sum::<usize>() == 9
    });
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());

    // Killed: the last one takes all when the session has run out, and not before.
    let began = Instant::now();
    c.process().signal(Signal::KILL);
    until("the last has all", || each_has(&a, 9, &["a"]));
    assert!(began.elapsed() > Duration::from_millis(4_500), "{:?}", began.elapsed());
    let moves = node_moves(&a);
    assert!(moves.iter().any(|rule| rule.starts_with("unowned")), "{moves:?}");
    for number in 0..9 {
        let path = format!("/api/v1/polls/endpoints/ep-{number:04}/results");
        let results = a.get(&path).json()["results"].as_array().cloned().unwrap_or_default();
        let slots: Vec<i64> = results.iter().filter_map(|one| one["slot"].as_i64()).collect();
        assert!(slots.windows(2).all(|two| two[0] > two[1]), "no slot twice: {slots:?}");
    }
    assert_eq!(a.stop().code, 0, "{}", a.process().log());
}

fn node_moves(node: &Node) -> Vec<String> {
    let moves = node.get("/api/v1/polls/endpoints/ep-0000/moves").json();
    let all = moves["moves"].as_array().cloned().unwrap_or_default();
    all.iter().filter_map(|one| one["reason"]["rule"].as_str().map(str::to_owned)).collect()
}

#[test]
fn nine_endpoints_are_shared_evenly_over_postgres_alone() {
    let server = Postgres::shared().database();
    let folder = Folder::new("fleet");
    let fleet = Fleet { folder, database: server.url(), coordination: None };
    nine_endpoints_are_shared(&fleet);
}

#[test]
fn nine_endpoints_are_shared_evenly_over_redis() {
    let (server, redis) = (Postgres::shared().database(), Redis::start());
    let folder = Folder::new("fleet");
    let fleet = Fleet { folder, database: server.url(), coordination: Some(redis.url()) };
    nine_endpoints_are_shared(&fleet);
}

#[test]
fn polling_outlives_the_store_while_trust_lasts_stops_then_and_resumes_by_itself() {
    let (server, redis) = (Postgres::shared().database(), Redis::start());
    let folder = Folder::new("fleet");
    let fleet = Fleet { folder, database: server.url(), coordination: Some(redis.url()) };
    let target = Receiver::start(0, &[200]);
    let node = fleet.start_with("a", &["nodes.ttl=3s"]);
    import(&node, 4, &target.url());
    until("all are polled", || target.received().len() >= 8);
    redis.pause();
    let (paused, before) = (Instant::now(), target.received().len());
    until("polls go on without the store", || target.received().len() > before);
    // Trust lasts at most 2.8 s after the last renewal; a poll of half a second must fit into it.
    pause(Duration::from_millis(3_000).saturating_sub(paused.elapsed()));
    let count = target.received().len();
    pause(Duration::from_millis(1_500));
    assert_eq!(target.received().len(), count, "nothing begins without trust");
    assert!(node.process().log().contains("does not answer"), "{}", node.process().log());
    redis.resume();
    until("it resumes by itself", || target.received().len() > count + 4);
}

#[test]
fn a_name_that_is_held_waits_and_gives_up_only_if_the_other_lives() {
    let (server, redis) = (Postgres::shared().database(), Redis::start());
    let folder = Folder::new("fleet");
    let fleet = Fleet { folder, database: server.url(), coordination: Some(redis.url()) };
    let first = fleet.start("twin");
    let twin = Fleet {
        folder: Folder::new("fleet"),
        database: fleet.database.clone(),
        coordination: fleet.coordination.clone(),
    };
    // The name is held by one that lives: it serves, waits, and ends with an error.
    let second = twin.start("twin");
    assert_eq!(second.get("/health").status, 200);
    let ended = second.process().wait();
    assert_ne!(ended.code, 0);
    let log = second.process().log();
    assert!(log.contains("another node is called \"twin\" and lives"), "{log}");
    // The name is held by one that was killed: it takes its place when the session has run out.
    first.process().kill();
    let third = twin.start("twin");
    until("it is in", || third.get("/api/v1/nodes").json()["standing"] == "inside");
}
