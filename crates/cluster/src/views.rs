//! What a node tells about its cluster: the answers of the API, as command line and dashboard read
//! them too.
//!
//! Numbers that end in `_at_ms` are times, in milliseconds since 1970; other `_ms` and `_us` are
//! spans.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether requests go to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ClusterForwarding)]
pub enum Forwarding {
    /// They do, where that is better.
    On,
    /// Somebody has switched it off.
    Off,
    /// There is nobody to forward to.
    Alone,
}

impl Forwarding {
    /// As it is written in answers.
    pub fn name(self) -> &'static str {
        match self {
            Forwarding::On => "on",
            Forwarding::Off => "off",
            Forwarding::Alone => "alone",
        }
    }
}

/// Where pushes, acks and transactions are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ClusterWrites)]
pub enum Writes {
    /// Where they come in; other nodes are woken.
    Here,
    /// On a node that has consumers of the queue.
    Forwarded,
}

impl Writes {
    /// As it is written in answers.
    pub fn name(self) -> &'static str {
        match self {
            Writes::Here => "here",
            Writes::Forwarded => "forwarded",
        }
    }
}

/// Whether a node that failed gets requests again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = ClusterBreaker)]
pub enum Breaker {
    /// It gets them.
    Closed,
    /// It gets none for a while.
    Open,
    /// It gets one, to see what comes of it.
    HalfOpen,
}

impl Breaker {
    /// As it is written in answers.
    pub fn name(self) -> &'static str {
        match self {
            Breaker::Closed => "closed",
            Breaker::Open => "open",
            Breaker::HalfOpen => "half-open",
        }
    }
}

/// How evenly the nodes are loaded, and what each does.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterBalance)]
pub struct Balance {
    /// Whether no healthy node has much more to do than another.
    pub balanced: bool,
    /// How much more the busiest healthy node has to do than the least busy one: 0.15 is 15 %.
    pub imbalance_score: f64,
    /// The node that answers. Everything here is as this one sees it.
    pub here: String,
    pub forwarding: Forwarding,
    /// By name.
    pub servers: Vec<Server>,
    /// Who forwarded how much to whom, since each started; only pairs that did.
    pub flows: Vec<Flow>,
    pub moves: MoveTotals,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterServer)]
pub struct Server {
    pub server_id: String,
    /// What `skep explain` takes, to say why it gets requests of others or none.
    #[serde(default)]
    #[schema(example = "node:web-1")]
    pub explain: String,
    /// What would change that.
    #[serde(default)]
    pub would_change: String,
    /// Where the others reach its API.
    pub url: String,
    /// From 0, nothing to do, to 1, as busy as can be; smoothed.
    pub load_score: f64,
    /// It was heard of lately, its breaker is closed, and it does not drain.
    pub healthy: bool,
    /// It was heard of lately.
    pub alive: bool,
    /// It is the one that answers.
    pub here: bool,
    /// It finishes what it has and takes nothing new.
    pub draining: bool,
    /// Empty if it has none.
    pub zone: String,
    /// Requests that it works on.
    pub in_flight: u64,
    /// Pops that wait there for messages.
    pub polls: u64,
    /// In percent of the processors its process may use.
    pub cpu: f64,
    /// The score of its last heartbeat alone.
    pub raw_score: f64,
    /// What this node's breaker for it says; closed for the node itself.
    pub breaker: Breaker,
    /// In how long an open breaker lets a request through.
    pub breaker_reopens_ms: Option<u64>,
    /// Keys in this node's table that belong there.
    pub affinity_entries: u64,
    /// Requests that this node forwarded there.
    pub forwarded: u64,
    /// Requests that this node would have forwarded there and did elsewhere, because it failed.
    pub fell_back: u64,
    /// How much longer half of the forwarded requests took at most because of it.
    pub hop_p50_us: Option<u64>,
    /// The same for 99 in a hundred.
    pub hop_p99_us: Option<u64>,
    /// How long ago it was heard of; 0 for the node itself.
    pub last_seen_ms: u64,
    /// The version of Skep it runs.
    pub version: String,
}

/// Requests of one node that another did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterFlow)]
pub struct Flow {
    pub from: String,
    pub to: String,
    pub forwarded: u64,
}

/// How often keys have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterMoveTotals)]
pub struct MoveTotals {
    /// Off nodes that were busy.
    pub migrations: u64,
    /// Off nodes that were overloaded.
    pub breaks: u64,
    /// Both, in the last 60 seconds.
    pub last_minute: u64,
}

