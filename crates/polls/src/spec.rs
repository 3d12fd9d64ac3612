//! An endpoint to poll, as somebody wrote it, checked.

mod headers;
mod import;
mod read;
mod status;

pub use headers::Headers;
pub use import::import;
pub(crate) use read::{bare, split_address};
pub use skep_policy::problem::Problem;
pub use skep_policy::span::{parse_span, write_span};
pub use status::Statuses;

use serde::{Serialize, Serializer};
use serde_json::Value;
use skep_policy::ownership::Timing;
use skep_policy::secrets::{HIDDEN, hide_in_query};
use std::collections::BTreeMap;
use std::time::Duration;

/// An endpoint: what to ask, what the answer must be, how often and for how long.
///
/// It is made by [`Spec::parse`] and [`Spec::read_stored`] alone, so whoever has one need not check
/// it again. It serialises to the JSON it can be read from, with the defaults written out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spec {
    /// Its name, unique in an installation.
    pub id: String,
    /// What is asked.
    pub target: Target,
    /// From the start of one poll to the start of the next.
    pub interval: Duration,
    /// How long a poll may take as a whole. May be longer than the interval; a poll never overlaps
    /// itself.
    pub timeout: Duration,
    /// How much work it is, compared to others, for sharing endpoints out between nodes.
    pub weight: u32,
    /// What people sort it by.
    pub labels: BTreeMap<String, String>,
    /// Whether it is left alone for now.
    pub paused: bool,
    /// The queue that its results go to.
    pub publish_to: Option<String>,
}

/// What is asked, and what the answer must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A web server, with TLS or without.
    Http(Http),
    /// A port that must accept a connection.
    Tcp {
        /// Host and port.
        address: String,
    },
    /// A port that must finish a TLS handshake.
    Tls {
        /// Host and port.
        address: String,
        /// The name that the certificate must be for, if it is not the host.
        server_name: Option<String>,
        /// What the certificate must be.
        certificate: Certificate,
    },
}

/// A request and what its answer must be.
#[derive(Clone, PartialEq)]
pub struct Http {
    /// Where to.
    pub url: String,
    /// The method, in capitals.
    pub method: String,
    /// Headers to send.
    pub headers: Headers,
    /// The body to send.
    pub body: Option<String>,
    /// What the answer must be.
    pub expect: Expect,
    /// What the certificate must be; `Some` exactly if the url is https.
    pub certificate: Option<Certificate>,
}

impl std::fmt::Debug for Http {
    // A body may be a login, so it does not go into logs either.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http")
            .field("url", &hide_in_query(&self.url))
            .field("method", &self.method)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.as_ref().map(String::len))
            .field("expect", &self.expect)
            .field("certificate", &self.certificate)
            .finish()
    }
}

/// What an answer must be. Redirects are not followed: their status is what is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Its status is one of these.
    pub status: Statuses,
    /// Its first 64 KiB contain this.
    pub body: Option<String>,
}

/// What a certificate must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whether its chain must end at somebody trusted, and its name be right.
    pub verify: bool,
    /// How much longer it must be good; zero for no such demand.
    pub expires_in: Duration,
}

/// The kinds of endpoints, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A web server without TLS.
    Http,
    /// A web server with TLS.
    Https,
    /// A port that accepts connections.
    Tcp,
    /// A port that does TLS.
    Tls,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Http, Kind::Https, Kind::Tcp, Kind::Tls];

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Http => "http",
            Kind::Https => "https",
            Kind::Tcp => "tcp",
            Kind::Tls => "tls",
        }
    }
}

/// Why a stored endpoint cannot be read: the row is damaged, or from a version that knows more.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It is no JSON.
    #[error("a stored endpoint is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is not an endpoint.
    #[error("a stored endpoint is wrong: {}", first(.0))]
    Problems(Vec<Problem>),
}

fn first(problems: &[Problem]) -> String {
    problems.first().map(ToString::to_string).unwrap_or_default()
}

