//! What nodes and the table say to each other.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// What can be owned: a kind and a name, as `poll/shop`.
pub type Key = Arc<str>;

/// Keys in one request at most, so that no request holds up the others.
pub const BATCH_MAX: usize = 200;

/// Rows in one answer at most; whoever is further behind asks again.
pub const PAGE_ROWS: usize = 500;

/// One life of the table. It ends when the table loses something it had said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// Grows with each life; zero is "none yet".
    pub number: u64,
    /// A random number that tells two lives apart that got the same number from two stores which
    /// did not know of each other; zero from a requester that remembers only the number.
    pub tag: u64,
}

/// What a grant is worth: the newer one wins, wherever results are kept.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Token {
    /// The table's life in which it was granted.
    pub epoch: u64,
    /// The table's counter at that moment.
    pub counter: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.counter)
    }
}

/// What a node does with work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It has come and looks around before it takes anything.
    Observing,
    /// It takes its share.
    Online,
    /// It gives away what it has and leaves.
    Draining,
}

impl Status {
    /// As it is written in stores and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Observing => "observing",
            Status::Online => "online",
            Status::Draining => "draining",
        }
    }

    /// The status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Status::Observing, Status::Online, Status::Draining]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// A node as the table knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its stable name, by which shares are computed.
    pub name: Arc<str>,
    /// One start of its program.
    pub instance: Arc<str>,
    /// Its session; rows name it as their owner.
    pub session: u64,
    /// Changes with each renewal and never comes again.
    pub seq: u64,
    /// How much work it takes beside the others.
    pub weight: u32,
    /// What it does with work.
    pub status: Status,
    /// What it tells the others about itself.
    pub info: Arc<str>,
}

/// A key's entry in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What is owned.
    pub key: Key,
    /// The owner's session; zero, or that of a node which is gone, means nobody.
    pub session: u64,
    /// When it last changed, on the table's counter: the second half of its token.
    pub counter: u64,
    /// What travels with the ownership: when the next work is due. Zero if unknown.
    pub due: i64,
}

/// The newest a requester knows of the table. A table that knows less has lost something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The life it knows.
    pub epoch: Epoch,
    /// The highest counter it was told in that life.
    pub counter: u64,
}

/// A question to the table, answered in one atomic step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What the requester knows.
    pub seen: Seen,
    /// A random number, the tag of the epoch that this request may have to start.
    pub nonce: u64,
    /// The number of an epoch that this request may have to start is at least this: the seconds of
    /// the requester's wall clock. Where all who knew the last number are gone, or a node that
    /// knows less speaks first, time is what keeps tokens growing. A request may be long on its
    /// way, so the store's clock counts too, unless this is zero. Nothing else depends on it.
    pub least: u64,
    /// What it wants.
    pub ask: Ask,
}

/// Who asks for a change: void unless this is the node's session and its newest number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The node.
    pub name: Arc<str>,
    /// Its session.
    pub session: u64,
    /// The sequence number of its last renewal.
    pub seq: u64,
}

/// What a node wants of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// A session.
    Join {
        /// The node's name; refused while another instance has it.
        name: Arc<str>,
        /// This start of the program.
        instance: Arc<str>,
        /// See [`NodeRow`].
        weight: u32,
        /// See [`NodeRow`].
        status: Status,
        /// See [`NodeRow`].
        info: Arc<str>,
    },
    /// To renew the session and hear what has changed.
    Tick {
        /// The node.
        name: Arc<str>,
        /// Its session; the sequence number does not matter, because the answer to the last renewal
        /// may have been lost.
        session: u64,
        /// See [`NodeRow`].
        weight: u32,
        /// See [`NodeRow`].
        status: Status,
        /// See [`NodeRow`].
        info: Arc<str>,
        /// The counter up to which it knows the rows.
        since: u64,
        /// The counter up to which it knows that rows have been forgotten.
        floor: u64,
    },
    /// Keys that nobody owns.
    Claim(Caller, Vec<Key>),
    /// Keys it held in an earlier epoch and still trusts itself to hold, with tokens and dues.
    Reclaim(Caller, Vec<(Key, Token, i64)>),
    /// To give keys to the sessions named, with dues. It has stopped working on them.
    Handoff(Caller, Vec<(Key, u64, i64)>),
    /// To give keys to nobody in particular, with dues. It has stopped working on them.
    Release(Caller, Vec<(Key, i64)>),
    /// To forget keys that are no longer wanted and that it owns, or nobody does.
    Forget(Caller, Vec<Key>),
    /// To remove a node that has been silent too long, if it still is.
    Expire {
        /// The session to remove.
        session: u64,
        /// The number that has not changed.
        seq: u64,
    },
    /// To say that the time has passed in which trust from before this epoch may live.
    EndGrace(Caller),
    /// To leave. It has stopped working on everything.
    Bye(Caller),
}

/// The table's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The table's present life.
    pub epoch: Epoch,
    /// Whether keys may be claimed: all trust from before this life has run out.
    pub settled: bool,
    /// The store's wall clock, for schedules; nothing about ownership depends on it.
    pub clock_ms: i64,
    /// What was done, or found.
    pub answer: Answer,
}

/// What the table did or found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The request spoke of another life of the table. Nothing was done.
    OtherEpoch,
    /// The requester has no such session. Nothing was done.
    NoSession,
    /// The number is not the present one: a request from before the last renewal. Nothing was done.
    Stale,
    /// The session.
    Joined {
        /// Its id.
        session: u64,
        /// Its first number.
        seq: u64,
    },
    /// Another instance has the name. Nothing was done.
    NameHeld {
        /// Its session.
        session: u64,
        /// Its present number.
        seq: u64,
        /// Which instance it is.
        instance: Arc<str>,
    },
    /// Renewed.
    Ticked(Ticked),
    /// The rows of the keys asked about, as they are now, in the order asked.
    Rows(Vec<Row>),
    /// Whether the node was removed.
    Expired(bool),
    /// Done.
    Done,
}

/// What a renewal brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticked {
    /// The new number.
    pub seq: u64,
    /// Every node, by name.
    pub nodes: Vec<NodeRow>,
    /// Rows changed since the counter asked about, oldest change first.
    pub rows: Vec<Row>,
    /// The counter up to which the rows are complete.
    pub upto: u64,
    /// Whether there are more rows after these.
    pub more: bool,
    /// Whether the requester must forget all rows it knows: these are from the beginning.
    pub full: bool,
    /// See [`Ask::Tick`].
    pub floor: u64,
    /// Whether there is no other node and can be none without this one hearing of it first.
    pub alone: bool,
}

/// Who should look at the table now, because a change concerns them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nobody.
    #[default]
    Nobody,
    /// Everybody.
    All,
    /// The nodes with these names.
    Nodes(Vec<Arc<str>>),
}
