//! Messages by what they are, what became of them and what is in them.

use super::view::{MessageView, put_message};
use crate::http::extract::Parameters;
use crate::http::problem::{Problem, ProblemBody};
use crate::http::routes::queues::query::{given, moment, not, number};
use crate::http::routes::queues::read::{optional_name, wrong};
use crate::http::routes::queues::refuse::{no_partition, no_queue, store_problem};
use crate::http::routes::queues::write::Json;
use crate::http::routes::queues::{partition_is_there, queues};
use crate::node::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use skep_queues::browse::{FieldPath, Found, Look, Search, Status, Test};
use skep_queues::store::{MessageFilter, QueueStore, Queues as Which};
use std::sync::Arc;

const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;
const OFFSET_MAX: u64 = 10_000;

/// Which messages. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct MessagesPage {
    /// Only of this queue.
    queue: Option<String>,
    /// Only of queues of this namespace.
    namespace: Option<String>,
    /// Only of queues of this task.
    task: Option<String>,
    /// Only of this partition of the queue.
    partition: Option<String>,
    /// Only those that are `pending`, `processing` or `completed`.
    status: Option<String>,
    /// Whose status counts; that of all groups together if left out.
    consumer_group: Option<String>,
    /// Only those pushed at this time or later.
    from: Option<String>,
    /// Only those pushed before this time.
    to: Option<String>,
    /// Only those whose payload has something here: a field, or a path such as `order.items[0].id`.
    field: Option<String>,
    /// The text, number, `true`, `false` or `null` that is there.
    equals: Option<String>,
    /// What the text that is there has in it.
    contains: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// After so many, 10000 at most. `after` is cheaper.
    #[param(value_type = Option<u32>)]
    offset: Option<String>,
    /// Where to go on: the `next` of the page before.
    after: Option<String>,
}

/// A page of messages.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct MessagesAnswer {
    /// Newest first.
    messages: Vec<MessageView>,
    /// What to send as `after` to go on; nothing if there are no more. A page may have one and be
    /// short, or empty: a call looks at 10000 messages and for a second at most.
    next: Option<String>,
    /// Messages that were looked at.
    scanned: u64,
    pagination: Pagination,
}

/// Which part of them.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct Pagination {
    limit: u32,
    /// How many were passed over.
    offset: u64,
}

impl MessagesPage {
    fn status(&self) -> Result<Option<Status>, Problem> {
        let all = [Status::Pending, Status::Processing, Status::Completed];
        let Some(text) = given(&self.status) else { return Ok(None) };
        match all.into_iter().find(|status| status.word() == text) {
            Some(status) => Ok(Some(status)),
            None => Err(not("status", text, "pending, processing or completed")),
        }
    }

    fn search(&self) -> Result<Option<Search>, Problem> {
        let test = match (&self.equals, &self.contains) {
            (Some(_), Some(_)) => {
                let words = "equals and contains cannot both be given; give one of them";
                return Err(wrong("contains", words));
            }
            (Some(text), None) => Some(Test::Equals(text.as_str().into())),
            (None, Some(text)) => Some(Test::Contains(text.as_str().into())),
            (None, None) => None,
        };
        match (given(&self.field), test) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(wrong("field", "field needs equals or contains beside it")),
            (None, Some(_)) => {
                Err(wrong("field", "equals and contains need the field they are about"))
            }
            (Some(text), Some(test)) => {
                let field = FieldPath::parse(text).map_err(|flaw| {
                    not("field", text, &format!("a path such as a.b[0].c: {flaw}"))
                })?;
                Ok(Some(Search { field, test }))
            }
        }
    }

    /// What to look for; `None` if there can be none of it.
    async fn look(&self, store: &QueueStore) -> Result<Option<Look>, Problem> {
        let limit = number("limit", &self.limit, &(1..=PAGE_MAX))?.unwrap_or(PAGE);
        let offset = number("offset", &self.offset, &(0..=OFFSET_MAX))?.unwrap_or(0);
        let (status, search) = (self.status()?, self.search()?);
        let group = optional_name("consumerGroup", self.consumer_group.as_deref())?;
        let (from, to) = (moment("from", &self.from)?, moment("to", &self.to)?);
        let namespace = optional_name("namespace", self.namespace.as_deref())?;
        let task = optional_name("task", self.task.as_deref())?;
        let partition = optional_name("partition", self.partition.as_deref())?;
        let queues = match optional_name("queue", self.queue.as_deref())? {
            None => Which::Matching { namespace, task },
            Some(queue) => {
                let found = store.queue(&queue).await.map_err(|error| store_problem(&error))?;
                let found = found.ok_or_else(|| no_queue(&queue))?;
                if namespace.is_some_and(|namespace| namespace != found.namespace)
                    || task.is_some_and(|task| task != found.task)
                {
                    return Ok(None);
                }
                if let Some(partition) = &partition
                    && !partition_is_there(store, &queue, partition).await?
                {
                    return Err(no_partition(&queue, partition));
                }
                Which::One(queue)
            }
        };
        let after = given(&self.after).map(str::to_owned);
        let filter = MessageFilter { queues, partition, from, to, after, limit };
        Ok(Some(Look { filter, status, group, search, offset }))
    }
}

/// Messages, the newest first
#[utoipa::path(
    get, path = "/api/v1/messages", tag = "queues", extensions(("x-scope" = json!("read"))),
    params(MessagesPage),
    responses((status = 200, description = "A page", body = MessagesAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue or partition",
               body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<MessagesPage>,
) -> Result<Response, Problem> {
    let queues = queues(&shared)?;
    let look = page.look(queues.store()).await?;
    let found = match &look {
        Some(look) => queues.look(look).await?,
        None => Found::default(),
    };
    let bytes: usize = found.messages.iter().map(|one| 2 * one.record.len() + 1_024).sum();
    let mut json = Json::with_room(256 + bytes);
    json.raw("{\"messages\":[");
    let group = look.as_ref().and_then(|look| look.group.as_deref());
    for (number, message) in found.messages.iter().enumerate() {
        json.comma(number).raw("{");
        put_message(&mut json, queues, message, group)?;
        json.raw("}");
    }
    let limit = look.as_ref().map_or(PAGE, |look| look.filter.limit);
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    json.raw("],\"next\":").optional(found.next.as_deref());
    json.raw(",\"scanned\":").number(whole(found.scanned));
    json.raw(",\"pagination\":{\"limit\":").number(limit as usize);
    json.raw(",\"offset\":").number(whole(found.skipped)).raw("}}");
    Ok(json.answer(StatusCode::OK))
}
