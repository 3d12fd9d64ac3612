//! What a client's request must be like before anybody is asked for a worker.

use crate::desk::Refusal;
use crate::query::KEY_MAX;
use crate::refusals::{E_HANDSHAKE_INVALID, E_HANDSHAKE_VERSION, E_REQUEST_INVALID, shown};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, Version};

/// Whether a request wants to leave HTTP behind.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
}

/// Refuses what two servers could read in two ways.
pub(crate) fn check_framing(parts: &Parts) -> Result<(), Refusal> {
    let hosts = parts.headers.get_all(header::HOST).iter().count();
    if hosts > 1 || (hosts == 0 && parts.version == Version::HTTP_11) {
        return Err(E_REQUEST_INVALID.because(format!("Host is there {hosts} times; give it once")));
    }
    // A length beside it would be gone by now, so a contradiction could not be seen any more.
    if parts.headers.contains_key(header::TRANSFER_ENCODING) {
        let message = "Transfer-Encoding is not taken here; send the body with Content-Length";
        return Err(E_REQUEST_INVALID.because(message));
    }
    Ok(())
}

/// Checks the handshake of RFC 6455, all of it but the origin, which is the worker's business.
pub(crate) fn check_handshake(parts: &Parts) -> Result<(), Refusal> {
    let wrong = |message: String| Err(E_HANDSHAKE_INVALID.because(message));
    let headers = &parts.headers;
    if parts.method != Method::GET || parts.version != Version::HTTP_11 {
        let found = format!("{} {:?}", parts.method, parts.version);
        return wrong(format!("{} begins no session; send GET and HTTP/1.1", shown(&found)));
    }
    let upgrade = words(headers, &header::UPGRADE);
    if upgrade.len() != 1 || !upgrade[0].eq_ignore_ascii_case("websocket") {
        let found = shown(&upgrade.join(", "));
        return wrong(format!("Upgrade: {found} is not possible here; give websocket"));
    }
    let connection = words(headers, &header::CONNECTION);
    if !connection.iter().any(|word| word.eq_ignore_ascii_case("upgrade")) {
        let found = shown(&connection.join(", "));
        return wrong(format!("Connection: {found} does not say Upgrade; give Upgrade"));
    }
    if headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0") {
        return wrong("a handshake has no body; send none, and no Content-Length".to_owned());
    }
    let versions = words(headers, &header::SEC_WEBSOCKET_VERSION);
    if versions != ["13"] {
        let found = shown(&versions.join(", "));
        let message = format!("Sec-WebSocket-Version: {found} is not spoken here; give 13");
        return Err(E_HANDSHAKE_VERSION.because(message));
    }
    let keys = words(headers, &header::SEC_WEBSOCKET_KEY);
    if keys.len() != 1 || !is_key(keys[0]) {
        let found = shown(&keys.join(", "));
        return wrong(format!("Sec-WebSocket-Key: {found} is none; give 16 bytes in base64"));
    }
    if has_dot_segments(parts.uri.path()) {
        // The worker's own path may be its secret, and nobody may climb out of it.
        let path = shown(parts.uri.path());
        return wrong(format!("the path {path} goes up; give one without . and .. in it"));
    }
    Ok(())
}

/// The one key that was shown, whatever way.
pub(crate) fn key<'a>(
    headers: &'a HeaderMap,
    token: Option<&'a str>,
) -> Result<Option<&'a str>, Refusal> {
    let wrong = |message: &str| E_REQUEST_INVALID.because(message);
    let mut found = token;
    let mut show = |key: &'a str| {
        if key.is_empty() || key.len() > KEY_MAX {
            return Err(wrong("the key has not 1 to 512 bytes"));
        }
        match found.replace(key) {
            Some(before) if before != key => {
                Err(wrong("two different keys are given; give one, and one way"))
            }
            _ => Ok(()),
        }
    };
    for value in headers.get_all(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default().trim();
        let (scheme, key) = text.split_once(' ').unwrap_or((text, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(wrong("Authorization is of a kind not known here; give Bearer KEY"));
        }
        show(key.trim())?;
    }
    for value in headers.get_all("x-api-key") {
        show(value.to_str().unwrap_or_default().trim())?;
    }
    Ok(found)
}

