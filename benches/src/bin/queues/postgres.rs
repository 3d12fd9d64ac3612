//! What a message costs where the store is PostgreSQL: the node and the whole database together.

use crate::load::{Pops, Pushes, Until, pop_and_ack, push};
use crate::push::medians;
use crate::stage::{self, Line, SKEP};
use crate::{Outcome, ROUNDS, TURN, WARM_UP};
use skep::report::Report;
use skep_benches::peers;

/// Messages in a request, connections that push, and those that pop.
const SIZES: &[(usize, usize, usize)] = &[(100, 16, 16), (1, 64, 16)];
const PARTITIONS: u64 = 128;

pub async fn run(report: &mut Report) -> Outcome<()> {
    let folder = stage::folder("queues-postgres")?;
    let server = peers::durable_postgres();
    let database = server.database();
    let node = stage::product(&folder, SKEP, &["--database", &database.url()]);
    let pids = [node.process().pid(), peers::postgres_pid(&server)?];
    let line = Line::new(SKEP, node.address(), &pids);
    for (batch, pushing, popping) in SIZES.iter().copied() {
        let (mut pushed, mut popped) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let queue = format!("postgres-{batch}-{round}");
            // The first round only warms up.
            let turn = if round == 0 { WARM_UP } else { TURN };
            let pushes = Pushes {
                queue: &queue,
                batch,
                connections: pushing,
                partitions: PARTITIONS,
                spread: false,
                until: Until::Over(turn),
            };
            let one = push(&line, pushes).await?;
            let pops = Pops {
                queue: &queue,
                group: "group",
                batch,
                partitions: batch.min(4),
                connections: popping,
                messages: one.messages,
                limit: turn,
            };
            let other = pop_and_ack(&line, pops).await?;
            if round > 0 {
                pushed.push(one);
                popped.push(other);
            }
        }
        let (pushed, popped) = (medians(&pushed), medians(&popped));
        let mut figure =
            |name: &str, value| report.figure(&format!("postgres_{name}_{batch}"), value);
        figure("push_cpu_us", pushed.cpu_us);
        figure("push_rate", pushed.rate);
        figure("pop_cpu_us", popped.cpu_us);
        figure("pop_rate", popped.rate);
    }
    Ok(())
}
