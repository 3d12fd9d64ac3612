//! Pushing and settling, all or nothing.

use super::ack::{AckBody, AckRequest, Told, settle_item};
use super::push::{ItemBody, PushRequest, new_items};
use super::read::{self, Given, Listed, given_name, object, wrong};
use super::write::Json;
use super::{ITEMS_MAX, Producer, group_or_none, lease_of, queues};
use crate::access::Scope;
use crate::http::extract::{Asker, RawBody};
use crate::http::guard::check_scope;
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::value::RawValue;
use skep_queues::store::{NotDone, SettleItem};
use skep_queues::{NewItem, Operation, OperationDone, PushStatus};
use std::sync::Arc;
use uuid::Uuid;

object! {
    /// What is to be done together.
    TransactionBody<'body> {
        operations "operations": Listed<OperationBody<'body>>,
        required "requiredLeases": Listed<Given<'body>>,
        kv "kv": Option<&'body RawValue>,
        timers "timers": Option<&'body RawValue>,
    }
}

object! {
    /// One operation. An acknowledgement has its fields beside its type.
    OperationBody<'body> {
        kind "type": Given<'body>,
        items "items": Listed<ItemBody<'body>>,
        transaction "transactionId": Given<'body>,
        partition "partitionId": Given<'body>,
        status "status": Given<'body>,
        group "consumerGroup": Given<'body>,
        lease "leaseId": Given<'body>,
        error "error": Option<&'body RawValue>,
        retry_after "retryAfter": Given<'body>,
    }
}

/// What is to be done together.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
struct TransactionRequest {
    operations: Vec<OperationRequest>,
    /// Leases that must hold, each on at least one partition; otherwise nothing is done.
    required_leases: Option<Vec<String>>,
}

/// One operation.
#[derive(utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[expect(dead_code, reason = "it describes what is read")]
enum OperationRequest {
    Push(PushRequest),
    Ack(AckRequest),
}

/// What came of it.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct TransactionAnswer {
    /// Whether all of it was done; otherwise nothing was.
    success: bool,
    transaction_id: String,
    /// One for each message, in order; if nothing was done, the one that kept it.
    results: Vec<ResultAnswer>,
    /// Why nothing was done.
    error: Option<String>,
}

/// What came of one message.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct ResultAnswer {
    index: usize,
    /// `push` or `ack`.
    #[schema(rename = "type")]
    kind: String,
    success: bool,
    transaction_id: String,
    message_id: Option<String>,
    partition_id: Option<String>,
    queue_name: Option<String>,
    /// Whether the message is among the dead letters now.
    dlq: Option<bool>,
    error: Option<String>,
}

