//! The fleet at a glance.

use super::handle;
use super::views::ChangeView;
use crate::access::now_ms;
use crate::http::problem::Problem;
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skep_policy::monitors::{GlobalStatus, Status};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Changes are counted for so long,
const CHURN_MS: i64 = 24 * 3_600_000;
/// in pieces of this length.
const CHURN_BUCKET_MS: i64 = 900_000;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(overview))
}

/// Servers, by how they are.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = MonitoredServers)]
pub struct ServersNow {
    pub total: u64,
    pub paused: u64,
    /// Fewer active monitors than they should have; paused ones left out.
    pub below_target: u64,
    /// Never reviewed yet.
    pub unreviewed: u64,
}

/// Reviews.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = MonitorReviews)]
pub struct ReviewsNow {
    /// Servers that are due now.
    pub due: u64,
    /// Reviews of this node since it started.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
}

/// Changes in a quarter of an hour.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = MonitorChurn)]
pub struct ChurnView {
    /// When it began.
    pub at: i64,
    pub changes: u64,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct MonitorsOverview {
    pub accounts: u64,
    /// By global status.
    pub monitors: BTreeMap<String, u64>,
    pub servers: ServersNow,
    /// By status.
    pub assignments: BTreeMap<String, u64>,
    /// The last day, the oldest first; quarters of an hour without a change are left out.
    pub churn: Vec<ChurnView>,
    pub reviews: ReviewsNow,
    /// By which numbers monitors are selected; spans in seconds.
    #[schema(value_type = Object)]
    pub settings: Value,
    /// How the fleet was lately: a point in ten seconds, an hour at most, the oldest first.
    #[schema(value_type = Vec<Object>)]
    pub points: Vec<Value>,
}

/// The fleet: servers below target, churn, reviews
#[utoipa::path(
    get, path = "/api/v1/monitors/overview", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Counts and plots", body = MonitorsOverview))
)]
async fn overview(State(shared): State<Arc<Shared>>) -> Result<Json<MonitorsOverview>, Problem> {
    let monitors = handle(&shared)?;
    let fleet = monitors.fleet().await?;
    let since = monitors.now_ms().saturating_sub(CHURN_MS);
    let churn = monitors.churn(since, CHURN_BUCKET_MS).await?;
    let (done, failed) = monitors.reviews();
    let by_status = |status: GlobalStatus| {
        (status.to_string(), fleet.monitors.get(&status).copied().unwrap_or(0))
    };
    let assigned = Status::ALL.into_iter().zip(fleet.assignments);
    Ok(Json(MonitorsOverview {
        accounts: fleet.accounts,
        monitors: GlobalStatus::ALL.into_iter().map(by_status).collect(),
        servers: ServersNow {
            total: fleet.servers,
            paused: fleet.servers_paused,
            below_target: fleet.below_target,
            unreviewed: fleet.unreviewed,
        },
        assignments: assigned.map(|(status, count)| (status.to_string(), count)).collect(),
        churn: churn.into_iter().map(|(at, changes)| ChurnView { at, changes }).collect(),
        reviews: ReviewsNow { due: fleet.due, done, failed },
        settings: json!(monitors.settings()),
        points: monitors.points().iter().map(|point| json!(point)).collect(),
    }))
}

/// What changed since the news with this number, for the live stream.
pub fn live(shared: &Shared, seen: i64) -> (Value, i64) {
    let Some(fleet) = shared.fleet() else { return (json!({}), seen) };
    let (news, newest) = fleet.monitors.news_after(seen);
    let (done, failed) = fleet.monitors.reviews();
    let changes: Vec<ChangeView> = news.iter().map(ChangeView::of).collect();
    let point = fleet.monitors.points().last().copied();
    let value = json!({
        "at_ms": now_ms(), "changes": changes, "point": point,
        "reviews": { "done": done, "failed": failed },
    });
    (value, newest)
}

/// Where the live stream begins: with what comes from now on.
pub fn newest(shared: &Shared) -> i64 {
    shared.fleet().map_or(0, |fleet| fleet.monitors.news_after(i64::MAX).1)
}
