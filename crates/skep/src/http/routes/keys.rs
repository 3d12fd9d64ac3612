//! Keys: making, listing, revoking.

use crate::access::{KeyInfo, NewKey, Scope, Scopes};
use crate::http::extract::{Asker, Body};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use crate::settings::Value;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The longest name of a key.
const NAME_LENGTH_MAX: usize = 100;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct KeysAnswer {
    /// Oldest first, those that were revoked too.
    pub keys: Vec<KeyInfo>,
}

/// All keys, without their secrets
#[utoipa::path(
    get, path = "/api/v1/keys", tag = "access", extensions(("x-scope" = json!("admin"))),
    responses((status = 200, description = "The keys", body = KeysAnswer))
)]
async fn list(State(shared): State<Arc<Shared>>) -> Json<KeysAnswer> {
    let ring = shared.access.ring();
    let records = ring.as_ref().map(|ring| ring.records()).unwrap_or_default();
    Json(KeysAnswer { keys: records.into_iter().map(KeyInfo::from).collect() })
}

/// What a key is to be.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateBody {
    /// What it is called, for people.
    #[schema(example = "ci pipeline")]
    pub name: String,
    /// What it may be used for.
    pub scopes: Vec<String>,
    /// How long it lasts, as in `30d` or `12h`; for ever if it is left out.
    #[schema(example = "30d")]
    #[serde(default)]
    pub expires_in: Option<String>,
}

/// A new key. Its secret is told here and never again.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedAnswer {
    pub key: KeyInfo,
    /// The whole key.
    pub secret: String,
}

impl CreateBody {
    /// Reads it, or names the field at fault.
    pub fn check(self) -> Result<NewKey, Problem> {
        let name = self.name.trim().to_owned();
        if name.is_empty() || name.chars().count() > NAME_LENGTH_MAX {
            let detail = format!("`name` must have 1 to {NAME_LENGTH_MAX} characters");
            return Err(Problem::field("name", detail));
        }
        if name.chars().any(char::is_control) {
            return Err(Problem::field("name", "`name` must not hold control characters"));
        }
        let scopes: Result<Vec<Scope>, String> =
            self.scopes.iter().map(|scope| scope.parse()).collect();
        let scopes = Scopes::new(scopes.map_err(|error| Problem::field("scopes", error))?);
        if scopes.is_empty() {
            return Err(Problem::field("scopes", "`scopes` must name at least one scope"));
        }
        let lasts = self.expires_in.as_deref().map(read_lasting).transpose();
        let lasts = lasts.map_err(|error| Problem::field("expires_in", error))?;
        Ok(NewKey { name, scopes, lasts })
    }
}

/// `30d`, or any duration of the settings.
fn read_lasting(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.trim().parse::<u32>().ok());
    let read = match days {
        Some(days) => Ok(Duration::from_secs(u64::from(days) * 86_400)),
        None => <Duration as Value>::parse(text),
    };
    match read {
        Ok(lasts) if !lasts.is_zero() => Ok(lasts),
        _ => Err(format!("{text:?} is not a duration such as 30d, 12h or 90m")),
    }
}

/// Make a key
#[utoipa::path(
    post, path = "/api/v1/keys", tag = "access", extensions(("x-scope" = json!("admin"))),
    request_body = CreateBody,
    responses(
        (status = 201, description = "The key, with its secret, this once", body = CreatedAnswer),
        (status = 400, description = "A field is wrong; nothing was made", body = ProblemBody)
    )
)]
async fn create(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(body): Body<CreateBody>,
) -> Result<(StatusCode, Json<CreatedAnswer>), Problem> {
    let new = body.check()?;
    let (database, address) = (shared.stores.database(), asker.address.to_string());
    let made = shared.access.create(database, new, &asker.known(), &address).await?;
    let (key, secret) = made;
    Ok((StatusCode::CREATED, Json(CreatedAnswer { key, secret: secret.reveal() })))
}

/// Revoke a key; logins made with it end too
#[utoipa::path(
    delete, path = "/api/v1/keys/{id}", tag = "access", extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "The key's id")),
    responses(
        (status = 200, description = "It is revoked", body = KeyInfo),
        (status = 404, description = "There is no such key", body = ProblemBody)
    )
)]
async fn revoke(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(id): Path<String>,
) -> Result<Json<KeyInfo>, Problem> {
    let (database, address) = (shared.stores.database(), asker.address.to_string());
    let revoked = shared.access.revoke(database, &id, &asker.known(), &address).await?;
    let missing = || Problem::new(&problem::E_KEY_UNKNOWN, "no key has this id");
    revoked.map(Json).ok_or_else(missing)
}
