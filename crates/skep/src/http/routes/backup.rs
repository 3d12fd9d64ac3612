//! All that the node keeps, as one file.

use crate::http::extract::Asker;
use crate::http::problem::{self, Problem, ProblemBody};
use crate::http::routes::Uncompressed;
use crate::node::{Shared, State as NodeState};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use skep_store::{BackupError, Database, StoreError};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// When to ask again while another backup is made.
const LATER: Duration = Duration::from_secs(10);

/// So long the first bytes, or an error instead, are waited for before the answer begins.
const AT_ONCE: Duration = Duration::from_secs(2);

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(backup))
}

/// A backup of an embedded installation, of one moment after this was asked; without its last
/// piece it is not complete
#[utoipa::path(
    post, path = "/api/v1/backup", tag = "node", extensions(("x-scope" = json!("admin"))),
    responses(
        (status = 200, description = "The backup, as `skep restore` reads it",
         content_type = "application/octet-stream", body = String),
        (status = 409, description = "Another one is being made, or the data is in PostgreSQL",
         body = ProblemBody),
        (status = 507, description = "The disk has no room for a copy", body = ProblemBody)
    )
)]
async fn backup(State(shared): State<Arc<Shared>>, asker: Asker) -> Result<Response, Problem> {
    let database = shared.stores.database();
    let Database::Sqlite(sqlite) = database else {
        let detail = "this node keeps nothing itself; make a dump of the database with pg_dump";
        return Err(Problem::new(&problem::E_BACKUP_POSTGRES, detail));
    };
    // Whoever has it has every message and the hash of every key, so it is written down.
    let (caller, address) = (asker.known(), asker.address.to_string());
    let name = shared.name.as_str();
    shared.access.record(database, (&caller, &address), "backup.make", (name, "")).await?;
    let mut packing = sqlite.backup(None).await.map_err(refused)?;
    // What goes wrong at once has a status of its own; later there is only the connection to cut.
    let soon = AT_ONCE.min(shared.settings.api.request_timeout / 2);
    let first = tokio::time::timeout(soon, packing.next()).await.ok().flatten();
    let first = first.transpose().map_err(refused)?;
    let mut state = shared.state.clone();
    let watched = shared.clone();
    let over = async move {
        tokio::select! {
            _ = state.wait_for(|state| *state == NodeState::Draining) => {}
            () = watched.access.until_refused(asker.caller.as_ref()) => {}
        }
    };
    // An error cuts the connection, so that nobody takes what came for all.
    let pieces = stream::unfold(packing, |mut packing| async {
        let piece = packing.next().await?.map_err(|error| {
            tracing::error!(%error, "the backup ends before its end");
            io::Error::other(error.to_string())
        });
        Some((piece, packing))
    });
    let pieces = stream::iter(first.map(Ok)).chain(pieces).take_until(Box::pin(over));
    let mut response = Body::from_stream(pieces).into_response();
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.extensions_mut().insert(Uncompressed);
    Ok(response)
}

fn refused(error: BackupError) -> Problem {
    let detail = error.to_string();
    match error {
        BackupError::Busy => Problem::new(&problem::E_BACKUP_BUSY, detail).retry_after(LATER),
        BackupError::NoRoom { .. }
        | BackupError::FileLimit { .. }
        | BackupError::Store(StoreError::Full { .. }) => {
            Problem::new(&problem::E_BACKUP_ROOM, detail)
        }
        BackupError::Store(error) => error.into(),
        _ => Problem::new(&problem::E_STORE_FAILED, detail),
    }
}
