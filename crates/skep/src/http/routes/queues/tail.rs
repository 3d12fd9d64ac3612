//! Every new message of a queue as it comes, as server-sent events.

use super::messages::view::{MessageView, put_message};
use super::queues;
use super::read::{name, optional_name};
use super::refuse::{no_queue, store_problem};
use super::write::Json;
use crate::http::extract::{Asker, Parameters, Segments};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::http::routes::live::event_stream;
use crate::node::Shared;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use skep_queues::store::{BrowseError, MessageRow};
use skep_queues::{Queues, Tail, Tailed};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

/// When to try again that was refused because there are too many.
const AGAIN: Duration = Duration::from_secs(5);

/// After a failure of the store it is asked again so much later.
const REST: Duration = Duration::from_secs(1);

/// Which messages.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TailHow {
    /// Only of this partition.
    partition: Option<String>,
    /// Whose `status` counts, and the only one among `consumerGroups`; all groups if left out.
    group: Option<String>,
}

/// Everybody who watches, and what they need for it.
struct Watching {
    tail: Tail,
    queues: Queues,
    group: Option<Arc<str>>,
    shared: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

/// New messages of a queue as they come, as events named `message`; `skipped` has the number of
/// those that came too fast
#[utoipa::path(
    get, path = "/api/v1/queues/{queue}/tail", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("queue" = String, Path), TailHow),
    responses((status = 200, description = "A stream that lasts",
               content_type = "text/event-stream", body = MessageView),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 429, description = "50 are open at this node", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn tail(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(queue): Segments<String>,
    Parameters(how): Parameters<TailHow>,
) -> Result<Response, Problem> {
    let queues = queues(&shared)?.clone();
    let queue = name("queue", &queue)?;
    let partition = optional_name("partition", how.partition.as_deref())?;
    let group = optional_name("group", how.group.as_deref())?;
    let known = queues.store().queue(&queue).await.map_err(|error| store_problem(&error))?;
    known.ok_or_else(|| no_queue(&queue))?;
    let place = shared.queues.tail_place().ok_or_else(|| {
        let most = crate::queues::TAILS_MAX;
        let words = format!("{most} tails are open at this node, which is as many as may be");
        Problem::new(&problem::E_TAILS_MAX, words).retry_after(AGAIN).plain()
    })?;
    let tail = queues.tail(queue, partition).await.map_err(|error| match error {
        BrowseError::Store(error) => store_problem(&error),
        other => Problem::new(&problem::E_INTERNAL, other.to_string()).plain(),
    })?;
    let watching = Watching { tail, queues, group, shared: shared.clone(), _place: place };
    // The first event comes at once, so that whoever watches knows from when on it does.
    let begins = stream::once(async { Event::default().event("begin").data("{}") });
    let events = stream::unfold(watching, async |mut watching| {
        let shared = watching.shared.clone();
        let event = tokio::select! {
            event = watching.next() => event,
            () = shared.queues.stopping() => None,
        };
        event.map(|event| (event, watching))
    });
    event_stream(&shared, asker, begins.chain(events))
}

impl Watching {
    async fn next(&mut self) -> Option<Event> {
        loop {
            match self.tail.next().await {
                Ok(Tailed::Skipped(count)) => {
                    let data = format!("{{\"messages\":{count}}}");
                    return Some(Event::default().event("skipped").data(data));
                }
                // One that cannot be read is not shown, and holds up no other.
                Ok(Tailed::Message(message)) => {
                    if let Ok(data) = self.describe(message) {
                        return Some(Event::default().event("message").data(data));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a tail cannot look now and tries again");
                    sleep(REST).await;
                }
            }
        }
    }

    fn describe(&self, mut message: MessageRow) -> Result<String, Problem> {
        if let Some(group) = &self.group {
            message.standing.retain(|standing| standing.group == *group);
        }
        let mut json = Json::with_room(2 * message.record.len() + 512);
        json.raw("{");
        put_message(&mut json, &self.queues, &message, self.group.as_deref())?;
        json.raw("}");
        // A payload may have line breaks between its parts, where JSON takes a space as well.
        let text = String::from_utf8_lossy(&json.into_bytes()).replace(['\r', '\n'], " ");
        Ok(text)
    }
}
