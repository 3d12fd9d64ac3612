//! What a node holds before it has done anything.

use crate::Outcome;
use crate::stage::{self, SKEP};
use skep::report::Report;
use skep_benches::resident_kb;
use std::time::Duration;

/// Long enough for whatever begins after a start.
const SETTLED: Duration = Duration::from_secs(10);

pub async fn run(report: &mut Report) -> Outcome<()> {
    let folder = stage::folder("queues-idle")?;
    let node = stage::product(&folder, SKEP, &[]);
    tokio::time::sleep(SETTLED).await;
    report.figure("idle_resident_mb", resident_kb(node.process().pid())? / 1e3);
    Ok(())
}
