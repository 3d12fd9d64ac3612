//! What is wrong, over all parts, and the numbers that say how much there is.
//!
//! Each part is asked with a limit of its own: one that does not answer is named instead of making
//! the whole answer wait, because this is asked for when something is wrong.

use crate::access::now_ms;
use crate::cluster::NodeCluster;
use crate::fleet::Fleet;
use crate::http::problem::Problem;
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use skep_policy::Time;
use skep_policy::sessions::{KindRow, Standing};
use skep_policy::troubles::{Fact, Memory, Severity, Switched, Trouble, troubles};
use skep_polls::Filter;
use skep_queues::store::{GroupFilter, QUEUE_MODE, QueueStore, QueueSummary, SwitchSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long one look serves everybody who asks.
const FRESH: Duration = Duration::from_secs(2);
/// The groups of consumers are looked at this often: each costs a look at its partitions.
const LAGS_FRESH: Duration = Duration::from_secs(15);
/// A part that has not answered after this time is not known.
const PART_LIMIT: Duration = Duration::from_secs(3);
/// Queues and groups that one look goes through.
const LOOK_MAX: u32 = 1_000;
/// Queues with dead letters that are asked for their last minutes, those with most first.
const DEAD_QUEUES: usize = 20;
/// Endpoints that fail and are looked at.
const FAILING_MAX: usize = 100;
/// Dead letters count as new for so many minutes.
const LATELY_MINUTES: u64 = 10;
/// The errors of a route are those of so many milliseconds.
const ERRORS_MS: i64 = 60_000;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(overview))
}

/// The last look, and since when each trouble has been seen.
#[derive(Default)]
pub struct OverviewBook {
    last: Mutex<Looked>,
}

#[derive(Default)]
struct Looked {
    answer: Option<(Instant, OverviewAnswer)>,
    lags: Option<(Instant, Vec<Fact>)>,
    memory: Memory,
}

/// What is wrong, and how much there is.
#[derive(Clone, Serialize, utoipa::ToSchema)]
#[schema(as = InstallationOverview)]
pub struct OverviewAnswer {
    /// When this was, in milliseconds since 1970.
    at_ms: i64,
    /// The node that answers.
    node: String,
    /// What is wrong, the worst first.
    troubles: Vec<TroubleView>,
    /// Parts that did not answer in time; nothing is known about them.
    unknown: Vec<UnknownView>,
    numbers: Numbers,
}

/// Something that somebody should look at.
#[derive(Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Trouble)]
struct TroubleView {
    /// `bad` if something does not work, `warn` if it is worth a look.
    severity: &'static str,
    /// `store`, `certificate`, `standing`, `node`, `breaker`, `lag`, `dead-letters`, `switch`,
    /// `endpoint`, `below-target`, `workers`, `errors`, `tasks-failed`, or the kind of an alert.
    kind: String,
    /// The store, node, queue, endpoint, kind or route; what an alert is about. Of several it is
    /// nothing.
    about: Option<String>,
    /// The group of a lag.
    within: Option<String>,
    /// How many it stands for.
    count: usize,
    /// What is wrong, in one sentence.
    text: String,
    /// Since when, in milliseconds since 1970, if somebody knows.
    since_ms: Option<i64>,
    /// When this node first saw it: it looks when it is asked for this.
    seen_ms: Option<i64>,
}

impl From<Trouble> for TroubleView {
    fn from(trouble: Trouble) -> Self {
        TroubleView {
            severity: match trouble.severity {
                Severity::Bad => "bad",
                Severity::Warn => "warn",
            },
            kind: trouble.kind,
            about: trouble.about,
            within: trouble.within,
            count: trouble.count,
            text: trouble.text,
            since_ms: trouble.since_ms,
            seen_ms: trouble.seen_ms,
        }
    }
}

/// A part of which nothing is known.
#[derive(Clone, Serialize, utoipa::ToSchema)]
#[schema(as = UnknownPart)]
struct UnknownView {
    /// `queues`, `polls` or `monitors`.
    part: &'static str,
    /// Why.
    why: String,
}

