//! A front has the first word: what it does not want is the sessions', and its requests are waited
//! for.

use crate::kit::{Scene, echo, handshake, worker};
use skep_gateway::{Arrival, Front, Io, Unclaimed};
use skep_testkit::eventually;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

/// Serves every path below `/claimed`; `/claimed/slow` only when it is let go. Clones are the same.
#[derive(Clone)]
pub struct Claims(Arc<Inner>);

pub struct Inner {
    pub needed: AtomicBool,
    pub slow_begun: AtomicUsize,
    pub let_go: Semaphore,
    pub deaf: AtomicBool,
    pub tls: Mutex<Option<Arc<rustls::ServerConfig>>>,
    pub seen: Mutex<Vec<Seen>>,
}

/// What a front was told about a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub encrypted: bool,
    pub http2: bool,
    pub server_name: Option<Box<str>>,
    pub local: SocketAddr,
}

impl std::ops::Deref for Claims {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Claims {
    pub fn new(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        Claims(Arc::new(Inner {
            needed: AtomicBool::new(true),
            slow_begun: AtomicUsize::new(0),
            let_go: Semaphore::new(0),
            deaf: AtomicBool::new(false),
            tls: Mutex::new(tls),
            seen: Mutex::new(Vec::new()),
        }))
    }

    async fn answer<S: Io>(&self, stream: &mut S, slow: bool) -> Option<()> {
        if slow {
            self.let_go.acquire().await.ok()?.forget();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfront").await.ok()?;
        stream.flush().await.ok()
    }
}

impl Front for Claims {
    fn is_needed(&self) -> bool {
        self.needed.load(Ordering::SeqCst)
    }

    async fn serve<S: Io>(&self, connection: Arrival<S>) -> Option<Unclaimed<S>> {
        let Arrival { mut stream, encrypted, http2, server_name, local, stop, cut, .. } =
            connection;
        self.seen.lock().expect("no panic").push(Seen { encrypted, http2, server_name, local });
        loop {
            let mut read = Vec::new();
            while !read.windows(4).any(|end| end == b"\r\n\r\n") {
                let count = stop.run_until_cancelled(stream.read_buf(&mut read)).await?.ok()?;
                if count == 0 {
                    return None;
                }
            }
            if !read.starts_with(b"GET /claimed") {
                return Some(Unclaimed { stream, read });
            }
            let slow = read.starts_with(b"GET /claimed/slow");
            self.slow_begun.fetch_add(usize::from(slow), Ordering::SeqCst);
            let answer = self.answer(&mut stream, slow);
            let answered = if self.deaf.load(Ordering::SeqCst) {
                Some(answer.await)
            } else {
                cut.run_until_cancelled(answer).await
            };
            answered.flatten()?;
        }
    }

    fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.lock().expect("no panic").clone()
    }
}

const CLAIMED: &[u8] = b"GET /claimed HTTP/1.1\r\nHost: gateway\r\n\r\n";
const SLOW: &[u8] = b"GET /claimed/slow HTTP/1.1\r\nHost: gateway\r\n\r\n";

#[test]
fn a_front_serves_what_is_its_own_and_the_rest_is_the_sessions() {
    let front = Claims::new(None);
    let scene = Scene::with_front(front.clone(), |_| {});
    scene.book.add(&worker(echo), 1);
    let mut client = scene.connect();
    for _ in 0..2 {
        client.send(CLAIMED);
        assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
        assert_eq!(client.read(5), b"front");
    }
    // What follows the handshake at once was read by the front, and belongs to the session.
    client.send(format!("{}hello", handshake("/", &[])).as_bytes());
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_lowercase().contains("connection: upgrade\r\n"), "{head}");
    assert!(!head.to_lowercase().contains("close"), "{head}");
    assert_eq!(client.read(5), b"hello");
    client.send(b"more");
    assert_eq!(client.read(4), b"more");
    let seen = front.seen.lock().expect("no panic").clone();
    let plain = Seen { encrypted: false, http2: false, server_name: None, local: scene.address };
    assert_eq!(seen, [plain]);
}

#[test]
fn after_a_request_that_is_not_the_fronts_the_connection_ends() {
    let scene = Scene::with_front(Claims::new(None), |_| {});
    let mut client = scene.connect();
    client.send(b"GET /other HTTP/1.1\r\nHost: gateway\r\n\r\n");
    let (head, body) = client.answer();
    assert!(head.to_lowercase().contains("connection: close\r\n"), "{head}");
    assert_eq!(body, "plain /other");
}

#[test]
fn a_front_that_is_not_needed_sees_nothing_and_connections_stay() {
    let front = Claims::new(None);
    front.needed.store(false, Ordering::SeqCst);
    let scene = Scene::with_front(front.clone(), |_| {});
    let mut client = scene.connect();
    for _ in 0..2 {
        client.send(CLAIMED);
        client.head();
        assert_eq!(client.read(14), b"plain /claimed");
    }
    assert!(front.seen.lock().expect("no panic").is_empty());
}

#[test]
fn a_request_of_the_front_is_waited_for_when_the_gateway_stops() {
    let front = Claims::new(None);
    let mut scene = Scene::with_front(front.clone(), |_| {});
    let (mut busy, mut idle) = (scene.connect(), scene.connect());
    idle.send(CLAIMED);
    idle.head();
    idle.read(5);
    busy.send(SLOW);
    eventually("it is served", || (front.slow_begun.load(Ordering::SeqCst) == 1).then_some(()));
    scene.stop.cancel();
    assert!(idle.is_at_end());
    eventually("nobody listens", || TcpStream::connect(scene.address).is_err().then_some(()));
    front.let_go.add_permits(1);
    assert!(busy.head().starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(busy.read(5), b"front");
    scene.ended();
}

#[test]
fn a_request_of_the_front_that_takes_too_long_is_cut() {
    for deaf in [false, true] {
        let front = Claims::new(None);
        front.deaf.store(deaf, Ordering::SeqCst);
        let limit = Duration::from_millis(100);
        let mut scene = Scene::with_front(front.clone(), |options| options.drain_limit = limit);
        let mut busy = scene.connect();
        busy.send(SLOW);
        eventually("it is served", || (front.slow_begun.load(Ordering::SeqCst) == 1).then_some(()));
        let began = Instant::now();
        scene.stop.cancel();
        scene.ended();
        assert!(began.elapsed() >= limit, "it was not waited for");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(busy.is_at_end());
    }
}

#[test]
fn connections_of_the_front_count() {
    let front = Claims::new(None);
    let scene = Scene::with_front(front.clone(), |options| options.connections_max = 1);
    let mut first = scene.connect();
    first.send(CLAIMED);
    first.head();
    first.read(5);
    let (head, body) = scene.connect().answer();
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(body.contains("E_CONNECTIONS_MAX"), "{body}");
    drop(first);
    eventually("there is a place again", || {
        let mut next = scene.connect();
        next.send(CLAIMED);
        next.head().starts_with("HTTP/1.1 200 ").then_some(())
    });
}
