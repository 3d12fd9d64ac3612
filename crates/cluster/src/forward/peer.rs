//! Another node: where it is, the free connections to it, and what is on its way there.

use super::latency::Latency;
use super::link::Link;
use super::options::ForwardOptions;
use super::tls::Tls;
use arc_swap::ArcSwap;
use hyper::Uri;
use hyper::header::HeaderValue;
use rustls::ClientConfig;
use skep_policy::Name;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Why a node cannot be forwarded to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPeer {
    /// Its address is not one.
    #[error("the address {url:?} of node {name} is not allowed; give http[s]://HOST:PORT")]
    Url {
        /// The node.
        name: Name,
        /// What it said.
        url: String,
    },
    /// It speaks TLS, and nobody is trusted to certify it.
    #[error("node {name} at {url} speaks TLS; name who certifies nodes with cluster.ca")]
    Untrusted {
        /// The node.
        name: Name,
        /// Where it is.
        url: String,
    },
    /// There are as many nodes as may be.
    #[error("node {name} is one too many: requests are forwarded to {most} others at most")]
    TooMany {
        /// The node.
        name: Name,
        /// How many there may be.
        most: usize,
    },
}

/// Where a node is.
pub(super) struct Target {
    pub url: String,
    /// What goes into `Host` if the client gave none.
    pub authority: HeaderValue,
    pub host: String,
    pub port: u16,
    /// If it speaks TLS.
    pub tls: Option<Tls>,
    /// Grows with each new address, so that connections to an old one are known.
    pub generation: u64,
}

impl Target {
    /// Of a node at this address, if it is one that can be used.
    fn of(
        name: &Name,
        url: &str,
        generation: u64,
        trust: Option<&Arc<ClientConfig>>,
    ) -> Result<Target, BadPeer> {
        let (name, text) = (name.clone(), url.to_owned());
        match (url.starts_with("https://"), trust) {
            (true, None) => Err(BadPeer::Untrusted { name, url: text }),
            (_, trust) => {
                Target::parse(url, generation, trust).ok_or(BadPeer::Url { name, url: text })
            }
        }
    }

    fn parse(url: &str, generation: u64, trust: Option<&Arc<ClientConfig>>) -> Option<Target> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority()?;
        let alone = uri.path() == "/" && uri.query().is_none();
        if !alone || authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, port) = match uri.scheme_str()? {
            "http" => (None, 80),
            "https" => (Some(Tls::new(&host, trust?)?), 443),
            _ => return None,
        };
        Some(Target {
            url: url.to_owned(),
            authority: HeaderValue::from_str(authority.as_str()).ok()?,
            host,
            port: authority.port_u16().unwrap_or(port),
            tls,
            generation,
        })
    }
}

/// Another node. Cheap to clone; all clones are the same node.
#[derive(Clone)]
pub struct Peer(Arc<Shared>);

struct Shared {
    name: Name,
    target: ArcSwap<Target>,
    /// The oldest first; the last one that became free is taken first, so that the others grow old.
    free: Mutex<Vec<Link>>,
    forgotten: AtomicBool,
    in_flight: AtomicU32,
    forwarded: AtomicU64,
    failed: AtomicU64,
    fell_back: AtomicU64,
    connects: AtomicU64,
    hop: Latency,
}

/// What is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerNow {
    /// Its name.
    pub name: Name,
    /// Where it is.
    pub url: String,
    /// Requests on their way there.
    pub in_flight: u32,
    /// Free connections to it.
    pub free: usize,
    /// Requests that it answered.
    pub forwarded: u64,
    /// Exchanges without an answer.
    pub failed: u64,
    /// Requests that were meant for it and were served here.
    pub fell_back: u64,
    /// Connections that were opened to it.
    pub connects: u64,
    /// What half of the hops did not exceed, the other node's own time taken off.
    pub hop_p50_us: Option<u64>,
    /// What 99 of 100 hops did not exceed.
    pub hop_p99_us: Option<u64>,
}

