//! Who this node is and how it is doing.

use crate::node::{self, Shared};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use skep_store::Health;
use std::sync::Arc;

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/health", get(health)).route("/api/v1/node", get(describe))
}

/// The answer of `/health`; `status` and `database` are what existing queue clients read.
#[derive(Serialize)]
struct HealthAnswer {
    status: &'static str,
    database: &'static str,
    version: &'static str,
    uptime_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    stores: Arc<[Health]>,
}

async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, Json<HealthAnswer>) {
    let stores = shared.store_health().await;
    let (status, detail) = match shared.state.borrow().clone() {
        node::State::Starting(detail) => ("starting", Some(detail)),
        node::State::Draining => ("draining", None),
        node::State::Ready if stores.iter().all(|store| store.ok) => ("healthy", None),
        node::State::Ready => ("unhealthy", None),
    };
    let code = match status {
        "healthy" => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let database = match stores.first() {
        Some(store) if store.ok => "connected",
        _ => "disconnected",
    };
    let answer = HealthAnswer {
        status,
        database,
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: shared.uptime().as_secs_f64(),
        detail,
        stores,
    };
    (code, Json(answer))
}

/// The answer of `/api/v1/node`, which the command line reads back.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeAnswer {
    pub name: String,
    pub version: String,
    pub state: String,
    pub detail: Option<String>,
    pub installation: Option<String>,
    pub uptime_seconds: f64,
    pub data: String,
    pub stores: Vec<StoreAnswer>,
}

/// How one store is doing.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoreAnswer {
    pub store: String,
    pub target: String,
    pub ok: bool,
    pub latency_ms: f64,
    pub error: Option<String>,
}

async fn describe(State(shared): State<Arc<Shared>>) -> Json<NodeAnswer> {
    let stores = shared.store_health().await;
    let (state, detail) = match shared.state.borrow().clone() {
        node::State::Starting(detail) => ("starting", Some(detail)),
        node::State::Ready => ("ready", None),
        node::State::Draining => ("draining", None),
    };
    let store = |health: &Health| StoreAnswer {
        store: health.store.to_owned(),
        target: health.target.clone(),
        ok: health.ok,
        latency_ms: health.latency_ms,
        error: health.error.clone(),
    };
    Json(NodeAnswer {
        name: shared.name.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        state: state.to_owned(),
        detail,
        installation: shared.installation.get().map(|one| one.id.to_string()),
        uptime_seconds: shared.uptime().as_secs_f64(),
        data: shared.stores.folder().display().to_string(),
        stores: stores.iter().map(store).collect(),
    })
}
