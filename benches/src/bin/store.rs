//! Durable rows a second through the SQLite writer with 64 concurrent callers, against one
//! transaction a call on a plain connection. Goal: at least 20 times as many.

use skep::bench::store::{Options, run};
use std::process::ExitCode;
use std::time::Duration;

const GOAL: f64 = 20.0;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let options = Options { callers: 64, turn: Duration::from_secs(1), rounds: 7 };
    let runtime = tokio::runtime::Runtime::new()?;
    let mut report = runtime.block_on(run(folder.path(), &options, || {}))?;
    let ratio = report.figures["ratio"];
    if ratio < GOAL {
        report.fail(format!("the ratio is {ratio:.1}, the goal is {GOAL}"));
    }
    Ok(skep_benches::finish(&report))
}
