//! The settings of the cluster: how nodes hear of each other and when a request goes to another.

use super::section::{Reader, section};
use super::value::{Secret, Value};
use super::{hours, ms};
use skep_policy::Name;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A list longer than this is a mistake.
const PEERS_MAX: usize = 256;
/// The longest name that a resolver takes.
const HOST_CHARS_MAX: usize = 253;

/// Where heartbeats are heard if nobody says.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6634);

section! {
    /// Several nodes as one.
    pub struct ClusterSettings in "cluster" {
        /// Whether requests go to the node where they are cheapest, once there are others.
        forwarding: bool = true;
        /// Whether pushes, acks and transactions go to a node with consumers of their queue too;
        /// otherwise they are done where they come in, and the other nodes are woken.
        forward_writes: bool = false;
        /// Address and port for heartbeats of the other nodes, over UDP; port 0 takes a free one,
        /// and so does 6634 on 127.0.0.1 if another node has it.
        /// Beyond this machine only with `cluster.secret`.
        listen: SocketAddr = LISTEN;
        /// Another port than the one in `cluster.listen`.
        port: Option<Port> = None;
        /// Name or address of this machine as the other nodes reach it; what it listens on if not
        /// set, or its hostname where it listens on all addresses.
        advertise: Option<Host> = None;
        /// The other nodes, `HOST:PORT` of their `cluster.listen`, separated by commas; the node
        /// itself may be among them. Those that share `coordination` need not be named.
        peers: Peers = Peers::default();
        /// What heartbeats and forwarded requests are signed with; the same on all nodes.
        /// `openssl rand -hex 32` makes one.
        secret: Option<Secret> = None;
        /// PEM file with the authorities that the certificates of other nodes must be from, where
        /// nodes speak TLS; a node with a certificate goes by the system's if not set.
        ca: Option<PathBuf> = None;
        /// Where this node is, as in `eu-1a`; between equals one of the same zone is taken.
        zone: Option<Name> = None;
        /// How often a node says how it is.
        heartbeat: Duration = ms(1_000), in ms(10)..=ms(60_000);
        /// A node that was not heard of for so long gets no requests; at least two heartbeats.
        dead_after: Duration = ms(5_000), in ms(20)..=hours(1);
        /// By how much the score of another node must be better for a request to go there.
        forward_threshold: f64 = 0.1, in 0.0..=1.0;
        /// How long a forwarded request may take; a pop that waits has its own wait beside it.
        forward_timeout: Duration = ms(5_000), in ms(10)..=hours(1);
        /// How long connecting to another node may take.
        connect_timeout: Duration = ms(1_000), in ms(1)..=hours(1);
        /// Requests at a time on their way to one node; more are done elsewhere.
        forwards_max: usize = 1_024, in 1..=100_000;
        /// A key that nobody asks for is forgotten after this time.
        affinity_ttl: Duration = ms(300_000), in ms(1_000)..=hours(24);
        /// From this score on a node's keys may migrate.
        affinity_migrate_threshold: f64 = 0.70, in 0.0..=1.0;
        /// From this score on a node's keys go at once, if another node is better.
        affinity_break_threshold: f64 = 0.90, in 0.0..=1.0;
        /// By how much the score of another node must be better for a key to migrate.
        affinity_migrate_min_improvement: f64 = 0.15, in 0.0..=1.0;
        /// A queue with more consumer groups than this has one key, not one for each group.
        queue_affinity_threshold: usize = 10, in 1..=100_000;
    }
}

impl ClusterSettings {
    /// Where heartbeats are heard.
    pub fn listen_address(&self) -> SocketAddr {
        let port = self.port.map_or(self.listen.port(), |port| port.0);
        SocketAddr::new(self.listen.ip(), port)
    }

    /// Whether heartbeats are heard where nobody has asked for it, so that another port will do.
    pub fn listens_anywhere(&self) -> bool {
        self.listen_address() == LISTEN
    }

