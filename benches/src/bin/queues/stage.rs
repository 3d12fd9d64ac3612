//! Everything that runs while it is measured.

use crate::Outcome;
use crate::nats::Nats;
use rustix::fs::statfs;
use skep_benches::peers::{self, Peer};
use skep_testkit::{Folder, Node, Postgres, Process};
use std::process::Command;

pub const SKEP: &str = "skep";
pub const TABLE: &str = "table";
pub const NATS: &str = "nats";
/// The same server as [`NATS`], with batches that are kept whole.
pub const NATS_BATCHES: &str = "nats_batches";

/// Somebody who takes messages.
pub struct Line {
    pub name: &'static str,
    pub address: String,
    /// All that work for it.
    pids: Vec<i32>,
}

impl Line {
    pub fn new(name: &'static str, address: &str, pids: &[i32]) -> Self {
        Line { name, address: address.to_owned(), pids: pids.to_vec() }
    }

    /// Seconds that its processes have computed.
    pub fn cpu_seconds(&self) -> Outcome<f64> {
        self.pids.iter().map(|pid| peers::cpu_seconds_ever(*pid)).sum()
    }
}

/// Data that must be on disk has to be on a disk.
pub fn folder(purpose: &str) -> Outcome<Folder> {
    let folder = Folder::new(purpose);
    // The number that Linux has for a file system in memory.
    if statfs(folder.path())?.f_type == 0x0102_1994 {
        let path = folder.path().display();
        return Err(format!("{path} is in memory; set TMPDIR to a folder on a disk").into());
    }
    Ok(folder)
}

/// A node without logs, as the others have none.
pub fn product(folder: &Folder, name: &str, more: &[&str]) -> Node {
    let mut arguments = Vec::new();
    for setting in ["log.access=false", "log.level=warn", "access_log.enabled=false"] {
        arguments.extend(["--set", setting]);
    }
    arguments.extend(more);
    Node::start(&skep_benches::skep(), &folder.join(name), &arguments)
}

pub fn line(node: &Node) -> Line {
    Line::new(SKEP, node.address(), &[node.process().pid()])
}

/// The table, its server, and the database below.
pub struct Table {
    pub line: Line,
    _server: Process,
    _database: Postgres,
}

impl Table {
    pub fn start() -> Outcome<Self> {
        let database = peers::durable_postgres();
        let url = format!("postgres://skep@127.0.0.1:{}/postgres", database.port());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["as-table", &url]);
        let server = Process::start("table", &command, "KILL");
        let address = server.wait_for_line("listening on ");
        let address = address.trim_start_matches("listening on ").trim();
        let pids = [server.pid(), peers::postgres_pid(&database)?];
        Ok(Table { line: Line::new(TABLE, address, &pids), _server: server, _database: database })
    }
}

/// NATS with an empty stream.
pub async fn nats(folder: &Folder, durable: bool) -> Outcome<Peer> {
    let peer = peers::nats(folder, durable)?;
    Nats::open(&peer.address, 0).await?.make_stream().await?;
    Ok(peer)
}
