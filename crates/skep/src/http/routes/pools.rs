//! The worker pools and their dead letters.

use super::asked::note;
use crate::access::now_ms;
use crate::http::extract::{Asker, Parameters};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use crate::work::{Alert, KeptLetter, LetterFilter, Place, WorkPoint, read_id, store};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use base64::Engine;
use serde::{Deserialize, Serialize};
use skep_policy::explain::{Kind, would};
use skep_pools::{PoolStats, RetryError, Scaling, Stuck, Tier};
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const PAGE_MAX: u32 = 1_000;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(all))
        .routes(routes!(one))
        .routes(routes!(stuck))
        .routes(routes!(history))
        .routes(routes!(scaling))
        .routes(routes!(letters))
        .routes(routes!(letter, discard))
        .routes(routes!(retry))
}

/// A pool's numbers, as they are counted. The fields are described in `docs/pools.md`.
type Stats = serde_json::Value;

fn plain(value: &impl Serialize) -> Stats {
    serde_json::to_value(value).unwrap_or_default()
}

/// A pool, with what `skep explain` takes: each node has its own.
pub fn pool_view(shared: &Shared, pool: &PoolStats) -> Stats {
    let mut view = plain(pool);
    view["explain"] = Kind::Pool.id_at(shared.name.as_str(), pool.name).into();
    view
}

/// A scaling decision, with what `skep explain` takes and what would change it.
pub fn scaling_view(shared: &Shared, one: &Scaling) -> Stats {
    let mut view = plain(one);
    let rule = one.reason.split(": ").next().unwrap_or_default();
    view["explain"] = Kind::Scale.id_at(shared.name.as_str(), one.number).into();
    view["would_change"] = would::pool(rule, one.pool).into();
    view
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct PoolsAnswer {
    /// Critical, high, normal, low and shared.
    #[schema(value_type = Vec<Object>)]
    pub pools: Vec<Stats>,
}

/// All worker pools
#[utoipa::path(
    get, path = "/metrics/pools", tag = "pools", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Five pools", body = PoolsAnswer))
)]
async fn all(State(shared): State<Arc<Shared>>) -> Json<PoolsAnswer> {
    let pools = shared.work.pools.stats();
    Json(PoolsAnswer { pools: pools.iter().map(|one| pool_view(&shared, one)).collect() })
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct PoolAnswer {
    /// The pool.
    #[schema(value_type = Object)]
    pub pool: Stats,
    /// Its last scaling decisions, the oldest first.
    #[schema(value_type = Vec<Object>)]
    pub scaling: Vec<Stats>,
    /// Its alerts that fire.
    #[schema(value_type = Vec<Object>)]
    pub alerts: Vec<Stats>,
}

fn unknown_pool(name: &str) -> Problem {
    let name: String = name.chars().take(40).collect();
    let detail =
        format!("{name:?} is not a pool; there are critical, high, normal, low and shared");
    Problem::new(&problem::E_POOL_UNKNOWN, detail)
}

/// One worker pool, with its last scaling decisions
#[utoipa::path(
    get, path = "/metrics/pools/{name}", tag = "pools", extensions(("x-scope" = json!("read"))),
    params(("name" = String, Path, description = "critical, high, normal, low or shared")),
    responses(
        (status = 200, description = "The pool", body = PoolAnswer),
        (status = 404, description = "There is no such pool", body = ProblemBody)
    )
)]
async fn one(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<Json<PoolAnswer>, Problem> {
    let stats = shared.work.pools.stats();
    let pool = stats.iter().find(|pool| pool.name == name).ok_or_else(|| unknown_pool(&name))?;
    let scaling = shared.work.scaling_since(0);
    let scaling = scaling.iter().filter(|one| one.pool == name);
    let alerts = shared.work.alerts.firing();
    Ok(Json(PoolAnswer {
        pool: pool_view(&shared, pool),
        scaling: scaling.map(|one| scaling_view(&shared, one)).collect(),
        alerts: alerts.iter().filter(|one| one.pool == name).map(plain).collect(),
    }))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct StuckAnswer {
    /// The longest first.
    #[schema(value_type = Vec<Object>)]
    pub stuck: Vec<Stats>,
}

/// Tasks of a pool that have been running for longer than they may
#[utoipa::path(
    get, path = "/metrics/pools/{name}/stuck", tag = "pools",
    extensions(("x-scope" = json!("read"))),
    params(("name" = String, Path, description = "critical, high, normal, low or shared")),
    responses(
        (status = 200, description = "They", body = StuckAnswer),
        (status = 404, description = "There is no such pool", body = ProblemBody)
    )
)]
async fn stuck(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<Json<StuckAnswer>, Problem> {
    if name != "shared" && name.parse::<Tier>().is_err() {
        return Err(unknown_pool(&name));
    }
    let stuck = shared.work.pools.stuck();
    let of_pool = stuck.iter().filter(|one| one.pool == name || one.tier.name() == name);
    let view = |one: &Stuck| {
        let mut view = plain(one);
        view["explain"] = Kind::Task.id_at(shared.name.as_str(), one.id).into();
        view["would_change"] = would::TASK.into();
        view
    };
    Ok(Json(StuckAnswer { stuck: of_pool.map(view).collect() }))
}

#[derive(Serialize, utoipa::ToSchema)]
struct WorkHistoryAnswer {
    /// A point a second, the oldest first, ten minutes at most.
    points: Vec<WorkPoint>,
    /// The last scaling decisions, the oldest first.
    #[schema(value_type = Vec<Object>)]
    scaling: Vec<Stats>,
    /// What fires now.
    alerts: Vec<Alert>,
}

/// The last ten minutes of the pools
#[utoipa::path(
    get, path = "/api/v1/pools/history", tag = "pools", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "A point a second", body = WorkHistoryAnswer))
)]
async fn history(State(shared): State<Arc<Shared>>) -> Json<WorkHistoryAnswer> {
    let scaling = shared.work.scaling_since(0);
    Json(WorkHistoryAnswer {
        points: shared.work.points(),
        scaling: scaling.iter().map(|one| scaling_view(&shared, one)).collect(),
        alerts: shared.work.alerts.firing(),
    })
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct After {
    /// Only decisions with a greater number.
    after: Option<u64>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ScalingAnswer {
    /// The oldest first, 256 at most.
    #[schema(value_type = Vec<Object>)]
    pub scaling: Vec<Stats>,
}

/// Recent scaling decisions, each with its reason
#[utoipa::path(
    get, path = "/api/v1/pools/scaling", tag = "pools", extensions(("x-scope" = json!("read"))),
    params(After), responses((status = 200, description = "They", body = ScalingAnswer))
)]
async fn scaling(
    State(shared): State<Arc<Shared>>,
    Parameters(query): Parameters<After>,
) -> Json<ScalingAnswer> {
    let scaling = shared.work.scaling_since(query.after.unwrap_or(0));
    Json(ScalingAnswer { scaling: scaling.iter().map(|one| scaling_view(&shared, one)).collect() })
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LettersPage {
    /// Only of this tier.
    #[param(value_type = Option<String>)]
    tier: Option<Tier>,
    /// Only of this kind.
    kind: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
    /// The `next` of the page before.
    before: Option<String>,
}

/// A task that could not be done.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LetterView {
    /// Its id.
    #[schema(example = "4f1a0c9e55d2b37a")]
    pub id: String,
    /// What `skep explain` takes.
    #[schema(example = "dead:4f1a0c9e55d2b37a")]
    pub explain: String,
    /// What would change that it is given up.
    pub would_change: String,
    /// The node it failed on.
    pub node: String,
    /// Its tier.
    pub tier: String,
    /// Its kind.
    pub kind: String,
    /// `failed`, `permanent`, `timed-out`, `crashed`, `expired` or `shutdown`.
    pub cause: String,
    /// How often it was tried.
    pub attempts: i64,
    /// What went wrong, the first attempt first.
    pub errors: Vec<String>,
    /// In milliseconds since 1970.
    pub submitted_at_ms: i64,
    /// In milliseconds since 1970.
    pub died_at_ms: i64,
    /// `dead`, or `retrying` while somebody tries it again.
    pub state: String,
    /// Whether it can be tried again: it has a payload, or this node still has its code.
    pub retryable: bool,
    /// The size of what it can be built anew from.
    pub payload_bytes: Option<usize>,
    /// That itself, where it is text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload_text: Option<String>,
    /// That itself, where it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload_base64: Option<String>,
}

