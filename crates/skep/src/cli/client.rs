//! Talking to a node over HTTP.

use super::events::Events;
use super::{CliError, Exit};
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Where a node listens unless it is told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:6632";
/// How long a node may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// An answer larger than this is not one of a node.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// A connection that nothing went over for so long is not used again: the node may be closing it.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Node")]
pub struct KeyArgs {
    /// API key; better given in the environment, where other users cannot see it
    #[arg(long, value_name = "KEY", env = "SKEP_API_KEY", hide_env_values = true)]
    pub key: Option<String>,
}

/// Which node to ask, and who asks.
#[derive(Args, Clone)]
#[command(next_help_heading = "Node")]
pub struct NodeArgs {
    /// Address of the node
    #[arg(long, value_name = "URL", env = "SKEP_URL", default_value = DEFAULT_URL)]
    pub url: String,

    #[command(flatten)]
    pub key: KeyArgs,

    /// Connections to it, for verbs that ask more than once.
    #[arg(skip)]
    kept: Arc<Kept>,
}

/// Connections that are open, by how they are secured.
#[derive(Default)]
struct Kept {
    plain: OnceLock<HttpClient<HttpConnector, Full<Bytes>>>,
    secured: OnceLock<HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>>,
}

/// What a node's refusal says, as far as it is shown.
#[derive(Deserialize)]
struct Refused {
    code: String,
    title: String,
    detail: String,
}

