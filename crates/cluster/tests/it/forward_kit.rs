//! Another node, as far as a forwarder can see one.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::http::uri::PathAndQuery;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use skep_cluster::Secret;
use skep_cluster::forward::{
    Answer, Evidence, ForwardOptions, Forwarder, Hops, Limits, Outgoing, Peer, RequestId, Sending,
    Witness,
};
use skep_policy::{Name, Time};
use skep_testkit::{FakeClock, PATIENCE};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub type Reply = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

pub const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
pub const NOW: Time = Time::from_millis(1_800_000_000_000);

pub fn name(text: &str) -> Name {
    text.parse().expect("is a name")
}

pub fn hops_of(here: &str) -> Hops {
    let secret = Secret::new(SECRET).expect("is long enough");
    let clock = Arc::new(FakeClock::at(NOW));
    Hops::new(name(here), "test", Some(secret), clock, Duration::from_secs(30))
}

/// What was told of exchanges, in order.
#[derive(Default)]
pub struct Heard(Mutex<Vec<(String, Evidence)>>);

impl Witness for Heard {
    fn saw(&self, peer: &str, evidence: Evidence, _: Duration) {
        self.0.lock().expect("nobody panics").push((peer.to_owned(), evidence));
    }
}

impl Heard {
    pub fn all(&self) -> Vec<Evidence> {
        self.0.lock().expect("nobody panics").iter().map(|(_, evidence)| *evidence).collect()
    }
}

/// The node `a`, which forwards.
pub struct A {
    pub forwarder: Arc<Forwarder>,
    pub heard: Arc<Heard>,
}

impl A {
    pub fn new() -> Self {
        Self::with(ForwardOptions::default())
    }

    pub fn with(options: ForwardOptions) -> Self {
        let heard = Arc::new(Heard::default());
        let forwarder = Forwarder::new(options, Arc::new(hops_of("a")), heard.clone());
        A { forwarder: Arc::new(forwarder.expect("the options can be")), heard }
    }

    pub fn peer(&self, at: SocketAddr) -> Peer {
        self.named("b", at)
    }

    pub fn named(&self, called: &str, at: SocketAddr) -> Peer {
        self.forwarder.peer(&name(called), &format!("http://{at}")).expect("is an address")
    }

    pub fn limits(&self) -> Limits {
        self.forwarder.options().limits()
    }
}

/// Generous, for what should not take any time.
pub const LONG: Limits = Limits { connect: PATIENCE, total: PATIENCE };

pub fn get(path: &'static str) -> Outgoing {
    Outgoing {
        id: RequestId::mint(),
        client: None,
        method: Method::GET,
        path_and_query: PathAndQuery::from_static(path),
        headers: HeaderMap::new(),
        body: Sending::empty(),
    }
}

pub fn post(path: &'static str, body: impl Into<Bytes>) -> Outgoing {
    Outgoing { method: Method::POST, body: Sending::whole(body.into()), ..get(path) }
}

pub fn reply(status: u16, body: impl Into<Bytes>) -> Reply {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("is a status");
    response
}

pub async fn text(answer: Response<Answer>) -> String {
    let bytes = answer.into_body().collect().await.expect("comes whole").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("is text")
}

/// A node that answers with a function, until it is dropped or killed.
pub struct Node {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    running: tokio::task::JoinHandle<()>,
}

impl Node {
    pub async fn start<F, A>(answer: F) -> Node
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Reply> + Send + 'static,
    {
        Self::start_at("127.0.0.1:0".parse().expect("is an address"), answer).await
    }

    pub async fn start_at<F, A>(address: SocketAddr, answer: F) -> Node
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.expect("the port is free");
        let address = listener.local_addr().expect("is bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let running = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = answer.clone();
                open.spawn(async move {
                    let service = service_fn(move |request| {
                        let answering = answer(request);
                        async move { Ok::<_, Infallible>(answering.await) }
                    });
                    let io = TokioIo::new(stream);
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(io, service)
                        .await;
                });
            }
        });
        Node { address, connections, running }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Ends it and all its connections; its port is free after that.
    pub async fn kill(mut self) {
        self.running.abort();
        let _ = (&mut self.running).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Tells when a guard of it is dropped: somebody noticed that nobody waits any more.
pub struct Tell(watch::Sender<bool>);

pub fn tell() -> (Arc<Tell>, watch::Receiver<bool>) {
    let (sender, receiver) = watch::channel(false);
    (Arc::new(Tell(sender)), receiver)
}

impl Tell {
    pub fn guard(self: &Arc<Self>) -> Told {
        Told(self.clone())
    }
}

/// Held by what may be dropped.
pub struct Told(Arc<Tell>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.0.send_replace(true);
    }
}

pub async fn told(receiver: &mut watch::Receiver<bool>) {
    within(receiver.wait_for(|dropped| *dropped)).await.expect("the sender lives");
}

/// A body whose pieces come one by one.
pub struct Pieces(pub mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

pub fn pieces() -> (mpsc::Sender<Result<Bytes, std::io::Error>>, Pieces) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Pieces(receiver))
}

/// Nothing in a test takes this long unless something is wrong.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it never happened")
}

/// Looks again and again, letting others run, for what gives no signal.
pub async fn eventually(what: &str, look: impl Fn() -> bool) {
    let looking = async {
        while !look() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, looking).await.is_ok(), "it never happened: {what}");
}
