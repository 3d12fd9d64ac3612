//! Pushing messages.

use super::missing::check_kind;
use super::read::{self, Given, ID_BYTES_MAX, Listed, name_flaw, object, wrong};
use super::wishes::{Asked, BadWish};
use super::write::{Json, timestamp};
use super::{ITEMS_MAX, Producer, now, queues};
use crate::http::extract::RawBody;
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::value::RawValue;
use skep_queues::record::Wishes;
use skep_queues::store::DEFAULT_PARTITION;
use skep_queues::{NewItem, PushStatus, PushedItem};
use std::borrow::Cow;
use std::sync::Arc;

object! {
    /// What is pushed.
    PushBody<'body> {
        items "items": Listed<ItemBody<'body>>,
    }
}

object! {
    /// A message.
    ItemBody<'body> {
        queue "queue": Given<'body>,
        partition "partition": Given<'body>,
        payload "payload": Option<&'body RawValue>,
        transaction "transactionId": Given<'body>,
        trace "traceId": Given<'body>,
        until "delayUntil": Given<'body>,
        delay "delay": Given<'body>,
        priority "priority": Given<'body>,
        retry_limit "retryLimit": Given<'body>,
        retry_delay "retryDelay": Given<'body>,
    }
}

/// What is pushed.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is read")]
pub(super) struct PushRequest {
    /// The messages, all of which are kept or none.
    items: Vec<ItemRequest>,
}

/// A message.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
pub(super) struct ItemRequest {
    /// Made if it is not there. At most 255 bytes.
    queue: String,
    /// `Default` if left out. Made if it is not there.
    partition: Option<String>,
    /// Any JSON; null if left out.
    payload: Option<serde_json::Value>,
    /// A message with the same one in the same partition is kept once, within the queue's window.
    transaction_id: Option<String>,
    /// What it is part of.
    trace_id: Option<String>,
    /// Not handed out before this time, or so many milliseconds since 1970; at most 366 days
    /// ahead. Until then it holds up nobody.
    #[schema(example = "2026-01-31T12:00:00Z")]
    delay_until: Option<String>,
    /// Not handed out before so many seconds from now; instead of `delayUntil`.
    delay: Option<u64>,
    /// 0 to 9; higher goes first within its partition. 0 if left out.
    priority: Option<u8>,
    /// So many failures bring it back, instead of the queue's `retryLimit`.
    retry_limit: Option<u32>,
    /// Milliseconds before it comes again after its first failure, instead of the queue's.
    retry_delay: Option<u32>,
}

/// What became of a message.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct PushedAnswer {
    /// Its place in the request.
    index: usize,
    /// Its id; of a duplicate, the id it got the first time.
    message_id: String,
    transaction_id: String,
    /// Nothing of a duplicate.
    partition_id: Option<String>,
    trace_id: Option<String>,
    #[schema(rename = "queueName")]
    queue_name: String,
    /// `queued`, `duplicate` or `buffered`.
    status: String,
    /// When it will be handed out, if that is not now.
    #[schema(rename = "delayUntil")]
    delay_until: Option<String>,
}

