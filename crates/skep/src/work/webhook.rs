//! Telling others over HTTP, signed.

use crate::access::{hex, now_ms};
use crate::settings::Secret;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use skep_dial::Dialler;
use skep_pools::{Failure, Outcome, Task};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;

/// The kind of the tasks that send messages.
pub const KIND: &str = "alert-webhook";

/// How long the other side may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So much of its answer is read.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// What is sent, and where to: what the task can be built anew from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    pub url: String,
    pub body: serde_json::Value,
}

type HttpClient = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// Sends messages, signed.
pub struct Sender {
    secret: Secret,
    dialler: Dialler,
    /// Made when it is needed, because reading the system's certificates takes its time.
    client: OnceLock<Result<HttpClient, String>>,
}

impl Sender {
    pub fn new(secret: Secret, dialler: Dialler) -> Self {
        Sender { secret, dialler, client: OnceLock::new() }
    }

    fn client(&self) -> Result<&HttpClient, Failure> {
        let make = || {
            let connector = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
                .map_err(|error| format!("the system's certificates cannot be read: {error}"))?
                .https_or_http()
                .enable_http1()
                .wrap_connector(Connector(self.dialler.clone()));
            Ok(Client::builder(TokioExecutor::new()).build(connector))
        };
        self.client.get_or_init(make).as_ref().map_err(Failure::retryable)
    }
}

