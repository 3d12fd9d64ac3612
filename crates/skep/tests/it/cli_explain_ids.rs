//! Ids of decisions: whatever the API shows has one, and `skep explain` takes it.

use crate::common::{command, until};
use serde_json::{Value, json};
use skep::node::Node;
use skep::settings::{Layers, resolve};
use skep_policy::explain::{KINDS, Kind};
use skep_pools::{Failure, Task, Tier};
use skep_store::{BootClock, Stores};
use skep_testkit::{EchoWorker, Folder, WebSocket, eventually, http};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// A node in this process, so that tasks can be given to its pools, and verbs against it.
struct Place {
    folder: Folder,
    node: Node,
    stores: Stores,
}

impl Place {
    async fn start() -> Self {
        let folder = Folder::new("explain");
        let mut layers = Layers::default();
        layers.add_flag("--data", "data", &folder.path().display().to_string());
        for (key, value) in [
            ("api.listen", "127.0.0.1:0"),
            ("gateway.listen", "127.0.0.1:0"),
            ("node.name", "hive"),
            ("shutdown.drain_timeout", "300ms"),
        ] {
            layers.add_flag("--set", key, value);
        }
        let settings = resolve(layers).expect("is valid").settings;
        let stores = Stores::open(&settings.store_options()).expect("opens");
        let node = Node::start(settings, stores.clone(), Arc::new(BootClock)).await;
        let node = node.expect("starts");
        assert!(node.ready().await);
        Place { folder, node, stores }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.node.shared().address)
    }

    fn gateway(&self) -> String {
        self.node.shared().gateway_address.get().expect("it has one").to_string()
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> http::Answer {
        let body = body.map(Value::to_string);
        let headers = [("x-skep-request", "test"), ("content-type", "application/json")];
        http::send(method, &self.url(path), &headers, body.as_deref()).expect("answers")
    }

    fn get(&self, path: &str) -> Value {
        self.ask("GET", path, None).json()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.ask("POST", path, Some(body));
        assert!(answer.status < 300, "{path}: {}", answer.body);
        answer.json()
    }

    /// What a list has first, as soon as it has something.
    fn first(&self, path: &str, list: &str) -> Value {
        eventually(path, || self.get(path)[list].get(0).cloned())
    }

    fn skep(&self, arguments: &[&str]) -> String {
        let mut command = command(self.folder.path(), arguments);
        let output = command.env("SKEP_URL", self.url("")).output().expect("starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Takes the id out of what the API shows and asks for its explanation.
    fn explained(&self, view: &Value) -> (String, Value) {
        let id = view["explain"].as_str().unwrap_or_else(|| panic!("no id in {view}")).to_owned();
        let told = self.skep(&["explain", &id, "--json"]);
        (id, serde_json::from_str(&told).expect("is JSON"))
    }
}

/// Sessions and their workers.
fn about_sessions(place: &Place) -> Vec<Value> {
    let worker = EchoWorker::start();
    let body = json!({ "name": "browser-1", "kind": "chromium", "url": worker.url(),
                       "start": "1", "slots": 2, "labels": ["eu"] });
    place.post("/api/v1/sessions/workers", &body);
    let client = WebSocket::connect(&place.gateway(), "/?kind=chromium&label=eu", &[]);
    let views = vec![
        place.first("/api/v1/sessions", "sessions"),
        place.first("/api/v1/sessions/overview", "choices"),
        place.first("/api/v1/sessions/overview", "kinds"),
        place.first("/api/v1/sessions/workers", "workers"),
        place.get("/api/v1/sessions/explain?kind=chromium&label=eu"),
    ];
    // While it is still there: what is open is explained as well as what is over.
    for view in &views {
        let (id, told) = place.explained(view);
        assert_eq!(told["id"], id);
    }
    drop(client);
    views
}

/// Endpoints, and servers with their monitors.
fn about_watching(place: &Place) -> Vec<Value> {
    let add = ["polls", "add", "tenant-1/shop", "--tcp", "127.0.0.1:9", "--interval", "1h"];
    place.skep(&add);
    place.skep(&["servers", "add", "ntp-1", "--ip", "192.0.2.17"]);
    let monitor = ["monitors", "add", "ams-3", "--ip", "192.0.2.7", "--status", "active"];
    place.skep(&[&monitor[..], &["--no-key"]].concat());
    place.skep(&["servers", "review", "ntp-1"]);
    vec![
        place.first("/api/v1/polls/endpoints", "endpoints"),
        place.first("/api/v1/polls/endpoints/tenant-1%2Fshop/moves", "moves"),
        place.first("/api/v1/servers", "servers"),
        place.first("/api/v1/servers/ntp-1/history", "changes"),
        place.first("/api/v1/servers/ntp-1/monitors", "assignments"),
        place.first("/api/v1/monitors/ams-3/assignments", "assignments"),
        place.get("/api/v1/monitoring/explain/ntp-1/ams-3"),
    ]
}

/// Pools, a task that hangs, and one that was given up.
fn about_pools(place: &Place) -> (Vec<Value>, std::sync::mpsc::SyncSender<()>) {
    let pools = &place.node.shared().work.pools;
    let (end, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let hung = Task::blocking("hung", move |_| {
        let _ = wait.lock().map(|wait| wait.recv());
        Ok(())
    });
    pools.try_submit(Tier::High, hung.timeout(Duration::from_millis(20))).expect("there is room");
    let broken = Task::blocking("broken", |_| Err(Failure::permanent("as planned")));
    pools.try_submit(Tier::Normal, broken).expect("there is room");
    let views = vec![
        place.first("/metrics/pools", "pools"),
        place.get("/metrics/pools/critical")["pool"].clone(),
        place.first("/api/v1/pools/scaling", "scaling"),
        place.first("/api/v1/pools/history", "scaling"),
        place.first("/metrics/pools/high/stuck", "stuck"),
        place.first("/api/v1/pools/dead", "letters"),
    ];
    (views, end)
}

/// Messages, and those that were set aside: explained here, because they go back at the end, which
/// is what is given.
fn about_messages(place: &Place) -> Vec<Value> {
    let lost = json!({ "items": [{ "queue": "orders", "payload": 1, "transactionId": "a b/c" }] });
    place.post("/api/v1/push", &lost);
    let message = place.first("/api/v1/messages?queue=orders", "messages");
    let path = format!("/api/v1/messages/{}", message["partitionId"].as_str().expect("an id"));
    let one = place.get(&format!("{path}/a%20b%2Fc"));
    let views = vec![message, one];
    for view in &views {
        assert_eq!(place.explained(view).1["rule"], "pending");
    }
    place.post(&format!("{path}/a%20b%2Fc/dlq"), &json!({ "error": "no such customer" }));
    let letter = place.first("/api/v1/dlq", "messages");
    assert_eq!(place.explained(&letter).1["would_change"][0], letter["wouldChange"]);
    place.post("/api/v1/dlq/redrive", &json!({ "queue": "orders" }));
    let path = "/api/v1/dlq/redrives";
    let done = || Some(place.first(path, "redrives")).filter(|one| one["state"] == "done");
    vec![eventually("they went back", done)]
}

/// Nodes, and where requests go.
fn about_requests(place: &Place) -> Vec<Value> {
    place.skep(&["routes", "add", "shop", "--host", "shop.example", "--to", "127.0.0.1:9"]);
    let request = "GET /cart HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
    until("the route is there", || {
        let mut stream = TcpStream::connect(place.gateway()).expect("connects");
        stream.write_all(request.as_bytes()).expect("sends");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 50")
    });
    // Nobody has failed on this one.
    place.skep(&["routes", "add", "quiet", "--host", "quiet.example", "--to", "127.0.0.1:9"]);
    let test = json!({ "url": "http://quiet.example/cart?a=1&b=2", "method": "GET" });
    vec![
        place.first("/api/v1/cluster/balance", "servers"),
        place.get("/api/v1/cluster/explain?key=orders:mail"),
        place.post("/api/v1/routes/test", &test),
        place.post("/api/v1/routes/test", &json!({ "url": "http://nobody.example/" })),
        place.first("/api/v1/routes/events", "events"),
        place.first("/api/v1/access?route=shop", "entries"),
        place.first("/api/v1/access?route=-", "entries"),
        place.first("/api/v1/audit", "entries"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_gives_every_decision_an_id_that_explain_takes() {
    let mut place = Place::start().await;
    let (of_pools, end) = about_pools(&place);
    let mut views = about_sessions(&place);
    views.extend(about_messages(&place));
    views.extend(about_watching(&place));
    views.extend(of_pools);
    views.extend(about_requests(&place));
    let mut seen: BTreeSet<String> = BTreeSet::from(["letter", "message"].map(str::to_owned));
    for view in &views {
        let (id, told) = place.explained(view);
        assert_eq!(told["id"], id, "{view}");
        seen.insert(id.split(':').next().unwrap_or_default().to_owned());
        // Both take what would change it from the same place. That of a monitor may have the time
        // in it.
        let would = ["would_change", "wouldChange"].iter().find_map(|name| view[*name].as_str());
        let would = would.filter(|would| !would.is_empty() && !id.starts_with("monitor:"));
        if let Some(would) = would {
            let all = told["would_change"].as_array().expect("a list");
            assert!(all.iter().any(|one| one == would), "{id}: {would:?} is not in {all:?}");
        }
    }
    // The code of an error is its id.
    let code = place.get("/api/v1/nothing")["code"].as_str().expect("a code").to_owned();
    assert!(place.skep(&["explain", &code]).contains(&code));
    seen.insert("error".to_owned());
    // Moves need several nodes, see `cluster.rs`.
    seen.insert(Kind::Move.described().word.to_owned());
    let all: BTreeSet<String> = KINDS.iter().map(|kind| kind.word.to_owned()).collect();
    assert_eq!(seen, all);
    drop(end);
    place.node.stop();
    place.node.ended().await.expect("ends well");
    place.stores.close().await;
}
