//! What several nodes of one database do together, while they are killed.

use super::kit::Bench;
use crate::common::{skep, until};
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, Postgres, TestDatabase};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Three nodes of one database.
struct Fleet {
    nodes: Vec<Option<Node>>,
    folder: Folder,
    database: TestDatabase<'static>,
}

impl Fleet {
    fn start() -> Self {
        let (database, folder) = (Postgres::shared().database(), Folder::new("fleet"));
        let mut fleet = Fleet { nodes: vec![None, None, None], folder, database };
        (0..3).for_each(|place| fleet.revive(place));
        fleet
    }

    fn revive(&mut self, place: usize) {
        let url = self.database.url();
        let data = self.folder.join(&format!("n{place}"));
        let arguments = ["--database", &url, "--set", "log.access=false"];
        self.nodes[place] = Some(Node::start(skep(), &data, &arguments));
    }

    fn kill(&mut self, place: usize) {
        if let Some(node) = self.nodes[place].take() {
            node.process().kill();
        }
    }

    fn any(&self) -> &Node {
        self.nodes.iter().flatten().next().expect("one lives")
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.any().send("POST", path, &[], Some(&body.to_string()));
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.body);
        answer.json()
    }

    /// Everything that is in a queue, with what it is told to be.
    fn drain(&self, queue: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let path = format!("/api/v1/pop/queue/{queue}?batch=1000&partitions=100&autoAck=true");
            let answer = self.any().get(&path);
            if answer.status == 204 {
                return all;
            }
            let got = answer.json();
            all.extend(got["messages"].as_array().cloned().unwrap_or_default());
        }
    }
}

#[test]
fn a_schedule_fires_once_at_each_slot_while_nodes_are_killed() {
    let mut fleet = Fleet::start();
    fleet.post(
        "/api/v1/schedules",
        &json!({ "name": "beat", "queue": "beats", "every": 1, "payload": { "n": 1 } }),
    );
    let began = Instant::now();
    let mut turn = 0;
    // Never all three at once: while one lives nothing is left out.
    while began.elapsed() < Duration::from_secs(12) {
        fleet.kill(turn % 3);
        fleet.kill((turn + 1) % 3);
        let seen = fleet.any().get("/api/v1/schedules/beat").json()["fired"].as_u64();
        until("it fires on the one that is left", || {
            fleet.any().get("/api/v1/schedules/beat").json()["fired"].as_u64() > seen
        });
        fleet.revive(turn % 3);
        fleet.revive((turn + 1) % 3);
        turn += 1;
    }
    fleet.post("/api/v1/schedules/beat/pause", &json!({}));
    let got = fleet.drain("beats");
    let slot = |one: &Value| {
        let id = one["transactionId"].as_str().expect("a text");
        let slot = id.strip_prefix("schedule:beat:").expect("of the schedule");
        slot.parse::<u64>().expect("a number") / 1_000
    };
    let slots: Vec<u64> = got.iter().map(slot).collect();
    let once: BTreeSet<u64> = slots.iter().copied().collect();
    assert_eq!(once.len(), slots.len(), "none twice: {slots:?}");
    assert!(slots.len() >= 10 && turn >= 2, "{turn} turns: {slots:?}");
    assert!(slots.windows(2).all(|two| two[1] == two[0] + 1), "none left out: {slots:?}");
    let fired = fleet.any().get("/api/v1/schedules/beat").json();
    assert_eq!(fired["fired"], json!(slots.len()), "{fired}");
}

#[test]
fn delayed_messages_and_redriven_ones_arrive_once_while_nodes_are_killed() {
    let mut fleet = Fleet::start();
    let items: Vec<Value> = (0..300)
        .map(|number| {
            json!({ "queue": "late", "partition": format!("p{}", number % 7), "payload": number,
                    "transactionId": format!("t{number}"), "delay": 2 + number % 3 })
        })
        .collect();
    fleet.post("/api/v1/push", &json!({ "items": items }));
    fleet.kill(0);
    fleet.kill(1);
    fleet.revive(0);
    fleet.kill(2);
    fleet.revive(1);
    until("all have come", || {
        let depth = fleet.any().get("/api/v1/resources/queues/late/depth").json();
        depth["delayed"] == 0 && depth["total"] == 300
    });
    let dead: Vec<Value> =
        fleet.any().get("/api/v1/pop/queue/late?batch=1000&partitions=10").json()["messages"]
            .as_array()
            .cloned()
            .expect("messages");
    assert_eq!(dead.len(), 300);
    let word = |one: &Value| {
        json!({ "transactionId": one["transactionId"], "partitionId": one["partitionId"],
                "leaseId": one["leaseId"], "status": "dlq", "error": "no" })
    };
    let words: Vec<Value> = dead.iter().map(word).collect();
    fleet.post("/api/v1/ack/batch", &json!({ "acknowledgments": words }));
    let made = fleet.post("/api/v1/dlq/redrive", &json!({ "queue": "late", "rate": 100 }));
    let path = format!(
        "/api/v1/dlq/redrives/{}",
        made["id"].as_str().map_or_else(|| made["id"].to_string(), str::to_owned)
    );
    until("some went back", || fleet.any().get(&path).json()["moved"].as_u64() > Some(0));
    // Whoever was at it is gone; the others go on when its turn is over.
    fleet.kill(0);
    fleet.revive(2);
    until("it is done", || fleet.any().get(&path).json()["state"] == "done");
    let got = fleet.drain("late");
    let once: BTreeSet<&str> = got.iter().filter_map(|one| one["transactionId"].as_str()).collect();
    assert_eq!((got.len(), once.len()), (300, 300), "each once");
    let left = fleet.any().get("/api/v1/dlq?queue=late").json();
    assert_eq!(left["total"], 0, "{left}");
}

