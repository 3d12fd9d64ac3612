//! Routes of the proxy: what there is, what goes over them, and how they are changed.

mod change;
mod stats;
mod views;

pub use stats::StatsAnswer;
pub use views::{Counts, RouteAnswer, RouteEventView};

use super::asked::{given, named, note};
use super::polls::fleet;
use crate::access::{Scope, now_ms};
use crate::http::extract::{Asker, Body, Parameters};
use crate::http::problem::{self, Flaw, Problem, ProblemBody};
use crate::node::Shared;
use crate::routes::Reloaded;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use skep_policy::explain::{Kind, would};
use skep_routes::store::EventFilter;
use skep_routes::{Question, RouteView, Verdict};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const PAGE_MAX: usize = 1_000;

/// Live streams tell of a route what happened within this time.
const LIVE_SECONDS_MS: i64 = 2_500;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(list, change::create))
        .routes(routes!(stats::stats))
        .routes(routes!(events))
        .routes(routes!(test))
        .routes(routes!(reload))
        .routes(routes!(show, change::replace, change::delete))
        .routes(routes!(change::maintenance))
        .routes(routes!(stats::stats_of))
}

/// Refuses while the database was not reached yet.
fn ready(shared: &Shared) -> Result<(), Problem> {
    fleet(shared).map(|_| ())
}

fn unknown(name: &str) -> Problem {
    let name: String = name.chars().take(100).collect();
    Problem::new(&problem::E_ROUTE_UNKNOWN, format!("there is no route {name:?}"))
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct RoutesAnswer {
    /// Those of the file first, then by name.
    routes: Vec<RouteAnswer>,
    /// What works otherwise than somebody will have meant it.
    warnings: Vec<String>,
    /// Where this node serves them.
    gateway: Option<String>,
    /// The same for those who speak TLS.
    gateway_tls: Option<String>,
}

/// All routes, and how they are doing on this node
#[utoipa::path(
    get, path = "/api/v1/routes", tag = "routes", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "They", body = RoutesAnswer))
)]
async fn list(State(shared): State<Arc<Shared>>) -> Json<RoutesAnswer> {
    let known = shared.routes.known();
    let of = |route| RouteAnswer::of(route, &shared.routes);
    Json(RoutesAnswer {
        routes: known.routes.iter().map(of).collect(),
        warnings: known.warnings.clone(),
        gateway: shared.gateway_address.get().map(ToString::to_string),
        gateway_tls: shared.gateway_tls_address.get().map(ToString::to_string),
    })
}

/// One route as it was written, and how it is doing on this node
#[utoipa::path(
    get, path = "/api/v1/routes/{name}", tag = "routes", extensions(("x-scope" = json!("read"))),
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, description = "The route; its version is the `ETag` too",
               body = RouteAnswer),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    answer(&shared, &asker, &name)
}

/// A route with its spec and its version.
fn answer(shared: &Shared, asker: &Asker, name: &str) -> Result<Response, Problem> {
    let known = shared.routes.known();
    let route = known.get(name).ok_or_else(|| unknown(name))?;
    let may_see = asker.known().scopes.allow(Scope::Admin);
    let answer = RouteAnswer::of(route, &shared.routes).with_spec(route, may_see);
    let version = answer.version;
    let mut response = Json(answer).into_response();
    let tag = version.and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok());
    if let Some(tag) = tag {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct TestBody {
    /// Where somebody would go, such as `http://shop.example/api/cart`.
    url: String,
    /// With this method; `GET` if left out.
    method: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct TestAnswer {
    /// As it was asked for.
    url: String,
    /// As it was asked for.
    method: String,
    /// What `skep explain` takes, for a GET.
    #[schema(example = "route:http://shop.example/cart")]
    explain: String,
    /// What would become of it, and why.
    #[serde(flatten)]
    verdict: Verdict,
    /// What would make it come out otherwise.
    would_change: &'static str,
    /// What would give it another route.
    route_would_change: &'static str,
    /// Whether it would be sent again although an upstream that failed may have seen it.
    retries: Option<bool>,
}

/// What would become of a request, and why; nothing is sent
#[utoipa::path(
    post, path = "/api/v1/routes/test", tag = "routes", extensions(("x-scope" = json!("read"))),
    request_body = TestBody,
    responses((status = 200, description = "The route, the upstream, and why no other",
               body = TestAnswer),
              (status = 400, description = "That is no address", body = ProblemBody))
)]
async fn test(
    State(shared): State<Arc<Shared>>,
    Body(body): Body<TestBody>,
) -> Result<Json<TestAnswer>, Problem> {
    let shown: String = body.url.chars().take(100).collect();
    let wrong = || {
        let detail = format!("url: {shown:?} is not allowed; give one such as http://host/path");
        Problem::field("url", detail)
    };
    let uri: Uri = body.url.parse().map_err(|_| wrong())?;
    let (Some("http" | "https"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(wrong());
    };
    let method = body.method.unwrap_or_else(|| "GET".to_owned());
    if method.is_empty() || method.len() > 32 || !method.bytes().all(|b| b.is_ascii_graphic()) {
        let method: String = method.chars().take(40).collect();
        let detail = format!("method: {method:?} is not allowed; give one such as GET");
        return Err(Problem::field("method", detail));
    }
    let host = host.to_ascii_lowercase();
    let encrypted = uri.scheme_str() == Some("https");
    let question = Question { host: &host, path: uri.path(), encrypted };
    let verdict = shared.routes.proxy.test(&question);
    let known = shared.routes.known();
    let retries = verdict.route.as_deref().and_then(|name| known.get(name));
    let retries = retries.map(|route| route.spec.repeats(&method));
    let rule = decisive(&verdict);
    Ok(Json(TestAnswer {
        explain: Kind::Route.id(&body.url),
        url: body.url,
        method,
        would_change: would::route(rule),
        route_would_change: would::route(verdict.route_reason.rule),
        verdict,
        retries,
    }))
}

/// The rule that decided what becomes of a request.
fn decisive(verdict: &Verdict) -> &'static str {
    let upstream = verdict.upstream_reason.as_ref().map(|reason| reason.rule);
    let workers = verdict.workers.as_ref().map(|_| "workers");
    upstream.or(verdict.answered_here).or(workers).unwrap_or(verdict.route_reason.rule)
}

