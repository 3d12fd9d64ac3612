//! Simulates the worker pools and tells how it went, and how fast.
//!
//! ```sh
//! cargo run --release --package skep-sim --example pools -- chaos 1 100000000
//! ```

use skep_sim::pools::{Options, Scenario, plot, run};
use std::process::ExitCode;

#[expect(clippy::disallowed_methods, reason = "it is the simulator itself that is timed")]
fn main() -> ExitCode {
    let mut given = std::env::args().skip(1);
    let scenario = given.next().unwrap_or_else(|| "chaos".to_owned());
    let scenario: Scenario = match scenario.parse() {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut number = || given.next().and_then(|text| text.parse::<u64>().ok());
    let mut options = Options::new(scenario, number().unwrap_or(1));
    options.events = number().unwrap_or(options.events);
    let started = std::time::Instant::now();
    let outcome = run(&options);
    let seconds = started.elapsed().as_secs_f64();
    println!("{}", plot(&outcome.timeline));
    for (name, figure) in &outcome.figures {
        println!("{name:>28} {figure}");
    }
    println!("{:>28} {:.0}", "events a second", outcome.figures["events"] / seconds);
    for failure in &outcome.failures {
        println!("{failure}");
    }
    if outcome.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
