//! What the selection would do, doing it by hand, and what if things were otherwise.

use super::{given, handle, note, of_model, of_offline, unknown, wrong};
use crate::http::extract::{Asker, Body, Segments};
use crate::http::problem::{self, Flaw, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use skep_monitors::flips::flips;
use skep_monitors::offline::{PlanDocument, Supposed, Totals, WhatIf, with_settings};
use skep_monitors::store::{Page, ServerFilter};
use skep_monitors::{Lens, Monitors, Noun, PlanError, PostedPlan, Server};
use skep_policy::explain::Kind;
use skep_policy::monitors::{Settings, explain};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Servers that one request plans for at most.
const SERVERS_MAX: u32 = 200;

/// The same if nothing is said.
const SERVERS: u32 = 100;

/// Plans that are applied with one request at most.
const PLANS_MAX: usize = 5_000;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(plan))
        .routes(routes!(apply))
        .routes(routes!(explain_one))
        .routes(routes!(what_if))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MonitorPlanBody)]
struct PlanBody {
    /// One server; else a page of all that are not paused.
    server: Option<String>,
    /// Settings that differ from the node's, by name.
    #[serde(default)]
    #[schema(value_type = Object)]
    settings: Map<String, Value>,
    /// Only servers after this one: the `next` of the page before.
    after: Option<String>,
    /// So many servers at most; 100 if left out, 200 at most.
    limit: Option<u32>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlansAnswer {
    /// A plan for each server, in the form that `apply` takes.
    #[schema(value_type = Vec<Object>)]
    pub plans: Vec<Value>,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
    /// The settings the plans were made under.
    #[schema(value_type = Object)]
    pub settings: Value,
}

/// What a review would do now; nothing is changed
#[utoipa::path(
    post, path = "/api/v1/monitoring/plan", tag = "monitors",
    extensions(("x-scope" = json!("read"))), request_body = PlanBody,
    responses((status = 200, description = "Plans, with every monitor's state and reason",
               body = PlansAnswer),
              (status = 400, description = "A setting is wrong", body = ProblemBody),
              (status = 404, description = "There is no such server", body = ProblemBody))
)]
async fn plan(
    State(shared): State<Arc<Shared>>,
    Body(body): Body<PlanBody>,
) -> Result<Json<PlansAnswer>, Problem> {
    let monitors = handle(&shared)?;
    let settings = settings_under(monitors, &body.settings)?;
    let mut lens = Lens::new(settings);
    let (servers, next) = match given(body.server) {
        Some(id) => {
            let server = monitors.server(&id).await?;
            (vec![server.ok_or_else(|| unknown(Noun::Server, &id))?], None)
        }
        None => page(monitors, body.after, body.limit).await?,
    };
    let mut plans = Vec::with_capacity(servers.len());
    for server in &servers {
        // It may have been deleted meanwhile.
        let Some(look) = monitors.look_through(server.number, &mut lens).await? else { continue };
        let plan = look.plan();
        let document = PlanDocument::new(&plan, &look.book.roster, &look.subject, look.now(), true);
        let mut value = json!(document);
        if let Some(fields) = value.as_object_mut() {
            fields.insert("index".to_owned(), look.index.into());
            fields.insert("roster_version".to_owned(), look.roster_version.into());
            fields.insert("made_at".to_owned(), look.now_ms.into());
        }
        plans.push(value);
    }
    Ok(Json(PlansAnswer { plans, next, settings: json!(settings) }))
}

fn settings_under(monitors: &Monitors, given: &Map<String, Value>) -> Result<Settings, Problem> {
    with_settings(monitors.settings(), given, "settings").map_err(|flaws| {
        let detail = flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let flaws = flaws.iter().map(of_offline).collect();
        Problem::new(&problem::E_FIELD_INVALID, detail).at("settings").flaws(flaws)
    })
}

