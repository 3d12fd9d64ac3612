//! Dead letters on their way back.

use super::query::number;
use super::read::{self, Given, given_name, object, time, wrong};
use super::refuse::{no_queue, store_problem};
use super::write::timestamp;
use super::{note, queues};
use crate::http::extract::{Asker, Parameters, RawBody, Segments};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_policy::explain::{Kind, would};
use skep_queues::store::{
    DeadFilter, MakeRedrive, QueueStore, Redrive, RedriveFilter, RedriveState,
};
use std::sync::Arc;

const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;

/// Letters a second that may be asked for.
const RATE_MAX: u64 = 1_000_000;

/// The longest text that is looked for in errors, in bytes.
const ERROR_BYTES_MAX: usize = 1_024;

object! {
    /// Which letters, and where to.
    RedriveBody<'body> {
        queue "queue": Given<'body>,
        group "consumerGroup": Given<'body>,
        partition "partition": Given<'body>,
        error "error": Given<'body>,
        from "from": Given<'body>,
        to "to": Given<'body>,
        rate "rate": Given<'body>,
        target "target": Given<'body>,
    }
}

/// Which letters, and where to.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
struct RedriveRequest {
    /// Of this queue.
    queue: String,
    /// Only of this group.
    consumer_group: Option<String>,
    /// Only of this partition.
    partition: Option<String>,
    /// Only those whose error has this text in it.
    error: Option<String>,
    /// Only those set aside at this time or later.
    #[schema(example = "2026-01-31T12:00:00Z")]
    from: Option<String>,
    /// Only those set aside before this time.
    to: Option<String>,
    /// So many a second at most; as fast as it goes if left out.
    rate: Option<u32>,
    /// Another queue to push them to; back to theirs if left out.
    target: Option<String>,
}

/// Dead letters on their way back.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedriveAnswer {
    id: String,
    /// What `skep explain` takes.
    #[schema(example = "redrive:3")]
    explain: String,
    /// What would change it.
    would_change: String,
    queue: String,
    filter: FilterView,
    /// Where they go; nothing is back to `queue`.
    target: Option<String>,
    /// Letters a second at most; nothing is as fast as it goes.
    rate: Option<u32>,
    /// `running`, `done` or `stopped`.
    #[schema(value_type = String)]
    state: RedriveState,
    /// Letters that were moved.
    moved: u64,
    /// Letters that were looked at and do not fit, or were gone.
    skipped: u64,
    /// Letters that were moved or still fit; only where one redrive is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    created_by: String,
    created_at: String,
    ended_at: Option<String>,
}

/// Which letters.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct FilterView {
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

impl RedriveAnswer {
    fn of(redrive: &Redrive, total: Option<u64>) -> Self {
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        let filter = &redrive.filter;
        let id = redrive.id.to_string();
        RedriveAnswer {
            explain: Kind::Redrive.id(&id),
            would_change: would::redrive(redrive.state.text(), &id, &redrive.queue_name),
            id,
            queue: redrive.queue_name.to_string(),
            filter: FilterView {
                consumer_group: text(&filter.group),
                partition: text(&filter.partition),
                error: text(&filter.error),
                from: filter.from.map(timestamp),
                to: filter.to.map(timestamp),
            },
            target: text(&redrive.target),
            rate: redrive.rate,
            state: redrive.state,
            moved: redrive.moved,
            skipped: redrive.skipped,
            total,
            created_by: redrive.created_by.to_string(),
            created_at: timestamp(redrive.created_at),
            ended_at: redrive.ended_at.map(timestamp),
        }
    }

    async fn with_total(store: &QueueStore, redrive: &Redrive) -> Result<Self, Problem> {
        let mut total = redrive.moved;
        if redrive.state == RedriveState::Running {
            let filter = DeadFilter {
                queue: Some(redrive.queue_name.clone()),
                partition: redrive.filter.partition.clone(),
                group: redrive.filter.group.clone(),
                error: redrive.filter.error.clone(),
                from: redrive.filter.from,
                to: redrive.filter.to,
                limit: 1,
                ..DeadFilter::default()
            };
            let found = store.dead_letters(filter).await.map_err(|error| store_problem(&error))?;
            total += found.total;
        }
        Ok(RedriveAnswer::of(redrive, Some(total)))
    }
}