/// How this node takes part in its cluster.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterStatus)]
pub struct Status {
    /// The node that answers.
    pub here: String,
    pub forwarding: Forwarding,
    pub writes: Writes,
    /// Whether datagrams and hops are signed with a secret of this cluster.
    pub signed: bool,
    /// Where it hears heartbeats; nothing if it does not.
    pub udp: Option<String>,
    /// Whom it sends heartbeats to.
    pub peers: Vec<Peer>,
    pub heartbeats: Heartbeats,
    pub wakes: Wakes,
    /// Which nodes have consumers of which queues; the first 1000 queues by name.
    pub presence: Vec<QueuePresence>,
    /// How many queues have consumers.
    pub presence_total: u64,
    /// It finishes what it has and takes nothing new.
    pub draining: bool,
}

/// Somebody to send heartbeats to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterPeer)]
pub struct Peer {
    /// The node's name, once it is known.
    pub name: Option<String>,
    /// As it was written: host and port.
    pub address: String,
    pub origin: PeerOrigin,
    /// What the address means at the moment.
    pub resolved: Vec<String>,
    /// Why it means nothing, if it does not.
    pub error: Option<String>,
}

/// How a peer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ClusterPeerOrigin)]
pub enum PeerOrigin {
    /// `cluster.peers` names it.
    Listed,
    /// It is a node of the installation.
    Discovered,
}

impl PeerOrigin {
    /// As it is written in answers.
    pub fn name(self) -> &'static str {
        match self {
            PeerOrigin::Listed => "listed",
            PeerOrigin::Discovered => "discovered",
        }
    }
}

/// Heartbeats since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterHeartbeats)]
pub struct Heartbeats {
    pub sent: u64,
    /// Datagrams that the system did not send.
    pub unsent: u64,
    /// Those that were believed.
    pub received: u64,
    pub rejected: Rejected,
}

/// Datagrams that were not believed, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterRejected)]
pub struct Rejected {
    /// Signed with another secret, or with none.
    pub forged: u64,
    /// Seen before, or older than one that was.
    pub replayed: u64,
    /// Cut off, or never one of ours.
    pub malformed: u64,
    /// Of a version that this node does not speak.
    pub version: u64,
    /// Meant for a start of this node, or sent by a start of another, that is over.
    pub stale: u64,
    /// Of a node for which there is no more room in the table.
    pub crowded: u64,
}

/// Wake-ups of pops that wait, since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterWakes)]
pub struct Wakes {
    pub sent: u64,
    pub received: u64,
    /// Not sent, because too many waited to be; those pops look for themselves a little later.
    pub dropped: u64,
}

/// The nodes that have consumers of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterQueuePresence)]
pub struct QueuePresence {
    pub queue: String,
    pub nodes: Vec<String>,
}

/// What a request would be for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ClusterPurpose)]
pub enum Purpose {
    /// Getting messages: it goes to the owner of the key.
    #[default]
    Pop,
    /// Writing: it goes where consumers of the queue are, if writes are forwarded.
    Push,
}

impl Purpose {
    /// As it is written in answers.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Pop => "pop",
            Purpose::Push => "push",
        }
    }
}

/// A request that somebody asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainAsk {
    pub what: Asked,
    pub purpose: Purpose,
}

/// What it would name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A key as it stands in the table.
    Key(String),
    /// What a pop of a queue, or of one partition of it, names.
    Queue { queue: String, partition: Option<String>, group: String },
    /// What a pop of a namespace and task names.
    Task { namespace: String, task: String, group: String },
}

/// Where a request would go, and why.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterExplained)]
pub struct Explained {
    /// What decides: requests with the same key go to the same node.
    pub key: String,
    #[serde(rename = "for")]
    pub purpose: Purpose,
    /// The node it would go to.
    pub place: String,
    /// It is the node that answers.
    pub here: bool,
    /// The reason with its numbers.
    #[schema(value_type = Object)]
    pub reason: Value,
    /// The reason in words.
    pub text: String,
    /// What `skep explain` takes; nothing for writes, which it does not explain.
    #[schema(example = "key:orders:mail")]
    pub explain: Option<String>,
    /// What would make it come out otherwise.
    #[serde(default)]
    pub would_change: String,
}

