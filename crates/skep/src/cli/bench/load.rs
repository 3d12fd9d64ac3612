//! Messages through a queue of a running node: pushed, popped and acknowledged.

use super::latency::Latency;
use crate::cli::ask::Path;
use crate::cli::client::NodeArgs;
use crate::cli::{CliError, Exit};
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A pop waits for so long; what is pushed is there, so that it seldom has to.
const POP_WAIT_MS: u64 = 500;
/// After so long without a message those that are missing are taken for lost.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Messages, at most.
    pub messages: u64,
    /// Messages of a request.
    pub batch: u64,
    /// Requests at once.
    pub connections: usize,
    pub partitions: u64,
    /// Bytes of a payload.
    pub payload: usize,
    /// No further push is begun after so long.
    pub duration: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub pushed: u64,
    pub push_seconds: f64,
    pub consume_seconds: f64,
    pub push: Latency,
    pub pop: Latency,
    pub ack: Latency,
    /// What did not hold.
    pub failures: Vec<String>,
}

impl Outcome {
    pub fn pushed_per_second(&self) -> f64 {
        self.pushed as f64 / self.push_seconds.max(1e-9)
    }

    pub fn consumed_per_second(&self) -> f64 {
        self.pushed as f64 / self.consume_seconds.max(1e-9)
    }
}

/// A load under way.
struct Run {
    node: NodeArgs,
    queue: String,
    load: Load,
    /// The next message to push.
    next: AtomicU64,
    pushed: AtomicU64,
    consumed: AtomicU64,
    /// How often each message was handed out.
    seen: Vec<AtomicU8>,
    on_messages: Box<dyn Fn(u64) + Send + Sync>,
}

/// Pushes everything, then pops and acknowledges everything. `on_messages` hears of messages that
/// were pushed or acknowledged.
pub async fn run(
    node: &NodeArgs,
    queue: &str,
    load: Load,
    on_messages: impl Fn(u64) + Send + Sync + 'static,
) -> Result<Outcome, CliError> {
    let run = Arc::new(Run {
        node: node.clone(),
        queue: queue.to_owned(),
        load,
        next: AtomicU64::new(0),
        pushed: AtomicU64::new(0),
        consumed: AtomicU64::new(0),
        seen: (0..load.messages).map(|_| AtomicU8::new(0)).collect(),
        on_messages: Box::new(on_messages),
    });
    let mut outcome = Outcome::default();
    let began = Instant::now();
    for push in together(&run, |run| async move { run.push_all(began).await }).await? {
        outcome.push.extend(push);
    }
    outcome.push_seconds = began.elapsed().as_secs_f64();
    outcome.pushed = run.pushed.load(Ordering::Relaxed);
    let began = Instant::now();
    for (pop, ack) in together(&run, |run| async move { run.consume_all().await }).await? {
        outcome.pop.extend(pop);
        outcome.ack.extend(ack);
    }
    outcome.consume_seconds = began.elapsed().as_secs_f64();
    outcome.failures = run.failures();
    Ok(outcome)
}

/// The same on every connection; the first that fails ends all.
async fn together<T, F>(run: &Arc<Run>, work: impl Fn(Arc<Run>) -> F) -> Result<Vec<T>, CliError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, CliError>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for _ in 0..run.load.connections {
        tasks.spawn(work(run.clone()));
    }
    let mut done = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let ended = ended.map_err(|error| {
            CliError::new(Exit::Bug, format!("a connection of the bench ended: {error}"))
        })?;
        done.push(ended?);
    }
    Ok(done)
}

#[derive(Deserialize)]
struct Popped {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    transaction_id: String,
    partition_id: String,
    lease_id: Option<String>,
}

impl Run {
    async fn push_all(&self, began: Instant) -> Result<Latency, CliError> {
        let Load { messages, batch, partitions, payload, duration, .. } = self.load;
        let (mut latency, text) = (Latency::default(), "x".repeat(payload));
        while began.elapsed() < duration {
            let first = self.next.fetch_add(batch, Ordering::Relaxed);
            let last = (first + batch).min(messages);
            if first >= last {
                break;
            }
            let partition = format!("p-{}", first / batch % partitions);
            let item = |number: u64| {
                json!({
                    "queue": self.queue, "partition": partition, "payload": text,
                    "transactionId": number.to_string(),
                })
            };
            let items: Vec<Value> = (first..last).map(item).collect();
            let body = json!({ "items": items });
            let asked = Instant::now();
            let results: Vec<Value> =
                self.node.call(Method::POST, "/api/v1/push", Some(body)).await?;
            latency.add(micros(asked));
            if let Some(odd) = results.iter().find(|result| result["status"] != "queued") {
                return Err(CliError::new(Exit::No, format!("a push went wrong: {odd}")));
            }
            self.pushed.fetch_add(last - first, Ordering::Relaxed);
            (self.on_messages)(last - first);
        }
        Ok(latency)
    }

    async fn consume_all(&self) -> Result<(Latency, Latency), CliError> {
        let pushed = self.pushed.load(Ordering::Relaxed);
        let (mut pops, mut acks) = (Latency::default(), Latency::default());
        let path = Path::of(&["pop", "queue", &self.queue])
            .with("batch", self.load.batch)
            .with("wait", true)
            .with("timeout", POP_WAIT_MS);
        let wait = Duration::from_millis(POP_WAIT_MS);
        let mut last = Instant::now();
        while self.consumed.load(Ordering::Relaxed) < pushed && last.elapsed() < LOST_AFTER {
            let asked = Instant::now();
            let popped: Option<Popped> = self.node.wait_for(path.as_str(), wait).await?;
            let messages = popped.map(|popped| popped.messages).unwrap_or_default();
            if messages.is_empty() {
                continue;
            }
            pops.add(micros(asked));
            last = Instant::now();
            let settled = self.settle(&messages).await?;
            acks.add(micros(last));
            self.consumed.fetch_add(settled, Ordering::Relaxed);
            (self.on_messages)(settled);
        }
        Ok((pops, acks))
    }

    /// Acknowledges messages; how many of them were.
    async fn settle(&self, messages: &[Message]) -> Result<u64, CliError> {
        let ack = |message: &Message| {
            json!({
                "transactionId": message.transaction_id, "partitionId": message.partition_id,
                "leaseId": message.lease_id, "status": "completed",
            })
        };
        let acks: Vec<Value> = messages.iter().map(ack).collect();
        let body = json!({ "acknowledgments": acks });
        let path = "/api/v1/ack/batch";
        let results: Vec<Value> = self.node.call(Method::POST, path, Some(body)).await?;
        if let Some(odd) = results.iter().find(|result| result["success"] != true) {
            return Err(CliError::new(Exit::No, format!("an acknowledgement was refused: {odd}")));
        }
        for message in messages {
            let number: Option<usize> = message.transaction_id.parse().ok();
            if let Some(seen) = number.and_then(|number| self.seen.get(number)) {
                seen.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(messages.len() as u64)
    }

    /// Messages that are missing or came twice.
    fn failures(&self) -> Vec<String> {
        let pushed = self.pushed.load(Ordering::Relaxed);
        let seen = self.seen.iter().map(|seen| seen.load(Ordering::Relaxed));
        let (mut once, mut more) = (0, 0);
        for times in seen {
            once += u64::from(times > 0);
            more += u64::from(times > 1);
        }
        let mut failures = Vec::new();
        if once != pushed {
            failures.push(format!("{pushed} messages were pushed and {once} came"));
        }
        if more > 0 {
            failures.push(format!("{more} messages came more than once"));
        }
        failures
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
