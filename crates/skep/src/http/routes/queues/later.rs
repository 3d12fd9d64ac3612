//! Messages that wait for their time, and queues that are cleared.

use super::query::{given, not, number};
use super::read::name;
use super::refuse::{no_delayed, no_queue, store_problem};
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
use skep_policy::Time;
use skep_queues::browse::only_record;
use skep_queues::store::LaterMessage;
use std::sync::Arc;

const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;

/// Which messages. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DelayedPage {
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Only those after this one: the `next` of the page before.
    after: Option<String>,
}

#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct DelayedAnswer {
    /// By their time.
    messages: Vec<DelayedMessage>,
    /// What to send as `after` for the next page; nothing if this is the last.
    next: Option<String>,
}

/// A message that waits for its time.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct DelayedMessage {
    /// Of its place in the list.
    id: String,
    message_id: String,
    transaction_id: String,
    trace_id: Option<String>,
    queue: String,
    partition: String,
    priority: u8,
    /// When it will be at the end of its partition.
    delay_until: String,
    payload: serde_json::Value,
    /// The same under the name it has in a pop.
    data: serde_json::Value,
    producer_sub: Option<String>,
}

/// A message's place in the order of times, as the outside sees it.
fn place(message: &LaterMessage) -> String {
    format!("{}-{}", message.due.as_nanos() / 1_000, message.id)
}

fn place_of(text: &str) -> Option<(Time, i64)> {
    let (due, id) = text.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let micros = due.parse::<u64>().ok().filter(|_| digits(due))?;
    let id = id.parse().ok().filter(|_| digits(id))?;
    // A database knows no later time.
    i64::try_from(micros).ok()?;
    Some((Time::from_nanos(micros.checked_mul(1_000)?), id))
}

/// Messages of a queue that wait for their time
#[utoipa::path(
    get, path = "/api/v1/queues/{queue}/delayed", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("queue" = String, Path), DelayedPage),
    responses((status = 200, description = "A page", body = DelayedAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Segments(queue): Segments<String>,
    Parameters(page): Parameters<DelayedPage>,
) -> Result<Response, Problem> {
    let queue = name("queue", &queue)?;
    let limit = number("limit", &page.limit, &(1..=PAGE_MAX))?.unwrap_or(PAGE);
    let right = "the next of the page before, as it is";
    let after = |text| place_of(text).ok_or_else(|| not("after", text, right));
    let after = given(&page.after).map(after).transpose()?;
    let queues = queues(&shared)?;
    let known = queues.store().queue(&queue).await.map_err(|error| store_problem(&error))?;
    known.ok_or_else(|| no_queue(&queue))?;
    let found = queues.store().later(&queue, after, limit).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let bytes: usize = found.iter().map(|one| 2 * one.record.len() + 512).sum();
    let mut json = Written::with_room(128 + bytes);
    json.raw("{\"messages\":[");
    for (number, message) in found.iter().enumerate() {
        let record = only_record(&message.record)?;
        let payload = queues.reveal(&queue, &record)?;
        json.comma(number).raw("{\"id\":").text(&place(message));
        json.raw(",\"messageId\":").uuid(record.id);
        json.raw(",\"transactionId\":").text(&record.transaction);
        json.raw(",\"traceId\":").optional(record.trace.as_deref());
        json.raw(",\"queue\":").text(&queue).raw(",\"partition\":").text(&message.partition);
        json.raw(",\"priority\":").number(usize::from(record.wishes.priority));
        json.raw(",\"delayUntil\":").text(&timestamp(message.due));
        json.raw(",\"payload\":").raw(&payload).raw(",\"data\":").raw(&payload);
        json.raw(",\"producerSub\":").optional(record.producer.as_deref()).raw("}");
    }
    let full = found.len() == limit as usize;
    let next = found.last().filter(|_| full).map(place);
    json.raw("],\"next\":").optional(next.as_deref()).raw("}");
    Ok(json.answer(StatusCode::OK))
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct UndelayedAnswer {
    /// True.
    success: bool,
    queue: String,
    id: String,
}

/// Delete a message that waits for its time
#[utoipa::path(
    delete, path = "/api/v1/queues/{queue}/delayed/{id}", tag = "queues",
    extensions(("x-scope" = json!("admin"))),
    params(("queue" = String, Path), ("id" = String, Path)),
    responses((status = 200, description = "It is gone", body = UndelayedAnswer),
              (status = 404, description = "None of this id waits in this queue",
               body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments((queue, id)): Segments<(String, String)>,
) -> Result<Json<UndelayedAnswer>, Problem> {
    let queue = name("queue", &queue)?;
    let right = "the id of a message in the list of those that wait";
    let (due, row) = place_of(&id).ok_or_else(|| not("id", &id, right))?;
    let store = queues(&shared)?.store();
    let known = store.queue(&queue).await.map_err(|error| store_problem(&error))?;
    known.ok_or_else(|| no_queue(&queue))?;
    // Its place tells whether it is one of this queue.
    let found = store.later(&queue, Some((due, row - 1)), 1).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let is_here = found.first().is_some_and(|one| one.id == row && one.due == due);
    let gone = match is_here {
        true => store.delete_later(row).await.map_err(|error| store_problem(&error))?,
        false => false,
    };
    if !gone {
        return Err(no_delayed(&queue, &id));
    }
    note(&shared, &asker, "queues.delete_delayed", &queue, &id).await;
    Ok(Json(UndelayedAnswer { success: true, queue: queue.to_string(), id }))
}

/// A queue that was cleared.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClearedAnswer {
    /// True.
    success: bool,
    queue: String,
    /// Nothing is handed out that was pushed before.
    cleared_at: String,
    /// How many messages it had.
    messages: u64,
}

/// Clear a queue: nothing is handed out that was pushed until now; dead letters stay
#[utoipa::path(
    delete, path = "/api/v1/queues/{queue}/clear", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("queue" = String, Path)),
    responses((status = 200, description = "It is empty", body = ClearedAnswer),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn clear(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(queue): Segments<String>,
) -> Result<Json<ClearedAnswer>, Problem> {
    let queue = name("queue", &queue)?;
    let store = queues(&shared)?.store();
    let shown = store.show(&queue, 0).await.map_err(|error| store_problem(&error))?;
    let messages = shown.ok_or_else(|| no_queue(&queue))?.summary.total;
    let cleared = store.clear(&queue).await.map_err(|error| store_problem(&error))?;
    let cleared_at = cleared.ok_or_else(|| no_queue(&queue))?;
    note(&shared, &asker, "queues.clear", &queue, &messages.to_string()).await;
    Ok(Json(ClearedAnswer {
        success: true,
        queue: queue.to_string(),
        cleared_at: timestamp(cleared_at),
        messages,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_were_written_and_nothing_else_is() {
        let message = LaterMessage {
            id: 17,
            partition: "p".into(),
            due: Time::from_millis(1_500),
            record: Default::default(),
        };
        assert_eq!(place(&message), "1500000-17");
        assert_eq!(place_of("1500000-17"), Some((Time::from_millis(1_500), 17)));
        for odd in ["", "-", "1", "1-", "-1", "1--1", "+1-1", "1-x", "1-1-1", "99999999999999999-1"]
        {
            assert_eq!(place_of(odd), None, "{odd}");
        }
    }
}
