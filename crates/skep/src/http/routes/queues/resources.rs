//! What there is, in numbers: kinds of queues, partitions, sums. Nothing here looks at messages.

use super::admin::MessageCounts;
use super::query::{given, number, prefix};
use super::read::{name, optional_name, wrong};
use super::refuse::{no_queue, store_problem};
use super::write::timestamp;
use super::{now, queues};
use crate::http::extract::{Parameters, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use skep_queues::ids::PartitionId;
use skep_queues::store::{GroupFilter, PartitionLane, PartitionRow};
use std::sync::Arc;
use uuid::Uuid;

const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;

#[derive(Serialize, utoipa::ToSchema)]
pub struct NamespacesAnswer {
    /// By name, a thousand at most.
    namespaces: Vec<NamespaceView>,
}

/// A namespace.
#[derive(Serialize, utoipa::ToSchema)]
pub struct NamespaceView {
    /// Empty for queues that have none.
    namespace: String,
    queues: u64,
}

/// Namespaces and how many queues they have
#[utoipa::path(
    get, path = "/api/v1/resources/namespaces", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "All of them", body = NamespacesAnswer),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn namespaces(
    State(shared): State<Arc<Shared>>,
) -> Result<Json<NamespacesAnswer>, Problem> {
    let found = queues(&shared)?.store().namespaces().await;
    let found = found.map_err(|error| store_problem(&error))?;
    let view = |kind: &skep_queues::store::Kind| NamespaceView {
        namespace: kind.name.to_string(),
        queues: kind.queues,
    };
    Ok(Json(NamespacesAnswer { namespaces: found.iter().map(view).collect() }))
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct TasksAnswer {
    /// By name, a thousand at most.
    tasks: Vec<TaskView>,
}

/// A task.
#[derive(Serialize, utoipa::ToSchema)]
pub struct TaskView {
    /// Empty for queues that have none.
    task: String,
    queues: u64,
}

/// Tasks and how many queues they have
#[utoipa::path(
    get, path = "/api/v1/resources/tasks", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "All of them", body = TasksAnswer),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn tasks(State(shared): State<Arc<Shared>>) -> Result<Json<TasksAnswer>, Problem> {
    let found = queues(&shared)?.store().tasks().await;
    let found = found.map_err(|error| store_problem(&error))?;
    let view = |kind: &skep_queues::store::Kind| TaskView {
        task: kind.name.to_string(),
        queues: kind.queues,
    };
    Ok(Json(TasksAnswer { tasks: found.iter().map(view).collect() }))
}

/// The sums of everything.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverviewAnswer {
    queues: u64,
    partitions: u64,
    /// A thousand at most.
    namespaces: usize,
    /// A thousand at most.
    tasks: usize,
    /// Each counted in each of its queues.
    consumer_groups: u64,
    messages: MessageCounts,
    /// When this was.
    timestamp: String,
}

/// The sums of everything
#[utoipa::path(
    get, path = "/api/v1/resources/overview", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "The sums", body = OverviewAnswer),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn overview(State(shared): State<Arc<Shared>>) -> Result<Json<OverviewAnswer>, Problem> {
    let store = queues(&shared)?.store();
    let sums = store.overview().await.map_err(|error| store_problem(&error))?;
    let namespaces = store.namespaces().await.map_err(|error| store_problem(&error))?;
    let tasks = store.tasks().await.map_err(|error| store_problem(&error))?;
    let named = |kinds: &[skep_queues::store::Kind]| {
        kinds.iter().filter(|kind| !kind.name.is_empty()).count()
    };
    Ok(Json(OverviewAnswer {
        queues: sums.queues,
        partitions: sums.partitions,
        namespaces: named(&namespaces),
        tasks: named(&tasks),
        consumer_groups: sums.groups,
        messages: MessageCounts {
            total: sums.messages,
            pending: sums.pending,
            dead_letter: sums.dead,
            delayed: sums.later,
        },
        timestamp: timestamp(now()),
    }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DepthHow {
    /// What waits for this group; for the slowest if left out.
    group: Option<String>,
}

/// What waits in a queue.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DepthAnswer {
    queue: String,
    group: Option<String>,
    /// Messages that the group has not settled; without one, the slowest group.
    pending: u64,
    /// The same: nothing is left out on its way to a group.
    effective_pending: u64,
    /// Partitions that have some of them; a thousand at most. Only of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions_pending: Option<u64>,
    /// False.
    conflation: bool,
    /// Messages that are kept.
    total: u64,
    /// Messages that wait for their time.
    delayed: u64,
}

/// How much waits in a queue
#[utoipa::path(
    get, path = "/api/v1/resources/queues/{queue}/depth", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("queue" = String, Path), DepthHow),
    responses((status = 200, description = "So much", body = DepthAnswer),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn depth(
    State(shared): State<Arc<Shared>>,
    Segments(queue): Segments<String>,
    Parameters(how): Parameters<DepthHow>,
) -> Result<Json<DepthAnswer>, Problem> {
    let group = optional_name("group", how.group.as_deref())?;
    let store = queues(&shared)?.store();
    let found = store.show(&queue, 0).await.map_err(|error| store_problem(&error))?;
    let summary = found.ok_or_else(|| no_queue(&queue))?.summary;
    let (mut pending, mut partitions_pending) = (summary.pending, None);
    if let Some(group) = &group {
        let filter = GroupFilter {
            group: Some(group.clone()),
            queue: Some(queue.as_str().into()),
            after: None,
            limit: 1,
        };
        let page = store.groups(filter).await?;
        // Whoever never came has everything ahead.
        let row = page.groups.first();
        pending = row.map_or(summary.total, |row| row.pending);
        partitions_pending =
            Some(row.map_or(summary.partitions, |row| row.waiting_lanes + row.leased_lanes));
    }
    Ok(Json(DepthAnswer {
        queue,
        group: group.as_deref().map(str::to_owned),
        pending,
        effective_pending: pending,
        partitions_pending,
        conflation: false,
        total: summary.total,
        delayed: summary.later,
    }))
}

/// Which partitions. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PartitionsPage {
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Only those after this one: the `next` of the page before.
    after: Option<String>,
    /// Only those whose names begin like this; then they come by name, otherwise by age.
    prefix: Option<String>,
}

/// Which partitions of which queue.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PartitionsOf {
    /// Of this queue.
    #[param(value_type = String)]
    queue: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Only those after this one: the `next` of the page before.
    after: Option<String>,
    /// Only those whose names begin like this; then they come by name, otherwise by age.
    prefix: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct PartitionsAnswer {
    partitions: Vec<PartitionDetail>,
    /// What to send as `after` for the next page; nothing if this is the last.
    next: Option<String>,
}

/// A partition of a queue, and how far groups are in it.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionDetail {
    id: String,
    name: String,
    /// Of its messages; each priority of a name is a partition of its own.
    priority: u8,
    /// Messages that ever came.
    pushed: u64,
    /// Messages since the oldest that is kept.
    messages: u64,
    last_push_at: Option<String>,
    created_at: String,
    /// Those that have looked at it, by name, twenty at most.
    groups: Vec<PartitionGroup>,
}

