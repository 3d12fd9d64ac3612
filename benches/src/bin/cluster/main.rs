//! The cluster: what deciding costs.
//!
//! Goal: where a request is served is decided in at most 200 ns, with 3 members and with 50.

mod decision;

use skep::report::Report;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Name, least and most.
const GOALS: &[(&str, f64, f64)] = &[("decision_ns_3", 0.0, 200.0), ("decision_ns_50", 0.0, 200.0)];

fn main() -> Outcome<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|word| *word == part);
    let mut report = Report::new("bench cluster");
    if wants("decision") {
        for (name, value) in decision::run() {
            report.figure(&name, value);
        }
    }
    for (name, least, most) in GOALS {
        let Some(value) = report.figures.get(*name).copied() else { continue };
        if !(*least..=*most).contains(&value) {
            report.fail(format!("{name} is {value:.2}, the goal is {least} to {most}"));
        }
    }
    Ok(skep_benches::finish(&report))
}
