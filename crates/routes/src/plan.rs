//! What is to be done with a request: decided from its head, in one go, while it is in memory.

use crate::http1::body::Framing;
use crate::http1::buffer::{give_head, take_head};
use crate::http1::fields::{self, Known};
use crate::http1::request::{self, Request};
use crate::http1::response::Response;
use crate::moment::Moment;
use crate::options::ProxyOptions;
use crate::rate::By;
use crate::refusal::{Refusal, codes};
use crate::request_id;
use crate::route::{Live, Route};
use skep_policy::routes::retry::Class;
use std::borrow::Cow;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

/// The beginning of an HTTP/2 connection, as far as it can be told from a request.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// Where a connection comes from and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub peer: IpAddr,
    /// The same as text, which every request needs.
    pub name: Arc<str>,
    pub encrypted: bool,
    /// `2` if HTTP/2 is spoken with the client and this is one stream of it.
    pub protocol: Option<&'static str>,
}

impl Origin {
    pub fn new(peer: IpAddr, encrypted: bool) -> Self {
        let peer = peer.to_canonical();
        Origin { peer, name: Arc::from(peer.to_string()), encrypted, protocol: None }
    }

    fn scheme(&self) -> &'static str {
        if self.encrypted { "https" } else { "http" }
    }
}

/// What is to be done.
pub(crate) enum Plan {
    /// The head is not all there yet.
    More,
    /// It belongs to no route.
    NotOurs,
    /// It is no HTTP/1 at all.
    Http2,
    /// It is answered here.
    Refuse(Box<Refused>),
    /// It goes to an upstream.
    Forward(Box<Job>),
}

/// A request that is answered here.
pub(crate) struct Refused {
    pub refusal: Refusal,
    pub route: Option<Arc<Route>>,
    pub meta: Meta,
    /// Where to go instead.
    pub location: Option<String>,
    /// Bytes of the head, if the connection can go on after it.
    pub goes_on: Option<usize>,
}

/// What is told of a request.
#[derive(Default)]
pub(crate) struct Meta {
    pub method: Cow<'static, str>,
    pub host: Box<str>,
    pub path: Box<str>,
    pub request_id: Box<str>,
    pub protocol: &'static str,
    pub address: Option<IpAddr>,
}

/// A request for an upstream.
pub(crate) struct Job {
    pub route: Arc<Route>,
    pub meta: Meta,
    pub class: Class,
    /// The target, and from `fields_at` on the fields without Host.
    text: Vec<u8>,
    fields_at: usize,
    /// As the client said it, with its port.
    host: Box<str>,
    pub framing: Framing,
    /// Bytes of the head.
    pub length: usize,
    pub keeps_alive: bool,
    pub is_old: bool,
    pub to_head: bool,
    pub upgrade: bool,
    /// Whether it waits to be told to send its body.
    pub expects: bool,
}

/// Looks at what has come of a request.
pub(crate) fn plan(
    bytes: &[u8],
    origin: &Origin,
    live: &Live,
    options: &ProxyOptions,
    moment: &Moment,
) -> Plan {
    if bytes.starts_with(PREFACE) && origin.protocol.is_none() {
        return Plan::Http2;
    }
    let mut room = request::room();
    let request = match request::parse(bytes, &mut room) {
        Ok(Some(request)) => request,
        Ok(None) => return Plan::More,
        Err(refusal) => return Plan::Refuse(Box::new(Refused::unread(refusal, origin))),
    };
    let Some(route) = live.find(request.host, request.path) else { return Plan::NotOurs };
    let address = client_address(&request, origin, options);
    let meta = Meta::of(&request, origin, address);
    match admit(&request, origin, route, address, moment) {
        Err((refusal, location)) => {
            // What is not read of its body would be taken for the next request.
            let whole = request.framing == Framing::Empty && request.keeps_alive();
            let goes_on = whole.then_some(request.length);
            let route = Some(route.clone());
            Plan::Refuse(Box::new(Refused { refusal, route, meta, location, goes_on }))
        }
        Ok(()) => {
            let job = Job::new(&request, origin, route.clone(), meta, options);
            Plan::Forward(Box::new(job))
        }
    }
}

