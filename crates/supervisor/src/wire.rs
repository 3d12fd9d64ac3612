//! What a supervisor and a node say to each other.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Something to say to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// There is a program that takes sessions.
    Register(Register),
    /// It is still there; the answer is an order. The node holds the answer back until the order is
    /// another than the one that is known here.
    Heartbeat(Heartbeat),
    /// No new sessions, please.
    Drain,
    /// The worker is gone for good.
    Delete,
}

/// The part of a registration that changes from start to start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Register {
    /// Where the program takes sessions.
    pub url: String,
    /// Which start of the program it is; saying it twice registers once.
    pub start: Arc<str>,
    /// Sessions that this start has had, as far as is known here.
    pub lifetime: u64,
    /// Whether the node ordered this start.
    pub recycled: bool,
}

/// The part of a registration that is the same for every start.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slots: Option<u32>,
    pub(crate) labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    pub(crate) successor: bool,
}

/// A whole registration, as it is sent.
#[derive(Serialize)]
pub(crate) struct WholeRegister<'a> {
    #[serde(flatten)]
    pub(crate) identity: &'a Identity,
    #[serde(flatten)]
    pub(crate) register: &'a Register,
}

/// How the worker is doing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heartbeat {
    /// Under which number the node knows the start.
    pub incarnation: u64,
    /// Whether the program takes sessions.
    pub phase: Phase,
    /// Why the program should be started anew, if it should.
    pub due: Option<Due>,
    /// Memory of the program and everything it started.
    pub rss_bytes: u64,
    /// Processor time of the same, in percent of one processor.
    pub cpu_percent: f64,
    /// The order that is known here.
    pub order: Order,
    /// Whether the predecessor still runs.
    pub old: Old,
    /// How long the node may hold its answer back.
    pub wait_ms: u64,
}

/// Whether a program takes sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It does.
    Serving,
    /// It is being started anew, because the node said so.
    Restarting,
    /// It does not, and nobody wanted that.
    Down,
}

/// Why a program should be started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// It uses more memory than it may.
    Memory,
    /// It has run for longer than it may.
    Age,
}

/// What has become of the predecessor of the program that takes sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Old {
    /// There is none, or none any more.
    Gone,
    /// It still has sessions.
    Running,
}

/// What a node wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Nothing in particular.
    Serve,
    /// No sessions are on the program: start it anew.
    Restart,
    /// Start a second program beside the first, and register it.
    Succeed,
    /// The predecessor has no sessions any more: stop it.
    StopOld,
    /// An operator removed the worker.
    Leave,
}

/// A node's answer that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To [`Request::Register`].
    Registered(Registered),
    /// To [`Request::Heartbeat`].
    Ordered(Ordered),
    /// To the others.
    Done,
}

/// A start that a node knows now.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Registered {
    /// The node's name for the worker.
    pub worker: String,
    /// The number of this start.
    pub incarnation: u64,
    /// How often the node wants to hear of it.
    pub heartbeat_ms: u64,
    /// Sessions after which the node will order a new start; `None` for no such number.
    #[serde(default)]
    pub lifetime_max: Option<u64>,
    /// Sessions at a time.
    pub slots: u32,
}

/// What a node wants done, and what it knows of the worker's sessions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ordered {
    /// The order.
    pub order: Order,
    /// Sessions that this start has had.
    pub lifetime: u64,
    /// Sessions it has now.
    pub active: u64,
    /// Sessions its predecessor still has.
    pub leaving: u64,
}

/// Why there is no answer that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 404: the node knows no such worker.
    Forgotten(String),
    /// 409: another start has the name.
    Replaced(String),
    /// 401 or 403: the key may not do this.
    Denied(String),
    /// 400 or 422: what was said can never be right.
    Refused(String),
    /// Everything else: no answer, or one that makes no sense. Trying again may help.
    Failed(String),
}

impl Request {
    /// Whether `other` would tell the node nothing new. The load alone is no news.
    pub fn says_the_same(&self, other: &Request) -> bool {
        match (self, other) {
            (Request::Heartbeat(a), Request::Heartbeat(b)) => {
                let same_load =
                    Heartbeat { rss_bytes: b.rss_bytes, cpu_percent: b.cpu_percent, ..a.clone() };
                same_load == *b
            }
            _ => self == other,
        }
    }

    /// How long a node may hold its answer back.
    pub fn wait(&self) -> Duration {
        match self {
            Request::Heartbeat(heartbeat) => Duration::from_millis(heartbeat.wait_ms),
            _ => Duration::ZERO,
        }
    }
}

impl Registered {
    /// What makes no sense about it, if anything does not.
    pub(crate) fn nonsense(&self) -> Option<String> {
        if self.worker.is_empty() {
            return Some("worker is empty, it must be a name".to_owned());
        }
        if self.heartbeat_ms == 0 {
            return Some("heartbeat_ms is 0, it must be at least 1".to_owned());
        }
        (self.slots == 0).then(|| "slots is 0, it must be at least 1".to_owned())
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Serve => "serve",
            Order::Restart => "restart",
            Order::Succeed => "succeed",
            Order::StopOld => "stop_old",
            Order::Leave => "leave",
        })
    }
}

impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Due::Memory => "memory",
            Due::Age => "age",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_registration_is_written_as_nodes_read_it() {
        let identity = Identity {
            name: "w".to_owned(),
            kind: "chromium".to_owned(),
            slots: None,
            labels: vec!["gpu".to_owned()],
            version: Some("1.62.1".to_owned()),
            successor: false,
        };
        let url = "ws://127.0.0.1:1/".to_owned();
        let register = Register { url, start: "s".into(), lifetime: 3, recycled: true };
        let whole = WholeRegister { identity: &identity, register: &register };
        let expected = json!({
            "name": "w", "kind": "chromium", "url": "ws://127.0.0.1:1/", "labels": ["gpu"],
            "version": "1.62.1", "start": "s", "lifetime": 3, "recycled": true, "successor": false,
        });
        assert_eq!(json!(whole), expected);
    }

    #[test]
    fn a_heartbeat_is_written_as_nodes_read_it() {
        let heartbeat = Heartbeat {
            incarnation: 12,
            phase: Phase::Serving,
            due: Some(Due::Memory),
            rss_bytes: 7,
            cpu_percent: 1.5,
            order: Order::StopOld,
            old: Old::Running,
            wait_ms: 5_000,
        };
        let expected = json!({
            "incarnation": 12, "phase": "serving", "due": "memory", "rss_bytes": 7,
            "cpu_percent": 1.5, "order": "stop_old", "old": "running", "wait_ms": 5_000,
        });
        assert_eq!(json!(heartbeat), expected);
        let quiet = Heartbeat { rss_bytes: 8, ..heartbeat.clone() };
        assert!(Request::Heartbeat(heartbeat.clone()).says_the_same(&Request::Heartbeat(quiet)));
        let news = Heartbeat { due: None, ..heartbeat.clone() };
        assert!(!Request::Heartbeat(heartbeat).says_the_same(&Request::Heartbeat(news)));
    }
}
