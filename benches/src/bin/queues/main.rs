//! Queues: push, pop and acknowledge against a table in PostgreSQL and NATS JetStream, all durable.
//!
//! Goals: at least three times the messages a second of a table in PostgreSQL behind an HTTP server
//! of the same kind, and ahead of NATS, pushed 1, 10 and 100 at a time; on PostgreSQL at most 24
//! and 40 microseconds of processor time for a message pushed, and popped and acknowledged, 100 at
//! a time; 3 ms (99 of 100: 15 ms) from a push to a consumer that waits, at 1,000 messages a
//! second; with a million partitions at most 400 MB, and a pop at most 1.5 times as slow as with a
//! thousand; pushes at most 1.5 times as slow (99 of 100) while a million messages are deleted; an
//! idle node at most 20 MB.
//!
//! Messages have 256 bytes, and everybody confirms them only when they are on disk: NATS syncs
//! always, PostgreSQL commits synchronously. NATS gets its messages one after the other without
//! waiting in between, and in its atomic batches too; ratios are to the better of the two. Neither
//! has to know a message again that is sent twice; the product and the table do. Nobody writes a
//! log. Load and servers are on this machine: the more a server computes, the less is left for the
//! load. What the server's processes computed is in the `cpu` figures. Everybody takes turns.

mod idle;
mod load;
mod nats;
mod paced;
mod partitions;
mod pop;
mod postgres;
mod print;
mod purge;
mod push;
mod stage;
mod table;
mod wake;

use skep::report::Report;
use skep_benches::{Outcome, bodies, http, parts};
use std::process::ExitCode;
use std::time::Duration;

const ROUNDS: usize = 3;
const TURN: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_millis(500);

const PARTS: &[&str] = &["push", "pop", "wake", "partitions", "purge", "postgres", "idle"];

fn main() -> Outcome<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [part, database] = words.as_slice()
        && part == "as-table"
    {
        return table::run(database).map(|()| ExitCode::SUCCESS);
    }
    parts::run("bench queues", PARTS, run, print::GOALS, print::table)
}

async fn run(part: &str, report: &mut Report) -> Outcome<()> {
    match part {
        "push" => push::run(report).await,
        "pop" => pop::run(report).await,
        "wake" => wake::run(report).await,
        "partitions" => partitions::run(report).await,
        "purge" => purge::run(report).await,
        "postgres" => postgres::run(report).await,
        _ => idle::run(report).await,
    }
}