/// How much there is. A part that did not answer has no numbers.
#[derive(Clone, Default, Serialize, utoipa::ToSchema)]
#[schema(as = OverviewNumbers)]
struct Numbers {
    /// Nodes, and those of them that are heard of.
    nodes: u64,
    nodes_alive: u64,
    /// Workers of this node's pools, and tasks that wait for them.
    pool_workers: u64,
    pool_waiting: u64,
    /// Kinds of workers that serve sessions, the workers, and their sessions.
    kinds: u64,
    workers: u64,
    sessions: u64,
    sessions_waiting: u64,
    /// Routes, and their upstreams.
    routes: u64,
    upstreams: u64,
    queues: Option<QueueNumbers>,
    polls: Option<PollNumbers>,
    monitors: Option<MonitorNumbers>,
}

/// Queues and what is in them.
#[derive(Clone, Serialize, utoipa::ToSchema)]
struct QueueNumbers {
    queues: u64,
    groups: u64,
    pending: u64,
    dead: u64,
}

/// What is polled.
#[derive(Clone, Serialize, utoipa::ToSchema)]
struct PollNumbers {
    endpoints: u64,
    paused: u64,
    failing: u64,
}

/// What is watched, and by how many.
#[derive(Clone, Serialize, utoipa::ToSchema)]
struct MonitorNumbers {
    servers: u64,
    below_target: u64,
    monitors: u64,
}

/// What is wrong over all parts, the worst first, and how much there is of everything
#[utoipa::path(
    get, path = "/api/v1/overview", tag = "node", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Troubles and numbers, at most two seconds old",
               body = OverviewAnswer))
)]
async fn overview(State(shared): State<Arc<Shared>>) -> Result<Json<OverviewAnswer>, Problem> {
    let fleet = super::polls::fleet(&shared)?;
    let mut looked = shared.overview.last.lock().await;
    if let Some((at, answer)) = &looked.answer
        && at.elapsed() < FRESH
    {
        return Ok(Json(answer.clone()));
    }
    let answer = look(&shared, fleet, &mut looked).await;
    looked.answer = Some((Instant::now(), answer.clone()));
    Ok(Json(answer))
}

async fn look(shared: &Shared, fleet: &Fleet, looked: &mut Looked) -> OverviewAnswer {
    let at_ms = now_ms();
    let (mut facts, mut numbers) = (Vec::new(), Numbers::default());
    let stores = shared.store_health().await;
    facts.extend(stores.iter().map(|health| Fact::Store {
        store: health.store.to_owned(),
        error: (!health.ok).then(|| health.error.clone().unwrap_or_default()),
    }));
    if let Some(certificate) = &shared.certificate {
        facts.push(Fact::Certificate { ends_ms: certificate.expires_at_ms() });
    }
    nodes(shared, fleet, &mut facts, &mut numbers);
    work(shared, at_ms, &mut facts, &mut numbers);
    for kind in fleet.sessions.kinds_heard().iter() {
        workers(kind, &mut facts, &mut numbers);
    }
    let mut unknown = Vec::new();
    let (queues, polls, monitors) = tokio::join!(
        within("queues", queues(shared, at_ms)),
        within("polls", polls(fleet)),
        within("monitors", monitors(fleet)),
    );
    if queues.is_ok() && looked.lags.as_ref().is_none_or(|(at, _)| at.elapsed() >= LAGS_FRESH) {
        let lags = within("queues", lags(shared)).await;
        let mut found = Vec::new();
        kept(lags, &mut found, &mut unknown);
        looked.lags = Some((Instant::now(), found));
    }
    facts.extend(looked.lags.iter().flat_map(|(_, lags)| lags.clone()));
    numbers.queues = kept(queues, &mut facts, &mut unknown);
    numbers.polls = kept(polls, &mut facts, &mut unknown);
    numbers.monitors = kept(monitors, &mut facts, &mut unknown);
    let mut found = troubles(&facts, at_ms);
    looked.memory.stamp(&mut found, at_ms);
    OverviewAnswer {
        at_ms,
        node: shared.name.to_string(),
        troubles: found.into_iter().map(TroubleView::from).collect(),
        unknown,
        numbers,
    }
}

/// Facts and numbers of a part.
type Told<T> = (Vec<Fact>, T);

