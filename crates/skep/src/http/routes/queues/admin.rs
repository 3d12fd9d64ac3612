//! Looking at queues and deleting them.

use super::configure::QueueOptionsView;
use super::options::shown;
use super::read::name;
use super::refuse::{no_queue, store_problem};
use super::write::timestamp;
use super::{note, queues};
use crate::http::extract::{Asker, Parameters, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use skep_queues::store::{GroupInfo, PartitionInfo, QueueSummary};
use std::sync::Arc;

const PAGE: u32 = 1_000;
const PARTITIONS: u32 = 100;

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct QueuesPage {
    /// So many at most; 1000 if left out, which is the most.
    limit: Option<u32>,
    /// Only names after this one: the `next` of the page before.
    after: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QueuesAnswer {
    /// By name.
    pub queues: Vec<QueueView>,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
}

/// A queue in a list.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    pub id: String,
    pub name: String,
    pub namespace: String,
    pub task: String,
    /// How many it has.
    pub partitions: u64,
    pub messages: MessageCounts,
    pub created_at: String,
}

/// Messages of a queue.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageCounts {
    /// Those that are kept.
    pub total: u64,
    /// Those that the slowest group has not settled.
    pub pending: u64,
    /// Those that are dead letters.
    pub dead_letter: u64,
}

impl QueueView {
    fn of(summary: &QueueSummary) -> Self {
        let queue = &summary.queue;
        QueueView {
            id: queue.id.uuid().to_string(),
            name: queue.name.to_string(),
            namespace: queue.namespace.to_string(),
            task: queue.task.to_string(),
            partitions: summary.partitions,
            messages: MessageCounts {
                total: summary.total,
                pending: summary.pending,
                dead_letter: summary.dead,
            },
            created_at: timestamp(queue.created_at),
        }
    }
}

/// Queues by name
#[utoipa::path(
    get, path = "/api/v1/resources/queues", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(QueuesPage),
    responses((status = 200, description = "A page", body = QueuesAnswer))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<QueuesPage>,
) -> Result<Json<QueuesAnswer>, Problem> {
    let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let found = queues(&shared)?.store().queues(page.after.as_deref(), limit).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let full = found.len() == limit as usize;
    let next = found.last().filter(|_| full).map(|one| one.queue.name.to_string());
    Ok(Json(QueuesAnswer { queues: found.iter().map(QueueView::of).collect(), next }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ShowHow {
    /// So many partitions at most, the oldest first; 100 if left out, 1000 at most.
    partitions: Option<u32>,
}

/// A queue, looked at closely.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueAnswer {
    pub id: String,
    pub name: String,
    pub namespace: String,
    pub task: String,
    #[schema(value_type = QueueOptionsView)]
    pub options: serde_json::Value,
    /// Some of them, the oldest first.
    pub partitions: Vec<PartitionView>,
    pub totals: TotalsView,
    /// By name.
    pub consumer_groups: Vec<GroupView>,
    pub created_at: String,
}

/// What a queue has in all.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TotalsView {
    pub partitions: u64,
    #[serde(flatten)]
    pub messages: MessageCounts,
}

/// A partition of a queue.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionView {
    pub id: String,
    pub name: String,
    /// Messages that ever came.
    pub pushed: u64,
    pub last_push_at: Option<String>,
    pub created_at: String,
}

/// A group of a queue.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    pub name: String,
    /// Messages that it has not settled.
    pub pending: u64,
    /// Partitions that somebody works on.
    pub leased_partitions: u64,
    pub created_at: String,
}

impl PartitionView {
    fn of(partition: &PartitionInfo) -> Self {
        PartitionView {
            id: partition.id.uuid().to_string(),
            name: partition.name.to_string(),
            pushed: partition.tail,
            last_push_at: partition.last_push.map(timestamp),
            created_at: timestamp(partition.created_at),
        }
    }
}

impl GroupView {
    fn of(group: &GroupInfo) -> Self {
        GroupView {
            name: group.name.to_string(),
            pending: group.pending,
            leased_partitions: group.leased,
            created_at: timestamp(group.created_at),
        }
    }
}

/// One queue: its options, partitions and groups
#[utoipa::path(
    get, path = "/api/v1/resources/queues/{queue}", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("queue" = String, Path), ShowHow),
    responses((status = 200, description = "The queue", body = QueueAnswer),
              (status = 404, description = "There is none", body = ProblemBody))
)]
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Segments(queue): Segments<String>,
    Parameters(how): Parameters<ShowHow>,
) -> Result<Json<QueueAnswer>, Problem> {
    let partitions = how.partitions.unwrap_or(PARTITIONS).min(PAGE);
    let found = queues(&shared)?.store().show(&queue, partitions).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let detail = found.ok_or_else(|| no_queue(&queue))?;
    let view = QueueView::of(&detail.summary);
    Ok(Json(QueueAnswer {
        id: view.id,
        name: view.name,
        namespace: view.namespace,
        task: view.task,
        options: shown(&detail.summary.queue.options),
        partitions: detail.partitions.iter().map(PartitionView::of).collect(),
        totals: TotalsView { partitions: view.partitions, messages: view.messages },
        consumer_groups: detail.groups.iter().map(GroupView::of).collect(),
        created_at: view.created_at,
    }))
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct DeletedAnswer {
    /// True: it is not there any more.
    deleted: bool,
    queue: String,
    /// Whether it was there.
    existed: bool,
}

/// Delete a queue and everything in it
#[utoipa::path(
    delete, path = "/api/v1/resources/queues/{queue}", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("queue" = String, Path)),
    responses((status = 200, description = "It is gone", body = DeletedAnswer),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(queue): Segments<String>,
) -> Result<Json<DeletedAnswer>, Problem> {
    let queue = name("queue", &queue)?;
    let existed = queues(&shared)?.store().delete_queue(&queue).await;
    let existed = existed.map_err(|error| store_problem(&error))?;
    note(&shared, &asker, "queues.delete", &queue, "").await;
    Ok(Json(DeletedAnswer { deleted: true, queue: queue.to_string(), existed }))
}
