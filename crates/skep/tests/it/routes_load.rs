//! Routes under load, and with upstreams that are killed, hang and are slow meanwhile.

use crate::common::skep;
use crate::routes::kit::{Client, Place, Upstream};
use rustix::process::Signal;
use skep_testkit::{Folder, Node, eventually, free_port};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, park_timeout};
use std::time::{Duration, Instant};

const HOST: &str = "service.example";

/// A value of `/metrics`; every word must be in its line.
fn metric(node: &Node, name: &str, words: &str) -> f64 {
    let text = node.get("/metrics").body;
    let line = text.lines().find(|line| line.starts_with(name) && line.contains(words));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} with {words} in {text}"))
}

/// Asks `count` times over `clients` connections, `per_second` in all at most.
fn load(node: &Node, clients: u32, count: u64, per_second: f64) {
    let left = Arc::new(AtomicU64::new(count));
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (left, gateway) = (left.clone(), node.gateway().to_owned());
            std::thread::spawn(move || {
                let mut client = Client::connect(&gateway);
                let every = Duration::from_secs_f64(f64::from(clients) / per_second);
                let mut due = Instant::now();
                let take = |left: u64| left.checked_sub(1);
                while left.try_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
                    let answer = client.ask(HOST, "/load").expect("an answer");
                    assert_eq!(answer.status, 200, "{answer:?}");
                    due += every;
                    while let Some(early) = due.checked_duration_since(Instant::now()) {
                        park_timeout(early);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("every answer was a good one");
    }
}

#[test]
fn a_steady_load_and_a_burst_lose_no_entry_and_leave_nothing_behind() {
    let upstream = Upstream::start("one");
    let place = Place::new(&format!(
        "pools.idle_timeout = \"1s\"\n\
         [[routes]]\nname = \"service\"\nhost = \"{HOST}\"\nupstreams = [\"{}\"]\n",
        upstream.address()
    ));
    let node = place.start(&[]);
    load(&node, 8, 1_000, 1e9);
    let workers = |node: &Node| {
        let pools = node.get("/api/v1/pools").json();
        let all = pools["pools"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|pool| pool["active_workers"].as_u64()).sum::<u64>()
    };
    let least = eventually("the pools are at rest", || Some(workers(&node)).filter(|n| *n <= 5));
    let before = metric(&node, "process_resident_memory_bytes", "");
    load(&node, 8, 4_000, 1_000.0);
    load(&node, 64, 10_000, 1e9);
    let after = metric(&node, "process_resident_memory_bytes", "");
    assert!(after - before < 32e6, "it grew from {before} to {after} bytes");

    eventually("all are written", || {
        (metric(&node, "skep_access_log_waiting", "") == 0.0).then_some(())
    });
    let entries = |outcome| metric(&node, "skep_access_log_entries_total", outcome);
    assert_eq!((entries("dropped"), entries("given_up")), (0.0, 0.0));
    assert!(entries("written") >= 15_000.0);
    eventually("the last second is counted", || {
        (metric(&node, "skep_route_requests_total", "2xx") == 15_000.0).then_some(())
    });
    assert_eq!(upstream.served(), 15_000);
    // In batches, never a transaction each.
    let batches = metric(&node, "skep_access_log_batches_total", "");
    assert!(batches <= 1_500.0, "{batches} transactions for 15,000 entries");
    eventually("nobody is left behind", || (workers(&node) <= least).then_some(()));
    assert_eq!(node.stop().code, 0, "{}", node.process().log());
}

/// Services that can be killed: programs of their own.
struct Services {
    all: Vec<(Node, u16)>,
    _folder: Folder,
}

impl Services {
    fn start(count: usize) -> Self {
        let folder = Folder::new("services");
        let all = (0..count).map(|number| {
            let port = free_port();
            (service(&folder, number, port), port)
        });
        Services { all: all.collect(), _folder: folder }
    }

    fn route(&self, more: &str) -> String {
        let addresses: Vec<String> =
            self.all.iter().map(|(_, port)| format!("\"127.0.0.1:{port}\"")).collect();
        format!(
            "[[routes]]\nname = \"service\"\nhost = \"{HOST}\"\nhost_header = \"localhost\"\n\
             upstreams = [{}]\n{more}",
            addresses.join(", ")
        )
    }
}

fn service(folder: &Folder, number: usize, port: u16) -> Node {
    let listen = format!("127.0.0.1:{port}");
    let arguments = ["--listen", &listen, "--set", "log.access=false"];
    Node::start(skep(), &folder.join(&number.to_string()), &arguments)
}

/// Clients that ask all the time, and what they met.
struct Crowd {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    bad: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn start(node: &Node, size: usize) -> Self {
        let (stop, answers): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let bad: Arc<Mutex<Vec<String>>> = Arc::default();
        let threads = (0..size)
            .map(|_| {
                let (stop, answers, bad) = (stop.clone(), answers.clone(), bad.clone());
                let gateway = node.gateway().to_owned();
                std::thread::spawn(move || {
                    let mut client = Client::connect(&gateway);
                    while !stop.load(Ordering::SeqCst) {
                        match client.ask(HOST, "/health/live") {
                            Ok(answer) if answer.status == 200 => {
                                answers.fetch_add(1, Ordering::SeqCst);
                            }
                            other => {
                                bad.lock().expect("no panic").push(format!("{other:?}"));
                                client = Client::connect(&gateway);
                            }
                        }
                    }
                })
            })
            .collect();
        Crowd { stop, answers, bad, threads }
    }

    /// Waits until so many more were answered.
    fn wait_for(&self, more: u64) {
        let until = self.answers.load(Ordering::SeqCst) + more;
        eventually("requests are answered", || {
            (self.answers.load(Ordering::SeqCst) >= until).then_some(())
        });
    }

    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("ends");
        }
        Arc::try_unwrap(self.bad).expect("all have ended").into_inner().expect("no panic")
    }
}

