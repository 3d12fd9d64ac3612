//! Errors as the API tells them: one mapping, one form, a help page for each code.

use crate::access::redact;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use skep_store::StoreError;
use std::time::Duration;

/// A kind of error: its name, its status, its title and its help page.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    pub name: &'static str,
    pub status: u16,
    pub title: &'static str,
    pub help: &'static str,
}

macro_rules! codes {
    ($($name:ident $status:literal $title:literal;)+) => {
        $(
            #[doc = $title]
            pub const $name: Code = Code {
                name: stringify!($name),
                status: $status,
                title: $title,
                help: include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/", stringify!($name), ".md"
                )),
            };
        )+

        /// Every code there is.
        pub const CODES: &[&Code] = &[$(&$name),+];
    };
}

codes! {
    E_ACCOUNT_DISABLED 409 "The account may register no monitors";
    E_ACCOUNT_EXISTS 409 "There is an account with this id";
    E_ACCOUNT_FULL 409 "The account has as many monitors as it may";
    E_ACCOUNT_INVALID 400 "The account cannot be kept like that";
    E_ACCOUNT_IN_USE 409 "The account still has monitors or servers";
    E_ACCOUNT_UNKNOWN 404 "There is no such account";
    E_ADDRESS_DENIED 400 "The address is not to be reached from here";
    E_AGENT_UNBOUND 403 "The key belongs to no monitor";
    E_ANSWER_LOST 502 "The answer of another node was lost";
    E_BACKUP_BUSY 409 "A backup is being made already";
    E_BACKUP_POSTGRES 409 "The data is in PostgreSQL";
    E_BACKUP_ROOM 507 "There is no room for a copy";
    E_BODY_ENCODING 415 "The body is compressed";
    E_BODY_INVALID 400 "The body cannot be read";
    E_BODY_TOO_LARGE 413 "The body is too large";
    E_BODY_TYPE 415 "The body is not JSON";
    E_CONNECTIONS_MAX 503 "Too many connections";
    E_CONNECT_DEADLINE 504 "No worker answered in time";
    E_CROSS_SITE 403 "The request comes from another site";
    E_CSRF 403 "The page's token is missing or wrong";
    E_DEAD_LETTER_UNKNOWN 404 "There is no such dead letter of a queue";
    E_DEMO_NONE 404 "No demo runs here";
    E_DRAINING 503 "The node is about to stop";
    E_ENCODING_UNSUPPORTED 501 "The body's encoding is not known";
    E_ENCRYPTION_KEY 503 "The node does not have the key of the queue";
    E_ENDPOINTS_MAX 409 "There are as many endpoints as there may be";
    E_ENDPOINT_CHANGED 409 "Somebody else has changed the endpoint";
    E_ENDPOINT_EXISTS 409 "There is an endpoint with this id";
    E_ENDPOINT_INVALID 400 "The endpoint cannot be polled like that";
    E_ENDPOINT_PAUSED 409 "The endpoint is paused";
    E_ENDPOINT_UNKNOWN 404 "There is no such endpoint";
    E_EXPECTATION 417 "The expectation cannot be met";
    E_FIELD_INVALID 400 "A field has a value it cannot have";
    E_GROUP_UNKNOWN 404 "There is no such group";
    E_HANDSHAKE_INVALID 400 "This is no WebSocket handshake";
    E_HANDSHAKE_VERSION 426 "Another version of WebSocket is needed";
    E_HEAD_TOO_LARGE 431 "The head of the request is too large";
    E_HEAD_TOO_SLOW 408 "The head of the request took too long";
    E_HOP 403 "The request was not forwarded by a node of this cluster";
    E_HOP_AT_WORK 503 "The same request is still at work";
    E_HOST 403 "The Host header names another machine";
    E_IMPORT_INVALID 400 "Lines of the import are wrong";
    E_INTERNAL 500 "A bug in Skep";
    E_KEY_EXPIRED 401 "The key's time is over";
    E_KEY_MISSING 401 "A key is needed";
    E_KEY_REVOKED 401 "The key was revoked";
    E_KEY_UNKNOWN 404 "There is no such key";
    E_KEY_WRONG 401 "The key is not known here";
    E_LETTER_BUSY 409 "The dead letter is being tried again";
    E_LETTER_KEPT_ONLY 409 "The dead letter cannot be tried again";
    E_LETTER_UNKNOWN 404 "There is no such dead letter";
    E_LOGIN_OVER 401 "The login is over";
    E_LOGIN_TOO_OFTEN 429 "Too many failed logins";
    E_MAINTENANCE 503 "The route is in maintenance";
    E_MESSAGE_PENDING 409 "The message is not over yet";
    E_MESSAGE_UNKNOWN 404 "There is no such message";
    E_METHOD 405 "The path does not have this method";
    E_METHOD_UNSUPPORTED 501 "The method is not known here";
    E_MONITORS_MAX 409 "There are as many monitors or servers as there may be";
    E_MONITOR_EXISTS 409 "There is a monitor with this id";
    E_MONITOR_INVALID 400 "The monitor cannot be kept like that";
    E_MONITOR_UNKNOWN 404 "There is no such monitor";
    E_NODE_AWAY 503 "The node cannot be reached";
    E_NODE_LAST 409 "No other node could take over";
    E_NODE_UNKNOWN 404 "There is no such node";
    E_NOT_FOUND 404 "There is nothing at this path";
    E_NOT_SUPPORTED 501 "This is not in this version";
    E_NO_ROUTE 404 "No route takes the request";
    E_PARTITION_UNKNOWN 404 "There is no such partition";
    E_PLAN_INVALID 400 "The plan cannot be applied";
    E_PLAN_OLD 409 "The plan was made from an older state";
    E_POOL_FULL 503 "The pool is full";
    E_POOL_UNKNOWN 404 "There is no such pool";
    E_POPS_MAX 429 "As many pops wait as may";
    E_PROTOCOL_UNSUPPORTED 505 "The version of HTTP is not known";
    E_PROXY_BODY_TOO_LARGE 413 "The body is too large for the route";
    E_PROXY_BODY_TOO_SLOW 408 "The body of the request took too long";
    E_PUSHES_HELD 503 "Pushes are held back for maintenance";
    E_QUERY_INVALID 400 "A parameter has a value it cannot have";
    E_QUEUES_BUSY 429 "Too many requests wait for the queues";
    E_QUEUE_FULL 429 "The queue is full";
    E_QUEUE_UNKNOWN 404 "There is no such queue";
    E_RATE_LIMITED 429 "Too many requests";
    E_REDRIVE_UNKNOWN 404 "There is no such redrive";
    E_REQUEST_INVALID 400 "The request cannot be read with certainty";
    E_ROUTES_MAX 409 "There are as many routes as there may be";
    E_ROUTE_CHANGED 409 "Somebody else has changed the route";
    E_ROUTE_EXISTS 409 "There is a route like this";
    E_ROUTE_INVALID 400 "The route cannot be served like that";
    E_ROUTE_OF_FILE 409 "The route stands in a file";
    E_ROUTE_UNKNOWN 404 "There is no such route";
    E_SCHEDULE_CONFLICT 409 "Somebody else has changed the schedule";
    E_SCHEDULE_EXISTS 409 "There is a schedule with this name";
    E_SCHEDULE_UNKNOWN 404 "There is no such schedule";
    E_SCOPE 403 "The key may not do this";
    E_SERVER_EXISTS 409 "There is a server with this id";
    E_SERVER_INVALID 400 "The server cannot be watched like that";
    E_SERVER_UNKNOWN 404 "There is no such server";
    E_SESSIONS_PER_KEY 429 "The key has as many sessions as it may";
    E_SESSION_ENDED 410 "The session was ended while it waited";
    E_SESSION_UNKNOWN 404 "There is no such session";
    E_SNAPSHOT_INVALID 400 "The file is no snapshot of servers and monitors";
    E_STARTING 503 "The node is still starting";
    E_STOPPING 503 "The gateway is stopping";
    E_STORE_AWAY 503 "The database cannot be reached";
    E_STORE_FAILED 500 "The database failed";
    E_STREAMS_MAX 503 "Too many live connections";
    E_TAILS_MAX 429 "As many tails are open as may be";
    E_TIMEOUT 408 "The request took too long";
    E_TLS_NEEDED 308 "The route is served over TLS only";
    E_UPGRADE_NEEDED 426 "This port is for WebSocket sessions";
    E_UPSTREAMS_BUSY 503 "No upstream takes requests";
    E_UPSTREAM_ANSWER 502 "The upstream's answer makes no sense";
    E_UPSTREAM_AWAY 502 "The upstream cannot be reached";
    E_UPSTREAM_BROKE 502 "The upstream broke off";
    E_UPSTREAM_SLOW 504 "The upstream took too long";
    E_WORKERS_AWAY 503 "No worker can be had";
    E_WORKERS_BUSY 503 "Every worker is busy";
    E_WORKERS_NONE 503 "There is no worker of this kind";
    E_WORKERS_UNFIT 404 "No worker could ever serve this session";
    E_WORKER_INVALID 400 "The worker cannot register like that";
    E_WORKER_REPLACED 409 "Another start of the worker has its name";
    E_WORKER_UNKNOWN 404 "There is no such worker";
}

