//! Messages that are pushed at certain times.

mod spec;
mod view;

use super::query::{given, number};
use super::read::{self, given_name, name, optional_name, wrong};
use super::refuse::store_problem;
use super::{Producer, note, now, queues};
use crate::http::extract::{Asker, Parameters, RawBody, Segments};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_queues::record::Wishes;
use skep_queues::store::{PutSchedule, QueueStore, Schedule, ScheduleWritten};
use skep_queues::{NewItem, PushStatus};
use spec::{ScheduleBody, ScheduleRequest};
use std::sync::Arc;
use uuid::Uuid;
use view::ScheduleView;

const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;

/// Schedules that one look goes through at most.
const LOOK_MAX: usize = 10_000;

/// How often a change is tried that somebody else's came before.
const TRIES: usize = 3;

/// Which schedules. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SchedulesPage {
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Only names after this one: the `next` of the page before.
    after: Option<String>,
    /// Only those that push to this queue.
    queue: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct SchedulesAnswer {
    /// By name.
    schedules: Vec<ScheduleView>,
    /// What to send as `after` for the next page; nothing if this is the last. A page may have one
    /// and be short, or empty.
    next: Option<String>,
}

/// Schedules by name
#[utoipa::path(
    get, path = "/api/v1/schedules", tag = "queues", extensions(("x-scope" = json!("read"))),
    params(SchedulesPage),
    responses((status = 200, description = "A page", body = SchedulesAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<SchedulesPage>,
) -> Result<Json<SchedulesAnswer>, Problem> {
    let limit = number("limit", &page.limit, &(1..=PAGE_MAX))?.unwrap_or(PAGE);
    let queue = optional_name("queue", page.queue.as_deref())?;
    let store = queues(&shared)?.store();
    let chunk = if queue.is_some() { PAGE_MAX } else { limit };
    let mut next = given(&page.after).map(str::to_owned);
    let (mut schedules, mut looked) = (Vec::new(), 0);
    loop {
        let found = store.schedules(next.as_deref(), chunk).await;
        let found = found.map_err(|error| store_problem(&error))?;
        let end = found.len() < chunk as usize;
        for schedule in &found {
            if queue.as_ref().is_some_and(|queue| *queue != schedule.spec.queue) {
                continue;
            }
            schedules.push(ScheduleView::of(schedule));
            if schedules.len() == limit as usize {
                let next = Some(schedule.name.to_string());
                return Ok(Json(SchedulesAnswer { schedules, next }));
            }
        }
        looked += found.len();
        next = found.last().filter(|_| !end).map(|last| last.name.to_string());
        if next.is_none() || looked >= LOOK_MAX {
            return Ok(Json(SchedulesAnswer { schedules, next }));
        }
    }
}

/// Make a schedule
#[utoipa::path(
    post, path = "/api/v1/schedules", tag = "queues", extensions(("x-scope" = json!("admin"))),
    request_body = ScheduleRequest,
    responses((status = 201, description = "It is made", body = ScheduleView),
              (status = 400, description = "A field is wrong; nothing was made",
               body = ProblemBody),
              (status = 409, description = "There is one with this name", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn make(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    RawBody(body): RawBody,
) -> Result<(StatusCode, Json<ScheduleView>), Problem> {
    let body: ScheduleBody<'_> = read::json(&body)?;
    let name = given_name("name", &body.name)?;
    let name = name.ok_or_else(|| wrong("name", "name is required"))?;
    let store = queues(&shared)?.store();
    match put(store, name.clone(), &body, None, Some(0)).await? {
        ScheduleWritten::Done(schedule) => {
            queues(&shared)?.keep_soon();
            note(&shared, &asker, "queues.make_schedule", &name, &schedule.spec.queue).await;
            Ok((StatusCode::CREATED, Json(ScheduleView::of(&schedule))))
        }
        ScheduleWritten::NoSchedule | ScheduleWritten::OtherVersion(_) => {
            let words = format!("there is a schedule {name:?} already");
            Err(Problem::new(&problem::E_SCHEDULE_EXISTS, words).at("name").plain())
        }
    }
}

/// Writes a schedule as a body wants it.
async fn put(
    store: &QueueStore,
    name: Arc<str>,
    body: &ScheduleBody<'_>,
    before: Option<&Schedule>,
    expected: Option<u64>,
) -> Result<ScheduleWritten, Problem> {
    let now = now();
    let spec = body.spec(now, before)?;
    let next_at = first_slot(&spec, now)?;
    let wish = PutSchedule { name, spec, next_at, expected };
    store.put_schedule(wish).await.map_err(|error| store_problem(&error))
}

/// The first slot after `now`. A schedule that would never fire is a mistake.
fn first_slot(spec: &skep_queues::store::ScheduleSpec, now: Time) -> Result<Option<Time>, Problem> {
    let next = spec.next_after(now).map_err(|error| spec::bad_zone(&error.name))?;
    match next {
        Some(next) => Ok(Some(next)),
        None => {
            let words = "cron has no time in the next ten years; check day and month";
            Err(wrong("cron", words))
        }
    }
}

/// One schedule
#[utoipa::path(
    get, path = "/api/v1/schedules/{name}", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("name" = String, Path)),
    responses((status = 200, description = "As it is now", body = ScheduleView),
              (status = 404, description = "There is none with this name", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Segments(name): Segments<String>,
) -> Result<Json<ScheduleView>, Problem> {
    let found = find(queues(&shared)?.store(), &name).await?;
    Ok(Json(ScheduleView::of(&found)))
}

/// Replace a schedule, or make it
#[utoipa::path(
    put, path = "/api/v1/schedules/{name}", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("name" = String, Path)),
    request_body = ScheduleRequest,
    responses((status = 200, description = "As it is now; it stays counted what fired before",
               body = ScheduleView),
              (status = 201, description = "It is made", body = ScheduleView),
              (status = 400, description = "A field is wrong; nothing was changed",
               body = ProblemBody),
              (status = 404, description = "There is none, and a `version` was given",
               body = ProblemBody),
              (status = 409, description = "It has another `version`", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn replace(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(path): Segments<String>,
    RawBody(body): RawBody,
) -> Result<(StatusCode, Json<ScheduleView>), Problem> {
    let body: ScheduleBody<'_> = read::json(&body)?;
    let name = name("name", &path)?;
    if given_name("name", &body.name)?.is_some_and(|given| given != name) {
        let words = format!("name must be {name:?} as in the path, or be left out");
        return Err(wrong("name", words));
    }
    let expected = body.version()?;
    let store = queues(&shared)?.store();
    let mut found = None;
    for _ in 0..TRIES {
        let before = store.schedule(&name).await.map_err(|error| store_problem(&error))?;
        // What was read decides about the first slot, so it must still be so when it is written.
        let read = before.as_ref().map_or(0, |before| before.version);
        let wanted = expected.unwrap_or(read);
        match put(store, name.clone(), &body, before.as_ref(), Some(wanted)).await? {
            ScheduleWritten::Done(schedule) => {
                queues(&shared)?.keep_soon();
                note(&shared, &asker, "queues.put_schedule", &name, &schedule.spec.queue).await;
                let status = if read == 0 { StatusCode::CREATED } else { StatusCode::OK };
                return Ok((status, Json(ScheduleView::of(&schedule))));
            }
            ScheduleWritten::NoSchedule if expected.is_some() => return Err(unknown(&name)),
            ScheduleWritten::NoSchedule => {}
            ScheduleWritten::OtherVersion(version) => {
                found = Some(version);
                if expected.is_some() {
                    break;
                }
            }
        }
    }
    Err(conflict(&name, found, expected))
}

/// Delete a schedule
#[utoipa::path(
    delete, path = "/api/v1/schedules/{name}", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("name" = String, Path)),
    responses((status = 200, description = "It pushes nothing any more", body = DeletedAnswer),
              (status = 404, description = "There is none with this name", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(name): Segments<String>,
) -> Result<Json<DeletedAnswer>, Problem> {
    let there = queues(&shared)?.store().delete_schedule(&name).await;
    if !there.map_err(|error| store_problem(&error))? {
        return Err(unknown(&name));
    }
    note(&shared, &asker, "queues.delete_schedule", &name, "").await;
    Ok(Json(DeletedAnswer { success: true, name }))
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct DeletedAnswer {
    /// True.
    success: bool,
    name: String,
}

/// Let a schedule do nothing for now
#[utoipa::path(
    post, path = "/api/v1/schedules/{name}/pause", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("name" = String, Path)),
    responses((status = 200, description = "It is paused", body = ScheduleView),
              (status = 404, description = "There is none with this name", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn pause(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(name): Segments<String>,
) -> Result<Json<ScheduleView>, Problem> {
    let paused = queues(&shared)?.store().pause_schedule(&name).await;
    match paused.map_err(|error| store_problem(&error))? {
        ScheduleWritten::Done(schedule) => {
            note(&shared, &asker, "queues.pause_schedule", &name, "").await;
            Ok(Json(ScheduleView::of(&schedule)))
        }
        ScheduleWritten::NoSchedule => Err(unknown(&name)),
        ScheduleWritten::OtherVersion(version) => Err(conflict(&name, Some(version), None)),
    }
}

/// Let a paused schedule go on with the next of its times; what it missed stays missed
#[utoipa::path(
    post, path = "/api/v1/schedules/{name}/resume", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("name" = String, Path)),
    responses((status = 200, description = "It goes on", body = ScheduleView),
              (status = 404, description = "There is none with this name", body = ProblemBody),
              (status = 409, description = "Somebody changes it all the time", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn resume(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(name): Segments<String>,
) -> Result<Json<ScheduleView>, Problem> {
    let store = queues(&shared)?.store();
    let mut other = None;
    for _ in 0..TRIES {
        let found = find(store, &name).await?;
        let next_at = first_slot(&found.spec, now())?;
        let resumed = store.resume_schedule(&name, found.version, next_at).await;
        match resumed.map_err(|error| store_problem(&error))? {
            ScheduleWritten::Done(schedule) => {
                queues(&shared)?.keep_soon();
                note(&shared, &asker, "queues.resume_schedule", &name, "").await;
                return Ok(Json(ScheduleView::of(&schedule)));
            }
            ScheduleWritten::NoSchedule => return Err(unknown(&name)),
            ScheduleWritten::OtherVersion(version) => other = Some(version),
        }
    }
    Err(conflict(&name, other, None))
}

/// A message that was pushed by hand.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FiredAnswer {
    /// True.
    success: bool,
    name: String,
    queue: String,
    message_id: String,
    transaction_id: String,
    /// `queued`, or `buffered` while pushes are held back.
    status: String,
}

/// Push what a schedule pushes, now, beside its times
#[utoipa::path(
    post, path = "/api/v1/schedules/{name}/fire", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("name" = String, Path)),
    responses((status = 200, description = "It is pushed", body = FiredAnswer),
              (status = 404, description = "There is none with this name", body = ProblemBody),
              (status = 429, description = "The queue is full", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn fire(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    producer: Producer,
    Segments(name): Segments<String>,
) -> Result<Json<FiredAnswer>, Problem> {
    let queues = queues(&shared)?;
    let Schedule { spec, .. } = find(queues.store(), &name).await?;
    let item = NewItem {
        queue: spec.queue.clone(),
        partition: spec.partition.clone(),
        payload: Arc::from(spec.payload.as_bytes()),
        transaction: Some(Arc::from(format!("schedule:{name}:by-hand:{}", Uuid::now_v7()))),
        trace: None,
        producer: producer.0,
        wishes: Wishes { priority: spec.priority, ..Wishes::default() },
    };
    let pushed = queues.push(&[item]).await?;
    note(&shared, &asker, "queues.fire_schedule", &name, &spec.queue).await;
    let pushed = pushed.first().ok_or_else(|| unknown(&name))?;
    let is_buffered = pushed.status == PushStatus::Buffered;
    Ok(Json(FiredAnswer {
        success: true,
        name,
        queue: spec.queue.to_string(),
        message_id: pushed.id.to_string(),
        transaction_id: pushed.transaction.to_string(),
        status: if is_buffered { "buffered" } else { "queued" }.to_owned(),
    }))
}

async fn find(store: &QueueStore, name: &str) -> Result<Schedule, Problem> {
    let found = store.schedule(name).await.map_err(|error| store_problem(&error))?;
    found.ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Problem {
    let words = format!("there is no schedule {name:?}");
    Problem::new(&problem::E_SCHEDULE_UNKNOWN, words).plain()
}

fn conflict(name: &str, found: Option<u64>, expected: Option<u64>) -> Problem {
    let has = found
        .map_or("was changed meanwhile".to_owned(), |version| format!("has version {version}"));
    let words = match expected {
        Some(expected) => format!("the schedule {name:?} {has}, not {expected}"),
        None => format!("the schedule {name:?} {has}: others change it at the same time"),
    };
    Problem::new(&problem::E_SCHEDULE_CONFLICT, words).at("version").plain()
}
