//! `cargo xtask test`: what CI checks.

use crate::install::install_missing;
use crate::run::{cargo, step, works};
use skep_testkit::programs::NEEDED;
use skep_testkit::{Postgres, SHARED_POSTGRES, playwright, queen};
use std::process::Command;
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
    if works(cargo().args(["deny", "--version"])) {
        step("dependencies", cargo().args(["deny", "check", "bans", "licenses", "sources"]))?;
    } else {
        println!("── dependencies: by their test alone, cargo-deny is not installed");
    }
    step("build with lints", linting().args(["build", "--workspace", "--all-targets"]))?;
    run_tests(arguments)?;
    explore_hand_off()?;
    println!("── all checks passed after {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// A cargo that builds the workspace with clippy's compiler, which does what the other does and
/// lints on the way, and refuses every warning. `cargo clippy` would compile everything once more
/// only to look at it.
fn linting() -> Command {
    let mut command = cargo();
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    // In the form in which `cargo clippy` hands on what follows its `--`.
    command.env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
    command
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
        let mut command = linting();
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

#[cfg(test)]
mod tests {
    use super::*;
    use skep_testkit::Folder;

    /// Whether a program builds that is a crate of its own.
    fn builds(program: &str) -> bool {
        let folder = Folder::new("linting");
        let manifest = "[package]\nname = \"one\"\nedition = \"2024\"\n[workspace]\n";
        std::fs::write(folder.join("Cargo.toml"), manifest).expect("writes");
        std::fs::create_dir(folder.join("src")).expect("a folder");
        std::fs::write(folder.join("src/main.rs"), program).expect("writes");
        let mut command = linting();
        command.current_dir(folder.path()).env_remove("CARGO_TARGET_DIR");
        works(command.args(["build", "--offline"]))
    }

    #[test]
    fn a_build_fails_for_what_the_compiler_warns_of_and_for_what_clippy_does() {
        assert!(builds("fn main() {}"));
        assert!(!builds("fn main() {}\nfn unused() {}"), "dead code");
        let questionable = "fn main() { if std::env::args().collect::<Vec<_>>().len() == 0 {} }";
        assert!(!builds(questionable), "clippy::len_zero");
    }
}