/// One error, for one request.
#[derive(Debug)]
pub struct Problem {
    code: &'static Code,
    detail: String,
    field: Option<Box<str>>,
    flaws: Vec<Flaw>,
    queue: Option<Box<str>>,
    retry_after: Option<Duration>,
    is_plain: bool,
}

/// One of several things that are wrong with what was sent.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Flaw {
    /// The line of an import, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
    /// The field at fault.
    pub field: String,
    /// What is wrong with it and what would be right.
    pub detail: String,
}

impl Flaw {
    /// A flaw of an endpoint, and the line it stands in.
    pub fn new(line: Option<usize>, problem: &skep_polls::Problem) -> Self {
        Flaw { line, field: problem.field.clone(), detail: problem.to_string() }
    }
}

/// The form on the wire, RFC 9457 with a code, and an `error` text that queue clients read.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Names the code.
    #[serde(rename = "type")]
    kind: String,
    /// Stable; `skep explain CODE` tells more.
    #[schema(example = "E_KEY_MISSING")]
    code: &'static str,
    /// The code in words.
    title: &'static str,
    /// The status again.
    status: u16,
    /// What is wrong here and what would be right.
    detail: String,
    /// The field or parameter at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    field: Option<Box<str>>,
    /// Everything that is wrong, where it is more than one field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flaws: Vec<Flaw>,
    /// The queue at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    queue: Option<Box<str>>,
    /// Title and detail in one; on the routes of queues the detail alone.
    error: String,
}

