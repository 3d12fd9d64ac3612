//! Servers: those that are watched.

use super::monitor::{Before, ChangesAnswer};
use super::views::{AssignmentView, SampleView, ServerView, StandingView, ViolationView};
use super::{given, handle, note, page_size, unknown, with_id, wrong};
use crate::http::extract::{Asker, Body, Parameters, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skep_monitors::offline::PlanDocument;
use skep_monitors::store::{HistoryOf, ServerFilter};
use skep_monitors::{Look, Monitors, Noun, Server};
use skep_policy::monitors::{Plan, explain};
use std::collections::HashMap;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, replace, delete))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(review))
        .routes(routes!(watched_by))
        .routes(routes!(samples))
        .routes(routes!(history))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ServersPage {
    /// Only ids, addresses and targets that contain this; capitals make no difference.
    search: Option<String>,
    /// Only those of this account.
    account: Option<String>,
    /// `below_target`: only those with fewer active monitors than they should have.
    state: Option<String>,
    /// Only ids after this one: the `next` of the page before.
    after: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServersAnswer {
    /// By id.
    pub servers: Vec<ServerView>,
    /// How many the filter lets through.
    pub total: u64,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
}

/// Servers by id
#[utoipa::path(
    get, path = "/api/v1/servers", tag = "monitors", extensions(("x-scope" = json!("read"))),
    params(ServersPage),
    responses((status = 200, description = "A page", body = ServersAnswer),
              (status = 400, description = "A filter is wrong", body = ProblemBody))
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<ServersPage>,
) -> Result<Json<ServersAnswer>, Problem> {
    let monitors = handle(&shared)?;
    let below = match given(page.state).as_deref() {
        None => None,
        Some("below_target") => Some(monitors.settings().target_active),
        Some(other) => return Err(wrong("state", other, "below_target, or be left out")),
    };
    let filter = ServerFilter { account: given(page.account), below };
    let page = super::page(page.search, page.after, page.limit)?;
    let found = monitors.servers(page, filter).await?;
    let numbers: Vec<i64> = found.rows.iter().map(|server| server.number).collect();
    let scores = monitors.scores(numbers).await?;
    let settings = monitors.settings();
    let views = found.rows.iter().zip(scores);
    let servers = views.map(|(server, score)| ServerView::of(server, score, settings)).collect();
    Ok(Json(ServersAnswer { servers, total: found.total, next: found.next }))
}

/// Add a server
#[utoipa::path(
    post, path = "/api/v1/servers", tag = "monitors", extensions(("x-scope" = json!("admin"))),
    request_body = Object,
    responses(
        (status = 201, description = "Every monitor of its address family is a candidate for it",
         body = ServerView),
        (status = 400, description = "It is not a server; every flaw is named",
         body = ProblemBody),
        (status = 404, description = "There is no such account", body = ProblemBody),
        (status = 409, description = "There is one with this id, or there are too many",
         body = ProblemBody)
    )
)]
async fn create(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(body): Body<Value>,
) -> Result<(StatusCode, Json<ServerView>), Problem> {
    let monitors = handle(&shared)?;
    let server = monitors.create_server(&body).await?;
    note(&shared, &asker, "servers.create", (&server.id, &server.ip.to_string())).await;
    Ok((StatusCode::CREATED, Json(ServerView::of(&server, None, monitors.settings()))))
}

async fn find(monitors: &Monitors, id: &str) -> Result<Server, Problem> {
    monitors.server(id).await?.ok_or_else(|| unknown(Noun::Server, id))
}

async fn view(monitors: &Monitors, server: &Server) -> Result<ServerView, Problem> {
    let score = monitors.scores(vec![server.number]).await?.pop().flatten();
    Ok(ServerView::of(server, score, monitors.settings()))
}

/// One server
#[utoipa::path(
    get, path = "/api/v1/servers/{id}", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The server", body = ServerView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    Segments(id): Segments<String>,
) -> Result<Json<ServerView>, Problem> {
    let monitors = handle(&shared)?;
    let server = find(monitors, &id).await?;
    view(monitors, &server).await.map(Json)
}

