//! The log of this node's process.

use super::live::event_stream;
use crate::http::extract::{Asker, Body, Parameters};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::logging::{Log, LogLine, log};
use crate::node::Shared;
use crate::settings::{LogLevel, Value};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream::{self, StreamExt};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const LINES_MAX: usize = 2_000;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(live))
        .routes(routes!(level, set_level))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Tail {
    /// So many lines at most; 500 if left out, 2000 at most.
    limit: Option<usize>,
    /// Only lines after this number.
    after: Option<u64>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct LogAnswer {
    /// Oldest first.
    lines: Vec<LogLine>,
}

/// A program that embeds a node may have a log of its own; then there is none to show.
fn the_log() -> Result<&'static Log, Problem> {
    log().ok_or_else(|| Problem::new(&problem::E_NOT_FOUND, "this process keeps no log of its own"))
}

/// The last lines of the log
#[utoipa::path(
    get, path = "/api/v1/log", tag = "log", extensions(("x-scope" = json!("admin"))),
    params(Tail), responses((status = 200, description = "The lines", body = LogAnswer))
)]
async fn list(Parameters(tail): Parameters<Tail>) -> Result<Json<LogAnswer>, Problem> {
    let limit = tail.limit.unwrap_or(500).clamp(1, LINES_MAX);
    Ok(Json(LogAnswer { lines: the_log()?.lines(tail.after.unwrap_or(0), limit) }))
}

/// New lines as they come, as server-sent events named `line`
#[utoipa::path(
    get, path = "/api/v1/log/live", tag = "log", extensions(("x-scope" = json!("admin"))),
    responses((status = 200, description = "A stream of lines; `Last-Event-ID` resumes it",
               content_type = "text/event-stream", body = LogLine))
)]
async fn live(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let log = the_log()?;
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let lines = log.listen();
    // What was missed meanwhile comes first; what both have is told apart by its number.
    let missed = resumed.map(|after: u64| log.lines(after, LINES_MAX)).unwrap_or_default();
    let last = missed.last().map(|line| line.seq).or(resumed).unwrap_or(0);
    let fresh = stream::unfold((lines, last), async |(mut lines, last)| {
        loop {
            match lines.recv().await {
                Ok(line) => {
                    let line = line.render();
                    if line.seq > last {
                        let seq = line.seq;
                        return Some((line, (lines, seq)));
                    }
                }
                // Too slow: what was missed is not worth holding up everybody for.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let all = stream::iter(missed).chain(fresh);
    event_stream(&shared, asker, all.filter_map(async |line| line_event(&line)))
}

fn line_event(line: &LogLine) -> Option<Event> {
    Event::default().event("line").id(line.seq.to_string()).json_data(line).ok()
}

/// Which lines are written.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct LevelBody {
    /// `error`, `warn`, `info`, `debug`, `trace` or `off`, also per module.
    #[schema(example = "info,skep_store=debug")]
    level: String,
}

/// Which lines are written now
#[utoipa::path(
    get, path = "/api/v1/log/level", tag = "log", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "The level", body = LevelBody))
)]
async fn level() -> Result<Json<LevelBody>, Problem> {
    Ok(Json(LevelBody { level: the_log()?.level().show() }))
}

/// Change which lines are written, until the process ends
#[utoipa::path(
    put, path = "/api/v1/log/level", tag = "log", extensions(("x-scope" = json!("admin"))),
    request_body = LevelBody,
    responses(
        (status = 200, description = "The level from now on", body = LevelBody),
        (status = 400, description = "It is not a level; nothing was changed", body = ProblemBody)
    )
)]
async fn set_level(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(body): Body<LevelBody>,
) -> Result<Json<LevelBody>, Problem> {
    let log = the_log()?;
    let level = LogLevel::parse(&body.level).map_err(|cause| {
        let detail = format!("{cause}; it must be {}", LogLevel::expected());
        Problem::field("level", detail)
    })?;
    let (database, address) = (shared.stores.database(), asker.address.to_string());
    let what = (shared.name.as_str(), body.level.as_str());
    log.set_level(level);
    shared.access.try_record(database, (&asker.known(), &address), "log.level", what).await;
    Ok(Json(body))
}
