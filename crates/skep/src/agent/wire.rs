//! What an agent and a node say to each other.

use serde::{Deserialize, Serialize};

/// Results that a node takes in one request.
pub const BATCH_MAX: usize = 1_000;

/// What a monitor is to measure. Fields that a later version adds are passed over.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Assignments {
    /// The monitor whose key it is.
    pub monitor: String,
    /// How it stands in the whole network.
    #[serde(default)]
    pub status: String,
    pub servers: Vec<Assigned>,
    /// When to ask again.
    pub refresh_ms: u64,
}

/// A server to measure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Assigned {
    pub server: String,
    /// What the monitor is to this server.
    #[serde(default)]
    pub status: String,
    pub interval_ms: u64,
    pub probe: Asked,
}

/// How to measure it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Asked {
    /// A text, because a later node may know more kinds.
    pub kind: String,
    pub target: String,
    pub timeout_ms: u64,
    #[serde(default)]
    pub expect_status: Option<u16>,
}

/// One measurement. Server and time make it unique: a node that hears of it twice counts it once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub server: String,
    /// When it began, in milliseconds since 1970.
    pub at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A batch on its way to a node.
#[derive(Serialize)]
pub struct Report<'a> {
    /// Who measured: the program and its version.
    pub agent: &'static str,
    pub results: &'a [Measured],
}

/// What a node made of a batch.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Receipt {
    #[serde(default)]
    pub accepted: u64,
    /// Those it had already.
    #[serde(default)]
    pub known: u64,
    /// Those it will never take.
    #[serde(default)]
    pub refused: Vec<Refused>,
}

/// A result that a node will never take.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Refused {
    pub server: String,
    pub at: i64,
    pub reason: String,
}
