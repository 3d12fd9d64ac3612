//! Answers of the gateway itself: problems, and the little there is beside them.

use crate::desk::Refusal;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::json;

/// Why a body broke off.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is there already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A refusal on the wire, RFC 9457; the connection ends with it.
pub(crate) fn problem(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(full(problem_json(refusal)));
    *response.status_mut() =
        StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Some(seconds) = refusal.retry_after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    match refusal.status {
        401 => headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        426 => {
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))
        }
        _ => None,
    };
    response
}

/// The same as bytes, for a connection that nobody serves.
pub(crate) fn problem_bytes(refusal: &Refusal) -> Vec<u8> {
    let body = problem_json(refusal);
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let retry = refusal.retry_after_s.map(|s| format!("retry-after: {s}\r\n")).unwrap_or_default();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
         {retry}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn problem_json(refusal: &Refusal) -> String {
    json!({
        "type": format!("urn:skep:error:{}", refusal.code),
        "code": refusal.code,
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.message,
        "error": refusal.to_string(),
    })
    .to_string()
}
