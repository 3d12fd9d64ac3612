//! A plain HTTP client for tests.

use serde_json::Value;
use std::time::Duration;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body as text.
    pub body: String,
    headers: ureq::http::HeaderMap,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none; the body is shown.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// A header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Sends a GET request; any status is an answer.
pub fn get(url: &str) -> Result<Answer, String> {
    send("GET", url, &[], None)
}

/// Sends a request; any status is an answer.
pub fn send(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Result<Answer, String> {
    send_within(Duration::from_secs(30), method, url, headers, body)
}

/// The same with another limit than half a minute.
pub fn send_within(
    limit: Duration,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Result<Answer, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .timeout_global(Some(limit))
        .build()
        .into();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let text = |error: ureq::Error| error.to_string();
    let sent = match body {
        Some(body) => agent.run(request.body(body.to_owned()).map_err(|e| e.to_string())?),
        None => agent.run(request.body(()).map_err(|e| e.to_string())?),
    };
    let mut response = sent.map_err(text)?;
    let body = response.body_mut().read_to_string().map_err(text)?;
    Ok(Answer { status: response.status().as_u16(), body, headers: response.headers().clone() })
}
