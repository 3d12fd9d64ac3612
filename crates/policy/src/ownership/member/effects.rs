//! What a node is told, and what it wants done.

use super::super::guards::Guards;
use super::super::protocol::{Key, Reply, Request, Token};
use super::super::timing::Timing;
use crate::{Reason, Time};
use std::sync::Arc;
use std::time::Duration;

/// Who a node is and how it behaves.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// The spans that ownership rests on.
    pub timing: Timing,
    /// The node's stable name.
    pub name: Arc<str>,
    /// This start of its program; no two are the same.
    pub instance: Arc<str>,
    /// How much work it takes beside the others.
    pub weight: u32,
    /// What it tells the others about itself.
    pub info: Arc<str>,
    /// The highest epoch under which anything was kept, if that is known: a table that knows less
    /// has lost something, also if every node that knew more is gone.
    pub epoch: u64,
    /// How far a node's load may be from its share: 0.05 is a twentieth.
    pub tolerance: f64,
    /// How much of what it has a node gives away voluntarily in a second.
    pub moves_per_second: f64,
    /// How long a key that was given away voluntarily stays where it is.
    pub cooldown: Duration,
    /// All of them, but for showing what each is good for.
    pub guards: Guards,
}

impl MemberOptions {
    /// A node with this name and the defaults.
    pub fn new(name: &str, instance: &str) -> Self {
        MemberOptions {
            timing: Timing::default(),
            name: name.into(),
            instance: instance.into(),
            weight: 1,
            info: "{}".into(),
            epoch: 0,
            tolerance: 0.05,
            moves_per_second: 0.05,
            cooldown: Duration::from_secs(60),
            guards: Guards::default(),
        }
    }
}

/// A key that somebody should own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// How much work it is beside the others.
    pub weight: u32,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The time asked for has come.
    Wake,
    /// Somebody says that the table has changed.
    Hint,
    /// A request was answered, or will not be: then nobody knows whether it was carried out.
    Answered {
        /// Which request.
        id: u64,
        /// The answer.
        reply: Option<Reply>,
    },
    /// Which keys of a kind should be owned by somebody: changes since last time.
    Wanted {
        /// The kind, the keys' part before the slash.
        kind: String,
        /// Keys that are wanted, and keys that no longer are.
        changes: Vec<(Key, Option<Want>)>,
    },
    /// Work on a key has stopped as asked; the next would be due then.
    Stopped {
        /// The key.
        key: Key,
        /// What travels with the ownership.
        due: i64,
    },
    /// The node is to give everything away and leave.
    Leave,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send this and say what came back. Whoever sends it knows the time, and adds it.
    Send {
        /// To name it by.
        id: u64,
        /// The request.
        request: Request,
    },
    /// A key is ours: work on it may begin, each piece with a permit.
    Start(Grant),
    /// Finish work on a key, begin none, then say [`Event::Stopped`].
    Stop {
        /// The key.
        key: Key,
        /// Why.
        reason: Reason,
        /// Whether the node leaves, and has little time.
        leaving: bool,
    },
    /// A key is no longer ours: whatever is being done on it must end now.
    Lost {
        /// The key.
        key: Key,
        /// The grant that is over.
        token: Token,
        /// Why.
        reason: Reason,
    },
    /// Something worth a line in the log and a count.
    News(News),
    /// Another instance has the name and lives; the node cannot take part.
    NameTaken {
        /// Which one.
        instance: Arc<str>,
    },
    /// The node has left and will do nothing more.
    Left,
}

/// A key that is ours now.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The key.
    pub key: Key,
    /// What results are to be marked with.
    pub token: Token,
    /// What came with it: when the next work is due; zero if unknown.
    pub due: i64,
    /// Who had it before.
    pub from: Option<Arc<str>>,
    /// Why it is ours.
    pub reason: Reason,
    /// It was ours all along and work goes on, under a new token.
    pub resumed: bool,
}

/// Something that happened to a session or a key.
#[derive(Clone, Debug)]
pub struct News {
    /// What.
    pub kind: NewsKind,
    /// To which key.
    pub key: Option<Key>,
    /// Under which grant.
    pub token: Option<Token>,
    /// Whom it concerns beside this node.
    pub peer: Option<Arc<str>>,
    /// Why.
    pub reason: Reason,
}

impl News {
    pub(super) fn effect(kind: NewsKind, reason: Reason) -> Effect {
        Effect::News(News { kind, key: None, token: None, peer: None, reason })
    }

    pub(super) fn of_key(kind: NewsKind, key: &Key, token: Token, reason: Reason) -> Effect {
        let (key, token) = (Some(key.clone()), Some(token));
        Effect::News(News { kind, key, token, peer: None, reason })
    }

    pub(super) fn of_peer(kind: NewsKind, peer: Arc<str>, reason: Reason) -> Effect {
        Effect::News(News { kind, key: None, token: None, peer: Some(peer), reason })
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewsKind {
    /// The node has a session.
    Joined,
    /// A key that nobody had is ours.
    Acquired,
    /// A key of a node that is gone is ours.
    TakenOver,
    /// A key was given to us.
    Received,
    /// The session was renewed.
    Renewed,
    /// A renewal was not answered in time.
    RenewFailed,
    /// A key was given up: nobody wants it any more.
    Released,
    /// A key was given to another node.
    HandedOff,
    /// A key is lost, because our trust or session ran out.
    Expired,
    /// Another node was silent too long and has been removed.
    PeerExpired,
    /// Somebody newer has what we thought to be ours.
    Fenced,
    /// The table lost something and started a new life.
    EpochChanged,
    /// The node has left.
    Left,
}

impl NewsKind {
    /// All of them.
    pub const ALL: [NewsKind; 13] = [
        NewsKind::Joined,
        NewsKind::Acquired,
        NewsKind::TakenOver,
        NewsKind::Received,
        NewsKind::Renewed,
        NewsKind::RenewFailed,
        NewsKind::Released,
        NewsKind::HandedOff,
        NewsKind::Expired,
        NewsKind::PeerExpired,
        NewsKind::Fenced,
        NewsKind::EpochChanged,
        NewsKind::Left,
    ];

    /// As it is written in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            NewsKind::Joined => "joined",
            NewsKind::Acquired => "acquired",
            NewsKind::TakenOver => "taken_over",
            NewsKind::Received => "received",
            NewsKind::Renewed => "renewed",
            NewsKind::RenewFailed => "renew_failed",
            NewsKind::Released => "released",
            NewsKind::HandedOff => "handed_off",
            NewsKind::Expired => "expired",
            NewsKind::PeerExpired => "peer_expired",
            NewsKind::Fenced => "fenced",
            NewsKind::EpochChanged => "epoch_changed",
            NewsKind::Left => "left",
        }
    }
}

/// Leave to do one piece of work. Not to be kept: it is worth only its own time.
#[derive(Debug)]
pub struct Permit {
    /// What the result is to be marked with.
    pub token: Token,
    /// When the work must be over.
    pub end_by: Time,
}

/// Why work may not be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key belongs to somebody else or nobody.
    NotOurs,
    /// The key is being given away.
    Stopping,
    /// The work might not be over before the node's trust in its session ends.
    TrustEnds,
}
