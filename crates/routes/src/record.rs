//! What is told of every request, and of everything that went wrong.

use serde::Serialize;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// A request that is over.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it ended, in milliseconds since 1970.
    pub at_ms: i64,
    /// The route's name; empty if it did not get that far.
    pub route: Arc<str>,
    /// The upstream that answered, or was tried last.
    pub upstream: Option<Arc<str>>,
    /// As the client said it.
    pub method: Cow<'static, str>,
    /// Without its port.
    pub host: Box<str>,
    /// Without what is behind the question mark.
    pub path: Box<str>,
    /// The answer's status; 499 if the client left before there was one.
    pub status: u16,
    /// From the end of the request's head to the end of the answer, in microseconds.
    pub duration_us: u64,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// Where it came from.
    pub address: Option<IpAddr>,
    /// How it was spoken: `1.0`, `1.1` or `2`.
    pub protocol: &'static str,
    /// How many upstreams were tried.
    pub tries: u32,
    /// The id in the answer's `X-Request-Id`.
    pub request_id: Box<str>,
    /// What went wrong, in one word; empty if nothing did.
    pub error: &'static str,
}

/// Something an operator wants to know at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// In milliseconds since 1970.
    pub at_ms: i64,
    /// The route's name; empty if it concerns none.
    pub route: Arc<str>,
    /// One of `error`, `refused`, `rate-limited`, `breaker`, `health`, `certificate`, `reload`.
    pub kind: &'static str,
    /// The upstream it is about.
    pub upstream: Option<Arc<str>>,
    /// The answer's status, if it is about an answer.
    pub status: Option<u16>,
    /// What happened, and why.
    pub detail: String,
}

/// Who writes down what happened. Called from threads that carry requests: it must not block.
pub trait Journal: Send + Sync + 'static {
    /// A request is over.
    fn note(&self, record: Record);
    /// Something happened.
    fn tell(&self, event: Event);
}
