//! Groups that go on reading elsewhere, or are forgotten.

use super::query::truth_or;
use super::read::{self, Given, name, object, time, wrong};
use super::refuse::{no_partition, no_queue, store_problem};
use super::{note, queues};
use crate::http::extract::{Asker, Parameters, RawBody, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use skep_queues::store::{SeekTo, Sought};
use std::sync::Arc;

object! {
    /// Where to.
    SeekBody<'body> {
        timestamp "timestamp": Given<'body>,
        to_end "toEnd": Given<'body>,
    }
}

/// Where a group goes on.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
struct SeekRequest {
    /// At the first message pushed at this time or later.
    #[schema(example = "2026-01-31T12:00:00Z")]
    timestamp: Option<String>,
    /// After the last message there is.
    to_end: Option<bool>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SoughtAnswer {
    /// True.
    success: bool,
    consumer_group: String,
    queue_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_name: Option<String>,
    /// Partitions that are read from another place now.
    partitions_updated: u64,
}

/// Let a group go on reading elsewhere in a queue; what it has leased is taken from it
#[utoipa::path(
    post, path = "/api/v1/consumer-groups/{group}/queues/{queue}/seek", tag = "queues",
    extensions(("x-scope" = json!("admin"))),
    params(("group" = String, Path), ("queue" = String, Path)), request_body = SeekRequest,
    responses((status = 200, description = "It does", body = SoughtAnswer),
              (status = 400, description = "Where to is not clear", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody))
)]
pub async fn seek(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments((group, queue)): Segments<(String, String)>,
    RawBody(body): RawBody,
) -> Result<Json<SoughtAnswer>, Problem> {
    go(&shared, &asker, &group, &queue, None, &body).await
}

/// Let a group go on reading elsewhere in one partition
#[utoipa::path(
    post, path = "/api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek",
    tag = "queues", extensions(("x-scope" = json!("admin"))),
    params(("group" = String, Path), ("queue" = String, Path), ("partition" = String, Path)),
    request_body = SeekRequest,
    responses((status = 200, description = "It does", body = SoughtAnswer),
              (status = 400, description = "Where to is not clear", body = ProblemBody),
              (status = 404, description = "There is no such queue or partition",
               body = ProblemBody))
)]
pub async fn seek_partition(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments((group, queue, partition)): Segments<(String, String, String)>,
    RawBody(body): RawBody,
) -> Result<Json<SoughtAnswer>, Problem> {
    go(&shared, &asker, &group, &queue, Some(&partition), &body).await
}

async fn go(
    shared: &Shared,
    asker: &Asker,
    group: &str,
    queue: &str,
    partition: Option<&str>,
    body: &[u8],
) -> Result<Json<SoughtAnswer>, Problem> {
    let body: SeekBody<'_> = read::json_or_nothing(body)?;
    let to = match (&body.to_end, &body.timestamp) {
        (Given::Truth(true), _) => SeekTo::End,
        (Given::Nothing | Given::Truth(false), Given::Text(text)) => {
            SeekTo::Time(time("timestamp", text)?)
        }
        (Given::Nothing | Given::Truth(false), _) => {
            return Err(wrong("timestamp", "timestamp or toEnd is required"));
        }
        _ => return Err(wrong("toEnd", "toEnd must be true or false")),
    };
    let (group, queue) = (name("group", group)?, name("queue", queue)?);
    let queues = queues(shared)?;
    let sought = queues.store().seek(&queue, &group, partition, to).await;
    let partitions_updated = match sought.map_err(|error| store_problem(&error))? {
        Sought::Moved(count) => count,
        Sought::NoQueue => return Err(no_queue(&queue)),
        Sought::NoPartition => {
            return Err(no_partition(&queue, partition.unwrap_or_default()));
        }
    };
    queues.wake(Some(&queue));
    let target = format!("{group} of {queue}");
    note(shared, asker, "queues.seek", &target, partition.unwrap_or_default()).await;
    Ok(Json(SoughtAnswer {
        success: true,
        consumer_group: group.to_string(),
        queue_name: queue.to_string(),
        partition_name: partition.map(str::to_owned),
        partitions_updated,
    }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct ForgetHow {
    /// Whether where it began is forgotten too; true if left out. With false it is still there and
    /// begins anew where it once began.
    #[param(value_type = Option<bool>)]
    delete_metadata: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForgottenAnswer {
    /// True.
    success: bool,
    consumer_group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_name: Option<String>,
    /// Partitions that it had read.
    deleted_partitions: u64,
    /// Whether where it began is forgotten too.
    metadata_deleted: bool,
}

/// Forget a group of all queues: the next time it comes it is a new one
#[utoipa::path(
    delete, path = "/api/v1/consumer-groups/{group}", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("group" = String, Path), ForgetHow),
    responses((status = 200, description = "It is forgotten", body = ForgottenAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(group): Segments<String>,
    Parameters(how): Parameters<ForgetHow>,
) -> Result<Json<ForgottenAnswer>, Problem> {
    forget(&shared, &asker, &group, None, &how).await
}

/// Forget a group of one queue
#[utoipa::path(
    delete, path = "/api/v1/consumer-groups/{group}/queues/{queue}", tag = "queues",
    extensions(("x-scope" = json!("admin"))),
    params(("group" = String, Path), ("queue" = String, Path), ForgetHow),
    responses((status = 200, description = "It is forgotten", body = ForgottenAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn delete_of_queue(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments((group, queue)): Segments<(String, String)>,
    Parameters(how): Parameters<ForgetHow>,
) -> Result<Json<ForgottenAnswer>, Problem> {
    forget(&shared, &asker, &group, Some(&queue), &how).await
}

async fn forget(
    shared: &Shared,
    asker: &Asker,
    group: &str,
    queue: Option<&str>,
    how: &ForgetHow,
) -> Result<Json<ForgottenAnswer>, Problem> {
    let group = name("group", group)?;
    let metadata_deleted = truth_or("deleteMetadata", &how.delete_metadata, true)?;
    let queues = queues(shared)?;
    let deleted = queues.store().delete_group(&group, queue, !metadata_deleted).await;
    let deleted_partitions = deleted.map_err(|error| store_problem(&error))?;
    queues.wake(queue);
    note(shared, asker, "queues.forget_group", &group, queue.unwrap_or_default()).await;
    Ok(Json(ForgottenAnswer {
        success: true,
        consumer_group: group.to_string(),
        queue_name: queue.map(str::to_owned),
        deleted_partitions,
        metadata_deleted,
    }))
}
