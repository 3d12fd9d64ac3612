//! Leases that should hold longer.

use super::read::{self, Given, object, wrong};
use super::write::{Json, timestamp};
use super::{lease_of, queues};
use crate::http::extract::{RawBody, Segments};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use std::sync::Arc;

/// Seconds of those who do not say.
const SECONDS: u64 = 60;
const SECONDS_MAX: u64 = 2_592_000;

object! {
    /// For how long.
    ExtendBody<'body> {
        seconds "seconds": Given<'body>,
    }
}

/// For how long.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is read")]
struct ExtendRequest {
    /// From now; 60 if left out.
    seconds: Option<u32>,
}

/// Until when.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct ExtendAnswer {
    lease_id: String,
    /// Whether it held, and holds on.
    success: bool,
    /// 1 if it holds on, else 0.
    renewed: usize,
    new_expires_at: Option<String>,
    expires_at: Option<String>,
    #[schema(rename = "lease_expires_at")]
    lease_expires_at: Option<String>,
    /// Why not.
    error: Option<String>,
}

/// Let a lease hold for so long from now, on every partition of its pop
#[utoipa::path(
    post, path = "/api/v1/lease/{lease}/extend", tag = "queues",
    extensions(("x-scope" = json!("pop"))), params(("lease" = String, Path)),
    request_body = Option<ExtendRequest>,
    responses(
        (status = 200, description = "Until when; with `success: false` it was over already",
         body = ExtendAnswer),
        (status = 400, description = "A field is wrong", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn extend(
    State(shared): State<Arc<Shared>>,
    Segments(lease): Segments<String>,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let body: ExtendBody<'_> = read::json_or_nothing(&body)?;
    let seconds = match body.seconds {
        Given::Nothing => SECONDS,
        Given::Number(seconds @ 1..=SECONDS_MAX) => seconds,
        _ => {
            let words = format!("seconds must be a whole number from 1 to {SECONDS_MAX}");
            return Err(wrong("seconds", words));
        }
    };
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    let until = queues(&shared)?.extend(lease_of(&lease), seconds).await?;
    let text = until.map(timestamp);
    let mut json = Json::with_room(320);
    json.raw("{\"leaseId\":").text(&lease).raw(",\"success\":").truth(until.is_some());
    json.raw(",\"renewed\":").number(usize::from(until.is_some()));
    for name in ["newExpiresAt", "expiresAt", "lease_expires_at"] {
        json.raw(",\"").raw(name).raw("\":").optional(text.as_deref());
    }
    if until.is_none() {
        json.raw(",\"error\":\"Invalid or expired lease\"");
    }
    json.raw("}");
    Ok(json.answer(StatusCode::OK))
}