async fn within<T, E: std::fmt::Display>(
    part: &'static str,
    asked: impl Future<Output = Result<Told<T>, E>>,
) -> Result<Told<T>, UnknownView> {
    match tokio::time::timeout(PART_LIMIT, asked).await {
        Ok(Ok(told)) => Ok(told),
        Ok(Err(error)) => Err(UnknownView { part, why: error.to_string() }),
        Err(_) => {
            let why = format!("there was no answer within {PART_LIMIT:?}");
            Err(UnknownView { part, why })
        }
    }
}

fn kept<T>(
    told: Result<Told<T>, UnknownView>,
    facts: &mut Vec<Fact>,
    unknown: &mut Vec<UnknownView>,
) -> Option<T> {
    match told {
        Ok((more, numbers)) => {
            facts.extend(more);
            Some(numbers)
        }
        Err(view) => {
            unknown.push(view);
            None
        }
    }
}

fn nodes(shared: &Shared, fleet: &Fleet, facts: &mut Vec<Fact>, numbers: &mut Numbers) {
    facts.push(Fact::Standing { standing: fleet.nodes.overview().standing.to_owned() });
    let servers = NodeCluster::of(shared).balance().servers;
    numbers.nodes = servers.len() as u64;
    numbers.nodes_alive = servers.iter().filter(|server| server.alive).count() as u64;
    for server in servers {
        facts.push(Fact::Breaker {
            node: server.server_id.clone(),
            breaker: server.breaker.name().to_owned(),
        });
        facts.push(Fact::Node {
            node: server.server_id,
            alive: server.alive,
            draining: server.draining,
            heard_ms_ago: server.last_seen_ms,
        });
    }
}

/// Pools, routes, and the alerts about both.
fn work(shared: &Shared, at_ms: i64, facts: &mut Vec<Fact>, numbers: &mut Numbers) {
    for pool in shared.work.pools.stats() {
        numbers.pool_workers += u64::from(pool.active_workers);
        numbers.pool_waiting += pool.pending_tasks;
    }
    facts.extend(shared.work.alerts.firing().into_iter().map(|alert| Fact::Alert {
        about: alert.pool,
        alert: alert.kind.to_owned(),
        since_ms: alert.since_ms,
        reason: alert.reason,
    }));
    for route in shared.routes.proxy.overview() {
        numbers.routes += 1;
        numbers.upstreams += route.upstreams.len() as u64;
        let lately = route.seconds.iter().filter(|second| second.at_ms >= at_ms - ERRORS_MS);
        let (requests, errors) = lately.fold((0, 0), |(requests, errors), second| {
            (requests + second.requests, errors + second.errors)
        });
        facts.push(Fact::Route { route: route.name, requests, errors });
    }
}

fn workers(row: &KindRow, facts: &mut Vec<Fact>, numbers: &mut Numbers) {
    let of = |standings: &[Standing]| {
        standings.iter().map(|one| u64::from(row.standings.of(*one))).sum::<u64>()
    };
    let missing = of(&[Standing::Suspect, Standing::Down, Standing::Lost]);
    let live = of(&Standing::ALL) - missing - of(&[Standing::Removed]);
    numbers.kinds += 1;
    numbers.workers += live;
    numbers.sessions += row.active;
    numbers.sessions_waiting += u64::from(row.waiting);
    let (kind, free, waiting) = (row.kind.clone(), row.free, u64::from(row.waiting));
    facts.push(Fact::Workers { kind, live, missing, free, waiting });
}

async fn queues(shared: &Shared, at_ms: i64) -> Result<Told<QueueNumbers>, Box<Troubled>> {
    let mut facts = Vec::new();
    let queues = shared.queues.get().ok_or_else(Troubled::starting)?;
    let store = queues.store();
    let switches = shared.queues.switches().known();
    let mut switched = |on: bool, what, set: &Option<SwitchSet>| {
        if on {
            let since_ms = set.as_ref().map(|set| millis(set.since));
            let by = set.as_ref().map(|set| set.by.to_string());
            facts.push(Fact::Switch { what, since_ms, by });
        }
    };
    switched(switches.push, Switched::Pushes, &switches.push_set);
    switched(switches.pop, Switched::Pops, &switches.pop_set);
    let sums = store.overview().await.map_err(Troubled::of)?;
    if sums.dead > 0 {
        facts.extend(dead(store, at_ms).await?);
    }
    let numbers = QueueNumbers {
        queues: sums.queues,
        groups: sums.groups,
        pending: sums.pending,
        dead: sums.dead,
    };
    Ok((facts, numbers))
}

