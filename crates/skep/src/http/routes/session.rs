//! Logging in to the dashboard.

use crate::access::{Caller, LOGIN_LASTS, Login, Scopes, Who, now_ms};
use crate::http::extract::{Asker, Body};
use crate::http::guard::{COOKIE, refuse};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(show, log_in, log_out))
}

/// Who asks, and what the page needs to know about it.
#[derive(Serialize, utoipa::ToSchema)]
struct SessionAnswer {
    /// Whether whoever asks may look at something.
    authenticated: bool,
    /// Whether a key is needed to get any further.
    login_required: bool,
    /// The key that was used.
    key: Option<SessionKey>,
    /// What must be sent as `X-CSRF-Token` with every change.
    csrf: Option<String>,
    /// Whether no key was ever made, so that this machine is trusted.
    open: bool,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SessionKey {
    id: String,
    name: String,
    scopes: Scopes,
}

impl SessionAnswer {
    fn of(caller: Option<&Caller>) -> Self {
        let (key, csrf) = match caller.map(|caller| (&caller.who, &caller.scopes)) {
            Some((Who::Key { id, name }, scopes)) => (Some((id, name, scopes)), None),
            Some((Who::Login { id, name, csrf, .. }, scopes)) => {
                (Some((id, name, scopes)), Some(csrf.clone()))
            }
            Some((Who::Local | Who::Anyone, _)) | None => (None, None),
        };
        SessionAnswer {
            authenticated: caller.is_some(),
            login_required: caller.is_none(),
            open: caller.is_some_and(|caller| matches!(caller.who, Who::Local | Who::Anyone)),
            key: key.map(|(id, name, scopes)| SessionKey {
                id: id.clone(),
                name: name.clone(),
                scopes: scopes.clone(),
            }),
            csrf,
        }
    }
}

/// Who I am to this node
#[utoipa::path(
    get, path = "/api/v1/session", tag = "access", extensions(("x-scope" = json!("none"))),
    responses(
        (status = 200, description = "Who asks, or that nobody does", body = SessionAnswer),
        (status = 503, description = "The keys were not read yet", body = ProblemBody)
    )
)]
async fn show(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
) -> Result<Json<SessionAnswer>, Problem> {
    // Before the keys are read nobody can be told whether one is needed: a dashboard that
    // believed so would fall back to its login for good.
    if asker.caller.is_none() && shared.access.ring().is_none() {
        return Err(starting());
    }
    Ok(Json(SessionAnswer::of(asker.caller.as_ref())))
}

fn starting() -> Problem {
    Problem::new(&problem::E_STARTING, "the database was not reached yet")
        .retry_after(Duration::from_secs(1))
}

/// What somebody logs in with.
#[derive(Deserialize, utoipa::ToSchema)]
struct LoginBody {
    /// The whole key.
    key: String,
}

/// Log in with a key; the answer sets a cookie for 12 hours
#[utoipa::path(
    post, path = "/api/v1/session", tag = "access", extensions(("x-scope" = json!("none"))),
    request_body = LoginBody,
    responses(
        (status = 200, description = "Logged in", body = SessionAnswer),
        (status = 401, description = "The key is wrong, revoked or over", body = ProblemBody),
        (status = 429, description = "Too many failed logins from this address", body = ProblemBody)
    )
)]
async fn log_in(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(body): Body<LoginBody>,
) -> Result<([(HeaderName, String); 1], Json<SessionAnswer>), Problem> {
    let Some(ring) = shared.access.ring() else {
        return Err(starting());
    };
    // The right key is always let in: many may share an address with somebody who guesses.
    let admitted = ring.admit_key(body.key.trim(), now_ms());
    let caller = admitted.map_err(|refusal| match shared.access.login_wait(asker.address) {
        Some(wait) => {
            let detail = format!("wait {} s", wait.as_secs() + 1);
            Problem::new(&problem::E_LOGIN_TOO_OFTEN, detail).retry_after(wait)
        }
        None => {
            shared.access.note_failed_login(asker.address);
            refuse(refusal)
        }
    })?;
    let (Who::Key { id, name } | Who::Login { id, name, .. }) = caller.who else {
        return Err(Problem::new(&problem::E_KEY_WRONG, "it is not a key"));
    };
    let login = Login::new(&id, ring.login_secret(), now_ms());
    let seconds = LOGIN_LASTS.as_secs();
    let value = login.seal(ring.login_secret());
    let cookie = cookie(&shared, &value, seconds);
    let who = Who::Login { id, name, csrf: login.csrf, ends_at_ms: login.ends_at_ms };
    let caller = Caller { who, scopes: caller.scopes };
    let database = shared.stores.database();
    let address = asker.address.to_string();
    shared.access.try_record(database, (&caller, &address), "login", ("dashboard", "")).await;
    Ok(([(header::SET_COOKIE, cookie)], Json(SessionAnswer::of(Some(&caller)))))
}

/// Log out: the cookie is taken back
#[utoipa::path(
    delete, path = "/api/v1/session", tag = "access", extensions(("x-scope" = json!("none"))),
    responses((status = 204, description = "Logged out"))
)]
async fn log_out(State(shared): State<Arc<Shared>>) -> (StatusCode, [(HeaderName, String); 1]) {
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie(&shared, "", 0))])
}

fn cookie(shared: &Shared, value: &str, seconds: u64) -> String {
    let secure = if shared.certificate.is_some() { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}
