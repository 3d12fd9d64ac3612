//! Pop and acknowledge: every turn is a new group, that reads all there is from the start.
//!
//! NATS gets a new consumer each turn, which wants each message acknowledged (`AckExplicit`):
//! one that acknowledges all before it would acknowledge what other clients of the same consumer
//! have; of a hundred acknowledgements it confirms the last. It does so before that is on disk
//! (far fewer syncs than confirmations), and so promises less than the product does.

use crate::load::{Pops, Pushes, Until, pop_and_ack, push};
use crate::nats::Nats;
use crate::push::medians;
use crate::stage::{self, Line, NATS, SKEP};
use crate::{Outcome, ROUNDS, TURN};
use rustix::process::Signal;
use skep::report::Report;
use skep_benches::peers;

const QUEUE: &str = "pop";
const BATCH: usize = 100;
const CONSUMERS: usize = 16;
/// Of one pop.
const PARTITIONS_CLAIMED: usize = 4;
/// More than all consumers can have claimed.
const PARTITIONS: u64 = 128;
const MESSAGES: u64 = 500_000;

pub async fn run(report: &mut Report) -> Outcome<()> {
    let folder = stage::folder("queues-pop")?;
    let node = stage::product(&folder, SKEP, &[]);
    let product = stage::line(&node);
    let fill = Pushes {
        queue: QUEUE,
        batch: BATCH,
        connections: CONSUMERS,
        partitions: PARTITIONS,
        spread: false,
        until: Until::Sent(MESSAGES),
    };
    push(&product, fill).await?;
    // Filled without waiting for the disk; only what is measured must be durable.
    let quick = stage::nats(&folder, false).await?;
    push(&Line::new(NATS, &quick.address, &[quick.process.pid()]), fill).await?;
    quick.process.signal(Signal::TERM);
    quick.process.wait();
    let nats = peers::nats(&folder, true)?;
    let peer = Line::new(NATS, &nats.address, &[nats.process.pid()]);

    let (mut own, mut others) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let group = format!("group-{round}");
        let pops = Pops {
            queue: QUEUE,
            group: &group,
            batch: BATCH,
            partitions: PARTITIONS_CLAIMED,
            connections: CONSUMERS,
            messages: MESSAGES,
            limit: TURN,
        };
        own.push(pop_and_ack(&product, pops).await?);
        Nats::open(&nats.address, 0).await?.make_consumer(&group).await?;
        others.push(pop_and_ack(&peer, pops).await?);
    }
    let (own, other) = (medians(&own), medians(&others));
    report.figure("pop_100_rate_skep", own.rate);
    report.figure("pop_100_rate_nats", other.rate);
    report.figure("pop_100_cpu_us_skep", own.cpu_us);
    report.figure("pop_100_cpu_us_nats", other.cpu_us);
    report.figure("pop_100_ratio_to_nats", own.rate / other.rate);
    Ok(())
}