impl Problem {
    /// An error of this kind, with what is wrong this time.
    pub fn new(code: &'static Code, detail: impl Into<String>) -> Self {
        Problem {
            code,
            detail: detail.into(),
            field: None,
            flaws: Vec::new(),
            queue: None,
            retry_after: None,
            is_plain: false,
        }
    }

    /// A field that cannot have its value.
    pub fn field(field: &str, detail: impl Into<String>) -> Self {
        Problem { field: Some(field.into()), ..Problem::new(&E_FIELD_INVALID, detail) }
    }

    /// The field at fault.
    #[must_use]
    pub fn at(mut self, field: &str) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The queue at fault.
    #[must_use]
    pub fn of_queue(mut self, queue: &str) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// With `error` as clients of queues know it: the detail alone, word for word.
    #[must_use]
    pub fn plain(mut self) -> Self {
        self.is_plain = true;
        self
    }

    /// Everything that is wrong, where it is more than one field.
    #[must_use]
    pub fn flaws(mut self, flaws: Vec<Flaw>) -> Self {
        self.flaws = flaws;
        self
    }

    /// Keys are pasted into wrong fields, and a problem says what stood there.
    fn hide_keys(&mut self) {
        let flaws = self.flaws.iter_mut().flat_map(|flaw| [&mut flaw.field, &mut flaw.detail]);
        for text in flaws.chain([&mut self.detail]) {
            let hidden = redact(text).into_owned();
            *text = hidden;
        }
    }

    /// The same for a client of the gateway.
    pub fn for_gateway(&self) -> skep_gateway::Refusal {
        let seconds = |wait: Duration| u32::try_from(wait.as_secs().max(1)).unwrap_or(u32::MAX);
        skep_gateway::Refusal {
            status: self.code.status,
            code: self.code.name,
            title: self.code.title,
            message: self.detail.clone(),
            retry_after_s: self.retry_after.map(seconds),
        }
    }

    /// When trying again makes sense.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.title, self.detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        self.hide_keys();
        let status =
            StatusCode::from_u16(self.code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = ProblemBody {
            kind: format!("urn:skep:error:{}", self.code.name),
            code: self.code.name,
            title: self.code.title,
            status: self.code.status,
            error: if self.is_plain { self.detail.clone() } else { self.to_string() },
            detail: self.detail,
            field: self.field,
            flaws: self.flaws,
            queue: self.queue,
        };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        let problem_json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem_json);
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.code.status == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if error.is_temporary() {
            Problem::new(&E_STORE_AWAY, error.to_string()).retry_after(Duration::from_secs(1))
        } else {
            Problem::new(&E_STORE_FAILED, error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_help_page_that_begins_with_it() {
        for code in CODES {
            assert!(code.help.starts_with(&format!("# {}\n", code.name)), "{}", code.name);
            assert!(code.help.contains("## What to do"), "{}", code.name);
            assert!((300..600).contains(&code.status), "{}", code.name);
        }
        for own in skep_routes::codes::ALL {
            let here = CODES.iter().find(|code| code.name == own.name).expect(own.name);
            assert_eq!((here.status, here.title), (own.status, own.title), "{}", own.name);
        }
        let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let count = std::fs::read_dir(pages).expect("there are pages").count();
        assert_eq!(count, CODES.len(), "each page has its code");
    }
}
