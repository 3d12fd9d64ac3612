//! The nodes of the installation.

use super::polls::fleet;
use crate::http::problem::Problem;
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(list))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodesAnswer {
    /// Where nodes agree, how this one stands, and every node with what it owns.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub overview: serde_json::Value,
}

/// The nodes, as this one knows them
#[utoipa::path(
    get, path = "/api/v1/nodes", tag = "nodes", extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Every node with what it owns", body = NodesAnswer))
)]
async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<NodesAnswer>, Problem> {
    let overview = serde_json::json!(fleet(&shared)?.nodes.overview());
    Ok(Json(NodesAnswer { overview }))
}
