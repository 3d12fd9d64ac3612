//! Connections to the node's port: how many, how slow, encrypted or not, and their end.

use super::certificate::Certificate;
use super::lane::{Lane, Lanes, Turn};
use crate::node::Shared;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use futures_util::TryFutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// After a failed accept, usually for want of file descriptors, this long is waited.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that came just before the end has its request on the way; it is waited for so long.
const FIRST_REQUEST: Duration = Duration::from_millis(250);

/// What is done with every connection.
#[derive(Clone)]
struct Handling {
    lanes: Arc<Lanes>,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

/// Takes connections until `stop`; then lets requests in progress finish for as long as the
/// settings allow, and cuts the rest.
pub async fn serve(
    listener: TcpListener,
    lanes: Lanes,
    certificate: Option<Arc<Certificate>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let shared = lanes.shared.clone();
    let drain_timeout = shared.settings.shutdown.drain_timeout;
    // Past the limit nobody is accepted: clients wait in the system's queue for a free place.
    let places = Arc::new(Semaphore::new(shared.settings.api.connections_max));
    let handling = Handling { lanes: Arc::new(lanes), shared, stop: stop.clone() };
    let mut connections = JoinSet::new();
    loop {
        // Those that have ended are taken out here, so that the set stays as large as it must.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, address, place)) => {
                handling.spawn((stream, address, place), certificate.clone(), &mut connections);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Those who are connected and not accepted yet would be cut: the system is asked once more,
    // because what the runtime knows of it is a moment old.
    if let Ok(listener) = listener.into_std() {
        while let Ok((stream, address)) = listener.accept()
            && let Ok(place) = places.clone().try_acquire_owned()
            && let Ok(stream) =
                stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream))
        {
            handling.spawn((stream, address, place), certificate.clone(), &mut connections);
        }
    }
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain_timeout, finished).await.is_err() {
        tracing::warn!("requests were still in progress after {drain_timeout:?} and are cut");
        connections.shutdown().await;
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    Ok((stream, address, place))
}

impl Handling {
    /// Takes care of a connection, in a task of its own.
    fn spawn(
        &self,
        (stream, address, place): (TcpStream, SocketAddr, OwnedSemaphorePermit),
        certificate: Option<Arc<Certificate>>,
        connections: &mut JoinSet<()>,
    ) {
        let handling = self.clone();
        // Two tasks of different size, so that a plain connection does not pay for TLS.
        match certificate {
            None => connections.spawn(async move {
                handling.plain(stream, address).await;
                drop(place);
            }),
            Some(certificate) => connections.spawn(async move {
                handling.encrypted(stream, address, certificate).await;
                drop(place);
            }),
        };
    }

    fn prepare(&self, stream: &TcpStream) {
        // Answers are written whole; waiting for more to send would only delay them.
        let _ = stream.set_nodelay(true);
        // A client that does not read its answer is sent away like one that does not send.
        let limit = self.shared.settings.api.idle_timeout.as_millis();
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, limit);
    }

    async fn plain(self, stream: TcpStream, address: SocketAddr) {
        let _counted = self.shared.traffic.open_connection();
        self.prepare(&stream);
        self.connection(stream, address).await;
    }

    async fn encrypted(
        self,
        stream: TcpStream,
        address: SocketAddr,
        certificate: Arc<Certificate>,
    ) {
        let _counted = self.shared.traffic.open_connection();
        self.prepare(&stream);
        let limit = self.shared.settings.api.idle_timeout;
        let acceptor = TlsAcceptor::from(certificate.server_config());
        let accepting = tokio::time::timeout(limit, Box::pin(acceptor.accept(stream)));
        let Some(accepted) = self.stop.run_until_cancelled(accepting).await else { return };
        match accepted {
            Ok(Ok(stream)) => self.connection(stream, address).await,
            Ok(Err(error)) => tracing::debug!(%error, %address, "no TLS connection came about"),
            Err(_) => tracing::debug!(%address, "the TLS handshake took too long"),
        }
    }

    async fn connection(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
    ) {
        let Handling { lanes, shared, stop } = self;
        let turn = Arc::new(Turn::default());
        let lane = Lane::new(stream, address, lanes.clone(), turn.clone());
        let asks = turn.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            asks.begin();
            request.extensions_mut().insert(ConnectInfo(address));
            let (router, asks) = (lanes.router.clone(), asks.clone());
            let served = router.oneshot(request.map(Body::new));
            // Boxed, because an idle connection keeps the place that an answer in progress needs.
            Box::pin(served.map_ok(move |response| asks.answer(response)))
        });
        let api = &shared.settings.api;
        let header_max = usize::try_from(api.header_max.0).unwrap_or(usize::MAX);
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(header_max)
            .serve_connection(TokioIo::new(lane), service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let stopped = async {
            stop.cancelled().await;
            if !turn.was_asked() {
                tokio::time::sleep(FIRST_REQUEST).await;
            }
            // Its end is seen in this task, before it is asked for here.
            poll_fn(|_| if turn.is_in_lane() { Poll::Pending } else { Poll::Ready(()) }).await;
        };
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, %address, "a connection ended badly");
        }
    }
}
