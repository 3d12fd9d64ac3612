//! Groups and how far they are.

use super::query::{given, number};
use super::read::{self, Given, given_name, name, object, optional_name, time, wrong};
use super::refuse::{no_group, no_queue, store_problem};
use super::write::timestamp;
use super::{note, now, queues};
use crate::http::extract::{Asker, Parameters, RawBody, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_policy::queues::Start;
use skep_queues::store::{GroupFilter, GroupRow, GroupsPage, QueueStore, Sought};
use std::sync::Arc;

const PAGE: u32 = 1_000;
/// Groups that one look goes through at most.
const LOOK_GROUPS_MAX: usize = 10_000;
/// From so many seconds on a group counts as lagging.
const LAGGING_SECONDS: u64 = 60;
/// From so many seconds on a group counts as dead if nobody works for it.
const DEAD_SECONDS: u64 = 3_600;
/// Where a page of a plain list goes on.
const NEXT: HeaderName = HeaderName::from_static("x-next");

/// How old the oldest message is that a group has not settled; 0 if there is none.
pub fn lag_seconds(group: &GroupRow, now: Time) -> u64 {
    group.oldest.map_or(0, |oldest| now.since(oldest).as_secs())
}

/// A group of one queue.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStanding {
    name: String,
    queue_name: String,
    /// Its queue.
    topics: Vec<String>,
    /// Partitions that it has looked at; a thousand at most.
    members: u64,
    /// Partitions that have something that it has not settled; a thousand at most of those that
    /// wait and of those that are worked on.
    partitions_with_lag: u64,
    /// How many seconds ago the oldest message was pushed that it has not settled, among the
    /// partitions that wait longest.
    max_time_lag: u64,
    /// Messages that it has not settled.
    total_lag: u64,
    /// `Stable` with a lag of less than a minute; `Dead` with one of an hour while nobody works for
    /// it; else `Lagging`.
    state: &'static str,
    /// It reads what was pushed at this time or later; null is everything.
    subscription_timestamp: Option<String>,
    created_at: String,
}

impl GroupStanding {
    fn of(row: &GroupRow, now: Time) -> Self {
        let lag = lag_seconds(row, now);
        let state = match (lag, row.leased_lanes) {
            (..LAGGING_SECONDS, _) => "Stable",
            (DEAD_SECONDS.., 0) => "Dead",
            _ => "Lagging",
        };
        GroupStanding {
            name: row.group.to_string(),
            queue_name: row.queue.to_string(),
            topics: vec![row.queue.to_string()],
            members: row.lanes,
            partitions_with_lag: row.waiting_lanes + row.leased_lanes,
            max_time_lag: lag,
            total_lag: row.pending,
            state,
            subscription_timestamp: row.start.map(timestamp),
            created_at: timestamp(row.created_at),
        }
    }
}

/// Which groups. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GroupsQuery {
    /// Only of this queue.
    queue: Option<String>,
    /// So many at most; 1000 if left out, which is the most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Where to go on: the header `X-Next` of the page before.
    after: Option<String>,
}

/// Groups of queues; each stands there once for each of its queues
#[utoipa::path(
    get, path = "/api/v1/consumer-groups", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(GroupsQuery),
    responses((status = 200, description = "A page", body = Vec<GroupStanding>,
               headers(("x-next" = String,
                        description = "What to send as `after` to go on, if there may be more"))),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(wanted): Parameters<GroupsQuery>,
) -> Result<(HeaderMap, Json<Vec<GroupStanding>>), Problem> {
    let limit = number("limit", &wanted.limit, &(1..=PAGE))?.unwrap_or(PAGE);
    let queue = optional_name("queue", wanted.queue.as_deref())?;
    let after = given(&wanted.after).map(str::to_owned);
    let store = queues(&shared)?.store();
    if let Some(queue) = &queue {
        let known = store.queue(queue).await.map_err(|error| store_problem(&error))?;
        known.ok_or_else(|| no_queue(queue))?;
    }
    let page = store.groups(GroupFilter { group: None, queue, after, limit }).await?;
    let now = now();
    let mut headers = HeaderMap::new();
    if let Some(next) = page.next.and_then(|next| HeaderValue::try_from(next).ok()) {
        headers.insert(NEXT, next);
    }
    let views = page.groups.iter().map(|row| GroupStanding::of(row, now)).collect();
    Ok((headers, Json(views)))
}

/// A group, with all its queues.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupAnswer {
    name: String,
    /// The names of its queues.
    topics: Vec<String>,
    /// In all of them together.
    total_lag: u64,
    /// The greatest of all of them.
    max_time_lag: u64,
    /// One by one.
    queues: Vec<GroupStanding>,
}

