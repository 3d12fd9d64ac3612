//! How a store is doing.

use crate::StoreError;
use serde::Serialize;
use std::time::Duration;

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
    pub(crate) fn new(
        store: &'static str,
        target: String,
        latency: Duration,
        outcome: Result<(), StoreError>,
    ) -> Self {
        Health {
            store,
            target,
            ok: outcome.is_ok(),
            latency_ms: latency.as_secs_f64() * 1_000.0,
            error: outcome.err().map(|error| error.to_string()),
        }
    }
}
