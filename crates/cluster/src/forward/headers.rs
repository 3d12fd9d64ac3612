//! Headers that belong to one connection, and those that nodes add.

use hyper::HeaderMap;
use hyper::header::{self, HeaderName};

/// Proves that a request was forwarded by a node of this cluster; see [`super::Hops`].
pub const HOP: HeaderName = HeaderName::from_static("skep-hop");
/// In the answer to a forwarded request: microseconds from its arrival to its answer. What is left
/// of the time it took is the hop itself. Taken out before the answer goes on.
pub const TOOK: HeaderName = HeaderName::from_static("skep-took-us");
/// The node that made an answer.
pub const SERVED_BY: HeaderName = HeaderName::from_static("x-served-by");
/// The node that a request came to, if another one made the answer.
pub const FORWARDED_BY: HeaderName = HeaderName::from_static("x-forwarded-by");
/// Why a request that should have been forwarded was not.
pub const FALLBACK: HeaderName = HeaderName::from_static("x-fallback");

/// Always about the connection, whatever `Connection` says.
static HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Takes out what is about one connection only, and whatever `Connection` names.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // Most have none, and most of the rest only name what is in the list anyway.
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn what_is_about_one_connection_stays_there_and_the_rest_travels() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine , te"),
            ("connection", "x-other"),
            ("keep-alive", "timeout=5"),
            ("x-mine", "1"),
            ("x-other", "2"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
            ("authorization", "Bearer k"),
            ("cookie", "a=b"),
            ("cookie", "c=d"),
        ] {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("is a name"),
                HeaderValue::from_static(value),
            );
        }
        remove_hop_by_hop(&mut headers);
        let left: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let kept = [("authorization", "Bearer k"), ("cookie", "a=b"), ("cookie", "c=d")];
        assert_eq!(left.len(), kept.len(), "{left:?}");
        for (name, value) in kept {
            assert!(left.iter().any(|(n, v)| *n == name && *v == value), "{name}");
        }
    }
}
