//! What consumers say about messages.

use super::read::{self, Given, ID_BYTES_MAX, Listed, any_text, given_name, object, wrong};
use super::refuse::refusal_text;
use super::wishes::{BadWish, retry_after};
use super::write::Json;
use super::{ITEMS_MAX, group_or_none, lease_of, queues};
use crate::http::extract::RawBody;
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::value::RawValue;
use skep_policy::queues::{Settled, Verdict};
use skep_queues::ids::PartitionId;
use skep_queues::store::{ItemSettled, SettleItem};
use std::sync::Arc;
use uuid::Uuid;

/// So much of what a consumer says about an error is kept, in bytes.
const ERROR_BYTES_MAX: usize = 8 << 10;

object! {
    /// A word about one message.
    AckBody<'body> {
        transaction "transactionId": Given<'body>,
        partition "partitionId": Given<'body>,
        status "status": Given<'body>,
        group "consumerGroup": Given<'body>,
        lease "leaseId": Given<'body>,
        error "error": Option<&'body RawValue>,
        retry_after "retryAfter": Given<'body>,
    }
}

object! {
    /// Words about several.
    BatchBody<'body> {
        acknowledgments "acknowledgments": Listed<AckBody<'body>>,
        group "consumerGroup": Given<'body>,
    }
}

/// A word about one message.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
pub(super) struct AckRequest {
    transaction_id: String,
    partition_id: String,
    /// `completed`, `success`, `acked` or `ok`; `retry`; `dlq`; anything else is `failed`.
    /// Completed if left out.
    status: Option<String>,
    consumer_group: Option<String>,
    /// Of the pop. Without it the word counts only while nobody works on the partition.
    lease_id: Option<String>,
    /// What went wrong, for the dead letters.
    error: Option<String>,
    /// Milliseconds before it comes again, with `failed` or `retry`; the queue decides otherwise.
    retry_after: Option<u64>,
}

/// Words about several messages.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
pub(super) struct BatchRequest {
    acknowledgments: Vec<AckRequest>,
    /// For all of them.
    consumer_group: Option<String>,
}

/// What came of a word.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct AckAnswer {
    /// Its place in the request.
    index: usize,
    transaction_id: String,
    /// Whether it counts.
    success: bool,
    /// Why not.
    error: Option<String>,
    queue_name: Option<String>,
    partition_name: Option<String>,
    /// Whether the lease on the partition is over.
    lease_released: bool,
    /// Whether the message is among the dead letters now.
    dlq: bool,
    /// Whether it was settled before.
    noop: bool,
}

