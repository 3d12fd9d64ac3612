//! Sessions, the workers that serve them, and how much room there is.

pub mod views;
mod workers;

pub use views::{
    CapacityAnswer, KindCapacity, SessionView, SessionsAnswer, SessionsOverview, WorkerView,
    WorkersAnswer,
};

use super::asked::note;
use super::polls::fleet;
use crate::access::now_ms;
use crate::http::extract::{Asker, Parameters};
use crate::http::guard::{admit_session, peer};
use crate::http::problem::{self, Code, Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use skep_policy::explain::{Kind, would};
use skep_policy::sessions::{Candidate, PAGE_ROWS, Version, Want, WorkerRow, scan};
use skep_sessions::{Refused, Sessions, TableError, parse_session_id};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(overview))
        .routes(routes!(list))
        .routes(routes!(show, end))
        .routes(routes!(capacity))
        .routes(routes!(explain))
        .merge(workers::routes())
}

/// What the gateway's own port answers to those who want no session.
pub fn gateway_router(shared: &Arc<Shared>) -> Router {
    let upgrade = async || {
        let detail = "connect with a WebSocket client, for example \
                      `chromium.connect('ws://HOST:PORT')`; GET /v1/capacity says what is free";
        Problem::new(&problem::E_UPGRADE_NEEDED, detail)
    };
    Router::new()
        .route("/v1/capacity", get(gateway_capacity))
        .fallback(upgrade)
        .with_state(shared.clone())
}

async fn gateway_capacity(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Json<CapacityAnswer>, Problem> {
    let address = peer(request.extensions());
    admit_session(&shared, request.headers(), None, address)?;
    Ok(Json(room(&shared).await?))
}

fn sessions(shared: &Shared) -> Result<&Sessions, Problem> {
    fleet(shared).map(|fleet| &fleet.sessions)
}

impl From<TableError> for Problem {
    fn from(error: TableError) -> Self {
        let text = error.to_string();
        match error {
            TableError::Unknown(what) if what.starts_with("session") => {
                Problem::new(&problem::E_SESSION_UNKNOWN, text)
            }
            TableError::Unknown(_) => Problem::new(&problem::E_WORKER_UNKNOWN, text),
            TableError::KindsMax(_) => Problem::new(&problem::E_WORKER_INVALID, text),
            TableError::Replaced(_) => Problem::new(&problem::E_WORKER_REPLACED, text),
            TableError::Store(error) => Problem::from(error),
        }
    }
}

/// The code of a refused session.
pub fn refused_code(refused: &Refused) -> &'static Code {
    match refused {
        Refused::NoWorkers { .. } => &problem::E_WORKERS_NONE,
        Refused::NoMatch { .. } => &problem::E_WORKERS_UNFIT,
        Refused::Busy { .. } | Refused::LineFull { .. } | Refused::WaitedTooLong { .. } => {
            &problem::E_WORKERS_BUSY
        }
        Refused::KeyLimit { .. } => &problem::E_SESSIONS_PER_KEY,
        Refused::Ended => &problem::E_SESSION_ENDED,
        Refused::Draining => &problem::E_STOPPING,
        Refused::TableAway { .. } => &problem::E_STORE_AWAY,
    }
}

