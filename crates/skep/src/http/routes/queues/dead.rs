//! Messages that were set aside.

use super::queues;
use super::read::{optional_name, time, wrong};
use super::refuse::store_problem;
use super::write::{Json, timestamp};
use crate::http::extract::Parameters;
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use skep_queues::QueueError;
use skep_queues::record::{Damaged, Records};
use skep_queues::store::{DeadFilter, WorkError};
use std::sync::Arc;

const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct DeadPage {
    /// Only of this queue.
    queue: Option<String>,
    /// Only of this partition.
    partition: Option<String>,
    /// Only of this group.
    consumer_group: Option<String>,
    /// Only those set aside at this time or later.
    from: Option<String>,
    /// Only those set aside before this time.
    to: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
    /// After so many.
    offset: Option<u64>,
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
    id: String,
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

/// Messages that were set aside, the newest first
#[utoipa::path(
    get, path = "/api/v1/dlq", tag = "queues", extensions(("x-scope" = json!("read"))),
    params(DeadPage),
    responses((status = 200, description = "A page", body = DeadAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<DeadPage>,
) -> Result<Response, Problem> {
    let at = |field: &str, text: Option<&str>| {
        text.filter(|text| !text.is_empty()).map(|text| time(field, text)).transpose()
    };
    let limit = page.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        let words = format!("limit must be a whole number from 1 to {PAGE_MAX}");
        return Err(wrong("limit", words));
    }
    let offset = page.offset.unwrap_or(0);
    let filter = DeadFilter {
        queue: optional_name("queue", page.queue.as_deref())?,
        partition: optional_name("partition", page.partition.as_deref())?,
        group: optional_name("consumerGroup", page.consumer_group.as_deref())?,
        from: at("from", page.from.as_deref())?,
        to: at("to", page.to.as_deref())?,
        limit,
        offset,
        ..DeadFilter::default()
    };
    let queues = queues(&shared)?;
    let found = queues.store().dead_letters(filter).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let mut json = Json::with_room(128 + 1_024 * found.letters.len());
    json.raw("{\"messages\":[");
    for (number, letter) in found.letters.iter().enumerate() {
        let damaged = |error: Damaged| QueueError::Work(WorkError::Damaged(error));
        let record = Records::of(&letter.record).next().ok_or(Damaged).map_err(damaged)?;
        let record = record.map_err(damaged)?;
        json.comma(number).raw("{\"id\":").uuid(record.id);
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
    }
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    json.raw("],\"total\":").number(number(found.total));
    json.raw(",\"pagination\":{\"limit\":").number(limit as usize);
    json.raw(",\"offset\":").number(number(offset)).raw("}}");
    Ok(json.answer(StatusCode::OK))
}
