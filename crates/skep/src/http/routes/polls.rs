//! Endpoints, who polls them, and what came of it.

mod views;

pub use views::{EndpointView, MoveView, ResultView};

use super::asked::{given, label, named, note};
use crate::access::Scope;
use crate::fleet::Fleet;
use crate::http::extract::{Asker, Body, Parameters};
use crate::http::problem::{self, Flaw, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use skep_polls::{ChangeError, Filter, Polls};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const PAGE_MAX: usize = 1_000;

/// Flaws of an import that are told; of more only the count is.
const FLAWS_MAX: usize = 1_000;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(overview))
        .routes(routes!(list, create))
        .routes(routes!(import))
        .routes(routes!(show, replace, delete))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(poll_now))
        .routes(routes!(results))
        .routes(routes!(moves))
        .routes(routes!(owners))
}

fn polls(shared: &Shared) -> Result<&Polls, Problem> {
    fleet(shared).map(|fleet| &fleet.polls)
}

/// The fleet, or that the node is still starting.
pub fn fleet(shared: &Shared) -> Result<&Fleet, Problem> {
    let starting = || Problem::new(&problem::E_STARTING, "the stores were not reached yet");
    shared.fleet().ok_or_else(starting)
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let text = error.to_string();
        match error {
            ChangeError::Bad(flaws) => {
                let flaws = flaws.iter().map(|flaw| Flaw::new(None, flaw)).collect();
                Problem::new(&problem::E_ENDPOINT_INVALID, text).flaws(flaws)
            }
            ChangeError::Denied(flaw) => {
                let flaws = vec![Flaw::new(None, &flaw)];
                Problem::new(&problem::E_ADDRESS_DENIED, text).flaws(flaws)
            }
            ChangeError::Exists(_) => Problem::new(&problem::E_ENDPOINT_EXISTS, text),
            ChangeError::Missing(_) => Problem::new(&problem::E_ENDPOINT_UNKNOWN, text),
            ChangeError::Conflict { .. } => Problem::new(&problem::E_ENDPOINT_CHANGED, text),
            ChangeError::Full { .. } => Problem::new(&problem::E_ENDPOINTS_MAX, text),
            ChangeError::Store(error) => Problem::from(error),
        }
    }
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct PollsAnswer {
    /// How polling goes on this node.
    #[schema(value_type = Object)]
    pub here: serde_json::Value,
    /// Endpoints of the installation.
    pub endpoints: u64,
    /// Those that are paused.
    pub paused: u64,
    /// Those whose last poll found something wrong.
    pub failing: u64,
    /// A point a second, the oldest first, ten minutes at most.
    #[schema(value_type = Vec<Object>)]
    pub points: Vec<serde_json::Value>,
}

