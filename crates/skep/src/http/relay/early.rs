//! Pops between nodes, found as soon as they can be read.
//!
//! What a node does for every request, routing, layers and all, costs several times what passing a
//! request on does. So a pop that plainly goes to another node is sent there from its connection
//! itself, and is served there from the connection it comes on. The guard's rules hold here as
//! well: whoever may not ask is left to it, and so is everything that is not plain.

use super::pop::{self, Popping};
use super::{Arrival, Kind, Stays, arrived, peer};
use crate::http::guard::{Needs, admit, may_wait, unless_it_panics, within};
use crate::http::intent::check_one_host;
use crate::http::noted::{Noted, Told};
use crate::http::routes::{PopTarget, pop_of};
use crate::node::{Shared, State};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use skep_cluster::forward::HOP;
use std::net::SocketAddr;
use std::sync::Arc;
use tower::ServiceExt;

const POP: &str = "/api/v1/pop";
const POP_QUEUE: &str = "/api/v1/pop/queue/{queue}";
const POP_PARTITION: &str = "/api/v1/pop/queue/{queue}/partition/{partition}";

/// In an answer that the guard has concluded.
#[derive(Clone, Copy, Debug)]
struct Concluded;

/// A pop for another node, or of another node.
pub struct Early {
    parts: Parts,
    noted: Noted<'static>,
    /// If another node sent it.
    arrival: Option<Arrival>,
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
        let (route, _) = route(uri.path())?;
        let is_forwarded = head.headers.iter().any(|field| is_hop(field.name));
        if !is_forwarded && !cluster.is_elsewhere(&Popping::of(&uri)?.ask())
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
        let (mut parts, ()) = request.into_parts();
        let (from, need) = (peer(&parts.extensions), needs.of(&Method::GET, Some(route)));
        // What is not believed is the guard's to refuse, and to count.
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let hop = cluster.hops().take(&mut parts.headers, from, &Method::GET, path).ok()?;
        check_one_host(&parts.uri, &parts.headers).ok()?;
        let admitted = admit(shared, need, (true, &parts.headers), from).ok()?;
        let mut noted = Noted::new(&parts.method, &parts.uri, &parts.headers, from, Some(route));
        let told = || Told::of(&parts.headers, &parts.uri, Version::HTTP_11, 0);
        noted.look(shared, admitted.as_ref(), told);
        if hop.is_some() {
            noted.is_for_node();
        }
        let said = parts.headers.get_all(header::CONNECTION);
        let closes = said.iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"close"));
        let arrival = hop
            .map(|hop| Arrival::of(Kind::Pop, hop.id, &parts.method, &parts.uri, &parts.headers));
        Some(Early { parts, noted, arrival, closes })
    }

    /// The answer: that of another node, or of this one if another asks or it comes to that.
    pub async fn serve(self, shared: Arc<Shared>, router: Router) -> Response {
        let Early { parts, noted, arrival, closes } = self;
        let in_flight = shared.traffic.begin();
        let mut response = match (arrival, shared.cluster.get(), route(parts.uri.path())) {
            (_, None, _) | (Some(_), _, None) => {
                drop(in_flight);
                here(router, parts).await
            }
            (Some(arrival), Some(cluster), Some((route, target))) => {
                let limit = shared.settings.api.request_timeout + may_wait(Some(route));
                let run = async {
                    let popped = pop_of(&shared, target, &parts.uri).await;
                    popped.unwrap_or_else(IntoResponse::into_response)
                };
                let response = within(limit, noted.id(), arrived(cluster, arrival, run)).await;
                drop(in_flight);
                response
            }
            (None, Some(cluster), _) => {
                // Served here, it is the guard's, which counts it too.
                let run = async move |parts: Parts| {
                    drop(in_flight);
                    here(router, parts).await
                };
                let relayed = pop::relay(&shared, cluster, parts, run);
                unless_it_panics(noted.id(), "forwarding", relayed).await
            }
        };
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

/// The route of a path, as the router has it, and what it is about. Escapes are the router's.
fn route(path: &str) -> Option<(&'static str, PopTarget<'_>)> {
    let rest = path.strip_prefix(POP).filter(|rest| !rest.contains('%'))?;
    let mut segments = rest.split('/');
    let mut next = || segments.next();
    match (next(), next(), next(), next(), next(), next()) {
        (Some(""), None, ..) => Some((POP, PopTarget::Matching)),
        (Some(""), Some("queue"), Some(queue), None, ..) if !queue.is_empty() => {
            Some((POP_QUEUE, PopTarget::Queue(queue)))
        }
        (Some(""), Some("queue"), Some(queue), Some("partition"), Some(partition), None)
            if !queue.is_empty() && !partition.is_empty() =>
        {
            Some((POP_PARTITION, PopTarget::Partition(queue, partition)))
        }
        _ => None,
    }
}

/// What makes a request more than a plain one, beside what `connection` may say.
static ODD: [HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::TRANSFER_ENCODING,
    header::EXPECT,
    header::UPGRADE,
];

fn is_hop(name: &str) -> bool {
    name.eq_ignore_ascii_case(HOP.as_str())
}

/// Whether no field says anything about the connection or a body.
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
        assert_eq!(route("/api/v1/pop"), Some((POP, PopTarget::Matching)));
        assert_eq!(route("/api/v1/pop/queue/q"), Some((POP_QUEUE, PopTarget::Queue("q"))));
        let partition = PopTarget::Partition("q", "p+x");
        assert_eq!(route("/api/v1/pop/queue/q/partition/p+x"), Some((POP_PARTITION, partition)));
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
            "/api/v1/pop/queue/q%2F",
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
        ] {
            assert!(!plain(name, value), "{name}: {value}");
        }
    }
}
