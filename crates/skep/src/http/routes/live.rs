//! What happens now, as server-sent events.

use super::NodeAnswer;
use super::pools::{pool_view, scaling_view};
use super::sessions::views::kind;
use crate::access::now_ms;
use crate::http::extract::Asker;
use crate::http::problem::{self, Problem, ProblemBody};
use crate::http::traffic::Point;
use crate::node::{Shared, State as NodeState};
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use skep_polls::KIND;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// A stream says something this often, so that what is in between does not take it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(history)).routes(routes!(overview))
}

#[derive(Serialize, utoipa::ToSchema)]
struct HistoryAnswer {
    /// A point a second, oldest first, five minutes at most.
    points: Vec<Point>,
}

/// The last five minutes of the node's port
#[utoipa::path(
    get, path = "/api/v1/history", tag = "node", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "A point a second", body = HistoryAnswer))
)]
async fn history(State(shared): State<Arc<Shared>>) -> Json<HistoryAnswer> {
    Json(HistoryAnswer { points: shared.traffic.points() })
}

/// The node, a second at a time.
#[derive(Serialize, utoipa::ToSchema)]
struct Overview {
    /// In milliseconds since 1970.
    at: i64,
    node: NodeAnswer,
    requests: Requests,
    process: Process,
}

#[derive(Serialize, utoipa::ToSchema)]
struct Requests {
    per_second: f64,
    errors_per_second: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    in_flight: i64,
}

#[derive(Serialize, utoipa::ToSchema)]
struct Process {
    resident_bytes: i64,
    threads: i64,
    open_files: i64,
    cpu_percent: f64,
}

/// The node once a second, as server-sent events named `overview`, `pools`, `polls`, `sessions`,
/// `routes` and `monitors`, and `demo` where one runs
#[utoipa::path(
    get, path = "/api/v1/live", tag = "node", extensions(("x-scope" = json!("read"))),
    responses(
        (status = 200, description = "A stream that lasts", content_type = "text/event-stream",
         body = Overview),
        (status = 503, description = "There are too many streams", body = ProblemBody)
    )
)]
async fn overview(State(shared): State<Arc<Shared>>, asker: Asker) -> Result<Response, Problem> {
    let mut points = shared.latest_point.clone();
    // The first one comes at once.
    points.mark_changed();
    let seen = shared.work.scaling_since(0).last().map_or(0, |one| one.number);
    let moved = shared.fleet().map_or(0, |fleet| fleet.nodes.moves_after(KIND, 0).1);
    let told = shared.routes.journal.after(u64::MAX).1;
    let changed = super::monitors::newest(&shared);
    let state = (points, shared.clone(), seen, moved, told, changed);
    let events = stream::unfold(state, async |(mut points, shared, seen, moved, told, changed)| {
        points.changed().await.ok()?;
        let point = *points.borrow_and_update();
        let overview = describe(&shared, point).await;
        let overview = Event::default().event("overview").json_data(&overview).ok()?;
        let scaling = shared.work.scaling_since(seen);
        let seen = scaling.last().map_or(seen, |one| one.number);
        let pools = serde_json::json!({
            "at_ms": now_ms(),
            "pools": shared.work.pools.stats().iter().map(|one| pool_view(&shared, one))
                .collect::<Vec<_>>(),
            "alerts": shared.work.alerts.firing(),
            "scaling": scaling.iter().map(|one| scaling_view(&shared, one)).collect::<Vec<_>>(),
        });
        let pools = Event::default().event("pools").json_data(&pools).ok()?;
        let (polls, moved) = polls(&shared, moved);
        let polls = Event::default().event("polls").json_data(&polls).ok()?;
        let sessions = Event::default().event("sessions").json_data(sessions(&shared)).ok()?;
        let (routes, told) = super::proxy::live(&shared, told);
        let routes = Event::default().event("routes").json_data(&routes).ok()?;
        let (monitors, changed) = super::monitors::live(&shared, changed);
        let monitors = Event::default().event("monitors").json_data(&monitors).ok()?;
        let mut events = vec![overview, pools, polls, sessions, routes, monitors];
        if let Some(demo) = &shared.demo {
            let version = serde_json::json!({ "version": demo.story().0 });
            events.push(Event::default().event("demo").json_data(version).ok()?);
        }
        Some((stream::iter(events), (points, shared, seen, moved, told, changed)))
    })
    .flatten();
    event_stream(&shared, asker, events)
}

/// The polls of the last second: this node's, every node's share, and what changed hands.
fn polls(shared: &Shared, moved: u64) -> (serde_json::Value, u64) {
    let Some(fleet) = shared.fleet() else { return (serde_json::json!({}), moved) };
    let (moves, moved) = fleet.nodes.moves_after(KIND, moved);
    let moves: Vec<_> = moves
        .into_iter()
        .map(|(id, owner)| serde_json::json!({ "id": id, "owner": owner.as_deref() }))
        .collect();
    let value = serde_json::json!({
        "at_ms": now_ms(), "here": fleet.polls.now(), "point": fleet.polls.last_beat(),
        "nodes": fleet.nodes.overview(), "moves": moves,
    });
    (value, moved)
}

/// Sessions and workers of the installation, as this node last heard.
fn sessions(shared: &Shared) -> serde_json::Value {
    let Some(fleet) = shared.fleet() else { return serde_json::json!({}) };
    let kinds = fleet.sessions.kinds_heard();
    serde_json::json!({
        "at_ms": now_ms(), "open_here": fleet.sessions.open(),
        "kinds": kinds.iter().map(kind).collect::<Vec<_>>(),
    })
}

async fn describe(shared: &Shared, point: Point) -> Overview {
    let process = crate::node::process_now();
    Overview {
        // Before the first second is over there is no point yet.
        at: if point.at == 0 { now_ms() } else { point.at },
        node: NodeAnswer::of(shared).await,
        requests: Requests {
            per_second: point.per_second,
            errors_per_second: point.errors_per_second,
            p50_ms: point.p50_ms,
            p99_ms: point.p99_ms,
            in_flight: shared.traffic.in_flight(),
        },
        process: Process {
            resident_bytes: process.resident_bytes,
            threads: process.threads,
            open_files: process.open_files,
            cpu_percent: point.cpu_percent,
        },
    }
}

/// Sends `events` as they come, until they end, the node drains, or whoever listens may not be here
/// any more.
pub fn event_stream(
    shared: &Arc<Shared>,
    asker: Asker,
    events: impl Stream<Item = Event> + Send + 'static,
) -> Result<Response, Problem> {
    let most = shared.settings.api.streams_max;
    let Some(held) = shared.traffic.open_stream(most) else {
        let detail = format!("{most} streams are open, which is the limit");
        let problem = Problem::new(&problem::E_STREAMS_MAX, detail);
        return Err(problem.retry_after(Duration::from_secs(5)));
    };
    let mut state = shared.state.clone();
    let watched = shared.clone();
    let over = async move {
        tokio::select! {
            _ = state.wait_for(|state| *state == NodeState::Draining) => {}
            () = watched.access.until_refused(asker.caller.as_ref()) => {}
        }
    };
    // The place is held for as long as the stream is.
    let events = events.take_until(Box::pin(over)).map(move |event| {
        let _held = &held;
        Ok::<_, Infallible>(event)
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}
