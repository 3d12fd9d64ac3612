//! Looking at messages, and moving single ones by hand.

pub mod list;
pub mod view;

use super::options::shown;
use super::query::transaction;
use super::read::{self, Given, any_text, given_name, object};
use super::refuse::{no_message, store_problem};
use super::write::Json as Written;
use super::{group_or_none, note, queues};
use crate::http::extract::{Asker, RawBody, Segments};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use skep_queues::Queues;
use skep_queues::browse::Again;
use skep_queues::ids::PartitionId;
use skep_queues::store::MessageRow;
use std::sync::Arc;
use uuid::Uuid;
use view::{MessageView, put_message};

/// The longest reason for setting a message aside; the rest is cut off.
const ERROR_BYTES_MAX: usize = 8 << 10;

/// A message as a path names it.
struct Place<'path> {
    partition: PartitionId,
    text: &'path str,
    transaction: &'path str,
}

impl<'path> Place<'path> {
    /// An id that is a UUID but of no partition is one that is not there.
    fn of(partition: &'path str, id: &'path str) -> Result<Self, Problem> {
        let transaction = transaction("transactionId", id)?;
        let right = "the partitionId of a push or pop";
        let uuid = Uuid::try_parse(partition);
        let uuid = uuid.map_err(|_| super::query::not("partitionId", partition, right))?;
        let found = PartitionId::from_uuid(uuid);
        let found = found.ok_or_else(|| no_message(partition, transaction))?;
        Ok(Place { partition: found, text: partition, transaction })
    }

    fn unknown(&self) -> Problem {
        no_message(self.text, self.transaction)
    }

    async fn look(&self, queues: &Queues) -> Result<MessageRow, Problem> {
        let found = queues.store().message(self.partition, self.transaction).await;
        let found = found.map_err(|error| store_problem(&error))?;
        found.ok_or_else(|| self.unknown())
    }

    fn target(&self) -> String {
        format!("{} in {}", self.transaction, self.text)
    }
}

/// A message and the options of its queue.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct MessageDetail {
    #[schema(inline)]
    #[serde(flatten)]
    message: MessageView,
    /// The options of its queue.
    queue_config: serde_json::Value,
}

/// One message
#[utoipa::path(
    get, path = "/api/v1/messages/{partition}/{transaction}", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    params(("partition" = String, Path, description = "The `partitionId`"),
           ("transaction" = String, Path, description = "The `transactionId`")),
    responses((status = 200, description = "The newest that has this id", body = MessageDetail),
              (status = 404, description = "None is kept", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Segments((partition, id)): Segments<(String, String)>,
) -> Result<Response, Problem> {
    let queues = queues(&shared)?;
    let place = Place::of(&partition, &id)?;
    let message = place.look(queues).await?;
    let queue = queues.store().queue(&message.queue).await;
    let queue = queue.map_err(|error| store_problem(&error))?.ok_or_else(|| place.unknown())?;
    let mut json = Written::with_room(2 * message.record.len() + 2_048);
    json.raw("{");
    put_message(&mut json, queues, &message, None)?;
    json.raw(",\"queueConfig\":").raw(shown(&queue.options).to_string()).raw("}");
    Ok(json.answer(StatusCode::OK))
}

/// A message that was moved.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MovedAnswer {
    /// True.
    success: bool,
    partition_id: String,
    transaction_id: String,
    queue: String,
    partition: String,
}

impl MovedAnswer {
    fn of(place: &Place<'_>, queue: &str, partition: &str) -> Self {
        MovedAnswer {
            success: true,
            partition_id: place.partition.uuid().to_string(),
            transaction_id: place.transaction.to_owned(),
            queue: queue.to_owned(),
            partition: partition.to_owned(),
        }
    }
}