/// How far behind groups are. One without a name is that of consumers who name none.
async fn lags(shared: &Shared) -> Result<Told<()>, Box<Troubled>> {
    let store = shared.queues.get().ok_or_else(Troubled::starting)?.store();
    let filter = GroupFilter { group: None, queue: None, after: None, limit: LOOK_MAX };
    let found = store.groups(filter).await.map_err(Troubled::of)?.groups;
    let named = |group: &str| if group == QUEUE_MODE { String::new() } else { group.to_owned() };
    let facts = found.iter().map(|group| Fact::Group {
        queue: group.queue.to_string(),
        group: named(&group.group),
        pending: group.pending,
        oldest_ms: group.oldest.map(millis),
        leased: group.leased_lanes,
    });
    Ok((facts.collect(), ()))
}

/// The queues with dead letters, and which of these are new.
async fn dead(store: &QueueStore, at_ms: i64) -> Result<Vec<Fact>, Box<Troubled>> {
    let found = store.queues(None, LOOK_MAX).await.map_err(Troubled::of)?;
    let mut found: Vec<QueueSummary> = found.into_iter().filter(|one| one.dead > 0).collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.dead));
    found.truncate(DEAD_QUEUES);
    let to = Time::from_millis(u64::try_from(at_ms).unwrap_or(0));
    let from = Time::from_millis(to.as_millis().saturating_sub(LATELY_MINUTES * 60_000));
    let mut facts = Vec::new();
    for QueueSummary { queue, dead, .. } in found {
        let points = store.stats(Some(&queue.name), from, to, 1).await.map_err(Troubled::of)?;
        let new = points.iter().filter(|point| point.counts.dead > 0);
        facts.push(Fact::Dead {
            queue: queue.name.to_string(),
            dead,
            lately: new.clone().map(|point| point.counts.dead).sum(),
            since_ms: new.map(|point| millis(point.from)).min(),
        });
    }
    Ok(facts)
}

async fn polls(fleet: &Fleet) -> Result<Told<PollNumbers>, skep_store::StoreError> {
    let summary = fleet.polls.summary().await?;
    let mut facts = Vec::new();
    if summary.failing > 0 {
        let filter = Filter { failing: true, ..Filter::default() };
        let (failing, _) = fleet.polls.list(&filter, None, FAILING_MAX).await?;
        for one in failing.into_iter().filter(|one| !one.endpoint.spec.paused) {
            let Some(state) = one.state else { continue };
            let verdict = state.last.map(|last| last.verdict).unwrap_or_default();
            facts.push(Fact::Endpoint {
                endpoint: one.endpoint.spec.id.clone(),
                failures: state.failures,
                since_ms: state.changed_at_ms,
                verdict,
            });
        }
    }
    let numbers = PollNumbers {
        endpoints: summary.endpoints,
        paused: summary.paused,
        failing: summary.failing,
    };
    Ok((facts, numbers))
}

async fn monitors(fleet: &Fleet) -> Result<Told<MonitorNumbers>, skep_store::StoreError> {
    let now = fleet.monitors.fleet().await?;
    let watched = now.servers - now.servers_paused;
    // The points reach back an hour; what was so at the first of them began before.
    let points = fleet.monitors.points();
    let well = points.iter().rposition(|point| point.below_target == 0);
    let since_ms = well.and_then(|place| points.get(place + 1)).map(|point| point.at);
    let facts = vec![Fact::Servers { below: now.below_target, of: watched, since_ms }];
    let numbers = MonitorNumbers {
        servers: now.servers,
        below_target: now.below_target,
        monitors: now.monitors.values().sum(),
    };
    Ok((facts, numbers))
}

fn millis(time: Time) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Why nothing is known about the queues.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Troubled(String);

impl Troubled {
    fn of(error: impl std::fmt::Display) -> Box<Self> {
        Box::new(Troubled(error.to_string()))
    }

    fn starting() -> Box<Self> {
        Troubled::of("there was no connection to the database yet")
    }
}
