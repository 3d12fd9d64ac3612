//! Looking at queues and deleting them.

use super::configure::QueueOptionsView;
use super::group_list::lag_seconds;
use super::options::shown;
use super::query::{given, number, prefix};
use super::read::{name, optional_name};
use super::refuse::{no_queue, store_problem};
use super::write::timestamp;
use super::{note, now, queues};
use crate::http::extract::{Asker, Parameters, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use skep_queues::ids::QueueId;
use skep_queues::store::{
    GroupFilter, GroupRow, PartitionInfo, QueueStore, QueueSummary, StatCounts, minute_of,
};
use std::sync::Arc;

const PAGE: u32 = 1_000;
const PARTITIONS: u32 = 100;
/// Queues that one look goes through at most.
const LOOK_QUEUES_MAX: usize = 10_000;

/// Which queues. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct QueuesPage {
    /// So many at most; 1000 if left out, which is the most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Only names after this one: the `next` of the page before.
    after: Option<String>,
    /// Only those of this namespace.
    namespace: Option<String>,
    /// Only those of this task.
    task: Option<String>,
    /// Only those whose names begin like this.
    search: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QueuesAnswer {
    /// By name.
    pub queues: Vec<QueueView>,
    /// What to send as `after` for the next page; nothing if this is the last. A page may have one
    /// and be short, or empty.
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
    #[serde(default)]
    pub rates: Rates,
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
    /// Those that wait for their time; `total` has none of them.
    #[serde(default)]
    pub delayed: u64,
}

/// Messages a second, on average over the last full minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Rates {
    pub pushed: f64,
    pub popped: f64,
    pub acked: f64,
    pub failed: f64,
}

impl Rates {
    fn of(minute: &StatCounts) -> Self {
        let rate = |count: u64| (count as f64 / 6.0).round() / 10.0;
        Rates {
            pushed: rate(minute.pushed),
            popped: rate(minute.popped),
            acked: rate(minute.acked),
            failed: rate(minute.failed),
        }
    }
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
                delayed: summary.later,
            },
            rates: Rates::default(),
            created_at: timestamp(queue.created_at),
        }
    }
}

/// Queues by name
#[utoipa::path(
    get, path = "/api/v1/resources/queues", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(QueuesPage),
    responses((status = 200, description = "A page", body = QueuesAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<QueuesPage>,
) -> Result<Json<QueuesAnswer>, Problem> {
    let limit = number("limit", &page.limit, &(1..=u32::MAX))?.unwrap_or(PAGE).min(PAGE);
    let wanted = Wanted {
        namespace: optional_name("namespace", page.namespace.as_deref())?,
        task: optional_name("task", page.task.as_deref())?,
        prefix: prefix("search", &page.search)?,
    };
    let store = queues(&shared)?.store();
    let mut found = wanted.page(store, given(&page.after), limit).await?;
    add_rates(store, &mut found.queues).await?;
    Ok(Json(found))
}

/// What happened in the last full minute, as rates.
async fn add_rates(store: &QueueStore, views: &mut [QueueView]) -> Result<(), Problem> {
    let id = |view: &QueueView| view.id.parse().ok().and_then(QueueId::from_uuid);
    let ids: Vec<QueueId> = views.iter().filter_map(id).collect();
    let minute = minute_of(now()).saturating_sub(1);
    let found = store.minute_stats(minute, &ids).await;
    let found = found.map_err(|error| store_problem(&error))?;
    for view in views {
        if let Some(minute) = id(view).and_then(|id| found.get(&id)) {
            view.rates = Rates::of(minute);
        }
    }
    Ok(())
}

/// Which queues are to be shown.
struct Wanted<'text> {
    namespace: Option<Arc<str>>,
    task: Option<Arc<str>>,
    prefix: Option<&'text str>,
}

