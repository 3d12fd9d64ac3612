//! What happened in queues, by the minute, hour or day, and what the node does for it.

use super::query::{given, moment, not, number};
use super::read::{optional_name, wrong};
use super::refuse::{no_queue, store_problem};
use super::status::LagView;
use super::write::timestamp;
use super::{now, queues};
use crate::http::extract::Parameters;
use crate::http::problem::{self, Problem, ProblemBody};
use crate::http::traffic::Point;
use crate::node::{Shared, process_now};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_queues::buffer::Buffer;
use skep_queues::store::{
    BrowseError, GroupFilter, QueueStore, STAT_MINUTES_MAX, StatCounts, minute_of, minute_start,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Points of one answer at most.
const POINTS_MAX: u64 = 10_000;
const LAG_PAGE: u32 = 100;
const LAG_PAGE_MAX: u32 = 1_000;

/// What happened in some time.
#[derive(Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PointView {
    /// When it begins.
    #[schema(example = "2026-01-31T12:00:00.000000Z")]
    timestamp: String,
    /// Messages that were kept.
    pushed: u64,
    /// Their bytes.
    bytes: u64,
    /// Messages that were handed out.
    popped: u64,
    /// Messages that were completed.
    acked: u64,
    /// Messages that failed.
    failed: u64,
    /// Messages that became dead letters.
    dead_letter: u64,
}

impl PointView {
    pub fn of(from: Time, counts: &StatCounts) -> Self {
        PointView {
            timestamp: timestamp(from),
            pushed: counts.pushed,
            bytes: counts.bytes,
            popped: counts.popped,
            acked: counts.acked,
            failed: counts.failed,
            dead_letter: counts.dead,
        }
    }
}

/// From when to when, and in which steps.
struct Span {
    /// In minutes since 1970, at the beginning of a bucket.
    from: u64,
    to: u64,
    bucket: u32,
}

impl Span {
    /// The last minutes, with the one that is not over yet.
    fn last(minutes: u32) -> Self {
        let to = minute_of(now()) + 1;
        Span { from: to.saturating_sub(u64::from(minutes)), to, bucket: 1 }
    }

    /// What happened in each step, also where nothing did.
    async fn counts(
        &self,
        store: &QueueStore,
        queue: Option<&str>,
    ) -> Result<Vec<(Time, StatCounts)>, Problem> {
        let (from, to) = (minute_start(self.from), minute_start(self.to));
        let found = store.stats(queue, from, to, self.bucket).await;
        let found = found.map_err(|error| store_problem(&error))?;
        let known: HashMap<Time, StatCounts> =
            found.into_iter().map(|point| (point.from, point.counts)).collect();
        let steps = (self.from..self.to).step_by(self.bucket as usize).map(minute_start);
        Ok(steps.map(|at| (at, known.get(&at).copied().unwrap_or_default())).collect())
    }
}

/// The last minutes of a queue, or of all.
pub async fn minutes_until_now(
    store: &QueueStore,
    queue: Option<&str>,
    minutes: u32,
) -> Result<Vec<PointView>, Problem> {
    let counts = Span::last(minutes).counts(store, queue).await?;
    Ok(counts.iter().map(|(from, counts)| PointView::of(*from, counts)).collect())
}

/// Which time. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct When {
    /// From this time on; an hour before `to` if left out.
    from: Option<String>,
    /// Until this time; now if left out.
    to: Option<String>,
    /// Only of this queue.
    queue: Option<String>,
    /// `minute`, `hour` or `day`; what fits if left out.
    interval: Option<String>,
}

const INTERVALS: [(&str, u32); 3] = [("minute", 1), ("hour", 60), ("day", 24 * 60)];