fn standings(node: &Node) -> Vec<String> {
    let list = node.get("/api/v1/routes").json();
    let upstreams = list["routes"][0]["now"]["upstreams"].as_array().cloned().unwrap_or_default();
    upstreams.iter().map(|one| one["standing"].as_str().unwrap_or_default().to_owned()).collect()
}

fn wait_for_standing(node: &Node, index: usize, wanted: &[&str]) {
    eventually(&format!("upstream {index} is {wanted:?}"), || {
        wanted.contains(&standings(node).get(index)?.as_str()).then_some(())
    });
}

#[test]
fn an_upstream_that_is_killed_under_load_costs_no_client_an_error() {
    let mut services = Services::start(3);
    let breaker = "breaker = { failures = 3, open = \"500ms\", open_max = \"1s\" }\n\
                   slow_start = \"500ms\"\n";
    let place = Place::new(&services.route(breaker));
    let node = place.start(&[]);
    let crowd = Crowd::start(&node, 6);
    crowd.wait_for(500);
    services.all[1].0.process().kill();
    wait_for_standing(&node, 1, &["out", "trial"]);
    crowd.wait_for(1_000);
    assert!(matches!(standings(&node)[0].as_str(), "ready"), "{:?}", standings(&node));
    let port = services.all[1].1;
    services.all[1].0 = service(&services._folder, 9, port);
    wait_for_standing(&node, 1, &["ready"]);
    crowd.wait_for(500);
    assert_eq!(crowd.end(), Vec::<String>::new());
    let retries = metric(&node, "skep_route_retries_total", "service");
    assert!(retries > 0.0, "somebody must have been in the way");
    assert_eq!(node.stop().code, 0, "{}", node.process().log());
}

