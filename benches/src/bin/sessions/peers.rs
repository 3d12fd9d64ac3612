//! What is measured: the worker itself, nginx, HAProxy and the gateway before it.

use crate::Outcome;
use crate::load::RESULT;
use serde_json::Value;
use skep_benches::peers::{self, Peer};
use skep_testkit::{Folder, Node, Process, http};
use std::process::Command;

/// Everything that runs while it is measured.
pub struct Stage {
    pub routes: Vec<Route>,
    _worker: Process,
    _folder: Folder,
}

/// A way to the worker.
pub struct Route {
    pub name: &'static str,
    pub address: String,
    /// What is on the way; nothing for the direct one.
    pub proxy: Option<Proxy>,
}

/// A program between client and worker.
pub enum Proxy {
    Peer(Peer),
    Product(Box<Product>),
}

/// The product, and where it keeps things.
pub struct Product {
    pub node: Node,
    _servers: Option<Servers>,
    _folder: Folder,
}

/// Where nodes agree, and where they keep things.
type Servers = (skep_testkit::Redis, skep_testkit::TestDatabase<'static>);

impl std::ops::Deref for Product {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Proxy {
    fn pid(&self) -> i32 {
        match self {
            Proxy::Peer(peer) => peer.process.pid(),
            Proxy::Product(product) => product.node.process().pid(),
        }
    }
}

/// Names of the routes, in the order of a table's columns.
pub const DIRECT: &str = "direct";
pub const NGINX: &str = "nginx";
pub const HAPROXY: &str = "haproxy";
pub const GATEWAY: &str = "gateway";
/// The gateway of a node that agrees with others in Redis.
pub const AGREED: &str = "agreed";

impl Stage {
    pub fn start() -> Outcome<Self> {
        let folder = Folder::new("sessions");
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("as-worker");
        let worker = Process::start("worker", &command, "KILL");
        let address = listening(&worker);
        let direct = Route { name: DIRECT, address: address.clone(), proxy: None };
        let routes = vec![
            direct,
            nginx(&folder, &address)?,
            haproxy(&folder, &address)?,
            gateway(GATEWAY, &[&address], false)?,
            gateway(AGREED, &[&address], true)?,
        ];
        Ok(Stage { routes, _worker: worker, _folder: folder })
    }
}

impl Route {
    /// Runs a load through it to its end.
    pub fn load(&self, words: &[&str]) -> Outcome<Value> {
        let load = self.start_load(words)?;
        let ended = load.wait();
        if ended.code != 0 {
            return Err(format!("the load on {} failed:\n{}", self.name, load.log()).into());
        }
        result(&load)
    }

    /// Starts a load that goes on, and waits for its result.
    pub fn hold(&self, words: &[&str]) -> Outcome<Process> {
        let load = self.start_load(words)?;
        result(&load)?;
        Ok(load)
    }

    fn start_load(&self, words: &[&str]) -> Outcome<Process> {
        let (kind, rest) = words.split_first().ok_or("what load?")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["as-load", kind, &self.address]).args(rest);
        Ok(Process::start("load", &command, "KILL"))
    }

    /// Seconds that the proxy and its children have computed.
    pub fn cpu_seconds(&self) -> Outcome<f64> {
        self.proxy.as_ref().map_or(Ok(0.0), |proxy| peers::cpu_seconds(proxy.pid()))
    }

    /// Memory of the proxy and its children, in kilobytes of a thousand bytes.
    pub fn resident_kb(&self) -> Outcome<f64> {
        self.proxy.as_ref().map_or(Ok(0.0), |proxy| peers::resident_kb(proxy.pid()))
    }
}

fn result(load: &Process) -> Outcome<Value> {
    let line = load.wait_for_line(RESULT);
    Ok(serde_json::from_str(line.trim_start_matches(RESULT))?)
}

fn listening(process: &Process) -> String {
    let line = process.wait_for_line("listening on ");
    line.trim_start_matches("listening on ").trim().to_owned()
}

fn nginx(folder: &Folder, worker: &str) -> Outcome<Route> {
    let location = format!(
        "location / {{ proxy_pass http://{worker}; proxy_http_version 1.1;
                       proxy_set_header Upgrade $http_upgrade;
                       proxy_set_header Connection upgrade;
                       proxy_read_timeout 1h; proxy_send_timeout 1h; }}"
    );
    Ok(route(NGINX, peers::nginx(folder, "", &location)?))
}

fn haproxy(folder: &Folder, worker: &str) -> Outcome<Route> {
    Ok(route(HAPROXY, peers::haproxy(folder, "option forwardfor", "", &[worker])?))
}

/// A node with these settings; the program was built beside this one.
pub fn product(settings: &[&str]) -> Product {
    start_product(settings, None)
}

fn start_product(settings: &[&str], servers: Option<Servers>) -> Product {
    let program = std::env::current_exe().unwrap_or_default().with_file_name("skep");
    let folder = Folder::new("product");
    let mut arguments = Vec::new();
    for setting in settings.iter().chain(&["log.access=false", "log.level=warn"]) {
        arguments.extend(["--set".to_owned(), (*setting).to_owned()]);
    }
    if let Some((redis, database)) = &servers {
        arguments.extend(["--coordination".to_owned(), redis.url()]);
        arguments.extend(["--database".to_owned(), database.url()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let node = Node::start(&program, folder.path(), &arguments);
    Product { node, _servers: servers, _folder: folder }
}

/// Registers a worker, and says under which number its program is known.
pub fn register(node: &Node, name: &str, url: &str, life: u32, recycled: bool) -> Outcome<u64> {
    let body = serde_json::json!({
        "name": name, "kind": "chromium", "url": url, "start": life.to_string(),
        "recycled": recycled,
    });
    let json = [("content-type", "application/json")];
    let url = node.url("/api/v1/sessions/workers");
    let answer = http::send("POST", &url, &json, Some(&body.to_string()))?;
    Ok(answer.json()["incarnation"].as_u64().ok_or(answer.body)?)
}

/// The gateway of a node that gives each session a worker of these; none ever wears out.
pub fn gateway(name: &'static str, workers: &[&str], agreed: bool) -> Outcome<Route> {
    let servers =
        agreed.then(|| (skep_testkit::Redis::start(), skep_testkit::Postgres::shared().database()));
    let settings =
        ["sessions.slots=1000000", "sessions.lifetime_max=0", "sessions.heartbeat_timeout=24h"];
    let product = start_product(&settings, servers);
    for (number, worker) in workers.iter().enumerate() {
        register(&product, &format!("worker-{number}"), &format!("ws://{worker}/"), 0, false)?;
    }
    let address = product.gateway().to_owned();
    Ok(Route { name, address, proxy: Some(Proxy::Product(Box::new(product))) })
}

fn route(name: &'static str, peer: Peer) -> Route {
    let address = peer.address.clone();
    Route { name, address, proxy: Some(Proxy::Peer(peer)) }
}
