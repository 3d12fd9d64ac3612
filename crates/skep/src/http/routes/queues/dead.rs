//! Messages that were set aside.

use super::query::{given, moment, not, number, transaction};
use super::read::{optional_name, wrong};
use super::refuse::{no_letter, no_queue, store_problem};
use super::write::{Json as Written, timestamp};
use super::{note, queues};
use crate::http::extract::{Asker, Parameters, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use skep_policy::explain::{Kind, would};
use skep_queues::Queues;
use skep_queues::browse::only_record;
use skep_queues::store::{DeadFilter, DeadLetter};
use std::sync::Arc;

const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;
/// Dead letters that one request deletes at most.
const DELETE_MAX: u64 = 10_000;
/// The longest text that is looked for in what consumers said, in bytes.
const ERROR_BYTES_MAX: usize = 8 << 10;

/// Which dead letters. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct DeadQuery {
    /// Only of this queue.
    queue: Option<String>,
    /// Only of this partition.
    partition: Option<String>,
    /// Only of this group.
    consumer_group: Option<String>,
    /// Only of this transaction id.
    transaction_id: Option<String>,
    /// Only those whose error has this text in it.
    error: Option<String>,
    /// Only those set aside at this time or later.
    from: Option<String>,
    /// Only those set aside before this time.
    to: Option<String>,
    /// So many at most; 100 if left out, 1000 at most. What is deleted is 10000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// After so many.
    #[param(value_type = Option<u64>)]
    offset: Option<String>,
    /// Only those before this one: the `id` of the last of the page before.
    before: Option<String>,
}

impl DeadQuery {
    /// Without the limit, which is of each request its own.
    fn filter(&self) -> Result<DeadFilter, Problem> {
        let error = given(&self.error);
        if error.is_some_and(|text| text.len() > ERROR_BYTES_MAX) {
            let words = format!("error must not be longer than {ERROR_BYTES_MAX} bytes");
            return Err(wrong("error", words));
        }
        let id = given(&self.transaction_id);
        let id = id.map(|text| transaction("transactionId", text)).transpose()?;
        Ok(DeadFilter {
            queue: optional_name("queue", self.queue.as_deref())?,
            partition: optional_name("partition", self.partition.as_deref())?,
            group: optional_name("consumerGroup", self.consumer_group.as_deref())?,
            transaction: id.map(Arc::from),
            error: error.map(Arc::from),
            from: moment("from", &self.from)?,
            to: moment("to", &self.to)?,
            before: number("before", &self.before, &(0..=i64::MAX))?,
            offset: number("offset", &self.offset, &(0..=u64::MAX))?.unwrap_or(0),
            ..DeadFilter::default()
        })
    }
}

/// Dead letters.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct DeadAnswer {
    messages: Vec<DeadMessage>,
    /// How many there are.
    total: u64,
    pagination: Pagination,
}

/// Which part of them.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct Pagination {
    limit: u32,
    offset: u64,
}

/// A dead letter.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct DeadMessage {
    /// Of the dead letter; later ones have greater numbers.
    #[schema(example = "17")]
    id: String,
    /// What `skep explain` takes.
    #[schema(example = "letter:17")]
    explain: String,
    /// What would change that it is set aside.
    would_change: String,
    /// Of the message.
    message_id: String,
    transaction_id: String,
    trace_id: Option<String>,
    partition_id: String,
    queue: String,
    partition: String,
    consumer_group: String,
    /// What its consumer said.
    error_message: Option<String>,
    /// How often it had come again.
    retry_count: u32,
    /// The payload.
    data: serde_json::Value,
    producer_sub: Option<String>,
    created_at: String,
    failed_at: String,
}

fn put_letter(json: &mut Written, queues: &Queues, letter: &DeadLetter) -> Result<(), Problem> {
    let record = only_record(&letter.record)?;
    let id = letter.id.to_string();
    json.raw("{\"id\":").text(&id);
    json.raw(",\"explain\":").text(&Kind::Letter.id(&id));
    json.raw(",\"wouldChange\":").text(&would::letter(&id, &letter.queue));
    json.raw(",\"messageId\":").uuid(record.id);
    json.raw(",\"transactionId\":").text(&record.transaction);
    json.raw(",\"traceId\":").optional(record.trace.as_deref());
    json.raw(",\"partitionId\":").uuid(letter.partition_id.uuid());
    json.raw(",\"queue\":").text(&letter.queue);
    json.raw(",\"partition\":").text(&letter.partition);
    json.raw(",\"consumerGroup\":").text(&letter.group);
    json.raw(",\"errorMessage\":").optional(letter.error.as_deref());
    json.raw(",\"retryCount\":").number(letter.failures as usize);
    json.raw(",\"data\":").raw(queues.reveal(&letter.queue, &record)?);
    json.raw(",\"producerSub\":").optional(record.producer.as_deref());
    json.raw(",\"createdAt\":").text(&timestamp(letter.created_at));
    json.raw(",\"failedAt\":").text(&timestamp(letter.failed_at)).raw("}");
    Ok(())
}

