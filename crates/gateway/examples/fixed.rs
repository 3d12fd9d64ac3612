//! A gateway over a fixed list of workers, each in its turn: what benchmarks measure.
//!
//! ```sh
//! cargo run --release --package skep-gateway --example fixed -- 127.0.0.1:8080 ws://127.0.0.1:9001
//! ```

use hyper::body::Incoming;
use hyper::{Request, Response};
use skep_gateway::{
    Body, Caller, Checkout, Closed, Credentials, Desk, Gateway, GatewayMetrics, GatewayOptions,
    Refusal, Seat, WorkerUrl, full, raise_file_limit,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

struct Fixed {
    workers: Vec<Arc<WorkerUrl>>,
    next: AtomicU64,
}

struct Turn {
    session: String,
    worker: u64,
    url: Arc<WorkerUrl>,
}

impl Desk for Fixed {
    type Seat = Turn;

    fn admit(&self, who: &Credentials<'_>) -> Result<Caller, Refusal> {
        Ok(Caller { key: None, peer: who.peer })
    }

    async fn checkout(&self, ask: Checkout) -> Result<Turn, Refusal> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.workers.len() as u64;
        let mut in_turn = (number..number + count).map(|turn| turn % count);
        let worker = in_turn.find(|worker| !ask.avoid.contains(worker));
        let worker = worker.ok_or_else(|| Refusal {
            status: 503,
            code: "E_NO_WORKER",
            title: "No worker is free",
            message: "every worker is being tried already".to_owned(),
            retry_after_s: Some(1),
        })?;
        let url = self.workers[worker as usize].clone();
        Ok(Turn { session: format!("s{number}"), worker, url })
    }

    async fn plain(&self, _: Request<Incoming>, _: SocketAddr) -> Response<Body> {
        Response::new(full("here are sessions only\n"))
    }
}

impl Seat for Turn {
    fn session(&self) -> &str {
        &self.session
    }

    fn worker(&self) -> u64 {
        self.worker
    }

    fn url(&self) -> &WorkerUrl {
        &self.url
    }

    async fn told_to_end(&self) -> Arc<str> {
        std::future::pending().await
    }

    fn opened(&self) {}

    fn close(self, _: Closed) {}
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let listen = words.next().ok_or("give an address to listen on, and workers")?.parse()?;
    let workers = words.map(|word| Ok(Arc::new(word.parse::<WorkerUrl>()?)));
    let workers = workers.collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
    if workers.is_empty() {
        return Err("give at least one worker, as ws://HOST:PORT/PATH".into());
    }
    raise_file_limit();
    let options = GatewayOptions { listen, ..GatewayOptions::default() };
    let desk = Fixed { workers, next: AtomicU64::new(0) };
    let gateway = Gateway::bind(options, desk, GatewayMetrics::default())?;
    println!("listening on {}", gateway.address());
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let stopper = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        stopper.cancel();
    });
    Ok(gateway.run(stop).await?)
}