/// One group, by its queues
#[utoipa::path(
    get, path = "/api/v1/consumer-groups/{group}", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("group" = String, Path)),
    responses((status = 200, description = "Its queues, 10000 at most", body = GroupAnswer),
              (status = 404, description = "No queue has such a group", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Segments(group): Segments<String>,
) -> Result<Json<GroupAnswer>, Problem> {
    let group = name("group", &group)?;
    let now = now();
    let rows = all(queues(&shared)?.store(), Some(&group)).await?;
    if rows.is_empty() {
        return Err(no_group(&group));
    }
    let views: Vec<GroupStanding> = rows.iter().map(|row| GroupStanding::of(row, now)).collect();
    Ok(Json(GroupAnswer {
        name: group.to_string(),
        topics: views.iter().map(|view| view.queue_name.clone()).collect(),
        total_lag: views.iter().map(|view| view.total_lag).sum(),
        max_time_lag: views.iter().map(|view| view.max_time_lag).max().unwrap_or(0),
        queues: views,
    }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct LaggingQuery {
    /// From so many seconds on; 60 if left out.
    #[param(value_type = Option<u64>)]
    min_lag_seconds: Option<String>,
}

/// Groups whose oldest message has waited long, the longest first
#[utoipa::path(
    get, path = "/api/v1/consumer-groups/lagging", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(LaggingQuery),
    responses((status = 200, description = "Those among 10000 groups", body = Vec<GroupStanding>),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn lagging(
    State(shared): State<Arc<Shared>>,
    Parameters(wanted): Parameters<LaggingQuery>,
) -> Result<Json<Vec<GroupStanding>>, Problem> {
    let least = number("minLagSeconds", &wanted.min_lag_seconds, &(0..=u64::from(u32::MAX)))?;
    let least = least.unwrap_or(LAGGING_SECONDS);
    let now = now();
    let rows = all(queues(&shared)?.store(), None).await?;
    let late = rows.iter().filter(|row| row.oldest.is_some() && lag_seconds(row, now) >= least);
    let mut views: Vec<GroupStanding> = late.map(|row| GroupStanding::of(row, now)).collect();
    views.sort_by_key(|view| std::cmp::Reverse(view.max_time_lag));
    Ok(Json(views))
}

async fn all(store: &QueueStore, group: Option<&Arc<str>>) -> Result<Vec<GroupRow>, Problem> {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let filter = GroupFilter { group: group.cloned(), queue: None, after, limit: PAGE };
        let GroupsPage { groups, next } = store.groups(filter).await?;
        rows.extend(groups);
        after = next;
        if after.is_none() || rows.len() >= LOOK_GROUPS_MAX {
            return Ok(rows);
        }
    }
}

object! {
    /// Where a group begins.
    SubscribeBody<'body> {
        queue "queue": Given<'body>,
        timestamp "subscriptionTimestamp": Given<'body>,
    }
}

/// Where a group begins.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read")]
struct SubscribeRequest {
    /// In this queue; in all it has and all it comes to later if left out.
    queue: Option<String>,
    /// With what was pushed at this time or later.
    #[schema(example = "2026-01-31T12:00:00Z")]
    subscription_timestamp: String,
}

#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubscribedAnswer {
    /// True.
    success: bool,
    consumer_group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_name: Option<String>,
    subscription_timestamp: String,
    /// Queues in which it is there with this beginning.
    queues_updated: u64,
}

/// Set where a group begins in partitions that it has not looked at
#[utoipa::path(
    post, path = "/api/v1/consumer-groups/{group}/subscription", tag = "queues",
    extensions(("x-scope" = json!("admin"))), params(("group" = String, Path)),
    request_body = SubscribeRequest,
    responses((status = 200, description = "It begins there", body = SubscribedAnswer),
              (status = 400, description = "A field is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn subscribe(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(group): Segments<String>,
    RawBody(body): RawBody,
) -> Result<Json<SubscribedAnswer>, Problem> {
    let group = name("group", &group)?;
    let body: SubscribeBody<'_> = read::json_or_nothing(&body)?;
    let queue = given_name("queue", &body.queue)?;
    let Given::Text(text) = &body.timestamp else {
        let words = "subscriptionTimestamp is required: a time such as 2026-01-31T12:00:00Z";
        return Err(wrong("subscriptionTimestamp", words));
    };
    let at = time("subscriptionTimestamp", text)?;
    let queues = queues(&shared)?;
    let done = queues.store().subscribe(&group, queue.as_deref(), Start::From(at)).await;
    let queues_updated = match done.map_err(|error| store_problem(&error))? {
        Sought::Moved(count) => count,
        Sought::NoQueue | Sought::NoPartition => {
            return Err(no_queue(queue.as_deref().unwrap_or_default()));
        }
    };
    queues.wake(queue.as_deref());
    let detail = queue.as_deref().unwrap_or_default();
    note(&shared, &asker, "queues.subscribe", &group, detail).await;
    Ok(Json(SubscribedAnswer {
        success: true,
        consumer_group: group.to_string(),
        queue_name: queue.as_deref().map(str::to_owned),
        subscription_timestamp: timestamp(at),
        queues_updated,
    }))
}
