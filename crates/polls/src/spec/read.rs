//! Reading an endpoint from JSON, with everything that is wrong at once.

use super::{Certificate, Expect, Headers, Http, Kind, Problem, Spec, Statuses, Target};
use super::{parse_span, status, write_span};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Uri};
use rustls::pki_types::ServerName;
use serde_json::{Map, Value};
use skep_policy::ownership::Timing;
use skep_policy::problem::shortened;
use skep_policy::secrets::{HIDDEN, is_secret, lacks_secrets};
use std::collections::BTreeMap;
use std::time::Duration;

const FIELDS: &[&str] = &[
    "id",
    "kind",
    "url",
    "address",
    "method",
    "headers",
    "body",
    "expect",
    "server_name",
    "expires_in",
    "verify",
    "interval",
    "timeout",
    "weight",
    "labels",
    "paused",
    "publish_to",
];
/// The fields that are for some kinds alone.
const FOR_WEB: &[&str] = &["url", "method", "headers", "body", "expect"];
const FOR_PORTS: &[&str] = &["address"];
const FOR_TLS: &[&str] = &["server_name"];
const FOR_CERTIFICATES: &[&str] = &["expires_in", "verify"];

const ID_CHARS_MAX: usize = 200;
const URL_BYTES_MAX: usize = 2_000;
const BODY_BYTES_MAX: usize = 64 << 10;
const EXPECTED_BYTES_MAX: usize = 4 << 10;
const HEADERS_MAX: usize = 32;
const HEADER_BYTES_MAX: usize = 8 << 10;
const LABELS_MAX: usize = 32;
const LABEL_KEY_CHARS_MAX: usize = 63;
const LABEL_VALUE_CHARS_MAX: usize = 255;
const WEIGHT_MAX: u64 = 1_000;
const EXPIRES_IN_MAX: Duration = Duration::from_secs(3_650 * 86_400);
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);
const INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_secs(5);

/// What is wrong with something that was read where secrets are hidden.
const HIDES: &str = "has *** for a value, which hides one";

/// Headers that say how the message is framed, which is not for the user to say.
const FRAMING: &[&str] =
    &["content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive"];

/// Reads an endpoint; without limits it is one that was stored.
pub(super) fn read(value: &Value, limits: Option<&Timing>) -> Result<Spec, Vec<Problem>> {
    let Value::Object(object) = value else {
        return Err(vec![Problem::with("endpoint", value, "give a JSON object")]);
    };
    let mut reader = Reader { object, strict: limits.is_some(), problems: Vec::new() };
    reader.known(object, "", FIELDS);
    let id = reader.id();
    let target = reader.target();
    let interval = reader.interval();
    let timeout = reader.timeout(limits);
    let weight = reader.weight();
    let labels = reader.labels();
    let paused = reader.flag("paused", false);
    let publish_to = reader.publish_to();
    match (reader.problems.is_empty(), id, target) {
        (true, Some(id), Some(target)) => {
            Ok(Spec { id, target, interval, timeout, weight, labels, paused, publish_to })
        }
        _ => Err(reader.problems),
    }
}

