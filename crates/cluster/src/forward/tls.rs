//! Connections to nodes that speak TLS, and to those that do not.

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Whom nodes that speak TLS must be certified by: the authorities in this PEM file, or those of
/// the system. The error says which could not be used.
pub fn trust(file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut config = skep_store::trusting(file)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What a node's certificate must be for, and whom it must be from.
pub(super) struct Tls {
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Tls {
    /// Nothing if the host is no name that a certificate could have.
    pub fn new(host: &str, trust: &Arc<ClientConfig>) -> Option<Self> {
        let name = ServerName::try_from(host.to_owned()).ok()?;
        Some(Tls { name, connector: trust.clone().into() })
    }

    /// Makes sure that the node is the one, and that nobody else reads along.
    pub async fn secure(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

/// A connection, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    /// What it comes in by.
    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}
