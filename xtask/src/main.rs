//! Chores of the repository as a program.
//!
//! ```text
//! cargo xtask test              install what is missing, check everything, run all tests
//! cargo xtask bench NAME        a benchmark, built for release; without a name: which there are
//! ```

mod bench;
mod check;
mod install;
mod run;

use std::process::ExitCode;

const USAGE: &str = "\
Usage:
  cargo xtask test [-- ARGUMENTS]     everything that CI checks; arguments go to the test runner
  cargo xtask bench [NAME [ARGUMENTS]]  a benchmark, built for release; without a name: a list
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words = arguments.iter().map(String::as_str);
    let outcome = match words.next() {
        Some("test") => {
            let rest: Vec<&str> = words.collect();
            check::test(rest.strip_prefix(&["--"]).unwrap_or(&rest))
        }
        Some("bench") => {
            let rest: Vec<&str> = words.collect();
            bench::run(&rest)
        }
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
