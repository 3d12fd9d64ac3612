//! Push: the product, a table in PostgreSQL and NATS take turns.

use crate::load::{Done, Pushes, Until, push};
use crate::stage::{self, Line, NATS, NATS_BATCHES, SKEP, TABLE, Table};
use crate::{Outcome, ROUNDS, TURN, WARM_UP};
use skep::bench::median;
use skep::report::Report;
use std::collections::BTreeMap;

/// Messages in a request.
const SIZES: &[usize] = &[1, 10, 100];
const CONNECTIONS: usize = 64;
const PARTITIONS: u64 = 16;

pub async fn run(report: &mut Report) -> Outcome<()> {
    let folder = stage::folder("queues-push")?;
    let node = stage::product(&folder, SKEP, &[]);
    let table = Table::start()?;
    let nats = stage::nats(&folder, true).await?;
    let nats_line = |name| Line::new(name, &nats.address, &[nats.process.pid()]);
    let product = stage::line(&node);
    let (pipelined, batches) = (nats_line(NATS), nats_line(NATS_BATCHES));
    for batch in SIZES.iter().copied() {
        let mut lines = vec![&product, &table.line, &pipelined];
        if batch > 1 {
            lines.push(&batches);
        }
        let pushes = Pushes {
            queue: "push",
            batch,
            connections: CONNECTIONS,
            partitions: PARTITIONS,
            spread: false,
            until: Until::Over(TURN),
        };
        let seen = measure(&lines, pushes).await?;
        let mut figure = |name: &str, value| report.figure(&format!("push_{batch}_{name}"), value);
        for (name, done) in &seen {
            figure(&format!("rate_{name}"), done.rate);
            figure(&format!("cpu_us_{name}"), done.cpu_us);
        }
        let best = seen.get(NATS_BATCHES).map_or(0.0, |done| done.rate).max(seen[NATS].rate);
        figure("ratio_to_table", seen[SKEP].rate / seen[TABLE].rate);
        figure("ratio_to_nats", seen[SKEP].rate / best);
        if batch == 100 {
            let spread = measure(&[&product], Pushes { spread: true, ..pushes }).await?;
            figure("spread_rate_skep", spread[SKEP].rate);
            figure("spread_cpu_us_skep", spread[SKEP].cpu_us);
        }
    }
    Ok(())
}

/// Everybody in turn, so that whatever else the machine does meets all; medians.
async fn measure(lines: &[&Line], pushes: Pushes<'_>) -> Outcome<BTreeMap<&'static str, Done>> {
    let mut all: BTreeMap<&'static str, Vec<Done>> = BTreeMap::new();
    for line in lines {
        push(line, Pushes { until: Until::Over(WARM_UP), ..pushes }).await?;
    }
    for _ in 0..ROUNDS {
        for line in lines {
            all.entry(line.name).or_default().push(push(line, pushes).await?);
        }
    }
    Ok(all.into_iter().map(|(name, done)| (name, medians(&done))).collect())
}

/// The median of each figure.
pub fn medians(done: &[Done]) -> Done {
    let of = |figure: fn(&Done) -> f64| median(done.iter().map(figure).collect());
    Done {
        messages: of(|one| one.messages as f64) as u64,
        rate: of(|one| one.rate),
        cpu_us: of(|one| one.cpu_us),
    }
}
