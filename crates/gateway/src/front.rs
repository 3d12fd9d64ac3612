//! What may see a connection before the sessions do: somebody who serves ordinary requests.
//!
//! The gateway accepts, counts and encrypts. A [`Front`] reads requests, serves those that are its
//! own, and gives the connection back at the first one that is not.

use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// A connection's bytes, plain or encrypted underneath.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for S {}

/// Who has the first word on connections. Its methods are called from the gateway's own threads
/// and must not block them. `()` is nobody.
pub trait Front: Send + Sync + 'static {
    /// Whether it wants to see connections now; if not they go straight to the sessions. Those
    /// that have agreed on HTTP/2 go to it in any case: sessions do not speak that.
    fn is_needed(&self) -> bool;

    /// Serves a connection's requests. Gives it back, with what was read of it, at the first
    /// request that is not its own. Dropped if it goes on after `cut`.
    fn serve<S: Io>(
        &self,
        connection: Arrival<S>,
    ) -> impl Future<Output = Option<Unclaimed<S>>> + Send;

    /// What encrypts a connection; asked for each one. `None`: nobody has a certificate, and the
    /// TLS port closes it.
    fn tls(&self) -> Option<Arc<rustls::ServerConfig>>;
}

/// A connection that nobody has read from yet.
pub struct Arrival<S> {
    /// Its bytes, decrypted.
    pub stream: S,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Where it went to.
    pub local: SocketAddr,
    /// The number of the thread that serves it, from 0.
    pub thread: usize,
    /// Whether it came over TLS.
    pub encrypted: bool,
    /// Whether HTTP/2 was agreed on with ALPN.
    pub http2: bool,
    /// The host that the client asked for in its TLS handshake.
    pub server_name: Option<Box<str>>,
    /// Cancelled when what is in progress may be finished and nothing new may begin.
    pub stop: CancellationToken,
    /// Cancelled when it must end now.
    pub cut: CancellationToken,
}

/// A connection that a front has no more use for.
pub struct Unclaimed<S> {
    /// The connection.
    pub stream: S,
    /// What was read of it already and belongs to requests nobody has served.
    pub read: Vec<u8>,
}

impl Front for () {
    fn is_needed(&self) -> bool {
        false
    }

    async fn serve<S: Io>(&self, connection: Arrival<S>) -> Option<Unclaimed<S>> {
        Some(Unclaimed { stream: connection.stream, read: Vec::new() })
    }

    fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        None
    }
}
