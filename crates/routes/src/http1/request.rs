//! The head of a request, read so that nobody behind can read it differently.

use super::FIELDS_MAX;
use super::body::{Framing, Unframed, collect};
use super::fields::{Connection, Known, lines_are_clean};
use crate::refusal::{Refusal, codes};
use httparse::{Header, Status};
use std::mem::MaybeUninit;

/// A host and its port, at most.
const HOST_MAX: usize = 300;

/// Room for the fields of one head.
pub(crate) type Room<'b> = [MaybeUninit<Header<'b>>; FIELDS_MAX];

/// Room that nothing was written to yet.
pub(crate) fn room<'b>() -> Room<'b> {
    [const { MaybeUninit::uninit() }; FIELDS_MAX]
}

/// The head of a request.
#[derive(Debug)]
pub(crate) struct Request<'h, 'b> {
    pub method: &'b str,
    /// Without scheme and host, as it goes on; never empty.
    pub path: &'b str,
    /// With its question mark; empty if there is none.
    pub query: &'b str,
    /// With its port; empty if an old client names none.
    pub host: &'b str,
    /// Whether it speaks HTTP/1.0.
    pub is_old: bool,
    pub fields: &'h [Header<'b>],
    pub connection: Connection<'b>,
    pub framing: Framing,
    /// Whether it wants to speak another protocol.
    pub upgrade: bool,
    /// Whether it waits to be told to send its body.
    pub expects: bool,
    /// Bytes of the head.
    pub length: usize,
}

impl Request<'_, '_> {
    /// Whether the connection may serve another one after it.
    pub fn keeps_alive(&self) -> bool {
        !self.connection.close && (!self.is_old || self.connection.keep_alive)
    }
}

/// Reads a head; `None` if it is not all there yet.
pub(crate) fn parse<'h, 'b>(
    bytes: &'b [u8],
    room: &'h mut Room<'b>,
) -> Result<Option<Request<'h, 'b>>, Refusal> {
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(bytes, room) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let message = format!("it has more than {FIELDS_MAX} header fields");
            return Err(codes::E_HEAD_TOO_LARGE.because(message));
        }
        Err(httparse::Error::Version) => {
            let message = "the version is not HTTP/1.0 or HTTP/1.1";
            return Err(codes::E_PROTOCOL_UNSUPPORTED.because(message));
        }
        Err(error) => return Err(bad(describe(error))),
    };
    if !lines_are_clean(&bytes[..length]) {
        return Err(bad("a line does not end with CR LF"));
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(bad("it has no method, target or version"));
    };
    let is_old = version == 0;
    let fields: &'h [Header<'b>] = parsed.headers;
    let (declared, connection) = collect(fields).map_err(unframed)?;
    let framing = match (declared.chunked, declared.length) {
        (true, _) if is_old => return Err(bad("HTTP/1.0 has no Transfer-Encoding")),
        (true, _) => Framing::Chunked,
        (false, Some(length)) if length > 0 => Framing::Length(length),
        (false, _) => Framing::Empty,
    };
    let (path, query, named) = read_target(method, target)?;
    let mut request = Request {
        method,
        path,
        query,
        host: "",
        is_old,
        fields,
        connection,
        framing,
        upgrade: false,
        expects: false,
        length,
    };
    request.read_fields(named)?;
    Ok(Some(request))
}

impl<'b> Request<'_, 'b> {
    fn read_fields(&mut self, named: Option<&'b str>) -> Result<(), Refusal> {
        let (mut host, mut tunnels_requests) = (None, false);
        for field in self.fields {
            match Known::of(field.name) {
                Known::Host if host.is_some() => return Err(bad("there is more than one Host")),
                Known::Host => host = Some(read_host(field.value)?),
                Known::Upgrade => {
                    self.upgrade = self.connection.upgrade && !self.is_old;
                    tunnels_requests |= names_h2c(field.value);
                }
                Known::Expect if !field.value.eq_ignore_ascii_case(b"100-continue") => {
                    let message = "the only expectation that can be met is 100-continue";
                    return Err(codes::E_EXPECTATION.because(message));
                }
                Known::Expect => self.expects = !self.is_old,
                _ => {}
            }
        }
        // Requests in a tunnel would pass by every rule of the route.
        self.upgrade &= !tunnels_requests;
        if host.is_none() && !self.is_old {
            return Err(bad("there is no Host"));
        }
        // What the target names counts, whatever Host says.
        self.host = named.or(host).unwrap_or_default();
        if self.upgrade && self.framing != Framing::Empty {
            return Err(bad("a request for another protocol cannot have a body"));
        }
        Ok(())
    }
}

/// Whether `Upgrade` offers HTTP/2, as one of its words.
fn names_h2c(value: &[u8]) -> bool {
    let mut words = value.split(|byte| matches!(byte, b',' | b' ' | b'\t' | b'/'));
    words.any(|word| word.eq_ignore_ascii_case(b"h2c") || word.eq_ignore_ascii_case(b"h2"))
}

/// Path, query, and the host if the target names one.
fn read_target<'b>(
    method: &str,
    target: &'b str,
) -> Result<(&'b str, &'b str, Option<&'b str>), Refusal> {
    if method == "CONNECT" {
        let message = "CONNECT asks for a tunnel to anywhere, which is not given here";
        return Err(codes::E_METHOD_UNSUPPORTED.because(message));
    }
    let forbidden = |byte: &u8| !(0x21..=0x7e).contains(byte) || matches!(byte, b'#' | b'\\');
    if target.as_bytes().iter().any(forbidden) {
        return Err(bad("the target has a character that must be percent-encoded"));
    }
    let (rest, named) = if target.starts_with('/') {
        (target, None)
    } else {
        let (authority, rest) = split_absolute(target)
            .ok_or_else(|| bad("the target is neither a path nor an http address"))?;
        (rest, Some(read_host(authority.as_bytes())?))
    };
    let (path, query) = match rest.find('?') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    if has_dot_segment(path) {
        return Err(bad("the path has a segment `.` or `..`; whoever asks must resolve it"));
    }
    Ok((if path.is_empty() { "/" } else { path }, query, named))
}

