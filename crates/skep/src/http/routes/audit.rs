//! Who changed what.

use crate::access::AuditEntry;
use crate::http::extract::Parameters;
use crate::http::problem::Problem;
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const PAGE_MAX: u32 = 1_000;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(list))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Page {
    /// So many entries at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
    /// Only entries older than this id.
    before: Option<i64>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditAnswer {
    /// Newest first.
    pub entries: Vec<AuditEntry>,
    /// What to send as `before` for the next page; nothing if this is the last.
    pub next: Option<i64>,
}

/// The audit log, newest first
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "access", extensions(("x-scope" = json!("admin"))),
    params(Page), responses((status = 200, description = "A page of it", body = AuditAnswer))
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<Page>,
) -> Result<Json<AuditAnswer>, Problem> {
    let limit = page.limit.unwrap_or(100).clamp(1, PAGE_MAX);
    let database = shared.stores.database();
    let entries = shared.access.audit_page(database, page.before, limit).await?;
    let full = entries.len() == limit as usize;
    let next = entries.last().map(|entry| entry.id).filter(|_| full);
    Ok(Json(AuditAnswer { entries, next }))
}