/// Servers that are planned for, and the last of them if there are more.
async fn page(
    monitors: &Monitors,
    after: Option<String>,
    limit: Option<u32>,
) -> Result<(Vec<Server>, Option<String>), Problem> {
    let limit = match limit {
        None => SERVERS,
        Some(limit) if (1..=SERVERS_MAX).contains(&limit) => limit,
        Some(limit) => return Err(wrong("limit", &limit.to_string(), "from 1 to 200")),
    };
    let page = Page { after: given(after), limit, search: None };
    let found = monitors.servers(page, ServerFilter::default()).await?;
    let servers = found.rows.into_iter().filter(|server| !server.paused).collect();
    Ok((servers, found.next))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[schema(as = MonitorApplyBody)]
struct ApplyBody {
    /// Plans as `plan` gives them; of each `server`, `index`, `roster_version` and `changes` count.
    #[schema(value_type = Vec<Object>)]
    plans: Vec<Value>,
}

/// What was done for one server.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = MonitorPlanApplied)]
pub struct AppliedView {
    pub server: String,
    /// Monitors that became something else.
    pub changes: usize,
    /// The state of its assignments now.
    pub index: i64,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct AppliedAnswer {
    /// In the order of the plans.
    pub applied: Vec<AppliedView>,
}

/// Apply plans that were made from the present state
///
/// Servers are changed one after the other, each as a whole. At the first plan that cannot be
/// applied it ends; what was applied before stays, and `flaws` names it.
#[utoipa::path(
    post, path = "/api/v1/monitoring/apply", tag = "monitors",
    extensions(("x-scope" = json!("admin"))), request_body = ApplyBody,
    responses((status = 200, description = "All were applied", body = AppliedAnswer),
              (status = 400, description = "A plan is none", body = ProblemBody),
              (status = 404, description = "There is no such server", body = ProblemBody),
              (status = 409, description = "A plan was made from an older state",
               body = ProblemBody))
)]
async fn apply(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(body): Body<ApplyBody>,
) -> Result<Json<AppliedAnswer>, Problem> {
    let monitors = handle(&shared)?;
    if body.plans.len() > PLANS_MAX {
        let detail = format!("plans: {} are too many, send {PLANS_MAX} at most", body.plans.len());
        return Err(Problem::new(&problem::E_PLAN_INVALID, detail).at("plans"));
    }
    // All are read before the first is applied.
    let mut plans = Vec::with_capacity(body.plans.len());
    for (place, value) in body.plans.iter().enumerate() {
        plans.push(PostedPlan::parse(value, place).map_err(|flaws| invalid(&flaws, &[]))?);
    }
    let mut applied: Vec<AppliedView> = Vec::new();
    for plan in &plans {
        match monitors.apply_plan(plan).await {
            Ok(done) => {
                let text = format!("{} changes", done.changes);
                note(&shared, &asker, "monitors.apply", (&plan.server, &text)).await;
                let (server, changes, index) = (plan.server.clone(), done.changes, done.index);
                applied.push(AppliedView { server, changes, index });
            }
            Err(error) => return Err(refused(error, &applied)),
        }
    }
    Ok(Json(AppliedAnswer { applied }))
}

fn invalid(flaws: &[skep_monitors::Problem], applied: &[AppliedView]) -> Problem {
    let text = skep_monitors::Problem::all(flaws);
    let mut all: Vec<Flaw> = flaws.iter().map(|flaw| of_model(None, flaw)).collect();
    all.extend(done_before(applied));
    Problem::new(&problem::E_PLAN_INVALID, text).flaws(all)
}

fn done_before(applied: &[AppliedView]) -> impl Iterator<Item = Flaw> {
    applied.iter().enumerate().map(|(place, one)| Flaw {
        line: None,
        field: format!("plans[{place}]"),
        detail: format!("the plan of server {} stays applied: {} changes", one.server, one.changes),
    })
}

