//! Many accounts, monitors, servers and assignments at once.

use super::{handle, note, of_model};
use crate::http::extract::{Asker, Parameters, RawBody};
use crate::http::problem::{self, Flaw, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use skep_monitors::ImportError;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Flaws of an import that are told; of more only the count is.
const FLAWS_MAX: usize = 1_000;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(import))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ImportHow {
    /// Whether it is only said what would be done.
    dry_run: Option<bool>,
}

/// How many of each kind.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = MonitorImportCounts)]
pub struct ImportCounts {
    pub accounts: u64,
    pub monitors: u64,
    pub servers: u64,
    pub assignments: u64,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = MonitorImportAnswer)]
pub struct ImportedAnswer {
    /// Those that were not there before.
    pub created: ImportCounts,
    /// Those that were different.
    pub changed: u64,
    /// Those that were the same already.
    pub unchanged: u64,
}

/// Add or replace many accounts, monitors, servers and assignments: one line of JSON each
///
/// A line is `{"account": {…}}`, `{"monitor": {…}}`, `{"server": {…}}` or `{"assignment":
/// {"server", "monitor", "status", …}}`. All or nothing.
#[utoipa::path(
    post, path = "/api/v1/monitoring/import", tag = "monitors",
    extensions(("x-scope" = json!("admin"))), params(ImportHow),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses(
        (status = 200, description = "What was done, or would be", body = ImportedAnswer),
        (status = 400, description = "Lines are wrong, all are named; nothing was done",
         body = ProblemBody),
        (status = 409, description = "There would be too many", body = ProblemBody)
    )
)]
async fn import(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Parameters(how): Parameters<ImportHow>,
    RawBody(body): RawBody,
) -> Result<Json<ImportedAnswer>, Problem> {
    let dry_run = how.dry_run.unwrap_or(false);
    let done = handle(&shared)?.import(&body, dry_run).await.map_err(refused)?;
    let created = ImportCounts {
        accounts: done.created.accounts,
        monitors: done.created.monitors,
        servers: done.created.servers,
        assignments: done.created.assignments,
    };
    if !dry_run {
        let text = format!(
            "{} accounts, {} monitors, {} servers, {} assignments created, {} changed",
            created.accounts, created.monitors, created.servers, created.assignments, done.changed
        );
        note(&shared, &asker, "monitors.import", ("import", &text)).await;
    }
    Ok(Json(ImportedAnswer { created, changed: done.changed, unchanged: done.unchanged }))
}

fn refused(error: ImportError) -> Problem {
    match error {
        ImportError::Lines(lines) => {
            let flaws = lines
                .iter()
                .flat_map(|(line, flaws)| flaws.iter().map(|flaw| of_model(Some(*line), flaw)));
            let flaws: Vec<Flaw> = flaws.take(FLAWS_MAX).collect();
            let are = if lines.len() == 1 { "line is" } else { "lines are" };
            let detail = format!("{} {are} wrong, and nothing was done; see `flaws`", lines.len());
            Problem::new(&problem::E_IMPORT_INVALID, detail).flaws(flaws)
        }
        ImportError::Store(error) => Problem::from(error),
    }
}