impl When {
    fn span(&self) -> Result<(Span, &'static str), Problem> {
        let hour = Duration::from_secs(3_600);
        // The minute that is not over counts.
        let to = match moment("to", &self.to)? {
            Some(to) => minute_of(to + Duration::from_nanos(59_999_999_999)),
            None => minute_of(now()) + 1,
        };
        let from = match moment("from", &self.from)? {
            Some(from) => minute_of(from),
            None => to.saturating_sub(minute_of(Time::ZERO + hour)),
        };
        if from >= to {
            return Err(wrong("from", "from must be before to"));
        }
        let minutes = to - from;
        if minutes > STAT_MINUTES_MAX {
            let days = STAT_MINUTES_MAX / (24 * 60);
            return Err(wrong("from", format!("from must be at most {days} days before to")));
        }
        let (name, bucket) = match given(&self.interval) {
            Some(text) => {
                let found = INTERVALS.into_iter().find(|(name, _)| *name == text);
                found.ok_or_else(|| not("interval", text, "minute, hour or day"))?
            }
            None if minutes <= 6 * 60 => INTERVALS[0],
            None if minutes <= 7 * 24 * 60 => INTERVALS[1],
            None => INTERVALS[2],
        };
        let points = minutes / u64::from(bucket);
        if points > POINTS_MAX {
            let words = format!(
                "interval cannot be {name:?} for so long: that would be {points} points, at most \
                 {POINTS_MAX} may be; take hour, or a shorter time"
            );
            return Err(wrong("interval", words));
        }
        // Buckets are counted from 1970 on.
        let from = from / u64::from(bucket) * u64::from(bucket);
        Ok((Span { from, to, bucket }, name))
    }