/// Consumers at three nodes at once never have more of a key than it may have.
#[test]
fn limits_hold_for_consumers_of_all_nodes_together() {
    let fleet = Fleet::start();
    let options = json!({ "maxInFlight": 12, "keyMaxInFlight": 3, "limitKeySeparator": "/",
                          "rateLimit": 60, "ratePeriodSeconds": 2 });
    fleet.post("/api/v1/configure", &json!({ "queue": "q", "options": options }));
    let items: Vec<Value> = (0..240)
        .map(|number| {
            json!({ "queue": "q", "partition": format!("k{}/{}", number % 6, number % 24),
                    "payload": number, "transactionId": format!("t{number}") })
        })
        .collect();
    fleet.post("/api/v1/push", &json!({ "items": items }));
    let held = std::sync::Mutex::new(Vec::<String>::new());
    let times = std::sync::Mutex::new(Vec::<Instant>::new());
    let done = std::sync::atomic::AtomicUsize::new(0);
    let key_of = |one: &Value| {
        let partition = one["partition"].as_str().expect("a text");
        partition.split('/').next().expect("a key").to_owned()
    };
    std::thread::scope(|threads| {
        for number in 0..9 {
            let (fleet, held, times, done) = (&fleet, &held, &times, &done);
            threads.spawn(move || {
                let node = fleet.nodes[number % 3].as_ref().expect("lives");
                while done.load(std::sync::atomic::Ordering::Relaxed) < 240 {
                    let asked = Instant::now();
                    let path = "/api/v1/pop/queue/q?batch=4&partitions=4&wait=true&timeout=500";
                    let answer = node.get(path);
                    if answer.status == 204 {
                        continue;
                    }
                    let got = answer.json()["messages"].as_array().cloned().expect("messages");
                    {
                        let mut held = held.lock().expect("nobody panicked");
                        held.extend(got.iter().map(key_of));
                        assert!(held.len() <= 12, "{} in flight", held.len());
                        for key in got.iter().map(key_of) {
                            let of_it = held.iter().filter(|one| **one == key).count();
                            assert!(of_it <= 3, "{of_it} of {key} in flight");
                        }
                        // It was handed out after it was asked for.
                        let mut times = times.lock().expect("nobody panicked");
                        times.extend(got.iter().map(|_| asked));
                    }
                    for one in &got {
                        {
                            let mut held = held.lock().expect("nobody panicked");
                            let place = held.iter().position(|held| *held == key_of(one));
                            held.remove(place.expect("it is held"));
                        }
                        let body = json!({ "transactionId": one["transactionId"],
                                           "partitionId": one["partitionId"],
                                           "leaseId": one["leaseId"] });
                        let said = node.send("POST", "/api/v1/ack", &[], Some(&body.to_string()));
                        assert_eq!(said.json()[0]["success"], true, "{}", said.body);
                        done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 240, "everything was consumed, once");
    let mut times = times.into_inner().expect("nobody panicked");
    times.sort();
    let took = times.last().expect("some").duration_since(times[0]);
    // 240 at 60 in two seconds are three whole periods after the first.
    assert!(took >= Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_queue_is_cleared_for_everybody_at_once() {
    Bench::each(|bench| {
        bench.push_all("q", "p", &["1", "2"]);
        let late = json!([{ "queue": "q", "partition": "p", "payload": 1, "delay": 1,
                            "transactionId": "late" }]);
        bench.push(&late);
        let answer = bench.node.send("DELETE", "/api/v1/queues/q/clear", &[], None);
        assert_eq!(answer.status, 200, "{}", answer.body);
        bench.push_all("q", "p", &["3"]);
        let popped = bench.pop("q?batch=10&wait=true&timeout=2500");
        assert_eq!(super::transactions(&popped), ["3"]);
        until("what was cleared is removed", || {
            let shown = bench.get("/api/v1/resources/queues/q").json();
            shown["totals"]["total"] == 1 && shown["totals"]["delayed"] == 0
        });
        assert!(bench.get("/api/v1/resources/queues/q").json()["clearedAt"].is_string());
    });
}
