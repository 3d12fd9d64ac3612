//! Encrypted connections: their handshake, and what sessions need to know about them.

use crate::front::Io;
use crate::metrics::GatewayMetrics;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

const HTTP2: &[u8] = b"h2";

/// A client's connection as a session carries it.
pub(crate) trait Carried: Io {
    /// Whether its end must be said, because the other side takes an end without a word for one
    /// that somebody has forged.
    const SAYS_ITS_END: bool;
}

impl Carried for TcpStream {
    const SAYS_ITS_END: bool = false;
}

impl Carried for TlsStream<TcpStream> {
    const SAYS_ITS_END: bool = true;
}

/// What a handshake has agreed on.
pub(crate) struct Agreed {
    pub http2: bool,
    pub server_name: Option<Box<str>>,
}

/// The handshake, for `limit` at most; `None` if there is no connection after it.
pub(crate) async fn accept(
    stream: TcpStream,
    peer: SocketAddr,
    config: Option<Arc<rustls::ServerConfig>>,
    (limit, stop): (Duration, &CancellationToken),
    metrics: &GatewayMetrics,
) -> Option<TlsStream<TcpStream>> {
    let Some(config) = config else {
        metrics.tls_handshake("no_certificate");
        tracing::debug!(%peer, "an encrypted connection was closed: there is no certificate");
        return None;
    };
    let handshake = timeout(limit, TlsAcceptor::from(config).accept(stream));
    match stop.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => {
            metrics.tls_handshake("done");
            Some(stream)
        }
        Some(Ok(Err(error))) => {
            metrics.tls_handshake("failed");
            tracing::debug!(%error, %peer, "a TLS handshake failed");
            None
        }
        Some(Err(_)) => {
            metrics.tls_handshake("timeout");
            tracing::debug!(?limit, %peer, "a TLS handshake took too long");
            None
        }
        None => {
            metrics.tls_handshake("stopped");
            None
        }
    }
}

/// What the handshake of this connection has agreed on.
pub(crate) fn agreed(stream: &TlsStream<TcpStream>) -> Agreed {
    let (_, tls) = stream.get_ref();
    Agreed {
        http2: tls.alpn_protocol() == Some(HTTP2),
        server_name: tls.server_name().map(Box::from),
    }
}
