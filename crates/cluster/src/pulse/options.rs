//! What the pulse of a node is told at its start.

use crate::addresses::{Address, PEERS_MAX};
use crate::presence::PresenceOptions;
use crate::secret::Secret;
use crate::wire::{ADDRESS_MAX, PROGRAM_MAX, URL_MAX, ZONE_MAX};
use skep_policy::Name;
use std::net::SocketAddr;
use std::time::Duration;

/// How a node talks to the others.
#[derive(Clone, Debug)]
pub struct PulseOptions {
    /// The name of this node.
    pub name: String,
    /// Where it hears datagrams.
    pub listen: SocketAddr,
    /// What signs them; without it only loopback is allowed.
    pub secret: Option<Secret>,
    /// Which cluster it is: the id of the installation. Datagrams of others are refused.
    pub realm: String,
    /// Other nodes, from a list; this one may be among them.
    pub peers: Vec<Address>,
    /// Where this node's API is, `http://host:port` or `https://host:port`, as others reach it.
    pub api: String,
    /// Where others reach its datagrams, `host:port`, for people to see. None tells `listen`.
    pub udp: Option<String>,
    /// The zone it stands in; may be empty.
    pub zone: String,
    /// The version of the program.
    pub program: String,
    /// How often it says that it lives.
    pub heartbeat: Duration,
    /// A node that was not heard for so long is dead.
    pub dead_after: Duration,
    /// Other nodes that are remembered at most.
    pub members_max: usize,
    /// How often names are looked up again.
    pub look_up_every: Duration,
    /// How often all queues with consumers are told, whether somebody asks or not.
    pub pages_every: Duration,
    /// Limits of what is told about consumers.
    pub presence: PresenceOptions,
}

impl PulseOptions {
    /// The defaults for a node of this name that hears datagrams at this address.
    pub fn new(name: &str, listen: SocketAddr) -> Self {
        PulseOptions {
            name: name.to_owned(),
            listen,
            secret: None,
            realm: String::new(),
            peers: Vec::new(),
            api: String::new(),
            udp: None,
            zone: String::new(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            heartbeat: Duration::from_secs(1),
            dead_after: Duration::from_secs(5),
            members_max: 256,
            look_up_every: Duration::from_secs(30),
            pages_every: Duration::from_secs(10),
            presence: PresenceOptions::default(),
        }
    }
}

/// Why a node cannot talk to the others.
#[derive(Debug, thiserror::Error)]
pub enum PulseError {
    /// Anybody could steer its requests.
    #[error(
        "cluster.listen: {0} can be reached from other machines, and cluster.secret is not set, so \
         anybody could pose as a node; set the same cluster.secret on every node, or listen on \
         loopback, as in 127.0.0.1:6634"
    )]
    NeedsSecret(SocketAddr),
    /// An option that cannot be.
    #[error("{field}: {value:?} is not allowed; {right}")]
    Bad {
        /// The setting.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        right: String,
    },
    /// The system does not give the address.
    #[error(
        "cluster.listen: cannot hear datagrams at {listen}: {error}; is another node using it? \
         Give each its own port, as in --set cluster.listen=127.0.0.1:6635"
    )]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// What it said.
        error: std::io::Error,
    },
}

impl PulseOptions {
    pub(super) fn check(&self) -> Result<(), PulseError> {
        let bad = |field, value: &dyn ToString, right: &str| {
            let (value, right) = (value.to_string(), right.to_owned());
            Err(PulseError::Bad { field, value, right })
        };
        if self.secret.is_none() && !self.listen.ip().is_loopback() {
            return Err(PulseError::NeedsSecret(self.listen));
        }
        if let Err(error) = self.name.parse::<Name>() {
            return bad("node.name", &self.name, &error.to_string());
        }
        let millis = |span: Duration| span.as_millis();
        if !(10..=60_000).contains(&millis(self.heartbeat)) {
            return bad("cluster.heartbeat_ms", &millis(self.heartbeat), "give 10 to 60000");
        }
        if self.dead_after < 2 * self.heartbeat || millis(self.dead_after) > 600_000 {
            let least = millis(2 * self.heartbeat);
            let right = format!(
                "give at least {least}, twice cluster.heartbeat_ms, so that one lost datagram is \
                 not a death, and at most 600000"
            );
            return bad("cluster.dead_ms", &millis(self.dead_after), &right);
        }
        if self.peers.len() > PEERS_MAX {
            let right = format!("give at most {PEERS_MAX} addresses");
            return bad("cluster.peers", &self.peers.len(), &right);
        }
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_url = self.api.starts_with("http://") || self.api.starts_with("https://");
        let is_good = is_url && plain(&self.api) && self.api.len() <= URL_MAX;
        if !self.api.is_empty() && !is_good {
            let right = format!("give http://host:port, at most {URL_MAX} characters");
            return bad("cluster.api", &self.api, &right);
        }
        if let Some(udp) = &self.udp
            && (udp.len() > ADDRESS_MAX || udp.parse::<Address>().is_err())
        {
            return bad("cluster.udp", udp, "give host:port, as in node-2:6634");
        }
        for (field, text, max) in
            [("cluster.zone", &self.zone, ZONE_MAX), ("program", &self.program, PROGRAM_MAX)]
        {
            if text.len() > max || text.chars().any(char::is_control) {
                return bad(field, text, &format!("give at most {max} characters on one line"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(listen: &str) -> PulseOptions {
        PulseOptions::new("a", listen.parse().expect("is an address"))
    }

    #[test]
    fn without_a_secret_only_loopback_is_listened_on() {
        for listen in ["127.0.0.1:6634", "127.8.9.1:0", "[::1]:6634"] {
            assert!(options(listen).check().is_ok(), "{listen}");
        }
        for listen in ["0.0.0.0:6634", "[::]:6634", "192.0.2.1:6634", "[2001:db8::1]:6634"] {
            let error = options(listen).check().expect_err(listen).to_string();
            assert!(error.contains(listen) && error.contains("cluster.secret"), "{error}");
            let mut signed = options(listen);
            signed.secret = Some(Secret::new("0123456789abcdef").expect("is long enough"));
            assert!(signed.check().is_ok());
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_field_value_and_what_would_be_right() {
        type Spoil = fn(&mut PulseOptions);
        let cases: [(Spoil, &str, &str, &str); 7] = [
            (|it| it.name = "a b".into(), "node.name", "a b", "letters"),
            (|it| it.heartbeat = Duration::ZERO, "cluster.heartbeat_ms", "\"0\"", "10 to 60000"),
            (|it| it.dead_after = it.heartbeat, "cluster.dead_ms", "1000", "at least 2000"),
            (|it| it.api = "node-2:6632".into(), "cluster.api", "node-2:6632", "http://host:port"),
            (|it| it.udp = Some("node-2".into()), "cluster.udp", "node-2", "host:port"),
            (|it| it.zone = "z".repeat(65), "cluster.zone", "zzz", "at most 64"),
            (|it| it.program = "1\n2".into(), "program", "1\\n2", "one line"),
        ];
        for (spoil, field, value, right) in cases {
            let mut spoiled = options("127.0.0.1:6634");
            spoil(&mut spoiled);
            let error = spoiled.check().expect_err(field).to_string();
            let told = [field, value, right].iter().all(|part| error.contains(part));
            assert!(told, "{error}");
        }
    }
}
