//! What is noted of a request, and what every answer gets: its id, its line in the log, its place
//! in the counters, and the headers that all answers have.

use super::relay::SERVED_BY;
use crate::access::{Caller, now_ms, random_hex, redact};
use crate::node::{Shared, State as NodeState};
use crate::work::{AccessEntry, AccessLog, PATH_BYTES_MAX};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::Response;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Nothing is loaded from outside, nothing runs that is not a file of ours, nobody frames us.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// A request from when it came to its answer.
pub struct Noted<'route> {
    started: Instant,
    id: String,
    method: Method,
    uri: Uri,
    address: IpAddr,
    route: Option<&'route str>,
    actor: Option<Cow<'static, str>>,
    told: Option<Told>,
    /// Whether another node asks, which gives the answer its headers itself.
    for_node: bool,
}

impl<'route> Noted<'route> {
    /// One that has just come, from this address.
    pub fn new(
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        address: IpAddr,
        route: Option<&'route str>,
    ) -> Self {
        Noted {
            started: Instant::now(),
            id: request_id(headers),
            method: method.clone(),
            uri: uri.clone(),
            address,
            route,
            actor: None,
            told: None,
            for_node: false,
        }
    }

    /// It is another node that asks, for a client of its own.
    pub fn is_for_node(&mut self) {
        self.for_node = true;
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Takes down what the logs will want to know, as long as it is there.
    pub fn look(&mut self, shared: &Shared, by: Option<&Caller>, told: impl FnOnce() -> Told) {
        let kept = self.kept(shared).is_some();
        self.actor = by.filter(|_| shared.settings.log.access || kept).map(Caller::actor);
        self.told = kept.then(told);
    }

    fn kept<'shared>(&self, shared: &'shared Shared) -> Option<&'shared AccessLog> {
        shared.work.access_log.as_deref().filter(|_| is_kept(self.route))
    }

    /// Counts the request, writes it down, and gives its answer what all answers have.
    pub fn conclude(self, shared: &Shared, response: &mut Response) {
        let (took, status) = (self.started.elapsed(), response.status().as_u16());
        let (method, route) = (known_method(&self.method), self.route.unwrap_or("-"));
        shared.traffic.count(method, route, status, took);
        // Messages that pass are counted, and what goes wrong with them is written down.
        let passed = is_message(self.route) && status < 400;
        let access_log = self.kept(shared).filter(|_| !passed);
        let is_logged = shared.settings.log.access && !passed;
        let Noted { id, method, uri, address, actor, told, for_node, .. } = self;
        if is_logged || access_log.is_some() {
            let end = uri.path().floor_char_boundary(PATH_BYTES_MAX);
            let (path, actor) = (redact(&uri.path()[..end]), actor.as_deref().unwrap_or("-"));
            let path = &*path;
            if is_logged {
                let (id, ms) = (id.as_str(), format_args!("{:.3}", took.as_secs_f64() * 1e3));
                tracing::info!(
                    target: "skep::access",
                    %method, path, status, %ms, %address, id, actor, "request"
                );
            }
            if let (Some(log), Some(told)) = (access_log, told) {
                log.note(AccessEntry {
                    at_ms: now_ms(),
                    host: told.host,
                    method: known_method(&method).into(),
                    path: path.to_owned(),
                    status: i64::from(status),
                    duration_us: i64::try_from(took.as_micros()).unwrap_or(i64::MAX),
                    address: address.to_string(),
                    actor: actor.to_owned(),
                    request_id: id.clone(),
                    bytes_in: told.bytes_in,
                    bytes_out: known_length(response.body()),
                    protocol: told.protocol.into(),
                    ..AccessEntry::default()
                });
            }
        }
        if !for_node {
            add_headers(response, &id);
        }
        let served_by = response.headers_mut().entry(SERVED_BY);
        served_by.or_insert_with(|| shared.name_header.clone());
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if !upgraded && *shared.state.borrow() == NodeState::Draining {
            // Whoever asks next asks another node.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// What a request's head says for the access log, taken before the route has the request.
pub struct Told {
    host: String,
    bytes_in: i64,
    protocol: &'static str,
}

impl Told {
    /// Of a request whose body has so many bytes, as far as is known.
    pub fn of(headers: &HeaderMap, uri: &Uri, version: Version, bytes_in: i64) -> Self {
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
        let host = host.or(uri.host()).unwrap_or_default();
        Told {
            host: redact(host).to_ascii_lowercase(),
            bytes_in,
            protocol: match version {
                Version::HTTP_09 | Version::HTTP_10 => "1.0",
                Version::HTTP_2 => "2",
                _ => "1.1",
            },
        }
    }
}

/// A body's length, as far as it is known before it has passed.
pub fn known_length(body: &Body) -> i64 {
    let exact = axum::body::HttpBody::size_hint(body).exact();
    exact.and_then(|length| i64::try_from(length).ok()).unwrap_or(0)
}

/// Probes, scrapes, heartbeats and the dashboard's own files would fill the access log with what
/// nobody asks about; they are counted in the metrics.
fn is_kept(route: Option<&str>) -> bool {
    let begins = |prefix: &str| route.is_some_and(|route| route.starts_with(prefix));
    let heartbeat = route.is_some_and(|route| route.ends_with("/heartbeat"));
    route != Some("/") && !heartbeat && !["/health", "/metrics", "/assets"].into_iter().any(begins)
}

/// Whether a route is for messages that come and go: some ten thousand a second, whose lines nobody
/// could read or keep.
fn is_message(route: Option<&str>) -> bool {
    let prefixes = ["/api/v1/push", "/api/v1/pop", "/api/v1/ack", "/api/v1/transaction"];
    route.is_some_and(|route| prefixes.into_iter().any(|prefix| route.starts_with(prefix)))
}

/// The id that the client gave the request, if it is a plain one; else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let plain = |id: &&str| {
        !id.is_empty()
            && id.len() <= 64
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    given.filter(plain).map_or_else(new_id, str::to_owned)
}

/// An id that no other request has: a random part for this process, and a count.
fn new_id() -> String {
    static PROCESS: LazyLock<String> = LazyLock::new(|| random_hex(6));
    static COUNT: AtomicU64 = AtomicU64::new(1);
    format!("r-{}-{:x}", *PROCESS, COUNT.fetch_add(1, Ordering::Relaxed))
}

fn known_method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

fn add_headers(response: &mut Response, id: &str) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID.clone(), id);
    }
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
