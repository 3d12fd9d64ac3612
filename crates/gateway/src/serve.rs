//! Connections of clients, on one thread of the gateway.

use crate::ask;
use crate::body::{self, Body};
use crate::desk::{Checkout, Credentials, Desk, Refusal, Seat};
use crate::dial::{Found, Search};
use crate::front::{Arrival, Front, Io, Unclaimed};
use crate::gateway::Shared;
use crate::handshake::Answer;
use crate::metrics::{GatewayMetrics, Outcome};
use crate::outline::{Outline, SESSION};
use crate::places::Place;
use crate::query;
use crate::refusals;
use crate::rewound::Rewound;
use crate::session::Session;
use crate::tls::{self, Agreed, Carried};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// The head of a request, at most; the number of headers is limited to 100 beside it.
const HEAD_MAX: usize = 64 * 1_024;
/// After a failed accept, usually for want of file descriptors, this long is waited.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are being told that there are too many, and how long that may take.
const TURNED_AWAY_MAX: usize = 64;
const TURN_AWAY_LIMIT: Duration = Duration::from_secs(1);
/// How long requests may take to be answered when everything else has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A connection that another thread has accepted.
pub(crate) struct HandedOver {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    encrypted: bool,
    place: Place,
}

/// A connection that was accepted here.
struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
    encrypted: bool,
}

/// What one thread listens on.
pub(crate) struct Listeners {
    pub plain: TcpListener,
    pub encrypted: Option<TcpListener>,
}

/// What one thread serves with.
pub(crate) struct Server<D: Desk, F: Front> {
    pub shared: Arc<Shared<D, F>>,
    /// Its number.
    pub thread: usize,
    /// The other threads, itself among them.
    pub threads: Vec<Sender<HandedOver>>,
    /// Cancelled when nothing new may begin; this thread's own, as connections wait for it.
    pub stop: CancellationToken,
    /// Cancelled when nothing may go on any longer; this thread's own, because sessions look at it
    /// all the time.
    pub cut: CancellationToken,
}

impl Listeners {
    /// The next connection, whichever port it comes to; neither makes the other wait.
    async fn accept(&self) -> io::Result<Accepted> {
        let Some(encrypted) = &self.encrypted else {
            let (stream, peer) = self.plain.accept().await?;
            return Ok(Accepted { stream, peer, encrypted: false });
        };
        let ((stream, peer), encrypted) = tokio::select! {
            accepted = self.plain.accept() => (accepted?, false),
            accepted = encrypted.accept() => (accepted?, true),
        };
        Ok(Accepted { stream, peer, encrypted })
    }
}

