//! A route as somebody wrote it: what comes in for which host and path, and where it goes.
//!
//! ```
//! use serde_json::json;
//! use skep_routes::spec::RouteSpec;
//!
//! let shop = json!({ "name": "shop", "host": "Shop.example", "upstreams": ["10.0.0.1:8080"] });
//! let shop = RouteSpec::parse(&shop).unwrap();
//! assert_eq!((shop.host.as_str(), shop.path.as_str()), ("shop.example", "/"));
//!
//! let wrong = json!({ "name": "shop", "upstreams": ["10.0.0.1:8080", "https://10.0.0.2"] });
//! let flaws = RouteSpec::parse(&wrong).unwrap_err();
//! assert_eq!(flaws[0].field, "upstreams[1].address");
//! ```

mod check;
mod headers;
mod limits;
mod nearest;
mod parts;
mod place;
mod read;
mod units;

pub use headers::{HeaderEdits, HeaderRules};
pub use limits::{HEADER_RULES_MAX, ROUTES_MAX, SPEC_BYTES_MAX, UPSTREAMS_MAX};
pub use parts::{
    Breaker, Health, HostHeader, Limits, Maintenance, Rate, RateBy, Retry, RetryMethods,
    StatusRange, Timeouts, Tls, Upstream,
};
pub use skep_policy::problem::Problem as Flaw;
pub use skep_policy::sessions::Policy;
pub use units::{parse_size, parse_span, write_size, write_span};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use skep_policy::routes::retry::Class;
use std::time::Duration;

/// So many flaws are told at once.
const FLAWS_MAX: usize = 64;

/// A route.
///
/// One that was read, by [`RouteSpec::parse`] or serde, was checked and is in its normal form: the
/// host in lower case, the path without a slash at its end, addresses as `host:port`. One that was
/// made by hand is fine if [`RouteSpec::validate`] finds nothing. It serialises to what it can be
/// read from, with the defaults written out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RouteSpec {
    /// Its name, unique in an installation.
    pub name: String,
    /// Whose requests: a host, `*.` and what a host ends in, or `*` for all.
    pub host: String,
    /// What the path of a request begins with, up to a slash or its end.
    pub path: String,
    /// Whether upstreams see the path without that.
    pub strip_prefix: bool,
    /// Where requests go, unless to workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<Upstream>,
    /// The kind of workers that requests go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// How one of them is chosen.
    pub policy: Policy,
    /// Which `Host` they see.
    pub host_header: HostHeader,
    /// What clients get while the service is down on purpose.
    pub maintenance: Maintenance,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Trying again elsewhere.
    pub retry: Retry,
    /// Asking upstreams whether they are well; nothing for not asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Leaving upstreams alone that fail.
    pub breaker: Breaker,
    /// How long an upstream that came back gets less than its share; zero for not at all.
    #[serde(serialize_with = "units::span")]
    pub slow_start: Duration,
    /// What clients may do.
    pub limits: Limits,
    /// What is done to headers.
    pub headers: HeaderRules,
    /// What encrypts clients' connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Whether requests go to the access log.
    pub log: bool,
}

/// Why a stored route cannot be read: the row is damaged, or from a version that knows more.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It is no JSON.
    #[error("the stored route is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is not a route.
    #[error("the stored route is wrong: {}", Flaw::all(.0))]
    Flaws(Vec<Flaw>),
}

impl RouteSpec {
    /// The defaults, which are not enough for a route.
    fn empty() -> Self {
        RouteSpec {
            name: String::new(),
            host: "*".to_owned(),
            path: "/".to_owned(),
            strip_prefix: false,
            upstreams: Vec::new(),
            workers: None,
            policy: Policy::LeastLoaded,
            host_header: HostHeader::Keep,
            maintenance: Maintenance::default(),
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            health: None,
            breaker: Breaker::default(),
            slow_start: Duration::from_secs(10),
            limits: Limits::default(),
            headers: HeaderRules::default(),
            tls: None,
            log: true,
        }
    }

    /// A route for every request to one upstream, with the defaults for everything else.
    pub fn minimal(name: &str, upstream: &str) -> Self {
        let upstreams = vec![Upstream::new(upstream)];
        RouteSpec { name: name.to_owned(), upstreams, ..RouteSpec::empty() }
    }

    /// Reads a route as a user wrote it.
    ///
    /// # Errors
    /// With everything that is wrong, at once.
    pub fn parse(value: &Value) -> Result<RouteSpec, Vec<Flaw>> {
        RouteSpec::read(value, true)
    }

    /// Reads a route from the database. Fields that a later version added are passed over, so that
    /// nodes of two versions can share a database.
    ///
    /// # Errors
    /// If it is no route.
    pub fn read_stored(text: &str) -> Result<RouteSpec, StoredError> {
        RouteSpec::read(&serde_json::from_str(text)?, false).map_err(StoredError::Flaws)
    }

    fn read(value: &Value, strict: bool) -> Result<RouteSpec, Vec<Flaw>> {
        let (mut spec, mut flaws) = read::read(value, strict);
        spec.normalize();
        // What could not be read has a default in its place, of which nothing need be said.
        let unread: Vec<String> = flaws.iter().map(|flaw| flaw.field.clone()).collect();
        let news = |flaw: &Flaw| !unread.iter().any(|field| flaw.is_within(field));
        if value.is_object() {
            flaws.extend(spec.validate().into_iter().filter(news));
        }
        flaws.truncate(FLAWS_MAX);
        if flaws.is_empty() { Ok(spec) } else { Err(flaws) }
    }

    /// Writes host, path and addresses in their one way.
    fn normalize(&mut self) {
        self.host = place::normal_host(&self.host);
        self.path = place::normal_path(&self.path);
        for upstream in &mut self.upstreams {
            upstream.address = place::normal_address(&upstream.address);
        }
    }

    /// Everything that is wrong with it; nothing if it can be used.
    pub fn validate(&self) -> Vec<Flaw> {
        check::check(self)
    }

    /// Whether a request with this method is sent again although an upstream may have seen it.
    pub fn repeats(&self, method: &str) -> bool {
        self.retry.tries > 0 && self.retry.methods.rule().repeats(Class::of(method.as_bytes()))
    }

    /// The same with `***` for secret headers, for those who may read but not change it.
    pub fn redacted(&self) -> RouteSpec {
        RouteSpec { headers: self.headers.redacted(), ..self.clone() }
    }
}

/// What is wrong with routes that are each fine: too many, or two with one name or for one place.
pub fn check_together(specs: &[RouteSpec]) -> Vec<Flaw> {
    check::check_together(specs)
}

impl<'de> Deserialize<'de> for RouteSpec {
    // By way of JSON, so that everything that is wrong is told, and in the same words everywhere.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        RouteSpec::parse(&value).map_err(|flaws| D::Error::custom(Flaw::all(&flaws)))
    }
}

#[cfg(test)]
mod tests;