/// How polling goes
#[utoipa::path(
    get, path = "/api/v1/polls", tag = "polls", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Counts, and the last ten minutes of this node",
               body = PollsAnswer))
)]
async fn overview(State(shared): State<Arc<Shared>>) -> Result<Json<PollsAnswer>, Problem> {
    let polls = polls(&shared)?;
    let summary = polls.summary().await?;
    Ok(Json(PollsAnswer {
        here: serde_json::json!(polls.now()),
        endpoints: summary.endpoints,
        paused: summary.paused,
        failing: summary.failing,
        points: polls.beats().iter().map(|beat| serde_json::json!(beat)).collect(),
    }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EndpointsPage {
    /// Only ids that contain this.
    search: Option<String>,
    /// `http`, `https`, `tcp` or `tls`.
    kind: Option<String>,
    /// A label as in `env`, or with its value as in `env=prod`.
    label: Option<String>,
    /// Whether it is paused.
    paused: Option<bool>,
    /// Only those that this node polls.
    owner: Option<String>,
    /// `failing`: only those whose last poll found something wrong; `total` counts those after
    /// `after` then.
    state: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<usize>,
    /// Only ids after this one: the `next` of the page before.
    after: Option<String>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct EndpointsAnswer {
    /// By id.
    pub endpoints: Vec<EndpointView>,
    /// How many the filter lets through.
    pub total: usize,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
}

/// Endpoints by id
#[utoipa::path(
    get, path = "/api/v1/polls/endpoints", tag = "polls",
    extensions(("x-scope" = json!("read"))), params(EndpointsPage),
    responses((status = 200, description = "A page", body = EndpointsAnswer),
              (status = 400, description = "A filter is wrong", body = ProblemBody))
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Parameters(page): Parameters<EndpointsPage>,
) -> Result<Json<EndpointsAnswer>, Problem> {
    if let Some(kind) = given(page.kind.clone())
        && !["http", "https", "tcp", "tls"].contains(&&*kind)
    {
        let kind: String = kind.chars().take(40).collect();
        let detail = format!("kind: {kind:?} is not a kind; give http, https, tcp or tls");
        return Err(Problem::new(&problem::E_QUERY_INVALID, detail));
    }
    let failing = match given(page.state).as_deref() {
        None => false,
        Some("failing") => true,
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            let detail = format!("state: {other:?} cannot be asked for; give failing");
            return Err(Problem::new(&problem::E_QUERY_INVALID, detail));
        }
    };
    let filter = Filter {
        search: given(page.search),
        kind: given(page.kind),
        label: given(page.label).map(label),
        paused: page.paused,
        owner: given(page.owner),
        failing,
    };
    let limit = page.limit.unwrap_or(100).clamp(1, PAGE_MAX);
    let (found, total) = polls(&shared)?.list(&filter, page.after.as_deref(), limit).await?;
    let full = found.len() == limit;
    let next = found.last().filter(|_| full).map(|one| one.endpoint.spec.id.clone());
    let may_change = asker.known().scopes.allow(Scope::Poll);
    let endpoints = found.iter().map(|one| EndpointView::of(one, may_change)).collect();
    Ok(Json(EndpointsAnswer { endpoints, total, next }))
}

/// Add an endpoint
#[utoipa::path(
    post, path = "/api/v1/polls/endpoints", tag = "polls",
    extensions(("x-scope" = json!("poll"))), request_body = Object,
    responses(
        (status = 201, description = "It is polled from now on", body = EndpointView),
        (status = 400, description = "It is not an endpoint; every flaw is named",
         body = ProblemBody),
        (status = 409, description = "There is one with this id, or there are too many",
         body = ProblemBody)
    )
)]
async fn create(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(body): Body<serde_json::Value>,
) -> Result<(StatusCode, Json<EndpointView>), Problem> {
    let endpoint = polls(&shared)?.create(&body).await?;
    note(&shared, &asker, "polls.create", (&endpoint.spec.id, "")).await;
    Ok((StatusCode::CREATED, Json(EndpointView::plain(&endpoint, true))))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ImportHow {
    /// Whether the good lines are applied although others are wrong.
    partial: Option<bool>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ImportAnswer {
    /// Endpoints that were not there before.
    pub created: usize,
    /// Endpoints that were different.
    pub changed: usize,
    /// Endpoints that were the same already.
    pub unchanged: usize,
    /// Lines that were left out, with `partial`.
    pub wrong: Vec<Flaw>,
}

/// Add or replace many endpoints: one line of JSON each
#[utoipa::path(
    post, path = "/api/v1/polls/import", tag = "polls",
    extensions(("x-scope" = json!("poll"))), params(ImportHow),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses(
        (status = 200, description = "What was done", body = ImportAnswer),
        (status = 400, description = "Lines are wrong, all are named; nothing was done",
         body = ProblemBody),
        (status = 409, description = "There would be too many", body = ProblemBody)
    )
)]
async fn import(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Parameters(how): Parameters<ImportHow>,
    body: Bytes,
) -> Result<Json<ImportAnswer>, Problem> {
    let partial = how.partial.unwrap_or(false);
    let report = polls(&shared)?.import(&body, partial).await?;
    let lines = report.wrong.len();
    let flaws = report
        .wrong
        .iter()
        .flat_map(|(line, flaws)| flaws.iter().map(|flaw| Flaw::new(Some(*line), flaw)));
    let wrong: Vec<Flaw> = flaws.take(FLAWS_MAX).collect();
    let Some(done) = report.done else {
        let are = if lines == 1 { "line is" } else { "lines are" };
        let detail = format!("{lines} {are} wrong, and nothing was done; see `flaws`");
        return Err(Problem::new(&problem::E_IMPORT_INVALID, detail).flaws(wrong));
    };
    let text = format!("{} created, {} changed", done.created, done.changed);
    note(&shared, &asker, "polls.import", (&text, "")).await;
    let (created, changed, unchanged) = (done.created, done.changed, done.unchanged);
    Ok(Json(ImportAnswer { created, changed, unchanged, wrong }))
}