/// Messages that were set aside, the newest first
#[utoipa::path(
    get, path = "/api/v1/dlq", tag = "queues", extensions(("x-scope" = json!("read"))),
    params(DeadQuery),
    responses((status = 200, description = "A page", body = DeadAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(wanted): Parameters<DeadQuery>,
) -> Result<Response, Problem> {
    let limit = number("limit", &wanted.limit, &(1..=PAGE_MAX))?.unwrap_or(PAGE);
    let filter = DeadFilter { limit, ..wanted.filter()? };
    let offset = filter.offset;
    let queues = queues(&shared)?;
    let found = queues.store().dead_letters(filter).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let bytes: usize = found.letters.iter().map(|letter| letter.record.len() + 1_024).sum();
    let mut json = Written::with_room(128 + bytes);
    json.raw("{\"messages\":[");
    for (number, letter) in found.letters.iter().enumerate() {
        put_letter(json.comma(number), queues, letter)?;
    }
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    json.raw("],\"total\":").number(number(found.total));
    json.raw(",\"pagination\":{\"limit\":").number(limit as usize);
    json.raw(",\"offset\":").number(number(offset)).raw("}}");
    Ok(json.answer(StatusCode::OK))
}

fn letter_id(text: &str) -> Result<i64, Problem> {
    let id = text.parse::<i64>().ok().filter(|id| *id >= 0);
    id.ok_or_else(|| not("id", text, "the id of a dead letter, a whole number"))
}

/// One dead letter
#[utoipa::path(
    get, path = "/api/v1/dlq/{id}", tag = "queues", extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path)),
    responses((status = 200, description = "The letter", body = DeadMessage),
              (status = 404, description = "There is none", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Segments(id): Segments<String>,
) -> Result<Response, Problem> {
    let queues = queues(&shared)?;
    let found = queues.store().dead_letter(letter_id(&id)?).await;
    let letter = found.map_err(|error| store_problem(&error))?.ok_or_else(|| no_letter(&id))?;
    let mut json = Written::with_room(1_024 + letter.record.len());
    put_letter(&mut json, queues, &letter)?;
    Ok(json.answer(StatusCode::OK))
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct LettersDeletedAnswer {
    /// How many are gone.
    deleted: u64,
    /// Whether as many were deleted as one request may, and there may be more.
    more: bool,
}

/// Delete a dead letter
#[utoipa::path(
    delete, path = "/api/v1/dlq/{id}", tag = "queues", extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path)),
    responses((status = 200, description = "It is gone", body = LettersDeletedAnswer),
              (status = 404, description = "There is none", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<Json<LettersDeletedAnswer>, Problem> {
    let filter = DeadFilter { ids: Some(vec![letter_id(&id)?]), ..DeadFilter::default() };
    let deleted = queues(&shared)?.store().delete_dead(filter, 1).await;
    let deleted = deleted.map_err(|error| store_problem(&error))?;
    if deleted == 0 {
        return Err(no_letter(&id));
    }
    note(&shared, &asker, "queues.delete_letter", &id, "").await;
    Ok(Json(LettersDeletedAnswer { deleted, more: false }))
}

/// Delete dead letters of a queue, the newest first
#[utoipa::path(
    delete, path = "/api/v1/dlq", tag = "queues", extensions(("x-scope" = json!("admin"))),
    params(DeadQuery),
    responses((status = 200, description = "They are gone", body = LettersDeletedAnswer),
              (status = 400, description = "A parameter is wrong, or no queue is named",
               body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn delete_some(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Parameters(wanted): Parameters<DeadQuery>,
) -> Result<Json<LettersDeletedAnswer>, Problem> {
    let limit = number("limit", &wanted.limit, &(1..=DELETE_MAX))?.unwrap_or(DELETE_MAX);
    let filter = wanted.filter()?;
    let Some(queue) = filter.queue.clone() else {
        return Err(wrong("queue", "queue is required: only the dead letters of one are deleted"));
    };
    if filter.offset > 0 {
        return Err(wrong("offset", "offset is not for deleting; leave it out"));
    }
    let store = queues(&shared)?.store();
    let known = store.queue(&queue).await.map_err(|error| store_problem(&error))?;
    known.ok_or_else(|| no_queue(&queue))?;
    let deleted = store.delete_dead(filter, limit).await.map_err(|error| store_problem(&error))?;
    note(&shared, &asker, "queues.delete_letters", &queue, &deleted.to_string()).await;
    Ok(Json(LettersDeletedAnswer { deleted, more: deleted >= limit }))
}

/// A dead letter that went back.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LetterAgainAnswer {
    /// True.
    success: bool,
    /// The message's id, which it keeps.
    message_id: String,
    transaction_id: String,
    partition_id: Option<String>,
    queue: String,
    partition: String,
}

/// Bring a dead letter back to its queue, with the same transaction id
#[utoipa::path(
    post, path = "/api/v1/dlq/{id}/retry", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("id" = String, Path)),
    responses((status = 200, description = "It is at the end of its partition",
               body = LetterAgainAnswer),
              (status = 404, description = "There is none", body = ProblemBody),
              (status = 429, description = "The queue is full", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn retry(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<Json<LetterAgainAnswer>, Problem> {
    let done = queues(&shared)?.retry_letter(letter_id(&id)?).await?;
    let (letter, item) = done.ok_or_else(|| no_letter(&id))?;
    note(&shared, &asker, "queues.retry_letter", &id, &letter.queue).await;
    Ok(Json(LetterAgainAnswer {
        success: true,
        message_id: item.id.to_string(),
        transaction_id: item.transaction.to_string(),
        partition_id: item.partition.map(|id| id.uuid().to_string()),
        queue: letter.queue.to_string(),
        partition: letter.partition.to_string(),
    }))
}
