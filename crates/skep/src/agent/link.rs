//! Carries an agent's questions and results to nodes.

use super::key::Key;
use super::wire::{Assignments, Measured, Receipt, Report};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::{Method, Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const AGENT: &str = concat!("skep ", env!("CARGO_PKG_VERSION"));
/// How long an answer may take. A batch whose answer is later is sent again.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Room for more servers than a node has. A larger answer is not one of a node.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const SHOWN_BYTES_MAX: usize = 300;
/// A connection that nothing went over for so long is not used again: the node may be closing it.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The nodes, one of which is asked until it fails.
pub struct Link {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    servers: Vec<String>,
    /// Counts up; the node is the remainder.
    turn: AtomicUsize,
    key: Key,
    /// The query that names the monitor, if it is named.
    query: String,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No node, or not now. What was sent may have arrived.
    Away(String),
    /// The key is not good for this, or there is no such monitor. Somebody has to mend it.
    Denied(String),
    /// The node will never take this.
    Refused(String),
}

impl Failure {
    pub fn text(&self) -> &str {
        match self {
            Failure::Away(text) | Failure::Denied(text) | Failure::Refused(text) => text,
        }
    }
}

/// Assignments and the tag by which to ask whether they have changed.
pub type Fetched = (Assignments, Option<HeaderValue>);

/// What a node's refusal says.
#[derive(Deserialize)]
struct Problem {
    title: String,
    detail: String,
    code: String,
}

impl Link {
    /// `monitor` is an id, which needs no escaping. Fails if the system's certificates cannot be
    /// read.
    pub fn new(servers: &[String], key: Key, monitor: Option<&str>) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_LIMIT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let provider = rustls::crypto::ring::default_provider();
        // Without https no certificate is needed, and a small system may have none.
        let builder = HttpsConnectorBuilder::new();
        let builder = match servers.iter().any(|server| server.starts_with("https:")) {
            true => builder
                .with_provider_and_native_roots(provider)
                .map_err(|error| format!("the system's certificates cannot be read: {error}"))?,
            false => {
                let config = rustls::ClientConfig::builder_with_provider(provider.into())
                    .with_safe_default_protocol_versions()
                    .map_err(|error| format!("TLS cannot be used: {error}"))?
                    .with_root_certificates(rustls::RootCertStore::empty())
                    .with_no_client_auth();
                builder.with_tls_config(config)
            }
        };
        let connector = builder.https_or_http().enable_http1().wrap_connector(connector);
        let client =
            Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE_MAX).build(connector);
        let query = monitor.map(|id| format!("?monitor={id}")).unwrap_or_default();
        let servers = servers.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        Ok(Link { client, servers, turn: AtomicUsize::new(0), key, query })
    }

    /// How many nodes there are to try.
    pub fn nodes(&self) -> usize {
        self.servers.len()
    }

    /// What to measure; `None` if it is still what the tag stands for.
    pub async fn assignments(&self, tag: Option<&HeaderValue>) -> Result<Option<Fetched>, Failure> {
        let path = format!("/api/v1/agent/assignments{}", self.query);
        self.call(Method::GET, &path, Bytes::new(), tag, |status, tag, body| {
            if status == StatusCode::NOT_MODIFIED {
                return Ok(None);
            }
            serde_json::from_slice(body).map(|read| Some((read, tag)))
        })
        .await
    }

    /// Hands over results.
    pub async fn report(&self, results: &[Measured]) -> Result<Receipt, Failure> {
        let path = format!("/api/v1/agent/results{}", self.query);
        let body = serde_json::to_vec(&Report { agent: AGENT, results })
            .map_err(|error| Failure::Refused(format!("cannot be written: {error}")))?;
        self.call(Method::POST, &path, body.into(), None, |_, _, body| serde_json::from_slice(body))
            .await
    }

    /// Asks the current node. After a failure that another might not have, the next is current.
    async fn call<T>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        tag: Option<&HeaderValue>,
        read: impl FnOnce(StatusCode, Option<HeaderValue>, &[u8]) -> serde_json::Result<T>,
    ) -> Result<T, Failure> {
        let turn = self.turn.load(Ordering::Relaxed);
        let server = &self.servers[turn % self.servers.len()];
        let shown = shown(server);
        let key = self.key.header().map_err(Failure::Denied)?;
        let asking = async {
            let answer = self.open(method, &format!("{server}{path}"), body, tag, key).await?;
            let (status, tag) = (answer.status(), answer.headers().get(ETAG).cloned());
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| innermost(error.as_ref()))?;
            Ok::<_, String>((status, tag, body.to_bytes()))
        };
        let answer = match tokio::time::timeout(ANSWER_LIMIT, asking).await {
            Ok(Ok((status, tag, body))) => {
                let fine = status.is_success() || status == StatusCode::NOT_MODIFIED;
                match fine {
                    true => read(status, tag, &body).map_err(|error| {
                        Failure::Away(format!("{shown} does not answer as a node would: {error}"))
                    }),
                    false => Err(refused(&shown, status, &body)),
                }
            }
            Ok(Err(cause)) => Err(Failure::Away(format!("no node answers at {shown}: {cause}"))),
            Err(_) => Err(Failure::Away(format!("{shown} did not answer within {ANSWER_LIMIT:?}"))),
        };
        if matches!(answer, Err(Failure::Away(_) | Failure::Denied(_))) {
            self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        }
        answer
    }

    async fn open(
        &self,
        method: Method,
        url: &str,
        body: Bytes,
        tag: Option<&HeaderValue>,
        key: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, String> {
        let mut request =
            Request::builder().method(method).uri(url).header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(tag) = tag {
            request = request.header(IF_NONE_MATCH, tag);
        }
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, key);
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        self.client.request(request).await.map_err(|error| innermost(&error))
    }
}

