//! What clients of queues may ask for and this version does not have. It is answered as such, so
//! that nobody looks for a wrong address.

use crate::http::problem::{self, Problem, ProblemBody};
use axum::http::{HeaderMap, header};

/// The routes of one thing that is not there: itself, and everything below it.
macro_rules! missing {
    ($($name:ident $rest:ident $path:literal: $words:literal;)+) => {
        $(
            #[doc = concat!("Not in this version: ", $words)]
            #[utoipa::path(
                method(get, post, put, patch, delete), path = $path, tag = "queues",
                extensions(("x-scope" = json!("none"))),
                responses((status = 501, description = "It is not there", body = ProblemBody))
            )]
            pub async fn $name() -> Problem {
                not_here($words)
            }

            #[doc = concat!("Not in this version: ", $words)]
            #[utoipa::path(
                method(get, post, put, patch, delete), path = concat!($path, "/{*path}"),
                tag = "queues", extensions(("x-scope" = json!("none"))),
                params(("path" = String, Path)),
                responses((status = 501, description = "It is not there", body = ProblemBody))
            )]
            pub async fn $rest() -> Problem {
                not_here($words)
            }
        )+
    };
}

missing! {
    kv kv_rest "/api/v1/kv":
        "keys and values; queues keep messages, and a database keeps the rest";
    timers timers_rest "/api/v1/timers":
        "timers; push a message with `delay` or `delayUntil`, or make a schedule";
    locks locks_rest "/api/v1/locks":
        "locks; a partition is worked on by one consumer of a group at a time";
    ephemeral ephemeral_rest "/api/v1/ephemeral":
        "queues that forget; every message is on disk before its push is answered";
    fetch fetch_rest "/api/v1/fetch":
        "reading by offset; pop with a group of its own, seek it, or look at `messages`";
    changed changed_rest "/api/v1/partitions/changed":
        "partitions that changed; a pop that waits is woken by the push";
    streams streams_rest "/streams/v1":
        "streams with windows and joins; consume and push in a transaction";
}

fn not_here(words: &str) -> Problem {
    Problem::new(&problem::E_NOT_SUPPORTED, format!("not in this version: {words}")).plain()
}

/// Refuses a push that is no JSON by its own words. Those who leave the kind out, or send one that
/// stands for anything, are taken at their word.
pub fn check_kind(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    let binary = ["octet-stream", "frames", "binary", "msgpack", "protobuf"];
    if kind.contains("json") || !binary.iter().any(|word| kind.contains(word)) {
        return Ok(());
    }
    let words = format!("not in this version: a push of the kind {kind:?}; send JSON");
    Err(Problem::new(&problem::E_NOT_SUPPORTED, words).at("Content-Type").plain())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_what_is_surely_no_json_is_refused() {
        let of = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            check_kind(&headers).is_ok()
        };
        assert!(check_kind(&HeaderMap::new()).is_ok());
        assert!(of("application/json; charset=utf-8") && of("application/x-www-form-urlencoded"));
        assert!(of("text/plain") && of("application/vnd.frames+json"));
        assert!(!of("application/octet-stream") && !of("application/x-queen-frames"));
    }
}
