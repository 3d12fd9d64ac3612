//! A plain HTTP client for the actors, which keeps connections.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body; null if it is no JSON.
    pub body: Value,
}

impl Answer {
    /// Whether the node did what was asked.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.body["detail"].as_str().or(self.body["title"].as_str());
        write!(f, "{}: {}", self.status, said.unwrap_or("without a reason"))
    }
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub struct Trouble(pub String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An answer as it came.
struct Raw {
    status: u16,
    body: Bytes,
}

pub(super) struct Client {
    inner: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

impl Client {
    pub fn new() -> Self {
        Client::keeping(usize::MAX)
    }

    /// One that makes a connection for each request: none was ever closed before it is used.
    pub fn fresh() -> Self {
        Client::keeping(0)
    }

    fn keeping(connections: usize) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        builder.pool_max_idle_per_host(connections);
        Client { inner: builder.build(connector) }
    }

    pub async fn send(
        &self,
        address: (&str, &str),
        key: Option<&str>,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Answer, Trouble> {
        let Raw { status, body } = self.exchange(address, key, body, limit).await?;
        Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
    }

    /// The text of a page.
    pub async fn text(
        &self,
        url: &str,
        key: Option<&str>,
        limit: Duration,
    ) -> Result<String, Trouble> {
        let Raw { status, body } = self.exchange(("GET", url), key, None, limit).await?;
        match status {
            200 => Ok(String::from_utf8_lossy(&body).into_owned()),
            _ => Err(Trouble(format!("GET {url} was answered {status}"))),
        }
    }

    async fn exchange(
        &self,
        (method, url): (&str, &str),
        key: Option<&str>,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Raw, Trouble> {
        let trouble = |why: String| Trouble(format!("{method} {url}: {why}"));
        let bad = |error: &dyn fmt::Display| trouble(error.to_string());
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| bad(&error))?;
        let mut request = Request::builder().method(method).uri(url);
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let bytes = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(bytes)).map_err(|error| bad(&error))?;
        let exchange = async {
            let response = self.inner.request(request).await.map_err(|error| bad(&error))?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|error| bad(&error))?;
            Ok(Raw { status, body: body.to_bytes() })
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(trouble(format!("no answer within {limit:?}"))),
        }
    }
}