/// Push messages: all or none, durable when the answer comes
#[utoipa::path(
    post, path = "/api/v1/push", tag = "queues", extensions(("x-scope" = json!("push"))),
    request_body = PushRequest,
    responses(
        (status = 201, description = "What became of each, in order", body = Vec<PushedAnswer>),
        (status = 400, description = "Something is wrong; nothing was kept", body = ProblemBody),
        (status = 429, description = "Too much waits, or a queue has as much as its `maxSize`",
         body = ProblemBody),
        (status = 501, description = "It is a binary push", body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn push(
    State(shared): State<Arc<Shared>>,
    producer: Producer,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let queues = queues(&shared)?;
    check_kind(&headers)?;
    let body: PushBody<'_> = read::json(&body)?;
    let Listed::Items(items) = body.items else {
        return Err(wrong("items", "items array is required"));
    };
    let items = new_items(items, "items", &producer.0)?;
    let pushed = queues.push(&items).await?;
    Ok(answer_of(&items, &pushed).answer(StatusCode::CREATED))
}

/// Messages as they are pushed. Names that come again and again are kept once.
pub fn new_items(
    bodies: Vec<ItemBody<'_>>,
    field: &str,
    producer: &Option<Arc<str>>,
) -> Result<Vec<NewItem>, Problem> {
    if bodies.len() > ITEMS_MAX {
        let words = format!("{field} has {} items, at most {ITEMS_MAX} may be", bodies.len());
        return Err(wrong(field, words));
    }
    let mut items: Vec<NewItem> = Vec::with_capacity(bodies.len());
    let now = now();
    for (number, body) in bodies.into_iter().enumerate() {
        let at = |name: &str| format!("{field}[{number}].{name}");
        let last = items.last();
        let queue = named("Queue", &body.queue, last.map(|item| &item.queue));
        let queue = queue.and_then(|queue| queue.ok_or("Queue must be a string".into()));
        let partition = named("Partition", &body.partition, last.map(|item| &item.partition));
        let transaction = id("TransactionId", &body.transaction);
        let trace = id("TraceId", &body.trace);
        let flaw = |name, words: Cow<'static, str>| wrong(&at(name), words);
        let asked = Asked {
            until: Some(&body.until),
            delay: Some(&body.delay),
            priority: Some(&body.priority),
            retry_limit: Some(&body.retry_limit),
            retry_delay: Some(&body.retry_delay),
        };
        let wishes = asked.read(now).map_err(|BadWish(name, words)| wrong(&at(name), words))?;
        // A time that has come is no delay.
        let wishes = Wishes { due: wishes.due.filter(|due| *due > now), ..wishes };
        items.push(NewItem {
            queue: queue.map_err(|words| flaw("queue", words))?,
            partition: partition
                .map_err(|words| flaw("partition", words))?
                .unwrap_or_else(|| Arc::from(DEFAULT_PARTITION)),
            payload: body.payload.map_or("null", RawValue::get).as_bytes().into(),
            transaction: transaction.map_err(|words| flaw("transactionId", words))?,
            trace: trace.map_err(|words| flaw("traceId", words))?,
            producer: producer.clone(),
            wishes,
        });
    }
    Ok(items)
}

type Words = Cow<'static, str>;

fn named(
    what: &'static str,
    given: &Given<'_>,
    last: Option<&Arc<str>>,
) -> Result<Option<Arc<str>>, Words> {
    match (given, last) {
        (Given::Nothing, _) => Ok(None),
        (Given::Text(text), Some(last)) if **text == **last => Ok(Some(last.clone())),
        (Given::Text(text), _) => match name_flaw(text) {
            Some(flaw) => Err(format!("{what} {flaw}").into()),
            None => Ok(Some(Arc::from(&**text))),
        },
        _ => Err(format!("{what} must be a string").into()),
    }
}

fn id(what: &'static str, given: &Given<'_>) -> Result<Option<Arc<str>>, Words> {
    match given {
        Given::Nothing => Ok(None),
        Given::Text(text) if text.is_empty() => Err(format!("{what} must not be empty").into()),
        Given::Text(text) if text.len() > ID_BYTES_MAX => {
            Err(format!("{what} must not be longer than {ID_BYTES_MAX} bytes").into())
        }
        Given::Text(text) => Ok(Some(Arc::from(&**text))),
        _ => Err(format!("{what} must be a string").into()),
    }
}

fn answer_of(items: &[NewItem], pushed: &[PushedItem]) -> Json {
    let mut json = Json::with_room(2 + 320 * pushed.len());
    json.raw("[");
    for (index, (item, one)) in items.iter().zip(pushed).enumerate() {
        json.comma(index).raw("{\"index\":").number(index);
        json.raw(",\"message_id\":").uuid(one.id);
        json.raw(",\"transaction_id\":").text(&one.transaction);
        if let (Some(partition), PushStatus::Queued) = (one.partition, one.status) {
            json.raw(",\"partition_id\":").uuid(partition.uuid());
        }
        json.raw(",\"trace_id\":").optional(item.trace.as_deref());
        json.raw(",\"queueName\":").text(&item.queue);
        let status = match one.status {
            PushStatus::Queued => "queued",
            PushStatus::Duplicate => "duplicate",
            PushStatus::Buffered => "buffered",
        };
        json.raw(",\"status\":\"").raw(status).raw("\"");
        if let (Some(due), PushStatus::Queued | PushStatus::Buffered) =
            (item.wishes.due, one.status)
        {
            json.raw(",\"delayUntil\":").text(&timestamp(due));
        }
        json.raw("}");
    }
    json.raw("]");
    json
}