    async fn queue(&self, store: &QueueStore) -> Result<Option<Arc<str>>, Problem> {
        let Some(queue) = optional_name("queue", self.queue.as_deref())? else { return Ok(None) };
        let found = store.queue(&queue).await.map_err(|error| store_problem(&error))?;
        found.map(|found| Some(found.name)).ok_or_else(|| no_queue(&queue))
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct PointsAnswer {
    /// Of this queue; nothing is of all.
    queue: Option<String>,
    /// `minute`, `hour` or `day`.
    interval: String,
    from: String,
    to: String,
    /// The oldest first; one for each step, also where nothing happened.
    points: Vec<PointView>,
}

/// What happened in queues, in steps of time
#[utoipa::path(
    get, path = "/api/v1/status/analytics", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(When),
    responses((status = 200, description = "Points", body = PointsAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn status_analytics(
    State(shared): State<Arc<Shared>>,
    Parameters(when): Parameters<When>,
) -> Result<Json<PointsAnswer>, Problem> {
    points(&shared, &when).await.map(Json)
}

/// What happened in queues, in steps of time
#[utoipa::path(
    get, path = "/api/v1/analytics/queue-ops", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(When),
    responses((status = 200, description = "Points", body = PointsAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn queue_ops(
    State(shared): State<Arc<Shared>>,
    Parameters(when): Parameters<When>,
) -> Result<Json<PointsAnswer>, Problem> {
    points(&shared, &when).await.map(Json)
}

async fn points(shared: &Shared, when: &When) -> Result<PointsAnswer, Problem> {
    let (span, interval) = when.span()?;
    let store = queues(shared)?.store();
    let queue = when.queue(store).await?;
    let counts = span.counts(store, queue.as_deref()).await?;
    Ok(PointsAnswer {
        queue: queue.map(|queue| queue.to_string()),
        interval: interval.to_owned(),
        from: timestamp(minute_start(span.from)),
        to: timestamp(minute_start(span.to)),
        points: counts.iter().map(|(from, counts)| PointView::of(*from, counts)).collect(),
    })
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct RetentionAnswer {
    /// `minute`, `hour` or `day`.
    interval: String,
    from: String,
    to: String,
    /// The oldest first; one for each step, also where nothing happened.
    points: Vec<RemovedView>,
}

/// What was deleted in some time.
#[derive(Serialize, utoipa::ToSchema)]
struct RemovedView {
    /// When it begins.
    timestamp: String,
    /// Messages of all queues that were deleted for their age.
    removed: u64,
}

/// Messages that were deleted for their age, in steps of time
#[utoipa::path(
    get, path = "/api/v1/analytics/retention", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(When),
    responses((status = 200, description = "Points, of all queues", body = RetentionAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn retention(
    State(shared): State<Arc<Shared>>,
    Parameters(when): Parameters<When>,
) -> Result<Json<RetentionAnswer>, Problem> {
    let (span, interval) = when.span()?;
    let counts = span.counts(queues(&shared)?.store(), None).await?;
    let removed = |(from, counts): &(Time, StatCounts)| RemovedView {
        timestamp: timestamp(*from),
        removed: counts.expired,
    };
    Ok(Json(RetentionAnswer {
        interval: interval.to_owned(),
        from: timestamp(minute_start(span.from)),
        to: timestamp(minute_start(span.to)),
        points: counts.iter().map(removed).collect(),
    }))
}

/// Which groups. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LagPage {
    /// Only of this queue.
    queue: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// Where to go on: the `next` of the page before.
    after: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct LagAnswer {
    lag: Vec<LagView>,
    /// What to send as `after` for the next page; nothing if this is the last.
    next: Option<String>,
}

/// How far behind each group of each queue is
#[utoipa::path(
    get, path = "/api/v1/analytics/queue-lag", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(LagPage),
    responses((status = 200, description = "A page", body = LagAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn queue_lag(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<LagPage>,
) -> Result<Json<LagAnswer>, Problem> {
    let limit = number("limit", &page.limit, &(1..=LAG_PAGE_MAX))?.unwrap_or(LAG_PAGE);
    let queue = optional_name("queue", page.queue.as_deref())?;
    let store = queues(&shared)?.store();
    if let Some(queue) = &queue {
        let found = store.queue(queue).await.map_err(|error| store_problem(&error))?;
        found.ok_or_else(|| no_queue(queue))?;
    }
    let after = given(&page.after).map(str::to_owned);
    let filter = GroupFilter { queue, group: None, after, limit };
    let found = store.groups(filter).await.map_err(browse_problem)?;
    let now = now();
    let lag = found.groups.iter().map(|row| LagView::of(row, now)).collect();
    Ok(Json(LagAnswer { lag, next: found.next }))
}

/// Why a page cannot be had.
pub fn browse_problem(error: BrowseError) -> Problem {
    match error {
        BrowseError::Store(error) => store_problem(&error),
        BrowseError::Token { token } => not("after", &token, "the next of the page before"),
        other => Problem::new(&problem::E_INTERNAL, other.to_string()).plain(),
    }
}

/// What the process of a node uses.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemAnswer {
    node: String,
    uptime_seconds: u64,
    /// Memory that it holds.
    memory_bytes: i64,
    /// Of one core, in the last second.
    cpu_percent: f64,
    /// Time that it has computed so far.
    cpu_seconds: f64,
    threads: i64,
    open_files: i64,
    /// Connections to its port.
    connections: i64,
    /// Pops that wait for messages.
    parked_pops: usize,
    /// The last five minutes, a point a second, the oldest first.
    points: Vec<Point>,
    timestamp: String,
}

/// What the process of this node uses
#[utoipa::path(
    get, path = "/api/v1/analytics/system-metrics", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Now and in the last minutes", body = SystemAnswer))
)]
pub async fn system_metrics(
    State(shared): State<Arc<Shared>>,
) -> Result<Json<SystemAnswer>, Problem> {
    let (process, points) = (process_now(), shared.traffic.points());
    Ok(Json(SystemAnswer {
        node: shared.name.to_string(),
        uptime_seconds: shared.uptime().as_secs(),
        memory_bytes: process.resident_bytes,
        cpu_percent: points.last().map_or(0.0, |point| point.cpu_percent),
        cpu_seconds: process.cpu.as_secs_f64(),
        threads: process.threads,
        open_files: process.open_files,
        connections: shared.traffic.connections(),
        parked_pops: queues(&shared)?.work().parked,
        points,
        timestamp: timestamp(now()),
    }))
}

/// What the store of a node has to do.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerAnswer {
    node: String,
    /// Requests that wait for the store.
    waiting_requests: usize,
    /// Bytes of messages that wait for it.
    waiting_bytes: usize,
    /// Pops that wait for messages.
    parked_pops: usize,
    /// Messages that wait on this node's disk.
    buffered_messages: u64,
    /// Batches that the store did since the node started.
    batches: u64,
    /// Requests that were in them.
    requests: u64,
    requests_per_batch: f64,
    /// Time that they took, on average.
    milliseconds_per_batch: f64,
    timestamp: String,
}

/// What the store of this node has to do
#[utoipa::path(
    get, path = "/api/v1/analytics/worker-metrics", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Since the node started", body = WorkerAnswer))
)]
pub async fn worker_metrics(
    State(shared): State<Arc<Shared>>,
) -> Result<Json<WorkerAnswer>, Problem> {
    let queues = queues(&shared)?;
    let work = queues.work();
    let batches = work.batches.max(1) as f64;
    Ok(Json(WorkerAnswer {
        node: shared.name.to_string(),
        waiting_requests: work.waiting_requests,
        waiting_bytes: work.waiting_bytes,
        parked_pops: work.parked,
        buffered_messages: queues.buffer().map_or(0, Buffer::messages),
        batches: work.batches,
        requests: work.requests,
        requests_per_batch: work.requests as f64 / batches,
        milliseconds_per_batch: work.took.as_secs_f64() * 1e3 / batches,
        timestamp: timestamp(now()),
    }))
}

/// What the queues cost PostgreSQL.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostgresAnswer {
    /// The tables of queues, the largest first.
    tables: Vec<TableView>,
    /// Of the whole database.
    bytes: u64,
    /// Of the blocks that were asked for, the share that was in memory.
    cache_hits: Option<f64>,
    /// To this database.
    connections: u64,
    /// That the server takes.
    connections_max: u64,
    /// Transactions that wait for a lock now.
    waiting_for_locks: u64,
    timestamp: String,
}

/// A table, as PostgreSQL last counted it.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct TableView {
    name: String,
    /// With its indexes.
    bytes: u64,
    index_bytes: u64,
    /// About.
    rows: u64,
    /// Rows that nobody sees any more and whose room is not free yet, about.
    dead_rows: u64,
    vacuumed_at: Option<String>,
}

/// What the queues cost PostgreSQL
#[utoipa::path(
    get, path = "/api/v1/analytics/postgres-stats", tag = "queues",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "As PostgreSQL counts it", body = PostgresAnswer),
              (status = 501, description = "The store is the embedded one", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn postgres_stats(
    State(shared): State<Arc<Shared>>,
) -> Result<Json<PostgresAnswer>, Problem> {
    let stats = queues(&shared)?.store().database_stats().await;
    let stats = stats.map_err(|error| store_problem(&error))?.ok_or_else(|| {
        let words = "the store of this node is the embedded one; only PostgreSQL counts this";
        Problem::new(&problem::E_NOT_SUPPORTED, words).plain()
    })?;
    let table = |table: &skep_queues::store::TableStats| TableView {
        name: table.name.to_string(),
        bytes: table.bytes,
        index_bytes: table.index_bytes,
        rows: table.rows,
        dead_rows: table.dead_rows,
        vacuumed_at: table.vacuumed_at.map(timestamp),
    };
    Ok(Json(PostgresAnswer {
        tables: stats.tables.iter().map(table).collect(),
        bytes: stats.bytes,
        cache_hits: stats.cache_hits,
        connections: stats.connections,
        connections_max: stats.connections_max,
        waiting_for_locks: stats.waiting_for_locks,
        timestamp: timestamp(now()),
    }))
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct RefreshedAnswer {
    /// True.
    success: bool,
}

/// Write down now what this node has counted; it does so every few seconds by itself
#[utoipa::path(
    post, path = "/api/v1/stats/refresh", tag = "queues", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "It is written", body = RefreshedAnswer),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn refresh(State(shared): State<Arc<Shared>>) -> Result<Json<RefreshedAnswer>, Problem> {
    queues(&shared)?.write_stats().await.map_err(|error| store_problem(&error))?;
    Ok(Json(RefreshedAnswer { success: true }))
}
