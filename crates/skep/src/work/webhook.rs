//! Telling others over HTTP, signed.

use crate::access::{hex, now_ms};
use crate::settings::Secret;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use skep_pools::{Failure, Outcome, Task};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

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

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// One for the process, because reading the system's certificates takes its time.
static CLIENT: LazyLock<Result<HttpClient, String>> = LazyLock::new(|| {
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
        .map_err(|error| format!("the system's certificates cannot be read: {error}"))?
        .https_or_http()
        .enable_http1()
        .build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
});

/// The task that sends a message.
pub fn task(message: Message, secret: &Secret) -> Task {
    let payload = serde_json::to_vec(&message).unwrap_or_default();
    let (message, secret) = (Arc::new(message), secret.clone());
    Task::future(KIND, move |context| {
        let (message, secret) = (message.clone(), secret.clone());
        async move { send(&message, &secret, context.id()).await }
    })
    .payload(payload)
}

/// The task again, from what a dead letter kept of it.
pub fn from_payload(payload: &[u8], secret: Option<&Secret>) -> Result<Task, String> {
    let message = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    let secret = secret.ok_or("`alerts.secret` is not set any more")?;
    Ok(task(message, secret))
}

async fn send(message: &Message, secret: &Secret, delivery: u64) -> Outcome {
    let client = CLIENT.as_ref().map_err(Failure::retryable)?;
    let body = message.body.to_string();
    let at = now_ms() / 1_000;
    let request = Request::post(&message.url)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("skep/", env!("CARGO_PKG_VERSION")))
        .header("x-skep-delivery", delivery)
        .header("x-skep-signature", format!("t={at},v1={}", sign(secret, at, &body)))
        .body(Full::new(Bytes::from(body)))
        .map_err(Failure::permanent)?;
    let answering = async {
        let answer = client.request(request).await.map_err(Failure::retryable)?;
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

    #[test]
    fn the_signature_can_be_checked_with_other_tools() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let secret = Secret("0123456789abcdef".to_owned());
        let signature = sign(&secret, 1_700_000_000, r#"{"a":1}"#);
        assert_eq!(signature, "9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23");
    }
}