/// Connects by the rules of the node.
#[derive(Clone)]
struct Connector(Dialler);

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let dialler = self.0.clone();
        Box::pin(async move {
            let host = to.host().unwrap_or_default().trim_matches(['[', ']']);
            let usual = if to.scheme_str() == Some("https") { 443 } else { 80 };
            let stream = dialler.connect_by_name(host, to.port_u16().unwrap_or(usual)).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// The task that sends a message.
pub fn task(message: Message, sender: &Arc<Sender>) -> Task {
    let payload = serde_json::to_vec(&message).unwrap_or_default();
    let (message, sender) = (Arc::new(message), sender.clone());
    Task::future(KIND, move |context| {
        let (message, sender) = (message.clone(), sender.clone());
        async move { send(&message, &sender, context.id()).await }
    })
    .payload(payload)
}

/// The task again, from what a dead letter kept of it.
pub fn from_payload(payload: &[u8], sender: Option<&Arc<Sender>>) -> Result<Task, String> {
    let message = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    let sender = sender.ok_or("`alerts.secret` is not set any more")?;
    Ok(task(message, sender))
}

async fn send(message: &Message, sender: &Sender, delivery: u64) -> Outcome {
    let client = sender.client()?;
    let body = message.body.to_string();
    let at = now_ms() / 1_000;
    let request = Request::post(&message.url)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("skep/", env!("CARGO_PKG_VERSION")))
        .header("x-skep-delivery", delivery)
        .header("x-skep-signature", format!("t={at},v1={}", sign(&sender.secret, at, &body)))
        .body(Full::new(Bytes::from(body)))
        .map_err(Failure::permanent)?;
    let answering = async {
        // With its causes, because "client error" helps nobody.
        let failed = |error| Failure::retryable(format!("{:#}", anyhow::Error::new(error)));
        let answer = client.request(request).await.map_err(failed)?;
        let status = answer.status();
        // Read to its end, so that the connection can be used again.
        let _ = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok::<_, Failure>(status)
    };
    let status = tokio::time::timeout(TIMEOUT, answering)
        .await
        .map_err(|_| Failure::retryable(format!("no answer within {TIMEOUT:?}")))??;
    let busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    match status {
        _ if status.is_success() => Ok(()),
        _ if status.is_client_error() && !busy => {
            Err(Failure::permanent(format!("the other side answered {status}")))
        }
        _ => Err(Failure::retryable(format!("the other side answered {status}"))),
    }
}

/// HMAC-SHA256 over the time and the body, so that neither can be changed and an old message not
/// sent again.
pub fn sign(secret: &Secret, at_seconds: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.0.as_bytes())
        .unwrap_or_else(|_| unreachable!("a key of any length will do"));
    mac.update(format!("{at_seconds}.{body}").as_bytes());
    hex(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_dial::Dials;
    use skep_policy::reach::Reach;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn the_signature_can_be_checked_with_other_tools() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let secret = Secret("0123456789abcdef".to_owned());
        let signature = sign(&secret, 1_700_000_000, r#"{"a":1}"#);
        assert_eq!(signature, "9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23");
    }

    fn sender(reach: Reach) -> Arc<Sender> {
        let dialler = Dials::new(reach).dialler("webhook");
        Arc::new(Sender::new(Secret("0123456789abcdef".to_owned()), dialler))
    }

    /// Answers one request after the other with these, and gives what it was sent.
    async fn told(answers: &[&'static str]) -> (Vec<Outcome>, Vec<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}/hook?token=x", listener.local_addr().expect("has one"));
        let message = Message { url, body: serde_json::json!({ "alert": "queue-depth" }) };
        let sender = sender(Reach::default());
        let (mut outcomes, mut heard) = (Vec::new(), Vec::new());
        for (delivery, answer) in (7..).zip(answers) {
            let hearing = async {
                let (mut stream, _) = listener.accept().await.expect("is called");
                let mut request = vec![0; 4_096];
                let mut length = 0;
                while !request[..length].ends_with(b"}") {
                    let more = stream.read(&mut request[length..]).await.expect("reads");
                    assert!(more > 0, "it ended early");
                    length += more;
                }
                let answer =
                    format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("answers");
                String::from_utf8(request[..length].to_vec()).expect("is text")
            };
            let (outcome, request) = tokio::join!(send(&message, &sender, delivery), hearing);
            outcomes.push(outcome);
            heard.push(request);
        }
        (outcomes, heard)
    }

    #[tokio::test]
    async fn what_the_other_side_answers_decides_whether_it_is_told_again() {
        let (outcomes, _) =
            told(&["204 No Content", "400 No", "404 No", "408 Late", "429 Busy", "500 Oh"]).await;
        let again = outcomes.iter().map(|outcome| match outcome {
            Ok(()) => "done",
            Err(failure) if failure.retry => "again",
            Err(_) => "never",
        });
        assert_eq!(
            again.collect::<Vec<_>>(),
            ["done", "never", "never", "again", "again", "again"]
        );
    }

    #[tokio::test]
    async fn a_message_is_signed_with_its_time_and_has_the_number_of_its_task() {
        let (outcomes, heard) = told(&["200 OK"]).await;
        assert!(outcomes[0].is_ok());
        let (head, body) = heard[0].split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("POST /hook?token=x HTTP/1.1\r\n"), "{head}");
        let header = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            line.unwrap_or_else(|| panic!("no {name} in {head}"))
        };
        assert_eq!(header("x-skep-delivery"), "7");
        assert_eq!(header("content-type"), "application/json");
        let (at, signature) = header("x-skep-signature").split_once(",v1=").expect("two parts");
        let at: i64 = at.strip_prefix("t=").expect("a time").parse().expect("a number");
        assert!((now_ms() / 1_000 - at).abs() < 60, "{at}");
        let secret = Secret("0123456789abcdef".to_owned());
        assert_eq!(signature, sign(&secret, at, body));
    }

    #[test]
    fn a_dead_letter_is_built_anew_from_its_payload_unless_the_secret_is_gone() {
        let url = "http://hooks.example/skep".to_owned();
        let message = Message { url, body: serde_json::json!({ "alert": "stuck" }) };
        let payload = serde_json::to_vec(&message).expect("is JSON");
        let sender = sender(Reach::default());
        assert!(from_payload(&payload, Some(&sender)).is_ok());
        let error = from_payload(&payload, None).expect_err("there is no secret");
        assert!(error.contains("alerts.secret"), "{error}");
        assert!(from_payload(b"{}", Some(&sender)).is_err());
    }

    #[tokio::test]
    async fn a_webhook_that_leads_to_a_denied_address_is_not_told() {
        let ranges = ["127.0.0.0/8", "::1"].map(|range| range.parse().expect("is a range"));
        let reach = Reach { deny: ranges.to_vec(), allow: Vec::new() };
        let sender = sender(reach);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("has one").port();
        for host in ["localhost", "127.0.0.1", "0x7f000001", "[::1]"] {
            let url = format!("http://{host}:{port}/hook");
            let message = Message { url, body: serde_json::json!({}) };
            let failed = send(&message, &sender, 1).await.expect_err(host);
            assert!(failed.message.contains("not to be reached"), "{host}: {}", failed.message);
        }
        let coming = tokio::time::timeout(Duration::from_millis(20), listener.accept());
        assert!(coming.await.is_err(), "nobody has knocked");
    }
}