    pub(super) fn check_together(&self, reader: &mut Reader) {
        let listen = self.listen_address();
        let is_local = listen.ip().to_canonical().is_loopback();
        if !is_local && self.secret.is_none() {
            let message = format!(
                "`cluster.listen` ({listen}) can be reached from other machines, and without \
                 `cluster.secret` anybody could steer requests; set a secret, the same on all \
                 nodes, or listen on 127.0.0.1"
            );
            reader.conflict("cluster.listen", message);
        }
        if let Some(peer) = self.peers.0.iter().find(|peer| is_local && peer.is_elsewhere()) {
            let message = format!(
                "`cluster.peers` names {}, which cannot be reached from `cluster.listen` \
                 ({listen}); listen on an address of this machine that the others reach, or on \
                 0.0.0.0:{}",
                peer.show(),
                listen.port()
            );
            reader.conflict("cluster.peers", message);
        }
        if self.dead_after < 2 * self.heartbeat {
            let message = format!(
                "`cluster.dead_after` ({}) must be at least twice `cluster.heartbeat` ({}), or one \
                 lost heartbeat would be a dead node",
                self.dead_after.show(),
                self.heartbeat.show()
            );
            reader.conflict("cluster.dead_after", message);
        }
        if self.connect_timeout > self.forward_timeout {
            let message = format!(
                "`cluster.connect_timeout` ({}) must not be above `cluster.forward_timeout` ({}), \
                 which includes it",
                self.connect_timeout.show(),
                self.forward_timeout.show()
            );
            reader.conflict("cluster.connect_timeout", message);
        }
        if self.affinity_migrate_threshold > self.affinity_break_threshold {
            let message = format!(
                "`cluster.affinity_migrate_threshold` ({}) must not be above \
                 `cluster.affinity_break_threshold` ({})",
                self.affinity_migrate_threshold, self.affinity_break_threshold
            );
            reader.conflict("cluster.affinity_migrate_threshold", message);
        }
    }
}

/// A port, also 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub u16);

impl Value for Port {
    fn expected() -> String {
        "a port, from 0 to 65535".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map(Port).map_err(|_| String::new())
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// A machine: a name for the resolver, or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// As it stands before a port.
    pub fn bracketed(&self) -> String {
        match self {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.show(),
        }
    }
}

impl Value for Host {
    fn expected() -> String {
        "a name or address such as node-1, 10.0.0.5 or 2001:db8::5".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Host::Address(address));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_number = text.chars().all(|c| c.is_ascii_digit() || c == '.');
        let is_name = (1..=HOST_CHARS_MAX).contains(&text.len()) && text.chars().all(fits);
        if !is_name || is_number || text.starts_with(['.', '-']) {
            return Err(format!("{text:?} is no name of a machine and no address"));
        }
        Ok(Host::Name(text.to_owned()))
    }

    fn show(&self) -> String {
        match self {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        }
    }
}

/// Where another node hears heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    pub host: Host,
    pub port: u16,
}

impl PeerAddress {
    /// `HOST:PORT`, as a resolver takes it.
    pub fn show(&self) -> String {
        format!("{}:{}", self.host.bracketed(), self.port)
    }

    /// It is certainly not on this machine: that of a name is not known yet.
    fn is_elsewhere(&self) -> bool {
        matches!(self.host, Host::Address(address) if !address.to_canonical().is_loopback())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let no_port = || format!("{text:?} has no port, as in node-2:6634");
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once("]:").ok_or_else(no_port)?;
                let address: Ipv6Addr =
                    host.parse().map_err(|_| format!("{host:?} is no IPv6 address"))?;
                (Host::Address(address.into()), port)
            }
            None => {
                let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
                if host.contains(':') {
                    let right = "an IPv6 address stands in brackets, as in [2001:db8::5]:6634";
                    return Err(format!("{text:?}: {right}"));
                }
                (Host::parse(host)?, port)
            }
        };
        match port.parse() {
            Ok(port) if port > 0 => Ok(PeerAddress { host, port }),
            _ => Err(format!("{text:?}: {port:?} is no port")),
        }
    }
}

/// The other nodes, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers(pub Vec<PeerAddress>);

impl Value for Peers {
    fn expected() -> String {
        format!("HOST:PORT, separated by commas, at most {PEERS_MAX}")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut peers = Vec::new();
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let peer = PeerAddress::parse(one)?;
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        match peers.len() {
            0..=PEERS_MAX => Ok(Peers(peers)),
            count => Err(format!("they are {count}")),
        }
    }

    fn show(&self) -> String {
        self.0.iter().map(PeerAddress::show).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Invalid, Layers, Loaded, Settings, resolve};

