//! `cargo xtask test`: what CI checks.

use crate::install::install_missing;
use crate::run::{cargo, step, works};
use skep_testkit::programs::NEEDED;
use skep_testkit::{Postgres, SHARED_POSTGRES, playwright, queen};
use std::time::Instant;

/// Installs what is missing, checks formatting and lints, runs every test, and cleans up.
pub fn test(arguments: &[&str]) -> Result<(), String> {
    let started = Instant::now();
    install_missing(NEEDED)?;
    playwright::install()?;
    queen::install()?;
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !works(cargo().args([tool, "--version"])) {
            return Err(format!("cargo {tool} is missing; run: rustup component add {component}"));
        }
    }
    step("formatting", cargo().args(["fmt", "--all", "--check"]))?;
    let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    step("lints", cargo().args(lints))?;
    if works(cargo().args(["deny", "--version"])) {
        step("dependencies", cargo().args(["deny", "check", "bans", "licenses", "sources"]))?;
    } else {
        println!("── dependencies: by their test alone, cargo-deny is not installed");
    }
    run_tests(arguments)?;
    explore_hand_off()?;
    println!("── all checks passed after {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// How many tests run at once.
const THREADS: &str = "NEXTEST_TEST_THREADS";

/// Every interleaving of the pools' hand-off that matters, by loom. In a build folder of its own,
/// because its flag would make everything else build again.
fn explore_hand_off() -> Result<(), String> {
    let mut command = cargo();
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom");
    let all = ["test", "--package", "skep-pools", "--lib", "--release", "--quiet"];
    step("the hand-off, explored", command.args(all))
}

fn run_tests(arguments: &[&str]) -> Result<(), String> {
    // One server for the whole run; each test has a database of its own in it.
    let postgres = Postgres::start();
    println!("── PostgreSQL for the tests: port {}", postgres.port());
    let port = postgres.port().to_string();
    let shared = || {
        let mut command = cargo();
        command.env(SHARED_POSTGRES, &port);
        command
    };
    if works(cargo().args(["nextest", "--version"])) {
        let all = ["nextest", "run", "--workspace", "--no-fail-fast"];
        let mut command = shared();
        if std::env::var_os(THREADS).is_none() {
            // Many tests wait for processes that they have started.
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            command.env(THREADS, (cores + 1).to_string());
        }
        step("tests", command.args(all).args(arguments))?;
        step("documentation's tests", shared().args(["test", "--workspace", "--doc", "--quiet"]))
    } else {
        step("tests", shared().args(["test", "--workspace", "--no-fail-fast"]).args(arguments))
    }
}
