//! How the queues are doing, now and in the last hour.

use super::analytics::{PointView, minutes_until_now};
use super::query::{given, number};
use super::refuse::{no_queue, store_problem};
use super::write::timestamp;
use super::{now, queues};
use crate::http::extract::{Parameters, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_queues::Queues;
use skep_queues::buffer::Buffer;
use skep_queues::store::{GroupFilter, GroupRow, QueueStore, QueueSummary, StatCounts};
use std::sync::Arc;

/// Minutes that are shown.
const MINUTES: u32 = 60;

/// Queues of one page at most: each is asked for its last minute.
const PAGE_MAX: u32 = 100;

/// Groups of one queue that are shown.
const GROUPS: u32 = 100;

/// How everything is doing.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusAnswer {
    queues: u64,
    partitions: u64,
    consumer_groups: u64,
    messages: MessagesView,
    /// The last hour, a point a minute, the oldest first.
    throughput: Vec<PointView>,
    node: NodeView,
    timestamp: String,
}

/// Messages that are there.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct MessagesView {
    /// Those that are kept.
    total: u64,
    /// Those that the slowest group has not settled.
    pending: u64,
    dead_letter: u64,
}

/// The node that answers.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct NodeView {
    name: String,
    version: String,
    uptime_seconds: u64,
    /// Pops that wait for messages.
    parked_pops: usize,
    /// Requests that wait for the store.
    waiting_requests: usize,
    /// Messages that wait on its disk.
    buffered_messages: u64,
    /// Whether pushes are held back.
    maintenance_mode: bool,
    /// Whether pops get nothing.
    pop_maintenance_mode: bool,
}

/// How the queues are doing
#[utoipa::path(
    get, path = "/api/v1/status", tag = "queues", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Now and in the last hour", body = StatusAnswer),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn node(State(shared): State<Arc<Shared>>) -> Result<Json<StatusAnswer>, Problem> {
    let queues = queues(&shared)?;
    let store = queues.store();
    let overview = store.overview().await.map_err(|error| store_problem(&error))?;
    Ok(Json(StatusAnswer {
        queues: overview.queues,
        partitions: overview.partitions,
        consumer_groups: overview.groups,
        messages: MessagesView {
            total: overview.messages,
            pending: overview.pending,
            dead_letter: overview.dead,
        },
        throughput: minutes_until_now(store, None, MINUTES).await?,
        node: NodeView::of(&shared, queues),
        timestamp: timestamp(now()),
    }))
}

impl NodeView {
    fn of(shared: &Shared, queues: &Queues) -> Self {
        let (work, switches) = (queues.work(), shared.queues.switches().known());
        NodeView {
            name: shared.name.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: shared.uptime().as_secs(),
            parked_pops: work.parked,
            waiting_requests: work.waiting_requests,
            buffered_messages: queues.buffer().map_or(0, Buffer::messages),
            maintenance_mode: switches.push,
            pop_maintenance_mode: switches.pop,
        }
    }
}

/// Which queues. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatusPage {
    /// So many at most; 100 if left out, which is the most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Only names after this one: the `next` of the page before.
    after: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct StatusQueuesAnswer {
    /// By name.
    queues: Vec<QueueStatus>,
    /// What to send as `after` for the next page; nothing if this is the last.
    next: Option<String>,
}

/// How a queue is doing.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct QueueStatus {
    id: String,
    name: String,
    namespace: String,
    task: String,
    partitions: u64,
    messages: MessagesView,
    /// The last whole minute.
    last_minute: PointView,
    created_at: String,
}

impl QueueStatus {
    async fn of(store: &QueueStore, summary: &QueueSummary) -> Result<Self, Problem> {
        let queue = &summary.queue;
        let (from, to) = last_minute();
        let points = store.stats(Some(&queue.name), from, to, 1).await;
        let points = points.map_err(|error| store_problem(&error))?;
        let counts = points.first().map_or(StatCounts::default(), |point| point.counts);
        Ok(QueueStatus {
            id: queue.id.uuid().to_string(),
            name: queue.name.to_string(),
            namespace: queue.namespace.to_string(),
            task: queue.task.to_string(),
            partitions: summary.partitions,
            messages: MessagesView {
                total: summary.total,
                pending: summary.pending,
                dead_letter: summary.dead,
            },
            last_minute: PointView::of(from, &counts),
            created_at: timestamp(queue.created_at),
        })
    }
}

