//! Reading a route from JSON, or from whatever was turned into it, with everything that is wrong
//! at once. Here is the shape alone: names and types. What is allowed is in `check.rs`.

use super::limits::{self, Decimal, Size, Span, Whole};
use super::nearest::nearest;
use super::parts::{
    Breaker, Health, HostHeader, Limits, Maintenance, Rate, RateBy, Retry, RetryMethods,
    StatusRange, Timeouts, Tls, Upstream,
};
use super::units::{parse_size, parse_span};
use super::{Flaw, HeaderEdits, HeaderRules, RouteSpec};
use serde_json::{Map, Value};
use skep_policy::sessions::Policy;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const STATUS_RANGE: &str = "give statuses such as \"200-399\" or \"204\"";
const TEXT: &str = "give a text";

const FIELDS: &[&str] = &[
    "name",
    "host",
    "path",
    "strip_prefix",
    "upstreams",
    "workers",
    "policy",
    "host_header",
    "maintenance",
    "timeouts",
    "retry",
    "health",
    "breaker",
    "slow_start",
    "limits",
    "headers",
    "tls",
    "log",
];

/// Reads what is there and takes defaults for the rest. A part with a flaw has its default, or
/// something that stands in its place in a list, and must not be used.
pub(super) fn read(value: &Value, strict: bool) -> (RouteSpec, Vec<Flaw>) {
    let mut reader = Reader { strict, flaws: Vec::new() };
    let spec = reader.route(value);
    (spec, reader.flaws)
}

struct Reader {
    /// Whether a field that nobody knows is a flaw.
    strict: bool,
    flaws: Vec<Flaw>,
}

/// The fields of an object, and where that is.
struct Fields<'value> {
    object: &'value Map<String, Value>,
    prefix: String,
}