struct Reader<'a> {
    object: &'a Map<String, Value>,
    /// Whether fields that nobody knows, or that are for another kind, are problems.
    strict: bool,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// A field that is there; `null` is the same as nothing.
    fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    fn wrong(&mut self, field: &str, value: &Value, right: impl Into<String>) {
        self.problems.push(Problem::with(field, value, right));
    }

    fn missing(&mut self, field: &str, right: impl Into<String>) {
        self.problems.push(Problem::at(field, "is missing", right));
    }

    fn known(&mut self, object: &Map<String, Value>, prefix: &str, known: &[&str]) {
        let strict = self.strict;
        for field in object.keys().filter(|field| strict && !known.contains(&field.as_str())) {
            let likeness = |name: &&str| {
                let typed = field.to_ascii_lowercase().replace('-', "_");
                strsim::normalized_damerau_levenshtein(&typed, name)
            };
            let near = known
                .iter()
                .map(|name| (likeness(name), name))
                .filter(|(likeness, _)| *likeness >= 0.6)
                .max_by(|one, other| one.0.total_cmp(&other.0));
            let right = match near {
                Some((_, name)) => format!("did you mean {prefix}{name}?"),
                None => format!("the fields are {}", known.join(", ")),
            };
            let field = format!("{prefix}{field}");
            self.problems.push(Problem::at(&field, "is not a known field", right));
        }
    }

    /// A text that `fits`.
    fn text(&mut self, field: &str, right: &str, fits: impl Fn(&str) -> bool) -> Option<&'a str> {
        let value = self.get(field)?;
        let text = value.as_str().filter(|text| fits(text));
        if text.is_none() && field == "body" {
            // Not repeated: it may be a login.
            self.problems.push(Problem::at(field, "is not allowed", right));
        } else if text.is_none() {
            self.wrong(field, value, right);
        }
        text
    }

    fn flag(&mut self, field: &str, default: bool) -> bool {
        let Some(value) = self.get(field) else { return default };
        value.as_bool().unwrap_or_else(|| {
            self.wrong(field, value, "give true or false");
            default
        })
    }

    /// A span; `None` if it is not there, or wrong.
    fn span(&mut self, field: &str, low: Duration, high: Duration) -> Option<Duration> {
        let value = self.get(field)?;
        let span = match value {
            Value::String(text) => parse_span(text),
            // The shortest decimal that means the number, so 0.1 is a hundred milliseconds.
            Value::Number(number) => parse_span(&format!("{number}s")),
            _ => None,
        };
        let fits = span.filter(|span| (low..=high).contains(span));
        if fits.is_none() {
            let high = if high == INTERVAL_MAX { "24h".to_owned() } else { tenths(high) };
            let right = match span {
                Some(_) => format!("give {} to {high}", write_span(low)),
                None => format!("give {} to {high}, such as \"10s\" or 10", write_span(low)),
            };
            self.wrong(field, value, right);
        }
        fits
    }

    fn id(&mut self) -> Option<String> {
        let right = "give 1 to 200 visible ASCII characters without spaces, \
             quotes and backslashes";
        if self.get("id").is_none() {
            self.missing("id", right);
        }
        self.text("id", right, is_name).map(str::to_owned)
    }

    fn interval(&mut self) -> Duration {
        self.span("interval", INTERVAL_MIN, INTERVAL_MAX).unwrap_or(INTERVAL)
    }

    fn timeout(&mut self, limits: Option<&Timing>) -> Duration {
        let ceiling = limits.map_or(INTERVAL_MAX, Timing::work_max);
        let default = TIMEOUT.min(ceiling);
        let Some(value) = self.get("timeout") else { return default };
        let Some(timeout) = self.span("timeout", TIMEOUT_MIN, INTERVAL_MAX) else { return default };
        if let Some(limits) = limits.filter(|_| timeout > ceiling) {
            let (most, needed) = (tenths(ceiling), tenths(limits.ttl_for(timeout)));
            let right = format!("give at most {most}, or set nodes.ttl to {needed} or more");
            let wrong = format!("is too long for nodes.ttl {}", tenths(limits.ttl));
            self.problems.push(Problem::with("timeout", value, right).wrong(wrong));
        }
        timeout
    }

    fn weight(&mut self) -> u32 {
        let Some(value) = self.get("weight") else { return 1 };
        let weight = value.as_u64().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
        if weight.is_none() {
            self.wrong("weight", value, format!("give 1 to {WEIGHT_MAX}"));
        }
        weight.map_or(1, |weight| weight as u32)
    }

    fn publish_to(&mut self) -> Option<String> {
        let right = "give the name of a queue, 1 to 200 visible ASCII characters";
        let fits = |text: &str| {
            (1..=ID_CHARS_MAX).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        self.text("publish_to", right, fits).map(str::to_owned)
    }

    /// An object of texts with at most so many entries.
    fn texts(&mut self, field: &str, most: usize) -> Vec<(&'a String, &'a str)> {
        let Some(value) = self.get(field) else { return Vec::new() };
        let Some(object) = value.as_object() else {
            let right = "give an object of texts, such as {\"name\": \"value\"}";
            // What was given instead may be a secret header.
            self.problems.push(Problem::at(field, "is not an object", right));
            return Vec::new();
        };
        if object.len() > most {
            let right = format!("give at most {most}");
            let wrong = format!("has {} entries", object.len());
            self.problems.push(Problem::at(field, &wrong, right));
            return Vec::new();
        }
        let mut texts = Vec::new();
        for (key, value) in object {
            match value.as_str() {
                Some(text) => texts.push((key, text)),
                None => {
                    let place = format!("{field}.{key}");
                    self.problems.push(Problem::at(&place, "is not a text", "give a text"));
                }
            }
        }
        texts
    }

    fn labels(&mut self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for (key, value) in self.texts("labels", LABELS_MAX) {
            let fits = |text: &str, low: usize, high: usize| {
                (low..=high).contains(&text.chars().count()) && !text.chars().any(char::is_control)
            };
            let place = format!("labels.{key}");
            if !fits(key, 1, LABEL_KEY_CHARS_MAX) {
                let right = format!("give a name of 1 to {LABEL_KEY_CHARS_MAX} characters");
                self.problems.push(Problem::at(&place, "has a name that is not allowed", right));
            }
            if !fits(value, 0, LABEL_VALUE_CHARS_MAX) {
                let right = format!("give at most {LABEL_VALUE_CHARS_MAX} characters");
                self.wrong(&place, &Value::from(value), right);
            }
            labels.insert(key.clone(), value.to_owned());
        }
        labels
    }

    fn target(&mut self) -> Option<Target> {
        let kind = self.kind()?;
        if self.strict {
            self.misplaced(kind);
        }
        match kind {
            Kind::Http | Kind::Https => self.http(kind).map(Target::Http),
            Kind::Tcp => Some(Target::Tcp { address: self.address()? }),
            Kind::Tls => {
                let right = "give a host's name or IP address";
                let server_name = self.text("server_name", right, is_server);
                let server_name = server_name.map(str::to_owned);
                let certificate = self.certificate();
                let address = self.address()?;
                // It is what the certificate is compared with, if no name is given.
                let host = crate::spec::split_address(&address).map(|(host, _)| host);
                if server_name.is_none() && !host.is_some_and(is_server) {
                    self.wrong("address", &Value::from(address), right);
                    return None;
                }
                Some(Target::Tls { address, server_name, certificate })
            }
        }
    }

    /// The kind that was written, or that of the url.
    fn kind(&mut self) -> Option<Kind> {
        let right = "give http, https, tcp or tls";
        let of_url = self.get("url").and_then(Value::as_str).and_then(scheme);
        match self.get("kind") {
            Some(value) => {
                let named = |kind: &Kind| value.as_str() == Some(kind.as_str());
                let kind = Kind::ALL.into_iter().find(named);
                if kind.is_none() {
                    self.wrong("kind", value, right);
                }
                kind
            }
            None if of_url.is_some() => of_url,
            None if self.get("url").is_some() => {
                // The url says what is wrong with it.
                let _ = self.url(None);
                None
            }
            None if self.get("address").is_some() => {
                self.missing("kind", "give tcp or tls");
                None
            }
            None => {
                self.missing("kind", "give http, https, tcp or tls, or a url");
                None
            }
        }
    }

    fn misplaced(&mut self, kind: Kind) {
        let (web, tls) = (matches!(kind, Kind::Http | Kind::Https), kind == Kind::Tls);
        let object = self.object;
        let given = |field: &str| object.get(field).is_some_and(|value| !value.is_null());
        let checks = [
            (FOR_WEB, web, "http and https"),
            (FOR_PORTS, !web, "tcp and tls; give url instead"),
            (FOR_TLS, tls, "tls"),
            (FOR_CERTIFICATES, tls || kind == Kind::Https, "https and tls"),
        ];
        for (fields, fits, kinds) in checks {
            for field in fields.iter().filter(|field| !fits && given(field)) {
                let wrong = format!("is not for kind {}", kind.as_str());
                let right = match *field {
                    "url" => "give address instead".to_owned(),
                    _ => format!("it is for kind {kinds}"),
                };
                self.problems.push(Problem::at(field, &wrong, right));
            }
        }
    }

    fn address(&mut self) -> Option<String> {
        let right = "give a host and a port, such as db.example:5432 or [::1]:5432";
        if self.get("address").is_none() {
            self.missing("address", right);
        }
        let fits = |text: &str| text.len() <= 300 && crate::spec::split_address(text).is_some();
        self.text("address", right, fits).map(str::to_owned)
    }

    fn url(&mut self, kind: Option<Kind>) -> Option<String> {
        let scheme_name = kind.map_or("http", Kind::as_str);
        let right = format!("give an address such as {scheme_name}://shop.example/health");
        let Some(value) = self.get("url") else {
            self.missing("url", right);
            return None;
        };
        let (Some(text), uri) = (value.as_str(), value.as_str().map(str::parse::<Uri>)) else {
            self.wrong("url", value, right);
            return None;
        };
        if text.len() > URL_BYTES_MAX {
            let right = format!("give at most {URL_BYTES_MAX} characters");
            self.wrong("url", value, right);
            return None;
        }
        let Some(Ok(uri)) = uri else {
            self.wrong("url", value, right + ", other characters as %XX");
            return None;
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            // Not repeated: it has a password in it.
            let right = "give them as the header Authorization";
            self.problems.push(Problem::at("url", "has a name and password", right));
            return None;
        }
        if self.strict && lacks_secrets(text) {
            self.problems.push(Problem::at("url", HIDES, "give the value itself"));
        }
        let found = scheme(text);
        if let (Some(kind), Some(found)) = (kind, found)
            && kind != found
        {
            let right = format!("give kind {}, or leave kind out", found.as_str());
            let wrong = format!("contradicts kind {}", kind.as_str());
            self.problems.push(Problem::with("url", value, right).wrong(wrong));
            return None;
        }
        let host = uri.host().map(bare).unwrap_or_default();
        let port = uri.authority().and_then(|authority| authority.as_str().rsplit_once(':'));
        let port_fits = match port {
            Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok_and(|p| p > 0),
            _ => true,
        };
        if found.is_none() || !is_host(host) || !port_fits {
            self.wrong("url", value, right);
            return None;
        }
        if found == Some(Kind::Https) && !is_server(host) {
            self.wrong("url", value, "give a host that can have a certificate");
            return None;
        }
        Some(text.to_owned())
    }

    fn http(&mut self, kind: Kind) -> Option<Http> {
        let url = self.url(Some(kind));
        let method = self.method();
        let headers = self.headers();
        let right = "give a text of at most 64 KiB";
        let body = self.text("body", right, |body| body.len() <= BODY_BYTES_MAX);
        if self.strict && body == Some(HIDDEN) {
            self.problems.push(Problem::at("body", HIDES, "give the body itself, or none"));
        }
        let expect = self.expect(&method);
        let certificate = (kind == Kind::Https).then(|| self.certificate());
        let body = body.map(str::to_owned);
        Some(Http { url: url?, method, headers, body, expect, certificate })
    }

    fn method(&mut self) -> String {
        let right = "give GET, HEAD, POST or another method of letters, but not CONNECT";
        let fits = |method: &str| {
            (1..=20).contains(&method.len())
                && method.bytes().all(|byte| byte.is_ascii_alphabetic())
                && !method.eq_ignore_ascii_case(Method::CONNECT.as_str())
        };
        self.text("method", right, fits).unwrap_or("GET").to_ascii_uppercase()
    }

    fn headers(&mut self) -> Headers {
        let mut headers = BTreeMap::new();
        let mut names: Vec<HeaderName> = Vec::new();
        for (key, text) in self.texts("headers", HEADERS_MAX) {
            let place = format!("headers.{}", shortened(key));
            // A value is never repeated in a message, because it may be a secret.
            let problem = |wrong: &str, right: &str| Problem::at(&place, wrong, right);
            let Ok(name) = key.parse::<HeaderName>() else {
                let right = "give letters, digits and hyphens";
                self.problems.push(problem("is not the name of a header", right));
                continue;
            };
            let closing = name == "connection" && !text.eq_ignore_ascii_case("close");
            if names.contains(&name) {
                let right = "capitals make no difference, give it once";
                self.problems.push(problem("is there twice", right));
            } else if FRAMING.contains(&name.as_str()) || closing {
                self.problems.push(problem("is not for you to set", "leave it out"));
            } else if HeaderValue::from_str(text).is_err() || text.len() > HEADER_BYTES_MAX {
                let right = "give at most 8 KiB of text without line breaks";
                self.problems.push(problem("has a value that is not allowed", right));
            } else if text == HIDDEN && is_secret(key) {
                let right = "give the value itself";
                self.problems.push(problem(HIDES, right));
            }
            names.push(name);
            headers.insert(key.clone(), text.to_owned());
        }
        Headers(headers)
    }

    fn expect(&mut self, method: &str) -> Expect {
        let Some(value) = self.get("expect") else { return Expect::default() };
        let Some(object) = value.as_object() else {
            self.wrong("expect", value, "give an object, such as {\"status\": 200}");
            return Expect::default();
        };
        self.known(object, "expect.", &["status", "body"]);
        let mut expect = Expect::default();
        if let Some(value) = object.get("status").filter(|value| !value.is_null()) {
            match Statuses::read(value) {
                Some(statuses) => expect.status = statuses,
                None => self.wrong("expect.status", value, status::RIGHT),
            }
        }
        if let Some(value) = object.get("body").filter(|value| !value.is_null()) {
            let fits = |text: &&str| (1..=EXPECTED_BYTES_MAX).contains(&text.len());
            expect.body = value.as_str().filter(fits).map(str::to_owned);
            if expect.body.is_none() {
                self.wrong("expect.body", value, "give a text of 1 byte to 4 KiB");
            } else if method == "HEAD" {
                let right = "give another method, or leave expect.body out";
                let wrong = "cannot be found in the answer to HEAD";
                self.problems.push(Problem::with("expect.body", value, right).wrong(wrong));
            }
        }
        expect
    }

    fn certificate(&mut self) -> Certificate {
        let verify = self.flag("verify", true);
        let expires_in = self.span("expires_in", Duration::ZERO, EXPIRES_IN_MAX);
        Certificate { verify, expires_in: expires_in.unwrap_or_default() }
    }
}

