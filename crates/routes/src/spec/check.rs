//! What a route may say.

use super::headers::is_token;
use super::limits::{self, Decimal, Span, Whole};
use super::parts::{HostHeader, RateBy, Timeouts};
use super::place::{self, Fault};
use super::units::{write_size, write_span};
use super::{Flaw, RouteSpec, read};
use serde_json::Value;
use skep_policy::{Name, sessions::Policy};
use std::collections::BTreeMap;
use std::time::Duration;

impl Timeouts {
    /// Each with its name and its limits.
    pub(super) fn named_mut(&mut self) -> [(&'static str, &mut Duration, Span); 6] {
        [
            ("connect", &mut self.connect, limits::TIMEOUT),
            ("head", &mut self.head, limits::TIMEOUT),
            ("send", &mut self.send, limits::TIMEOUT),
            ("idle", &mut self.idle, limits::TIMEOUT),
            ("tunnel", &mut self.tunnel, limits::TIMEOUT),
            ("total", &mut self.total, limits::TIMEOUT_OR_NONE),
        ]
    }
}

/// Everything that is wrong with a route.
pub(super) fn check(spec: &RouteSpec) -> Vec<Flaw> {
    let mut check = Check { flaws: Vec::new() };
    check.place(spec);
    check.targets(spec);
    check.maintenance(spec);
    check.times(spec);
    check.retry(spec);
    check.health(spec);
    check.breaker(spec);
    check.limits(spec);
    spec.headers.request.validate("headers.request", &mut check.flaws);
    spec.headers.response.validate("headers.response", &mut check.flaws);
    check.tls(spec);
    check.whole_spec(spec);
    check.flaws
}

struct Check {
    flaws: Vec<Flaw>,
}

impl Check {
    fn wrong(&mut self, field: &str, value: impl Into<Value>, right: impl Into<String>) {
        self.flaws.push(Flaw::with(field, &value.into(), right));
    }

    fn fault(&mut self, field: &str, value: &str, fault: Option<Fault>) {
        if let Some((wrong, right)) = fault {
            self.flaws.push(Flaw::with(field, &Value::from(value), right).wrong(wrong));
        }
    }

    fn whole(&mut self, field: &str, value: impl Into<u64>, range: &Whole) {
        let value = value.into();
        if !range.fits(value) {
            self.wrong(field, value, range.right());
        }
    }

    fn decimal(&mut self, field: &str, value: f64, range: &Decimal) {
        if !range.fits(value) {
            self.wrong(field, value, range.right());
        }
    }

    fn span(&mut self, field: &str, value: Duration, range: &Span) {
        if !range.fits(value) {
            self.wrong(field, write_span(value), range.right());
        }
    }

    fn place(&mut self, spec: &RouteSpec) {
        let right = format!(
            "give letters, digits, dots, underscores and hyphens, at most {} of them",
            limits::NAME_CHARS_MAX
        );
        if spec.name.is_empty() {
            self.flaws.push(Flaw::at("name", "is missing", right));
        } else if !is_name(&spec.name) {
            self.wrong("name", spec.name.as_str(), right + ", a letter or digit first");
        }
        self.fault("host", &spec.host, place::fault_of_host(&spec.host));
        self.fault("path", &spec.path, place::fault_of_path(&spec.path));
        if let HostHeader::Literal(host) = &spec.host_header
            && !place::is_authority(host)
        {
            let right = "give keep, upstream, or a host such as \"shop.example\"";
            self.wrong("host_header", host.as_str(), right);
        }
    }