/// Which keys belong to which nodes.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterAffinity)]
pub struct Affinity {
    /// The last used first.
    pub entries: Vec<AffinityEntry>,
    /// How many there are in this node's table.
    pub total: u64,
}

/// A key and its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterAffinityEntry)]
pub struct AffinityEntry {
    pub key: String,
    /// What `skep explain` takes; nothing where only the key's hash is known.
    #[schema(example = "key:orders:mail")]
    pub explain: Option<String>,
    pub node: String,
    /// It was moved there; otherwise its name alone decides.
    pub moved: bool,
    /// Requests with this key that this node has seen since the entry was made.
    pub requests: u64,
    pub assigned_at_ms: i64,
    /// How long ago this node saw the last one.
    pub last_used_ms: u64,
}

/// Keys that changed their node, the oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterMoves)]
pub struct Moves {
    pub moves: Vec<Move>,
    /// What to send as `after` to hear only of later ones: the newest number there is. It is below
    /// the `after` of somebody who has asked before the node started anew, and so leads them back.
    pub next: u64,
}

/// A key that changed its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterMove)]
pub struct Move {
    /// Grows; each node counts those that it heard of.
    pub seq: u64,
    /// What `skep explain` takes.
    #[serde(default)]
    #[schema(example = "move:web-1/7")]
    pub explain: String,
    /// What would bring the key elsewhere.
    #[serde(default)]
    pub would_change: String,
    pub at_ms: i64,
    /// Its name, or `#` and its hash if this node has never been asked for it.
    pub key: String,
    /// This and the numbers below are known to the node that decided it.
    pub from: Option<String>,
    pub to: String,
    pub kind: MoveKind,
    /// The score of the node it left.
    pub load: Option<f64>,
    /// The score of the node it came to.
    pub best: Option<f64>,
    /// The difference.
    pub improvement: Option<f64>,
    /// The node that decided it.
    pub by: String,
}

/// Why a key moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ClusterMoveKind)]
pub enum MoveKind {
    /// Its node was busy and another was better.
    Migrate,
    /// Its node was overloaded.
    Break,
}

impl MoveKind {
    /// As it is written in answers.
    pub fn name(self) -> &'static str {
        match self {
            MoveKind::Migrate => "migrate",
            MoveKind::Break => "break",
        }
    }
}

/// A node that was told to drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ClusterDraining)]
pub struct Draining {
    pub node: String,
    /// `draining`: it finishes what it has, and then it stops.
    pub state: String,
}

impl Draining {
    pub fn of(node: &str) -> Self {
        Draining { node: node.to_owned(), state: "draining".to_owned() }
    }
}

/// Why a node was not told to drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainRefused {
    /// There is no such node.
    Unknown { node: String, known: Vec<String> },
    /// No other node could take over.
    Last { node: String },
    /// It cannot be reached.
    Away { node: String, why: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_are_the_same_in_answers_and_for_people() {
        let words = |value: Value| value.as_str().expect("is a word").to_owned();
        for one in [Forwarding::On, Forwarding::Off, Forwarding::Alone] {
            assert_eq!(words(json!(one)), one.name());
        }
        for one in [Breaker::Closed, Breaker::Open, Breaker::HalfOpen] {
            assert_eq!(words(json!(one)), one.name());
        }
        for one in [Writes::Here, Writes::Forwarded] {
            assert_eq!(words(json!(one)), one.name());
        }
        for one in [Purpose::Pop, Purpose::Push] {
            assert_eq!(words(json!(one)), one.name());
        }
        for one in [MoveKind::Migrate, MoveKind::Break] {
            assert_eq!(words(json!(one)), one.name());
        }
        for one in [PeerOrigin::Listed, PeerOrigin::Discovered] {
            assert_eq!(words(json!(one)), one.name());
        }
    }

    #[test]
    fn an_explanation_says_for_what_it_is() {
        let explained = Explained {
            key: "orders:mail".to_owned(),
            purpose: Purpose::Push,
            place: "b".to_owned(),
            here: false,
            reason: json!({"why": "consumers"}),
            text: "b has consumers".to_owned(),
            explain: None,
            would_change: String::new(),
        };
        let json = json!(explained);
        assert_eq!((&json["for"], &json["place"]), (&json!("push"), &json!("b")));
        let back: Explained = serde_json::from_value(json).expect("reads back");
        assert_eq!(back.purpose, Purpose::Push);
    }
}
