//! Where other nodes hear datagrams: addresses from a list or discovered, looked up again and
//! again.

use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Nodes that are talked to at most, from the list and discovered together.
pub const PEERS_MAX: usize = 256;

/// Addresses of one name at most: a name may stand for all nodes.
const ADDRESSES_MAX: usize = 64;

/// How long one name may take.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);

/// `host:port`, `192.0.2.1:6634` or `[2001:db8::1]:6634`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    host: Box<str>,
    port: u16,
}

/// A text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address of a node: {why}; write host:port, as in node-2:6634, 192.0.2.1:6634 \
     or [2001:db8::1]:6634"
)]
pub struct BadAddress {
    /// What was given.
    pub text: String,
    /// What is wrong about it.
    pub why: &'static str,
}

/// A node that somebody else knows of, as the coordination store does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Its name.
    pub name: Arc<str>,
    /// Where it hears datagrams, `host:port`.
    pub udp: String,
}

/// Finds the other nodes of an installation.
pub trait Discover: Send + Sync {
    /// Those that are known now; this node may be among them. Must not wait.
    fn peers(&self) -> Vec<Discovered>;
}

/// What is known of an address.
#[derive(Clone, Debug, Serialize)]
pub struct PeerStatus {
    /// As it was given.
    pub address: String,
    /// `list` or `discovered`.
    pub origin: &'static str,
    /// Who hears there, once that is known.
    pub name: Option<Arc<str>>,
    /// What it stands for now.
    pub resolved: Vec<SocketAddr>,
    /// What is wrong about it.
    pub error: Option<String>,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = |why| BadAddress { text: text.to_owned(), why };
        if text.contains("://") {
            return Err(bad("it is a URL"));
        }
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(|| bad("it has no port"))?;
        let port = match port.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return Err(bad("the port is not a number from 1 to 65535")),
        };
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match inner {
            Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
            Some(_) => return Err(bad("what is in brackets is no IPv6 address")),
            None if host.contains(':') => return Err(bad("an IPv6 address needs brackets")),
            None => host,
        };
        let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@' | ',');
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        if host.len() > 253 || host.contains(odd) {
            return Err(bad("the host is not a name or an address"));
        }
        Ok(Address { host: host.into(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Address {
    /// Every socket address that it stands for now.
    async fn look_up(&self) -> Result<Vec<SocketAddr>, String> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let looked = tokio::net::lookup_host((&*self.host, self.port));
        match tokio::time::timeout(LOOKUP_LIMIT, looked).await {
            Ok(Ok(found)) => Ok(found.take(ADDRESSES_MAX).collect()),
            Ok(Err(error)) => Err(format!("{} was not found: {error}", self.host)),
            Err(_) => Err(format!("looking up {} took more than {LOOKUP_LIMIT:?}", self.host)),
        }
    }
}

/// Which addresses a socket can send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    bound: SocketAddr,
}

impl Reach {
    /// What a socket bound to this address reaches.
    pub fn of(bound: SocketAddr) -> Self {
        Reach { bound }
    }

    /// Why an address is out of reach.
    fn refuses(self, to: SocketAddr) -> Option<&'static str> {
        let (here, there) = (self.bound.ip(), to.ip());
        let both = here.is_ipv6() && here.is_unspecified();
        if here.is_loopback() && !there.is_loopback() {
            return Some(
                "it is on another machine, and this node listens on loopback alone; set \
                 cluster.listen to an address that others reach",
            );
        }
        match (here.is_ipv4(), there.is_ipv4()) {
            (true, false) => Some("it is an IPv6 address; set cluster.listen to [::]:PORT"),
            (false, true) if !both => {
                Some("it is an IPv4 address; set cluster.listen to [::]:PORT or an IPv4 address")
            }
            _ => None,
        }
    }

    /// The address as the socket wants it.
    pub fn towards(self, to: SocketAddr) -> SocketAddr {
        match (self.bound, to) {
            (SocketAddr::V6(_), SocketAddr::V4(to)) => {
                SocketAddrV6::new(to.ip().to_ipv6_mapped(), to.port(), 0, 0).into()
            }
            _ => to,
        }
    }
}

/// An address without the disguise that IPv4 has on an IPv6 socket.
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(six) => match six.ip().to_ipv4_mapped() {
            Some(four) => SocketAddr::new(four.into(), six.port()),
            // The scope stays: without it a link-local address leads nowhere.
            None => SocketAddrV6::new(*six.ip(), six.port(), 0, six.scope_id()).into(),
        },
        four => four,
    }
}

/// The addresses of the other nodes.
#[derive(Default)]
pub struct Book {
    entries: Vec<Entry>,
    names: HashMap<SocketAddr, Arc<str>>,
    mine: HashSet<SocketAddr>,
}

struct Entry {
    text: Box<str>,
    address: Result<Address, String>,
    name: Option<Arc<str>>,
    is_listed: bool,
    resolved: Vec<SocketAddr>,
    error: Option<String>,
}

/// What looking an address up gave.
pub type LookedUp = (Box<str>, Result<Vec<SocketAddr>, String>);