/// How far a group is in a partition.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionGroup {
    name: String,
    /// Messages that it has not settled.
    pending: u64,
    /// Until when somebody works on it, if somebody does.
    leased_until: Option<String>,
}

impl PartitionDetail {
    fn of(row: &PartitionRow) -> Self {
        let group = |lane: &PartitionLane| PartitionGroup {
            name: lane.group.to_string(),
            pending: lane.pending,
            leased_until: lane.leased_until.map(timestamp),
        };
        PartitionDetail {
            id: row.id.uuid().to_string(),
            name: row.name.to_string(),
            priority: row.level,
            pushed: row.pushed,
            messages: row.kept,
            last_push_at: row.last_push.map(timestamp),
            created_at: timestamp(row.created_at),
            groups: row.lanes.iter().map(group).collect(),
        }
    }
}

/// Partitions of a queue
#[utoipa::path(
    get, path = "/api/v1/resources/queues/{queue}/partitions", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("queue" = String, Path), PartitionsPage),
    responses((status = 200, description = "A page", body = PartitionsAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn partitions_of_queue(
    State(shared): State<Arc<Shared>>,
    Segments(queue): Segments<String>,
    Parameters(page): Parameters<PartitionsPage>,
) -> Result<Json<PartitionsAnswer>, Problem> {
    partitions_page(&shared, &queue, &page).await
}

/// Partitions of the queue that a parameter names
#[utoipa::path(
    get, path = "/api/v1/resources/partitions", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(PartitionsOf),
    responses((status = 200, description = "A page", body = PartitionsAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn partitions(
    State(shared): State<Arc<Shared>>,
    Parameters(wanted): Parameters<PartitionsOf>,
) -> Result<Json<PartitionsAnswer>, Problem> {
    let PartitionsOf { queue, limit, after, prefix } = wanted;
    let queue = given(&queue).map(str::to_owned);
    let queue = queue.ok_or_else(|| wrong("queue", "queue is required: the name of a queue"))?;
    partitions_page(&shared, &queue, &PartitionsPage { limit, after, prefix }).await
}

async fn partitions_page(
    shared: &Shared,
    queue: &str,
    page: &PartitionsPage,
) -> Result<Json<PartitionsAnswer>, Problem> {
    let queue = name("queue", queue)?;
    let limit = number("limit", &page.limit, &(1..=PAGE_MAX))?.unwrap_or(PAGE);
    let after = given(&page.after).map(partition_after).transpose()?;
    let prefix = prefix("prefix", &page.prefix)?;
    let store = queues(shared)?.store();
    let known = store.queue(&queue).await.map_err(|error| store_problem(&error))?;
    known.ok_or_else(|| no_queue(&queue))?;
    let found = store.partitions(&queue, after, prefix, limit).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let full = found.len() == limit as usize;
    let next = found.last().filter(|_| full).map(|last| last.id.uuid().to_string());
    Ok(Json(PartitionsAnswer { partitions: found.iter().map(PartitionDetail::of).collect(), next }))
}

fn partition_after(text: &str) -> Result<PartitionId, Problem> {
    let id = Uuid::try_parse(text).ok().and_then(PartitionId::from_uuid);
    id.ok_or_else(|| super::query::not("after", text, "the next of the page before, as it is"))
}
