//! Whether a request was meant: browsers can be made to send some that nobody asked for, and under
//! names that lead elsewhere.

use super::problem::{self, Problem};
use crate::access::{Caller, Who};
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use std::net::{IpAddr, SocketAddr};

pub const CSRF_TOKEN: HeaderName = HeaderName::from_static("x-csrf-token");

/// A request names one host, or whoever reads it next could believe another name.
pub fn check_one_host(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    let named = uri.authority().map(|authority| authority.as_str().as_bytes());
    let differs =
        |(host, named): (&HeaderValue, &[u8])| !host.as_bytes().eq_ignore_ascii_case(named);
    if another.is_none() && !host.zip(named).is_some_and(differs) {
        return Ok(());
    }
    Err(Problem::new(&problem::E_REQUEST_INVALID, "it names two hosts; send one `Host`"))
}

/// While the node trusts its own machine, a page that reached it by a name of its own choosing
/// (DNS rebinding) must not be trusted too.
pub fn check_host(headers: &HeaderMap, own: SocketAddr) -> Result<(), Problem> {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_ours = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == own.ip());
    if is_ours {
        return Ok(());
    }
    let detail = "as long as there is no key, use localhost or 127.0.0.1 in the address".to_owned();
    Err(Problem::new(&problem::E_HOST, detail))
}

/// Whether a request changes something. Popping does, although it is a GET.
pub fn changes(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let pops = route.is_some_and(|route| route.starts_with("/api/v1/pop"));
    pops || !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
}

fn text_of(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Whether a page of another origin sent it, as far as it has to say so.
pub fn is_of_other_origin(headers: &HeaderMap) -> bool {
    let host = text_of(headers, header::HOST).unwrap_or_default();
    text_of(headers, header::ORIGIN)
        .is_some_and(|origin| origin.split_once("://").is_none_or(|(_, origin)| origin != host))
}

pub fn cross_site() -> Problem {
    let detail = "a page of another site is not trusted as this machine or the dashboard is";
    Problem::new(&problem::E_CROSS_SITE, detail)
}

/// Whether a request was meant: a browser can be made to send some that nobody asked for.
pub fn check_intent(caller: &Caller, changes: bool, headers: &HeaderMap) -> Result<(), Problem> {
    if matches!(caller.who, Who::Key { .. }) {
        return Ok(());
    }
    // Images and links have no origin, and this instead. A page on another port is of the same
    // site.
    if let Some("cross-site" | "same-site") = text_of(headers, "sec-fetch-site") {
        return Err(cross_site());
    }
    match &caller.who {
        Who::Login { csrf, .. } if changes => {
            let sent = text_of(headers, CSRF_TOKEN).unwrap_or_default();
            if bool::from(subtle::ConstantTimeEq::ct_eq(sent.as_bytes(), csrf.as_bytes())) {
                return Ok(());
            }
            let detail = "send the token of GET /api/v1/session as X-CSRF-Token";
            Err(Problem::new(&problem::E_CSRF, detail))
        }
        Who::Key { .. } => Ok(()),
        // Pages of other sites, those without an origin too, are trusted by nobody: they may send a
        // key, which is how they show that they were meant to come. The dashboard's own questions
        // have no origin; a WebSocket's handshake has one, the login of its host, and nothing else
        // that would tell who opens it.
        Who::Login { .. } | Who::Local | Who::Anyone if is_of_other_origin(headers) => {
            Err(cross_site())
        }
        Who::Login { .. } | Who::Local | Who::Anyone => Ok(()),
    }
}
