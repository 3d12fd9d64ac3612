//! What three nodes serve together with forwarding, against the same nodes without: two clusters
//! take turns, each the first in every other round, so that neither gains by what grows meanwhile.
//!
//! The load is the same on all nodes: every client pushes ten messages, pops ten and acknowledges
//! them, of one queue after the other, as fast as it is served.

use crate::stage::{GROUP, Stage};
use skep::bench::median;
use skep::report::Report;
use skep_benches::Outcome;
use skep_benches::bodies::{Ack, Ids, Push, pop};
use skep_benches::http::Connection;
use skep_benches::peers::{cpu_seconds_ever, durable_postgres};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const NODES: usize = 3;
const CLIENTS: usize = 8;
const QUEUES: usize = 12;
const PARTITIONS: u64 = 32;
const BATCH: usize = 10;
const ROUNDS: usize = 10;
const TURN: Duration = Duration::from_secs(3);

pub async fn run(report: &mut Report) -> Outcome<()> {
    let server = durable_postgres();
    let ways = [("on", "cluster.forwarding=true"), ("off", "cluster.forwarding=false")];
    let stages = ways.map(|(name, setting)| (name, Stage::start(&server, NODES, &[setting])));
    for (_, stage) in &stages {
        (0..QUEUES).try_for_each(|number| stage.make_queue(&queue(number)))?;
    }
    let mut rates: [Vec<f64>; 2] = Default::default();
    let mut costs: [Vec<f64>; 2] = Default::default();
    // The first round only warms up.
    for round in 0..=ROUNDS {
        for place in [round % 2, 1 - round % 2] {
            let stage = &stages[place].1;
            let before = cpu_seconds(stage)?;
            let (messages, took) = turn(stage).await?;
            if round > 0 {
                rates[place].push(messages as f64 / took.as_secs_f64());
                costs[place].push((cpu_seconds(stage)? - before) / messages as f64 * 1e6);
            }
        }
    }
    let pairs = rates[0].chunks(2).zip(rates[1].chunks(2));
    let ratios = pairs.map(|(on, off)| on.iter().sum::<f64>() / off.iter().sum::<f64>()).collect();
    let [on, off] = rates.map(median);
    let [on_cost, off_cost] = costs.map(median);
    report.figure("throughput_on_rate", on);
    report.figure("throughput_off_rate", off);
    report.figure("throughput_ratio", median(ratios));
    report.figure("throughput_on_cpu_us", on_cost);
    report.figure("throughput_off_cpu_us", off_cost);
    for (name, stage) in &stages {
        let (forwarded, fell_back) = stage.forwarded()?;
        report.figure(&format!("throughput_{name}_forwarded"), forwarded as f64);
        report.figure(&format!("throughput_{name}_fell_back"), fell_back as f64);
        if (forwarded > 0) != (*name == "on") {
            report.fail(format!("{forwarded} were forwarded where forwarding is {name}"));
        }
    }
    Ok(())
}

fn queue(number: usize) -> String {
    format!("queue-{}", number % QUEUES)
}

/// Seconds that all nodes have computed.
fn cpu_seconds(stage: &Stage<'_>) -> Outcome<f64> {
    stage.pids().into_iter().map(cpu_seconds_ever).sum()
}

/// How many messages were acknowledged in a turn, and how long it took.
async fn turn(stage: &Stage<'_>) -> Outcome<(u64, Duration)> {
    let acked = Rc::new(Cell::new(0));
    let mut clients = JoinSet::new();
    let mut connections = Vec::new();
    for number in 0..NODES * CLIENTS {
        connections.push(Connection::open(&stage.address(number % NODES)?).await?);
    }
    let began = Instant::now();
    for (number, connection) in connections.into_iter().enumerate() {
        clients.spawn_local(work(connection, number, began, acked.clone()));
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok((acked.get(), began.elapsed()))
}

async fn work(
    mut connection: Connection,
    number: usize,
    began: Instant,
    acked: Rc<Cell<u64>>,
) -> Outcome<()> {
    let mut ack = Ack::new(GROUP);
    let (mut ids, mut turn) = (Ids::new(number), number as u64);
    let queues = (0..QUEUES).map(queue);
    let mut requests: Vec<(Push, Vec<u8>)> = queues
        .map(|queue| {
            let popped = pop(&queue, GROUP, &format!("batch={BATCH}&partitions=4"));
            (Push::new(&queue, BATCH), popped)
        })
        .collect();
    while began.elapsed() < TURN {
        let (push, pop) = &mut requests[turn as usize % QUEUES];
        connection.succeed(push.fresh(&mut ids, |_| turn % PARTITIONS)).await?;
        turn += 1;
        let popped = connection.succeed(pop).await?;
        if popped.status == 204 {
            continue;
        }
        let (request, count) = ack.of(popped.body)?;
        Ack::accepted(connection.succeed(request).await?.body)?;
        acked.set(acked.get() + count);
    }
    Ok(())
}