#[test]
fn an_upstream_that_hangs_under_load_is_left_alone_until_it_goes_on() {
    let services = Services::start(3);
    let rules = "timeouts = { head = \"300ms\" }\nslow_start = \"0s\"\n\
                 breaker = { failures = 3, open = \"500ms\", open_max = \"1s\" }\n\
                 retry = { budget = 1.0 }\n";
    let place = Place::new(&services.route(rules));
    let node = place.start(&[]);
    let crowd = Crowd::start(&node, 6);
    crowd.wait_for(500);
    services.all[0].0.process().signal(Signal::STOP);
    wait_for_standing(&node, 0, &["out"]);
    // From now on hardly anybody meets it.
    crowd.wait_for(2_000);
    services.all[0].0.process().signal(Signal::CONT);
    wait_for_standing(&node, 0, &["ready"]);
    crowd.wait_for(500);
    assert_eq!(crowd.end(), Vec::<String>::new());
    assert_eq!(node.stop().code, 0, "{}", node.process().log());
}

#[test]
fn checks_take_a_hung_upstream_out_and_bring_it_back_without_any_request() {
    let services = Services::start(2);
    let rules = "slow_start = \"300ms\"\n[routes.health]\npath = \"/health/live\"\n\
                 every = \"100ms\"\ntimeout = \"200ms\"\nrise = 2\nfall = 2\n";
    let place = Place::new(&services.route(rules));
    let node = place.start(&[]);
    wait_for_standing(&node, 1, &["ready"]);
    services.all[1].0.process().signal(Signal::STOP);
    wait_for_standing(&node, 1, &["down"]);
    let list = node.get("/api/v1/routes").json();
    let unwell = &list["routes"][0]["now"]["upstreams"][1]["unwell"];
    assert!(unwell.as_str().is_some_and(|found| found.contains("200ms")), "{list}");
    services.all[1].0.process().signal(Signal::CONT);
    wait_for_standing(&node, 1, &["warming", "ready"]);
    wait_for_standing(&node, 1, &["ready"]);
    assert_eq!(node.stop().code, 0, "{}", node.process().log());
}

#[test]
fn a_lone_upstream_is_never_given_up_and_a_hung_one_does_not_pile_up() {
    let mut services = Services::start(1);
    let rules = "timeouts = { head = \"500ms\" }\nslow_start = \"0s\"\n\
                 breaker = { failures = 2, open = \"20s\", open_max = \"20s\" }\n\
                 retry = { tries = 0 }\n";
    let place = Place::new(&services.route(rules));
    let node = place.start(&[]);
    let ask = || Client::connect(node.gateway()).ask(HOST, "/health/live").expect("an answer");
    assert_eq!(ask().status, 200);
    services.all[0].0.process().kill();
    for _ in 0..4 {
        assert_eq!(ask().status, 502);
    }
    assert_eq!(standings(&node), ["out"]);
    // A restart is seen by the very next request, however long the breaker would wait.
    services.all[0].0 = service(&services._folder, 9, services.all[0].1);
    assert_eq!(ask().status, 200);
    wait_for_standing(&node, 0, &["ready", "trial"]);
    services.all[0].0.process().signal(Signal::STOP);
    let crowd: Vec<_> = (0..40)
        .map(|_| {
            let gateway = node.gateway().to_owned();
            std::thread::spawn(move || {
                let mut client = Client::connect(&gateway);
                let mut statuses = Vec::new();
                for _ in 0..3 {
                    statuses.push(client.ask(HOST, "/health/live").expect("an answer").status);
                }
                statuses
            })
        })
        .collect();
    let statuses: Vec<u16> =
        crowd.into_iter().flat_map(|one| one.join().expect("is answered")).collect();
    let busy = statuses.iter().filter(|status| **status == 503).count();
    assert!(statuses.iter().all(|status| matches!(status, 503 | 504)), "{statuses:?}");
    assert!(busy > 0, "some are told at once: {statuses:?}");
    services.all[0].0.process().signal(Signal::CONT);
    eventually("it serves again", || (ask().status == 200).then_some(()));
    assert_eq!(node.stop().code, 0, "{}", node.process().log());
}