/// Where the last whole minute begins and ends.
fn last_minute() -> (Time, Time) {
    let minute = skep_queues::store::minute_of(now());
    let start = skep_queues::store::minute_start;
    (start(minute.saturating_sub(1)), start(minute))
}

/// How each queue is doing
#[utoipa::path(
    get, path = "/api/v1/status/queues", tag = "queues", extensions(("x-scope" = json!("read"))),
    params(StatusPage),
    responses((status = 200, description = "A page", body = StatusQueuesAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn queues_page(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<StatusPage>,
) -> Result<Json<StatusQueuesAnswer>, Problem> {
    let limit = number("limit", &page.limit, &(1..=PAGE_MAX))?.unwrap_or(PAGE_MAX);
    let store = queues(&shared)?.store();
    let found = store.queues(given(&page.after), limit).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let full = found.len() == limit as usize;
    let next = found.last().filter(|_| full).map(|one| one.queue.name.to_string());
    let mut queues = Vec::with_capacity(found.len());
    for summary in &found {
        queues.push(QueueStatus::of(store, summary).await?);
    }
    Ok(Json(StatusQueuesAnswer { queues, next }))
}

/// How one queue is doing.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatusAnswer {
    #[serde(flatten)]
    queue: QueueStatus,
    /// By name, a hundred at most.
    consumer_groups: Vec<LagView>,
    /// The last hour, a point a minute, the oldest first.
    throughput: Vec<PointView>,
}

/// How far a group is.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LagView {
    queue: String,
    consumer_group: String,
    /// Messages that it has not settled.
    pending: u64,
    /// When the oldest of them was pushed, among the partitions that wait longest.
    oldest_at: Option<String>,
    /// How many seconds ago that was; 0 if there is none.
    lag_seconds: u64,
    /// Partitions that somebody works on; counted up to 1000.
    leased_partitions: u64,
    /// Partitions that wait for somebody; counted up to 1000.
    waiting_partitions: u64,
}

impl LagView {
    pub fn of(row: &GroupRow, now: Time) -> Self {
        LagView {
            queue: row.queue.to_string(),
            consumer_group: row.group.to_string(),
            pending: row.pending,
            oldest_at: row.oldest.map(timestamp),
            lag_seconds: row.oldest.map_or(0, |oldest| now.since(oldest).as_secs()),
            leased_partitions: row.leased_lanes,
            waiting_partitions: row.waiting_lanes,
        }
    }
}

/// How one queue is doing
#[utoipa::path(
    get, path = "/api/v1/status/queues/{queue}", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("queue" = String, Path)),
    responses((status = 200, description = "Now and in the last hour", body = QueueStatusAnswer),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn queue(
    State(shared): State<Arc<Shared>>,
    Segments(queue): Segments<String>,
) -> Result<Json<QueueStatusAnswer>, Problem> {
    let store = queues(&shared)?.store();
    let found = store.show(&queue, 0).await.map_err(|error| store_problem(&error))?;
    let found = found.ok_or_else(|| no_queue(&queue))?;
    let name = Some(found.summary.queue.name.clone());
    let filter = GroupFilter { queue: name, group: None, after: None, limit: GROUPS };
    let groups = store.groups(filter).await.map_err(super::analytics::browse_problem)?;
    let now = now();
    Ok(Json(QueueStatusAnswer {
        queue: QueueStatus::of(store, &found.summary).await?,
        consumer_groups: groups.groups.iter().map(|row| LagView::of(row, now)).collect(),
        throughput: minutes_until_now(store, Some(&queue), MINUTES).await?,
    }))
}
