//! Limits of the gateway.

use skep_dial::Dialler;
use std::net::SocketAddr;
use std::time::Duration;

/// What a gateway is told at its start. A limit of zero is none, where that is said.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Where clients connect to.
    pub listen: SocketAddr,
    /// Where clients connect to that speak TLS; `None` for nowhere. At `connections_max` these
    /// are hung up on without a word: they would have to be greeted first.
    pub tls_listen: Option<SocketAddr>,
    /// Threads that carry sessions; 0 for one a core.
    pub threads: usize,
    /// Connections of clients at a time; 0 for as many as the file limit allows. More are
    /// answered 503.
    pub connections_max: usize,
    /// How long a client may take to send the head of a request, or to begin the next one; and for
    /// its TLS handshake.
    pub header_limit: Duration,
    /// How long a client waits for a session at most, the line and every dial included.
    pub connect_deadline: Duration,
    /// How long a worker may take to answer before a second one is dialled beside it.
    pub hedge_after: Duration,
    /// How long one worker may take to answer at most.
    pub dial_limit: Duration,
    /// A session in which neither side says anything for this long is ended; 0 for never.
    pub idle_timeout: Duration,
    /// How long a session may last; 0 for ever.
    pub duration_max: Duration,
    /// A side that takes nothing for this long while there is something for it loses its session;
    /// 0 for never.
    pub stall_max: Duration,
    /// How long sessions, and requests of a front, may go on when the gateway stops.
    pub drain_limit: Duration,
    /// Connects to workers.
    pub dialler: Dialler,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        GatewayOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 8_080)),
            tls_listen: None,
            threads: 0,
            connections_max: 0,
            header_limit: Duration::from_secs(10),
            connect_deadline: Duration::from_secs(30),
            hedge_after: Duration::from_millis(150),
            dial_limit: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30 * 60),
            duration_max: Duration::from_secs(24 * 60 * 60),
            stall_max: Duration::from_secs(60),
            drain_limit: Duration::from_secs(30),
            dialler: Dialler::default(),
        }
    }
}
