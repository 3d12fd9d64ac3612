//! Accounts, monitors, servers and assignments as the API shows them. Times are milliseconds since
//! 1970.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skep_monitors::{Account, AssignmentRow, HistoryRow, Monitor, SampleRow, Server, Tally};
use skep_policy::explain::Kind;
use skep_policy::monitors::{GlobalStatus, Settings};
use std::collections::BTreeMap;

/// How many assignments have which status.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CountsView {
    pub candidate: u32,
    pub testing: u32,
    pub active: u32,
    pub paused: u32,
}

impl From<Tally> for CountsView {
    fn from(tally: Tally) -> Self {
        let Tally { candidate, testing, active, paused } = tally;
        CountsView { candidate, testing, active, paused }
    }
}

/// Somebody who runs monitors or servers.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct AccountView {
    pub id: String,
    /// What people call it.
    pub name: Option<String>,
    /// `monitor_limit`, `monitor_per_server_limit`, `monitor_enabled`, and what else was written.
    #[schema(value_type = Object)]
    pub flags: Value,
    /// Monitors it has.
    pub monitors: u32,
    /// Servers it has.
    pub servers: u32,
    pub created_at: i64,
    pub updated_at: i64,
}

impl AccountView {
    pub fn of(account: &Account) -> Self {
        AccountView {
            id: account.id.clone(),
            name: account.name.clone(),
            flags: json!(account.flags),
            monitors: account.monitors,
            servers: account.servers,
            created_at: account.created_at_ms,
            updated_at: account.updated_at_ms,
        }
    }
}

/// One that measures.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct MonitorView {
    pub id: String,
    /// Whose it is.
    pub account: Option<String>,
    /// Where it measures from.
    pub ip: String,
    /// `pending`, `testing`, `active`, `paused` or `deleted`.
    pub status: String,
    /// What it counts as: `paused` if its account is disabled.
    pub effective_status: String,
    pub labels: BTreeMap<String, String>,
    /// The id of the key it reports with.
    pub key_id: Option<String>,
    /// When it last reported.
    pub seen_at: Option<i64>,
    /// The version of its agent.
    pub agent: Option<String>,
    /// How many servers it is what to.
    pub assignments: CountsView,
    pub created_at: i64,
    pub updated_at: i64,
}

impl MonitorView {
    pub fn of(monitor: &Monitor, counts_as: GlobalStatus) -> Self {
        MonitorView {
            id: monitor.id.clone(),
            account: monitor.account.clone(),
            ip: monitor.ip.to_string(),
            status: monitor.status.to_string(),
            effective_status: counts_as.to_string(),
            labels: monitor.labels.clone(),
            key_id: monitor.key_id.clone(),
            seen_at: monitor.seen_at_ms,
            agent: monitor.agent.clone(),
            assignments: monitor.counts.into(),
            created_at: monitor.created_at_ms,
            updated_at: monitor.updated_at_ms,
        }
    }
}

/// How a server is measured.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProbeView {
    /// `ntp`, `http` or `tcp`.
    pub kind: String,
    /// `host:port`, or an address for `http`.
    pub target: String,
    pub timeout_ms: u32,
    /// The status that an answer over HTTP must have; 200 to 399 if nothing is said.
    pub expect_status: Option<u16>,
}

impl ProbeView {
    pub fn of(probe: &skep_monitors::Probe) -> Self {
        ProbeView {
            kind: probe.kind.as_str().to_owned(),
            target: probe.target.clone(),
            timeout_ms: probe.timeout_ms,
            expect_status: probe.expect_status,
        }
    }
}

/// How many monitors a server should have.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TargetsView {
    pub active: u32,
    pub testing: u32,
}

/// One that is watched.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServerView {
    pub id: String,
    /// What `skep explain` takes, to say which monitors watch it.
    #[schema(example = "server:ntp-1")]
    pub explain: String,
    /// Whose it is.
    pub account: Option<String>,
    pub ip: String,
    pub probe: ProbeView,
    /// Whether it is left alone for now.
    pub paused: bool,
    /// The median of its active monitors' scores; of those in testing too if none is active.
    pub score: Option<f64>,
    /// How many monitors are what to it.
    pub counts: CountsView,
    pub targets: TargetsView,
    /// Whether fewer are active than should be.
    pub below_target: bool,
    pub reviewed_at: Option<i64>,
    pub next_review_at: i64,
    /// The last review that changed something.
    pub changed_at: Option<i64>,
    pub created_at: i64,
    pub updated_at: i64,
}

