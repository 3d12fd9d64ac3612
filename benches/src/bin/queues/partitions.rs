//! A queue with a million partitions beside one with a thousand: memory, and what a pop takes.

use crate::Outcome;
use crate::bodies::{Ack, Ids, Push, pop};
use crate::http::Connection;
use crate::stage;
use skep::report::Report;
use skep_benches::resident_kb;
use skep_testkit::Node;
use std::time::{Duration, Instant};

const QUEUE: &str = "partitions";
const GROUP: &str = "group";
const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;
/// Messages of a push, each for a partition of its own.
const BATCH: usize = 1_000;
const FILLING: u64 = 4;
/// Pops of a turn; the two queues take turns.
const POPS: usize = 500;
const TURNS: usize = 6;

pub async fn run(report: &mut Report) -> Outcome<()> {
    let folder = stage::folder("queues-partitions")?;
    let (few, many) = (stage::product(&folder, "few", &[]), stage::product(&folder, "many", &[]));
    // As many messages as are popped, however few the partitions.
    let rounds = (POPS * TURNS) as u64 / FEW + 1;
    fill(&few, FEW, rounds).await?;
    let began = Instant::now();
    fill(&many, MANY, 1).await?;
    report.figure("partitions_made_per_second", MANY as f64 / began.elapsed().as_secs_f64());
    let filled = resident_kb(many.process().pid())?;
    let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        pops(&few, &mut of_few).await?;
        pops(&many, &mut of_many).await?;
    }
    let resident = resident_kb(many.process().pid())?.max(filled);
    report.figure("partitions_resident_mb", resident / 1e3);
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let (few, many) = (at(&mut of_few, share), at(&mut of_many, share));
        report.figure(&format!("partitions_pop_{name}_ms_few"), few);
        report.figure(&format!("partitions_pop_{name}_ms_many"), many);
        report.figure(&format!("partitions_pop_{name}_ratio"), many / few);
    }
    Ok(())
}

/// Messages for every partition, so many rounds.
async fn fill(node: &Node, partitions: u64, rounds: u64) -> Outcome<()> {
    let mut all = tokio::task::JoinSet::new();
    for worker in 0..FILLING {
        let address = node.address().to_owned();
        all.spawn_local(async move {
            let mut connection = Connection::open(&address).await?;
            let (mut push, mut ids) = (Push::new(QUEUE, BATCH), Ids::new(worker as usize));
            let pushes = rounds * partitions / BATCH as u64;
            for number in (worker..pushes).step_by(FILLING as usize) {
                let first = number * BATCH as u64 % partitions;
                connection.succeed(push.fresh(&mut ids, |item| first + item as u64)).await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    Ok(())
}

/// One after the other; what is timed is the pop, and each is acknowledged.
async fn pops(node: &Node, took: &mut Vec<Duration>) -> Outcome<()> {
    let mut connection = Connection::open(node.address()).await?;
    let request = pop(QUEUE, GROUP, "batch=1&partitions=1");
    let mut ack = Ack::new(GROUP);
    for _ in 0..POPS {
        let began = Instant::now();
        let popped = connection.succeed(&request).await?;
        took.push(began.elapsed());
        if popped.status == 204 {
            return Err("a pop found nothing in a queue that is not empty".into());
        }
        let (request, _) = ack.of(popped.body)?;
        Ack::accepted(connection.succeed(request).await?.body)?;
    }
    Ok(())
}

/// Milliseconds at this share of the sorted spans.
fn at(took: &mut [Duration], share: f64) -> f64 {
    took.sort();
    took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e3
}
