//! Behind the guard and before the routes: is this request served here, or by another node?
//!
//! ```text
//!   client's ─► pop: where is its key? ──────┬─ here ──► route
//!               write: where are consumers? ─┴─ there ─► the other node, or the route after all
//!   another node's ─► route, once for each request id
//! ```
//!
//! Whoever is asked by another node serves the request, whatever it thinks of the others: so no
//! request goes further than one hop.

mod early;
mod pop;
mod write;

pub use early::Early;

use super::guard::{peer, proof};
use super::problem::{self, Problem};
use crate::node::Shared;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pop::Popping;
use skep_cluster::forward::plan::{Trouble, Work};
use skep_cluster::forward::{
    Begun, FALLBACK, Fingerprint, HopInfo, Journey, Outgoing, RequestId, Sending, TOOK,
};
use skep_cluster::{Cluster, Going};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one with the id of a request under way waits for its answer.
const SAME_ID_PATIENCE: Duration = Duration::from_secs(5);

/// When a node asks again whose request is still at work.
const AT_WORK_RETRY: Duration = Duration::from_secs(1);

/// A pop ended before its wait was over, because the node stops.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted;

/// In a request of which it is decided that it is served here.
#[derive(Clone, Copy, Debug)]
struct Stays;

/// Serves a request, or has it served by the node where it is cheapest.
pub async fn relay(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let Some(cluster) = shared.cluster.get() else { return next.run(request).await };
    let route = request.extensions().get::<MatchedPath>();
    let kind = route.and_then(|route| Kind::of(route.as_str()));
    let stays = request.extensions().get::<Stays>().is_some();
    let Some(kind) = kind.filter(|_| !stays) else { return next.run(request).await };
    if let Some(hop) = request.extensions().get::<HopInfo>() {
        let arrival = Arrival::of(kind, hop.id, request.method(), request.uri(), request.headers());
        return arrived(cluster, arrival, next.run(request)).await;
    }
    match kind {
        Kind::Pop => {
            let (parts, _) = request.into_parts();
            let run = async |parts| next.run(Request::from_parts(parts, Body::empty())).await;
            pop::relay(&shared, cluster, parts, run).await
        }
        Kind::Push | Kind::Settle | Kind::Transaction if cluster.forwards_writes() => {
            write::relay(cluster, kind, request, next).await
        }
        _ => next.run(request).await,
    }
}

/// What a route does, as far as other nodes could do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pop,
    Push,
    Settle,
    Transaction,
}

impl Kind {
    fn of(route: &str) -> Option<Kind> {
        match route {
            "/api/v1/push" => Some(Kind::Push),
            "/api/v1/ack" | "/api/v1/ack/batch" => Some(Kind::Settle),
            "/api/v1/transaction" => Some(Kind::Transaction),
            _ => route.starts_with("/api/v1/pop").then_some(Kind::Pop),
        }
    }
}

/// A request of another node.
struct Arrival {
    started: Instant,
    kind: Kind,
    id: RequestId,
    uri: Uri,
    print: Fingerprint,
}

impl Arrival {
    fn of(kind: Kind, id: RequestId, method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let print = Fingerprint::of(method, path, proof(headers));
        Arrival { started: Instant::now(), kind, id, uri: uri.clone(), print }
    }
}

/// Serves a request of another node with `run`: once for each id, however often it comes.
async fn arrived(
    cluster: &Cluster,
    arrival: Arrival,
    run: impl Future<Output = Response>,
) -> Response {
    let Arrival { started, kind, id, uri, print } = arrival;
    let popping = (kind == Kind::Pop).then(|| Popping::of(&uri)).flatten();
    let _here = popping.and_then(|popping| {
        cluster.arrived(&popping.ask());
        popping.waits(cluster)
    });
    let mut response = match cluster.outcomes().begin(id, print, SAME_ID_PATIENCE).await {
        Begun::First(slot) => {
            let mut response = run.await;
            if response.extensions_mut().remove::<Interrupted>().is_some() {
                // The node that asked goes on waiting elsewhere.
                let detail = "the node is about to stop";
                return Problem::new(&problem::E_DRAINING, detail).into_response();
            }
            // Whoever got nothing may ask again: there is nothing that could come twice.
            match kind == Kind::Pop && response.status() == StatusCode::NO_CONTENT {
                true => response,
                false => slot.keep(response).await.map(Body::new),
            }
        }
        Begun::Known(outcome) => match outcome.answer() {
            Some(answer) => answer.map(Body::new),
            None => {
                let detail = "it was done, and its answer was too large to be kept";
                Problem::new(&problem::E_ANSWER_LOST, detail).into_response()
            }
        },
        Begun::Other => {
            let detail = "its id is that of another request";
            Problem::new(&problem::E_HOP, detail).into_response()
        }
        begun @ (Begun::AtWork | Begun::Full) => {
            let detail = match begun {
                Begun::Full => "too many requests of other nodes are at work",
                _ => "a request with this id is still at work",
            };
            let problem = Problem::new(&problem::E_HOP_AT_WORK, detail).retry_after(AT_WORK_RETRY);
            problem.into_response()
        }
    };
    let took = started.elapsed().as_micros();
    if let Ok(took) = HeaderValue::from_str(&took.to_string()) {
        response.headers_mut().insert(TOOK, took);
    }
    response
}

/// Sends a request to another node, and serves it here if that is what is left.
async fn send(
    cluster: &Cluster,
    (going, work, wait): (&Going, Work, Option<Duration>),
    (parts, path, body): (Parts, PathAndQuery, Sending),
    next: impl AsyncFnOnce(Parts, Sending) -> Response,
) -> Response {
    let outgoing = Outgoing {
        id: RequestId::mint(),
        client: Some(peer(&parts.extensions)),
        method: parts.method.clone(),
        path_and_query: path,
        headers: parts.headers.clone(),
        body,
    };
    match cluster.go(going, work, outgoing, cluster.limits(wait)).await {
        Journey::Answered(answer) => (*answer).map(Body::new),
        Journey::Here { request, why } => {
            let mut response = next(parts, request.body).await;
            fell_back(&mut response, why);
            response
        }
        Journey::Empty { why } => {
            let mut response = StatusCode::NO_CONTENT.into_response();
            fell_back(&mut response, why);
            response
        }
        Journey::TooLarge(why) => Problem::new(&problem::E_BODY_TOO_LARGE, why).into_response(),
        Journey::ClientGone => {
            Problem::new(&problem::E_BODY_INVALID, "it ended too early").into_response()
        }
        Journey::Lost(why) => Problem::new(&problem::E_ANSWER_LOST, why).into_response(),
    }
}

fn fell_back(response: &mut Response, why: Trouble) {
    if let Ok(why) = HeaderValue::from_str(&why.to_string()) {
        response.headers_mut().insert(FALLBACK, why);
    }
}

/// The node that made an answer, in every answer.
pub const SERVED_BY: HeaderName = skep_cluster::forward::SERVED_BY;
