//! Fields of heads that a proxy must know.

/// Names that one head may list in `Connection`.
const NAMED_MAX: usize = 16;

/// A field's name, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Connection,
    ContentLength,
    Expect,
    Forwarded,
    ForwardedFor,
    ForwardedHost,
    ForwardedProto,
    Host,
    RequestId,
    /// Between two neighbours only, and of no use to the next.
    Hop,
    TransferEncoding,
    Upgrade,
    Other,
}

impl Known {
    /// Which one this is; case does not matter.
    pub fn of(name: &str) -> Self {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            2 if is("te") => Known::Hop,
            4 if is("host") => Known::Host,
            6 if is("expect") => Known::Expect,
            7 if is("upgrade") => Known::Upgrade,
            7 if is("trailer") => Known::Hop,
            9 if is("forwarded") => Known::Forwarded,
            10 if is("connection") => Known::Connection,
            10 if is("keep-alive") => Known::Hop,
            12 if is("x-request-id") => Known::RequestId,
            14 if is("content-length") => Known::ContentLength,
            14 if is("http2-settings") => Known::Hop,
            15 if is("x-forwarded-for") => Known::ForwardedFor,
            16 if is("x-forwarded-host") => Known::ForwardedHost,
            16 if is("proxy-connection") => Known::Hop,
            17 if is("x-forwarded-proto") => Known::ForwardedProto,
            17 if is("transfer-encoding") => Known::TransferEncoding,
            18 if is("proxy-authenticate") => Known::Hop,
            19 if is("proxy-authorization") => Known::Hop,
            _ => Known::Other,
        }
    }
}

/// Fields that say who may do what, where it is or how it is to be read, and so must be known
/// before the body.
const NOT_BEHIND: &[&str] = &[
    "authorization",
    "cache-control",
    "content-encoding",
    "content-range",
    "content-type",
    "cookie",
    "location",
    "range",
    "set-cookie",
    "vary",
    "www-authenticate",
    "x-api-key",
];

/// Whether a field of this name may come behind the body.
pub(crate) fn may_trail(name: &str) -> bool {
    Known::of(name) == Known::Other
        && !is_disguised(name)
        && !NOT_BEHIND.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Whether a name would be one that matters if its `_` were `-`.
pub(crate) fn is_disguised(name: &str) -> bool {
    name.contains('_') && Known::of(&name.replace('_', "-")) != Known::Other
}

/// What `Connection` says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection<'b> {
    pub close: bool,
    pub keep_alive: bool,
    pub upgrade: bool,
    named: [&'b str; NAMED_MAX],
    count: usize,
}

impl<'b> Connection<'b> {
    /// Takes in one more field.
    pub fn add(&mut self, value: &'b [u8]) -> Result<(), &'static str> {
        let value = std::str::from_utf8(value).map_err(|_| "Connection is no list of names")?;
        for word in value.split(',').map(|word| word.trim_matches([' ', '\t'])) {
            match word.len() {
                0 => {}
                5 if word.eq_ignore_ascii_case("close") => self.close = true,
                7 if word.eq_ignore_ascii_case("upgrade") => self.upgrade = true,
                10 if word.eq_ignore_ascii_case("keep-alive") => self.keep_alive = true,
                _ if self.count < NAMED_MAX => {
                    self.named[self.count] = word;
                    self.count += 1;
                }
                _ => return Err("Connection lists too many names"),
            }
        }
        Ok(())
    }

    /// Whether a field of this name is for the neighbour only.
    pub fn names(&self, name: &str) -> bool {
        self.named[..self.count].iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}

/// Writes one field.
pub(crate) fn write(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Whether every line of a head ends with CR LF, and neither stands alone.
pub(crate) fn lines_are_clean(head: &[u8]) -> bool {
    let pairs = head.iter().zip(head.iter().skip(1));
    let mut bad = head.first() == Some(&b'\n') || head.last() == Some(&b'\r');
    for (first, second) in pairs {
        bad |= (*first == b'\r') != (*second == b'\n');
    }
    !bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_whatever_their_case() {
        assert_eq!(Known::of("HOST"), Known::Host);
        assert_eq!(Known::of("Transfer-encoding"), Known::TransferEncoding);
        assert_eq!(Known::of("keep-alive"), Known::Hop);
        assert_eq!(Known::of("cookie"), Known::Other);
        assert!(may_trail("x-checksum") && !may_trail("Content-Length") && !may_trail("COOKIE"));
        assert!(is_disguised("X_Forwarded_For") && !is_disguised("x_y"));
    }

    #[test]
    fn connection_names_what_is_not_passed_on() {
        let mut connection = Connection::default();
        connection.add(b"Close, x-a ,, UPGRADE").expect("is a list");
        connection.add(b"keep-alive").expect("is a list");
        assert!(connection.close && connection.upgrade && connection.keep_alive);
        assert!(connection.names("X-A") && !connection.names("x-b"));
        assert!(connection.add(&[0xff]).is_err());
        let many = vec!["x"; NAMED_MAX + 1].join(",");
        assert!(Connection::default().add(many.as_bytes()).is_err());
    }

    #[test]
    fn a_line_break_is_two_bytes() {
        assert!(lines_are_clean(b"a\r\nb\r\n\r\n"));
        for bad in ["a\nb\r\n\r\n", "a\r\nb\n\n", "a\rb\r\n\r\n", "\na", "a\r", "a\r\r\n"] {
            assert!(!lines_are_clean(bad.as_bytes()), "{bad:?}");
        }
    }
}