impl Wanted<'_> {
    async fn page(
        &self,
        store: &QueueStore,
        after: Option<&str>,
        limit: u32,
    ) -> Result<QueuesAnswer, Problem> {
        let all = self.namespace.is_none() && self.task.is_none() && self.prefix.is_none();
        let chunk = if all { limit } else { PAGE };
        let mut next = after.map(str::to_owned);
        let (mut views, mut looked) = (Vec::new(), 0);
        loop {
            let found = store.queues(next.as_deref(), chunk).await;
            let found = found.map_err(|error| store_problem(&error))?;
            let end = found.len() < chunk as usize;
            for (place, summary) in found.iter().enumerate() {
                if !self.fits(summary) {
                    continue;
                }
                views.push(QueueView::of(summary));
                if views.len() == limit as usize {
                    let last = end && place + 1 == found.len();
                    let next = (!last).then(|| summary.queue.name.to_string());
                    return Ok(QueuesAnswer { queues: views, next });
                }
            }
            looked += found.len();
            next = found.last().filter(|_| !end).map(|one| one.queue.name.to_string());
            if next.is_none() || looked >= LOOK_QUEUES_MAX {
                return Ok(QueuesAnswer { queues: views, next });
            }
        }
    }

    fn fits(&self, summary: &QueueSummary) -> bool {
        let queue = &summary.queue;
        self.namespace.as_ref().is_none_or(|namespace| *namespace == queue.namespace)
            && self.task.as_ref().is_none_or(|task| *task == queue.task)
            && self.prefix.is_none_or(|prefix| queue.name.starts_with(prefix))
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ShowHow {
    /// So many partitions at most, the oldest first; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    partitions: Option<String>,
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
    /// By name, a thousand at most.
    pub consumer_groups: Vec<GroupView>,
    pub rates: Rates,
    /// Nothing that was pushed before is handed out any more.
    pub cleared_at: Option<String>,
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
    /// Of its messages; each priority of a name is a partition of its own.
    #[serde(default)]
    pub priority: u8,
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
    /// Partitions that somebody works on; a thousand at most.
    pub leased_partitions: u64,
    /// Partitions that have something for it and that nobody works on; a thousand at most.
    pub waiting_partitions: u64,
    /// Whether there are more of either.
    pub waiting_partitions_more: bool,
    /// When the oldest message was pushed that it has not settled, among the partitions that wait
    /// longest.
    pub oldest_at: Option<String>,
    /// How many seconds ago that was; 0 if there is none.
    pub lag_seconds: u64,
    pub created_at: String,
}

impl PartitionView {
    fn of(partition: &PartitionInfo) -> Self {
        PartitionView {
            id: partition.id.uuid().to_string(),
            name: partition.name.to_string(),
            priority: partition.level,
            pushed: partition.tail,
            last_push_at: partition.last_push.map(timestamp),
            created_at: timestamp(partition.created_at),
        }
    }
}

impl GroupView {
    fn of(group: &GroupRow) -> Self {
        GroupView {
            name: group.group.to_string(),
            pending: group.pending,
            leased_partitions: group.leased_lanes,
            waiting_partitions: group.waiting_lanes,
            waiting_partitions_more: group.more_lanes,
            oldest_at: group.oldest.map(timestamp),
            lag_seconds: lag_seconds(group, now()),
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
    let partitions = number("partitions", &how.partitions, &(0..=u32::MAX))?;
    let partitions = partitions.unwrap_or(PARTITIONS).min(PAGE);
    let store = queues(&shared)?.store();
    let found = store.show(&queue, partitions).await;
    let found = found.map_err(|error| store_problem(&error))?;
    let detail = found.ok_or_else(|| no_queue(&queue))?;
    let name = detail.summary.queue.name.clone();
    let filter = GroupFilter { queue: Some(name), limit: PAGE, ..GroupFilter::default() };
    let groups = store.groups(filter).await?.groups;
    let mut views = [QueueView::of(&detail.summary)];
    add_rates(store, &mut views).await?;
    let [view] = views;
    Ok(Json(QueueAnswer {
        id: view.id,
        name: view.name,
        namespace: view.namespace,
        task: view.task,
        options: shown(&detail.summary.queue.options),
        partitions: detail.partitions.iter().map(PartitionView::of).collect(),
        totals: TotalsView { partitions: view.partitions, messages: view.messages },
        rates: view.rates,
        cleared_at: detail.summary.cleared_at.map(timestamp),
        consumer_groups: groups.iter().map(GroupView::of).collect(),
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