/// How sessions go: kinds, lives of workers, the latest choices
#[utoipa::path(
    get, path = "/api/v1/sessions/overview", tag = "sessions",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Kinds, the last ten minutes of workers' lives, and \
               this node's latest choices with their reasons", body = SessionsOverview))
)]
async fn overview(State(shared): State<Arc<Shared>>) -> Result<Json<SessionsOverview>, Problem> {
    let sessions = sessions(&shared)?;
    let kinds = sessions.kinds().await?;
    Ok(Json(SessionsOverview {
        gateway: shared.gateway_address.get().map(ToString::to_string),
        open_here: sessions.open(),
        kinds: kinds.iter().map(views::kind).collect(),
        series: serde_json::json!(sessions.series()),
        choices: sessions.choices().iter().map(|choice| serde_json::json!(choice)).collect(),
    }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SessionsPage {
    /// Only sessions of this kind.
    kind: Option<String>,
    /// Only sessions on this worker.
    worker: Option<String>,
    /// `open` or `waiting`.
    state: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<usize>,
    /// Only sessions after this one: the `next` of the page before.
    after: Option<String>,
}

/// Sessions of all gateways
#[utoipa::path(
    get, path = "/api/v1/sessions", tag = "sessions", extensions(("x-scope" = json!("read"))),
    params(SessionsPage),
    responses((status = 200, description = "A page", body = SessionsAnswer),
              (status = 400, description = "A filter is wrong", body = ProblemBody))
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<SessionsPage>,
) -> Result<Json<SessionsAnswer>, Problem> {
    let limit = page_limit(page.limit)?;
    let open = match page.state.as_deref() {
        None => None,
        Some("open") => Some(true),
        Some("waiting") => Some(false),
        Some(other) => {
            return Err(query_problem("state", other, "`open` or `waiting`"));
        }
    };
    let mut after = match &page.after {
        None => None,
        Some(id) => match parse_session_id(id) {
            Some(id) => Some(id),
            None => return Err(query_problem("after", id, "the `next` of the page before")),
        },
    };
    let sessions = sessions(&shared)?;
    let mut found = Vec::new();
    let next = loop {
        let rows = sessions.sessions(after, PAGE_ROWS).await?;
        let last_page = rows.len() < PAGE_ROWS;
        let fits = |row: &&skep_policy::sessions::SessionRow| {
            page.kind.as_ref().is_none_or(|kind| *kind == row.kind)
                && page.worker.as_ref().is_none_or(|name| {
                    row.worker.as_ref().is_some_and(|(_, worker)| **worker == **name)
                })
                && open.is_none_or(|open| open == row.worker.is_some())
        };
        after = rows.last().map(|row| (row.gateway, row.ticket)).or(after);
        let left = limit - found.len();
        let mut fitting = rows.iter().filter(fits);
        found.extend(fitting.by_ref().take(left).map(|row| views::session(row, now_ms())));
        let more = fitting.next().is_some();
        if found.len() == limit && (more || !last_page) {
            break found.last().map(|view| view.id.clone());
        }
        if last_page {
            break None;
        }
    };
    Ok(Json(SessionsAnswer { sessions: found, next }))
}

/// One session
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}", tag = "sessions", extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "As in `s-1f2e3d-42`")),
    responses((status = 200, description = "The session", body = SessionView),
              (status = 404, description = "It is not there (any more)", body = ProblemBody))
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Json<SessionView>, Problem> {
    let unknown = || TableError::Unknown(format!("session {id:?}"));
    let (gateway, ticket) = parse_session_id(&id).ok_or_else(unknown)?;
    let before = match ticket.checked_sub(1) {
        Some(before) => Some((gateway, before)),
        None => return Err(unknown().into()),
    };
    let rows = sessions(&shared)?.sessions(before, 1).await?;
    let row = rows.first().filter(|row| (row.gateway, row.ticket) == (gateway, ticket));
    Ok(Json(views::session(row.ok_or_else(unknown)?, now_ms())))
}

/// Ends a session
#[utoipa::path(
    delete, path = "/api/v1/sessions/{id}", tag = "sessions",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "As in `s-1f2e3d-42`")),
    responses((status = 204, description = "Its gateway closes it"),
              (status = 404, description = "It is not there (any more)", body = ProblemBody))
)]
async fn end(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    sessions(&shared)?.end(&id).await?;
    note(&shared, &asker, "session.end", (&id, "")).await;
    Ok(StatusCode::NO_CONTENT)
}

