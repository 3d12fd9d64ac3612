//! A worker's address.

use hyper::Uri;
use skep_dial::Dialler;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use tokio::net::TcpStream;

/// Longer ones are refused.
const LENGTH_MAX: usize = 2_048;

/// `ws://HOST:PORT/PATH` or `http://…`, checked.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkerUrl {
    authority: String,
    host: String,
    port: u16,
    address: Option<SocketAddr>,
    path: String,
    query: Option<String>,
}

/// Why a text is no address of a worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("url: {value} is not allowed: {why}; give ws://HOST:PORT/PATH")]
pub struct WorkerUrlError {
    value: String,
    why: &'static str,
}

impl WorkerUrl {
    /// `HOST:PORT`, as it stands in the URL. The path may be a secret, this is not.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 80 if none was given.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection to the worker.
    pub(crate) async fn connect(&self, dialler: &Dialler) -> io::Result<TcpStream> {
        match self.address {
            Some(address) => dialler.connect(address).await,
            None => dialler.connect_by_name(&self.host, self.port).await,
        }
    }

    /// The path and query of a client's request at this worker.
    pub(crate) fn join(&self, path: &str, query: &str) -> String {
        let path = if path == "/" && !self.path.is_empty() { "" } else { path };
        let mut joined = format!("{}{path}", self.path);
        let queries = [self.query.as_deref().unwrap_or_default(), query];
        for (query, mark) in queries.into_iter().filter(|one| !one.is_empty()).zip(['?', '&']) {
            joined.push(mark);
            joined.push_str(query);
        }
        joined
    }
}

impl FromStr for WorkerUrl {
    type Err = WorkerUrlError;

    fn from_str(text: &str) -> Result<Self, WorkerUrlError> {
        let error = |why| WorkerUrlError { value: crate::refusals::shown(text), why };
        if text.len() > LENGTH_MAX {
            return Err(error("it is longer than 2048 bytes"));
        }
        let uri: Uri = text.parse().map_err(|_| error("it is no URL"))?;
        match uri.scheme_str() {
            Some("ws" | "http") => {}
            Some("wss" | "https") => return Err(error("workers are spoken to without TLS")),
            Some(_) => return Err(error("it is neither ws:// nor http://")),
            None => return Err(error("it does not begin with ws://")),
        }
        let authority = uri.authority().ok_or_else(|| error("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(error("it names a user"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(error("it names no host"));
        }
        let port = match (authority.port_u16(), authority.as_str().ends_with(authority.host())) {
            (Some(0), _) | (None, false) => return Err(error("its port is not 1 to 65535")),
            (Some(port), _) => port,
            (None, true) => 80,
        };
        let address = host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port));
        Ok(WorkerUrl {
            authority: authority.as_str().to_owned(),
            host,
            port,
            address,
            path: uri.path().trim_end_matches('/').to_owned(),
            query: uri.query().filter(|query| !query.is_empty()).map(str::to_owned),
        })
    }
}

impl fmt::Display for WorkerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ws://{}{}", self.authority, self.join("/", ""))
    }
}

impl fmt::Debug for WorkerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> WorkerUrl {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn wrong(text: &str) -> String {
        text.parse::<WorkerUrl>().expect_err(text).to_string()
    }

    #[test]
    fn an_address_is_read_and_a_name_is_left_to_be_looked_up() {
        let worker = url("ws://127.0.0.1:9001/abc");
        assert_eq!(worker.address, Some(SocketAddr::from(([127, 0, 0, 1], 9_001))));
        assert_eq!(worker.to_string(), "ws://127.0.0.1:9001/abc");
        let named = url("http://browsers.internal");
        assert_eq!((named.host(), named.port(), named.address), ("browsers.internal", 80, None));
        assert_eq!(url("ws://[::1]:9001").host(), "::1");
        assert!(url("ws://[::1]:9001").address.is_some());
    }

    #[test]
    fn the_clients_path_and_query_come_after_the_workers() {
        assert_eq!(url("ws://w:1").join("/", ""), "/");
        assert_eq!(url("ws://w:1/").join("/x", "a=1"), "/x?a=1");
        assert_eq!(url("ws://w:1/abc").join("/", ""), "/abc");
        assert_eq!(url("ws://w:1/abc/").join("/x/y", ""), "/abc/x/y");
        assert_eq!(url("ws://w:1/abc?k=v").join("/", "a=1"), "/abc?k=v&a=1");
        assert_eq!(url("ws://w:1/abc?k=v").join("/", ""), "/abc?k=v");
    }

    #[test]
    fn what_is_no_address_of_a_worker_is_refused_with_the_reason() {
        assert_eq!(
            wrong("wss://w:1/"),
            "url: \"wss://w:1/\" is not allowed: workers are spoken to without TLS; \
             give ws://HOST:PORT/PATH"
        );
        assert!(wrong("w:1/x").contains("is not allowed"));
        assert!(wrong("ftp://w:1/").contains("neither ws:// nor http://"));
        assert!(wrong("ws://me@w:1/").contains("names a user"));
        assert!(wrong("ws://w:0/").contains("port"));
        assert!(wrong("ws://w:99999/").contains("is not allowed"));
        assert!(wrong("ws://w:1/a b").contains("no URL"));
        assert!(wrong("ws://w:1/\r\nx: y").contains("no URL"));
        assert!(wrong(&format!("ws://w:1/{}", "x".repeat(3_000))).contains("longer than 2048"));
    }
}