/// Say what became of a message
#[utoipa::path(
    post, path = "/api/v1/ack", tag = "queues", extensions(("x-scope" = json!("pop"))),
    request_body = AckRequest,
    responses(
        (status = 200, description = "A list of one, refused or not", body = Vec<AckAnswer>),
        (status = 400, description = "It cannot be read", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn ack(
    State(shared): State<Arc<Shared>>,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let body: AckBody<'_> = read::json(&body)?;
    let group = given_name("consumerGroup", &body.group)?;
    let items = vec![settle_item(&body, "")?];
    settle(&shared, group, items).await
}

/// Say what became of several messages, each by itself
#[utoipa::path(
    post, path = "/api/v1/ack/batch", tag = "queues", extensions(("x-scope" = json!("pop"))),
    request_body = BatchRequest,
    responses(
        (status = 200, description = "What came of each, in order", body = Vec<AckAnswer>),
        (status = 400, description = "It cannot be read; nothing was done", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn ack_batch(
    State(shared): State<Arc<Shared>>,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let body: BatchBody<'_> = read::json(&body)?;
    let Listed::Items(bodies) = body.acknowledgments else {
        return Err(wrong("acknowledgments", "acknowledgments array is required"));
    };
    if bodies.len() > ITEMS_MAX {
        let words =
            format!("acknowledgments has {} items, at most {ITEMS_MAX} may be", bodies.len());
        return Err(wrong("acknowledgments", words));
    }
    let mut group = given_name("consumerGroup", &body.group)?;
    let mut items = Vec::with_capacity(bodies.len());
    for (number, body) in bodies.iter().enumerate() {
        let prefix = format!("acknowledgments[{number}].");
        let field = format!("{prefix}consumerGroup");
        if let Some(own) = given_name(&field, &body.group)? {
            let call = group.get_or_insert_with(|| own.clone());
            if *call != own {
                let words = format!("{field} is {own:?}, but this call is for the group {call:?}");
                return Err(wrong(&field, words));
            }
        }
        items.push(settle_item(body, &prefix)?);
    }
    settle(&shared, group, items).await
}

async fn settle(
    shared: &Shared,
    group: Option<Arc<str>>,
    items: Vec<SettleItem>,
) -> Result<Response, Problem> {
    let queues = queues(shared)?;
    let transactions: Vec<Arc<str>> = items.iter().map(|item| item.transaction.clone()).collect();
    let settled = queues.settle(group_or_none(group), items).await?;
    let mut json = Json::with_room(2 + 256 * settled.len());
    json.raw("[");
    for (index, (one, transaction)) in settled.iter().zip(&transactions).enumerate() {
        json.comma(index);
        put_settled(&mut json, index, transaction, one);
    }
    json.raw("]");
    Ok(json.answer(StatusCode::OK))
}

/// A word as it is settled.
pub fn settle_item(body: &AckBody<'_>, prefix: &str) -> Result<SettleItem, Problem> {
    let (Given::Text(transaction), Given::Text(partition)) = (&body.transaction, &body.partition)
    else {
        let missing = match body.transaction {
            Given::Text(_) => "partitionId",
            _ => "transactionId",
        };
        let words = "transactionId and partitionId are required, both as strings";
        return Err(wrong(&format!("{prefix}{missing}"), words));
    };
    if transaction.len() > ID_BYTES_MAX {
        let words = format!("transactionId must not be longer than {ID_BYTES_MAX} bytes");
        return Err(wrong(&format!("{prefix}transactionId"), words));
    }
    let lease = match &body.lease {
        Given::Nothing => None,
        Given::Text(lease) if lease.is_empty() => None,
        Given::Text(lease) => Some(lease_of(lease)),
        _ => return Err(wrong(&format!("{prefix}leaseId"), "leaseId must be a string")),
    };
    let verdict = match &body.status {
        Given::Nothing | Given::Truth(true) => Verdict::Completed,
        Given::Text(status) => match &**status {
            "completed" | "success" | "acked" | "ok" => Verdict::Completed,
            "retry" => Verdict::Retry,
            "dlq" => Verdict::Dead,
            _ => Verdict::Failed,
        },
        Given::Truth(false) => Verdict::Failed,
        _ => return Err(wrong(&format!("{prefix}status"), "status must be a string")),
    };
    let after = retry_after(&body.retry_after)
        .map_err(|BadWish(name, words)| wrong(&format!("{prefix}{name}"), words))?;
    if after.is_some() && !matches!(verdict, Verdict::Failed | Verdict::Retry) {
        let words = "retryAfter goes with the status failed or retry only";
        return Err(wrong(&format!("{prefix}retryAfter"), words));
    }
    Ok(SettleItem {
        partition: Uuid::try_parse(partition).ok().and_then(PartitionId::from_uuid),
        transaction: Arc::from(&**transaction),
        verdict,
        lease,
        error: any_text(body.error, ERROR_BYTES_MAX),
        after,
    })
}

/// What came of a word, in the terms of the API.
#[derive(Default)]
pub struct Told {
    pub error: Option<&'static str>,
    pub released: bool,
    pub dead: bool,
    pub noop: bool,
}

impl Told {
    pub fn of(settled: &Settled) -> Self {
        let mut told = Told::default();
        match settled {
            Settled::Done { released } => told.released = *released,
            Settled::Noop => told.noop = true,
            Settled::Dead { released, .. } => (told.released, told.dead) = (*released, true),
            Settled::Again { .. } => told.released = true,
            Settled::Refused(refusal) => told.error = Some(refusal_text(*refusal)),
        }
        told
    }
}

fn put_settled(json: &mut Json, index: usize, transaction: &str, one: &ItemSettled) {
    let told = Told::of(&one.settled);
    json.raw("{\"index\":").number(index).raw(",\"transactionId\":").text(transaction);
    json.raw(",\"success\":").truth(told.error.is_none());
    json.raw(",\"error\":").optional(told.error);
    json.raw(",\"queueName\":").optional(one.queue.as_deref());
    json.raw(",\"partitionName\":").optional(one.partition.as_deref());
    json.raw(",\"leaseReleased\":").truth(told.released);
    json.raw(",\"dlq\":").truth(told.dead);
    json.raw(",\"noop\":").truth(told.noop).raw("}");
}
