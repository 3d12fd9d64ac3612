//! `skep demo` is everything at once: three nodes, every capability used, things that happen.

use crate::common::{command, run, until};
use serde_json::Value;
use skep::node::Node;
use skep::settings::{Layers, Settings, resolve};
use skep_store::{BootClock, Stores};
use skep_testkit::{Browser, Folder, Process, http};
use std::sync::Arc;
use std::time::Duration;

/// Far longer than it takes; what a busy machine needs is no failure.
const ENDS_WITHIN: Duration = Duration::from_secs(150);

fn settings(folder: &Folder, more: &[&str]) -> Settings {
    let mut layers = Layers::default();
    layers.add_flag("--data", "data", &folder.path().display().to_string());
    layers.add_flag("--listen", "api.listen", "127.0.0.1:0");
    for assignment in more.iter().chain(&["gateway.listen=127.0.0.1:0"]) {
        layers.add_set(assignment, &Settings::keys());
    }
    resolve(layers).expect("is valid").settings
}

fn json_in(log: &str) -> Value {
    let from = log.find("{\n").expect("there is an answer");
    let to = log.rfind('}').expect("it has an end");
    serde_json::from_str(&log[from..=to]).unwrap_or_else(|error| panic!("{error}: {log}"))
}

#[test]
fn a_demo_shows_everything_tells_why_and_every_promise_holds() {
    let folder = Folder::new("demo");
    let arguments = ["demo", "--listen", "127.0.0.1:0", "--rounds", "1", "--every", "1s", "--json"];
    let demo = Process::start("skep demo", &command(folder.path(), &arguments), "KILL");
    let line = demo.wait_for_line("#/demo");
    let address = line.trim().split('#').next().expect("an address").to_owned();

    // What a newcomer sees first.
    let mut browser = Browser::start();
    let mut page = browser.open(&format!("{address}#/demo"), (1280, 900));
    page.wait_for("document.querySelectorAll('.demo-story li strong').length >= 2");
    page.wait_for("document.body.innerText.includes('because ')");
    let nodes = page.eval("document.querySelectorAll('.stores .pill').length");
    assert_eq!(nodes, 3, "each node is listed");
    let errors = page.errors();
    assert!(errors.is_empty(), "{errors:#?}");
    drop(browser);

    let ended = demo.wait_for(ENDS_WITHIN).unwrap_or_else(|| panic!("it ends: {}", demo.log()));
    let outcome = json_in(&demo.log());
    assert_eq!((ended.code, &outcome["ok"]), (0, &Value::Bool(true)), "{outcome:#}");
    let texts = |list: &Value, field: &str| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|one| one[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    let parts = texts(&outcome["parts"], "part");
    assert_eq!(parts, ["monitors", "polls", "queues", "routes", "sessions", "tasks", "events"]);
    // A check that saw nothing would have found nothing.
    let happened = texts(&outcome["events"], "what");
    for what in ["start", "kill", "return", "workers", "burst", "limit", "end"] {
        assert!(happened.iter().any(|one| one == what), "{what}: {outcome:#}");
    }
    let events = outcome["events"].as_array().expect("a list");
    let killed = events.iter().find(|one| one["what"] == "kill").expect("one was killed");
    let told = killed["outcome"].to_string();
    assert!(told.contains("took over"), "{killed:#}");
    assert!(killed["because"].to_string().contains("lease"), "{killed:#}");
}

#[test]
fn a_demo_wants_servers_where_it_is_given_addresses() {
    let folder = Folder::new("demo");
    let (ended, log) = run(folder.path(), &["demo", "--postgres", "embedded"]);
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("--postgres: this is no address of a server"), "{log}");
    let (ended, log) = run(folder.path(), &["demo", "--for", "10ms"]);
    assert_eq!(ended.code, 64, "{log}");
    assert!(log.contains("1s is the shortest"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_belongs_to_no_demo_says_so_and_shows_no_page_for_it() {
    let folder = Folder::new("demo");
    let settings = settings(&folder, &[]);
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let node = Node::start(settings, stores, Arc::new(BootClock)).await.expect("starts");
    assert!(node.ready().await);
    let url = |path: &str| format!("http://{}{path}", node.shared().address);
    for path in ["/api/v1/demo", "/api/v1/demo/tasks"] {
        let answer = http::get(&url(path)).expect("answers");
        assert_eq!((answer.status, &answer.json()["code"]), (404, &Value::from("E_DEMO_NONE")));
    }
    let pages = http::get(&url("/api/v1/pages")).expect("answers");
    assert!(!pages.body.contains("demo.js") && pages.body.contains("polls.js"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_demo_end_once_and_are_counted() {
    let folder = Folder::new("demo");
    let settings = settings(&folder, &["demo.enabled=true", "cluster.listen=127.0.0.1:0"]);
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let node = Node::start(settings, stores, Arc::new(BootClock)).await.expect("starts");
    assert!(node.ready().await);
    let url = format!("http://{}/api/v1/demo/tasks", node.shared().address);
    let post = |body: &str| http::send("POST", &url, &[], Some(body)).expect("answers");
    let taken = post(r#"{"tier": "normal", "count": 300, "dying": 2, "wait": true}"#).json();
    assert_eq!((&taken["taken"], &taken["refused"]), (&300.into(), &0.into()));
    until("all have ended", || {
        let counts = http::get(&url).expect("answers").json();
        assert_eq!((&counts["taken"], &counts["twice"]), (&300.into(), &0.into()));
        (&counts["done"], &counts["dead"]) == (&298.into(), &2.into())
    });
    for (body, field) in [
        (r#"{"tier": "low", "count": 0}"#, "count"),
        (r#"{"tier": "low", "count": 1, "millis": 1001}"#, "millis"),
        (r#"{"tier": "low", "count": 1, "dying": 2}"#, "dying"),
    ] {
        let refused = post(body);
        assert_eq!((refused.status, &refused.json()["field"]), (400, &Value::from(field)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_a_stopping_node_has_no_time_for_are_dead_letters_in_the_database() {
    let folder = Folder::new("demo");
    let demo = ["demo.enabled=true", "cluster.listen=127.0.0.1:0", "shutdown.drain_timeout=300ms"];
    let settings = settings(&folder, &demo);
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let clock = || Arc::new(BootClock);
    let mut node = Node::start(settings.clone(), stores.clone(), clock()).await.expect("starts");
    assert!(node.ready().await);
    let url = format!("http://{}/api/v1/demo/tasks", node.shared().address);
    // Much more than the only worker and its helpers can do in that time.
    let body = r#"{"tier": "low", "count": 90, "millis": 1000, "dying": 1}"#;
    let taken = http::send("POST", &url, &[], Some(body)).expect("answers").json();
    assert_eq!(taken["taken"], 90);
    node.stop();
    node.ended().await.expect("ends in good order");

    // What it leaves behind says what became of each.
    let file = folder.join(&format!("demo-{}.json", taken["life"].as_str().expect("a name")));
    let account = std::fs::read_to_string(file).expect("it left an account");
    let account: Value = serde_json::from_str(&account).expect("it is JSON");
    let number = |field: &str| account[field].as_u64().expect("a number");
    assert_eq!((number("taken"), number("twice"), number("letters_waiting")), (90, 0, 0));
    let dropped = 90 - number("done") - number("dead");
    assert!(dropped > 0, "{account}");
    let node = Node::start(settings, stores, clock()).await.expect("starts again");
    assert!(node.ready().await);
    let path = "/api/v1/pools/dead?kind=demo&limit=1000";
    let kept = http::get(&format!("http://{}{path}", node.shared().address)).expect("answers");
    let kept = kept.json();
    let kept = kept["letters"].as_array().expect("a list").iter();
    let shutdown = kept.clone().filter(|letter| letter["cause"] == "shutdown").count() as u64;
    assert_eq!((shutdown, kept.count() as u64), (dropped, dropped + number("dead")), "{account}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_is_gone_at_once_and_the_others_notice_when_its_lease_ends() {
    let folder = Folder::new("demo");
    // Longer than the look right after it takes on a busy machine.
    let demo = [
        "demo.enabled=true",
        "cluster.listen=127.0.0.1:0",
        "nodes.ttl=4s",
        "nodes.tick=250ms",
        "nodes.margin=300ms",
    ];
    let settings = settings(&folder, &demo);
    let stores = Stores::open(&settings.store_options()).expect("opens");
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let clock = Arc::new(BootClock);
        let node = Node::start(settings.clone(), stores.clone(), clock).await.expect("starts");
        assert!(node.ready().await);
        nodes.push(node);
    }
    let addresses: Vec<_> = nodes.iter().map(|node| node.shared().address).collect();
    let gateway = *nodes[1].shared().gateway_address.get().expect("has one");
    let online = || {
        let seen = http::get(&format!("http://{}/api/v1/nodes", addresses[0])).expect("answers");
        let seen = seen.json();
        let nodes = seen["nodes"].as_array().expect("a list").iter();
        nodes.filter(|node| node["status"] == "online").count()
    };
    until("both see each other", || online() == 2);
    nodes.remove(1).kill().await;
    until("its ports are closed", || {
        [addresses[1], gateway].iter().all(|port| std::net::TcpStream::connect(port).is_err())
    });
    // It has told nobody, so that it is thought to be there until its lease has ended.
    assert_eq!(online(), 2);
    until("it is missed", || online() == 1);
    let name = nodes[0].shared().name.clone();
    assert!(nodes[0].ready().await, "{name} goes on");
}
