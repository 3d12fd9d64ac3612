//! How a store is doing.

use crate::StoreError;
use serde::Serialize;
use std::time::{Duration, Instant};

/// One store's answer to "are you there?".
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// `sqlite`, `postgres` or `redis`.
    pub store: &'static str,
    /// Where it is, without secrets.
    pub target: String,
    /// Whether it answered.
    pub ok: bool,
    /// How long the answer took.
    pub latency_ms: f64,
    /// What went wrong, if something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Health {
    /// Asks, for at most `limit`; a store that has not answered by then is not well.
    pub(crate) async fn ask(
        store: &'static str,
        target: String,
        limit: Duration,
        answer: impl Future<Output = Result<(), StoreError>>,
    ) -> Self {
        let asked = Instant::now();
        let outcome = tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
            Err(StoreError::Unknown { store, cause: format!("no answer within {limit:?}") })
        });
        Health {
            store,
            target,
            ok: outcome.is_ok(),
            latency_ms: asked.elapsed().as_secs_f64() * 1_000.0,
            error: outcome.err().map(|error| error.to_string()),
        }
    }
}
