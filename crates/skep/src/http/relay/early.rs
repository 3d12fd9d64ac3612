//! Pops for another node, found as soon as they can be read.
//!
//! What a node does for every request, routing, layers and all, costs several times what passing a
//! request on does. So a pop that plainly goes to another node is sent there from its connection
//! itself. The guard's rules hold here as well: whoever may not ask is left to it, and so is
//! everything that is not plain.

use super::pop::{self, Popping};
use super::{Stays, peer};
use crate::http::guard::{Needs, admit};
use crate::http::intent::check_one_host;
use crate::http::noted::{Noted, Told};
use crate::http::problem::{self, Problem};
use crate::node::{Shared, State, panic_message};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use skep_cluster::forward::HOP;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tower::ServiceExt;

const POP: &str = "/api/v1/pop";
const POP_QUEUE: &str = "/api/v1/pop/queue/{queue}";
const POP_PARTITION: &str = "/api/v1/pop/queue/{queue}/partition/{partition}";

/// In an answer that the guard has concluded.
#[derive(Clone, Copy, Debug)]
struct Concluded;

/// A pop for another node.
pub struct Early {
    parts: Parts,
    noted: Noted<'static>,
    /// Whether its client asks for nothing more.
    closes: bool,
}

impl Early {
    /// What was read, if it is one: a head alone, without anything that asks for more than an
    /// answer.
    pub fn of(
        shared: &Shared,
        needs: &Needs,
        head: &httparse::Request<'_, '_>,
        address: SocketAddr,
    ) -> Option<Early> {
        let cluster = shared.cluster.get()?;
        let path = head.path.filter(|path| path.starts_with(POP))?;
        if head.method != Some("GET") || head.version != Some(1) || !is_plain(head.headers) {
            return None;
        }
        let uri: Uri = path.parse().ok()?;
        let route = route(uri.path())?;
        if !cluster.is_elsewhere(&Popping::of(&uri)?.ask())
            || *shared.state.borrow() == State::Draining
        {
            return None;
        }
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        for field in &*head.headers {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            request.headers_mut().append(name, HeaderValue::from_bytes(field.value).ok()?);
        }
        request.extensions_mut().insert(ConnectInfo(address));
        let (parts, ()) = request.into_parts();
        let (from, need) = (peer(&parts.extensions), needs.of(&Method::GET, Some(route)));
        check_one_host(&parts.uri, &parts.headers).ok()?;
        let admitted = admit(shared, need, (true, &parts.headers), from).ok()?;
        let mut noted = Noted::new(&parts.method, &parts.uri, &parts.headers, from, Some(route));
        let told = || Told::of(&parts.headers, &parts.uri, Version::HTTP_11, 0);
        noted.look(shared, admitted.as_ref(), told);
        let said = parts.headers.get_all(header::CONNECTION);
        let closes = said.iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"close"));
        Some(Early { parts, noted, closes })
    }

    /// The other node's answer, or that of this one if it comes to that.
    pub async fn serve(self, shared: Arc<Shared>, router: Router) -> Response {
        let Early { parts, noted, closes } = self;
        let Some(cluster) = shared.cluster.get() else { return here(router, parts).await };
        let in_flight = shared.traffic.begin();
        // Served here, it is the guard's, which counts it too.
        let run = async move |parts: Parts| {
            drop(in_flight);
            here(router, parts).await
        };
        let served = AssertUnwindSafe(pop::relay(&shared, cluster, parts, run)).catch_unwind();
        let mut response = served.await.unwrap_or_else(|panic| {
            let (id, panic) = (noted.id(), panic_message(panic.as_ref()));
            tracing::error!(id, panic, "forwarding panicked");
            let detail = "forwarding panicked; the log says more";
            Problem::new(&problem::E_INTERNAL, detail).into_response()
        });
        if response.extensions_mut().remove::<Concluded>().is_none() {
            noted.conclude(&shared, &mut response);
        }
        if closes {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Through all layers to the route of this node.
async fn here(router: Router, mut parts: Parts) -> Response {
    parts.extensions.insert(Stays);
    let served = router.oneshot(Request::from_parts(parts, Body::empty())).await;
    let mut response = served.unwrap_or_else(|never| match never {});
    response.extensions_mut().insert(Concluded);
    response
}

/// The route of a path, as the router has it.
fn route(path: &str) -> Option<&'static str> {
    let rest = path.strip_prefix(POP)?;
    let mut segments = rest.split('/');
    let mut next = || segments.next();
    match (next(), next(), next(), next(), next(), next()) {
        (Some(""), None, ..) => Some(POP),
        (Some(""), Some("queue"), Some(queue), None, ..) if !queue.is_empty() => Some(POP_QUEUE),
        (Some(""), Some("queue"), Some(queue), Some("partition"), Some(partition), None)
            if !queue.is_empty() && !partition.is_empty() =>
        {
            Some(POP_PARTITION)
        }
        _ => None,
    }
}

/// What makes a request more than a plain one, beside what `connection` may say.
static ODD: [HeaderName; 5] =
    [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::EXPECT, header::UPGRADE, HOP];

/// Whether no field says anything about the connection or a body, or comes from another node.
fn is_plain(fields: &[httparse::Header<'_>]) -> bool {
    fields.iter().all(|field| {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        let common = field.value.eq_ignore_ascii_case(b"keep-alive")
            || field.value.eq_ignore_ascii_case(b"close");
        !ODD.iter().any(|name| is(name.as_str())) && (!is("connection") || common)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_of_pops_are_known_and_nothing_else_is() {
        assert_eq!(route("/api/v1/pop"), Some(POP));
        assert_eq!(route("/api/v1/pop/queue/q"), Some(POP_QUEUE));
        assert_eq!(route("/api/v1/pop/queue/q/partition/p%2Fx"), Some(POP_PARTITION));
        for other in [
            "/api/v1/popx",
            "/api/v1/pop/",
            "/api/v1/pop/queue",
            "/api/v1/pop/queue/",
            "/api/v1/pop/queue/q/",
            "/api/v1/pop/queue/q/partition",
            "/api/v1/pop/queue/q/partition/",
            "/api/v1/pop/queue/q/partition/p/",
            "/api/v1/pop/queue/q/partition/p/x",
            "/api/v1/push",
        ] {
            assert_eq!(route(other), None, "{other}");
        }
    }

    #[test]
    fn what_says_more_than_a_plain_request_is_left_to_others() {
        let plain = |name, value: &str| {
            is_plain(&[
                httparse::Header { name: "host", value: b"localhost" },
                httparse::Header { name, value: value.as_bytes() },
            ])
        };
        assert!(plain("Authorization", "Bearer k"));
        assert!(plain("Connection", "Keep-Alive"));
        assert!(plain("connection", "close"));
        for (name, value) in [
            ("connection", "close, te"),
            ("Connection", "upgrade"),
            ("content-length", "0"),
            ("Transfer-Encoding", "chunked"),
            ("expect", "100-continue"),
            ("upgrade", "websocket"),
            ("Skep-Hop", "1"),
        ] {
            assert!(!plain(name, value), "{name}: {value}");
        }
    }
}
