//! What is known about a server and its monitors before anything is decided.

use super::score::Measured;
use crate::Time;
use crate::flaw::Flaw;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// Who: a number or a text, as whoever named it chose. Numbers come before texts, in their own
/// order, so that two nodes break a tie alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    /// A number.
    Number(u64),
    /// A text.
    Text(Arc<str>),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => write!(f, "{number}"),
            Id::Text(text) => f.write_str(text),
        }
    }
}

impl From<u64> for Id {
    fn from(number: u64) -> Self {
        Id::Number(number)
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Id::Text(text.into())
    }
}

/// What the network as a whole thinks of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GlobalStatus {
    /// Not approved: gradually phased out wherever it still works.
    Pending,
    /// Approved, and on trial everywhere.
    Testing,
    /// Fully approved.
    Active,
    /// Stopped for now, at once. A disabled account's monitors count as this.
    Paused,
    /// Gone.
    Deleted,
}

/// What a monitor is to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// May be chosen; measures seldom.
    #[serde(alias = "new")]
    Candidate,
    /// Measures, and is on trial for this server.
    Testing,
    /// Its results count.
    Active,
    /// Shut out until a re-check finds the cause gone.
    Paused,
}

impl GlobalStatus {
    /// All of them, in the order of a monitor's life.
    pub const ALL: [GlobalStatus; 5] = [
        GlobalStatus::Pending,
        GlobalStatus::Testing,
        GlobalStatus::Active,
        GlobalStatus::Paused,
        GlobalStatus::Deleted,
    ];

    /// Its word in interfaces and databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            GlobalStatus::Pending => "pending",
            GlobalStatus::Testing => "testing",
            GlobalStatus::Active => "active",
            GlobalStatus::Paused => "paused",
            GlobalStatus::Deleted => "deleted",
        }
    }

    /// Whether such a monitor may be put on trial for a server.
    pub const fn may_serve(self) -> bool {
        matches!(self, GlobalStatus::Testing | GlobalStatus::Active)
    }
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 4] =
        [Status::Candidate, Status::Testing, Status::Active, Status::Paused];

    /// Its word in interfaces and databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Candidate => "candidate",
            Status::Testing => "testing",
            Status::Active => "active",
            Status::Paused => "paused",
        }
    }

    /// Whether it counts for account limits and for the spread over networks.
    pub const fn in_service(self) -> bool {
        matches!(self, Status::Testing | Status::Active)
    }
}

impl fmt::Display for GlobalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for GlobalStatus {
    type Err = Flaw;

    fn from_str(word: &str) -> Result<Self, Flaw> {
        let right = "it must be pending, testing, active, paused or deleted";
        let found = GlobalStatus::ALL.into_iter().find(|status| status.as_str() == word);
        found.ok_or_else(|| Flaw::new("global_status", word, right))
    }
}

impl FromStr for Status {
    type Err = Flaw;

    /// `new`, which older data has, is a candidate.
    fn from_str(word: &str) -> Result<Self, Flaw> {
        let right = "it must be candidate, testing, active or paused";
        let found = Status::ALL.into_iter().find(|status| status.as_str() == word);
        found
            .or((word == "new").then_some(Status::Candidate))
            .ok_or_else(|| Flaw::new("server_status", word, right))
    }
}

/// A monitor, as all servers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    /// Who it is.
    pub id: Id,
    /// Whose it is. A monitor of nobody is under no account limit.
    pub account: Option<Id>,
    /// Where it measures from. Without an address no network check applies.
    pub ip: Option<IpAddr>,
    /// What the network as a whole thinks of it.
    pub global: GlobalStatus,
    /// How many monitors its account may have active on one server; else the settings say.
    pub per_server_limit: Option<u32>,
}

/// The server that is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Who it is.
    pub id: Id,
    /// Whose it is.
    pub account: Option<Id>,
    /// Where it is.
    pub ip: Option<IpAddr>,
}

/// What one monitor is to the server, and how it did there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assignment {
    /// Its place in the [`Roster`](super::Roster).
    pub monitor: u32,
    /// What it is to the server now.
    pub status: Status,
    /// How it did over the look-back.
    pub measured: Measured,
    /// The violation that the last review stored.
    pub violation: Option<Stored>,
    /// When a paused assignment was looked at last.
    pub last_check: Option<Time>,
    /// Whom it was about to replace at the last review.
    pub challenge: Option<Challenge>,
}

impl Assignment {
    /// An assignment nothing is remembered about.
    pub const fn new(monitor: u32, status: Status, measured: Measured) -> Self {
        let (violation, last_check, challenge) = (None, None, None);
        Assignment { monitor, status, measured, violation, last_check, challenge }
    }
}

/// A violation and since when it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// Of what.
    pub kind: Kind,
    /// Since when, without a break.
    pub since: Time,
}

/// A challenger that was better than an incumbent at so many reviews in a row. It is remembered
/// from one review to the next, because a single good day is no reason to replace anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Challenge {
    /// The incumbent's place in the roster.
    pub incumbent: u32,
    /// Reviews in a row, the last one included.
    pub reviews: u32,
}

/// Which constraint is violated. In the order in which they are looked at: what can never become
/// right comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Monitor and server are in one subnet.
    Network,
    /// Monitor and server are of one account.
    Account,
    /// The account has too many monitors on this server.
    Limit,
    /// A better monitor of the same network watches this server.
    Diversity,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Network, Kind::Account, Kind::Limit, Kind::Diversity];

    /// Its word in interfaces and databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Network => "network",
            Kind::Account => "account",
            Kind::Limit => "limit",
            Kind::Diversity => "diversity",
        }
    }

    /// Whether no change among the monitors of the server can make it right.
    pub const fn is_lasting(self) -> bool {
        matches!(self, Kind::Network | Kind::Account)
    }

    /// Whether an assignment that was made under other limits may leave gradually. All others that
    /// leave gradually do so because of what the others are, not because of what was allowed.
    pub const fn is_grandfathered(self) -> bool {
        matches!(self, Kind::Limit)
    }
}

impl FromStr for Kind {
    type Err = Flaw;

    fn from_str(word: &str) -> Result<Self, Flaw> {
        let right = "it must be network, account, limit or diversity";
        let found = Kind::ALL.into_iter().find(|kind| kind.as_str() == word);
        found.ok_or_else(|| Flaw::new("violation", word, right))
    }
}
