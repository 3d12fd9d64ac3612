//! What consumers and producers tell about messages while they work on them.

use super::query::{given, not, number, transaction};
use super::read::{self, Given, ID_BYTES_MAX, Listed, given_name, name_flaw, object, wrong};
use super::refuse::store_problem;
use super::write::{Json, timestamp};
use super::{Producer, queues};
use crate::http::extract::{Parameters, RawBody, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::value::RawValue;
use skep_queues::ids::PartitionId;
use skep_queues::store::traces::{DATA_BYTES_MAX, NAME_BYTES_MAX, NAMES_MAX, TRACES_MAX};
use skep_queues::store::{NewTrace, PartitionPlace, Trace};
use std::sync::Arc;
use uuid::Uuid;

const PAGE: u32 = 100;

/// What an event is if its teller does not say.
const EVENT: &str = "info";

object! {
    /// What is told.
    TraceBody<'body> {
        transaction "transactionId": Given<'body>,
        partition "partitionId": Given<'body>,
        group "consumerGroup": Given<'body>,
        names "traceNames": Option<&'body RawValue>,
        event "eventType": Given<'body>,
        worker "workerId": Given<'body>,
        data "data": Option<&'body RawValue>,
    }
}

/// What is told about a message.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
struct TraceRequest {
    /// Of the message.
    transaction_id: String,
    /// Of the message, as a push or pop told it.
    partition_id: String,
    /// Who works on it.
    consumer_group: Option<String>,
    /// Names under which it is found beside those of other messages: 16 at most, of 200 bytes.
    trace_names: Option<Vec<String>>,
    /// What kind of thing it is; `info` if left out.
    event_type: Option<String>,
    /// Which worker tells it.
    worker_id: Option<String>,
    /// Any JSON, 64 KiB at most; null if left out.
    data: Option<serde_json::Value>,
}

#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct TracedAnswer {
    /// True.
    success: bool,
    trace_id: String,
}

/// Tell something about a message
#[utoipa::path(
    post, path = "/api/v1/traces", tag = "queues", extensions(("x-scope" = json!("pop|push"))),
    request_body = TraceRequest,
    responses((status = 201, description = "It is kept", body = TracedAnswer),
              (status = 400, description = "A field is wrong; nothing was kept",
               body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn write(
    State(shared): State<Arc<Shared>>,
    producer: Producer,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let body: TraceBody<'_> = read::json(&body)?;
    let trace = new_trace(&body, producer)?;
    let number = queues(&shared)?.store().write_trace(trace).await;
    let number = number.map_err(|error| store_problem(&error))?;
    let mut json = Json::with_room(64);
    json.raw("{\"success\":true,\"traceId\":").text(&number.to_string()).raw("}");
    Ok(json.answer(StatusCode::CREATED))
}

fn new_trace(body: &TraceBody<'_>, producer: Producer) -> Result<NewTrace, Problem> {
    let transaction: Arc<str> = match &body.transaction {
        Given::Text(text) if (1..=ID_BYTES_MAX).contains(&text.len()) => Arc::from(&**text),
        _ => {
            let words = format!("transactionId must be a string of 1 to {ID_BYTES_MAX} bytes");
            return Err(wrong("transactionId", words));
        }
    };
    let partition = match &body.partition {
        Given::Text(text) => partition_of(text)?,
        _ => return Err(wrong("partitionId", "partitionId must be a string")),
    };
    let event_type = given_name("eventType", &body.event)?;
    let worker = given_name("workerId", &body.worker)?;
    let data = body.data.map_or("null", RawValue::get);
    if data.len() > DATA_BYTES_MAX {
        let words = format!("data has {} bytes, at most {DATA_BYTES_MAX} may be", data.len());
        return Err(wrong("data", words));
    }
    Ok(NewTrace {
        partition,
        transaction,
        group: given_name("consumerGroup", &body.group)?,
        event_type: event_type.unwrap_or_else(|| Arc::from(EVENT)),
        data: Arc::from(data),
        worker: worker.or(producer.0),
        names: names_of(body.names)?,
    })
}

fn names_of(raw: Option<&RawValue>) -> Result<Vec<Arc<str>>, Problem> {
    let field = "traceNames";
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(Vec::new()) };
    let Ok(Listed::Items(items)) = serde_json::from_str::<Listed<Given<'_>>>(raw.get()) else {
        return Err(wrong(field, format!("{field} must be an array of strings, or null")));
    };
    if items.len() > NAMES_MAX {
        let words = format!("{field} has {} names, at most {NAMES_MAX} may be", items.len());
        return Err(wrong(field, words));
    }
    let named = |(place, item): (usize, &Given<'_>)| {
        let field = format!("{field}[{place}]");
        match item {
            Given::Text(text) if text.len() > NAME_BYTES_MAX => {
                let words = format!("{field} must not be longer than {NAME_BYTES_MAX} bytes");
                Err(wrong(&field, words))
            }
            Given::Text(text) => match name_flaw(text) {
                Some(flaw) => Err(wrong(&field, format!("{field} {flaw}"))),
                None => Ok(Arc::from(&**text)),
            },
            _ => Err(wrong(&field, format!("{field} must be a string"))),
        }
    };
    items.iter().enumerate().map(named).collect()
}

