//! What holds for all routes.

use skep_dial::Dialler;
use skep_policy::reach::Network;
use std::time::Duration;

/// Limits of the proxy itself; routes have their own beside them.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// How long a client may take to send the head of a request, from its first byte.
    pub head_limit: Duration,
    /// A client's connection on which nothing is asked for so long is closed.
    pub idle_limit: Duration,
    /// The head of a request or an answer, at most.
    pub head_max: usize,
    /// Free connections that each thread keeps to each upstream.
    pub free_max: usize,
    /// How long a free connection is kept.
    pub free_limit: Duration,
    /// Proxies in front of this one, whose `X-Forwarded-For` is believed.
    pub trusted: Vec<Network>,
    /// Connects to upstreams.
    pub dialler: Dialler,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        ProxyOptions {
            head_limit: Duration::from_secs(10),
            idle_limit: Duration::from_secs(60),
            head_max: 64 * 1_024,
            free_max: 256,
            free_limit: Duration::from_secs(30),
            trusted: Vec::new(),
            dialler: Dialler::default(),
        }
    }
}
