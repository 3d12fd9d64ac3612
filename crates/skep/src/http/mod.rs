//! The node's port: first page, health, metrics, API.

mod info;

pub use info::{NodeAnswer, StoreAnswer};

use crate::node::Shared;
use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const FIRST_PAGE: &str = include_str!("../../../../web/index.html");
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers requests until `stop`, and then finishes those in progress.
pub async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let drain_timeout = shared.settings.shutdown.drain_timeout;
    let draining = stop.clone();
    let serving =
        axum::serve(listener, router(shared)).with_graceful_shutdown(draining.cancelled_owned());
    let serving = serving.into_future();
    tokio::select! {
        served = serving => Ok(served?),
        () = async { stop.cancelled().await; tokio::time::sleep(drain_timeout).await } => {
            tracing::warn!("requests were still in progress after {drain_timeout:?} and are cut");
            Ok(())
        }
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(async || Html(FIRST_PAGE)))
        .route("/metrics", get(metrics))
        .merge(info::routes())
        .with_state(shared)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let text = shared.metrics.render(shared.uptime(), &shared.stores);
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text)
}