impl LetterView {
    fn of(shared: &Shared, letter: KeptLetter) -> Self {
        let id = read_id(&letter.id).unwrap_or(0);
        let retrying = letter.retrying_until_ms > now_ms();
        let retryable = letter.payload.is_some() || shared.work.pools.has_letter(id);
        LetterView {
            explain: Kind::Dead.id(&letter.id),
            would_change: would::dead(&letter.id, retryable),
            retryable,
            state: if retrying { "retrying" } else { "dead" }.to_owned(),
            payload_bytes: letter.payload.as_ref().map(Vec::len),
            id: letter.id,
            node: letter.node,
            tier: letter.tier.name().to_owned(),
            kind: letter.kind,
            cause: letter.cause,
            attempts: letter.attempts,
            errors: letter.errors,
            submitted_at_ms: letter.submitted_at_ms,
            died_at_ms: letter.died_at_ms,
            payload_text: None,
            payload_base64: None,
        }
    }
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct LettersAnswer {
    /// The newest first.
    pub letters: Vec<LetterView>,
    /// What to send as `before` for the next page; nothing if this is the last.
    pub next: Option<String>,
}

/// Dead letters of all nodes, the newest first
#[utoipa::path(
    get, path = "/api/v1/pools/dead", tag = "pools", extensions(("x-scope" = json!("read"))),
    params(LettersPage), responses((status = 200, description = "A page", body = LettersAnswer))
)]
async fn letters(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<LettersPage>,
) -> Result<Json<LettersAnswer>, Problem> {
    let limit = page.limit.unwrap_or(100).clamp(1, PAGE_MAX);
    let place = match page.before.as_deref() {
        None => Place::start(),
        Some(text) => read_place(text).ok_or_else(|| {
            let detail = "before: it must be the `next` of the page before";
            Problem::new(&problem::E_QUERY_INVALID, detail)
        })?,
    };
    let filter = LetterFilter { tier: page.tier, kind: page.kind };
    let found = store::letters_page(shared.stores.database(), filter, place, limit).await?;
    let full = found.len() == limit as usize;
    let next = found.last().filter(|_| full).map(|one| format!("{}-{}", one.died_at_ms, one.id));
    let letters = found.into_iter().map(|one| LetterView::of(&shared, one)).collect();
    Ok(Json(LettersAnswer { letters, next }))
}