impl ServerView {
    pub fn of(server: &Server, score: Option<f64>, settings: &Settings) -> Self {
        let active = server.counts.active;
        let targets = TargetsView {
            active: settings.target_active,
            testing: settings.testing_target(active),
        };
        ServerView {
            id: server.id.clone(),
            explain: Kind::Server.id(&server.id),
            account: server.account.clone(),
            ip: server.ip.to_string(),
            probe: ProbeView::of(&server.probe),
            paused: server.paused,
            score,
            counts: server.counts.into(),
            targets,
            below_target: !server.paused && active < settings.target_active,
            reviewed_at: server.review.last_at_ms,
            next_review_at: server.review.next_at_ms,
            changed_at: server.review.changed_at_ms,
            created_at: server.created_at_ms,
            updated_at: server.updated_at_ms,
        }
    }
}

/// A violation of an assignment.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ViolationView {
    /// `network`, `account`, `limit` or `diversity`.
    pub kind: String,
    pub since: Option<i64>,
    /// The monitor that causes it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// The account that causes it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub account: Option<String>,
}

/// What one monitor is to one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AssignmentView {
    pub server: String,
    pub monitor: String,
    /// What `skep explain` takes.
    #[schema(example = "monitor:ntp-1/ams-3")]
    pub explain: String,
    /// Whose monitor it is.
    pub account: Option<String>,
    /// `candidate`, `testing`, `active` or `paused`.
    pub status: String,
    pub since: i64,
    /// What remains of the steps of its samples: 20 is perfect.
    pub score: f64,
    pub violation: Option<ViolationView>,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    pub last_sample_at: Option<i64>,
    /// How it stands among the others; on a server's own page.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub standing: Option<StandingView>,
}

/// How a monitor stands among the others of a server.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StandingView {
    /// From 1, the best.
    pub rank: usize,
    /// `in`, `out`, `block` or `pending`.
    pub state: String,
    /// `healthy`, `unmeasured`, `unhealthy` or `silent`.
    pub health: String,
    pub healthy: bool,
    /// Lower is better.
    pub priority: i64,
    /// The mean step over the look-back.
    pub step: f64,
    /// The mean round trip.
    pub rtt_ms: f64,
    /// Samples within the look-back.
    pub count: u32,
    /// What it becomes at the next review, if nothing changes.
    pub becomes: String,
    /// Why it has its state.
    pub cause: String,
    /// Why it changes, or why it does not.
    pub reason: String,
    /// The nearest thing that would change the outcome.
    pub would_change: String,
}

impl AssignmentView {
    pub fn of(row: &AssignmentRow, server: &str, monitor: &str) -> Self {
        let violation = row.violation.map(|(kind, since)| ViolationView {
            kind: kind.as_str().to_owned(),
            since: Some(since),
            peer: None,
            account: None,
        });
        AssignmentView {
            server: server.to_owned(),
            monitor: monitor.to_owned(),
            explain: Kind::Monitor.id(format!("{server}/{monitor}")),
            account: None,
            status: row.status.to_string(),
            since: row.status_since_ms,
            score: row.score,
            violation,
            pause_reason: row.pause_reason.clone(),
            last_sample_at: row.last_sample_ms,
            standing: None,
        }
    }
}

/// One measurement.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct SampleView {
    pub monitor: String,
    pub at: i64,
    pub rtt_ms: Option<f64>,
    pub offset_ms: Option<f64>,
    /// What it is worth: 1 is perfect.
    pub step: f64,
    /// What was wrong; nothing for a good answer.
    pub error: Option<String>,
}

impl SampleView {
    pub fn of(row: &SampleRow, monitor: String) -> Self {
        let ms = |micros: i64| micros as f64 / 1_000.0;
        SampleView {
            monitor,
            at: row.at_ms,
            rtt_ms: row.rtt_us.map(ms),
            offset_ms: row.offset_us.map(ms),
            step: row.step,
            error: row.error.clone(),
        }
    }
}

/// A change of an assignment.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChangeView {
    pub id: i64,
    /// What `skep explain` takes.
    #[schema(example = "change:ntp-1/17")]
    pub explain: String,
    pub at: i64,
    pub server: String,
    pub monitor: String,
    pub from: String,
    pub to: String,
    /// The rule that made it.
    pub rule: String,
    pub reason: String,
}

impl ChangeView {
    pub fn of(row: &HistoryRow) -> Self {
        ChangeView {
            id: row.id,
            explain: Kind::Change.id(format!("{}/{}", row.server, row.id)),
            at: row.at_ms,
            server: row.server.clone(),
            monitor: row.monitor.clone(),
            from: row.from.to_string(),
            to: row.to.to_string(),
            rule: row.rule.clone(),
            reason: row.reason.clone(),
        }
    }
}