/// Whether the route lets it through.
fn admit(
    request: &Request<'_, '_>,
    origin: &Origin,
    route: &Route,
    address: IpAddr,
    moment: &Moment,
) -> Result<(), (Refusal, Option<String>)> {
    if route.redirects && !origin.encrypted {
        let host = host_without_port(request.host);
        let location = format!("https://{host}{}{}", request.path, request.query);
        let message = format!("ask for {location}");
        return Err((codes::E_TLS_NEEDED.because(message), Some(location)));
    }
    if let Some(maintenance) = &route.maintenance {
        let refusal = codes::E_MAINTENANCE.because("the route is closed for a while");
        let retry_after = maintenance.retry_after;
        return Err((Refusal { status: maintenance.status, retry_after, ..refusal }, None));
    }
    if let Some(rate) = &route.rate {
        let named = |name: &str| {
            let field = request.fields.iter().find(|one| one.name.eq_ignore_ascii_case(name));
            field.map(|field| field.value)
        };
        let shown = match &rate.by {
            By::Address => None,
            By::Key => named("authorization").or_else(|| named("x-api-key")),
            By::Field(name) => named(name),
        };
        if let Some(wait) = rate.ask(moment.now(), address, shown) {
            let refusal = codes::E_RATE_LIMITED.because("ask again later, or less often");
            return Err((refusal.retry_after(wait), None));
        }
    }
    match request.framing {
        Framing::Length(length) if length > route.body_max => {
            let (name, most) = (&route.name, route.body_max);
            let message = format!("it has {length} bytes; route {name} takes {most} at most");
            Err((codes::E_PROXY_BODY_TOO_LARGE.because(message), None))
        }
        _ => Ok(()),
    }
}

/// Where the request comes from: the last address in the chain that is not a proxy of ours.
fn client_address(request: &Request<'_, '_>, origin: &Origin, options: &ProxyOptions) -> IpAddr {
    let trusted = |address| options.trusted.iter().any(|network| network.contains(address));
    if options.trusted.is_empty() || !trusted(origin.peer) {
        return origin.peer;
    }
    let mut address = origin.peer;
    let chains =
        request.fields.iter().rev().filter(|one| Known::of(one.name) == Known::ForwardedFor);
    for chain in chains {
        let Ok(chain) = std::str::from_utf8(chain.value) else { return address };
        for hop in chain.rsplit(',') {
            let Ok(hop) = hop.trim().parse() else { return address };
            address = hop;
            if !trusted(address) {
                return address;
            }
        }
    }
    address
}

impl Refused {
    /// A request that could not be read, or did not come to the end of its head.
    pub fn unread(refusal: Refusal, origin: &Origin) -> Self {
        let protocol = origin.protocol.unwrap_or("1.1");
        let request_id = request_id::fresh();
        let meta = Meta { protocol, request_id, address: Some(origin.peer), ..Meta::default() };
        Refused { refusal, route: None, meta, location: None, goes_on: None }
    }
}

impl Meta {
    fn of(request: &Request<'_, '_>, origin: &Origin, address: IpAddr) -> Self {
        let own = if request.is_old { "1.0" } else { "1.1" };
        let given = request.fields.iter().find(|one| Known::of(one.name) == Known::RequestId);
        let given = given.filter(|given| request_id::is_sound(given.value));
        let given = given.and_then(|given| std::str::from_utf8(given.value).ok());
        Meta {
            method: known_method(request.method),
            host: host_without_port(request.host).into(),
            path: request.path.into(),
            request_id: given.map_or_else(request_id::fresh, Box::from),
            protocol: origin.protocol.unwrap_or(own),
            address: Some(address),
        }
    }
}

fn host_without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
    }
}

fn known_method(method: &str) -> Cow<'static, str> {
    let known = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"];
    let known = known.into_iter().find(|known| *known == method);
    known.map_or_else(|| Cow::Owned(method.to_owned()), Cow::Borrowed)
}

impl Job {
    fn new(
        request: &Request<'_, '_>,
        origin: &Origin,
        route: Arc<Route>,
        meta: Meta,
        options: &ProxyOptions,
    ) -> Self {
        let mut text = take_head();
        let path = &request.path[route.cut.min(request.path.len())..];
        if !path.starts_with('/') {
            text.push(b'/');
        }
        text.extend_from_slice(path.as_bytes());
        text.extend_from_slice(request.query.as_bytes());
        let fields_at = text.len();
        let mut job = Job {
            class: Class::of(request.method.as_bytes()),
            host: request.host.into(),
            framing: request.framing,
            length: request.length,
            keeps_alive: request.keeps_alive(),
            is_old: request.is_old,
            to_head: request.method == "HEAD",
            upgrade: request.upgrade,
            expects: request.expects,
            route,
            meta,
            text,
            fields_at,
        };
        job.write_fields(request, origin, options);
        job
    }

