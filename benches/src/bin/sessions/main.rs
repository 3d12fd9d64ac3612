//! Sessions: what the gateway costs against no proxy at all, nginx and HAProxy.
//!
//! Goals: messages of 256 B and 16 KiB at least as many a second and as fast as through the better
//! of nginx and HAProxy; at least as many new sessions a second, 32 at a time; at most 12 KB for
//! each of 1,000 idle sessions; a worker that never answers adds at most 250 ms.
//!
//! Workers, load and proxies are processes of their own, all on this machine: the more a proxy
//! computes, the less is left for the others, so that a ratio is one of everything together. What
//! the proxy itself computes for a message is in the `cpu` figures.

mod load;
mod measure;
mod peers;
mod worker;

use skep::report::Report;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Name, least and most. Ratios are to the better of nginx and HAProxy.
const GOALS: &[(&str, f64, f64)] = &[
    ("relay_256_rate_ratio", 1.0, f64::INFINITY),
    ("relay_256_p50_ratio", 0.0, 1.0),
    ("relay_256_p99_ratio", 0.0, 1.0),
    ("relay_16384_rate_ratio", 1.0, f64::INFINITY),
    ("relay_16384_p50_ratio", 0.0, 1.0),
    ("relay_16384_p99_ratio", 0.0, 1.0),
    ("connect_rate_ratio", 1.0, f64::INFINITY),
    ("idle_session_kb", 0.0, 12.0),
    ("silent_worker_added_ms_max", 150.0, 250.0),
];

fn main() -> Outcome<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["as-worker"] => return worker::run().map(|()| ExitCode::SUCCESS),
        ["as-load", rest @ ..] => return load::run(rest).map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    let parts: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|word| **word == part);
    let mut report = Report::new("bench sessions");
    // On a stage of its own: memory is best measured right after a start.
    if wants("idle") {
        measure::idle(&peers::Stage::start()?, &mut report)?;
    }
    let stage = peers::Stage::start()?;
    if wants("relay") {
        measure::relay(&stage, &mut report)?;
    }
    if wants("connect") {
        measure::connect(&stage, &mut report)?;
    }
    if wants("burst") {
        measure::burst(&stage, &mut report)?;
    }
    if wants("faults") {
        measure::faults(&stage, &mut report)?;
    }
    for (name, least, most) in GOALS {
        let Some(value) = report.figures.get(*name).copied() else { continue };
        if !(*least..=*most).contains(&value) {
            report.fail(format!("{name} is {value:.2}, the goal is {least} to {most}"));
        }
    }
    Ok(skep_benches::finish(&report))
}