    const SECRET: &str = "correct horse battery";

    fn from_environment(pairs: &[(&str, &str)]) -> Result<Loaded, Invalid> {
        let mut layers = Layers::default();
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        layers.add_environment(pairs, &Settings::keys());
        resolve(layers)
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let cluster = resolve(Layers::default()).expect("is valid").settings.cluster;
        assert!(cluster.forwarding && !cluster.forward_writes);
        assert_eq!(cluster.listen_address().to_string(), "127.0.0.1:6634");
        assert_eq!((cluster.peers.0.len(), cluster.secret, cluster.zone), (0, None, None));
        assert_eq!((cluster.heartbeat, cluster.dead_after), (ms(1_000), ms(5_000)));
        assert_eq!((cluster.connect_timeout, cluster.forward_timeout), (ms(1_000), ms(5_000)));
        assert_eq!(cluster.affinity_ttl, ms(300_000));
        assert_eq!(
            [
                cluster.forward_threshold,
                cluster.affinity_migrate_threshold,
                cluster.affinity_break_threshold,
                cluster.affinity_migrate_min_improvement,
            ],
            [0.1, 0.70, 0.90, 0.15]
        );
        assert_eq!(cluster.queue_affinity_threshold, 10);
    }

    #[test]
    fn every_name_that_clusters_have_elsewhere_is_understood() {
        let loaded = from_environment(&[
            ("QUEEN_COORDINATOR_ENABLED", "false"),
            ("QUEEN_COORDINATOR_FORWARD_THRESHOLD", "0.2"),
            ("QUEEN_COORDINATOR_TIMEOUT_MS", "4000"),
            ("QUEEN_AFFINITY_TTL_MS", "60000"),
            ("QUEEN_AFFINITY_MIGRATE_THRESHOLD", "0.6"),
            ("QUEEN_AFFINITY_BREAK_THRESHOLD", "0.8"),
            ("QUEEN_AFFINITY_MIGRATE_MIN_IMPROVEMENT", "0.25"),
            ("QUEEN_QUEUE_AFFINITY_THRESHOLD", "20"),
            ("QUEEN_UDP_PEERS", "queen-1:6634, [2001:db8::5]:6634 ,queen-1:6634"),
            ("QUEEN_UDP_NOTIFY_PORT", "6633"),
            ("QUEEN_SYNC_SECRET", SECRET),
            ("QUEEN_SYNC_HEARTBEAT_MS", "500"),
            ("QUEEN_SYNC_DEAD_THRESHOLD_MS", "2000"),
            ("SKEP_CLUSTER__LISTEN", "0.0.0.0:7000"),
        ])
        .expect("is valid");
        assert_eq!(loaded.warnings, []);
        let cluster = &loaded.settings.cluster;
        assert!(!cluster.forwarding);
        assert_eq!(cluster.listen_address().to_string(), "0.0.0.0:6633");
        assert_eq!(cluster.peers.show(), "queen-1:6634,[2001:db8::5]:6634");
        assert_eq!(cluster.secret, Some(Secret(SECRET.to_owned())));
        assert_eq!((cluster.heartbeat, cluster.dead_after), (ms(500), ms(2_000)));
        assert_eq!((cluster.forward_timeout, cluster.affinity_ttl), (ms(4_000), ms(60_000)));
        assert_eq!(
            [
                cluster.forward_threshold,
                cluster.affinity_migrate_threshold,
                cluster.affinity_break_threshold,
                cluster.affinity_migrate_min_improvement,
            ],
            [0.2, 0.6, 0.8, 0.25]
        );
        assert_eq!(cluster.queue_affinity_threshold, 20);
        let shown = format!("{:?} {:?}", loaded.settings.cluster, loaded.settings.effective);
        assert!(shown.contains("(set)") && !shown.contains(SECRET), "{shown}");
    }