fn read_place(text: &str) -> Option<Place> {
    let (at, id) = text.split_once('-')?;
    let died_at_ms = at.parse().ok()?;
    read_id(id).map(|_| Place { died_at_ms, id: id.to_owned() })
}

fn unknown_letter(id: &str) -> Problem {
    let id: String = id.chars().take(40).collect();
    let detail = format!("there is no dead letter {id:?}; it may have been done or discarded");
    Problem::new(&problem::E_LETTER_UNKNOWN, detail)
}

/// One dead letter, with its payload
#[utoipa::path(
    get, path = "/api/v1/pools/dead/{id}", tag = "pools", extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "The letter", body = LetterView),
        (status = 404, description = "There is no such letter", body = ProblemBody)
    )
)]
async fn letter(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Json<LetterView>, Problem> {
    let found = store::find(shared.stores.database(), &id).await?;
    let found = found.ok_or_else(|| unknown_letter(&id))?;
    let payload = found.payload.clone();
    let mut view = LetterView::of(&shared, found);
    match payload.map(String::from_utf8) {
        Some(Ok(text)) => view.payload_text = Some(text),
        Some(Err(bytes)) => {
            let engine = base64::engine::general_purpose::STANDARD;
            view.payload_base64 = Some(engine.encode(bytes.as_bytes()));
        }
        None => {}
    }
    Ok(Json(view))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct RetryAnswer {
    /// The task that tries it again.
    pub task: u64,
}

/// Try a dead letter again; it is gone when that succeeds
#[utoipa::path(
    post, path = "/api/v1/pools/dead/{id}/retry", tag = "pools",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 202, description = "It is tried again", body = RetryAnswer),
        (status = 404, description = "There is no such letter", body = ProblemBody),
        (status = 409, description = "It is being tried, or cannot be", body = ProblemBody),
        (status = 503, description = "Its pool is full", body = ProblemBody)
    )
)]
async fn retry(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<RetryAnswer>), Problem> {
    let database = shared.stores.database();
    let found = store::find(database, &id).await?.ok_or_else(|| unknown_letter(&id))?;
    let number = read_id(&found.id).unwrap_or(0);
    let pools = &shared.work.pools;
    if found.payload.is_none() && !pools.has_letter(number) {
        let detail = "it has no payload, and the process that had its code has ended";
        return Err(Problem::new(&problem::E_LETTER_KEPT_ONLY, detail));
    }
    if !store::claim(database, &id, now_ms()).await? {
        let detail = "somebody tries it again already, or it is gone";
        return Err(Problem::new(&problem::E_LETTER_BUSY, detail));
    }
    // The code that this process still has, or else what can be built from the payload.
    let submitted = match (pools.retry(number), &found.payload) {
        (Err(RetryError::Unknown), Some(payload)) => {
            pools.retry_payload(number, found.tier, &found.kind, payload)
        }
        (other, _) => other,
    };
    let task = match submitted {
        Ok(task) => task,
        Err(error) => {
            store::release(database, &id).await?;
            return Err(refused(&error));
        }
    };
    note(&shared, &asker, "pools.retry", (&id, &found.kind)).await;
    Ok((StatusCode::ACCEPTED, Json(RetryAnswer { task })))
}

fn refused(error: &RetryError) -> Problem {
    let code = match error {
        RetryError::Unknown => &problem::E_LETTER_UNKNOWN,
        RetryError::NoHandler(_) | RetryError::BadPayload(_) => &problem::E_LETTER_KEPT_ONLY,
        RetryError::Full | RetryError::Stopped => {
            let wait = Duration::from_secs(1);
            return Problem::new(&problem::E_POOL_FULL, error.to_string()).retry_after(wait);
        }
    };
    Problem::new(code, error.to_string())
}

/// Forget a dead letter
#[utoipa::path(
    delete, path = "/api/v1/pools/dead/{id}", tag = "pools",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "There is no such letter", body = ProblemBody)
    )
)]
async fn discard(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    if !store::discard(shared.stores.database(), &id).await? {
        return Err(unknown_letter(&id));
    }
    shared.work.pools.discard(read_id(&id).unwrap_or(0));
    note(&shared, &asker, "pools.discard", (&id, "")).await;
    Ok(StatusCode::NO_CONTENT)
}
