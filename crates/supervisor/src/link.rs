//! Carries requests to nodes.

use crate::options::Options;
use crate::wire::{Failure, Identity, Registered, Reply, Request, WholeRegister};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const WORKERS: &str = "/api/v1/sessions/workers";
/// How long an answer may take, beyond what the node was allowed to wait.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// An answer larger than this is not one of a node.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How much of an answer that is no problem document is shown.
const SHOWN_BYTES_MAX: usize = 300;

/// The nodes, one of which is asked until it fails.
pub(crate) struct Link {
    client: Carrier,
    servers: Vec<String>,
    /// Counts up; the server is the remainder.
    current: AtomicUsize,
    authorization: Option<HeaderValue>,
    identity: Identity,
}

enum Carrier {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Secure(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

/// What a node's refusal says.
#[derive(Deserialize)]
struct Refusal {
    title: String,
    detail: String,
}

impl Link {
    /// Fails if the system's certificates are needed and cannot be read.
    pub(crate) fn new(options: &Options) -> Result<Self, std::io::Error> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_LIMIT));
        connector.set_nodelay(true);
        let secure = options.servers.iter().any(|server| server.starts_with("https:"));
        let client = if secure {
            connector.enforce_http(false);
            let connector = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
                .https_or_http()
                .enable_http1()
                .wrap_connector(connector);
            Carrier::Secure(Client::builder(TokioExecutor::new()).build(connector))
        } else {
            Carrier::Plain(Client::builder(TokioExecutor::new()).build(connector))
        };
        let authorization = options.key.as_ref().and_then(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        let trimmed = |server: &String| server.trim_end_matches('/').to_owned();
        Ok(Link {
            client,
            servers: options.servers.iter().map(trimmed).collect(),
            current: AtomicUsize::new(0),
            authorization,
            identity: Identity {
                name: options.name.clone(),
                kind: options.kind.clone(),
                slots: options.slots,
                labels: options.labels.clone(),
                version: options.version.clone(),
                successor: options.successor,
            },
        })
    }

    /// Says it to the current node. After a failure the next one is current.
    pub(crate) async fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let turn = self.current.load(Ordering::Relaxed);
        let server = &self.servers[turn % self.servers.len()];
        let limit = request.wait() + ANSWER_LIMIT;
        let answer = match tokio::time::timeout(limit, self.ask(server, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Failed(format!("{server} did not answer in {limit:?}"))),
        };
        if matches!(answer, Err(Failure::Failed(_) | Failure::Denied(_))) {
            self.current.store(turn.wrapping_add(1), Ordering::Relaxed);
        }
        answer
    }

    async fn ask(&self, server: &str, request: &Request) -> Result<Reply, Failure> {
        let name = &self.identity.name;
        let (method, path, body) = match request {
            Request::Register(register) => {
                let whole = WholeRegister { identity: &self.identity, register };
                (Method::POST, WORKERS.to_owned(), serde_json::to_vec(&whole))
            }
            Request::Heartbeat(heartbeat) => {
                let path = format!("{WORKERS}/{name}/heartbeat");
                (Method::POST, path, serde_json::to_vec(heartbeat))
            }
            Request::Drain => (Method::POST, format!("{WORKERS}/{name}/drain"), Ok(Vec::new())),
            Request::Delete => (Method::DELETE, format!("{WORKERS}/{name}"), Ok(Vec::new())),
        };
        let body = body.map_err(|error| Failure::Failed(format!("cannot be written: {error}")))?;
        let (status, body) = self
            .send(method, &format!("{server}{path}"), body)
            .await
            .map_err(|cause| Failure::Failed(format!("no node answers at {server}: {cause}")))?;
        if !status.is_success() {
            return Err(refused(server, status, &body));
        }
        let nonsense = |cause: String| {
            Failure::Failed(format!("{server} answered something that makes no sense: {cause}"))
        };
        match request {
            Request::Register(_) => {
                let reply: Registered = read(&body).map_err(nonsense)?;
                match reply.nonsense() {
                    Some(cause) => Err(nonsense(cause)),
                    None => Ok(Reply::Registered(reply)),
                }
            }
            Request::Heartbeat(_) => read(&body).map(Reply::Ordered).map_err(nonsense),
            Request::Drain | Request::Delete => Ok(Reply::Done),
        }
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), String> {
        let mut request =
            hyper::Request::builder().method(method).uri(url).header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| e.to_string())?;
        let answer = match &self.client {
            Carrier::Plain(client) => client.request(request).await,
            Carrier::Secure(client) => client.request(request).await,
        };
        let answer = answer.map_err(|error| innermost(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| innermost(error.as_ref()))?;
        Ok((status, body.to_bytes()))
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn refused(server: &str, status: StatusCode, body: &[u8]) -> Failure {
    let told = match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => format!("{}: {}", refusal.title, refusal.detail),
        Err(_) => {
            let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
            String::from_utf8_lossy(shown).trim().to_owned()
        }
    };
    let text = format!("{server} answered {}: {told}", status.as_u16());
    match status {
        StatusCode::NOT_FOUND => Failure::Forgotten(text),
        StatusCode::CONFLICT => Failure::Replaced(text),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Denied(text),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Failure::Refused(text),
        _ => Failure::Failed(text),
    }
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}
