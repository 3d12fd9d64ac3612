//! Monitors: those that measure.

use super::views::{AssignmentView, ChangeView, MonitorView};
use super::{given, handle, label, note, page_size, unknown, with_id, wrong};
use crate::access::{NewKey, Scope, Scopes};
use crate::http::extract::{Asker, Body, Parameters, Segments};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skep_monitors::store::{HistoryOf, MonitorFilter};
use skep_monitors::{HistoryRow, Monitor, Noun};
use skep_policy::monitors::GlobalStatus;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, replace, delete))
        .routes(routes!(assignments))
        .routes(routes!(set_status))
        .routes(routes!(new_key))
        .routes(routes!(history))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct MonitorsPage {
    /// Only ids and addresses that contain this; capitals make no difference.
    search: Option<String>,
    /// Only those of this account.
    account: Option<String>,
    /// Only those with this global status.
    status: Option<String>,
    /// A label as in `region`, or with its value as in `region=eu`.
    label: Option<String>,
    /// Only ids after this one: the `next` of the page before.
    after: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct MonitorsAnswer {
    /// By id.
    pub monitors: Vec<MonitorView>,
    /// How many the filter lets through.
    pub total: u64,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
}

/// Monitors by id
#[utoipa::path(
    get, path = "/api/v1/monitors", tag = "monitors", extensions(("x-scope" = json!("read"))),
    params(MonitorsPage),
    responses((status = 200, description = "A page", body = MonitorsAnswer),
              (status = 400, description = "A filter is wrong", body = ProblemBody))
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<MonitorsPage>,
) -> Result<Json<MonitorsAnswer>, Problem> {
    let status = given(page.status).map(|text| status_of(&text)).transpose();
    let status = status.map_err(|text| wrong("status", &text, STATUSES))?;
    let label = given(page.label).map(label);
    let filter = MonitorFilter { account: given(page.account), status, label };
    let page = super::page(page.search, page.after, page.limit)?;
    let monitors = handle(&shared)?;
    let (found, book) = (monitors.monitors(page, filter).await?, monitors.latest_book().await?);
    let views = found.rows.iter().map(|one| MonitorView::of(one, book.status_of(one))).collect();
    Ok(Json(MonitorsAnswer { monitors: views, total: found.total, next: found.next }))
}

const STATUSES: &str = "pending, testing, active, paused or deleted";

fn status_of(text: &str) -> Result<GlobalStatus, String> {
    text.parse().map_err(|_| text.to_owned())
}

/// A monitor that was just made, or got a new key.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct MonitorKeyAnswer {
    #[serde(flatten)]
    pub monitor: MonitorView,
    /// The key its agent reports with; told here and never again. Nothing if none was made.
    pub key: Option<String>,
}

/// Add a monitor, with a key for its agent
///
/// `"key": false` in the body makes no key. While the installation has no key at all none is made
/// either: the first key ends the trust in the machine the node runs on.
#[utoipa::path(
    post, path = "/api/v1/monitors", tag = "monitors", extensions(("x-scope" = json!("admin"))),
    request_body = Object,
    responses(
        (status = 201, description = "It is there, a candidate for every server of its address \
         family if it is globally testing or active", body = MonitorKeyAnswer),
        (status = 400, description = "It is not a monitor; every flaw is named",
         body = ProblemBody),
        (status = 404, description = "There is no such account", body = ProblemBody),
        (status = 409, description = "There is one with this id, or its account may have no more",
         body = ProblemBody)
    )
)]
async fn create(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(mut body): Body<Value>,
) -> Result<(StatusCode, Json<MonitorKeyAnswer>), Problem> {
    let wish = wants_key(&mut body)?;
    if wish == Some(true) {
        check_guarded(&shared)?;
    }
    let monitor = handle(&shared)?.create_monitor(&body).await?;
    note(&shared, &asker, "monitors.create", (&monitor.id, monitor.status.as_str())).await;
    let key = match wish.unwrap_or(is_guarded(&shared)) {
        true => Some(make_key(&shared, &asker, &monitor).await?),
        false => None,
    };
    let monitor = view(&shared, &find(&shared, &monitor.id).await?).await?;
    Ok((StatusCode::CREATED, Json(MonitorKeyAnswer { monitor, key })))
}