/// A partition by the id that the outside knows. One that was never given out is refused: it could
/// only be a mistake.
fn partition_of(text: &str) -> Result<PartitionId, Problem> {
    let uuid = Uuid::try_parse(text).ok();
    uuid.and_then(PartitionId::from_uuid)
        .ok_or_else(|| not("partitionId", text, "the partitionId of a push or pop"))
}

/// What was told.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct TraceView {
    id: String,
    event_type: String,
    data: serde_json::Value,
    trace_names: Vec<String>,
    consumer_group: Option<String>,
    /// The worker that told it, or the name of its key.
    worker_id: Option<String>,
    transaction_id: String,
    partition_id: String,
    /// Nothing if it is gone; only where traces are found by name.
    queue: Option<String>,
    /// See `queue`.
    partition: Option<String>,
    created_at: String,
}

#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct TracesAnswer {
    traces: Vec<TraceView>,
    /// What to send as `before` for the next page; nothing if this is the last, or of a message.
    next: Option<String>,
}

/// What was told about a message, the oldest first
#[utoipa::path(
    get, path = "/api/v1/traces/{partition}/{transaction}", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    params(("partition" = String, Path, description = "The `partitionId`"),
           ("transaction" = String, Path, description = "The `transactionId`")),
    responses((status = 200, description = "A thousand at most; the message may be gone",
               body = TracesAnswer),
              (status = 400, description = "This is no `partitionId`", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn of_message(
    State(shared): State<Arc<Shared>>,
    Segments((partition, id)): Segments<(String, String)>,
) -> Result<Response, Problem> {
    let (partition, id) = (partition_of(&partition)?, transaction("transactionId", &id)?);
    let found = queues(&shared)?.store().traces_of(partition, id, TRACES_MAX).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let mut json = Json::with_room(64 + 512 * found.len());
    json.raw("{\"traces\":[");
    for (place, trace) in found.iter().enumerate() {
        put_trace(json.comma(place), trace).raw("}");
    }
    json.raw("]}");
    Ok(json.answer(StatusCode::OK))
}

/// Which traces of a name. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NamedPage {
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// After so many of the newest; together with `limit` 1000 at most. `before` goes further.
    #[param(value_type = Option<u32>)]
    offset: Option<String>,
    /// Only those before this: the `next` of the page before.
    before: Option<String>,
}

/// What was told under a name, the newest first
#[utoipa::path(
    get, path = "/api/v1/traces/by-name/{name}", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("name" = String, Path), NamedPage),
    responses((status = 200, description = "A page", body = TracesAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn by_name(
    State(shared): State<Arc<Shared>>,
    Segments(name): Segments<String>,
    Parameters(page): Parameters<NamedPage>,
) -> Result<Response, Problem> {
    let limit = number("limit", &page.limit, &(1..=TRACES_MAX))?.unwrap_or(PAGE);
    let offsets = 0..=(TRACES_MAX - limit);
    let offset = number("offset", &page.offset, &offsets)?.unwrap_or(0);
    let before = number("before", &page.before, &(1..=i64::MAX))?;
    let store = queues(&shared)?.store();
    let found = store.traces_named(&name, before, limit + offset).await;
    let mut found = found.map_err(|error| store_problem(&error))?;
    let full = found.len() == (limit + offset) as usize;
    found.drain(..found.len().min(offset as usize));
    let places = found.iter().map(|trace| trace.partition).collect();
    let places = store.partition_places(places).await.map_err(|error| store_problem(&error))?;
    let mut json = Json::with_room(64 + 640 * found.len());
    json.raw("{\"traces\":[");
    for (place, trace) in found.iter().enumerate() {
        put_trace(json.comma(place), trace);
        put_place(&mut json, places.get(&trace.partition)).raw("}");
    }
    let next = found.last().filter(|_| full).map(|last| last.id.to_string());
    json.raw("],\"next\":").optional(next.as_deref()).raw("}");
    Ok(json.answer(StatusCode::OK))
}

/// Adds a trace without its closing brace.
fn put_trace<'json>(json: &'json mut Json, trace: &Trace) -> &'json mut Json {
    json.raw("{\"id\":").text(&trace.id.to_string());
    json.raw(",\"eventType\":").text(&trace.event_type);
    json.raw(",\"data\":").raw(&*trace.data).raw(",\"traceNames\":[");
    for (place, name) in trace.names.iter().enumerate() {
        json.comma(place).text(name);
    }
    json.raw("],\"consumerGroup\":").optional(trace.group.as_deref());
    json.raw(",\"workerId\":").optional(trace.worker.as_deref());
    json.raw(",\"transactionId\":").text(&trace.transaction);
    json.raw(",\"partitionId\":").uuid(trace.partition.uuid());
    json.raw(",\"createdAt\":").text(&timestamp(trace.created_at))
}

