//! Pops that wait: woken by pushes, freed by clients that leave, answered at shutdown.

use super::kit::{Bench, rest, transactions};
use crate::common::{skep, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use skep::settings::{Layers, resolve};
use skep_store::{BootClock, Stores};
use skep_testkit::{Folder, Node, Postgres, http};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn popped(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("is JSON")
}

#[test]
fn a_push_wakes_a_pop_that_waits_and_time_ends_it() {
    Bench::each(|bench| {
        let started = Instant::now();
        assert_eq!(bench.pop("q?wait=true&timeout=200"), Value::Null);
        assert!(started.elapsed() >= Duration::from_millis(200));

        let waiting = bench.ask("/api/v1/pop/queue/q?wait=true&timeout=120000");
        let other = bench.ask("/api/v1/pop?namespace=q&wait=true&timeout=120000&group=g");
        bench.parked(2);
        bench.push_all("q.x", "p", &["1"]);
        assert_eq!(transactions(&popped(&rest(other))), ["1"]);
        bench.parked(1);
        bench.push_all("q", "p", &["2"]);
        assert_eq!(transactions(&popped(&rest(waiting))), ["2"]);
        bench.parked(0);
    });
}

#[test]
fn a_failed_message_wakes_whoever_waits_when_its_delay_is_over() {
    Bench::each(|bench| {
        let options = json!({ "retryDelay": 300 });
        bench.post("/api/v1/configure", &json!({ "queue": "q", "options": options }));
        bench.push_all("q", "p", &["1"]);
        let first = bench.pop("q");
        let waiting = bench.ask("/api/v1/pop/queue/q?wait=true&timeout=60000");
        bench.parked(1);
        bench.ack(&first["messages"][0], &json!({ "status": "failed" }));
        let started = Instant::now();
        assert_eq!(transactions(&popped(&rest(waiting))), ["1"]);
        assert!(started.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn a_push_at_one_node_wakes_a_pop_at_another() {
    let database = Postgres::shared().database();
    let folder = Folder::new("queues");
    let start = |name: &str| {
        let url = database.url();
        Node::start(skep(), &folder.join(name), &["--database", &url])
    };
    let (a, b) = (start("a"), start("b"));
    let bench = Bench::over(a, Folder::new("queues"));
    let other = Bench::over(b, Folder::new("queues"));
    // The second time the queue, its partition and the group's lane are there already.
    for transaction in ["1", "2"] {
        let waiting = bench.ask("/api/v1/pop/queue/q?wait=true&timeout=120000&autoAck=true");
        bench.parked(1);
        other.push_all("q", "p", &[transaction]);
        assert_eq!(transactions(&popped(&rest(waiting))), [transaction]);
    }
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let bench = Bench::embedded(&[]);
    let waiting = bench.ask("/api/v1/pop/queue/q?wait=true&timeout=120000");
    bench.parked(1);
    drop(waiting);
    bench.parked(0);
    bench.push_all("q", "p", &["1"]);
    assert_eq!(transactions(&bench.pop("q")), ["1"], "nobody has it who is not there");
}

#[test]
fn messages_for_a_connection_that_vanishes_come_back_at_once() {
    Bench::each(|bench| {
        // More than the sockets' buffers take, so that the node notices in the middle.
        let payload = "x".repeat(1 << 20);
        for number in 0..24 {
            let item = json!({ "queue": "q", "payload": payload,
                               "transactionId": format!("t{number:02}") });
            bench.push(&json!([item]));
        }
        let gone = bench.ask("/api/v1/pop/queue/q?batch=24");
        until("they are leased", || {
            let shown = bench.get("/api/v1/resources/queues/q").json();
            shown["consumerGroups"][0]["leasedPartitions"] == 1
        });
        assert_eq!(bench.pop("q"), Value::Null);
        drop(gone);
        let back = bench.pop("q?batch=2&wait=true&timeout=20000");
        assert_eq!(transactions(&back), ["t00", "t01"], "a lease would have held for minutes");
    });
}

#[test]
fn pops_that_wait_are_answered_when_the_node_stops() {
    Bench::each(|bench| {
        let waiting: Vec<_> = (0..5)
            .map(|number| {
                bench.ask(&format!("/api/v1/pop/queue/q{number}?wait=true&timeout=120000"))
            })
            .collect();
        bench.parked(5);
        bench.node.process().signal(Signal::TERM);
        for stream in waiting {
            let answer = rest(stream);
            assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        }
        let ended = bench.node.process().wait();
        assert_eq!(ended.code, 0, "{}", bench.node.process().log());
        let log = bench.node.process().log();
        assert!(!log.contains("are cut"), "{log}");
    });
}

#[test]
fn more_pops_than_may_wait_are_sent_away_with_a_time() {
    let bench = Bench::embedded(&["queues.parked_max=1"]);
    let waiting = bench.ask("/api/v1/pop/queue/q?wait=true&timeout=120000");
    bench.parked(1);
    let refused = bench.get("/api/v1/pop/queue/q?wait=true");
    assert_eq!((refused.status, refused.json()["code"].clone()), (429, json!("E_POPS_MAX")));
    assert_eq!(refused.header("retry-after"), "1");
    // Whoever does not wait needs no place.
    assert_eq!(bench.get("/api/v1/pop/queue/q").status, 204);
    bench.push_all("q", "p", &["1"]);
    assert_eq!(transactions(&popped(&rest(waiting))), ["1"]);
}

#[test]
fn where_a_group_begins_that_does_not_say_can_be_set() {
    let bench = Bench::embedded(&["queues.default_subscription=new"]);
    bench.push_all("q", "p", &["1"]);
    assert_eq!(bench.pop("q?group=g"), Value::Null);
    assert_eq!(transactions(&bench.pop("q?group=h&subscriptionMode=all")), ["1"]);
    assert_eq!(transactions(&bench.pop("q?subscriptionMode=new")), ["1"], "no group reads all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_over_one_embedded_store_wake_each_other_and_one_stops_alone() {
    let folder = Folder::new("queues");
    let mut layers = Layers::default();
    layers.add_flag("--data", "data", &folder.path().display().to_string());
    layers.add_flag("--listen", "api.listen", "127.0.0.1:0");
    let settings = resolve(layers).expect("is valid").settings;
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let node = skep::node::Node::start(settings.clone(), stores.clone(), Arc::new(BootClock));
        let node = node.await.expect("starts");
        assert!(node.ready().await);
        nodes.push(node);
    }
    let url = |place: usize, path: &str| format!("http://{}{path}", nodes[place].shared().address);
    let waits = "/api/v1/pop/queue/q?wait=true&timeout=25000";
    let (at_first, at_second) = (url(0, waits), url(1, waits));
    let pop = |url: String| std::thread::spawn(move || http::get(&url).expect("answers"));
    let (first, second) = (pop(at_first), pop(at_second));
    until("both wait", || {
        http::get(&url(1, "/metrics")).expect("answers").body.contains("\nskep_queue_parked 2\n")
    });
    // The first stops: its own pop is answered, the other's goes on.
    let push = url(1, "/api/v1/push");
    nodes[0].stop();
    nodes[0].ended().await.expect("ends well");
    assert_eq!(first.join().expect("answered").status, 204);
    let body = r#"{"items":[{"queue":"q","transactionId":"1"}]}"#;
    assert_eq!(http::send("POST", &push, &[], Some(body)).expect("answers").status, 201);
    let woken = second.join().expect("answered");
    assert_eq!(transactions(&woken.json()), ["1"]);
    nodes[1].stop();
    nodes[1].ended().await.expect("ends well");
    stores.close().await;
}