/// Takes the wish for a key out of a body.
fn wants_key(body: &mut Value) -> Result<Option<bool>, Problem> {
    match body.as_object_mut().and_then(|fields| fields.remove("key")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(wish)) => Ok(Some(wish)),
        Some(other) => Err(Problem::field("key", format!("key is {other}; give true or false"))),
    }
}

/// Whether there are keys, so that one more changes nothing for others.
fn is_guarded(shared: &Shared) -> bool {
    shared.access.ring().is_some_and(|ring| !ring.is_empty())
}

fn check_guarded(shared: &Shared) -> Result<(), Problem> {
    if is_guarded(shared) {
        return Ok(());
    }
    let detail = "this installation has no key yet, and its first one ends the trust in this \
                  machine: make one for yourself before, with `skep keys add --name admin \
                  --scopes admin`";
    Err(Problem::field("key", detail))
}

/// Makes a key for a monitor's agent; the one it had is revoked.
async fn make_key(shared: &Shared, asker: &Asker, monitor: &Monitor) -> Result<String, Problem> {
    let (database, address) = (shared.stores.database(), asker.address.to_string());
    let new = NewKey {
        name: format!("monitor {}", monitor.id),
        scopes: Scopes::new(vec![Scope::Agent]),
        lasts: None,
    };
    let (info, secret) = shared.access.create(database, new, &asker.known(), &address).await?;
    let set = handle(shared)?.set_monitor_key(&monitor.id, Some(info.id.clone())).await;
    let unused = match &set {
        Ok(before) => before.clone(),
        Err(_) => Some(info.id),
    };
    if let Some(unused) = unused {
        shared.access.revoke(database, &unused, &asker.known(), &address).await?;
    }
    set?;
    Ok(secret.reveal())
}

/// One monitor
#[utoipa::path(
    get, path = "/api/v1/monitors/{id}", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The monitor", body = MonitorView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    Segments(id): Segments<String>,
) -> Result<Json<MonitorView>, Problem> {
    view(&shared, &find(&shared, &id).await?).await.map(Json)
}

async fn view(shared: &Shared, monitor: &Monitor) -> Result<MonitorView, Problem> {
    let book = handle(shared)?.latest_book().await?;
    Ok(MonitorView::of(monitor, book.status_of(monitor)))
}

async fn find(shared: &Shared, id: &str) -> Result<Monitor, Problem> {
    let found = handle(shared)?.monitor(id).await?;
    found.ok_or_else(|| unknown(Noun::Monitor, id))
}

/// Replace a monitor; a status that is left out stays
#[utoipa::path(
    put, path = "/api/v1/monitors/{id}", tag = "monitors",
    extensions(("x-scope" = json!("admin"))), request_body = Object,
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "It is like that from now on", body = MonitorView),
        (status = 400, description = "It is not a monitor", body = ProblemBody),
        (status = 404, description = "There is none, or no such account", body = ProblemBody),
        (status = 409, description = "Its new account may have no more", body = ProblemBody)
    )
)]
async fn replace(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
    Body(body): Body<Value>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = handle(&shared)?.replace_monitor(&with_id(body, &id)?).await?;
    note(&shared, &asker, "monitors.replace", (&id, monitor.status.as_str())).await;
    view(&shared, &monitor).await.map(Json)
}

