//! Everything that runs while it is measured.

use crate::Outcome;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skep_benches::peers::{self, Peer};
use skep_testkit::{Folder, Node, Process};
use std::process::Command;

pub const DIRECT: &str = "direct";
pub const NGINX: &str = "nginx";
pub const HAPROXY: &str = "haproxy";
pub const SKEP: &str = "skep";
/// The product with its access log.
pub const LOGGED: &str = "logged";

/// A way to the upstream.
pub struct Line {
    pub name: &'static str,
    pub url: String,
    pid: Option<i32>,
}

pub struct Stage {
    pub lines: Vec<Line>,
    nodes: Vec<Node>,
    _peers: Vec<Peer>,
    _upstream: Process,
    _folder: Folder,
}

impl Line {
    /// Seconds that the proxy has computed.
    pub fn cpu_seconds(&self) -> Outcome<f64> {
        self.pid.map_or(Ok(0.0), peers::cpu_seconds)
    }
}

impl Stage {
    /// An upstream with answers of this size, and everybody before it; or the product alone, with
    /// and without its log.
    pub fn start(size: usize, log: bool) -> Outcome<Self> {
        let folder = Folder::new("routes");
        let (upstream, address) = upstream(size)?;
        let mut lines = vec![Line { name: DIRECT, url: format!("http://{address}/"), pid: None }];
        let mut all_peers = Vec::new();
        if !log {
            for (name, peer) in
                [(NGINX, nginx(&folder, &address)?), (HAPROXY, haproxy(&folder, &address)?)]
            {
                let (url, pid) = (format!("http://{}/", peer.address), Some(peer.process.pid()));
                lines.push(Line { name, url, pid });
                all_peers.push(peer);
            }
        }
        let mut nodes = Vec::new();
        let wanted = if log { vec![(SKEP, false), (LOGGED, true)] } else { vec![(SKEP, false)] };
        for (name, logged) in wanted {
            let node = product(&folder, name, &address, logged)?;
            let url = format!("http://{}/", node.gateway());
            lines.push(Line { name, url, pid: Some(node.process().pid()) });
            nodes.push(node);
        }
        let (_peers, _upstream, _folder) = (all_peers, upstream, folder);
        Ok(Stage { lines, nodes, _peers, _upstream, _folder })
    }

    /// Entries of the access log for which there was no room.
    pub fn entries_dropped(&self) -> Outcome<f64> {
        self.entries("dropped")
    }

    /// Entries of the access log that are in the database.
    pub fn entries_written(&self) -> Outcome<f64> {
        self.entries("written")
    }

    fn entries(&self, outcome: &str) -> Outcome<f64> {
        let node = self.nodes.last().ok_or("no node")?;
        let text = node.get("/metrics").body;
        let entries = |line: &&str| {
            line.starts_with("skep_access_log_entries_total") && line.contains(outcome)
        };
        let line =
            text.lines().find(entries).ok_or_else(|| format!("nothing {outcome}: {text}"))?;
        Ok(line.rsplit(' ').next().ok_or("no value")?.parse()?)
    }
}

/// Starts an upstream and says where it listens.
pub fn upstream(size: usize) -> Outcome<(Process, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["as-upstream", &size.to_string()]);
    let upstream = Process::start("upstream", &command, "KILL");
    let line = upstream.wait_for_line("listening on ");
    let address = line.trim_start_matches("listening on ").trim().to_owned();
    Ok((upstream, address))
}

/// As people who want speed set it up: connections to the upstream are kept.
fn nginx(folder: &Folder, upstream: &str) -> Outcome<Peer> {
    let http = format!(
        "upstream services {{ server {upstream}; keepalive 512; keepalive_requests 1000000; }}
         keepalive_requests 1000000;"
    );
    let location = "location / { proxy_pass http://services; proxy_http_version 1.1;
                                 proxy_set_header Connection \"\";
                                 proxy_set_header Host $host;
                                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }";
    peers::nginx(folder, &http, location)
}

fn haproxy(folder: &Folder, upstream: &str) -> Outcome<Peer> {
    peers::haproxy(folder, "option forwardfor", "http-reuse always", &[upstream])
}

/// A node with one route.
pub fn product(folder: &Folder, name: &str, upstream: &str, logged: bool) -> Outcome<Node> {
    let config = folder.join(&format!("{name}.toml"));
    let routes =
        format!("[[routes]]\nname = \"bench\"\nupstreams = [\"{upstream}\"]\nlog = {logged}\n");
    std::fs::write(&config, routes)?;
    let config = config.display().to_string();
    let arguments = [
        "--config",
        &config,
        "--set",
        "log.access=false",
        "--set",
        "log.level=warn",
        "--set",
        "proxy.idle_timeout=10m",
    ];
    Ok(Node::start(&skep_benches::skep(), &folder.join(name), &arguments))
}

/// Everybody inherits it, and some hold ten thousand connections.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it is not allowed, the limit that there is must do.
    let _ = setrlimit(Resource::Nofile, raised);
}
