//! The settings of the proxy, and the routes that stand in a file.
//!
//! A route is a table and not a value, so that neither the environment nor a flag can hold one:
//! `[[routes]]` is read from files alone, each problem with its line.

use super::layers::{Origin, Problem};
use super::section::section;
use super::value::{ByteSize, Value};
use super::{hours, ms};
use serde_json::Value as Json;
use skep_dial::Dialler;
use skep_policy::reach::Network;
use skep_routes::ProxyOptions;
use skep_routes::spec::{Flaw, Policy, RouteSpec, check_together};
use skep_sessions::SessionsOptions;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use toml::de::DeValue;

/// The name of the list in a file.
pub const ROUTES: &str = "routes";

section! {
    /// What holds for all routes.
    pub struct ProxySettings in "proxy" {
        /// How long a client may take to send the head of a request.
        head_timeout: Duration = ProxyOptions::default().head_limit, in ms(10)..=hours(1);
        /// A client's connection on which nothing is asked for so long is closed.
        idle_timeout: Duration = ProxyOptions::default().idle_limit, in ms(10)..=hours(24);
        /// Largest head of a request or an answer, all headers together.
        head_max: ByteSize = ByteSize(ProxyOptions::default().head_max as u64),
            in ByteSize(1 << 10)..=ByteSize(1 << 20);
        /// Free connections that each thread of the gateway keeps to each upstream.
        free_max: usize = ProxyOptions::default().free_max, in 0..=100_000;
        /// How long a free connection to an upstream is kept.
        free_timeout: Duration = ProxyOptions::default().free_limit, in ms(10)..=hours(24);
        /// Addresses and ranges of proxies in front of this one, separated by commas; what they
        /// say about the client in `X-Forwarded-For` is believed.
        trusted: Networks = Networks::default();
    }
}

impl ProxySettings {
    /// What the proxy is told.
    pub fn options(&self, dialler: Dialler) -> ProxyOptions {
        ProxyOptions {
            dialler,
            head_limit: self.head_timeout,
            idle_limit: self.idle_timeout,
            head_max: usize::try_from(self.head_max.0).unwrap_or(usize::MAX),
            free_max: self.free_max,
            free_limit: self.free_timeout,
            trusted: self.trusted.0.clone(),
        }
    }
}

/// Ranges of addresses, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(pub Vec<Network>);

impl Value for Networks {
    fn expected() -> String {
        "addresses and ranges such as 10.0.0.0/8, separated by commas".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let networks: Result<_, _> = parts.map(str::parse::<Network>).collect();
        networks.map(Networks).map_err(|error| error.to_string())
    }

    fn show(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// A route of a file, and where it begins.
#[derive(Clone, Debug)]
pub struct FileRoute {
    pub spec: Arc<RouteSpec>,
    pub origin: Origin,
}

/// Reads `[[routes]]`: all routes, or everything that is wrong with any of them.
pub(super) fn read(
    value: &DeValue<'_>,
    begin: usize,
    at: &impl Fn(usize) -> Origin,
) -> Result<Vec<FileRoute>, Vec<Problem>> {
    let DeValue::Array(items) = value else {
        let message = "`routes` is a list, write `[[routes]]` before each route".to_owned();
        return Err(vec![Problem { origin: at(begin), message }]);
    };
    let mut problems = Vec::new();
    let mut places = Places::default();
    let mut specs = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let place = format!("{ROUTES}[{number}]");
        places.note(&place, item.span().start);
        let json = places.read(&place, item.get_ref());
        let spec = RouteSpec::parse(&json).unwrap_or_else(|flaws| {
            for mut flaw in flaws {
                flaw.field = match flaw.field.as_str() {
                    "route" => place.clone(),
                    field => format!("{place}.{field}"),
                };
                problems.push(places.problem(&flaw, at));
            }
            // Takes the place of the wrong one, so that the others keep their numbers; nothing
            // that was read can be equal to it.
            let stand_in = format!("#{number}");
            RouteSpec { host: stand_in.clone(), ..RouteSpec::minimal(&stand_in, "none:1") }
        });
        specs.push(spec);
    }
    problems.extend(check_together(&specs).iter().map(|flaw| places.problem(flaw, at)));
    if !problems.is_empty() {
        return Err(problems);
    }
    let origins = items.iter().map(|item| at(item.span().start));
    let routes = specs.into_iter().zip(origins);
    Ok(routes.map(|(spec, origin)| FileRoute { spec: Arc::new(spec), origin }).collect())
}

/// Where each field begins.
#[derive(Default)]
struct Places(BTreeMap<String, usize>);

impl Places {
    fn note(&mut self, place: &str, offset: usize) {
        self.0.insert(place.to_owned(), offset);
    }

    /// The value as JSON, and the places of everything in it.
    fn read(&mut self, place: &str, value: &DeValue<'_>) -> Json {
        match value {
            DeValue::String(text) => Json::from(&**text),
            DeValue::Integer(number) => {
                let read = i64::from_str_radix(number.as_str(), number.radix());
                read.map_or_else(|_| Json::from(number.as_str()), Json::from)
            }
            // What JSON has no number for is told as it was written.
            DeValue::Float(number) => match number.as_str().replace('_', "").parse::<f64>() {
                Ok(read) if read.is_finite() => Json::from(read),
                _ => Json::from(number.as_str()),
            },
            DeValue::Boolean(yes) => Json::from(*yes),
            DeValue::Datetime(time) => Json::from(time.to_string()),
            DeValue::Array(items) => {
                let items = items.iter().enumerate().map(|(number, item)| {
                    let place = format!("{place}[{number}]");
                    self.note(&place, item.span().start);
                    self.read(&place, item.get_ref())
                });
                Json::Array(items.collect())
            }
            DeValue::Table(fields) => {
                let fields = fields.iter().map(|(name, value)| {
                    let place = format!("{place}.{}", name.get_ref());
                    self.note(&place, name.span().start);
                    (name.get_ref().to_string(), self.read(&place, value.get_ref()))
                });
                Json::Object(fields.collect())
            }
        }
    }

    /// A flaw at the line of its field, or of the nearest that holds it.
    fn problem(&self, flaw: &Flaw, at: &impl Fn(usize) -> Origin) -> Problem {
        let mut place = flaw.field.as_str();
        let offset = loop {
            if let Some(offset) = self.0.get(place) {
                break *offset;
            }
            match place.rfind(['.', '[']) {
                Some(end) => place = &place[..end],
                None => break 0,
            }
        };
        Problem { origin: at(offset), message: flaw.to_string() }
    }
}

/// What is wrong with a route to workers whose kind has another policy.
pub fn policy_flaw(spec: &RouteSpec, sessions: &SessionsOptions) -> Option<Flaw> {
    let kind = spec.workers.as_deref()?;
    let (wanted, rules) = (spec.policy, sessions.rules_of(kind).policy);
    // The default of a route says nothing about workers.
    if wanted == Policy::LeastLoaded || wanted == rules {
        return None;
    }
    let right = format!(
        "give \"{}\", which the kind {kind:?} has, or set `sessions.kinds` to \
         \"{kind}: policy={}\"",
        rules.name(),
        wanted.name()
    );
    Some(Flaw::with("policy", &Json::from(wanted.name()), right))
}

/// A route in a line.
pub fn summary(spec: &RouteSpec) -> String {
    let to = match &spec.workers {
        Some(kind) => format!("workers {kind}"),
        None => {
            let addresses = spec.upstreams.iter().map(|one| one.address.as_str());
            addresses.collect::<Vec<_>>().join(", ")
        }
    };
    format!("{}: {}{} to {to}", spec.name, spec.host, spec.path)
}
