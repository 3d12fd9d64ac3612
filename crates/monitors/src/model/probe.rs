//! How a server is measured.

use super::read::Reader;
use super::{parse_span, write_span};
use hyper::Uri;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// Where a time server listens.
pub const NTP_PORT: u16 = 123;

const TARGET_BYTES_MAX: usize = 2_000;
const TIMEOUT_MS: u32 = 5_000;
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// How a server is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// It is asked for the time.
    Ntp,
    /// It is asked for a page.
    Http,
    /// A connection is made.
    Tcp,
}

impl ProbeKind {
    /// All of them.
    pub const ALL: [ProbeKind; 3] = [ProbeKind::Ntp, ProbeKind::Http, ProbeKind::Tcp];

    /// Its word in interfaces and databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProbeKind::Ntp => "ntp",
            ProbeKind::Http => "http",
            ProbeKind::Tcp => "tcp",
        }
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProbeKind {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        ProbeKind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or(())
    }
}

/// How, where and for how long a server is measured. As JSON it is what agents and interfaces see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What is asked.
    pub kind: ProbeKind,
    /// A host and a port, or a URL for `http`.
    pub target: String,
    /// How long a measurement may take.
    pub timeout_ms: u32,
    /// The status that a page must have; else 200 to 399 are good.
    #[serde(default)]
    pub expect_status: Option<u16>,
}

impl Probe {
    /// Reads the field `probe` of a server at this address.
    pub(super) fn read(server: &mut Reader<'_>, ip: Option<IpAddr>) -> Option<Probe> {
        let right = "give an object such as {\"kind\": \"ntp\"}";
        let Some(value) = server.get("probe") else {
            server.missing("probe", right);
            return None;
        };
        let Some(object) = value.as_object() else {
            server.refuse("probe", value, right);
            return None;
        };
        let mut reader = Reader::new(object, "probe.");
        reader.known(&["kind", "target", "timeout", "timeout_ms", "expect_status"]);
        let kind = reader.kind();
        let target = kind.and_then(|kind| reader.target(kind, ip));
        let timeout_ms = reader.timeout();
        let expect_status = reader.expect_status(kind);
        server.take_problems(reader);
        Some(Probe { kind: kind?, target: target?, timeout_ms, expect_status })
    }
}

impl Reader<'_> {
    fn kind(&mut self) -> Option<ProbeKind> {
        let right = "give ntp, http or tcp";
        let Some(value) = self.get("kind") else {
            self.missing("kind", right);
            return None;
        };
        let kind = value.as_str().and_then(|word| word.parse().ok());
        if kind.is_none() {
            self.refuse("kind", value, right);
        }
        kind
    }

    fn target(&mut self, kind: ProbeKind, ip: Option<IpAddr>) -> Option<String> {
        let right = match kind {
            ProbeKind::Ntp => "give a host, such as time.example or time.example:123",
            ProbeKind::Tcp => "give a host and a port, such as db.example:5432 or [::1]:5432",
            ProbeKind::Http => "give an address such as http://shop.example/health",
        };
        let Some(value) = self.get("target") else {
            return match (kind, ip) {
                (ProbeKind::Ntp, Some(ip)) => Some(SocketAddr::new(ip, NTP_PORT).to_string()),
                // What is wrong with the address is told there.
                (ProbeKind::Ntp, None) => None,
                _ => {
                    self.missing("target", right);
                    None
                }
            };
        };
        let text = value.as_str().filter(|text| text.len() <= TARGET_BYTES_MAX);
        let target = text.and_then(|text| match kind {
            ProbeKind::Ntp => with_port(text),
            ProbeKind::Tcp => split_address(text).map(|_| text.to_owned()),
            ProbeKind::Http => is_url(text).then(|| text.to_owned()),
        });
        if target.is_none() {
            self.refuse("target", value, right);
        }
        target
    }

    fn timeout(&mut self) -> u32 {
        // What is shown can be given back.
        let (field, value) = match (self.get("timeout"), self.get("timeout_ms")) {
            (Some(value), _) => ("timeout", value),
            (None, Some(value)) => ("timeout_ms", value),
            (None, None) => return TIMEOUT_MS,
        };
        let span = match (field, value) {
            ("timeout_ms", value) => value.as_u64().map(Duration::from_millis),
            (_, Value::String(text)) => parse_span(text),
            (_, Value::Number(number)) => parse_span(&format!("{number}s")),
            _ => None,
        };
        match span.filter(|span| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(span)) {
            Some(span) => span.as_millis() as u32,
            None => {
                let (low, high) = (write_span(TIMEOUT_MIN), write_span(TIMEOUT_MAX));
                let right = match field {
                    "timeout" => format!("give {low} to {high}"),
                    _ => "give 100 to 30000, or timeout such as \"5s\"".to_owned(),
                };
                self.refuse(field, value, right);
                TIMEOUT_MS
            }
        }
    }

    fn expect_status(&mut self, kind: Option<ProbeKind>) -> Option<u16> {
        let value = self.get("expect_status")?;
        if kind.is_some_and(|kind| kind != ProbeKind::Http) {
            self.refuse("expect_status", value, "leave it out, it is for kind http");
            return None;
        }
        let status = value.as_u64().filter(|status| (100..=599).contains(status));
        if status.is_none() {
            self.refuse("expect_status", value, "give a status from 100 to 599");
        }
        status.map(|status| status as u16)
    }
}

/// Host and port of an address; the host without brackets.
pub fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| digits && *port > 0)?;
    let inner = bare(host);
    let whole = inner.len() < host.len() || !host.contains(':');
    (whole && is_host(inner)).then_some((inner, port))
}

/// A time server with its port.
fn with_port(text: &str) -> Option<String> {
    if split_address(text).is_some() {
        return Some(text.to_owned());
    }
    let host = bare(text);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, NTP_PORT).to_string());
    }
    (host == text && is_host(host)).then(|| format!("{host}:{NTP_PORT}"))
}

fn is_url(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let web = matches!(uri.scheme_str(), Some("http" | "https"));
    let Some(authority) = uri.authority().map(|authority| authority.as_str()) else { return false };
    let port_fits = match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok_and(|port| port > 0),
        _ => true,
    };
    // A name and password would be shown to everybody who may look.
    web && port_fits && !authority.contains('@') && uri.host().is_some_and(|h| is_host(bare(h)))
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Whether this is an IP address or may be a name.
fn is_host(host: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let named = (1..=253).contains(&host.len()) && host.bytes().all(of_name);
    named || host.parse::<std::net::Ipv6Addr>().is_ok()
}
