//! Backups of a running node, as `skep backup` makes them, against what a person would do without
//! it: `VACUUM INTO` with SQLite itself, and a plain copy of the file, each with an fsync at its
//! end. In turns, on the same database and the same disk; the medians count.
//!
//! Skep's is a `VACUUM INTO` too, then goes through HTTP, has a checksum that both sides reckon,
//! and is a file when it is whole. Goal: at least 0.2 times as fast as the `VACUUM INTO` alone.

use serde_json::json;
use skep::bench::median;
use skep::report::Report;
use skep_benches::Outcome;
use skep_testkit::{Folder, Node};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

const GOAL: f64 = 0.2;
const ROUNDS: usize = 7;
/// Pushes of ten messages each.
const PUSHES: usize = 100;
const MESSAGE_BYTES: usize = 200_000;

fn main() -> Outcome<ExitCode> {
    let folder = Folder::new("bench-backup");
    let data = folder.join("data");
    let node = Node::start(&skep_benches::skep(), &data, &[]);
    fill(&node)?;
    let database = data.join("skep.db");
    let mut seconds = [const { Vec::new() }; 3];
    let mut bytes = 0;
    // The first round only warms up.
    for round in 0..=ROUNDS {
        let took = [
            timed(|| backup(&node, &folder.join("skep.backup")))?,
            timed(|| vacuum(&database, &folder.join("vacuum.db")))?,
            timed(|| copy(&database, &folder.join("copy.db")))?,
        ];
        bytes = std::fs::metadata(folder.join("vacuum.db"))?.len();
        std::fs::remove_file(folder.join("vacuum.db"))?;
        if round > 0 {
            for (all, one) in seconds.iter_mut().zip(took) {
                all.push(one);
            }
        }
    }
    let [own, vacuum, copy] = seconds;
    let ratios =
        |peer: &[f64]| median(peer.iter().zip(&own).map(|(peer, own)| peer / own).collect());
    let (to_vacuum, to_copy) = (ratios(&vacuum), ratios(&copy));
    let mut report = Report::new("bench backup");
    let megabytes = bytes as f64 / 1e6;
    report.figure("database_mb", megabytes);
    report.figure("ratio_to_vacuum_into", to_vacuum);
    report.figure("ratio_to_file_copy", to_copy);
    report.figure("backup_mb_per_second", megabytes / median(own));
    report.figure("vacuum_into_mb_per_second", megabytes / median(vacuum));
    report.figure("file_copy_mb_per_second", megabytes / median(copy));
    if to_vacuum < GOAL {
        report.fail(format!("it is {to_vacuum:.2} times as fast, the goal is {GOAL}"));
    }
    node.stop();
    Ok(skep_benches::finish(&report))
}

fn timed(work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64())
}

/// Messages that no two are alike of.
fn fill(node: &Node) -> Outcome<()> {
    for push in 0..PUSHES {
        let items: Vec<_> = (0..10)
            .map(|number| {
                let text = format!("{:016x}", push * 10 + number).repeat(MESSAGE_BYTES / 16);
                json!({ "queue": "bulk", "payload": text })
            })
            .collect();
        let body = json!({ "items": items }).to_string();
        let answer = node.send("POST", "/api/v1/push", &[], Some(&body));
        if answer.status != 201 {
            return Err(format!("a push was answered with {}", answer.body).into());
        }
    }
    Ok(())
}

fn backup(node: &Node, file: &Path) -> Outcome<()> {
    let mut command = Node::command(&skep_benches::skep());
    command.arg("backup").arg(file).arg("--force").env("SKEP_URL", node.url(""));
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

fn vacuum(database: &Path, file: &Path) -> Outcome<()> {
    let connection = rusqlite::Connection::open(database)?;
    connection.execute("VACUUM INTO ?1", [file.to_str().ok_or("a name that is text")?])?;
    Ok(File::open(file)?.sync_all()?)
}

fn copy(database: &Path, file: &Path) -> Outcome<()> {
    std::fs::copy(database, file)?;
    Ok(File::open(file)?.sync_all()?)
}
