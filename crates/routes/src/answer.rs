//! Answers of the proxy itself.

use crate::refusal::Refusal;
use std::io::Write;

/// An answer as bytes. Without a body for a HEAD, whose length is told all the same.
pub(crate) struct Local<'a> {
    pub refusal: &'a Refusal,
    pub request_id: &'a str,
    pub to_head: bool,
    pub closes: bool,
    /// Where to go instead.
    pub location: Option<&'a str>,
    /// Something else than a problem, with its type.
    pub page: Option<(&'a str, &'a str)>,
}

impl Local<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let refusal = self.refusal;
        let problem;
        let (kind, body) = match self.page {
            Some((kind, body)) => (kind, body),
            None => {
                problem = problem_json(refusal);
                ("application/problem+json", problem.as_str())
            }
        };
        let mut out = Vec::with_capacity(512 + body.len());
        let status = refusal.status;
        let reason = hyper::StatusCode::from_u16(status).ok();
        let reason = reason.and_then(|status| status.canonical_reason()).unwrap_or("Refused");
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            "HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n",
            body.len()
        );
        if let Some(span) = refusal.retry_after {
            let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
            let _ = write!(out, "retry-after: {seconds}\r\n");
        }
        if let Some(location) = self.location {
            let _ = write!(out, "location: {location}\r\n");
        }
        if !self.request_id.is_empty() {
            let _ = write!(out, "x-request-id: {}\r\n", self.request_id);
        }
        if self.closes {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        if !self.to_head {
            out.extend_from_slice(body.as_bytes());
        }
        out
    }
}

/// The body of a problem, RFC 9457.
pub(crate) fn problem_json(refusal: &Refusal) -> String {
    serde_json::json!({
        "type": format!("urn:skep:error:{}", refusal.code),
        "code": refusal.code,
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.message,
        "error": format!("{}: {}", refusal.title, refusal.message),
    })
    .to_string()
}