fn unknown(id: &str) -> Problem {
    let id: String = id.chars().take(200).collect();
    Problem::new(&problem::E_ENDPOINT_UNKNOWN, format!("there is no endpoint {id:?}"))
}

/// One endpoint
#[utoipa::path(
    get, path = "/api/v1/polls/endpoints/{id}", tag = "polls",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id; a slash in it is written %2F")),
    responses((status = 200, description = "The endpoint", body = EndpointView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
) -> Result<Json<EndpointView>, Problem> {
    let found = polls(&shared)?.show(&id).await?.ok_or_else(|| unknown(&id))?;
    let may_change = asker.known().scopes.allow(Scope::Poll);
    Ok(Json(EndpointView::of(&found, may_change)))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Expected {
    /// The version it must have; any if left out.
    version: Option<i64>,
}

/// Replace an endpoint
#[utoipa::path(
    put, path = "/api/v1/polls/endpoints/{id}", tag = "polls",
    extensions(("x-scope" = json!("poll"))), request_body = Object,
    params(("id" = String, Path, description = "Its id; a slash in it is written %2F"), Expected),
    responses(
        (status = 200, description = "It is polled like that from now on", body = EndpointView),
        (status = 400, description = "It is not an endpoint", body = ProblemBody),
        (status = 404, description = "There is none", body = ProblemBody),
        (status = 409, description = "Somebody else changed it meanwhile", body = ProblemBody)
    )
)]
async fn replace(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
    Parameters(expected): Parameters<Expected>,
    Body(body): Body<serde_json::Value>,
) -> Result<Json<EndpointView>, Problem> {
    let body = named(body, "id", &id)?;
    let endpoint = polls(&shared)?.replace(&body, expected.version).await?;
    note(&shared, &asker, "polls.replace", (&id, "")).await;
    Ok(Json(EndpointView::plain(&endpoint, true)))
}

