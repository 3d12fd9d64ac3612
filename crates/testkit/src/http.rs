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
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(30)))
        .build()
        .into();
    let mut response = agent.get(url).call().map_err(|error| error.to_string())?;
    let body = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
    Ok(Answer { status: response.status().as_u16(), body, headers: response.headers().clone() })
}
