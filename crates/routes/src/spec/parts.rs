//! The parts of a route, each with its defaults.

use super::{place, units};
use serde::{Serialize, Serializer};
use skep_policy::routes::retry::Methods;
use std::time::Duration;

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Upstream {
    /// Host and port; a name is in lower case, an IPv6 address in brackets.
    pub address: String,
    /// How much it takes, compared to the others.
    pub weight: u32,
}

impl Upstream {
    /// An upstream like any other.
    pub fn new(address: &str) -> Self {
        Upstream { address: place::normal_address(address), weight: 1 }
    }

    /// Host and port of the address, the host without brackets; nothing if it is none.
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        place::split_address(&self.address)
    }
}

/// Which `Host` an upstream sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The client's.
    #[default]
    Keep,
    /// The upstream's address.
    Upstream,
    /// This one.
    Literal(String),
}

impl HostHeader {
    pub(super) fn read(text: &str) -> Self {
        match text {
            "keep" => HostHeader::Keep,
            "upstream" => HostHeader::Upstream,
            literal => HostHeader::Literal(literal.to_owned()),
        }
    }
}

impl Serialize for HostHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            HostHeader::Keep => "keep",
            HostHeader::Upstream => "upstream",
            HostHeader::Literal(literal) => literal,
        })
    }
}

/// What clients get while the service behind a route is down on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Maintenance {
    /// Whether that is now.
    pub enabled: bool,
    /// The status of the answer.
    pub status: u16,
    /// The page.
    pub body: String,
    /// What kind of page it is.
    pub content_type: String,
    /// When clients are told to come again; zero to tell them nothing.
    #[serde(serialize_with = "units::span")]
    pub retry_after: Duration,
}

impl Default for Maintenance {
    fn default() -> Self {
        Maintenance {
            enabled: false,
            status: 503,
            body: "<h1>Down for maintenance</h1>\n".to_owned(),
            content_type: "text/html; charset=utf-8".to_owned(),
            retry_after: Duration::from_secs(60),
        }
    }
}

/// How long things may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    /// Until an upstream has accepted the connection.
    #[serde(serialize_with = "units::span")]
    pub connect: Duration,
    /// From the end of the request to the head of the answer.
    #[serde(serialize_with = "units::span")]
    pub head: Duration,
    /// Until a side takes more of what is sent to it.
    #[serde(serialize_with = "units::span")]
    pub send: Duration,
    /// Between two pieces of a body, and how long a connection is kept without a request.
    #[serde(serialize_with = "units::span")]
    pub idle: Duration,
    /// Without a byte in either direction, once a connection was upgraded.
    #[serde(serialize_with = "units::span")]
    pub tunnel: Duration,
    /// A request as a whole; zero for no limit.
    #[serde(serialize_with = "units::span")]
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            // The system asks again for a connection after one second and after three.
            connect: Duration::from_secs(4),
            head: Duration::from_secs(30),
            send: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            tunnel: Duration::from_secs(3_600),
            total: Duration::ZERO,
        }
    }
}

/// Which requests may be sent again although an upstream may have seen them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetryMethods {
    /// None.
    Never,
    /// Those that change nothing.
    #[default]
    Safe,
    /// Those that may be done twice, too.
    Idempotent,
}

impl RetryMethods {
    /// The same for the policy.
    pub(crate) fn rule(self) -> Methods {
        match self {
            RetryMethods::Never => Methods::Never,
            RetryMethods::Safe => Methods::Safe,
            RetryMethods::Idempotent => Methods::Idempotent,
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "never" => Some(RetryMethods::Never),
            "safe" => Some(RetryMethods::Safe),
            "idempotent" => Some(RetryMethods::Idempotent),
            _ => None,
        }
    }
}

/// Trying again with another upstream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Retry {
    /// How often, after the first time.
    pub tries: u32,
    /// Which requests.
    pub methods: RetryMethods,
    /// Retries may be so much of all requests.
    pub budget: f64,
    /// Answers that are as good as none.
    pub statuses: Vec<u16>,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { tries: 2, methods: RetryMethods::Safe, budget: 0.2, statuses: vec![502, 503, 504] }
    }
}

/// Statuses from one to another, written as `200-399`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    /// The lowest.
    pub low: u16,
    /// The highest.
    pub high: u16,
}

impl StatusRange {
    /// Whether this status is one of them.
    pub fn contains(self, status: u16) -> bool {
        (self.low..=self.high).contains(&status)
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let status = |text: &str| {
            let fine = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            if fine { text.parse::<u16>().ok() } else { None }
        };
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        Some(StatusRange { low: status(low.trim())?, high: status(high.trim())? })
    }

    pub(super) fn is_fine(self) -> bool {
        100 <= self.low && self.low <= self.high && self.high <= 599
    }
}

impl std::fmt::Display for StatusRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.low == self.high {
            true => write!(f, "{}", self.low),
            false => write!(f, "{}-{}", self.low, self.high),
        }
    }
}

impl Serialize for StatusRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Asking upstreams whether they are well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// What to ask for.
    pub path: String,
    /// From one question to the next.
    #[serde(serialize_with = "units::span")]
    pub every: Duration,
    /// How long an answer may take.
    #[serde(serialize_with = "units::span")]
    pub timeout: Duration,
    /// Good answers in a row that bring an upstream back.
    pub rise: u32,
    /// Bad answers in a row that take it out.
    pub fall: u32,
    /// What a good answer is.
    pub status: StatusRange,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            path: "/health".to_owned(),
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
            status: StatusRange { low: 200, high: 399 },
        }
    }
}

/// When an upstream that fails requests is left alone for a while.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breaker {
    /// After so many failures in a row,
    pub failures: u32,
    /// or when so much of what was asked
    pub ratio: f64,
    /// within this time failed.
    #[serde(serialize_with = "units::span")]
    pub window: Duration,
    /// For how long, the first time.
    #[serde(serialize_with = "units::span")]
    pub open: Duration,
    /// For how long at most, after it has failed again and again.
    #[serde(serialize_with = "units::span")]
    pub open_max: Duration,
    /// Requests that must succeed before it is trusted again.
    pub probes: u32,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker {
            failures: 5,
            ratio: 0.5,
            window: Duration::from_secs(10),
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            probes: 3,
        }
    }
}

/// What clients may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// The largest body of a request.
    #[serde(serialize_with = "units::size")]
    pub body_max: u64,
    /// How often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { body_max: 100 << 20, rate: None }
    }
}

/// How often a client may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// So many requests
    pub requests: u32,
    /// in this time,
    #[serde(serialize_with = "units::span")]
    pub per: Duration,
    /// and so many at once.
    pub burst: u32,
    /// What makes two requests come from one client.
    pub by: RateBy,
}

/// What makes two requests come from one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RateBy {
    /// The same address.
    #[default]
    Address,
    /// The same key of this installation's API.
    Key,
    /// The same value of this header.
    Header(String),
}

impl RateBy {
    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "address" => Some(RateBy::Address),
            "key" => Some(RateBy::Key),
            _ => Some(RateBy::Header(text.strip_prefix("header:")?.trim().to_ascii_lowercase())),
        }
    }
}

impl Serialize for RateBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RateBy::Address => serializer.serialize_str("address"),
            RateBy::Key => serializer.serialize_str("key"),
            RateBy::Header(name) => serializer.collect_str(&format_args!("header:{name}")),
        }
    }
}

/// What encrypts the connections of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tls {
    /// The file with the chain of certificates, PEM.
    pub certificate: String,
    /// The file with the private key, PEM.
    pub key: String,
    /// Whether plain requests are sent to https.
    pub redirect: bool,
}