impl NodeArgs {
    /// Asks the node for `path` and reads its JSON answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.call(Method::GET, path, None).await
    }

    /// Asks the node for something that may not be there.
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, CliError> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.send(Method::GET, path, None));
        let (status, body) = answer.await.unwrap_or_else(|_| Err(self.too_slow()))?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => self.read(&body).map(Some),
            status => Err(self.refusal(status, &body)),
        }
    }

    /// Sends a request, with a JSON body if there is one, and reads the JSON answer.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<serde_json::Value>,
    ) -> Result<T, CliError> {
        self.read(&self.ask(method, path, body).await?)
    }

    /// Sends a request whose answer has nothing to read.
    pub async fn tell(&self, method: Method, path: &str) -> Result<(), CliError> {
        self.ask(method, path, None).await.map(|_| ())
    }

    /// Posts text of a kind and reads the JSON answer. A refusal is given with its body.
    pub async fn post_text<T: DeserializeOwned>(
        &self,
        path: &str,
        kind: &'static str,
        text: Vec<u8>,
    ) -> Result<Result<T, (CliError, serde_json::Value)>, CliError> {
        let sending = self.send(Method::POST, path, Some((kind, Bytes::from(text))));
        let (status, body) = tokio::time::timeout(ANSWER_TIMEOUT, sending)
            .await
            .unwrap_or_else(|_| Err(self.too_slow()))?;
        if !status.is_success() {
            let told = serde_json::from_slice(&body).unwrap_or_default();
            return Ok(Err((self.refusal(status, &body), told)));
        }
        self.read(&body).map(Ok)
    }

    /// Asks for a page of a plain list, and where the next one begins.
    pub async fn get_page<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<String>), CliError> {
        let asking = async {
            let answer = self.open(Method::GET, path, None).await?;
            let next = answer.headers().get("x-next").and_then(|next| next.to_str().ok());
            let next = next.map(str::to_owned);
            Ok((self.whole(answer).await?, next))
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, asking).await;
        let ((status, body), next) = answer.unwrap_or_else(|_| Err(self.too_slow()))?;
        if !status.is_success() {
            return Err(self.refusal(status, &body));
        }
        Ok((self.read(&body)?, next))
    }

    /// Sends JSON as it was written, and gives the answer as it was written.
    pub async fn send_json(
        &self,
        method: Method,
        path: &str,
        json: Vec<u8>,
    ) -> Result<Box<serde_json::value::RawValue>, CliError> {
        let sending = self.send(method, path, Some(("application/json", Bytes::from(json))));
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, sending);
        let (status, body) = answer.await.unwrap_or_else(|_| Err(self.too_slow()))?;
        if !status.is_success() {
            return Err(self.refusal(status, &body));
        }
        self.read(&body)
    }

    /// Asks for something that may take `wait` longer to come than answers do. `None` if there was
    /// nothing.
    pub async fn wait_for<T: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<Option<T>, CliError> {
        let answer =
            tokio::time::timeout(ANSWER_TIMEOUT + wait, self.send(Method::GET, path, None));
        let (status, body) = answer.await.unwrap_or_else(|_| Err(self.too_slow()))?;
        match status {
            StatusCode::NO_CONTENT => Ok(None),
            status if status.is_success() => self.read(&body).map(Some),
            status => Err(self.refusal(status, &body)),
        }
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, CliError> {
        serde_json::from_slice(body).map_err(|error| {
            let url = self.shown_url();
            let message = format!("{url} answered something else than a node would: {error}");
            CliError::new(Exit::Unavailable, message)
        })
    }

    fn too_slow(&self) -> CliError {
        let url = self.shown_url();
        CliError::new(Exit::Unavailable, format!("{url} did not answer in time"))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<serde_json::Value>,
    ) -> Result<Bytes, CliError> {
        let body = body.map(|value| ("application/json", Bytes::from(value.to_string())));
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.send(method, path, body));
        let (status, body) = answer.await.unwrap_or_else(|_| Err(self.too_slow()))?;
        if !status.is_success() {
            return Err(self.refusal(status, &body));
        }
        Ok(body)
    }

    /// Listens to the server-sent events of `path`, which go on until one side ends them.
    pub async fn listen(&self, path: &str) -> Result<Events, CliError> {
        Ok(Events::new(self.stream(path).await?, self.clone()))
    }

    /// Asks for `path` and gives its answer as it comes.
    pub async fn stream(&self, path: &str) -> Result<Incoming, CliError> {
        self.stream_of(Method::GET, path).await
    }

    /// The same, asked otherwise.
    pub async fn stream_of(&self, method: Method, path: &str) -> Result<Incoming, CliError> {
        let opening = self.open(method, path, None);
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, opening)
            .await
            .unwrap_or_else(|_| Err(self.too_slow()))?;
        let status = answer.status();
        if !status.is_success() {
            let reading = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
            let body = tokio::time::timeout(ANSWER_TIMEOUT, reading).await;
            let body = body.map_err(|_| self.too_slow())?;
            let body = body.map_err(|error| self.unreachable(error.as_ref()))?.to_bytes();
            return Err(self.refusal(status, &body));
        }
        Ok(answer.into_body())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(StatusCode, Bytes), CliError> {
        self.whole(self.open(method, path, body).await?).await
    }

    /// Reads an answer to its end.
    async fn whole(&self, answer: Response<Incoming>) -> Result<(StatusCode, Bytes), CliError> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.unreachable(error.as_ref()))?;
        Ok((status, body.to_bytes()))
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response<Incoming>, CliError> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.uri(path)?)
            .header(ACCEPT, "application/json");
        if let Some((kind, _)) = &body {
            request = request.header(CONTENT_TYPE, *kind);
        }
        let mut request = request
            .body(Full::new(body.map(|(_, body)| body).unwrap_or_default()))
            .map_err(|error| self.wrong_url(&error.to_string()))?;
        if let Some(key) = &self.key.key {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| {
                CliError::new(Exit::Usage, "--key holds characters that no key has")
            })?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let answer = if request.uri().scheme_str() == Some("https") {
            self.secured()?.request(request).await
        } else {
            let mut builder = HttpClient::builder(TokioExecutor::new());
            let made = || builder.pool_idle_timeout(IDLE_MAX).build_http();
            self.kept.plain.get_or_init(made).request(request).await
        };
        answer.map_err(|error| self.unreachable(&error))
    }

    fn secured(&self) -> Result<&HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>, CliError> {
        if let Some(kept) = self.kept.secured.get() {
            return Ok(kept);
        }
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| {
                let message = format!("the system's certificates cannot be read: {error}");
                CliError::new(Exit::System, message)
            })?
            .https_only()
            .enable_http1()
            .build();
        let mut builder = HttpClient::builder(TokioExecutor::new());
        let made = || builder.pool_idle_timeout(IDLE_MAX).build(connector);
        Ok(self.kept.secured.get_or_init(made))
    }

    fn uri(&self, path: &str) -> Result<Uri, CliError> {
        let base = self.url.trim_end_matches('/');
        let uri: Uri = format!("{base}{path}").parse().map_err(|_| self.wrong_url("not a URL"))?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(_)) => Ok(uri),
            _ => Err(self.wrong_url("it must start with http:// or https:// and name a host")),
        }
    }

    fn wrong_url(&self, cause: &str) -> CliError {
        let message = format!("--url {}: {cause}, as in http://127.0.0.1:6632", self.shown_url());
        CliError::new(Exit::Usage, message)
    }

    pub(super) fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> CliError {
        let mut cause = error.to_string();
        let mut next = error.source();
        while let Some(inner) = next {
            cause = inner.to_string();
            next = inner.source();
        }
        let message = format!(
            "no node answers at {}: {cause}; start one with `skep serve`, or name another with \
             --url",
            self.shown_url()
        );
        CliError::new(Exit::Unavailable, message)
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> CliError {
        let exit = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Denied,
            StatusCode::SERVICE_UNAVAILABLE => Exit::Unavailable,
            StatusCode::INSUFFICIENT_STORAGE => Exit::System,
            _ => Exit::No,
        };
        let problem: Option<Refused> = serde_json::from_slice(body).ok();
        let text = match problem {
            Some(problem) => {
                format!("{}: {} (`skep explain {}`)", problem.title, problem.detail, problem.code)
            }
            None => String::from_utf8_lossy(&body[..body.len().min(500)]).trim().to_owned(),
        };
        let hint = match (status, &self.key.key) {
            (StatusCode::UNAUTHORIZED, None) => "; give the key in SKEP_API_KEY",
            _ => "",
        };
        let code = status.as_u16();
        CliError::new(exit, format!("{} answered {code}: {text}{hint}", self.shown_url()))
    }

    /// A node at this address, asked with this key.
    pub fn new(url: String, key: Option<String>) -> Self {
        NodeArgs { url, key: KeyArgs { key }, kept: Arc::default() }
    }

    /// Whether somebody who says nothing about the node would reach this one too.
    pub fn is_usual(&self) -> bool {
        let usual = std::env::var("SKEP_URL");
        self.url == usual.as_deref().unwrap_or(DEFAULT_URL)
    }

    /// The address without what somebody may have put before an `@`.
    pub(super) fn shown_url(&self) -> String {
        let scheme = self.url.split_once("://").map(|(scheme, _)| format!("{scheme}://"));
        match self.url.rsplit_once('@') {
            Some((_, host)) => format!("{}{host}", scheme.unwrap_or_default()),
            None => self.url.clone(),
        }
    }
}

/// A part of a path or query, with everything else than letters, digits and a few signs escaped.
pub fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