fn scheme(url: &str) -> Option<Kind> {
    let (scheme, _) = url.split_once("://")?;
    [Kind::Http, Kind::Https].into_iter().find(|kind| scheme.eq_ignore_ascii_case(kind.as_str()))
}

/// Host and port of an address; the host without brackets.
pub(crate) fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| digits && *port > 0)?;
    let inner = bare(host);
    let whole = inner.len() < host.len() || !host.contains(':');
    (whole && is_host(inner)).then_some((inner, port))
}

/// A host without the brackets of an IPv6 address.
pub(crate) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Whether this is an IP address or may be a name.
fn is_host(host: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let named = (1..=253).contains(&host.len()) && host.bytes().all(of_name);
    named || host.parse::<std::net::Ipv6Addr>().is_ok()
}

fn is_server(host: &str) -> bool {
    ServerName::try_from(host).is_ok()
}

/// 1 to 200 visible ASCII characters that need no escaping anywhere.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\".contains(&byte);
    (1..=ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// A span for a message: whole units, or seconds with one digit, rounded down.
fn tenths(span: Duration) -> String {
    let tenths = span.as_millis() / 100;
    match span.as_millis().is_multiple_of(1_000) || tenths < 10 {
        true => write_span(span),
        false => format!("{}.{}s", tenths / 10, tenths % 10),
    }
}
