//! A client's handshake as workers get it.

use crate::ask::words;
use crate::url::WorkerUrl;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use std::net::IpAddr;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Tells worker and client which session they are in.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("x-skep-session");

/// Headers that are between two neighbours only.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that were meant for the gateway, or that it writes itself.
const OWN: &[&str] = &[
    "authorization",
    "content-length",
    "expect",
    "host",
    "x-api-key",
    "x-forwarded-for",
    "x-skep-session",
];

/// What is the same for every worker that is tried.
pub(crate) struct Outline {
    path: String,
    query: String,
    headers: Vec<u8>,
}

impl Outline {
    /// From a client's request, and what is left of its query.
    pub fn new(parts: &Parts, query: String, peer: IpAddr) -> Self {
        let named = words(&parts.headers, &header::CONNECTION);
        let passed = |name: &HeaderName| {
            let dropped = named.iter().any(|word| word.eq_ignore_ascii_case(name.as_str()));
            !dropped && !HOP_BY_HOP.contains(&name.as_str()) && !OWN.contains(&name.as_str())
        };
        let mut headers = Vec::with_capacity(512);
        // Both come from a parser that lets no line break through.
        let mut add = |name: &HeaderName, value: &[u8]| {
            headers.extend_from_slice(name.as_str().as_bytes());
            headers.extend_from_slice(b": ");
            headers.extend_from_slice(value);
            headers.extend_from_slice(b"\r\n");
        };
        add(&header::CONNECTION, b"Upgrade");
        add(&header::UPGRADE, b"websocket");
        for (name, value) in parts.headers.iter().filter(|(name, _)| passed(name)) {
            add(name, value.as_bytes());
        }
        let before = words(&parts.headers, &FORWARDED_FOR);
        let chain: Vec<String> =
            before.iter().map(ToString::to_string).chain([peer.to_string()]).collect();
        add(&FORWARDED_FOR, chain.join(", ").as_bytes());
        if !parts.headers.contains_key(FORWARDED_PROTO) {
            add(&FORWARDED_PROTO, b"http");
        }
        if let Some(host) = parts.headers.get(header::HOST)
            && !parts.headers.contains_key(FORWARDED_HOST)
        {
            add(&FORWARDED_HOST, host.as_bytes());
        }
        Outline { path: parts.uri.path().to_owned(), query, headers }
    }

    /// The whole head, for one worker.
    pub fn for_worker(&self, url: &WorkerUrl, session: Option<&HeaderValue>) -> Vec<u8> {
        let target = url.join(&self.path, &self.query);
        let line = format!("GET {target} HTTP/1.1\r\nhost: {}\r\n", url.authority());
        let mut head = Vec::with_capacity(line.len() + self.headers.len() + 96);
        head.extend_from_slice(line.as_bytes());
        head.extend_from_slice(&self.headers);
        if let Some(session) = session {
            head.extend_from_slice(b"x-skep-session: ");
            head.extend_from_slice(session.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// Drops from a worker's answer what is between it and the gateway.
pub(crate) fn without_hops(headers: &mut HeaderMap) {
    let named: Vec<String> =
        words(headers, &header::CONNECTION).iter().map(ToString::to_string).collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(*name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn head(headers: &[(&str, &str)]) -> String {
        let mut request = Request::builder().uri("/x?secret=1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).expect("is a request").into_parts().0;
        let outline = Outline::new(&parts, "a=1".to_owned(), IpAddr::from([10, 0, 0, 7]));
        let url = "ws://worker:9001/abc".parse().expect("is a URL");
        let session = HeaderValue::from_static("s-1");
        String::from_utf8(outline.for_worker(&url, Some(&session))).expect("is text")
    }

    #[test]
    fn the_worker_gets_the_clients_headers_without_keys_and_hops() {
        let head = head(&[
            ("host", "gateway:8080"),
            ("connection", "Upgrade, x-between"),
            ("upgrade", "websocket"),
            ("authorization", "Bearer k"),
            ("x-api-key", "k"),
            ("x-between", "k"),
            ("te", "trailers"),
            ("x-skep-session", "forged"),
            ("cookie", "a=b"),
            ("sec-websocket-protocol", "p"),
            ("x-forwarded-for", "1.2.3.4"),
        ]);
        assert_eq!(
            head,
            "GET /abc/x?a=1 HTTP/1.1\r\nhost: worker:9001\r\nconnection: Upgrade\r\n\
             upgrade: websocket\r\ncookie: a=b\r\nsec-websocket-protocol: p\r\n\
             x-forwarded-for: 1.2.3.4, 10.0.0.7\r\nx-forwarded-proto: http\r\n\
             x-forwarded-host: gateway:8080\r\nx-skep-session: s-1\r\n\r\n"
        );
    }

    #[test]
    fn what_a_proxy_before_us_said_of_the_client_stays() {
        let head = head(&[("x-forwarded-proto", "https"), ("x-forwarded-host", "shop.example")]);
        assert!(head.contains("x-forwarded-proto: https\r\nx-forwarded-host: shop.example\r\n"));
        assert!(!head.contains(": http\r\n"));
    }
}