impl Book {
    /// A book with a list.
    pub fn new(list: &[Address]) -> Self {
        let listed = |address: &Address| Entry {
            text: address.to_string().into(),
            address: Ok(address.clone()),
            name: None,
            is_listed: true,
            resolved: Vec::new(),
            error: None,
        };
        let entries = list.iter().take(PEERS_MAX).map(listed).collect();
        Book { entries, ..Book::default() }
    }

    /// Takes over what was discovered now, in place of what was before. True if there is something
    /// to look up.
    pub fn discovered(&mut self, here: &str, found: Vec<Discovered>) -> bool {
        let others = |peer: &Discovered| &*peer.name != here;
        let found: Vec<Discovered> = found.into_iter().filter(others).collect();
        let known = |entry: &Entry, peer: &Discovered| {
            !entry.is_listed && *entry.text == *peer.udp && entry.name.as_ref() == Some(&peer.name)
        };
        self.entries.retain(|entry| entry.is_listed || found.iter().any(|peer| known(entry, peer)));
        let mut is_new = false;
        for peer in found {
            if self.entries.len() >= PEERS_MAX || self.entries.iter().any(|one| known(one, &peer)) {
                continue;
            }
            let address = peer.udp.parse::<Address>().map_err(|error| error.to_string());
            let error = address.as_ref().err().cloned();
            let text = peer.udp.into();
            let (name, resolved) = (Some(peer.name), Vec::new());
            self.entries.push(Entry { text, address, name, is_listed: false, resolved, error });
            is_new = true;
        }
        is_new
    }

    /// What is to be looked up.
    pub fn questions(&self) -> Vec<(Box<str>, Address)> {
        let good = |entry: &Entry| Some((entry.text.clone(), entry.address.clone().ok()?));
        self.entries.iter().filter_map(good).collect()
    }

    /// Takes over what was found. An address that fails keeps what it stood for last.
    pub fn looked_up(&mut self, found: Vec<LookedUp>, reach: Reach) {
        // A node may have got the address of another: who is where is learned anew.
        self.mine.clear();
        for (text, answer) in found {
            for entry in self.entries.iter_mut().filter(|entry| entry.text == text) {
                entry.take(&answer, reach);
            }
        }
        let known: HashSet<SocketAddr> =
            self.entries.iter().flat_map(|entry| entry.resolved.iter().copied()).collect();
        self.names.retain(|address, _| known.contains(address));
    }

    /// Somebody was heard from this address.
    pub fn heard(&mut self, from: SocketAddr, name: &str) {
        if self.names.get(&from).is_some_and(|known| **known == *name) {
            return;
        }
        if self.entries.iter().any(|entry| entry.resolved.contains(&from)) {
            self.names.insert(from, name.into());
        }
    }

    /// This node has heard itself from this address.
    pub fn is_me(&mut self, from: SocketAddr) {
        if self.entries.iter().any(|entry| entry.resolved.contains(&from)) {
            self.mine.insert(from);
        }
    }

    /// Every address to talk to, and who is there if that is known; each once.
    pub fn targets(&self) -> Vec<(SocketAddr, Option<Arc<str>>)> {
        let mut seen = HashSet::new();
        let mut targets = Vec::new();
        for entry in &self.entries {
            for address in entry.resolved.iter().filter(|address| !self.mine.contains(address)) {
                if seen.insert(*address) {
                    let learned = self.names.get(address).cloned();
                    targets.push((*address, learned.or_else(|| entry.name.clone())));
                }
            }
        }
        targets
    }

    /// Every address with what is known of it.
    pub fn status(&self) -> Vec<PeerStatus> {
        let status = |entry: &Entry| PeerStatus {
            address: entry.text.to_string(),
            origin: if entry.is_listed { "list" } else { "discovered" },
            name: entry.name.clone().or_else(|| {
                entry.resolved.iter().find_map(|address| self.names.get(address)).cloned()
            }),
            resolved: entry.resolved.clone(),
            error: entry.error.clone(),
        };
        self.entries.iter().map(status).collect()
    }
}

impl Entry {
    fn take(&mut self, answer: &Result<Vec<SocketAddr>, String>, reach: Reach) {
        let found = match answer {
            Ok(found) => found,
            Err(error) => {
                self.error = Some(error.clone());
                return;
            }
        };
        let mut refused = None;
        let mut resolved: Vec<SocketAddr> = Vec::new();
        for address in found.iter().copied().map(plain) {
            match reach.refuses(address) {
                None if !resolved.contains(&address) => resolved.push(address),
                None => {}
                Some(why) => refused = Some(format!("{address} cannot be reached: {why}")),
            }
        }
        let nothing = || "it stands for no address".to_owned();
        self.error = if resolved.is_empty() { refused.or_else(|| Some(nothing())) } else { None };
        self.resolved = resolved;
    }
}

