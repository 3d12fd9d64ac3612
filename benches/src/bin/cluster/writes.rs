//! Whether a push had better be done where it comes in, and the consumers' node be woken, or be
//! forwarded to that node: two clusters take turns. PostgreSQL does not wait for its disk
//! here, which would take the same in both.

use crate::stage::Stage;
use crate::wake::{Waking, measure};
use skep::report::Report;
use skep_benches::Outcome;
use skep_benches::peers::cpu_seconds_ever;
use skep_testkit::Postgres;

const ROUNDS: usize = 4;

pub async fn run(report: &mut Report) -> Outcome<()> {
    let server = Postgres::start();
    let ways = [("here", "cluster.forward_writes=false"), ("there", "cluster.forward_writes=true")];
    let stages = ways.map(|(name, setting)| (name, Stage::start(&server, 2, &[setting])));
    let mut seen: [(Waking, f64); 2] = Default::default();
    for round in 0..ROUNDS {
        for ((_, stage), (waking, computed)) in stages.iter().zip(&mut seen) {
            let queue = stage.queue_of(1, &format!("writes{round}"))?;
            let before = cpu_seconds(stage)?;
            waking.append(measure(stage, 0, 1, &queue).await?);
            *computed += cpu_seconds(stage)? - before;
        }
    }
    for ((name, stage), (waking, computed)) in stages.iter().zip(&seen) {
        waking.push.tell_ms(report, &format!("writes_{name}_push"));
        waking.after_start.tell_ms(report, &format!("writes_{name}_push_to_pop"));
        let each = computed / waking.push.count() as f64 * 1e6;
        report.figure(&format!("writes_{name}_cpu_us"), each);
        let (forwarded, _) = stage.forwarded()?;
        if (forwarded > 0) != (*name == "there") {
            report.fail(format!("{forwarded} writes were forwarded where they are done {name}"));
        }
    }
    let figure = |report: &Report, way: &str, what: &str| {
        report.figures.get(&format!("writes_{way}_{what}")).copied().unwrap_or(f64::NAN)
    };
    for what in ["push_p50_ms", "push_to_pop_p50_ms", "cpu_us"] {
        let ratio = figure(report, "here", what) / figure(report, "there", what);
        report.figure(&format!("writes_ratio_{what}"), ratio);
    }
    Ok(())
}

/// Seconds that all nodes have computed.
fn cpu_seconds(stage: &Stage<'_>) -> Outcome<f64> {
    stage.pids().into_iter().map(cpu_seconds_ever).sum()
}
