//! What agents ask and say: what to measure, and what came of it.

use super::views::ProbeView;
use super::{given, handle, unknown};
use crate::access::{Scope, Who};
use crate::http::extract::{Asker, Body, Parameters};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use skep_monitors::{Measurement, Monitor, Noun, REPORTS_MAX};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(assignments)).routes(routes!(results))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichMonitor {
    /// The monitor, where the key does not say: for admins, and while there are no keys.
    monitor: Option<String>,
}

/// The monitor that asks: the one whose key it is, or the one that an admin names.
async fn asking(shared: &Shared, asker: &Asker, which: WhichMonitor) -> Result<Monitor, Problem> {
    let (monitors, caller) = (handle(shared)?, asker.known());
    let named = given(which.monitor);
    if let Who::Key { id, .. } = &caller.who
        && let Some(monitor) = monitors.monitor_of_key(id).await?
    {
        return match named {
            Some(other) if other != monitor.id && !caller.scopes.allow(Scope::Admin) => {
                let detail =
                    format!("the key is that of monitor {:?}, not of {other:?}", monitor.id);
                Err(Problem::new(&problem::E_AGENT_UNBOUND, detail).at("monitor"))
            }
            Some(other) if other != monitor.id => find(shared, &other).await,
            _ => Ok(monitor),
        };
    }
    match named {
        Some(id) if caller.scopes.allow(Scope::Admin) => find(shared, &id).await,
        None if caller.scopes.allow(Scope::Admin) => {
            let detail = "name the monitor with `?monitor=ID`: this is not the key of one";
            Err(Problem::new(&problem::E_QUERY_INVALID, detail).at("monitor"))
        }
        _ => {
            let detail = "make one for the monitor with `skep monitors key ID`";
            Err(Problem::new(&problem::E_AGENT_UNBOUND, detail))
        }
    }
}

async fn find(shared: &Shared, id: &str) -> Result<Monitor, Problem> {
    let found = handle(shared)?.monitor(id).await?;
    found.ok_or_else(|| unknown(Noun::Monitor, id))
}

/// A server to measure.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = AgentServer)]
pub struct ServerToMeasure {
    pub server: String,
    /// What the monitor is to it: `candidate`, `testing` or `active`.
    pub status: String,
    /// How often.
    pub interval_ms: u64,
    pub probe: ProbeView,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = AgentAssignments)]
pub struct AgentAnswer {
    /// Who asks.
    pub monitor: String,
    /// What the network as a whole thinks of it; one that is paused measures nothing.
    pub status: String,
    /// Changes whenever the answer does; it is the `ETag` too.
    pub version: String,
    pub servers: Vec<ServerToMeasure>,
    /// When to ask again.
    pub refresh_ms: u64,
}

/// What a monitor has to measure
#[utoipa::path(
    get, path = "/api/v1/agent/assignments", tag = "monitors",
    extensions(("x-scope" = json!("agent"))), params(WhichMonitor),
    responses(
        (status = 200, description = "The servers, with an `ETag`", body = AgentAnswer),
        (status = 304, description = "Nothing has changed since the `ETag` in `If-None-Match`"),
        (status = 403, description = "The key belongs to no monitor", body = ProblemBody),
        (status = 404, description = "There is no such monitor", body = ProblemBody)
    )
)]
async fn assignments(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    headers: HeaderMap,
    Parameters(which): Parameters<WhichMonitor>,
) -> Result<Response, Problem> {
    let monitor = asking(&shared, &asker, which).await?;
    let monitors = handle(&shared)?;
    let counts_as = monitors.latest_book().await?.status_of(&monitor);
    let version = monitors.work_version(&monitor, counts_as);
    let tag = format!("\"{version}\"");
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)
    });
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let work = monitors.work_of(&monitor, counts_as).await?;
        let servers = work.into_iter().map(|one| ServerToMeasure {
            server: one.server.id,
            status: one.status.to_string(),
            interval_ms: u64::try_from(one.every.as_millis()).unwrap_or(u64::MAX),
            probe: ProbeView::of(&one.server.probe),
        });
        let answer = AgentAnswer {
            monitor: monitor.id.clone(),
            status: counts_as.to_string(),
            version,
            servers: servers.collect(),
            refresh_ms: u64::try_from(monitors.work_refresh().as_millis()).unwrap_or(u64::MAX),
        };
        Json(answer).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AgentReport)]
struct ReportBody {
    /// The version of the agent, for people.
    #[serde(default)]
    agent: Option<String>,
    /// At most 1000.
    #[schema(value_type = Vec<Object>)]
    results: Vec<Measurement>,
}

/// A result that was not taken.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = AgentRefusal)]
pub struct RefusalView {
    pub server: String,
    pub at: i64,
    /// Why; sending it again will not help.
    pub reason: String,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = AgentReportAnswer)]
pub struct ReportAnswer {
    /// Results that were new.
    pub accepted: u64,
    /// Results that were there already: a batch may be sent again.
    pub known: u64,
    pub refused: Vec<RefusalView>,
}

/// Report what was measured; the same batch may be sent again
///
/// A result is `{"server", "at", "rtt_ms"?, "offset_ms"?, "error"?}`: `at` in milliseconds since
/// 1970, `error` only where there was no good answer; one that begins with `wrong` says that there
/// was an answer and it was wrong.
#[utoipa::path(
    post, path = "/api/v1/agent/results", tag = "monitors",
    extensions(("x-scope" = json!("agent"))), params(WhichMonitor), request_body = ReportBody,
    responses(
        (status = 200, description = "What became of each", body = ReportAnswer),
        (status = 400, description = "It is no report", body = ProblemBody),
        (status = 403, description = "The key belongs to no monitor", body = ProblemBody),
        (status = 404, description = "There is no such monitor", body = ProblemBody)
    )
)]
async fn results(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Parameters(which): Parameters<WhichMonitor>,
    Body(body): Body<ReportBody>,
) -> Result<Json<ReportAnswer>, Problem> {
    if body.results.len() > REPORTS_MAX {
        let count = body.results.len();
        let detail = format!("results: {count} are too many, send {REPORTS_MAX} at most");
        return Err(Problem::field("results", detail));
    }
    let monitor = asking(&shared, &asker, which).await?;
    let scored = handle(&shared)?.report(&monitor, body.agent, body.results).await?;
    let refused = scored.refused.into_iter().map(|one| RefusalView {
        server: one.server,
        at: one.at_ms,
        reason: one.reason.to_owned(),
    });
    let (accepted, known) = (scored.accepted, scored.known);
    Ok(Json(ReportAnswer { accepted, known, refused: refused.collect() }))
}