/// Delete a message, whoever works on it
#[utoipa::path(
    delete, path = "/api/v1/messages/{partition}/{transaction}", tag = "queues",
    extensions(("x-scope" = json!("admin"))),
    params(("partition" = String, Path, description = "The `partitionId`"),
           ("transaction" = String, Path, description = "The `transactionId`")),
    responses((status = 200, description = "It is gone", body = MovedAnswer),
              (status = 404, description = "None is kept", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments((partition, id)): Segments<(String, String)>,
) -> Result<Json<MovedAnswer>, Problem> {
    let queues = queues(&shared)?;
    let place = Place::of(&partition, &id)?;
    let removed = queues.store().delete_message(place.partition, place.transaction).await;
    let removed = removed.map_err(|error| store_problem(&error))?;
    let removed = removed.ok_or_else(|| place.unknown())?;
    queues.wake(Some(&removed.queue));
    note(&shared, &asker, "queues.delete_message", &place.target(), &removed.queue).await;
    Ok(Json(MovedAnswer::of(&place, &removed.queue, &removed.partition)))
}

/// A message that comes again.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgainAnswer {
    /// Its id, which it keeps.
    message_id: String,
    /// So many dead letters of it are gone for that.
    dead_letters: usize,
    #[serde(flatten)]
    moved: MovedAnswer,
}

/// Let a message come again: its dead letters go back, or what every group is past is pushed anew
#[utoipa::path(
    post, path = "/api/v1/messages/{partition}/{transaction}/retry", tag = "queues",
    extensions(("x-scope" = json!("admin"))),
    params(("partition" = String, Path, description = "The `partitionId`"),
           ("transaction" = String, Path, description = "The `transactionId`")),
    responses((status = 200, description = "It was pushed with the same transaction id",
               body = AgainAnswer),
              (status = 404, description = "None is kept", body = ProblemBody),
              (status = 409, description = "It is not over yet", body = ProblemBody),
              (status = 429, description = "The queue is full", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn retry(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments((partition, id)): Segments<(String, String)>,
) -> Result<Json<AgainAnswer>, Problem> {
    let place = Place::of(&partition, &id)?;
    match queues(&shared)?.retry_message(place.partition, place.transaction).await? {
        Again::Pushed { item, queue, partition, letters } => {
            note(&shared, &asker, "queues.retry_message", &place.target(), &queue).await;
            let moved = MovedAnswer::of(&place, &queue, &partition);
            let message_id = item.id.to_string();
            Ok(Json(AgainAnswer { message_id, dead_letters: letters, moved }))
        }
        Again::Pending => {
            let text = format!("the message {:?} is not over yet", place.transaction);
            Err(Problem::new(&problem::E_MESSAGE_PENDING, text).plain())
        }
        Again::Unknown => Err(place.unknown()),
    }
}

object! {
    /// For whom, and why.
    AsideBody<'body> {
        group "consumerGroup": Given<'body>,
        error "error": Option<&'body RawValue>,
    }
}

/// For whom, and why.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
struct AsideRequest {
    /// The group whose dead letter it becomes; that of those who name none if left out.
    consumer_group: Option<String>,
    /// What stands with it.
    error: Option<String>,
}

/// Set a message aside as a dead letter; nobody gets it any more
#[utoipa::path(
    post, path = "/api/v1/messages/{partition}/{transaction}/dlq", tag = "queues",
    extensions(("x-scope" = json!("admin"))),
    params(("partition" = String, Path, description = "The `partitionId`"),
           ("transaction" = String, Path, description = "The `transactionId`")),
    request_body = Option<AsideRequest>,
    responses((status = 200, description = "It is a dead letter", body = MovedAnswer),
              (status = 400, description = "A field is wrong", body = ProblemBody),
              (status = 404, description = "None is kept", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn set_aside(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments((partition, id)): Segments<(String, String)>,
    RawBody(body): RawBody,
) -> Result<Json<MovedAnswer>, Problem> {
    let body: AsideBody<'_> = read::json_or_nothing(&body)?;
    let group = group_or_none(given_name("consumerGroup", &body.group)?);
    let error = any_text(body.error, ERROR_BYTES_MAX);
    let queues = queues(&shared)?;
    let place = Place::of(&partition, &id)?;
    let message = place.look(queues).await?;
    let store = queues.store();
    let aside = store.set_aside(place.partition, place.transaction, &group, error.as_deref()).await;
    aside.map_err(|error| store_problem(&error))?.ok_or_else(|| place.unknown())?;
    queues.wake(Some(&message.queue));
    note(&shared, &asker, "queues.set_aside", &place.target(), &group).await;
    Ok(Json(MovedAnswer::of(&place, &message.queue, &message.partition)))
}