    fn targets(&mut self, spec: &RouteSpec) {
        let workers = spec.workers.as_deref();
        match (spec.upstreams.is_empty(), workers) {
            (true, None) => {
                let right = "give upstreams = [\"host:port\"], or workers = \"kind\"";
                self.flaws.push(Flaw::at("upstreams", "are missing", right));
            }
            (false, Some(kind)) => {
                let right = "give upstreams or workers, not both";
                self.wrong("workers", kind, right);
            }
            _ => {}
        }
        if let Some(kind) = workers.filter(|kind| !is_name(kind)) {
            self.wrong("workers", kind, "give the name of a kind of workers, such as renderers");
        }
        if workers.is_none() && spec.policy != Policy::LeastLoaded {
            let right = "give least-loaded; the others are for routes with `workers`";
            self.wrong("policy", spec.policy.name(), right);
        }
        if spec.upstreams.len() > limits::UPSTREAMS_MAX {
            let wrong = format!("are more than {}", limits::UPSTREAMS_MAX);
            let right = format!("give at most {}", limits::UPSTREAMS_MAX);
            self.flaws.push(Flaw::at("upstreams", wrong, right));
            return;
        }
        let mut seen = BTreeMap::new();
        for (position, upstream) in spec.upstreams.iter().enumerate() {
            let field = format!("upstreams[{position}]");
            let address = upstream.address.as_str();
            let at = format!("{field}.address");
            match place::fault_of_address(address) {
                // There is nothing to repeat, or it may be a password.
                Some((wrong, right)) if address.is_empty() || address.contains('@') => {
                    self.flaws.push(Flaw::at(&at, wrong, right));
                }
                Some(fault) => self.fault(&at, address, Some(fault)),
                None => {
                    if let Some(first) = seen.insert(address, position) {
                        let wrong = format!("is the same as upstreams[{first}].address");
                        let right = "give each once, with a weight if it takes more".to_owned();
                        let flaw = Flaw::with(&at, &Value::from(address), right);
                        self.flaws.push(flaw.wrong(wrong));
                    }
                }
            }
            self.whole(&format!("{field}.weight"), upstream.weight, &limits::WEIGHT);
        }
    }

    fn maintenance(&mut self, spec: &RouteSpec) {
        let one = &spec.maintenance;
        self.whole("maintenance.status", one.status, &limits::MAINTENANCE_STATUS);
        if one.body.len() > limits::PAGE_BYTES_MAX {
            let wrong = format!("has {}", write_size(one.body.len() as u64));
            let right = format!("give at most {}", write_size(limits::PAGE_BYTES_MAX as u64));
            self.flaws.push(Flaw::at("maintenance.body", wrong, right));
        }
        let kind = &one.content_type;
        let fine = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if !(1..=200).contains(&kind.len()) || !kind.contains('/') || !kind.bytes().all(fine) {
            let right = "give a type such as \"text/html; charset=utf-8\"";
            self.wrong("maintenance.content_type", kind.as_str(), right);
        }
        self.span("maintenance.retry_after", one.retry_after, &limits::RETRY_AFTER);
    }

    fn times(&mut self, spec: &RouteSpec) {
        for (name, span, range) in spec.timeouts.clone().named_mut() {
            self.span(&format!("timeouts.{name}"), *span, &range);
        }
        self.span("slow_start", spec.slow_start, &limits::SLOW_START);
    }

    fn retry(&mut self, spec: &RouteSpec) {
        let one = &spec.retry;
        self.whole("retry.tries", one.tries, &limits::TRIES);
        self.decimal("retry.budget", one.budget, &limits::SHARE);
        if one.statuses.len() > limits::STATUSES_MAX {
            let wrong = format!("are more than {}", limits::STATUSES_MAX);
            self.flaws.push(Flaw::at("retry.statuses", wrong, "give each once"));
            return;
        }
        for (position, status) in one.statuses.iter().enumerate() {
            self.whole(&format!("retry.statuses[{position}]"), *status, &limits::RETRY_STATUS);
        }
    }

    fn health(&mut self, spec: &RouteSpec) {
        let Some(one) = &spec.health else { return };
        // Unlike a prefix this is asked for as it is, so it may end in a slash or have a query.
        let fine = one.path.starts_with('/')
            && one.path.len() <= limits::PATH_BYTES_MAX
            && one.path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !fine {
            let right = "give a path such as \"/health\", in visible ASCII characters";
            self.wrong("health.path", one.path.as_str(), right);
        }
        self.span("health.every", one.every, &limits::CHECK_EVERY);
        self.span("health.timeout", one.timeout, &limits::CHECK_TIMEOUT);
        self.whole("health.rise", one.rise, &limits::RISE_AND_FALL);
        self.whole("health.fall", one.fall, &limits::RISE_AND_FALL);
        if !one.status.is_fine() {
            let right = format!("{}, from 100 to 599", read::STATUS_RANGE);
            self.wrong("health.status", one.status.to_string(), right);
        }
    }