fn split_absolute(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    (known && !authority.is_empty()).then_some((authority, rest))
}

/// Whether a path goes up or stays, plainly or encoded: prefixes of routes would mean nothing then.
fn has_dot_segment(path: &str) -> bool {
    // Slashes too: some upstreams decode them before they look for segments.
    const ENCODED: [(&str, &str); 3] = [("%2e", "."), ("%2f", "/"), ("%5c", "/")];
    if !path.contains("/.") && !path.contains('%') {
        return false;
    }
    let lower = path.to_ascii_lowercase();
    let plain = ENCODED.iter().fold(lower, |path, (from, to)| path.replace(from, to));
    plain.split('/').any(|segment| segment == "." || segment == "..")
}

fn read_host(value: &[u8]) -> Result<&str, Refusal> {
    let legal = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
    };
    let host = std::str::from_utf8(value).ok();
    host.filter(|host| host.len() <= HOST_MAX && value.iter().all(legal))
        .ok_or_else(|| bad("Host is no name and port"))
}

fn bad(message: &str) -> Refusal {
    codes::E_REQUEST_INVALID.because(message)
}

fn unframed(why: Unframed) -> Refusal {
    match why {
        Unframed::Ambiguous(message) => bad(message),
        Unframed::Unknown => {
            let message = "the only Transfer-Encoding known here is `chunked`, alone";
            codes::E_ENCODING_UNSUPPORTED.because(message)
        }
    }
}

fn describe(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header field has a name that is none",
        httparse::Error::HeaderValue => "a header field has a character that may not be there",
        httparse::Error::NewLine => "a line does not end with CR LF",
        _ => "it is not HTTP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(head: &str) -> u16 {
        match parse(head.as_bytes(), &mut room()) {
            Err(refusal) => refusal.status,
            Ok(read) => panic!("{head:?} was read as {read:?}"),
        }
    }

    fn with<T>(head: &str, look: impl FnOnce(Request<'_, '_>) -> T) -> T {
        let mut room = room();
        look(parse(head.as_bytes(), &mut room).expect("is good").expect("is whole"))
    }

    #[test]
    fn a_head_is_read_with_everything_that_matters() {
        let head = "POST /a/b?c=d HTTP/1.1\r\nHost: Shop.example:8080\r\nContent-Length: 5\r\n\
                    Connection: x-a\r\nExpect: 100-continue\r\n\r\nhello";
        with(head, |read| {
            assert_eq!((read.method, read.path, read.query), ("POST", "/a/b", "?c=d"));
            assert_eq!(read.host, "Shop.example:8080");
            assert_eq!(read.framing, Framing::Length(5));
            assert!(read.expects && read.keeps_alive() && !read.upgrade);
            assert_eq!(read.length, head.len() - 5);
        });
    }

    #[test]
    fn a_part_of_a_head_is_not_refused() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
        for end in 0..head.len() {
            assert!(parse(&head.as_bytes()[..end], &mut room()).expect("may go on").is_none());
        }
    }

    #[test]
    fn an_address_as_target_names_the_host() {
        let head = "GET HTTP://other.example?x HTTP/1.1\r\nHost: a\r\n\r\n";
        with(head, |read| {
            assert_eq!((read.path, read.query, read.host), ("/", "?x", "other.example"));
        });
    }

    #[test]
    fn old_clients_end_their_connection_and_need_no_host() {
        with("GET / HTTP/1.0\r\n\r\n", |read| {
            assert!(!read.keeps_alive() && read.host.is_empty());
        });
        with("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", |read| {
            assert!(read.keeps_alive());
        });
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let request = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        for (fields, status) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
            ("Content-Length: 5, 5\r\n", 400),
            ("Content-Length: +5\r\n", 400),
            ("Content-Length: -1\r\n", 400),
            ("Content-Length: 0x5\r\n", 400),
            ("Content-Length:\r\n", 400),
            ("Content-Length: 99999999999999999999\r\n", 400),
            ("Content-Length : 5\r\n", 400),
            ("Transfer-Encoding: xchunked\r\n", 501),
            ("Transfer-Encoding: gzip, chunked\r\n", 501),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
            ("Transfer-Encoding: identity\r\n", 501),
            ("Transfer-Encoding:\u{b}chunked\r\n", 400),
            ("X: a\r\n folded\r\n", 400),
            ("X: a\nY: b\r\n", 400),
            ("X: a\0b\r\n", 400),
            ("X: a\rb\r\n", 400),
            ("Host: b\r\n", 400),
            ("Expect: 200-ok\r\n", 417),
            ("Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 3\r\n", 400),
        ] {
            assert_eq!(refused(&request(fields)), status, "{fields:?}");
        }
    }

    #[test]
    fn strange_targets_and_versions_are_refused() {
        for (head, status) in [
            ("GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /a/%2e%2E/b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /a/.%2e HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
            ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
            ("GET /\r\n\r\n", 400),
            ("GE\u{1}T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ] {
            assert_eq!(refused(head), status, "{head:?}");
        }
        let many = "a: b\r\n".repeat(FIELDS_MAX);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")), 431);
    }

    #[test]
    fn dots_that_are_no_segment_stay() {
        for path in ["/.well-known/x", "/a..b", "/...", "/a/.hidden", "/%2e%2e%2e"] {
            with(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), |read| {
                assert_eq!(read.path, path);
            });
        }
    }
}
