//! The proxy as the gateway meets it: whoever has the first word on connections.

use super::NodeRoutes;
use skep_gateway::{Arrival, Front, Io, Unclaimed};
use std::sync::Arc;

/// The routes of a node in front of its sessions.
pub struct NodeFront(pub Arc<NodeRoutes>);

impl Front for NodeFront {
    fn is_needed(&self) -> bool {
        self.0.proxy.has_routes()
    }

    async fn serve<S: Io>(&self, connection: Arrival<S>) -> Option<Unclaimed<S>> {
        let Arrival { stream, peer, encrypted, http2, stop, .. } = connection;
        let arrival = skep_routes::Arrival { stream, peer: peer.ip(), encrypted, http2, stop };
        let unclaimed = self.0.proxy.serve(arrival).await?;
        Some(Unclaimed { stream: unclaimed.stream, read: unclaimed.read })
    }

    fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.0.certificates.config()
    }
}
