//! Side-by-side benchmarks: Skep and a peer, in one run, as ratios.
//!
//! Each is a program in `src/bin`, run by `cargo xtask bench NAME`. With `--json` it prints one
//! [`Report`]; it ends with 0 only if the report is ok.

pub mod bodies;
pub mod http;
pub mod parts;
pub mod peers;
pub mod wrk;

use skep::report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// What may go wrong ends a benchmark.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Prints the report in the form that was asked for.
pub fn finish(report: &Report) -> ExitCode {
    if std::env::args().any(|word| word == "--json") {
        match serde_json::to_string_pretty(report) {
            Ok(text) => println!("{text}"),
            Err(error) => unreachable!("a report is a plain value: {error}"),
        }
    } else {
        println!("{}", report.to_text());
    }
    if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The program `skep`, built for the same profile as this one.
pub fn skep() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    this.with_file_name("skep")
}

/// Memory that a process holds, in kilobytes of a thousand bytes.
pub fn resident_kb(pid: i32) -> Result<f64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse::<f64>()? * 1.024)
}
