//! What workers say of themselves, and what operators say to them.

use super::views::{self, WorkerView, WorkersAnswer};
use super::{note, page_limit, query_problem, sessions};
use crate::http::extract::{Asker, Body, Parameters};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::{Shared, State as NodeState};
use crate::settings::is_kind;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use skep_gateway::WorkerUrl;
use skep_policy::Name;
use skep_policy::reach::Reach;
use skep_policy::sessions::{
    DueBy, Heartbeat, LIFETIME_MAX, Order, PAGE_ROWS, Phase, Register, SLOTS_MAX, Shape, Standing,
    Version,
};
use skep_sessions::Load;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Labels of one worker at most.
const LABELS_MAX: usize = 32;
/// How often a worker should be heard of.
const HEARTBEAT_MS: u64 = 5_000;
/// How long a heartbeat may wait for another order, and how long at a node that stops.
const WAIT_MAX_MS: u64 = 30_000;
const DRAINING_WAIT: Duration = Duration::from_millis(500);

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(list, register))
        .routes(routes!(show, leave))
        .routes(routes!(heartbeat))
        .routes(routes!(drain))
        .routes(routes!(undrain))
        .routes(routes!(remove))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WorkersPage {
    /// Only workers of this kind.
    kind: Option<String>,
    /// Only those with this label.
    label: Option<String>,
    /// Only those that stand so, as in `held`.
    standing: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<usize>,
    /// From this number on: the `next` of the page before.
    from: Option<u64>,
}

/// Workers by number
#[utoipa::path(
    get, path = "/api/v1/sessions/workers", tag = "sessions",
    extensions(("x-scope" = json!("read"))), params(WorkersPage),
    responses((status = 200, description = "A page", body = WorkersAnswer),
              (status = 400, description = "A filter is wrong", body = ProblemBody))
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<WorkersPage>,
) -> Result<Json<WorkersAnswer>, Problem> {
    let limit = page_limit(page.limit)?;
    if let Some(asked) = &page.standing
        && !Standing::ALL.iter().any(|standing| standing.name() == asked)
    {
        let all = Standing::ALL.map(Standing::name).join(", ");
        return Err(query_problem("standing", asked, &format!("one of {all}")));
    }
    let sessions = sessions(&shared)?;
    let (mut found, mut from) = (Vec::new(), page.from.unwrap_or(1));
    loop {
        let rows = sessions.workers(from, PAGE_ROWS).await?;
        let last_page = rows.len() < PAGE_ROWS;
        for row in &rows {
            let fits = page.kind.as_ref().is_none_or(|kind| *kind == row.kind)
                && page.label.as_ref().is_none_or(|label| row.shape.labels.contains(label))
                && page.standing.as_ref().is_none_or(|name| row.standing.name() == name);
            if fits && found.len() == limit {
                return Ok(Json(WorkersAnswer { workers: found, next: Some(row.number) }));
            }
            if fits {
                found.push(views::worker(row, sessions.load_of(&row.name)));
            }
            from = row.number + 1;
        }
        if last_page {
            return Ok(Json(WorkersAnswer { workers: found, next: None }));
        }
    }
}

/// A worker's program runs.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct RegisterBody {
    /// One name is one worker.
    name: String,
    /// As in `chromium`.
    kind: String,
    /// Where gateways reach it, as in `ws://10.0.0.7:9001/secret-path`.
    url: String,
    /// Sessions at once; what the settings say if left out.
    slots: Option<u32>,
    #[serde(default)]
    labels: Vec<String>,
    /// The version that clients must match in their first two numbers, as in `1.62.1`.
    version: Option<String>,
    /// A random text for this start of the program; saying it again is no new life.
    start: String,
    /// Sessions it has had since its start: 0 for a fresh one, or what it was last told.
    #[serde(default)]
    lifetime: u32,
    /// It was restarted because it was told to.
    #[serde(default)]
    recycled: bool,
    /// It can start its successor before it goes.
    #[serde(default)]
    successor: bool,
}

#[derive(Serialize, utoipa::ToSchema)]
struct RegisteredAnswer {
    worker: String,
    /// Goes into every heartbeat.
    incarnation: u64,
    /// How often to send one.
    heartbeat_ms: u64,
    lifetime_max: u32,
    slots: u32,
}

