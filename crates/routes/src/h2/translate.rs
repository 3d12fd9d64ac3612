//! A request of HTTP/2 as HTTP/1 says it, and an answer of HTTP/1 as HTTP/2 says it.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::{Method, StatusCode, Uri, Version};

/// What is about one connection and not about the message.
const HOPS: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A request that cannot be said in HTTP/1 with certainty.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Untranslatable {
    pub status: StatusCode,
    pub message: String,
}

/// Rewrites the head of a request. `has_body` is whether anything may follow it.
pub(super) fn to_http1(parts: &mut request::Parts, has_body: bool) -> Result<(), Untranslatable> {
    if parts.method == Method::CONNECT {
        return Err(Untranslatable {
            status: StatusCode::METHOD_NOT_ALLOWED,
            message: "CONNECT is not possible here; give another method".to_owned(),
        });
    }
    let host = host(parts)?;
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    parts.uri = target.parse::<Uri>().map_err(|error| wrong(format!(":path: {error}")))?;
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    let headers = &mut parts.headers;
    // HTTP/2 knows none of these; who sends them wants something to be read in two ways.
    if let Some(hop) = HOPS.iter().find(|name| headers.contains_key(*name)) {
        return Err(wrong(format!("{hop} is not for HTTP/2; leave it out")));
    }
    if headers.get_all(header::TE).iter().any(|value| !value.eq("trailers")) {
        return Err(wrong("te can only be \"trailers\" in HTTP/2; give that, or none".to_owned()));
    }
    let lengths: Vec<_> = headers.get_all(header::CONTENT_LENGTH).iter().collect();
    let is_number =
        |value: &HeaderValue| !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
    if lengths.len() > 1 || lengths.iter().any(|value| !is_number(value)) {
        return Err(wrong("content-length is no single number; give it once, or not".to_owned()));
    }
    if has_body && lengths.is_empty() {
        // Said here because it is not assumed for every method.
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // 100 Continue is for whoever is asked over HTTP/1; here the body comes by itself.
    headers.remove(header::EXPECT);
    headers.insert(header::HOST, host);
    join_cookies(headers)
}

/// Takes away what HTTP/2 does not allow in an answer.
pub(super) fn to_http2(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOPS.iter().chain(&named) {
        headers.remove(name);
    }
}

/// `:authority`, or Host where there is none; never two that differ.
fn host(parts: &request::Parts) -> Result<HeaderValue, Untranslatable> {
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    let wanted = match (authority, host) {
        _ if second.is_some() => {
            return Err(wrong("host is there more than once; give it once".to_owned()));
        }
        (Some(authority), Some(host))
            if !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) =>
        {
            return Err(wrong(":authority and host differ; give one of them".to_owned()));
        }
        (Some(authority), _) => HeaderValue::from_str(authority)
            .map_err(|error| wrong(format!(":authority: {error}")))?,
        (None, Some(host)) => host.clone(),
        (None, None) => return Err(wrong("there is no host; give :authority".to_owned())),
    };
    if wanted.as_bytes().contains(&b'@') {
        return Err(wrong(":authority has a user in it; give host and port alone".to_owned()));
    }
    Ok(wanted)
}

/// HTTP/2 may send cookies one by one; in HTTP/1 they are one line.
fn join_cookies(headers: &mut HeaderMap) -> Result<(), Untranslatable> {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    if let (Some(first), Some(second)) = (cookies.next(), cookies.next()) {
        let mut joined = first.as_bytes().to_vec();
        for cookie in std::iter::once(second).chain(cookies) {
            joined.extend_from_slice(b"; ");
            joined.extend_from_slice(cookie.as_bytes());
        }
        let joined = HeaderValue::from_bytes(&joined);
        let joined = joined.map_err(|error| wrong(format!("cookie: {error}")))?;
        headers.insert(header::COOKIE, joined);
    }
    Ok(())
}

fn wrong(message: String) -> Untranslatable {
    Untranslatable { status: StatusCode::BAD_REQUEST, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn translated(
        uri: &str,
        headers: &[(&str, &str)],
        has_body: bool,
    ) -> Result<request::Parts, String> {
        let mut request = Request::builder().version(Version::HTTP_2).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut parts = request.body(()).expect("is a request").into_parts().0;
        to_http1(&mut parts, has_body).map_err(|error| error.message)?;
        Ok(parts)
    }

    #[test]
    fn a_request_is_said_in_origin_form_with_its_host() {
        let cookies = [("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers")];
        let parts = translated("https://shop.example:8443/a?b=c", &cookies, false).expect("is");
        assert_eq!(parts.uri, "/a?b=c");
        assert_eq!(parts.headers["host"], "shop.example:8443");
        assert_eq!(parts.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        assert!(!parts.headers.contains_key("transfer-encoding"));
        let parts = translated("/a", &[("host", "shop.example")], true).expect("is");
        assert_eq!(parts.headers["host"], "shop.example");
        assert_eq!(parts.headers["transfer-encoding"], "chunked");
        let with_length = [("host", "a"), ("content-length", "5")];
        let parts = translated("/a", &with_length, true).expect("is");
        assert!(!parts.headers.contains_key("transfer-encoding"));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let refused = |uri: &str, headers: &[(&str, &str)]| {
            translated(uri, headers, true).expect_err("is refused")
        };
        let at = "https://a.example/";
        assert_eq!(refused("/", &[]), "there is no host; give :authority");
        assert!(refused(at, &[("host", "b.example")]).contains("differ"));
        assert!(refused("/", &[("host", "a"), ("host", "a")]).contains("more than once"));
        assert!(refused("https://me@a.example/", &[]).contains("has a user in it"));
        assert!(refused(at, &[("te", "gzip")]).contains("give that, or none"));
        assert!(refused(at, &[("transfer-encoding", "chunked")]).contains("leave it out"));
        assert!(refused(at, &[("connection", "close")]).contains("leave it out"));
        for lengths in [&["5", "6"][..], &["5", "5"], &["+5"], &["5, 5"], &[""]] {
            let headers: Vec<_> = lengths.iter().map(|one| ("content-length", *one)).collect();
            assert!(refused(at, &headers).contains("no single number"), "{lengths:?}");
        }
        assert!(translated(at, &[("host", "A.example")], false).is_ok());
    }

    #[test]
    fn what_is_about_one_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Secret"),
            ("keep-alive", "timeout=5"),
            ("x-secret", "1"),
            ("x-kept", "1"),
        ] {
            headers.insert(name, value.parse().expect("is a value"));
        }
        to_http2(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-kept"]);
    }
}
