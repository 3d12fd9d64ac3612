//! The node's port: dashboard, health, metrics, API.
//!
//! ```text
//!   connection ─► server (limits, TLS, drain) ─► lane (a pop for another node goes there at once)
//!     ─► guard (id, who, scope, time, log) ─► relay (here, or on another node) ─► routes
//! ```
//!
//! A capability adds a file to `routes` whose handlers are described for OpenAPI, with the scope
//! each needs in `x-scope`. The guard reads the scopes from that description, and a route that is
//! not described is for admins alone.

mod certificate;
mod extract;
mod guard;
mod intent;
mod lane;
mod noted;
mod problem;
mod relay;
mod routes;
mod server;
mod traffic;

pub use certificate::{
    Certificate, Files as CertificateFiles, LOOK_EVERY as CERTIFICATE_LOOK,
    Stamp as CertificateStamp,
};
pub use guard::{admit_session, known_by};
pub use problem::{CODES, Code, Flaw, Problem};
pub use routes::{
    AccessAnswer, AccessView, AuditAnswer, CapacityAnswer, Counts, CreateBody, CreatedAnswer,
    EndpointView, EndpointsAnswer, ImportAnswer, KeysAnswer, KindCapacity, LetterView,
    LettersAnswer, Missed, MoveView, MovesAnswer, NodeAnswer, NodesAnswer, OverviewBook,
    OwnersAnswer, PollsAnswer, PoolAnswer, PoolsAnswer, ResultView, ResultsAnswer, RetryAnswer,
    RouteEventView, RouteEventsAnswer, SessionView, SessionsAnswer, SessionsOverview, StatsAnswer,
    StoreAnswer, StuckAnswer, WorkerView, WorkersAnswer, gateway_router, refused_code,
};
pub use traffic::{Point, Traffic};

use crate::access::redact;
use crate::node::Shared;
use axum::extract::DefaultBodyLimit;
use axum::http::{Extensions, HeaderMap, HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use guard::Needs;
use lane::Lanes;
use std::sync::{Arc, LazyLock};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

/// The OpenAPI document, as it is served and kept in `docs/openapi.json`.
pub fn document() -> &'static str {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
        let (_, document) = routes::all().split_for_parts();
        let text = document.to_pretty_json();
        text.unwrap_or_else(|error| unreachable!("a description is plain data: {error}")) + "\n"
    });
    &DOCUMENT
}

/// Answers requests until `stop`, and then finishes those in progress.
pub async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let certificate = shared.certificate.clone();
    let described = serde_json::from_str(document());
    let needs = Arc::new(Needs::read(&described.unwrap_or_default()));
    let router = router(shared.clone(), needs.clone());
    // Who may read an answer on another site's page is for a layer to say.
    let plain = shared.settings.api.cors_origins.0.is_empty();
    let lanes = Lanes { shared, needs, router, plain };
    server::serve(listener, lanes, certificate, stop).await
}

fn router(shared: Arc<Shared>, needs: Arc<Needs>) -> Router {
    let api = &shared.settings.api;
    let body_max = usize::try_from(api.body_max.0).unwrap_or(usize::MAX);
    let cors = cors(&api.cors_origins.0);
    let (router, _) = routes::all().split_for_parts();
    let guarded = middleware::from_fn_with_state((shared.clone(), needs), guard::guard);
    let router = router
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(body_max))
        .layer(middleware::from_fn_with_state(shared.clone(), relay::relay))
        .layer(guarded)
        .layer(CompressionLayer::new().compress_when(compress_when()));
    match cors {
        Some(cors) => router.layer(cors).with_state(shared),
        None => router.with_state(shared),
    }
}

/// Answers with messages are not compressed: most are small, and compressing would cost more than
/// everything else about them.
fn compress_when() -> impl Predicate {
    let is_large = |_, _, _: &HeaderMap, extensions: &Extensions| {
        extensions.get::<routes::Uncompressed>().is_none()
    };
    DefaultPredicate::new().and(is_large)
}

/// Off unless origins are named. Cookies are never shared with other sites, keys may be sent.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    let headers = ["authorization", "content-type", "x-api-key", "x-request-id"];
    Some(
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods(AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::list(headers.map(axum::http::HeaderName::from_static))),
    )
}

async fn not_found(uri: Uri) -> Response {
    let detail = format!("{} is not a route of this version", redact(uri.path()));
    Problem::new(&problem::E_NOT_FOUND, detail).into_response()
}

async fn wrong_method(uri: Uri) -> Response {
    let detail = format!("{} does not have this method", redact(uri.path()));
    Problem::new(&problem::E_METHOD, detail).into_response()
}
