//! An endpoint made ready, so that a poll parses nothing.

use super::needle::Needle;
use crate::spec::{Certificate, Http, Spec, Statuses, Target, bare, split_address};
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Uri};
use rustls::pki_types::ServerName;
use skep_policy::secrets::is_secret;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("skep/", env!("CARGO_PKG_VERSION")));

/// An endpoint made ready: made once, polled many times. Cheap to clone.
#[derive(Clone)]
pub struct Prepared(pub(super) Arc<Ready>);

impl std::fmt::Debug for Prepared {
    // Its headers may be secret, and all it is made of is in the spec anyway.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Prepared").field(&self.0.place.key).finish()
    }
}

/// Why an endpoint cannot be polled. Those that were checked when they were written can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} cannot be polled as it is written")]
pub struct PrepareError(&'static str);

pub(super) struct Ready {
    pub timeout: Duration,
    pub place: Place,
    pub ask: Ask,
}

/// Where to connect to, and how.
pub(super) struct Place {
    pub host: Host,
    pub tls: Option<(ServerName<'static>, Certificate)>,
    /// Whether HTTP will be spoken.
    pub web: bool,
    pub key: Arc<Key>,
}

pub(super) enum Host {
    Ip(IpAddr),
    Name(Arc<str>),
}

/// What two polls must have in common to share a connection.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub host: Box<str>,
    pub port: u16,
    /// For TLS, whether the certificate is checked: a connection that was made without does not
    /// serve a poll that asks for it.
    pub verify: Option<bool>,
}

pub(super) enum Ask {
    /// Connecting, and the handshake if there is one, is all.
    Port,
    Web(Box<Question>),
}

pub(super) struct Question {
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub status: Statuses,
    pub needle: Option<Needle>,
}

impl Prepared {
    pub(super) fn new(spec: &Spec) -> Result<Self, PrepareError> {
        let (place, ask) = match &spec.target {
            Target::Http(http) => web(http)?,
            Target::Tcp { address } => (place(address, None, None)?, Ask::Port),
            Target::Tls { address, server_name, certificate } => {
                let name = server_name.as_deref();
                (place(address, name, Some(*certificate))?, Ask::Port)
            }
        };
        Ok(Prepared(Arc::new(Ready { timeout: spec.timeout, place, ask })))
    }
}

fn place(
    address: &str,
    server_name: Option<&str>,
    certificate: Option<Certificate>,
) -> Result<Place, PrepareError> {
    let (host, port) = split_address(address).ok_or(PrepareError("the address"))?;
    at(host, port, server_name.unwrap_or(host), certificate)
}

fn at(
    host: &str,
    port: u16,
    server_name: &str,
    certificate: Option<Certificate>,
) -> Result<Place, PrepareError> {
    let tls = certificate.map(|certificate| {
        let name = ServerName::try_from(server_name.to_owned());
        name.map(|name| (name, certificate)).map_err(|_| PrepareError("the server's name"))
    });
    let verify = certificate.map(|certificate| certificate.verify);
    let key = Arc::new(Key { host: host.to_ascii_lowercase().into(), port, verify });
    // DNS is for names alone.
    let host = match host.parse() {
        Ok(ip) => Host::Ip(ip),
        Err(_) => Host::Name(host.into()),
    };
    Ok(Place { host, tls: tls.transpose()?, web: false, key })
}

fn web(http: &Http) -> Result<(Place, Ask), PrepareError> {
    let wrong = PrepareError("the url");
    let uri: Uri = http.url.parse().map_err(|_| wrong.clone())?;
    let host = uri.host().map(bare).ok_or(wrong.clone())?;
    let port = uri.port_u16().unwrap_or(if http.certificate.is_some() { 443 } else { 80 });
    let place = Place { web: true, ..at(host, port, host, http.certificate)? };
    let authority = uri.authority().ok_or(wrong.clone())?.as_str();
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(authority).map_err(|_| wrong.clone())?);
    headers.insert(USER_AGENT, AGENT);
    for (name, value) in http.headers.as_map() {
        let wrong = PrepareError("a header");
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong.clone())?;
        value.set_sensitive(is_secret(name));
        headers.insert(name.parse::<HeaderName>().map_err(|_| wrong)?, value);
    }
    let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    let question = Question {
        method: http.method.parse().map_err(|_| PrepareError("the method"))?,
        uri: Uri::from(path),
        headers,
        body: Bytes::from(http.body.clone().unwrap_or_default()),
        status: http.expect.status.clone(),
        needle: http.expect.body.as_deref().map(Needle::new),
    };
    Ok((place, Ask::Web(Box::new(question))))
}