impl<'value> Fields<'value> {
    /// A field that is there; `null` is the same as nothing.
    fn get(&self, name: &str) -> Option<&'value Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn place(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Reader {
    fn object<'value>(
        &mut self,
        value: &'value Value,
        place: &str,
        known: &[&str],
    ) -> Option<Fields<'value>> {
        let Value::Object(object) = value else {
            let place = if place.is_empty() { "route" } else { place };
            let right = format!("give a table with {}", known.join(", "));
            self.flaws.push(match place.starts_with("headers") {
                // What was given instead may be a secret header.
                true => Flaw::at(place, "is not a table", right),
                false => Flaw::with(place, value, right),
            });
            return None;
        };
        let prefix = if place.is_empty() { String::new() } else { format!("{place}.") };
        let strict = self.strict;
        for name in object.keys().filter(|name| strict && !known.contains(&name.as_str())) {
            let right = match nearest(name, known) {
                Some(near) => format!("did you mean {prefix}{near}?"),
                None => format!("the fields are {}", known.join(", ")),
            };
            let place = format!("{prefix}{name}");
            self.flaws.push(Flaw::at(&place, "is not a known field", right));
        }
        Some(Fields { object, prefix })
    }

    /// A table inside of another, if it is there.
    fn table<'value>(
        &mut self,
        fields: &Fields<'value>,
        name: &str,
        known: &[&str],
    ) -> Option<Fields<'value>> {
        self.object(fields.get(name)?, &fields.place(name), known)
    }

    /// A field that can be read; nothing if it is not there, or wrong.
    fn take<'value, T>(
        &mut self,
        fields: &Fields<'value>,
        name: &str,
        right: &str,
        read: impl FnOnce(&'value Value) -> Option<T>,
    ) -> Option<T> {
        let value = fields.get(name)?;
        let read = read(value);
        if read.is_none() {
            self.flaws.push(Flaw::with(&fields.place(name), value, right));
        }
        read
    }

    fn text(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        self.take(fields, name, TEXT, |value| value.as_str().map(str::to_owned))
    }

    fn flag(&mut self, fields: &Fields<'_>, name: &str, default: bool) -> bool {
        self.take(fields, name, "give true or false", Value::as_bool).unwrap_or(default)
    }

    fn whole<T: TryFrom<u64>>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        range: &Whole,
        default: T,
    ) -> T {
        let read = |value: &Value| value.as_u64().and_then(|number| T::try_from(number).ok());
        self.take(fields, name, &range.right(), read).unwrap_or(default)
    }

    fn decimal(&mut self, fields: &Fields<'_>, name: &str, range: &Decimal, default: f64) -> f64 {
        self.take(fields, name, &range.right(), Value::as_f64).unwrap_or(default)
    }

    fn span(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        range: &Span,
        default: Duration,
    ) -> Duration {
        let read = |value: &Value| match value {
            Value::String(text) => parse_span(text),
            // The shortest decimal that means the number, so 0.1 is a hundred milliseconds.
            Value::Number(seconds) => parse_span(&format!("{seconds}s")),
            _ => None,
        };
        self.take(fields, name, &range.right(), read).unwrap_or(default)
    }

    fn size(&mut self, fields: &Fields<'_>, name: &str, range: &Size, default: u64) -> u64 {
        let read = |value: &Value| match value {
            Value::String(text) => parse_size(text),
            Value::Number(bytes) => bytes.as_u64(),
            _ => None,
        };
        self.take(fields, name, &range.right(), read).unwrap_or(default)
    }

    fn list<'value>(
        &mut self,
        fields: &Fields<'value>,
        name: &str,
        right: &str,
    ) -> Option<&'value Vec<Value>> {
        self.take(fields, name, right, Value::as_array)
    }

    fn route(&mut self, value: &Value) -> RouteSpec {
        let mut spec = RouteSpec::empty();
        let Some(fields) = self.object(value, "", FIELDS) else { return spec };
        let fields = &fields;
        spec.name = self.text(fields, "name").unwrap_or_default();
        spec.host = self.text(fields, "host").unwrap_or(spec.host);
        spec.path = self.text(fields, "path").unwrap_or(spec.path);
        spec.strip_prefix = self.flag(fields, "strip_prefix", spec.strip_prefix);
        spec.upstreams = self.upstreams(fields);
        spec.workers = self.text(fields, "workers");
        let right = "give least-loaded, lifetime-first or budgeted";
        let policy = |value: &Value| Policy::from_name(value.as_str()?);
        spec.policy = self.take(fields, "policy", right, policy).unwrap_or(spec.policy);
        let host_header = self.text(fields, "host_header");
        spec.host_header = host_header.map_or(spec.host_header, |text| HostHeader::read(&text));
        spec.maintenance = self.maintenance(fields);
        spec.timeouts = self.timeouts(fields);
        spec.retry = self.retry(fields);
        spec.health = self.health(fields);
        spec.breaker = self.breaker(fields);
        spec.slow_start = self.span(fields, "slow_start", &limits::SLOW_START, spec.slow_start);
        spec.limits = self.limits(fields);
        spec.headers = self.headers(fields);
        spec.tls = self.tls(fields);
        spec.log = self.flag(fields, "log", spec.log);
        spec
    }

    fn upstreams(&mut self, fields: &Fields<'_>) -> Vec<Upstream> {
        let right = "give a list such as [\"10.0.0.1:8080\"]";
        let list = self.list(fields, "upstreams", right).map_or(&[][..], Vec::as_slice);
        let mut upstreams = Vec::new();
        // One more than allowed is enough to say that there are too many.
        for (position, value) in list.iter().take(limits::UPSTREAMS_MAX + 1).enumerate() {
            let place = format!("upstreams[{position}]");
            let mut upstream = Upstream { address: String::new(), weight: 1 };
            match value {
                Value::String(address) => upstream.address.clone_from(address),
                Value::Object(_) => {
                    if let Some(fields) = self.object(value, &place, &["address", "weight"]) {
                        upstream.address = self.text(&fields, "address").unwrap_or_default();
                        upstream.weight = self.whole(&fields, "weight", &limits::WEIGHT, 1);
                    }
                }
                other => {
                    let right = "give \"host:port\" or { address = \"host:port\", weight = 1 }";
                    self.flaws.push(Flaw::with(&place, other, right));
                }
            }
            upstreams.push(upstream);
        }
        upstreams
    }

    fn maintenance(&mut self, fields: &Fields<'_>) -> Maintenance {
        let mut one = Maintenance::default();
        let known = ["enabled", "status", "body", "content_type", "retry_after"];
        let Some(fields) = &self.table(fields, "maintenance", &known) else { return one };
        one.enabled = self.flag(fields, "enabled", one.enabled);
        one.status = self.whole(fields, "status", &limits::MAINTENANCE_STATUS, one.status);
        one.body = self.text(fields, "body").unwrap_or(one.body);
        one.content_type = self.text(fields, "content_type").unwrap_or(one.content_type);
        one.retry_after = self.span(fields, "retry_after", &limits::RETRY_AFTER, one.retry_after);
        one
    }

    fn timeouts(&mut self, fields: &Fields<'_>) -> Timeouts {
        let mut all = Timeouts::default();
        let known = ["connect", "head", "send", "idle", "tunnel", "total"];
        let Some(fields) = &self.table(fields, "timeouts", &known) else { return all };
        for (name, span, range) in all.named_mut() {
            *span = self.span(fields, name, &range, *span);
        }
        all
    }

    fn retry(&mut self, fields: &Fields<'_>) -> Retry {
        let mut one = Retry::default();
        let known = ["tries", "methods", "budget", "statuses"];
        let Some(fields) = &self.table(fields, "retry", &known) else { return one };
        one.tries = self.whole(fields, "tries", &limits::TRIES, one.tries);
        let methods = |value: &Value| RetryMethods::read(value.as_str()?);
        let right = "give never, safe or idempotent";
        one.methods = self.take(fields, "methods", right, methods).unwrap_or(one.methods);
        one.budget = self.decimal(fields, "budget", &limits::SHARE, one.budget);
        if let Some(list) = self.list(fields, "statuses", "give a list such as [502, 503, 504]") {
            one.statuses.clear();
            for (position, value) in list.iter().take(limits::STATUSES_MAX + 1).enumerate() {
                let status = value.as_u64().and_then(|status| u16::try_from(status).ok());
                if status.is_none() {
                    let place = fields.place(&format!("statuses[{position}]"));
                    let right = limits::RETRY_STATUS.right();
                    self.flaws.push(Flaw::with(&place, value, right));
                }
                one.statuses.push(status.unwrap_or_default());
            }
        }
        one
    }

    fn health(&mut self, fields: &Fields<'_>) -> Option<Health> {
        let known = ["path", "every", "timeout", "rise", "fall", "status"];
        let fields = &self.table(fields, "health", &known)?;
        let mut one = Health::default();
        one.path = self.text(fields, "path").unwrap_or(one.path);
        one.every = self.span(fields, "every", &limits::CHECK_EVERY, one.every);
        one.timeout = self.span(fields, "timeout", &limits::CHECK_TIMEOUT, one.timeout);
        one.rise = self.whole(fields, "rise", &limits::RISE_AND_FALL, one.rise);
        one.fall = self.whole(fields, "fall", &limits::RISE_AND_FALL, one.fall);
        let status = |value: &Value| match value {
            Value::String(text) => StatusRange::read(text),
            Value::Number(number) => StatusRange::read(&number.to_string()),
            _ => None,
        };
        one.status = self.take(fields, "status", STATUS_RANGE, status).unwrap_or(one.status);
        Some(one)
    }

    fn breaker(&mut self, fields: &Fields<'_>) -> Breaker {
        let mut one = Breaker::default();
        let known = ["failures", "ratio", "window", "open", "open_max", "probes"];
        let Some(fields) = &self.table(fields, "breaker", &known) else { return one };
        one.failures = self.whole(fields, "failures", &limits::FAILURES, one.failures);
        one.ratio = self.decimal(fields, "ratio", &limits::FAILED_SHARE, one.ratio);
        one.window = self.span(fields, "window", &limits::BREAKER_WINDOW, one.window);
        one.open = self.span(fields, "open", &limits::BREAKER_OPEN, one.open);
        // Whoever gives a long time to be open, and no longest, means that there is one time.
        let longest = one.open_max.max(one.open);
        one.open_max = self.span(fields, "open_max", &limits::BREAKER_OPEN, longest);
        one.probes = self.whole(fields, "probes", &limits::PROBES, one.probes);
        one
    }

    fn limits(&mut self, fields: &Fields<'_>) -> Limits {
        let mut all = Limits::default();
        let Some(fields) = &self.table(fields, "limits", &["body_max", "rate"]) else {
            return all;
        };
        all.body_max = self.size(fields, "body_max", &limits::BODY, all.body_max);
        all.rate = self.rate(fields);
        all
    }

    fn rate(&mut self, fields: &Fields<'_>) -> Option<Rate> {
        let known = ["requests", "per", "burst", "by"];
        let fields = &self.table(fields, "rate", &known)?;
        let requests = self.whole(fields, "requests", &limits::RATE, 0);
        let per = self.span(fields, "per", &limits::RATE_PER, Duration::from_secs(1));
        // As many at once as in a while. One that has no number is told about that alone.
        let burst = self.whole(fields, "burst", &limits::RATE, requests.max(1));
        let right = "give address, key or header:NAME";
        let by = self.take(fields, "by", right, |value| RateBy::read(value.as_str()?));
        Some(Rate { requests, per, burst, by: by.unwrap_or_default() })
    }

    fn headers(&mut self, fields: &Fields<'_>) -> HeaderRules {
        let Some(fields) = &self.table(fields, "headers", &["request", "response"]) else {
            return HeaderRules::default();
        };
        HeaderRules {
            request: self.edits(fields, "request"),
            response: self.edits(fields, "response"),
        }
    }

    fn edits(&mut self, fields: &Fields<'_>, name: &str) -> HeaderEdits {
        let Some(fields) = &self.table(fields, name, &["set", "add", "remove"]) else {
            return HeaderEdits::default();
        };
        let right = "give a list of names, such as [\"x-powered-by\"]";
        let list = self.list(fields, "remove", right).map_or(&[][..], Vec::as_slice);
        let mut remove = Vec::new();
        for (position, value) in list.iter().take(limits::HEADER_RULES_MAX + 1).enumerate() {
            if !value.is_string() {
                let place = fields.place(&format!("remove[{position}]"));
                self.flaws.push(Flaw::with(&place, value, "give the name of a header"));
            }
            remove.push(value.as_str().unwrap_or_default().to_owned());
        }
        HeaderEdits { set: self.texts(fields, "set"), add: self.texts(fields, "add"), remove }
    }

    /// Headers with their values, which may be secrets and are not repeated.
    fn texts(&mut self, fields: &Fields<'_>, name: &str) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        let place = fields.place(name);
        match fields.get(name) {
            None => {}
            Some(Value::Object(object)) => {
                for (key, value) in object {
                    if !value.is_string() {
                        self.flaws.push(Flaw::at(&format!("{place}.{key}"), "is not a text", TEXT));
                    }
                    texts.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
                }
            }
            Some(_) => {
                let right = "give a table such as { \"x-team\" = \"shop\" }";
                self.flaws.push(Flaw::at(&place, "is not a table", right));
            }
        }
        texts
    }

    fn tls(&mut self, fields: &Fields<'_>) -> Option<Tls> {
        let fields = &self.table(fields, "tls", &["certificate", "key", "redirect"])?;
        Some(Tls {
            certificate: self.text(fields, "certificate").unwrap_or_default(),
            key: self.text(fields, "key").unwrap_or_default(),
            redirect: self.flag(fields, "redirect", true),
        })
    }
}