impl<D: Desk, F: Front> Server<D, F> {
    /// Takes connections until the gateway stops; ends when all of them and their sessions have.
    pub async fn run(self, listeners: Listeners, mut handed_over: Receiver<HandedOver>) {
        let server = Arc::new(self);
        let mut connections = JoinSet::new();
        let mut turned_away = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            while turned_away.try_join_next().is_some() {}
            let accepted = tokio::select! {
                biased;
                () = server.shared.stop.cancelled() => break,
                Some(HandedOver { stream, peer, encrypted, place }) = handed_over.recv() => {
                    let stream = TcpStream::from_std(stream);
                    stream.map(|stream| (Accepted { stream, peer, encrypted }, Some(place)))
                }
                accepted = listeners.accept() => accepted.map(|accepted| (accepted, None)),
            };
            let (accepted, place) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match place.or_else(|| server.shared.places.take(server.thread)) {
                Some(place) if place.thread() != server.thread => server.hand_over(accepted, place),
                Some(place) => {
                    let Accepted { stream, peer, encrypted } = accepted;
                    let server = server.clone();
                    if encrypted {
                        connections.spawn(server.encrypted(stream, peer, place));
                    } else {
                        connections.spawn(server.plain(stream, peer, place));
                    }
                }
                None if accepted.encrypted || turned_away.len() < TURNED_AWAY_MAX => {
                    let refusal = refusals::connections_max(server.shared.places.max());
                    server.shared.metrics.refused(refusal.code);
                    if !accepted.encrypted {
                        turned_away.spawn(turn_away(accepted.stream, refusal));
                    }
                }
                None => {}
            }
        }
        drop(listeners);
        server.shared.sessions.close();
        server.cut.cancelled().await;
        let finished = async { while connections.join_next().await.is_some() {} };
        if timeout(LAST_ANSWERS, finished).await.is_err() {
            connections.shutdown().await;
        }
        server.shared.sessions.wait().await;
    }

    fn hand_over(&self, accepted: Accepted, place: Place) {
        let thread = place.thread();
        let Accepted { stream, peer, encrypted } = accepted;
        let Ok(stream) = stream.into_std() else { return };
        let handed_over = HandedOver { stream, peer, encrypted, place };
        // A thread with that many waiting has other trouble; the client may try again.
        if self.threads[thread].try_send(handed_over).is_err() {
            tracing::warn!(thread, "a connection was dropped: the thread for it is too far behind");
        }
    }

    async fn plain(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, place: Place) {
        if !self.shared.front.is_needed() {
            return self.sessions::<TcpStream, _>(stream, peer, place, true).await;
        }
        let Ok(local) = stream.local_addr() else { return };
        let agreed = Agreed { http2: false, server_name: None };
        let arrival = self.arrival(stream, (peer, local), agreed, false);
        self.front_first(arrival, place).await;
    }

    async fn encrypted(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, place: Place) {
        let Ok(local) = stream.local_addr() else { return };
        let Shared { front, options, metrics, .. } = &*self.shared;
        let limits = (options.header_limit, &self.stop);
        let Some(stream) = tls::accept(stream, peer, front.tls(), limits, metrics).await else {
            return;
        };
        let agreed = tls::agreed(&stream);
        if !front.is_needed() && !agreed.http2 {
            return self.sessions::<TlsStream<TcpStream>, _>(stream, peer, place, true).await;
        }
        let arrival = self.arrival(stream, (peer, local), agreed, true);
        self.front_first(arrival, place).await;
    }

    fn arrival<S>(
        &self,
        stream: S,
        (peer, local): (SocketAddr, SocketAddr),
        agreed: Agreed,
        encrypted: bool,
    ) -> Arrival<S> {
        let Agreed { http2, server_name } = agreed;
        let (thread, stop, cut) = (self.thread, self.stop.clone(), self.cut.clone());
        Arrival { stream, peer, local, thread, encrypted, http2, server_name, stop, cut }
    }

    /// What the front does not want is for the sessions: one request, because the next one on the
    /// same connection may be the front's again.
    async fn front_first<S: Carried>(self: Arc<Self>, arrival: Arrival<S>, place: Place) {
        let peer = arrival.peer;
        let served = self.shared.front.serve(arrival);
        // Boxed, so that a request for the sessions does not keep the room that the front needed.
        let served = Box::pin(self.shared.sessions.track_future(served));
        if let Some(Unclaimed { stream, read }) = served.await {
            let stream = Rewound::new(stream, read);
            self.sessions::<S, _>(stream, peer, place, false).await;
        }
    }

    /// Serves requests for sessions, over a connection of kind `C`.
    async fn sessions<C: Carried, S: Io>(
        self: Arc<Self>,
        stream: S,
        peer: SocketAddr,
        place: Place,
        keep_alive: bool,
    ) {
        let place = Arc::new(place);
        let server = self.clone();
        let service = service_fn(move |request| {
            let (server, place) = (server.clone(), place.clone());
            // Boxed, so that a session does not keep the room that finding its worker needed.
            Box::pin(async move {
                let mut response = server.answer::<C>(request, peer, place).await;
                if !keep_alive && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                Ok::<_, Infallible>(response)
            })
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.shared.options.header_limit)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.cut.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, %peer, "a connection ended badly");
        }
    }

    async fn answer<C: Carried>(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
        place: Arc<Place>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let checked = ask::check_framing(&parts);
        let stopping = self.shared.stop.is_cancelled();
        let upgrade = ask::is_upgrade(&parts.headers);
        let request = Request::from_parts(parts, body);
        let answered = match checked {
            Err(refusal) => Err(refusal),
            Ok(()) if stopping => Err(refusals::stopping()),
            Ok(()) if upgrade => self.upgrade::<C>(request, peer, place).await,
            Ok(()) => Ok(self.shared.desk.plain(request, peer).await),
        };
        answered.unwrap_or_else(|refusal| {
            self.shared.metrics.refused(refusal.code);
            tracing::debug!(%peer, code = refusal.code, message = refusal.message, "refused");
            body::problem(&refusal)
        })
    }

    async fn upgrade<C: Carried>(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
        place: Arc<Place>,
    ) -> Result<Response<Body>, Refusal> {
        let mut counted = Counted { metrics: &self.shared.metrics, outcome: Outcome::Left };
        let client = hyper::upgrade::on(&mut request);
        let found = match self.search(request, peer).await {
            Ok(found) => found,
            Err(refusal) => {
                counted.outcome = Outcome::Refused;
                return Err(refusal);
            }
        };
        let Found { seat, answer } = found;
        match answer {
            Answer::Refused { status, headers, body } => {
                counted.outcome = Outcome::Answered;
                // The worker is not to blame, and dropping the seat says so.
                drop(seat);
                let mut response = Response::new(body::full(body));
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                Ok(response)
            }
            Answer::Upgraded { stream, mut headers, early } => {
                counted.outcome = Outcome::Carried;
                if let Ok(session) = HeaderValue::from_str(seat.session()) {
                    headers.insert(SESSION, session);
                }
                seat.opened();
                let session = Session {
                    seat,
                    client,
                    carried_by: PhantomData::<fn() -> C>,
                    worker: (stream, early),
                    place,
                    cut: self.cut.clone(),
                    options: self.shared.options.clone(),
                    metrics: self.shared.metrics.clone(),
                };
                self.shared.sessions.spawn(session.run());
                let mut response = Response::new(body::full(""));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *response.headers_mut() = headers;
                Ok(response)
            }
        }
    }

    async fn search(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Found<D::Seat>, Refusal> {
        let deadline = Instant::now() + self.shared.options.connect_deadline;
        let (parts, _) = request.into_parts();
        ask::check_handshake(&parts)?;
        let asked = query::read(parts.uri.query().unwrap_or_default())?;
        let key = ask::key(&parts.headers, asked.token.as_deref())?;
        let who = Credentials { key, headers: &parts.headers, peer: peer.ip() };
        let caller = self.shared.desk.admit(&who)?;
        let mut wanted = asked.wanted;
        if wanted.version.is_none() {
            let agent = parts.headers.get(header::USER_AGENT);
            let agent = agent.and_then(|value| value.to_str().ok()).unwrap_or_default();
            wanted.version = query::version_of_agent(agent);
        }
        let search = Search {
            desk: &self.shared.desk,
            options: &self.shared.options,
            metrics: &self.shared.metrics,
            outline: Outline::new(&parts, asked.rest, peer.ip()),
            ask: Checkout { caller, wanted, avoid: Vec::new(), may_wait: true, deadline },
        };
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(refusals::stopping()),
            found = search.run() => found,
        }
    }
}

/// Counts what came of a wish, also if the client does not wait for it.
struct Counted<'a> {
    metrics: &'a GatewayMetrics,
    outcome: Outcome,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.metrics.upgrade(self.outcome);
    }
}

/// Says why there is no place, and waits for the client to hang up: closing with something unread
/// would tear down the connection, and the answer with it.
async fn turn_away(mut stream: TcpStream, refusal: Refusal) {
    let answer = async {
        stream.write_all(&body::problem_bytes(&refusal)).await?;
        stream.shutdown().await?;
        let mut ignored = [0; 1_024];
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // Whoever does not hang up by then is hung up on.
    let _ = timeout(TURN_AWAY_LIMIT, answer).await;
}