/// Read the routes of the file again, on this node
#[utoipa::path(
    post, path = "/api/v1/routes/reload", tag = "routes", extensions(("x-scope" = json!("admin"))),
    responses((status = 200, description = "What has changed", body = Reloaded),
              (status = 400, description = "The file is wrong, every line is named; nothing has \
               changed", body = ProblemBody))
)]
async fn reload(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
) -> Result<Json<Reloaded>, Problem> {
    let done = shared.routes.reload().await.map_err(|wrong| {
        let flaw = |line: &String| {
            let field = "routes".to_owned();
            Flaw { line: None, field, detail: line.clone() }
        };
        let flaws = wrong.0.iter().map(flaw).collect();
        Problem::new(&problem::E_ROUTE_INVALID, wrong.to_string()).flaws(flaws)
    })?;
    let Reloaded { added, changed, removed, .. } = &done;
    let (added, changed, removed) = (added.len(), changed.len(), removed.len());
    let detail = format!("{added} added, {changed} changed, {removed} removed");
    note(&shared, &asker, "routes.reload", ("", &detail)).await;
    Ok(Json(done))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsPage {
    /// Only of this route.
    route: Option<String>,
    /// Only `error`, `refused`, `rate-limited`, `breaker`, `health`, `certificate` or `reload`.
    kind: Option<String>,
    /// Only about this upstream.
    upstream: Option<String>,
    /// Only what this node saw.
    node: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<usize>,
    /// Only ids before this one: the `next` of the page before.
    before: Option<i64>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct RouteEventsAnswer {
    /// Newest first.
    pub events: Vec<RouteEventView>,
    /// What to send as `before` for the next page; nothing if this is the last.
    pub next: Option<i64>,
}

const KINDS: [&str; 7] =
    ["error", "refused", "rate-limited", "breaker", "health", "certificate", "reload"];

/// What happened to routes, newest first
#[utoipa::path(
    get, path = "/api/v1/routes/events", tag = "routes", extensions(("x-scope" = json!("read"))),
    params(EventsPage),
    responses((status = 200, description = "A page", body = RouteEventsAnswer),
              (status = 400, description = "A filter is wrong", body = ProblemBody))
)]
async fn events(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<EventsPage>,
) -> Result<Json<RouteEventsAnswer>, Problem> {
    ready(&shared)?;
    let kind = given(page.kind);
    if let Some(kind) = kind.as_deref().filter(|kind| !KINDS.contains(kind)) {
        let kind: String = kind.chars().take(40).collect();
        let detail = format!("kind: {kind:?} is not a kind; give {}", KINDS.join(", "));
        return Err(Problem::new(&problem::E_QUERY_INVALID, detail));
    }
    let (route, upstream, node) = (given(page.route), given(page.upstream), given(page.node));
    let filter = EventFilter { route, kind, upstream, node };
    let limit = page.limit.unwrap_or(100).clamp(1, PAGE_MAX);
    let found = shared.routes.store.events(&filter, page.before, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|one| one.id);
    Ok(Json(RouteEventsAnswer { events: found.into_iter().map(Into::into).collect(), next }))
}

/// The routes of the last seconds, and the events after this one, for live streams.
pub fn live(shared: &Shared, seen: u64) -> (serde_json::Value, u64) {
    let now = now_ms();
    let mut views: Vec<RouteView> = shared.routes.proxy.overview();
    for view in &mut views {
        view.seconds.retain(|second| second.at_ms > now - LIVE_SECONDS_MS);
    }
    let (events, newest) = shared.routes.journal.after(seen);
    (serde_json::json!({ "at_ms": now, "routes": views, "events": events }), newest)
}