fn put_place<'json>(json: &'json mut Json, place: Option<&PartitionPlace>) -> &'json mut Json {
    json.raw(",\"queue\":").optional(place.map(|place| &*place.queue));
    json.raw(",\"partition\":").optional(place.map(|place| &*place.partition))
}

/// Which names. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NamesPage {
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Only names after this one: the `next` of the page before.
    after: Option<String>,
}

#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct NamesAnswer {
    /// By name.
    names: Vec<NameView>,
    /// What to send as `after` for the next page; nothing if this is the last.
    next: Option<String>,
}

/// A name that traces have.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct NameView {
    name: String,
    /// How many traces have it; counted up to 1000.
    count: u64,
    /// When the last of them was told.
    last_at: String,
}

/// Names that traces have
#[utoipa::path(
    get, path = "/api/v1/traces/names", tag = "queues", extensions(("x-scope" = json!("read"))),
    params(NamesPage),
    responses((status = 200, description = "A page", body = NamesAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn names(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<NamesPage>,
) -> Result<Response, Problem> {
    let limit = number("limit", &page.limit, &(1..=TRACES_MAX))?.unwrap_or(PAGE);
    let found = queues(&shared)?.store().trace_names(given(&page.after), limit).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let mut json = Json::with_room(64 + 128 * found.len());
    json.raw("{\"names\":[");
    for (place, one) in found.iter().enumerate() {
        json.comma(place).raw("{\"name\":").text(&one.name);
        json.raw(",\"count\":").raw(one.count.to_string());
        json.raw(",\"lastAt\":").text(&timestamp(one.last_at)).raw("}");
    }
    let full = found.len() == limit as usize;
    let next = found.last().filter(|_| full).map(|last| &*last.name);
    json.raw("],\"next\":").optional(next).raw("}");
    Ok(json.answer(StatusCode::OK))
}