impl Peer {
    pub(super) fn new(
        name: Name,
        url: &str,
        trust: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, BadPeer> {
        let target = Target::of(&name, url, 0, trust)?;
        Ok(Peer(Arc::new(Shared {
            name,
            target: ArcSwap::from_pointee(target),
            free: Mutex::default(),
            forgotten: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            forwarded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            fell_back: AtomicU64::new(0),
            connects: AtomicU64::new(0),
            hop: Latency::default(),
        })))
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.0.target.load().url.clone()
    }

    /// Requests of this node that are on their way there. Takes no lock.
    pub fn in_flight(&self) -> u32 {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// What is known of it.
    pub fn now(&self) -> PeerNow {
        let shared = &*self.0;
        PeerNow {
            name: shared.name.clone(),
            url: shared.target.load().url.clone(),
            in_flight: self.in_flight(),
            free: self.free().len(),
            forwarded: shared.forwarded.load(Ordering::Relaxed),
            failed: shared.failed.load(Ordering::Relaxed),
            fell_back: shared.fell_back.load(Ordering::Relaxed),
            connects: shared.connects.load(Ordering::Relaxed),
            hop_p50_us: shared.hop.quantile_us(0.5),
            hop_p99_us: shared.hop.quantile_us(0.99),
        }
    }

    pub(super) fn target(&self) -> Arc<Target> {
        self.0.target.load_full()
    }

    /// It is elsewhere now; connections to where it was are closed.
    pub(super) fn move_to(
        &self,
        url: &str,
        trust: Option<&Arc<ClientConfig>>,
    ) -> Result<(), BadPeer> {
        let old = self.target();
        if old.url == url {
            return Ok(());
        }
        let target = Target::of(&self.0.name, url, old.generation + 1, trust)?;
        self.0.target.store(Arc::new(target));
        let closed = std::mem::take(&mut *self.free());
        drop(closed);
        Ok(())
    }

    /// It is not in the cluster any more. What is on its way there may finish.
    pub(super) fn forget(&self) {
        self.0.forgotten.store(true, Ordering::Release);
        let closed = std::mem::take(&mut *self.free());
        drop(closed);
    }

    fn free(&self) -> MutexGuard<'_, Vec<Link>> {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is free and, as far as can be seen, alive.
    pub(super) fn take(&self, idle_limit: Duration) -> Option<Link> {
        loop {
            // Its own statement, so that the lock is let go before the connection is looked at.
            let last = self.free().pop();
            let mut link = last?;
            let young = link.free_since.elapsed() < idle_limit;
            if young && link.generation == self.0.target.load().generation && link.is_fresh() {
                return Some(link);
            }
        }
    }

    /// Keeps a connection whose answer is over, if it is of use.
    pub(super) fn put(&self, mut link: Link, options: &ForwardOptions) {
        if !link.is_free() {
            return;
        }
        link.free_since = Instant::now();
        let mut free = self.free();
        let current = link.generation == self.0.target.load().generation;
        let wanted = current && !self.0.forgotten.load(Ordering::Acquire);
        if wanted && free.len() < options.idle_max {
            free.push(link);
        }
    }

    /// Closes free connections that are old, or that the other node has closed.
    pub(super) fn tidy(&self, options: &ForwardOptions) {
        self.free()
            .retain_mut(|link| link.free_since.elapsed() < options.idle_limit && link.is_fresh());
    }

    /// A place among those on their way there, if there is one.
    pub(super) fn enter(&self, most: u32) -> bool {
        let entered = self.0.in_flight.fetch_add(1, Ordering::Relaxed) < most;
        if !entered {
            self.leave();
        }
        entered
    }

    pub(super) fn leave(&self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn note_answer(&self) {
        self.0.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_failure(&self) {
        self.0.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_fall_back(&self) {
        self.0.fell_back.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_connect(&self) {
        self.0.connects.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_hop(&self, took: Duration) {
        self.0.hop.add(took);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} at {})", self.0.name, self.0.target.load().url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_http_with_host_and_port_alone() {
        let host = |url: &str| Target::parse(url, 0, None).map(|target| (target.host, target.port));
        assert_eq!(host("http://10.0.0.1:6632"), Some(("10.0.0.1".into(), 6632)));
        assert_eq!(host("http://[::1]:6632/"), Some(("::1".into(), 6632)));
        assert_eq!(host("http://node-b"), Some(("node-b".into(), 80)));
        for bad in ["https://b:1", "b:1", "http://b:1/x", "http://u@b:1", "http://b:1/?q", ""] {
            assert_eq!(host(bad), None, "{bad}");
        }
        let name: Name = "b".parse().expect("is a name");
        assert_eq!(
            Peer::new(name.clone(), "ftp://b", None).expect_err("is no address").to_string(),
            r#"the address "ftp://b" of node b is not allowed; give http[s]://HOST:PORT"#
        );
        assert_eq!(
            Peer::new(name, "https://b:1", None).expect_err("nobody is trusted").to_string(),
            "node b at https://b:1 speaks TLS; name who certifies nodes with cluster.ca"
        );
    }

    #[test]
    fn no_more_enter_than_may_be() {
        let peer = Peer::new("b".parse().expect("is a name"), "http://b:1", None).expect("is one");
        assert!(peer.enter(2) && peer.enter(2));
        assert!(!peer.enter(2));
        assert_eq!(peer.in_flight(), 2);
        peer.leave();
        assert!(peer.enter(2));
    }
}