/// Registers a worker, or says again that it is there
#[utoipa::path(
    post, path = "/api/v1/sessions/workers", tag = "sessions",
    extensions(("x-scope" = json!("worker"))), request_body = RegisterBody,
    responses((status = 200, description = "It is in", body = RegisteredAnswer),
              (status = 400, description = "A field is wrong", body = ProblemBody),
              (status = 409, description = "It was removed", body = ProblemBody))
)]
async fn register(
    State(shared): State<Arc<Shared>>,
    Body(body): Body<RegisterBody>,
) -> Result<Json<RegisteredAnswer>, Problem> {
    let registered = sessions(&shared)?.register(check(body, shared.work.dials.reach())?).await?;
    Ok(Json(RegisteredAnswer {
        worker: format!("w{}", registered.worker),
        incarnation: registered.incarnation,
        heartbeat_ms: HEARTBEAT_MS,
        lifetime_max: registered.lifetime_max,
        slots: registered.slots,
    }))
}

fn invalid(field: &str, value: &str, right: &str) -> Problem {
    let shown: String = value.chars().take(80).collect();
    let detail = format!("{field}: {shown:?} is not allowed; give {right}");
    Problem::new(&problem::E_WORKER_INVALID, detail)
}

fn check(body: RegisterBody, reach: &Reach) -> Result<Register, Problem> {
    let name: Name = body.name.parse().map_err(|error| {
        invalid("name", &body.name, &format!("a name of letters, digits, '.', '_', '-': {error}"))
    })?;
    if !is_kind(&body.kind) {
        let right = "up to 64 letters, digits, '.', '_', '-', a letter or digit first";
        return Err(invalid("kind", &body.kind, right));
    }
    let url = body
        .url
        .parse::<WorkerUrl>()
        .map_err(|error| Problem::new(&problem::E_WORKER_INVALID, error.to_string()))?;
    reach.judge_host(url.host()).map_err(|denied| {
        let detail = format!("url: {denied}; give another address, or set reach.allow");
        Problem::new(&problem::E_ADDRESS_DENIED, detail).at("url")
    })?;
    if let Some(slots) = body.slots
        && !(1..=SLOTS_MAX).contains(&slots)
    {
        return Err(invalid("slots", &slots.to_string(), &format!("1 to {SLOTS_MAX}")));
    }
    if body.labels.len() > LABELS_MAX {
        let count = body.labels.len().to_string();
        return Err(invalid("labels", &count, &format!("at most {LABELS_MAX}")));
    }
    if let Some(label) = body.labels.iter().find(|label| !is_label(label)) {
        let right = "up to 64 letters, digits, '.', '_', '-', '='";
        return Err(invalid("labels", label, right));
    }
    let version = match &body.version {
        None => None,
        Some(text) => match Version::parse(text) {
            Some(version) => Some(version),
            None => return Err(invalid("version", text, "a version such as 1.62.1")),
        },
    };
    if body.start.is_empty() || body.start.len() > 128 {
        return Err(invalid("start", &body.start, "a random text of up to 128 bytes"));
    }
    if body.lifetime > LIFETIME_MAX {
        let right = format!("0 to {LIFETIME_MAX}");
        return Err(invalid("lifetime", &body.lifetime.to_string(), &right));
    }
    Ok(Register {
        name: name.as_str().into(),
        kind: body.kind,
        url: body.url.into(),
        slots: body.slots,
        shape: Shape { labels: body.labels.into_iter().collect(), version },
        start: body.start.into(),
        lifetime: body.lifetime,
        recycled: body.recycled,
        successor: body.successor,
    })
}

fn is_label(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '=');
    (1..=64).contains(&text.len()) && text.chars().all(fits)
}

/// A worker lives.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct HeartbeatBody {
    incarnation: u64,
    /// `serving`, `restarting` (as ordered) or `down`.
    #[schema(value_type = String)]
    phase: Phase,
    /// `memory` or `age`: it should be recycled.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    due: Option<DueBy>,
    /// Sessions in this life as it was last told.
    #[serde(default)]
    lifetime: u32,
    /// `running` or `gone`: the program that this one succeeded.
    #[serde(default)]
    old: Option<String>,
    /// The order it knows; the answer comes when there is another, or after `wait_ms`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    order: Option<Order>,
    #[serde(default)]
    wait_ms: u64,
    /// What its programs hold, for people.
    #[serde(default)]
    rss_bytes: Option<u64>,
    #[serde(default)]
    cpu_percent: Option<f64>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct HeartbeatAnswer {
    /// `serve`, `restart`, `succeed`, `stop_old` or `leave`.
    #[schema(value_type = String)]
    order: Order,
    lifetime: u32,
    active: u32,
    leaving: u32,
}