/// An address without what somebody may have put before an `@`.
fn shown(server: &str) -> String {
    match (server.split_once("://"), server.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => server.to_owned(),
    }
}

/// The codes of a refusal that is about the results themselves.
const OF_RESULTS: [&str; 3] = ["E_BODY_INVALID", "E_FIELD_INVALID", "E_BODY_TOO_LARGE"];

fn refused(shown: &str, status: StatusCode, body: &[u8]) -> Failure {
    let (told, code) = match serde_json::from_slice::<Problem>(body) {
        Ok(Problem { title, detail, code }) => {
            (format!("{title}: {detail} (`skep explain {code}`)"), code)
        }
        Err(_) => {
            let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
            (String::from_utf8_lossy(shown).trim().to_owned(), String::new())
        }
    };
    let text = format!("{shown} answered {}: {told}", status.as_u16());
    match status {
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY
            if OF_RESULTS.contains(&code.as_str()) =>
        {
            Failure::Refused(text)
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Failure::Away(text),
        status if status.is_client_error() => Failure::Denied(text),
        _ => Failure::Away(text),
    }
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: &str) -> Failure {
        let body = serde_json::json!({ "title": "No", "detail": "why", "code": code }).to_string();
        refused("node", StatusCode::from_u16(status).expect("a status"), body.as_bytes())
    }

    #[test]
    fn only_a_refusal_of_the_results_themselves_gives_them_up() {
        assert!(matches!(answer(400, "E_FIELD_INVALID"), Failure::Refused(_)));
        assert!(matches!(answer(413, "E_BODY_TOO_LARGE"), Failure::Refused(_)));
        for (status, code) in [
            (400, "E_QUERY_INVALID"),
            (400, ""),
            (401, "E_KEY_UNKNOWN"),
            (403, "E_AGENT_UNBOUND"),
            (404, "E_MONITOR_UNKNOWN"),
        ] {
            assert!(matches!(answer(status, code), Failure::Denied(_)), "{status} {code}");
        }
        for (status, code) in [(429, "E_RATE_LIMITED"), (503, "E_STORE_AWAY"), (302, "")] {
            assert!(matches!(answer(status, code), Failure::Away(_)), "{status} {code}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_node() {
        let told = answer(401, "E_KEY_WRONG");
        assert_eq!(told.text(), "node answered 401: No: why (`skep explain E_KEY_WRONG`)");
        let plain = refused("node", StatusCode::BAD_GATEWAY, b"  a proxy  ");
        assert_eq!(plain.text(), "node answered 502: a proxy");
    }

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        assert_eq!(shown("http://me:secret@host:1"), "http://host:1");
        assert_eq!(shown("http://host:1"), "http://host:1");
    }
}