/// Looks everything up at the same time.
pub async fn look_up(questions: Vec<(Box<str>, Address)>) -> Vec<LookedUp> {
    let mut lookups = JoinSet::new();
    for (text, address) in questions {
        lookups.spawn(async move { (text, address.look_up().await) });
    }
    let mut found = Vec::new();
    while let Some(done) = lookups.join_next().await {
        found.extend(done.ok());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().expect("is an address")
    }

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect("is a socket address")
    }

    fn resolved(text: &str, found: &[&str]) -> Vec<LookedUp> {
        vec![(text.into(), Ok(found.iter().map(|one| socket(one)).collect()))]
    }

    #[test]
    fn hosts_and_addresses_of_both_families_are_read_and_written_alike() {
        for text in ["node-2:6634", "192.0.2.1:1", "[2001:db8::1]:65535", "localhost:6634"] {
            assert_eq!(address(text).to_string(), text);
        }
        assert_eq!(address(" node-2:6634 ").to_string(), "node-2:6634");
    }

    #[test]
    fn what_is_no_address_is_told_with_what_is_wrong() {
        for (text, why) in [
            ("node-2", "no port"),
            ("node-2:0", "1 to 65535"),
            ("node-2:66340", "1 to 65535"),
            (":6634", "no host"),
            ("::1:6634", "needs brackets"),
            ("[node]:6634", "no IPv6 address"),
            ("http://node-2:6634", "it is a URL"),
            ("a b:6634", "not a name"),
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(why) && error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn what_the_socket_cannot_reach_is_an_error_that_says_what_to_do() {
        for (bound, to, hint) in [
            ("127.0.0.1:6634", "192.0.2.1:6634", "listens on loopback alone"),
            ("0.0.0.0:6634", "[2001:db8::1]:6634", "[::]:PORT"),
            ("[2001:db8::2]:6634", "192.0.2.1:6634", "IPv4"),
        ] {
            let mut book = Book::new(&[address(to)]);
            book.looked_up(resolved(to, &[to]), Reach::of(socket(bound)));
            let status = &book.status()[0];
            assert!(status.resolved.is_empty() && book.targets().is_empty());
            assert!(status.error.as_ref().is_some_and(|error| error.contains(hint)), "{status:?}");
        }
        let both = Reach::of(socket("[::]:6634"));
        assert_eq!(both.refuses(socket("192.0.2.1:1")), None);
        assert_eq!(both.towards(socket("192.0.2.1:1")), socket("[::ffff:192.0.2.1]:1"));
        assert_eq!(plain(socket("[::ffff:192.0.2.1]:1")), socket("192.0.2.1:1"));
    }

    #[test]
    fn a_name_that_fails_later_keeps_what_it_stood_for() {
        let reach = Reach::of(socket("0.0.0.0:6634"));
        let mut book = Book::new(&[address("nodes:6634")]);
        book.looked_up(resolved("nodes:6634", &["192.0.2.1:6634", "192.0.2.2:6634"]), reach);
        book.heard(socket("192.0.2.2:6634"), "b");
        book.is_me(socket("192.0.2.1:6634"));
        let b = (socket("192.0.2.2:6634"), Some("b".into()));
        assert_eq!(book.targets(), std::slice::from_ref(&b));

        book.looked_up(vec![("nodes:6634".into(), Err("nodes was not found".into()))], reach);
        assert_eq!(book.targets(), [(socket("192.0.2.1:6634"), None), b]);
        assert_eq!(book.status()[0].error.as_deref(), Some("nodes was not found"));

        book.looked_up(resolved("nodes:6634", &["192.0.2.3:6634"]), reach);
        assert_eq!(book.targets(), [(socket("192.0.2.3:6634"), None)]);
        assert_eq!(book.status()[0].error, None);
    }

    #[test]
    fn discovered_nodes_come_and_go_and_this_one_is_not_among_them() {
        let found = |names: &[&str]| -> Vec<Discovered> {
            let peer = |name: &&str| Discovered {
                name: (*name).into(),
                udp: format!("127.0.0.{}:6634", name.len()),
            };
            names.iter().map(peer).collect()
        };
        let reach = Reach::of(socket("127.0.0.9:6634"));
        let mut book = Book::new(&[]);
        assert!(book.discovered("a", found(&["a", "bb"])));
        book.looked_up(resolved("127.0.0.2:6634", &["127.0.0.2:6634"]), reach);
        assert_eq!(book.targets(), [(socket("127.0.0.2:6634"), Some("bb".into()))]);
        assert!(!book.discovered("a", found(&["bb"])));
        assert!(book.discovered("a", found(&["ccc"])));
        assert!(book.targets().is_empty());
        assert_eq!(book.questions().len(), 1);
    }

    #[tokio::test]
    async fn localhost_is_found_and_nonsense_is_an_error() {
        let questions = |text: &str| vec![(text.into(), address(text))];
        let found = look_up(questions("localhost:6634")).await;
        assert!(
            found[0].1.as_ref().is_ok_and(|found| found.iter().all(|one| one.ip().is_loopback()))
        );
        let found = look_up(questions("no-such-host.invalid:6634")).await;
        let error = found[0].1.as_ref().expect_err("is not there");
        assert!(error.contains("no-such-host.invalid"), "{error}");
    }
}
