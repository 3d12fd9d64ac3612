//! What a node costs before it does anything: size of the binary, memory of an idle node, time from
//! start to ready on an existing database, time to stop when idle. Medians of several starts.
//!
//! Goals: at most 20 MB resident, at most 300 ms to ready.

use skep::report::Report;
use skep_testkit::{Folder, Node};
use std::process::ExitCode;
use std::time::Instant;

const STARTS: usize = 7;
const RESIDENT_MB_MAX: f64 = 20.0;
const READY_MS_MAX: f64 = 300.0;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let skep = skep_benches::skep();
    let folder = Folder::new("footprint");
    let data = folder.join("data");
    let mut report = Report::new("bench footprint");
    report.figure("binary_mb", std::fs::metadata(&skep)?.len() as f64 / 1e6);
    let (mut ready, mut resident, mut stop) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=STARTS {
        let started = Instant::now();
        let node = Node::start(&skep, &data, &[]);
        let took = started.elapsed().as_secs_f64() * 1e3;
        node.get("/health");
        let memory = skep_benches::resident_kb(node.process().pid())? / 1e3;
        let stopping = Instant::now();
        let ended = node.stop();
        if ended.code != 0 {
            report.fail(format!("a node ended with {}", ended.code));
        }
        if round == 0 {
            // The first start makes the database.
            continue;
        }
        ready.push(took);
        resident.push(memory);
        stop.push(stopping.elapsed().as_secs_f64() * 1e3);
    }
    let figures = [("start_to_ready_ms", ready), ("resident_mb", resident), ("stop_ms", stop)];
    for (name, values) in figures {
        report.figure(name, skep::bench::median(values));
    }
    for (name, most) in [("resident_mb", RESIDENT_MB_MAX), ("start_to_ready_ms", READY_MS_MAX)] {
        let value = report.figures[name];
        if value > most {
            report.fail(format!("{name} is {value:.1}, the goal is at most {most}"));
        }
    }
    Ok(skep_benches::finish(&report))
}
