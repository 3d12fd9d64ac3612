//! A node that keeps what it is told and answers as a test wants.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use skep_testkit::eventually;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A node on a loopback port. Dropping it closes the port and every connection.
pub struct FakeNode {
    pub port: u16,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    _server: JoinSet<()>,
}

/// A request that was heard.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The last piece of its path, or `workers` or `delete`.
    pub what: String,
    pub body: Value,
    pub authorization: String,
}

struct State {
    heard: Vec<Heard>,
    /// Start and incarnation of the worker that is known.
    known: Option<(String, u64)>,
    incarnations: u64,
    order: &'static str,
    lifetime: u64,
    active: u64,
    leaving: u64,
    /// What to do with the next request of this kind, once.
    trick: Option<(&'static str, Trick)>,
}

/// Something unpleasant.
#[derive(Clone)]
pub enum Trick {
    /// Do it and close the connection without an answer.
    LoseReply,
    /// Answer this instead.
    Say(u16, Value),
}

impl FakeNode {
    pub async fn start() -> Self {
        Self::start_at(0).await
    }

    /// On a port that another has had before.
    pub async fn start_at(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
        let port = listener.local_addr().expect("is bound").port();
        let state = Arc::new(Mutex::new(State {
            heard: Vec::new(),
            known: None,
            incarnations: 10,
            order: "serve",
            lifetime: 0,
            active: 0,
            leaving: 0,
            trick: None,
        }));
        let changed = Arc::new(Notify::new());
        let mut server = JoinSet::new();
        server.spawn(accept(listener, state.clone(), changed.clone()));
        FakeNode { port, state, changed, _server: server }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn order(&self, order: &'static str) {
        lock(&self.state).order = order;
        self.changed.notify_waiters();
    }

    pub fn sessions(&self, lifetime: u64, active: u64, leaving: u64) {
        let mut state = lock(&self.state);
        (state.lifetime, state.active, state.leaving) = (lifetime, active, leaving);
    }

    /// Knows no worker any more.
    pub fn forget(&self) {
        lock(&self.state).known = None;
        self.changed.notify_waiters();
    }

    /// Gives the name to somebody else.
    pub fn replace(&self) {
        let mut state = lock(&self.state);
        state.incarnations += 1;
        state.known = Some(("another".to_owned(), state.incarnations));
        drop(state);
        self.changed.notify_waiters();
    }

    pub fn trick(&self, what: &'static str, trick: Trick) {
        lock(&self.state).trick = Some((what, trick));
    }

    pub fn heard(&self, what: &str) -> Vec<Heard> {
        lock(&self.state).heard.iter().filter(|heard| heard.what == what).cloned().collect()
    }

    /// The `count`th registration.
    pub fn registration(&self, count: usize) -> Value {
        let what = format!("registration {count}");
        eventually(&what, || self.heard("workers").get(count - 1).map(|heard| heard.body.clone()))
    }

    /// A heartbeat that is `good`.
    pub fn heartbeat(&self, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || {
            let heard = self.heard("heartbeat");
            heard.into_iter().map(|heard| heard.body).rev().find(|body| good(body))
        })
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>, changed: Arc<Notify>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (state, changed) = (state.clone(), changed.clone());
        let service = service_fn(move |request| answer(request, state.clone(), changed.clone()));
        let http = hyper::server::conn::http1::Builder::new();
        let serving = http.serve_connection(TokioIo::new(stream), service);
        connections.spawn(async {
            let _ = serving.await;
        });
    }
}

/// An error closes the connection without an answer.
async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let last = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let what = if request.method() == "DELETE" { "delete".to_owned() } else { last };
    let authorization = request.headers().get("authorization");
    let authorization = authorization.map(|value| value.to_str().expect("is text").to_owned());
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let authorization = authorization.unwrap_or_default();
    let trick = {
        let mut state = lock(&state);
        let heard = Heard { what: what.clone(), body: body.clone(), authorization };
        state.heard.push(heard);
        state.trick.take_if(|(expected, _)| *expected == what).map(|(_, trick)| trick)
    };
    if let Some(Trick::Say(status, body)) = trick {
        return Ok(response(status, &body));
    }
    let (status, reply) = match what.as_str() {
        "workers" => register(&mut lock(&state), &body),
        "heartbeat" => heartbeat(&state, &changed, &body).await,
        _ => (200, json!({})),
    };
    match trick {
        Some(Trick::LoseReply) => Err(std::io::Error::other("lost")),
        _ => Ok(response(status, &reply)),
    }
}

fn register(state: &mut State, body: &Value) -> (u16, Value) {
    let start = body["start"].as_str().expect("has a start").to_owned();
    let known = state.known.as_ref().filter(|(known, _)| *known == start).cloned();
    let (_, incarnation) = known.unwrap_or_else(|| {
        state.incarnations += 1;
        // Orders are given to a start.
        state.order = "serve";
        (start.clone(), state.incarnations)
    });
    state.known = Some((start, incarnation));
    let reply = json!({
        "worker": "w7", "incarnation": incarnation, "heartbeat_ms": 5_000, "lifetime_max": 50,
        "slots": 5,
    });
    (200, reply)
}

async fn heartbeat(state: &Mutex<State>, changed: &Notify, body: &Value) -> (u16, Value) {
    let waiting = async {
        loop {
            let notified = changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if verdict(&lock(state), body).is_some() {
                return;
            }
            notified.await;
        }
    };
    let wait = Duration::from_millis(body["wait_ms"].as_u64().expect("has a wait"));
    let _ = tokio::time::timeout(wait, waiting).await;
    let state = lock(state);
    verdict(&state, body).unwrap_or_else(|| (200, ordered(&state)))
}

/// What there is to say at once, if there is anything.
fn verdict(state: &State, body: &Value) -> Option<(u16, Value)> {
    match &state.known {
        None => Some((404, json!({ "title": "Unknown", "detail": "no such worker" }))),
        Some((start, incarnation)) if body["incarnation"] != json!(incarnation) => {
            let detail = format!("the name belongs to the start {start}");
            Some((409, json!({ "title": "Replaced", "detail": detail })))
        }
        Some(_) => (body["order"] != state.order).then(|| (200, ordered(state))),
    }
}

fn ordered(state: &State) -> Value {
    json!({
        "order": state.order, "lifetime": state.lifetime, "active": state.active,
        "leaving": state.leaving,
    })
}

fn response(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).expect("is a status");
    response
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
