//! Writing answers about messages, straight into bytes.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use skep_policy::Time;
use uuid::Uuid;

/// Beside an answer that is not to be compressed.
#[derive(Clone, Copy)]
pub struct Uncompressed;

/// JSON under construction.
pub struct Json(Vec<u8>);

impl Json {
    /// With room for so many bytes.
    pub fn with_room(bytes: usize) -> Self {
        Json(Vec::with_capacity(bytes))
    }

    /// Adds what is JSON already, or a part of it.
    pub fn raw(&mut self, json: impl AsRef<[u8]>) -> &mut Self {
        self.0.extend_from_slice(json.as_ref());
        self
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.0, text);
        self
    }

    /// Adds a text, or null.
    pub fn optional(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.raw("null"),
        }
    }

    /// Adds a UUID.
    pub fn uuid(&mut self, uuid: Uuid) -> &mut Self {
        let mut letters = Uuid::encode_buffer();
        let text = uuid.as_hyphenated().encode_lower(&mut letters);
        self.raw("\"").raw(text).raw("\"")
    }

    /// Adds a number.
    pub fn number(&mut self, number: usize) -> &mut Self {
        let _ = serde_json::to_writer(&mut self.0, &number);
        self
    }

    /// Adds true or false.
    pub fn truth(&mut self, truth: bool) -> &mut Self {
        self.raw(if truth { "true" } else { "false" })
    }

    /// Adds a comma, unless it is before the first.
    pub fn comma(&mut self, number: usize) -> &mut Self {
        if number > 0 { self.raw(",") } else { self }
    }

    /// What is there.
    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }

    /// An answer with it.
    pub fn answer(self, status: StatusCode) -> Response {
        answer(status, Body::from(self.into_bytes()))
    }
}

/// An answer of JSON that is not compressed.
pub fn answer(status: StatusCode, body: Body) -> Response {
    let mut response = (status, body).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response.extensions_mut().insert(Uncompressed);
    response
}

/// A time as the API writes it, in UTC with microseconds.
pub fn timestamp(at: Time) -> String {
    let nanos = i128::from(at.as_nanos());
    let time = jiff::Timestamp::from_nanosecond(nanos).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_microseconds() {
        assert_eq!(timestamp(Time::from_nanos(1_500)), "1970-01-01T00:00:00.000001Z");
        assert_eq!(timestamp(Time::from_millis(1_000)), "1970-01-01T00:00:01.000000Z");
    }

    #[test]
    fn what_is_written_is_json() {
        let mut json = Json::with_room(0);
        json.raw("[").text("a\"\u{1}é").raw(",").optional(None).raw(",").number(7);
        json.raw(",").truth(true).raw(",").uuid(Uuid::nil()).raw("]");
        let read: serde_json::Value = serde_json::from_slice(&json.into_bytes()).expect("is JSON");
        let nil = "00000000-0000-0000-0000-000000000000";
        assert_eq!(read, serde_json::json!(["a\"\u{1}é", null, 7, true, nil]));
    }
}
