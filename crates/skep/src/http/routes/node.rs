//! Who this node is and how it is doing.

use crate::access::{now_ms, timestamp};
use crate::node::{self, Shared};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use skep_policy::routes::alerts::ends_soon;
use skep_store::Health;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(metrics))
        .routes(routes!(prometheus))
        .routes(routes!(describe))
}

/// The answer of `/health`; `status` and `database` are what existing queue clients read.
#[derive(Serialize, utoipa::ToSchema)]
struct HealthAnswer {
    /// `healthy`, `starting`, `unhealthy` or `draining`.
    #[schema(example = "healthy")]
    status: &'static str,
    /// `connected` or `disconnected`.
    #[schema(example = "connected")]
    database: &'static str,
    version: &'static str,
    uptime_seconds: f64,
    /// What it waits for, while it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    stores: Vec<StoreAnswer>,
}

/// Whether the node can do its work
#[utoipa::path(
    get, path = "/health", tag = "node", extensions(("x-scope" = json!("none"))),
    responses(
        (status = 200, description = "It can", body = HealthAnswer),
        (status = 503, description = "It cannot; the answer says why", body = HealthAnswer)
    )
)]
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
        stores: stores.iter().map(StoreAnswer::from).collect(),
    };
    (code, Json(answer))
}

/// Whether the process answers at all
#[utoipa::path(
    get, path = "/health/live", tag = "node", extensions(("x-scope" = json!("none"))),
    responses((status = 200, description = "It does", body = String))
)]
async fn live() -> &'static str {
    "alive\n"
}

/// Whether new work should be sent to this node
#[utoipa::path(
    get, path = "/health/ready", tag = "node", extensions(("x-scope" = json!("none"))),
    responses(
        (status = 200, description = "It should", body = String),
        (status = 503, description = "Not now: it starts, drains or waits", body = String)
    )
)]
async fn ready(State(shared): State<Arc<Shared>>) -> (StatusCode, &'static str) {
    let is_ready = *shared.state.borrow() == node::State::Ready;
    if is_ready && shared.store_health().await.iter().all(|store| store.ok) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

/// Everything the node counts, for Prometheus; some of it as JSON for whoever asks for that
#[utoipa::path(
    get, path = "/metrics", tag = "node", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "What is counted", content(
        (String = "application/openmetrics-text"), (MetricsAnswer = "application/json")
    )))
)]
async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("application/json")) {
        return Json(MetricsAnswer::of(&shared)).into_response();
    }
    prometheus(State(shared)).await.into_response()
}

/// Everything the node counts, for Prometheus
#[utoipa::path(
    get, path = "/metrics/prometheus", tag = "node", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "OpenMetrics text", body = String))
)]
async fn prometheus(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, METRICS_TYPE)], shared.render_metrics())
}

/// A few of the metrics, in the form that existing queue clients read.
#[derive(Serialize, utoipa::ToSchema)]
struct MetricsAnswer {
    /// Seconds since the node started.
    uptime: f64,
    requests: CountAndRate,
    /// Messages that were pushed.
    messages: CountAndRate,
    memory: MemoryAnswer,
    cpu: ProcessorAnswer,
}

/// How many, and how many in the last second.
#[derive(Serialize, utoipa::ToSchema)]
struct CountAndRate {
    total: f64,
    /// Not known of messages.
    rate: Option<f64>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct MemoryAnswer {
    /// Bytes that the process holds.
    rss: i64,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ProcessorAnswer {
    /// Percent of one processor, in the last second.
    percent: f64,
}

impl MetricsAnswer {
    fn of(shared: &Shared) -> Self {
        let text = shared.render_metrics();
        let point = *shared.latest_point.borrow();
        let requests = sum_of(&text, "skep_http_requests_total");
        let messages = sum_of(&text, "skep_queue_pushed_messages_total");
        MetricsAnswer {
            uptime: shared.uptime().as_secs_f64(),
            requests: CountAndRate { total: requests, rate: Some(point.per_second) },
            messages: CountAndRate { total: messages, rate: None },
            memory: MemoryAnswer { rss: point.resident_bytes },
            cpu: ProcessorAnswer { percent: point.cpu_percent },
        }
    }
}

/// The sum of a counter over all its labels.
fn sum_of(text: &str, name: &str) -> f64 {
    let of_name = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let rest = if rest.starts_with('{') { &rest[rest.rfind('}')? + 1..] } else { rest };
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    text.lines().filter_map(of_name).sum()
}

/// The answer of `/api/v1/node`, which the command line reads back.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeAnswer {
    pub name: String,
    pub version: String,
    /// `starting`, `ready` or `draining`.
    pub state: String,
    /// What it waits for, while it starts.
    pub detail: Option<String>,
    /// The installation it belongs to.
    pub installation: Option<String>,
    pub uptime_seconds: f64,
    /// The folder for what it keeps on disk.
    pub data: String,
    /// Where it listens.
    pub listen: String,
    /// When the listener's certificate ends.
    pub certificate_expires_at: Option<String>,
    /// Whether that is soon enough to look after it.
    #[serde(default)]
    pub certificate_ends_soon: bool,
    pub stores: Vec<StoreAnswer>,
}

/// How one store is doing.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StoreAnswer {
    /// `sqlite`, `postgres` or `redis`.
    pub store: String,
    /// Where it is, without secrets.
    pub target: String,
    pub ok: bool,
    pub latency_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Health> for StoreAnswer {
    fn from(health: &Health) -> Self {
        StoreAnswer {
            store: health.store.to_owned(),
            target: health.target.clone(),
            ok: health.ok,
            latency_ms: health.latency_ms,
            error: health.error.clone(),
        }
    }
}

impl NodeAnswer {
    /// The node as it is now.
    pub async fn of(shared: &Shared) -> Self {
        let stores = shared.store_health().await;
        let (state, detail) = match shared.state.borrow().clone() {
            node::State::Starting(detail) => ("starting", Some(detail)),
            node::State::Ready => ("ready", None),
            node::State::Draining => ("draining", None),
        };
        let ends = shared.certificate.as_ref().map(|one| one.expires_at_ms());
        NodeAnswer {
            name: shared.name.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: state.to_owned(),
            detail,
            installation: shared.installation.get().map(|one| one.id.to_string()),
            uptime_seconds: shared.uptime().as_secs_f64(),
            data: shared.stores.folder().display().to_string(),
            listen: shared.address.to_string(),
            certificate_expires_at: ends.map(timestamp),
            certificate_ends_soon: ends.is_some_and(|ends| ends_soon(ends, now_ms()).is_some()),
            stores: stores.iter().map(StoreAnswer::from).collect(),
        }
    }
}

/// Who this node is and how it is doing
#[utoipa::path(
    get, path = "/api/v1/node", tag = "node", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "The node", body = NodeAnswer))
)]
async fn describe(State(shared): State<Arc<Shared>>) -> Json<NodeAnswer> {
    Json(NodeAnswer::of(&shared).await)
}
