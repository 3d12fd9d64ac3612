//! The cluster: what deciding and forwarding cost, how soon others wake, and who notices a death.
//!
//! Goals: where a request is served is decided in at most 200 ns, with 3 members and with 50; a
//! hop adds at most 150 microseconds to half of the requests and 600 to 99 of 100, and less than
//! nginx adds; a push on one node wakes a pop that waits on another within 1 ms (99 of 100: 5 ms);
//! three nodes that forward serve at least 0.95 of what they serve without; when a node is killed
//! nobody sees an error who was not connected to it, and the others answer within 2 seconds.
//!
//! Nodes are processes of their own, on this machine, with a secret, and share a PostgreSQL that
//! has a commit on disk before it confirms it, unless a part says otherwise. Nobody writes a log.
//! Whatever is compared takes turns.

mod decision;
mod hop;
mod kill;
mod print;
mod spans;
mod stage;
mod throughput;
mod wake;
mod writes;

use skep::report::Report;
use skep_benches::{Outcome, parts};
use std::process::ExitCode;

const PARTS: &[&str] = &["decision", "hop", "wake", "writes", "throughput", "kill"];

fn main() -> Outcome<ExitCode> {
    parts::run("bench cluster", PARTS, run, &print::goals(), print::table)
}

async fn run(part: &str, report: &mut Report) -> Outcome<()> {
    match part {
        "decision" => decision::run().into_iter().for_each(|(name, ns)| report.figure(&name, ns)),
        "hop" => hop::run(report).await?,
        "wake" => wake::run(report).await?,
        "writes" => writes::run(report).await?,
        "throughput" => throughput::run(report).await?,
        _ => kill::run(report).await?,
    }
    Ok(())
}