    fn breaker(&mut self, spec: &RouteSpec) {
        let one = &spec.breaker;
        self.whole("breaker.failures", one.failures, &limits::FAILURES);
        self.decimal("breaker.ratio", one.ratio, &limits::FAILED_SHARE);
        self.span("breaker.window", one.window, &limits::BREAKER_WINDOW);
        self.span("breaker.open", one.open, &limits::BREAKER_OPEN);
        self.span("breaker.open_max", one.open_max, &limits::BREAKER_OPEN);
        if one.open_max < one.open && limits::BREAKER_OPEN.fits(one.open) {
            let right = format!("give at least breaker.open, \"{}\"", write_span(one.open));
            self.wrong("breaker.open_max", write_span(one.open_max), right);
        }
        self.whole("breaker.probes", one.probes, &limits::PROBES);
    }

    fn limits(&mut self, spec: &RouteSpec) {
        let body_max = spec.limits.body_max;
        if !limits::BODY.fits(body_max) {
            self.wrong("limits.body_max", write_size(body_max), limits::BODY.right());
        }
        let Some(rate) = &spec.limits.rate else { return };
        if rate.requests == 0 {
            let right = limits::RATE.right();
            self.flaws.push(Flaw::at("limits.rate.requests", "is missing or zero", right));
        } else {
            self.whole("limits.rate.requests", rate.requests, &limits::RATE);
        }
        self.whole("limits.rate.burst", rate.burst, &limits::RATE);
        self.span("limits.rate.per", rate.per, &limits::RATE_PER);
        if let RateBy::Header(name) = &rate.by
            && (!is_token(name) || name.len() > limits::HEADER_NAME_BYTES_MAX)
        {
            let right = "give header: and the name of a header, such as header:x-client";
            self.wrong("limits.rate.by", format!("header:{name}"), right);
        }
    }

    fn tls(&mut self, spec: &RouteSpec) {
        let Some(tls) = &spec.tls else { return };
        for (field, file) in [("tls.certificate", &tls.certificate), ("tls.key", &tls.key)] {
            let fine = file.starts_with('/')
                && file.len() <= limits::FILE_BYTES_MAX
                && !file.chars().any(char::is_control);
            if file.is_empty() {
                let right = "give the files of both, certificate and key, or leave out tls";
                self.flaws.push(Flaw::at(field, "is missing", right));
            } else if !fine {
                let right = "give the whole path of a PEM file, such as /etc/skep/shop.pem";
                self.wrong(field, file.as_str(), right);
            }
        }
    }

    /// Each part may be within its limits and all of them together too much to keep a thousand of.
    fn whole_spec(&mut self, spec: &RouteSpec) {
        let written = serde_json::to_string(spec).map_or(usize::MAX, |text| text.len());
        if self.flaws.is_empty() && written > limits::SPEC_BYTES_MAX {
            let wrong = format!("has {} as JSON", write_size(written as u64));
            let most = write_size(limits::SPEC_BYTES_MAX as u64);
            let right = format!("give at most {most}; header rules and pages take the most");
            self.flaws.push(Flaw::at("route", wrong, right));
        }
    }
}

/// Whether this can name a route or a kind of workers.
fn is_name(text: &str) -> bool {
    text.len() <= limits::NAME_CHARS_MAX && text.parse::<Name>().is_ok()
}

/// What is wrong with routes that are each fine: too many of them, or two that are alike.
pub(super) fn check_together(specs: &[RouteSpec]) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    if specs.len() > limits::ROUTES_MAX {
        let right = format!("give at most {}", limits::ROUTES_MAX);
        flaws.push(Flaw::at("routes", format!("are {}", specs.len()), right));
    }
    let (mut names, mut places) = (BTreeMap::new(), BTreeMap::new());
    for (position, spec) in specs.iter().enumerate() {
        let first = *names.entry(spec.name.as_str()).or_insert(position);
        if first != position {
            let field = format!("routes[{position}].name");
            let flaw = Flaw::with(&field, &Value::from(spec.name.as_str()), "give another name");
            flaws.push(flaw.wrong(format!("is the name of routes[{first}] too")));
        }
        let first = *places.entry((spec.host.as_str(), spec.path.as_str())).or_insert(position);
        if first != position {
            let field = format!("routes[{position}].path");
            let value = Value::from(format!("{}{}", spec.host, spec.path));
            let wrong = format!("is where \"{}\" (routes[{first}]) is already", specs[first].name);
            let right = "give another host or path";
            flaws.push(Flaw::with(&field, &value, right).wrong(wrong));
        }
    }
    flaws
}