/// Says that a worker lives, and waits for its orders
#[utoipa::path(
    post, path = "/api/v1/sessions/workers/{name}/heartbeat", tag = "sessions",
    extensions(("x-scope" = json!("worker"))), request_body = HeartbeatBody,
    params(("name" = String, Path, description = "The worker's name")),
    responses((status = 200, description = "What it is to do", body = HeartbeatAnswer),
              (status = 404, description = "It is not known: register again", body = ProblemBody),
              (status = 409, description = "Another start has its name", body = ProblemBody))
)]
async fn heartbeat(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Body(body): Body<HeartbeatBody>,
) -> Result<Json<HeartbeatAnswer>, Problem> {
    let old_gone = match body.old.as_deref() {
        None | Some("running") => false,
        Some("gone") => true,
        Some(other) => return Err(invalid("old", other, "`running` or `gone`")),
    };
    let sessions = sessions(&shared)?;
    let load = Load { rss_bytes: body.rss_bytes, cpu_percent: body.cpu_percent };
    sessions.note_load(&name, load);
    let heartbeat = Heartbeat {
        name,
        incarnation: body.incarnation,
        phase: body.phase,
        due: body.due,
        lifetime: body.lifetime,
        old_gone,
    };
    let wait = Duration::from_millis(body.wait_ms.min(WAIT_MAX_MS));
    let is_draining = |state: &NodeState| *state == NodeState::Draining;
    let mut state = shared.state.clone();
    let wait = if is_draining(&state.borrow()) { wait.min(DRAINING_WAIT) } else { wait };
    let ordered = tokio::select! {
        ordered = sessions.heartbeat(heartbeat.clone(), body.order, wait) => ordered?,
        // A node that stops does not wait for those who wait for it.
        () = async { drop(state.wait_for(is_draining).await) }, if wait > DRAINING_WAIT => {
            sessions.heartbeat(heartbeat, None, Duration::ZERO).await?
        }
    };
    Ok(Json(HeartbeatAnswer {
        order: ordered.order,
        lifetime: ordered.lifetime,
        active: ordered.active,
        leaving: ordered.leaving,
    }))
}

/// One worker
#[utoipa::path(
    get, path = "/api/v1/sessions/workers/{name}", tag = "sessions",
    extensions(("x-scope" = json!("read"))),
    params(("name" = String, Path, description = "The worker's name")),
    responses((status = 200, description = "The worker", body = WorkerView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<Json<WorkerView>, Problem> {
    let sessions = sessions(&shared)?;
    Ok(Json(views::worker(&sessions.worker(&name).await?, sessions.load_of(&name))))
}

/// Says that a worker goes for good; its sessions are ended
#[utoipa::path(
    delete, path = "/api/v1/sessions/workers/{name}", tag = "sessions",
    extensions(("x-scope" = json!("worker"))),
    params(("name" = String, Path, description = "The worker's name")),
    responses((status = 204, description = "It is forgotten"),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn leave(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    sessions(&shared)?.remove(&name, true).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keeps new sessions away from a worker; those it has go on
#[utoipa::path(
    post, path = "/api/v1/sessions/workers/{name}/drain", tag = "sessions",
    extensions(("x-scope" = json!("worker"))),
    params(("name" = String, Path, description = "The worker's name")),
    responses((status = 204, description = "It gets no new sessions"),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn drain(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    sessions(&shared)?.set_drained(&name, true).await?;
    note(&shared, &asker, "worker.drain", (&name, "")).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a drained worker have sessions again
#[utoipa::path(
    post, path = "/api/v1/sessions/workers/{name}/undrain", tag = "sessions",
    extensions(("x-scope" = json!("worker"))),
    params(("name" = String, Path, description = "The worker's name")),
    responses((status = 204, description = "It takes sessions again"),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn undrain(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    sessions(&shared)?.set_drained(&name, false).await?;
    note(&shared, &asker, "worker.undrain", (&name, "")).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a worker away: its sessions are ended and its supervisor stops it
#[utoipa::path(
    post, path = "/api/v1/sessions/workers/{name}/remove", tag = "sessions",
    extensions(("x-scope" = json!("admin"))),
    params(("name" = String, Path, description = "The worker's name")),
    responses((status = 204, description = "It is told with its next heartbeat"),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn remove(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    sessions(&shared)?.remove(&name, false).await?;
    note(&shared, &asker, "worker.remove", (&name, "")).await;
    Ok(StatusCode::NO_CONTENT)
}
