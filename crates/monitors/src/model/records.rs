//! What is kept. Times are milliseconds since 1970.

use super::Probe;
use serde::Serialize;
use serde_json::{Map, Value};
use skep_policy::monitors::{GlobalStatus, Kind, Status};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Somebody who runs monitors or servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its name in interfaces.
    pub id: String,
    /// Short for it. One that is created again gets another.
    pub number: i64,
    /// What people call it.
    pub name: Option<String>,
    /// What it may do.
    pub flags: Flags,
    /// Monitors it has, those that were deleted left out.
    pub monitors: u32,
    /// Servers it has.
    pub servers: u32,
    /// When it was created.
    pub created_at_ms: i64,
    /// When it was last changed.
    pub updated_at_ms: i64,
}

/// What an account may do. It serialises to the JSON it can be read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    /// So many monitors it may register; else as many as it likes.
    pub monitor_limit: Option<u32>,
    /// So many of its monitors may be active on one server; else the settings say.
    pub monitor_per_server_limit: Option<u32>,
    /// If not, it registers no more monitors, and those it has count as globally paused.
    pub monitor_enabled: bool,
    /// Flags of others, kept as they are.
    pub rest: Map<String, Value>,
}

impl Default for Flags {
    fn default() -> Self {
        let (monitor_limit, monitor_per_server_limit, rest) = (None, None, Map::new());
        Flags { monitor_limit, monitor_per_server_limit, monitor_enabled: true, rest }
    }
}

impl Serialize for Flags {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = self.rest.clone();
        let limits = [
            ("monitor_limit", self.monitor_limit),
            ("monitor_per_server_limit", self.monitor_per_server_limit),
        ];
        for (name, limit) in limits {
            if let Some(limit) = limit {
                all.insert(name.to_owned(), limit.into());
            }
        }
        all.insert("monitor_enabled".to_owned(), self.monitor_enabled.into());
        all.serialize(serializer)
    }
}

/// One that measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    /// Its name in interfaces.
    pub id: String,
    /// Short for it. One that is created again gets another.
    pub number: i64,
    /// Whose it is.
    pub account: Option<String>,
    /// Where it measures from.
    pub ip: IpAddr,
    /// What the network as a whole thinks of it.
    pub status: GlobalStatus,
    /// What people sort it by.
    pub labels: BTreeMap<String, String>,
    /// The key it reports with.
    pub key_id: Option<String>,
    /// Grows with every change of its assignments and of the servers they are for: what its agent
    /// has to know.
    pub index: i64,
    /// How many servers it is what to.
    pub counts: Tally,
    /// When it was created.
    pub created_at_ms: i64,
    /// When it was last changed.
    pub updated_at_ms: i64,
    /// When it last reported.
    pub seen_at_ms: Option<i64>,
    /// The version of its agent.
    pub agent: Option<String>,
}

/// One that is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name in interfaces.
    pub id: String,
    /// Short for it. One that is created again gets another.
    pub number: i64,
    /// Whose it is.
    pub account: Option<String>,
    /// Where it is.
    pub ip: IpAddr,
    /// How it is measured.
    pub probe: Probe,
    /// Whether it is left alone for now: neither measured nor reviewed.
    pub paused: bool,
    /// Grows with every change of the server and of the statuses of its monitors: a plan that was
    /// made under another index is old.
    pub index: i64,
    /// How many monitors are what to it.
    pub counts: Tally,
    /// When it was and will be reviewed.
    pub review: ReviewTimes,
    /// When it was created.
    pub created_at_ms: i64,
    /// When it was last changed.
    pub updated_at_ms: i64,
}

/// When a server was and will be reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReviewTimes {
    /// The last review.
    pub last_at_ms: Option<i64>,
    /// It is due from then on.
    pub next_at_ms: i64,
    /// The last review that changed something.
    pub changed_at_ms: Option<i64>,
}

/// How many assignments have which status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Candidates.
    pub candidate: u32,
    /// In testing.
    pub testing: u32,
    /// Active.
    pub active: u32,
    /// Paused.
    pub paused: u32,
}

/// What one monitor is to one server.
#[derive(Clone, Debug, PartialEq)]
pub struct AssignmentRow {
    /// The server's number.
    pub server: i64,
    /// The monitor's number.
    pub monitor: i64,
    /// What it is.
    pub status: Status,
    /// Since when.
    pub status_since_ms: i64,
    /// What remains of the steps of its samples.
    pub score: f64,
    /// The violation that the last review found, and since when it lasts.
    pub violation: Option<(Kind, i64)>,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    /// When a paused one was last looked at.
    pub last_check_ms: Option<i64>,
    /// The number of the monitor it is about to replace, and at how many reviews in a row.
    pub challenge: Option<(i64, u32)>,
    /// Its latest sample.
    pub last_sample_ms: Option<i64>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRow {
    /// The server's number.
    pub server: i64,
    /// The monitor's number.
    pub monitor: i64,
    /// When it was made. A monitor measures a server at most once in a millisecond.
    pub at_ms: i64,
    /// The round trip, where there was one.
    pub rtt_us: Option<i64>,
    /// By how much the server's clock is off, where it has one.
    pub offset_us: Option<i64>,
    /// What it is worth; kept to the millionth.
    pub step: f64,
    /// What was wrong; nothing for a good answer. Cut to 200 characters.
    pub error: Option<String>,
}

/// A change of an assignment, as it is remembered. It outlives the server and the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// Grows with time.
    pub id: i64,
    /// When.
    pub at_ms: i64,
    /// The server's id.
    pub server: String,
    /// The monitor's id.
    pub monitor: String,
    /// What it was.
    pub from: Status,
    /// What it became.
    pub to: Status,
    /// By which rule.
    pub rule: String,
    /// Why.
    pub reason: String,
}