impl Spec {
    /// Reads an endpoint as a user wrote it.
    ///
    /// # Errors
    /// With everything that is wrong, at once.
    pub fn parse(value: &Value, limits: &Timing) -> Result<Spec, Vec<Problem>> {
        read::read(value, Some(limits))
    }

    /// Reads an endpoint from the database. The nodes' limits are not applied: it was within them
    /// when it was written, and the settings may have changed since. Fields that a later version
    /// added are passed over, so that nodes of two versions can share a database.
    ///
    /// # Errors
    /// If it is no endpoint.
    pub fn read_stored(text: &str) -> Result<Spec, StoredError> {
        read::read(&serde_json::from_str(text)?, None).map_err(StoredError::Problems)
    }

    /// The kind, which follows from the target.
    pub fn kind(&self) -> Kind {
        match &self.target {
            Target::Http(Http { certificate: None, .. }) => Kind::Http,
            Target::Http(_) => Kind::Https,
            Target::Tcp { .. } => Kind::Tcp,
            Target::Tls { .. } => Kind::Tls,
        }
    }

    /// The field that says where it is, what stands there, and the host in it.
    pub(crate) fn host(&self) -> (&'static str, &str, &str) {
        let (field, written) = match &self.target {
            Target::Http(http) => ("url", &http.url),
            Target::Tcp { address } | Target::Tls { address, .. } => ("address", address),
        };
        let authority = written.split_once("://").map_or(&**written, |(_, rest)| rest);
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        };
        (field, written, host)
    }

    /// The same with `***` for secret headers, for those who may change it.
    pub fn redacted(&self) -> Spec {
        let mut spec = self.clone();
        if let Target::Http(http) = &mut spec.target {
            http.headers = http.headers.redacted();
        }
        spec
    }

    /// The same for those who may only look: no secret values of the query either, and no body,
    /// of which nobody can tell what in it is a password.
    pub fn for_readers(&self) -> Spec {
        let mut spec = self.redacted();
        if let Target::Http(http) = &mut spec.target {
            http.url = hide_in_query(&http.url);
            http.body = http.body.as_ref().map(|_| HIDDEN.to_owned());
        }
        spec
    }
}

/// The JSON of an endpoint, in the order in which people write it.
#[derive(Serialize)]
struct Written<'a> {
    id: &'a str,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<WrittenExpect<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<bool>,
    interval: String,
    timeout: String,
    weight: u32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    publish_to: Option<&'a str>,
}

#[derive(Serialize)]
struct WrittenExpect<'a> {
    status: &'a Statuses,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut written = Written {
            id: &self.id,
            kind: self.kind(),
            url: None,
            address: None,
            method: None,
            headers: None,
            body: None,
            expect: None,
            server_name: None,
            expires_in: None,
            verify: None,
            interval: write_span(self.interval),
            timeout: write_span(self.timeout),
            weight: self.weight,
            labels: &self.labels,
            paused: self.paused,
            publish_to: self.publish_to.as_deref(),
        };
        let mut asked = None;
        match &self.target {
            Target::Http(http) => {
                written.url = Some(&http.url);
                written.method = Some(&http.method);
                written.headers = Some(http.headers.as_map()).filter(|map| !map.is_empty());
                written.body = http.body.as_deref();
                let body = http.expect.body.as_deref();
                written.expect = Some(WrittenExpect { status: &http.expect.status, body });
                asked = http.certificate;
            }
            Target::Tcp { address } => written.address = Some(address),
            Target::Tls { address, server_name, certificate } => {
                written.address = Some(address);
                written.server_name = server_name.as_deref();
                asked = Some(*certificate);
            }
        }
        if let Some(Certificate { verify, expires_in }) = asked {
            written.verify = Some(verify);
            written.expires_in = (!expires_in.is_zero()).then(|| write_span(expires_in));
        }
        written.serialize(serializer)
    }
}

#[cfg(test)]
mod tests;