/// Replace a server; whether it is paused stays if that is left out
#[utoipa::path(
    put, path = "/api/v1/servers/{id}", tag = "monitors",
    extensions(("x-scope" = json!("admin"))), request_body = Object,
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "It is watched like that from now on", body = ServerView),
        (status = 400, description = "It is not a server", body = ProblemBody),
        (status = 404, description = "There is none, or no such account", body = ProblemBody)
    )
)]
async fn replace(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
    Body(body): Body<Value>,
) -> Result<Json<ServerView>, Problem> {
    let monitors = handle(&shared)?;
    let server = monitors.replace_server(&with_id(body, &id)?).await?;
    note(&shared, &asker, "servers.replace", (&id, &server.ip.to_string())).await;
    view(monitors, &server).await.map(Json)
}

/// Delete a server with everything measured about it
#[utoipa::path(
    delete, path = "/api/v1/servers/{id}", tag = "monitors",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is gone"),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    handle(&shared)?.delete_server(&id).await?;
    note(&shared, &asker, "servers.delete", (&id, "")).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Leave a server alone for now: neither measured nor reviewed
#[utoipa::path(
    post, path = "/api/v1/servers/{id}/pause", tag = "monitors",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "It is left alone", body = ServerView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn pause(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<Json<ServerView>, Problem> {
    set_paused(&shared, &asker, &id, true).await
}

/// Watch a server again
#[utoipa::path(
    post, path = "/api/v1/servers/{id}/resume", tag = "monitors",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "It is watched again", body = ServerView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn resume(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<Json<ServerView>, Problem> {
    set_paused(&shared, &asker, &id, false).await
}

async fn set_paused(
    shared: &Shared,
    asker: &Asker,
    id: &str,
    paused: bool,
) -> Result<Json<ServerView>, Problem> {
    let monitors = handle(shared)?;
    let server = monitors.set_server_paused(id, paused).await?;
    note(shared, asker, if paused { "servers.pause" } else { "servers.resume" }, (id, "")).await;
    view(monitors, &server).await.map(Json)
}

/// Review a server in a moment, although it is not due
#[utoipa::path(
    post, path = "/api/v1/servers/{id}/review", tag = "monitors",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 202, description = "It is due now", body = ServerView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn review(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<(StatusCode, Json<ServerView>), Problem> {
    let monitors = handle(&shared)?;
    let server = monitors.review_soon(&id).await?;
    note(&shared, &asker, "servers.review", (&id, "")).await;
    Ok((StatusCode::ACCEPTED, Json(view(monitors, &server).await?)))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServerMonitorsAnswer {
    pub server: ServerView,
    /// The state of its assignments; a plan names the one it was made from.
    pub index: i64,
    /// The state of accounts and monitors.
    pub roster_version: i64,
    pub reviewed_at: Option<i64>,
    /// What a review would do now, and what it finds about every monitor.
    #[schema(value_type = Object)]
    pub plan: Value,
    /// In the order of their ranks, the best first.
    pub assignments: Vec<AssignmentView>,
}

/// A server's monitors, and why each is where it is
#[utoipa::path(
    get, path = "/api/v1/servers/{id}/monitors", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "All of them", body = ServerMonitorsAnswer),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn watched_by(
    State(shared): State<Arc<Shared>>,
    Segments(id): Segments<String>,
) -> Result<Json<ServerMonitorsAnswer>, Problem> {
    let monitors = handle(&shared)?;
    let server = find(monitors, &id).await?;
    let look = monitors.look(server.number).await?;
    let look = look.ok_or_else(|| unknown(Noun::Server, &id))?;
    let score = monitors.scores(vec![look.server.number]).await?.pop().flatten();
    let plan = look.plan();
    let (roster, now) = (&look.book.roster, look.now());
    Ok(Json(ServerMonitorsAnswer {
        server: ServerView::of(&look.server, score, monitors.settings()),
        index: look.index,
        roster_version: look.roster_version,
        reviewed_at: look.server.review.last_at_ms,
        plan: json!(PlanDocument::new(&plan, roster, &look.subject, now, true)),
        assignments: standings(&look, &plan),
    }))
}

/// Every assignment with how it stands, the best first.
fn standings(look: &Look, plan: &Plan) -> Vec<AssignmentView> {
    let roster = &look.book.roster;
    let rows: HashMap<u32, usize> =
        (0..).zip(&look.assignments).map(|(row, one)| (one.monitor, row)).collect();
    let stands = plan.verdicts.iter().filter_map(|verdict| {
        let row = *rows.get(&verdict.monitor)?;
        let own = std::slice::from_ref(&look.assignments[row]);
        let explained = explain(roster, &look.subject, own, plan, verdict.monitor)?;
        let (monitor, measured) = (roster.monitor(verdict.monitor), &explained.measured);
        let violation = explained.violations.first().map(|one| ViolationView {
            kind: one.kind.as_str().to_owned(),
            since: one.since.and_then(|since| i64::try_from(since.as_millis()).ok()),
            peer: one.peer.as_ref().map(ToString::to_string),
            account: one.account.as_ref().map(ToString::to_string),
        });
        let standing = StandingView {
            rank: explained.rank,
            state: explained.state.as_str().to_owned(),
            health: json!(measured.health).as_str().unwrap_or_default().to_owned(),
            healthy: measured.is_healthy(),
            priority: measured.priority,
            step: f64::from(measured.step),
            rtt_ms: f64::from(measured.rtt_ms),
            count: measured.count,
            becomes: explained.becomes.to_string(),
            cause: explained.cause,
            reason: explained.reason,
            would_change: explained.would_change,
        };
        Some(AssignmentView {
            account: monitor.account.as_ref().map(ToString::to_string),
            violation,
            standing: Some(standing),
            ..AssignmentView::of(&look.rows[row], &look.server.id, &monitor.id.to_string())
        })
    });
    stands.collect()
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SamplesPage {
    /// Only those of this monitor.
    monitor: Option<String>,
    /// Only those before this time, in milliseconds since 1970.
    before: Option<i64>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct SamplesAnswer {
    /// The newest first.
    pub samples: Vec<SampleView>,
    /// What to send as `before` for the next page; nothing if this is the last.
    pub next: Option<i64>,
}

/// What monitors measured at a server
#[utoipa::path(
    get, path = "/api/v1/servers/{id}/samples", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id"), SamplesPage),
    responses((status = 200, description = "Samples", body = SamplesAnswer),
              (status = 404, description = "There is no such server or monitor",
               body = ProblemBody))
)]
async fn samples(
    State(shared): State<Arc<Shared>>,
    Segments(id): Segments<String>,
    Parameters(page): Parameters<SamplesPage>,
) -> Result<Json<SamplesAnswer>, Problem> {
    let limit = page_size(page.limit)?;
    let monitors = handle(&shared)?;
    let server = find(monitors, &id).await?;
    let monitor = match given(page.monitor) {
        None => None,
        Some(id) => {
            let found = monitors.monitor(&id).await?;
            Some(found.ok_or_else(|| unknown(Noun::Monitor, &id))?.number)
        }
    };
    let found = monitors.samples(server.number, monitor, page.before, limit).await?;
    let book = monitors.latest_book().await?;
    let name = |number: i64| book.place(number).map_or(String::new(), |place| book.name(place));
    let samples = found.iter().map(|row| SampleView::of(row, name(row.monitor))).collect();
    let next = found.last().filter(|_| found.len() == limit as usize).map(|row| row.at_ms);
    Ok(Json(SamplesAnswer { samples, next }))
}

/// What became of a server's monitors, and why
#[utoipa::path(
    get, path = "/api/v1/servers/{id}/history", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id"), Before),
    responses((status = 200, description = "Its changes", body = ChangesAnswer),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn history(
    State(shared): State<Arc<Shared>>,
    Segments(id): Segments<String>,
    Parameters(page): Parameters<Before>,
) -> Result<Json<ChangesAnswer>, Problem> {
    let limit = page_size(page.limit)?;
    let monitors = handle(&shared)?;
    let of = HistoryOf::Server(find(monitors, &id).await?.number);
    let found = monitors.history(of, page.before, limit).await?;
    Ok(Json(ChangesAnswer::of(&found, limit)))
}
