//! Sessions: what the gateway costs against no proxy at all, nginx and HAProxy.
//!
//! Goals: messages of 256 B and 16 KiB at least as many a second and as fast as through the better
//! of nginx and HAProxy; at least as many new sessions a second, 32 at a time; at most 12 KB for
//! each of 1,000 idle sessions; a worker that never answers adds at most 250 ms; connecting takes
//! 0.3 ms longer than without a gateway, 1 ms where nodes agree in Redis; a choice and its update
//! take 0.3 us each in a fleet of any size; and never more workers are out than may be.
//!
//! Workers, load and proxies are processes of their own, all on this machine: the more a proxy
//! computes, the less is left for the others, so that a ratio is one of everything together. What
//! the proxy itself computes for a message is in the `cpu` figures.

mod choice;
mod load;
mod measure;
mod out;
mod peers;
mod redis;
mod worker;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
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
    ("connect_added_ms", f64::NEG_INFINITY, 0.3),
    ("connect_added_ms_redis", f64::NEG_INFINITY, 1.0),
    ("burst_p99_ratio_to_direct", 0.0, 1.5),
    ("idle_session_kb", 0.0, 12.0),
    ("choice_and_close_ns_10", 0.0, 600.0),
    ("choice_and_close_ns_1000", 0.0, 600.0),
    ("choice_and_close_ns_10000", 0.0, 600.0),
    ("redis_scan_to_checkout_1000", 20.0, f64::INFINITY),
    ("out_most_at_once", 0.0, 1.0),
    ("out_refused", 0.0, 0.0),
    ("silent_worker_added_ms_max", 150.0, 250.0),
];

fn main() -> Outcome<ExitCode> {
    raise_file_limit();
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
    if wants("choice") {
        choice::run(&mut report)?;
    }
    if wants("redis") {
        redis::run(&mut report)?;
    }
    if wants("out") {
        out::run(&mut report)?;
    }
    let staged = ["relay", "connect", "burst", "faults"];
    if !staged.into_iter().any(wants) {
        return Ok(conclude(report));
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
    Ok(conclude(report))
}

/// Workers, load and peers inherit it, and each holds a thousand connections at times.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it is not allowed, the limit that there is must do.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Holds the figures against the goals.
fn conclude(mut report: Report) -> ExitCode {
    for (name, least, most) in GOALS {
        let Some(value) = report.figures.get(*name).copied() else { continue };
        if !(*least..=*most).contains(&value) {
            report.fail(format!("{name} is {value:.2}, the goal is {least} to {most}"));
        }
    }
    skep_benches::finish(&report)
}