/// Delete an endpoint and everything known about it
#[utoipa::path(
    delete, path = "/api/v1/polls/endpoints/{id}", tag = "polls",
    extensions(("x-scope" = json!("poll"))),
    params(("id" = String, Path, description = "Its id; a slash in it is written %2F")),
    responses((status = 204, description = "It is gone"),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    polls(&shared)?.delete(&id).await?;
    note(&shared, &asker, "polls.delete", (&id, "")).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Stop polling an endpoint for now
#[utoipa::path(
    post, path = "/api/v1/polls/endpoints/{id}/pause", tag = "polls",
    extensions(("x-scope" = json!("poll"))),
    params(("id" = String, Path, description = "Its id; a slash in it is written %2F")),
    responses((status = 200, description = "It stops within a second", body = EndpointView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn pause(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
) -> Result<Json<EndpointView>, Problem> {
    set_paused(&shared, &asker, &id, true).await
}

/// Poll an endpoint again
#[utoipa::path(
    post, path = "/api/v1/polls/endpoints/{id}/resume", tag = "polls",
    extensions(("x-scope" = json!("poll"))),
    params(("id" = String, Path, description = "Its id; a slash in it is written %2F")),
    responses((status = 200, description = "It is polled again", body = EndpointView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn resume(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
) -> Result<Json<EndpointView>, Problem> {
    set_paused(&shared, &asker, &id, false).await
}

async fn set_paused(
    shared: &Shared,
    asker: &Asker,
    id: &str,
    paused: bool,
) -> Result<Json<EndpointView>, Problem> {
    let endpoint = polls(shared)?.set_paused(id, paused).await?;
    note(shared, asker, if paused { "polls.pause" } else { "polls.resume" }, (id, "")).await;
    Ok(Json(EndpointView::plain(&endpoint, true)))
}

/// Poll an endpoint now; the node that owns it does
#[utoipa::path(
    post, path = "/api/v1/polls/endpoints/{id}/poll", tag = "polls",
    extensions(("x-scope" = json!("poll"))),
    params(("id" = String, Path, description = "Its id; a slash in it is written %2F")),
    responses((status = 202, description = "It will be polled in a moment", body = EndpointView),
              (status = 404, description = "There is none", body = ProblemBody),
              (status = 409, description = "It is paused", body = ProblemBody))
)]
async fn poll_now(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<EndpointView>), Problem> {
    let endpoint = polls(&shared)?.poll_now(&id).await?;
    if endpoint.spec.paused {
        let detail = format!("the endpoint {id:?} is paused; resume it first");
        return Err(Problem::new(&problem::E_ENDPOINT_PAUSED, detail));
    }
    Ok((StatusCode::ACCEPTED, Json(EndpointView::plain(&endpoint, true))))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Newest {
    /// So many of the newest at most; 50 if left out, 1000 at most.
    limit: Option<u32>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResultsAnswer {
    /// The newest first.
    pub results: Vec<ResultView>,
}

/// The last results of an endpoint
#[utoipa::path(
    get, path = "/api/v1/polls/endpoints/{id}/results", tag = "polls",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id; a slash in it is written %2F"), Newest),
    responses((status = 200, description = "They", body = ResultsAnswer),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn results(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Parameters(newest): Parameters<Newest>,
) -> Result<Json<ResultsAnswer>, Problem> {
    let polls = polls(&shared)?;
    let limit = newest.limit.unwrap_or(50).clamp(1, 1_000);
    let rows = polls.results(&id, limit).await?;
    if rows.is_empty() && polls.show(&id).await?.is_none() {
        return Err(unknown(&id));
    }
    Ok(Json(ResultsAnswer { results: rows.into_iter().map(ResultView::of).collect() }))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct MovesAnswer {
    /// The newest first, twenty at most.
    pub moves: Vec<MoveView>,
}

/// Who polled an endpoint when, and why
#[utoipa::path(
    get, path = "/api/v1/polls/endpoints/{id}/moves", tag = "polls",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id; a slash in it is written %2F")),
    responses((status = 200, description = "They", body = MovesAnswer),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn moves(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Json<MovesAnswer>, Problem> {
    let polls = polls(&shared)?;
    let moves = polls.moves(&id).await?;
    if moves.is_empty() && polls.show(&id).await?.is_none() {
        return Err(unknown(&id));
    }
    Ok(Json(MovesAnswer { moves: moves.into_iter().map(|one| MoveView::of(&id, one)).collect() }))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct OwnersAnswer {
    /// The ids of the endpoints each node polls.
    pub nodes: BTreeMap<String, Vec<String>>,
    /// Those that nobody polls at the moment.
    pub nobody: Vec<String>,
}

/// Which node polls what
#[utoipa::path(
    get, path = "/api/v1/polls/owners", tag = "polls", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "As this node knows it", body = OwnersAnswer))
)]
async fn owners(State(shared): State<Arc<Shared>>) -> Result<Json<OwnersAnswer>, Problem> {
    let fleet = fleet(&shared)?;
    let mut answer = OwnersAnswer { nodes: BTreeMap::new(), nobody: Vec::new() };
    for node in fleet.nodes.overview().nodes {
        answer.nodes.insert(node.name.to_string(), Vec::new());
    }
    for (id, owner) in fleet.polls.owners() {
        match owner {
            Some(owner) => answer.nodes.entry(owner.to_string()).or_default().push(id.to_string()),
            None => answer.nobody.push(id.to_string()),
        }
    }
    Ok(Json(answer))
}
