//! Takes accepted results to their queues.

use crate::publish::Publish;
use crate::registry::Registry;
use crate::store::ResultRow;
use prometheus_client::metrics::counter::Counter;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Results that may wait for their queue; the oldest of more are dropped and counted.
const WAITING_MAX: usize = 50_000;

/// Waits between attempts while a queue does not take a result.
const RETRY: Duration = Duration::from_millis(500);

/// How often one result is tried before it is dropped.
const ATTEMPTS_MAX: u32 = 20;

/// Results on their way to queues.
pub struct Courier {
    publish: Arc<dyn Publish>,
    registry: Arc<Registry>,
    waiting: Mutex<VecDeque<(String, ResultRow)>>,
    arrived: Notify,
    dropped: Counter,
}

impl Courier {
    /// Counts those it drops in `dropped`.
    pub fn new(publish: Arc<dyn Publish>, registry: Arc<Registry>, dropped: Counter) -> Self {
        Courier { publish, registry, waiting: Mutex::default(), arrived: Notify::new(), dropped }
    }

    /// Takes an accepted result along, if its endpoint wants that.
    pub fn take(&self, row: &ResultRow) {
        let Some(endpoint) = self.registry.get(&row.id) else { return };
        let Some(queue) = endpoint.spec.publish_to.clone() else { return };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back((queue, row.clone()));
        if waiting.len() > WAITING_MAX {
            waiting.pop_front();
            self.dropped.inc();
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Results that were dropped, because their queue did not take them.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    /// Publishes until `stop` is cancelled, and then what is left.
    pub async fn run(&self, stop: CancellationToken) {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some((queue, row)) => self.publish(&queue, &row, &stop).await,
                None if stop.is_cancelled() => return,
                None => tokio::select! {
                    () = self.arrived.notified() => {}
                    () = stop.cancelled() => {}
                },
            }
        }
    }

    async fn publish(&self, queue: &str, row: &ResultRow, stop: &CancellationToken) {
        // One poll has one id, however often its result is pushed.
        let id = format!("{}/{}.{}/{}", row.id, row.epoch, row.counter, row.slot);
        for attempt in 1..=ATTEMPTS_MAX {
            match self.publish.publish(queue, &id, body(row)).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(queue, endpoint = row.id, attempt, error, "not published yet");
                }
            }
            if stop.is_cancelled() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = stop.cancelled() => {}
            }
        }
        self.dropped.inc();
        tracing::warn!(queue, endpoint = row.id, "a result could not be published");
    }
}

/// A result as subscribers get it.
pub(crate) fn body(row: &ResultRow) -> serde_json::Value {
    serde_json::json!({
        "endpoint": row.id,
        "at": row.at_ms,
        "slot": row.slot,
        "ok": row.ok,
        "verdict": row.verdict,
        "status": row.status,
        "latency_us": row.latency_us,
        "late_us": row.late_us,
        "detail": row.detail,
        "node": row.node,
        "token": format!("{}.{}", row.epoch, row.counter),
    })
}
