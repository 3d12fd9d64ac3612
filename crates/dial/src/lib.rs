//! Connects to addresses that others have chosen.
//!
//! Whoever may write an endpoint, a route or a worker's address makes this node connect there.
//! [`skep_policy::reach`] decides what may be reached; this is the one place that asks it, right
//! before connecting and about the very address: a name that means another address the second
//! time, or that never was a name, gains nothing.
//!
//! ```text
//!   polls, routes, gateway, webhooks ──► Dialler::connect ──► Reach::judge ──► the system
//!                                                       └──► denied: counted, an io::Error
//! ```
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let dialler = skep_dial::Dialler::default();
//! let error = dialler.connect_by_name("169.254.169.254", 80).await.expect_err("is denied");
//! assert!(skep_dial::denied(&error).is_some());
//! # });
//! ```

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use skep_policy::reach::{Denied, Reach};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpStream, lookup_host};

/// Addresses behind one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// What a node may reach, and the count of what it did not. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Dials {
    reach: Arc<Reach>,
    denied: Family<WhatLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhatLabels {
    what: &'static str,
}

impl Dials {
    /// For one node.
    pub fn new(reach: Reach) -> Self {
        Dials { reach: Arc::new(reach), denied: Family::default() }
    }

    /// What may be reached.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Connects for `what`, as in `poll`; its denials are counted under that name.
    pub fn dialler(&self, what: &'static str) -> Dialler {
        let denied = self.denied.get_or_create(&WhatLabels { what }).clone();
        Dialler { reach: self.reach.clone(), denied, what }
    }

    /// Adds the count to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Connections that were not made because the address is denied, by what for";
        registry.register("skep_reach_denied", help, self.denied.clone());
    }
}

/// Connects for one purpose. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dialler {
    reach: Arc<Reach>,
    denied: Counter,
    what: &'static str,
}

impl Default for Dialler {
    /// One that denies what is denied unless it is allowed, and is counted by nobody.
    fn default() -> Self {
        Dialler { reach: Arc::default(), denied: Counter::default(), what: "nothing" }
    }
}

impl Dialler {
    /// What may be reached.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Connects to this address.
    ///
    /// # Errors
    /// Those of the system, and one for which [`denied`] tells why.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        if let Err(denied) = self.reach.judge(address.ip()) {
            self.denied.inc();
            tracing::debug!(what = self.what, %address, by = %denied.by, "not connected to");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, denied));
        }
        TcpStream::connect(address).await
    }

    /// Connects to the first address of this name that may be reached and accepts.
    ///
    /// # Errors
    /// As for [`Dialler::connect`], that of the last address.
    pub async fn connect_by_name(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in lookup_host((host, port)).await?.take(ADDRESSES_MAX) {
            match self.connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Why an address was not connected to, if the error is about that.
pub fn denied(error: &io::Error) -> Option<&Denied> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// A dialler that does not reach this machine, and a port of it that listens.
    async fn without_loopback(allow: &str) -> (Dials, Dialler, TcpListener, u16) {
        let ranges = |text: &str| {
            let parts = text.split(',').filter(|one| !one.is_empty());
            parts.map(|one| one.parse().expect("is a range")).collect()
        };
        let reach = Reach { deny: ranges("127.0.0.0/8,::1"), allow: ranges(allow) };
        let dials = Dials::new(reach);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("has one").port();
        let dialler = dials.dialler("poll");
        (dials, dialler, listener, port)
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_denied_address_is_not_followed() {
        let (dials, dialler, listener, port) = without_loopback("").await;
        for host in ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "::"] {
            let error = dialler.connect_by_name(host, port).await.expect_err(host);
            assert!(denied(&error).is_some(), "{host}: {error}");
        }
        let mut registry = Registry::default();
        dials.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
        assert!(!text.contains("skep_reach_denied_total{what=\"poll\"} 0"), "{text}");
        let coming = tokio::time::timeout(std::time::Duration::from_millis(20), listener.accept());
        assert!(coming.await.is_err(), "nobody has knocked");
    }

    #[tokio::test]
    async fn what_is_allowed_is_connected_to() {
        let (_dials, dialler, _listener, port) = without_loopback("127.0.0.1").await;
        assert!(dialler.connect_by_name("localhost", port).await.is_ok());
    }
}
