//! `cargo xtask bench`: benchmarks, built for release.

use crate::install::install_missing;
use crate::run::{cargo, step};
use skep_testkit::programs::{NEEDED, PEERS};

/// The benchmarks of the workspace member `benches`, a program each.
const BENCHMARKS: &[(&str, &str)] = &[
    ("backup", "backups of a running node against VACUUM INTO and a copy of the file"),
    ("cluster", "deciding, hops against nginx, wakes across nodes, forwarding on and off, kills"),
    ("edge", "requests a second against nginx, idle connections, the dashboard's weight"),
    ("footprint", "size of the binary, memory of an idle node, start to ready"),
    ("forward", "the forwarder alone against nginx as the hop"),
    ("monitors", "plans of one server and of a fleet, how their cost grows, what-ifs, snapshots"),
    ("polls", "calls and Redis time against a key for each endpoint, lateness, handover, failover"),
    ("pools", "worker pools against tokio::spawn and crossbeam with DashMap, isolation, limits"),
    ("queues", "push, pop and ack against a PostgreSQL table and NATS, wake-ups, many partitions"),
    ("routes", "requests a second through the proxy against nginx and HAProxy, idle connections"),
    ("sessions", "messages, new sessions and memory of the gateway against nginx and HAProxy"),
    ("store", "durable rows a second, group commit against one transaction a call"),
];

/// Runs a benchmark, or lists them.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let Some((name, rest)) = arguments.split_first() else {
        for (name, what) in BENCHMARKS {
            println!("{name:12} {what}");
        }
        return Ok(());
    };
    if !BENCHMARKS.iter().any(|(known, _)| known == name) {
        let names: Vec<&str> = BENCHMARKS.iter().map(|(known, _)| *known).collect();
        return Err(format!("no benchmark {name:?}, there are: {}", names.join(", ")));
    }
    install_missing(NEEDED)?;
    install_missing(PEERS)?;
    step("the product", cargo().args(["build", "--release", "--package", "skep", "--quiet"]))?;
    let run = ["run", "--release", "--quiet", "--package", "skep-benches", "--bin", name, "--"];
    step(name, cargo().args(run).args(rest))
}
