//! Monitors: what a review costs, for one server and for the fleet.
//!
//! Goals: one server with 500 monitors in at most 100 µs, twice the monitors in at most 2.2 times
//! that, 5,000 such servers with a verdict for every pair in at most 0.5 s on one thread and
//! 300 MB, one pair explained in at most 5 ms, and another policy compared over the fleet in 1 s.
//! Reading a snapshot and writing its plans are told beside that.

mod fleet;
mod offline;

use skep::report::Report;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Name, least and most.
const GOALS: &[(&str, f64, f64)] = &[
    ("server_500_us", 0.0, 100.0),
    ("growth_500_to_1000", 0.0, 2.2),
    ("explain_ms", 0.0, 5.0),
    ("fleet_s", 0.0, 0.5),
    ("fleet_mb", 0.0, 300.0),
    ("what_if_s", 0.0, 1.0),
    ("what_if_growth", 0.0, 2.2),
    ("snapshot_growth", 0.0, 2.2),
];

fn main() -> Outcome<ExitCode> {
    let mut report = Report::new("bench monitors");
    for (name, value) in fleet::run()?.into_iter().chain(offline::run()?) {
        report.figure(&name, value);
    }
    for (name, least, most) in GOALS {
        let Some(value) = report.figures.get(*name).copied() else { continue };
        if !(*least..=*most).contains(&value) {
            report.fail(format!("{name} is {value:.2}, the goal is {least} to {most}"));
        }
    }
    Ok(skep_benches::finish(&report))
}