/// Push and acknowledge together: all of it or nothing. Pushes need the scope `push` too.
#[utoipa::path(
    post, path = "/api/v1/transaction", tag = "queues", extensions(("x-scope" = json!("pop"))),
    request_body = TransactionRequest,
    responses(
        (status = 200, description = "Done, or with `success: false` nothing was",
         body = TransactionAnswer),
        (status = 400, description = "It cannot be read; nothing was done", body = ProblemBody),
        (status = 403, description = "It pushes, and the key may not", body = ProblemBody),
        (status = 429, description = "Too much waits, or a queue has as much as its `maxSize`",
         body = ProblemBody),
        (status = 501, description = "Something is not in this version", body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn transaction(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    producer: Producer,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let queues = queues(&shared)?;
    let body: TransactionBody<'_> = read::json(&body)?;
    let riders = [("kv", body.kv), ("timers", body.timers)];
    if let Some((field, _)) = riders.into_iter().find(|(_, rider)| is_something(*rider)) {
        let words = format!("{field} is not in this version; send operations alone");
        return Err(Problem::new(&problem::E_NOT_SUPPORTED, words).at(field).plain());
    }
    let operations = operations(body.operations, &producer.0)?;
    if operations.iter().any(|operation| matches!(operation, Operation::Push(_))) {
        check_scope(&asker.known(), Scope::Push).map_err(Problem::plain)?;
    }
    let required = required(body.required)?;
    let leases: Vec<_> = required.iter().map(|lease| lease_of(lease)).collect();
    let mut json = Json::with_room(128 + 256 * operations.len());
    json.raw("{\"success\":");
    match queues.transaction(&operations, &leases).await? {
        Ok(done) => {
            json.raw("true,\"transactionId\":").uuid(Uuid::now_v7()).raw(",\"results\":[");
            for (index, (operation, done)) in operations.iter().zip(&done).enumerate() {
                json.comma(index);
                put_done(&mut json, index, operation, done);
            }
            json.raw("]}");
        }
        Err(not_done) => {
            json.raw("false,\"transactionId\":").uuid(Uuid::now_v7()).raw(",\"results\":[");
            let error = put_refused(&mut json, &operations, &not_done);
            let lease = match &not_done {
                NotDone::Lease(lost) => leases.iter().position(|lease| lease == lost),
                NotDone::Step(..) | NotDone::Gone(_) => None,
            };
            let lease = lease.map(|place| format!("{error}: {}", required[place]));
            json.raw("],\"error\":").text(lease.as_deref().unwrap_or(error)).raw("}");
        }
    }
    Ok(json.answer(StatusCode::OK))
}

/// Whether a rider has anything in it.
fn is_something(rider: Option<&RawValue>) -> bool {
    rider.is_some_and(|rider| !matches!(rider.get().trim(), "[]" | "{}" | "null"))
}

fn operations(
    bodies: Listed<OperationBody<'_>>,
    producer: &Option<Arc<str>>,
) -> Result<Vec<Operation>, Problem> {
    let bodies = match bodies {
        Listed::Items(bodies) if !bodies.is_empty() => bodies,
        _ => return Err(wrong("operations", "operations array is required")),
    };
    let mut operations = Vec::with_capacity(bodies.len());
    for (number, body) in bodies.into_iter().enumerate() {
        let field = format!("operations[{number}]");
        match &body.kind {
            Given::Text(kind) if kind == "push" => {
                let Listed::Items(items) = body.items else {
                    return Err(wrong(&format!("{field}.items"), "items array is required"));
                };
                let items = new_items(items, &format!("{field}.items"), producer)?;
                operations.extend(items.into_iter().map(Operation::Push));
            }
            Given::Text(kind) if kind == "ack" => {
                let group = given_name(&format!("{field}.consumerGroup"), &body.group)?;
                let ack = AckBody {
                    transaction: body.transaction,
                    partition: body.partition,
                    status: body.status,
                    group: Given::Nothing,
                    lease: body.lease,
                    error: body.error,
                    retry_after: body.retry_after,
                };
                let item = settle_item(&ack, &format!("{field}."))?;
                operations.push(Operation::Settle { group: group_or_none(group), item });
            }
            _ => {
                let words = format!("{field}.type must be \"push\" or \"ack\"");
                return Err(wrong(&format!("{field}.type"), words));
            }
        }
        if operations.len() > ITEMS_MAX {
            let words = format!("operations have more than {ITEMS_MAX} messages");
            return Err(wrong("operations", words));
        }
    }
    if operations.is_empty() {
        return Err(wrong("operations", "operations array is required: there is no message in it"));
    }
    Ok(operations)
}

fn required(given: Listed<Given<'_>>) -> Result<Vec<String>, Problem> {
    // Left out, or null, it asks for nothing.
    let Listed::Items(given) = given else { return Ok(Vec::new()) };
    let text = |(number, one): (usize, Given<'_>)| match one {
        Given::Text(text) => Ok(text.into_owned()),
        _ => {
            let field = format!("requiredLeases[{number}]");
            Err(wrong(&field, format!("{field} must be a string")))
        }
    };
    given.into_iter().enumerate().map(text).collect()
}

fn put_start(json: &mut Json, index: usize, operation: &Operation, success: bool) {
    let (kind, transaction) = match operation {
        Operation::Push(NewItem { transaction, .. }) => ("push", transaction.as_deref()),
        Operation::Settle { item: SettleItem { transaction, .. }, .. } => {
            ("ack", Some(&**transaction))
        }
    };
    json.raw("{\"index\":").number(index).raw(",\"type\":\"").raw(kind);
    json.raw("\",\"success\":").truth(success);
    if let Some(transaction) = transaction {
        json.raw(",\"transactionId\":").text(transaction);
    }
}

fn put_done(json: &mut Json, index: usize, operation: &Operation, done: &OperationDone) {
    put_start(json, index, operation, true);
    match (operation, done) {
        (Operation::Push(item), OperationDone::Pushed(one)) => {
            if item.transaction.is_none() {
                json.raw(",\"transactionId\":").text(&one.transaction);
            }
            json.raw(",\"messageId\":").uuid(one.id);
            if let Some(partition) = one.partition {
                json.raw(",\"partitionId\":").uuid(partition.uuid());
            }
            json.raw(",\"queueName\":").text(&item.queue);
            json.raw(",\"duplicate\":").truth(one.status == PushStatus::Duplicate);
        }
        (_, OperationDone::Settled(one)) => {
            let told = Told::of(&one.settled);
            json.raw(",\"queueName\":").optional(one.queue.as_deref());
            json.raw(",\"dlq\":").truth(told.dead).raw(",\"noop\":").truth(told.noop);
        }
        _ => {}
    }
    json.raw("}");
}

/// The result that kept the others from being done, and why.
fn put_refused(json: &mut Json, operations: &[Operation], not_done: &NotDone) -> &'static str {
    match not_done {
        NotDone::Lease(_) => "Invalid or expired lease",
        // Nothing that comes from outside takes rows.
        NotDone::Gone(_) => "Already done",
        NotDone::Step(place, settled) => {
            let error = Told::of(&settled.settled).error.unwrap_or("Not settled");
            if let Some(operation) = operations.get(*place) {
                put_start(json, *place, operation, false);
                json.raw(",\"queueName\":").optional(settled.queue.as_deref());
                json.raw(",\"error\":").text(error).raw("}");
            }
            error
        }
    }
}
