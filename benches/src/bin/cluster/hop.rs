//! What a hop from one node to another adds to a request, against nginx as the hop.
//!
//! The node that answers is asked directly, through the other node, and through nginx, by one
//! client, one request after the other over connections that stay open, a few at a time in turn. A
//! pop finds its queue empty. PostgreSQL does not wait for its disk here, whose moods would hide
//! everything else; a push still is a transaction, so only the pop is held against goals.

use crate::spans::Spans;
use crate::stage::{GROUP, Stage};
use skep::report::Report;
use skep_benches::Outcome;
use skep_benches::bodies::{Ids, Push, pop};
use skep_benches::http::Connection;
use skep_benches::peers::{self, Peer};
use skep_testkit::{Folder, Postgres};
use std::time::Instant;
use tokio::task::JoinSet;

const POPS: (usize, usize) = (200, 50);
const PUSHES: (usize, usize) = (100, 20);
/// The first ones open connections and fill caches.
const WARM_UP: usize = 500;
const PARTITIONS: u64 = 16;

/// A way to the node that answers.
struct Way {
    connection: Connection,
    /// Who must have forwarded.
    by: Option<&'static str>,
    took: Spans,
}

impl Way {
    async fn open(address: &str, by: Option<&'static str>) -> Outcome<Self> {
        Ok(Way { connection: Connection::open(address).await?, by, took: Spans::default() })
    }

    async fn ask(&mut self, request: &[u8]) -> Outcome<()> {
        let began = Instant::now();
        let answer = self.connection.succeed(request).await?;
        self.took.add(began.elapsed());
        let (served, by) = (answer.header("x-served-by"), answer.header("x-forwarded-by"));
        if served != Some("b") || by != self.by {
            let fell_back = answer.header("x-fallback");
            return Err(format!("served by {served:?} for {by:?}, {fell_back:?}").into());
        }
        Ok(())
    }
}

pub async fn run(report: &mut Report) -> Outcome<()> {
    let (server, folder) = (Postgres::start(), Folder::new("cluster-hop"));
    let stage = Stage::start(&server, 2, &["cluster.forward_writes=true"]);
    let queue = stage.queue_of(1, "hop")?;
    let (through, direct) = (stage.address(0)?, stage.address(1)?);
    let nginx = nginx(&folder, &direct)?;
    // Somebody who waits there for something that never comes, so that pushes go there.
    let path = format!("{queue}/partition/{}", stage.partition_of(1, &queue)?);
    let mut waiting = JoinSet::new();
    waiting.spawn_local(wait_in_vain(Connection::open(&direct).await?, path));
    stage.wait_for_polls(1, 1).await?;
    let open = async || -> Outcome<[Way; 3]> {
        Ok([
            Way::open(&direct, None).await?,
            Way::open(&through, Some("a")).await?,
            Way::open(&nginx.address, None).await?,
        ])
    };
    let request = pop(&queue, GROUP, "batch=1");
    let mut ways = open().await?;
    turns(&mut ways, POPS, async |way| way.ask(&request).await).await?;
    tell(report, "pop", &ways);
    let mut ways = open().await?;
    let (mut push, mut ids, mut turn) = (Push::new(&queue, 1), Ids::new(0), 0);
    turns(&mut ways, PUSHES, async |way| {
        turn += 1;
        way.ask(push.fresh(&mut ids, |_| turn % PARTITIONS)).await
    })
    .await?;
    tell(report, "push", &ways);
    Ok(())
}

async fn turns(
    ways: &mut [Way; 3],
    (rounds, in_a_row): (usize, usize),
    mut ask: impl AsyncFnMut(&mut Way) -> Outcome<()>,
) -> Outcome<()> {
    for way in &mut *ways {
        for _ in 0..WARM_UP {
            ask(way).await?;
        }
        way.took = Spans::default();
    }
    for _ in 0..rounds {
        for way in &mut *ways {
            for _ in 0..in_a_row {
                ask(way).await?;
            }
        }
    }
    Ok(())
}

fn tell(report: &mut Report, what: &str, [direct, hop, nginx]: &[Way; 3]) {
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let of = |way: &Way| way.took.quantile_us(part);
        report.figure(&format!("direct_{what}_{name}_us"), of(direct));
        report.figure(&format!("hop_{what}_{name}_us"), of(hop) - of(direct));
        report.figure(&format!("nginx_{what}_{name}_us"), of(nginx) - of(direct));
        let ratio = (of(hop) - of(direct)) / (of(nginx) - of(direct));
        report.figure(&format!("hop_{what}_{name}_ratio_to_nginx"), ratio);
    }
}

/// Waits for a partition that nothing is pushed to.
async fn wait_in_vain(mut connection: Connection, path: String) -> Outcome<()> {
    let request = pop(&path, GROUP, "batch=1&wait=true&timeout=30000");
    loop {
        connection.succeed(&request).await?;
    }
}

/// As people who want speed set it up: connections are kept, and bodies are not written to disk.
fn nginx(folder: &Folder, upstream: &str) -> Outcome<Peer> {
    let http = format!(
        "upstream nodes {{ server {upstream}; keepalive 64; keepalive_requests 1000000; }}
         keepalive_requests 1000000; tcp_nodelay on; client_body_buffer_size 1m;"
    );
    let location = "location / { proxy_pass http://nodes; proxy_http_version 1.1;
                                 proxy_set_header Connection \"\";
                                 proxy_set_header Host $host; }";
    peers::nginx(folder, &http, location)
}