/// Delete a monitor; its key is revoked at once, and the next reviews take it off its servers
#[utoipa::path(
    delete, path = "/api/v1/monitors/{id}", tag = "monitors",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is gone, or will be once no server needs it"),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    let monitor = handle(&shared)?.delete_monitor(&id).await?;
    if let Some(key) = &monitor.key_id {
        let (database, address) = (shared.stores.database(), asker.address.to_string());
        shared.access.revoke(database, key, &asker.known(), &address).await?;
    }
    note(&shared, &asker, "monitors.delete", (&id, "")).await;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AssignmentsPage {
    /// Only those of servers after this one: the `next` of the page before.
    after: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct AssignmentsAnswer {
    /// By server.
    pub assignments: Vec<AssignmentView>,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
}

/// What a monitor is to its servers
#[utoipa::path(
    get, path = "/api/v1/monitors/{id}/assignments", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id"), AssignmentsPage),
    responses((status = 200, description = "A page", body = AssignmentsAnswer),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn assignments(
    State(shared): State<Arc<Shared>>,
    Segments(id): Segments<String>,
    Parameters(page): Parameters<AssignmentsPage>,
) -> Result<Json<AssignmentsAnswer>, Problem> {
    let limit = page_size(page.limit)?;
    let monitor = find(&shared, &id).await?;
    let after = given(page.after);
    let found = handle(&shared)?.assignments_of(monitor.number, after, limit).await?;
    let next = found.last().filter(|_| found.len() == limit as usize);
    let next = next.map(|(server, _)| server.id.clone());
    let view = |(server, row): &(skep_monitors::Server, skep_monitors::AssignmentRow)| {
        let view = AssignmentView::of(row, &server.id, &monitor.id);
        AssignmentView { account: monitor.account.clone(), ..view }
    };
    Ok(Json(AssignmentsAnswer { assignments: found.iter().map(view).collect(), next }))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MonitorStatusBody)]
struct StatusBody {
    /// `pending`, `testing`, `active`, `paused` or `deleted`.
    status: String,
}

/// Set what the network as a whole thinks of a monitor: pause, resume, approve
#[utoipa::path(
    post, path = "/api/v1/monitors/{id}/status", tag = "monitors",
    extensions(("x-scope" = json!("admin"))), request_body = StatusBody,
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "It is like that from now on", body = MonitorView),
              (status = 400, description = "There is no such status", body = ProblemBody),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn set_status(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
    Body(body): Body<StatusBody>,
) -> Result<Json<MonitorView>, Problem> {
    let status = status_of(&body.status).map_err(|text| {
        let shown = skep_monitors::model::cut(&text, 60);
        let detail = format!("status: {shown:?} is not a status; give {STATUSES}");
        Problem::new(&problem::E_MONITOR_INVALID, detail).at("status")
    })?;
    let monitor = handle(&shared)?.set_monitor_status(&id, status).await?;
    note(&shared, &asker, "monitors.status", (&id, status.as_str())).await;
    view(&shared, &monitor).await.map(Json)
}

/// Make a new key for a monitor's agent; the one it had is revoked
#[utoipa::path(
    post, path = "/api/v1/monitors/{id}/key", tag = "monitors",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 201, description = "The key, this once", body = MonitorKeyAnswer),
              (status = 400, description = "The installation has no key yet", body = ProblemBody),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn new_key(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<(StatusCode, Json<MonitorKeyAnswer>), Problem> {
    let monitor = find(&shared, &id).await?;
    check_guarded(&shared)?;
    let key = Some(make_key(&shared, &asker, &monitor).await?);
    note(&shared, &asker, "monitors.key", (&id, "")).await;
    let monitor = view(&shared, &find(&shared, &id).await?).await?;
    Ok((StatusCode::CREATED, Json(MonitorKeyAnswer { monitor, key })))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Before {
    /// Only older ones than the one with this id: that of the last one of the page before.
    pub before: Option<i64>,
    /// So many at most; 100 if left out, 1000 at most.
    pub limit: Option<u32>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChangesAnswer {
    /// The newest first.
    pub changes: Vec<ChangeView>,
    /// What to send as `before` for the next page; nothing if this is the last.
    pub next: Option<i64>,
}

impl ChangesAnswer {
    pub fn of(rows: &[HistoryRow], limit: u32) -> Self {
        let full = rows.len() == limit as usize;
        let next = rows.last().filter(|_| full).map(|row| row.id);
        ChangesAnswer { changes: rows.iter().map(ChangeView::of).collect(), next }
    }
}

/// What became of a monitor, and why
#[utoipa::path(
    get, path = "/api/v1/monitors/{id}/history", tag = "monitors",
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
    let of = HistoryOf::Monitor(find(&shared, &id).await?.number);
    let found = handle(&shared)?.history(of, page.before, limit).await?;
    Ok(Json(ChangesAnswer::of(&found, limit)))
}