/// Let dead letters go back to their queue, or to another one
#[utoipa::path(
    post, path = "/api/v1/dlq/redrive", tag = "queues", extensions(("x-scope" = json!("admin"))),
    request_body = RedriveRequest,
    responses((status = 202, description = "It begins, at any node", body = RedriveAnswer),
              (status = 400, description = "A field is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn make(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    RawBody(body): RawBody,
) -> Result<(StatusCode, Json<RedriveAnswer>), Problem> {
    let body: RedriveBody<'_> = read::json(&body)?;
    let store = queues(&shared)?.store();
    let queue = given_name("queue", &body.queue)?;
    let queue = queue.ok_or_else(|| wrong("queue", "queue is required"))?;
    let filter = RedriveFilter {
        partition: given_name("partition", &body.partition)?,
        group: given_name("consumerGroup", &body.group)?,
        from: moment("from", &body.from)?,
        to: moment("to", &body.to)?,
        error: error_text(&body.error)?,
    };
    let wish = MakeRedrive {
        queue: queue.clone(),
        filter,
        target: given_name("target", &body.target)?,
        rate: rate(&body.rate)?,
        by: Arc::from(&*asker.known().actor()),
    };
    let made = store.make_redrive(wish).await.map_err(|error| store_problem(&error))?;
    let made = made.ok_or_else(|| no_queue(&queue))?;
    queues(&shared)?.keep_soon();
    note(&shared, &asker, "queues.redrive", &queue, &made.id.to_string()).await;
    Ok((StatusCode::ACCEPTED, Json(RedriveAnswer::with_total(store, &made).await?)))
}

fn moment(field: &str, given: &Given<'_>) -> Result<Option<Time>, Problem> {
    match given {
        Given::Nothing => Ok(None),
        Given::Text(text) if text.is_empty() => Ok(None),
        Given::Text(text) => time(field, text).map(Some),
        _ => Err(wrong(field, format!("{field} must be a time such as 2026-01-31T12:00:00Z"))),
    }
}

fn error_text(given: &Given<'_>) -> Result<Option<Arc<str>>, Problem> {
    match given {
        Given::Nothing => Ok(None),
        Given::Text(text) if text.is_empty() => Ok(None),
        Given::Text(text) if text.len() <= ERROR_BYTES_MAX => Ok(Some(Arc::from(&**text))),
        _ => Err(wrong(
            "error",
            format!("error must be a string of {ERROR_BYTES_MAX} bytes at most"),
        )),
    }
}

fn rate(given: &Given<'_>) -> Result<Option<u32>, Problem> {
    match given {
        Given::Nothing => Ok(None),
        Given::Number(rate) if (1..=RATE_MAX).contains(rate) => Ok(u32::try_from(*rate).ok()),
        _ => Err(wrong("rate", format!("rate must be a whole number from 1 to {RATE_MAX}"))),
    }
}

/// Which redrives. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RedrivesPage {
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Only those before this: the `next` of the page before.
    before: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct RedrivesAnswer {
    /// The newest first.
    redrives: Vec<RedriveAnswer>,
    /// What to send as `before` for the next page; nothing if this is the last.
    next: Option<String>,
}

/// Dead letters on their way back, and those that went, the newest first
#[utoipa::path(
    get, path = "/api/v1/dlq/redrives", tag = "queues", extensions(("x-scope" = json!("read"))),
    params(RedrivesPage),
    responses((status = 200, description = "A page", body = RedrivesAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<RedrivesPage>,
) -> Result<Json<RedrivesAnswer>, Problem> {
    let limit = number("limit", &page.limit, &(1..=PAGE_MAX))?.unwrap_or(PAGE);
    let before = number("before", &page.before, &(1..=i64::MAX))?;
    let found = queues(&shared)?.store().redrives(before, limit).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let full = found.len() == limit as usize;
    let next = found.last().filter(|_| full).map(|last| last.id.to_string());
    let redrives = found.iter().map(|redrive| RedriveAnswer::of(redrive, None)).collect();
    Ok(Json(RedrivesAnswer { redrives, next }))
}

/// One redrive
#[utoipa::path(
    get, path = "/api/v1/dlq/redrives/{redrive}", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("redrive" = String, Path)),
    responses((status = 200, description = "How far it is", body = RedriveAnswer),
              (status = 404, description = "There is none with this id", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Segments(redrive): Segments<String>,
) -> Result<Json<RedriveAnswer>, Problem> {
    let store = queues(&shared)?.store();
    let found = match redrive.parse() {
        Ok(id) => store.redrive(id).await.map_err(|error| store_problem(&error))?,
        Err(_) => None,
    };
    let found = found.ok_or_else(|| unknown(&redrive))?;
    RedriveAnswer::with_total(store, &found).await.map(Json)
}

/// Stop a redrive; what was moved stays moved
#[utoipa::path(
    delete, path = "/api/v1/dlq/redrives/{redrive}", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("redrive" = String, Path)),
    responses((status = 200, description = "It does not go on", body = RedriveAnswer),
              (status = 404, description = "There is none with this id", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn stop(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(redrive): Segments<String>,
) -> Result<Json<RedriveAnswer>, Problem> {
    let store = queues(&shared)?.store();
    let found = match redrive.parse() {
        Ok(id) => store.stop_redrive(id).await.map_err(|error| store_problem(&error))?,
        Err(_) => None,
    };
    let found = found.ok_or_else(|| unknown(&redrive))?;
    note(&shared, &asker, "queues.stop_redrive", &found.queue_name, &redrive).await;
    Ok(Json(RedriveAnswer::of(&found, None)))
}

fn unknown(redrive: &str) -> Problem {
    let shown: String = redrive.chars().take(60).collect();
    let words = format!("there is no redrive {shown:?}");
    Problem::new(&problem::E_REDRIVE_UNKNOWN, words).plain()
}