    fn write_fields(&mut self, request: &Request<'_, '_>, origin: &Origin, options: &ProxyOptions) {
        let rules = &self.route.request_rules;
        let believed = options.trusted.iter().any(|network| network.contains(origin.peer));
        let out = &mut self.text;
        let (mut chain, mut proto, mut host, mut forwarded) = (None, None, None, None);
        for field in request.fields {
            match Known::of(field.name) {
                Known::Other if request.connection.names(field.name) || rules.drops(field.name) => {
                }
                // Some upstreams take `_` for `-`, and would believe a client's `X_Forwarded_For`.
                Known::Other if fields::is_disguised(field.name) => {}
                Known::Other => fields::write(out, field.name, field.value),
                Known::Upgrade if request.upgrade => fields::write(out, "upgrade", field.value),
                Known::ForwardedFor if believed => chain = Some(join(chain, field.value)),
                Known::ForwardedProto if believed => proto = Some(field.value),
                Known::ForwardedHost if believed => host = Some(field.value),
                Known::Forwarded if believed => forwarded = Some(join(forwarded, field.value)),
                _ => {}
            }
        }
        out.extend_from_slice(rules.added());
        write_chain(out, "x-forwarded-for", chain.as_deref(), &[&origin.name]);
        fields::write(out, "x-forwarded-proto", proto.unwrap_or(origin.scheme().as_bytes()));
        fields::write(out, "x-forwarded-host", host.unwrap_or(request.host.as_bytes()));
        let (open, close) = if origin.peer.is_ipv4() { ("for=", "") } else { ("for=\"[", "]\"") };
        let hop =
            [open, &origin.name, close, ";host=\"", request.host, "\";proto=", origin.scheme()];
        write_chain(out, "forwarded", forwarded.as_deref(), &hop);
        fields::write(out, "x-request-id", self.meta.request_id.as_bytes());
        if request.upgrade {
            out.extend_from_slice(b"connection: upgrade\r\n");
        }
        if request.expects {
            out.extend_from_slice(b"expect: 100-continue\r\n");
        }
        match request.framing {
            Framing::Length(length) => {
                // Writing to memory cannot fail.
                let _ = write!(out, "content-length: {length}\r\n");
            }
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            // A POST without a body says so.
            Framing::Empty if matches!(request.method, "POST" | "PUT" | "PATCH") => {
                out.extend_from_slice(b"content-length: 0\r\n");
            }
            Framing::Empty | Framing::UntilClose => {}
        }
    }

    /// The whole head for an upstream with this address, whose paths begin with `base`.
    pub fn write_head(&self, address: &str, base: &str, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.meta.method.as_bytes());
        out.push(b' ');
        out.extend_from_slice(base.trim_end_matches('/').as_bytes());
        out.extend_from_slice(&self.text[..self.fields_at]);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        fields::write(out, "host", self.route.host_for(&self.host, address).as_bytes());
        out.extend_from_slice(&self.text[self.fields_at..]);
        out.extend_from_slice(b"\r\n");
    }

    /// Whether the client knows the end of an answer by the end of its connection alone.
    pub fn ends_with_connection(&self, framing: Framing) -> bool {
        matches!(framing, Framing::Chunked | Framing::UntilClose) && !self.wants_chunks(framing)
    }

    /// Whether an answer can be framed in chunks for the client.
    pub fn wants_chunks(&self, framing: Framing) -> bool {
        !self.is_old && matches!(framing, Framing::Chunked | Framing::UntilClose)
    }

    /// The head of an answer as the client gets it.
    pub fn write_answer(&self, answer: &Response<'_, '_>, closes: bool, out: &mut Vec<u8>) {
        let rules = &self.route.response_rules;
        out.clear();
        out.extend_from_slice(b"HTTP/1.1 ");
        let status = answer.status;
        let digits = [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
        out.extend_from_slice(&digits);
        out.push(b' ');
        out.extend_from_slice(answer.reason.as_bytes());
        out.extend_from_slice(b"\r\n");
        let switches = status == 101;
        for field in answer.fields {
            match Known::of(field.name) {
                Known::Connection | Known::Hop | Known::TransferEncoding => {}
                Known::RequestId => {}
                Known::Upgrade if !switches => {}
                Known::ContentLength if status < 200 || status == 204 => {}
                Known::ContentLength | Known::Upgrade => {
                    fields::write(out, field.name, field.value);
                }
                _ if answer.connection.names(field.name) || rules.drops(field.name) => {}
                _ => fields::write(out, field.name, field.value),
            }
        }
        out.extend_from_slice(rules.added());
        fields::write(out, "x-request-id", self.meta.request_id.as_bytes());
        if self.wants_chunks(answer.framing) {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        if switches {
            out.extend_from_slice(b"connection: upgrade\r\n");
        } else if closes {
            out.extend_from_slice(b"connection: close\r\n");
        } else if self.is_old {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        give_head(std::mem::take(&mut self.text));
    }
}

/// Writes a field that lists everybody on the way, ourselves last.
fn write_chain(out: &mut Vec<u8>, name: &str, before: Option<&str>, own: &[&str]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    if let Some(before) = before {
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(b", ");
    }
    for part in own {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

fn join(before: Option<String>, more: &[u8]) -> String {
    let more = String::from_utf8_lossy(more);
    match before {
        Some(before) => format!("{before}, {more}"),
        None => more.into_owned(),
    }
}
