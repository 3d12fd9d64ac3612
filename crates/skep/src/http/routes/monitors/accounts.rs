//! Accounts: those who run monitors or servers.

use super::views::AccountView;
use super::{handle, note, unknown, with_id};
use crate::http::extract::{Asker, Body, Parameters, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use skep_monitors::Noun;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(show, replace, delete))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AccountsPage {
    /// Only ids and names that contain this; capitals make no difference.
    search: Option<String>,
    /// Only ids after this one: the `next` of the page before.
    after: Option<String>,
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct AccountsAnswer {
    /// By id.
    pub accounts: Vec<AccountView>,
    /// How many the filter lets through.
    pub total: u64,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
}

/// Accounts by id
#[utoipa::path(
    get, path = "/api/v1/accounts", tag = "monitors", extensions(("x-scope" = json!("read"))),
    params(AccountsPage),
    responses((status = 200, description = "A page", body = AccountsAnswer),
              (status = 400, description = "A parameter is wrong", body = ProblemBody))
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<AccountsPage>,
) -> Result<Json<AccountsAnswer>, Problem> {
    let page = super::page(page.search, page.after, page.limit)?;
    let found = handle(&shared)?.accounts(page).await?;
    let accounts = found.rows.iter().map(AccountView::of).collect();
    Ok(Json(AccountsAnswer { accounts, total: found.total, next: found.next }))
}

/// Add an account
#[utoipa::path(
    post, path = "/api/v1/accounts", tag = "monitors", extensions(("x-scope" = json!("admin"))),
    request_body = Object,
    responses(
        (status = 201, description = "It is there", body = AccountView),
        (status = 400, description = "It is not an account; every flaw is named",
         body = ProblemBody),
        (status = 409, description = "There is one with this id", body = ProblemBody)
    )
)]
async fn create(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(body): Body<serde_json::Value>,
) -> Result<(StatusCode, Json<AccountView>), Problem> {
    let account = handle(&shared)?.create_account(&body).await?;
    note(&shared, &asker, "accounts.create", (&account.id, "")).await;
    Ok((StatusCode::CREATED, Json(AccountView::of(&account))))
}

/// One account
#[utoipa::path(
    get, path = "/api/v1/accounts/{id}", tag = "monitors",
    extensions(("x-scope" = json!("read"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The account", body = AccountView),
              (status = 404, description = "There is none", body = ProblemBody))
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    Segments(id): Segments<String>,
) -> Result<Json<AccountView>, Problem> {
    let found = handle(&shared)?.account(&id).await?;
    let account = found.ok_or_else(|| unknown(Noun::Account, &id))?;
    Ok(Json(AccountView::of(&account)))
}

/// Replace an account; what is left out has its default again
#[utoipa::path(
    put, path = "/api/v1/accounts/{id}", tag = "monitors",
    extensions(("x-scope" = json!("admin"))), request_body = Object,
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "It is like that from now on; a limit that was lowered is \
         reached gradually", body = AccountView),
        (status = 400, description = "It is not an account", body = ProblemBody),
        (status = 404, description = "There is none", body = ProblemBody)
    )
)]
async fn replace(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
    Body(body): Body<serde_json::Value>,
) -> Result<Json<AccountView>, Problem> {
    let account = handle(&shared)?.replace_account(&with_id(body, &id)?).await?;
    let flags = serde_json::json!(account.flags).to_string();
    note(&shared, &asker, "accounts.replace", (&id, &flags)).await;
    Ok(Json(AccountView::of(&account)))
}

/// Delete an account that has neither monitors nor servers
#[utoipa::path(
    delete, path = "/api/v1/accounts/{id}", tag = "monitors",
    extensions(("x-scope" = json!("admin"))),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is gone"),
              (status = 404, description = "There is none", body = ProblemBody),
              (status = 409, description = "It still has monitors or servers", body = ProblemBody))
)]
async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    handle(&shared)?.delete_account(&id).await?;
    note(&shared, &asker, "accounts.delete", (&id, "")).await;
    Ok(StatusCode::NO_CONTENT)
}