/// The words of a header that is a list, over all its lines.
pub(crate) fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let lines = headers.get_all(name).iter();
    let words = lines.flat_map(|line| line.to_str().unwrap_or("\u{fffd}").split(','));
    words.map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// 16 bytes in base64: 22 letters and two signs that fill up.
fn is_key(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    text.len() == 24 && text.ends_with("==") && text.bytes().take(22).all(letter)
}

fn has_dot_segments(path: &str) -> bool {
    let plain = path.replace("%2e", ".").replace("%2E", ".");
    let plain = plain.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\");
    plain.replace("%5C", "\\").split(['/', '\\']).any(|part| part == "." || part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const GOOD: &[(&str, &str)] = &[
        ("host", "gateway:8080"),
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    /// A good handshake, but for one header.
    fn with(name: &str, value: Option<&str>, path: &str) -> Parts {
        let mut request = Request::builder().uri(path);
        for (known, good) in GOOD.iter().filter(|(known, _)| *known != name) {
            request = request.header(*known, *good);
        }
        if let Some(value) = value {
            request = request.header(name, value);
        }
        request.body(()).expect("is a request").into_parts().0
    }

    fn refused(name: &str, value: Option<&str>) -> (u16, String) {
        let refusal = check_handshake(&with(name, value, "/")).expect_err(name);
        (refusal.status, refusal.message)
    }

    #[test]
    fn a_handshake_as_clients_send_it_is_good() {
        assert_eq!(check_handshake(&with("x", Some("y"), "/a/..b?c=../d")), Ok(()));
        assert_eq!(check_handshake(&with("content-length", Some("0"), "/")), Ok(()));
    }

    #[test]
    fn what_is_no_handshake_is_told_so() {
        let (status, message) = refused("upgrade", Some("h2c"));
        assert_eq!(
            (status, message.as_str()),
            (400, "Upgrade: \"h2c\" is not possible here; give websocket")
        );
        assert_eq!(refused("upgrade", Some("websocket, h2c")).0, 400);
        assert_eq!(refused("connection", Some("close")).0, 400);
        assert_eq!(refused("connection", None).0, 400);
        assert_eq!(refused("content-length", Some("3")).0, 400);
        let (status, message) = refused("sec-websocket-version", Some("8"));
        assert_eq!(
            (status, message.as_str()),
            (426, "Sec-WebSocket-Version: \"8\" is not spoken here; give 13")
        );
        assert_eq!(refused("sec-websocket-version", None).0, 426);
        for key in ["", "short==", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25j!Q=="] {
            assert_eq!(refused("sec-websocket-key", Some(key)).0, 400, "{key}");
        }
        assert_eq!(refused("sec-websocket-key", None).0, 400);
    }

    #[test]
    fn nobody_climbs_out_of_the_workers_path() {
        for path in ["/..", "/a/../b", "/./a", "/%2e%2E/a", "/a%2f..%2fb", "/a%5c..%5Cb"] {
            assert!(check_handshake(&with("x", Some("y"), path)).is_err(), "{path}");
        }
    }

    #[test]
    fn one_key_may_be_shown_in_several_ways_but_not_two() {
        let shown = |headers: &[(&'static str, &str)], token| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().expect("is a value"));
            }
            key(&map, token)
                .map(|found| found.map(str::to_owned))
                .map_err(|refusal| refusal.message)
        };
        let one = Ok(Some("one".to_owned()));
        assert_eq!(shown(&[], None), Ok(None));
        assert_eq!(shown(&[("authorization", "bearer one")], None), one);
        assert_eq!(shown(&[("x-api-key", "one")], Some("one")), one);
        assert_eq!(shown(&[], Some("one")), one);
        for two in [
            shown(&[("authorization", "Bearer one"), ("x-api-key", "two")], None),
            shown(&[("x-api-key", "one")], Some("two")),
        ] {
            assert_eq!(two, Err("two different keys are given; give one, and one way".to_owned()));
        }
        assert!(shown(&[("authorization", "Basic abc")], None).is_err());
        assert!(shown(&[("x-api-key", "")], None).is_err());
    }
}