/// What is free now, by kind and label, with a hint for autoscalers
#[utoipa::path(
    get, path = "/api/v1/sessions/capacity", tag = "sessions",
    extensions(("x-scope" = json!("session"))),
    responses((status = 200, description = "Room now; the gateway answers the same at \
               /v1/capacity", body = CapacityAnswer))
)]
async fn capacity(State(shared): State<Arc<Shared>>) -> Result<Json<CapacityAnswer>, Problem> {
    Ok(Json(room(&shared).await?))
}

async fn room(shared: &Shared) -> Result<CapacityAnswer, Problem> {
    let sessions = sessions(shared)?;
    let (kinds, workers) = (sessions.kinds().await?, all_workers(sessions).await?);
    Ok(views::capacity(&kinds, &workers))
}

/// Everybody, page by page.
async fn all_workers(sessions: &Sessions) -> Result<Vec<WorkerRow>, Problem> {
    let mut all = Vec::new();
    let mut from = 1;
    loop {
        let rows = sessions.workers(from, PAGE_ROWS).await?;
        let last_page = rows.len() < PAGE_ROWS;
        from = rows.last().map_or(from, |row| row.number + 1);
        all.extend(rows);
        if last_page {
            return Ok(all);
        }
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wished {
    /// The kind of worker; the usual one if left out.
    kind: Option<String>,
    /// Labels the worker must have, separated by commas.
    label: Option<String>,
    /// The client's version, as in `1.62`.
    version: Option<String>,
}

/// Which worker a session would get now, and why nobody else
#[utoipa::path(
    get, path = "/api/v1/sessions/explain", tag = "sessions",
    extensions(("x-scope" = json!("read"))), params(Wished),
    responses((status = 200, description = "The choice and its reason, everybody who was \
               rejected included", body = serde_json::Value),
              (status = 400, description = "A wish is wrong", body = ProblemBody))
)]
async fn explain(
    State(shared): State<Arc<Shared>>,
    Parameters(wished): Parameters<Wished>,
) -> Result<Json<serde_json::Value>, Problem> {
    let sessions = sessions(&shared)?;
    let kind = wished.kind.unwrap_or_else(|| sessions.options().default_kind.clone());
    let version = match &wished.version {
        None => None,
        Some(text) => match Version::parse(text) {
            Some(version) => Some(version),
            None => return Err(query_problem("version", text, "a version such as 1.62")),
        },
    };
    let labels = wished.label.unwrap_or_default();
    let of = wish(&kind, &labels, wished.version.as_deref());
    let labels = labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect();
    let want = Want { labels, version };
    let workers = all_workers(sessions).await?;
    let of_kind: Vec<Candidate<'_>> =
        workers.iter().filter(|row| row.kind == kind).map(Candidate::from).collect();
    let decision = scan(sessions.options().rules_of(&kind), &want, &of_kind);
    let chosen = decision.chosen.and_then(|number| {
        workers.iter().find(|row| row.number == number).map(|row| row.name.to_string())
    });
    Ok(Json(serde_json::json!({
        "kind": kind, "want": want.to_string(), "chosen": chosen, "reason": decision.reason,
        "text": decision.reason.to_string(), "explain": Kind::Wish.id(of),
        "would_change": would::session(decision.reason.rule),
    })))
}

/// A wish as ids name it: `KIND[,LABEL…][@VERSION]`.
fn wish(kind: &str, labels: &str, version: Option<&str>) -> String {
    let labels = labels.split(',').filter(|label| !label.is_empty());
    let parts = std::iter::once(kind).chain(labels).collect::<Vec<_>>().join(",");
    version.map_or(parts.clone(), |version| format!("{parts}@{version}"))
}

fn page_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(100),
        Some(limit) if (1..=PAGE_ROWS).contains(&limit) => Ok(limit),
        Some(limit) => Err(query_problem("limit", &limit.to_string(), "1 to 1000")),
    }
}

fn query_problem(name: &str, value: &str, right: &str) -> Problem {
    Problem::new(
        &problem::E_QUERY_INVALID,
        format!("{name}: {value:?} is not allowed; give {right}"),
    )
}