fn refused(error: PlanError, applied: &[AppliedView]) -> Problem {
    let text = error.to_string();
    let done = done_before(applied).collect();
    match error {
        PlanError::Invalid(flaws) => invalid(&flaws, applied),
        PlanError::Unknown(_) => Problem::new(&problem::E_SERVER_UNKNOWN, text).flaws(done),
        PlanError::Old { .. } => Problem::new(&problem::E_PLAN_OLD, text).flaws(done),
        PlanError::Store(error) => Problem::from(error).flaws(done),
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct ExplainAnswer {
    /// What `skep explain` takes.
    #[schema(example = "monitor:ntp-1/ams-3")]
    pub explain: String,
    /// Ranks, state, cause, measurements, violations, reason and what would change it.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub explained: Value,
    /// Since when it has its status.
    pub since: i64,
    /// The violation that the last review found, and since when it lasts.
    #[schema(value_type = Option<Object>)]
    pub violation: Option<Value>,
    /// Facts that would make it something else at the next review.
    #[schema(value_type = Vec<Object>)]
    pub would_flip: Value,
}

/// Why a monitor is to a server what it is, and what would change that
#[utoipa::path(
    get, path = "/api/v1/monitoring/explain/{server}/{monitor}", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    params(("server" = String, Path, description = "The server's id"),
           ("monitor" = String, Path, description = "The monitor's id")),
    responses((status = 200, description = "The same decision as a review's, in words",
               body = ExplainAnswer),
              (status = 404, description = "There is no such server or monitor, or they have \
               nothing to do with each other", body = ProblemBody))
)]
async fn explain_one(
    State(shared): State<Arc<Shared>>,
    Segments((server_id, monitor_id)): Segments<(String, String)>,
) -> Result<Json<ExplainAnswer>, Problem> {
    let monitors = handle(&shared)?;
    let server = monitors.server(&server_id).await?;
    let server = server.ok_or_else(|| unknown(Noun::Server, &server_id))?;
    let monitor = monitors.monitor(&monitor_id).await?;
    let monitor = monitor.ok_or_else(|| unknown(Noun::Monitor, &monitor_id))?;
    let look = monitors.look(server.number).await?;
    let look = look.ok_or_else(|| unknown(Noun::Server, &server_id))?;
    let apart = || {
        let detail = format!(
            "monitor {monitor_id:?} has nothing to do with server {server_id:?}: it was never \
             globally testing or active, or has another kind of address ({} and {})",
            monitor.ip, server.ip
        );
        Problem::new(&problem::E_MONITOR_UNKNOWN, detail)
    };
    let row = look.rows.iter().find(|row| row.monitor == monitor.number).ok_or_else(apart)?;
    let place = look.book.place(monitor.number).ok_or_else(apart)?;
    let (roster, plan) = (&look.book.roster, look.plan());
    let (subject, assignments) = (&look.subject, &look.assignments);
    let explained = explain(roster, subject, assignments, &plan, place).ok_or_else(apart)?;
    Ok(Json(ExplainAnswer {
        explain: Kind::Monitor.id(format!("{server_id}/{monitor_id}")),
        explained: json!(explained),
        since: row.status_since_ms,
        violation: row.violation.map(|(kind, since)| json!({ "kind": kind, "since": since })),
        would_flip: json!(flips(roster, subject, assignments, look.now(), &plan, place)),
    }))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct WhatIfAnswer {
    /// Only those for which something differs.
    #[schema(value_type = Vec<Object>)]
    pub servers: Vec<Value>,
    /// Servers that were looked at.
    pub compared: usize,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
    /// All servers of this page together.
    #[schema(value_type = Object)]
    pub totals: Value,
}

/// What the next reviews would do if settings, limits, accounts or monitors were otherwise
#[utoipa::path(
    post, path = "/api/v1/monitoring/what-if", tag = "monitors",
    extensions(("x-scope" = json!("read"))), request_body = Object,
    responses((status = 200, description = "The difference for a page of servers; nothing is \
               changed", body = WhatIfAnswer),
              (status = 400, description = "Something in it is wrong or unknown",
               body = ProblemBody))
)]
async fn what_if(
    State(shared): State<Arc<Shared>>,
    Body(mut body): Body<Value>,
) -> Result<Json<WhatIfAnswer>, Problem> {
    let monitors = handle(&shared)?;
    let mut take = |name: &str| body.as_object_mut().and_then(|fields| fields.remove(name));
    let (after, limit) = (take("after"), take("limit"));
    let after = match after {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text),
        Some(other) => return Err(wrong("after", &other.to_string(), "the id of a server")),
    };
    let limit = match &limit {
        None | Some(Value::Null) => None,
        Some(other) => match other.as_u64().and_then(|limit| u32::try_from(limit).ok()) {
            Some(limit) => Some(limit),
            None => return Err(wrong("limit", &other.to_string(), "from 1 to 200")),
        },
    };
    let wish = WhatIf::parse(&body).map_err(|flaws| supposition_flaws(&flaws))?;
    let (servers, next) = page(monitors, after, limit).await?;
    let mut supposed: Option<(i64, Supposed)> = None;
    let (mut differ, mut totals, mut compared) = (Vec::new(), Totals::default(), 0);
    if servers.is_empty() {
        // What is wrong with it is told all the same.
        let book = monitors.latest_book().await?;
        wish.suppose(&book.roster).map_err(|flaws| supposition_flaws(&flaws))?;
    }
    for server in &servers {
        let Some(look) = monitors.look(server.number).await? else { continue };
        let version = look.book.version;
        if supposed.as_ref().is_none_or(|(made, _)| *made != version) {
            let made = wish.suppose(&look.book.roster);
            supposed = Some((version, made.map_err(|flaws| supposition_flaws(&flaws))?));
        }
        let Some((_, supposed)) = &supposed else { continue };
        let roster = &look.book.roster;
        let difference = supposed.compare(roster, &look.subject, &look.assignments, look.now());
        totals.add(&difference, supposed, monitors.settings());
        compared += 1;
        if !difference.is_empty() {
            differ.push(json!(difference));
        }
    }
    Ok(Json(WhatIfAnswer { servers: differ, compared, next, totals: json!(totals) }))
}

fn supposition_flaws(flaws: &[skep_monitors::offline::Flaw]) -> Problem {
    let detail = flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Problem::new(&problem::E_FIELD_INVALID, detail).flaws(flaws.iter().map(of_offline).collect())
}