    #[test]
    fn what_no_cluster_can_have_is_named_with_what_it_could() {
        for (name, value, expected) in [
            ("SKEP_CLUSTER__LISTEN", "0.0.0.0:6634", "without `cluster.secret` anybody"),
            ("SKEP_CLUSTER__LISTEN", "[::]:6634", "without `cluster.secret` anybody"),
            ("SKEP_CLUSTER__LISTEN", "10.0.0.5:6634", "without `cluster.secret` anybody"),
            ("SKEP_CLUSTER__LISTEN", "6634", "an address and port such as"),
            ("QUEEN_UDP_NOTIFY_PORT", "66340", "a port, from 0 to 65535"),
            ("QUEEN_SYNC_SECRET", "fifteen letters", "at least 16 characters"),
            ("QUEEN_UDP_PEERS", "queen-1", "\"queen-1\" has no port"),
            ("QUEEN_UDP_PEERS", "a:1,queen-1:0", "\"0\" is no port"),
            ("QUEEN_UDP_PEERS", "queen-1:http", "\"http\" is no port"),
            ("QUEEN_UDP_PEERS", "http://queen-1:6634", "stands in brackets"),
            ("QUEEN_UDP_PEERS", "2001:db8::5:6634", "stands in brackets"),
            ("QUEEN_UDP_PEERS", "[queen-1]:6634", "is no IPv6 address"),
            ("QUEEN_UDP_PEERS", "que en:6634", "no name of a machine"),
            ("QUEEN_UDP_PEERS", "300.0.0.1:6634", "no name of a machine"),
            ("QUEEN_UDP_PEERS", ":6634", "no name of a machine"),
            ("QUEEN_UDP_PEERS", "10.0.0.5:6634", "cannot be reached from `cluster.listen`"),
            ("SKEP_CLUSTER__ADVERTISE", "node 1", "a name or address such as"),
            ("SKEP_CLUSTER__ZONE", "eu/1", "a name of letters"),
            ("QUEEN_COORDINATOR_ENABLED", "maybe", "true or false"),
            ("QUEEN_COORDINATOR_FORWARD_THRESHOLD", "1.1", "from 0 to 1"),
            ("QUEEN_AFFINITY_MIGRATE_THRESHOLD", "-0.1", "from 0 to 1"),
            ("QUEEN_AFFINITY_MIGRATE_THRESHOLD", "NaN", "from 0 to 1"),
            ("QUEEN_AFFINITY_BREAK_THRESHOLD", "90", "from 0 to 1"),
            ("QUEEN_AFFINITY_BREAK_THRESHOLD", "0.6", "must not be above"),
            ("QUEEN_AFFINITY_MIGRATE_MIN_IMPROVEMENT", "2", "from 0 to 1"),
            ("QUEEN_SYNC_DEAD_THRESHOLD_MS", "1999", "at least twice `cluster.heartbeat` (1s)"),
            ("QUEEN_SYNC_HEARTBEAT_MS", "0", "from 10ms"),
            ("QUEEN_COORDINATOR_TIMEOUT_MS", "900", "which includes it"),
            ("SKEP_CLUSTER__FORWARDS_MAX", "0", "from 1 to"),
        ] {
            let problems = from_environment(&[(name, value)]).expect_err(name).to_string();
            assert!(problems.contains(expected), "{name}={value}: {problems}");
            assert!(!problems.contains("fifteen letters"), "{problems}");
        }
    }

    #[test]
    fn a_secret_lets_a_node_listen_beyond_this_machine_and_loopback_needs_none() {
        let secret = ("QUEEN_SYNC_SECRET", SECRET);
        for listen in ["0.0.0.0:6634", "[::]:6634", "10.0.0.5:0"] {
            let listen = ("SKEP_CLUSTER__LISTEN", listen);
            let peers = ("QUEEN_UDP_PEERS", "10.0.0.6:6634");
            from_environment(&[listen, secret, peers]).expect("is valid");
        }
        for listen in ["127.0.0.2:6634", "[::1]:6634", "[::ffff:127.0.0.1]:6634"] {
            let peers = ("QUEEN_UDP_PEERS", "127.0.0.1:6634,[::1]:6635,queen-1:6634");
            from_environment(&[("SKEP_CLUSTER__LISTEN", listen), peers]).expect("is valid");
        }
    }

    #[test]
    fn a_list_of_too_many_peers_is_refused() {
        let peers = |count: usize| {
            (0..count).map(|one| format!("node-{one}:6634")).collect::<Vec<_>>().join(",")
        };
        assert_eq!(Peers::parse(&peers(PEERS_MAX)).map(|peers| peers.0.len()), Ok(PEERS_MAX));
        assert_eq!(Peers::parse(&peers(PEERS_MAX + 1)), Err("they are 257".to_owned()));
    }
}
