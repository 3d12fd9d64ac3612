//! How far a connection's bytes are a request's, so that the beginning of the next one is known and
//! never guessed.

use httparse::{Header, Request, Status};
use std::mem::MaybeUninit;

/// Fields of a head at most; with more of them a connection is left to others.
const FIELDS_MAX: usize = 64;

/// What comes next on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The head of a request.
    Head,
    /// So many bytes of a request's body.
    Body(u64),
    /// Nothing, before the request is answered.
    Answer,
    /// Nobody here knows.
    Unknown,
}

impl Left {
    /// After these bytes of a body, or of whatever comes when nothing should.
    pub fn after(self, bytes: usize) -> Left {
        match self {
            Left::Body(left) => match left.checked_sub(bytes as u64) {
                Some(0) => Left::Answer,
                Some(left) => Left::Body(left),
                None => Left::Unknown,
            },
            Left::Head | Left::Answer | Left::Unknown => Left::Unknown,
        }
    }
}

/// Reads the head that these bytes begin with: what comes after them, and what `look` sees in the
/// head if they are a request without a body, and nothing else.
pub fn read<T>(
    bytes: &[u8],
    look: impl FnOnce(&Request<'_, '_>) -> Option<T>,
) -> (Left, Option<T>) {
    let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
    let mut head = Request::new(&mut []);
    let Ok(Status::Complete(length)) = head.parse_with_uninit_headers(bytes, &mut room) else {
        return (Left::Unknown, None);
    };
    let Some(body) = body_length(head.headers) else { return (Left::Unknown, None) };
    if body == 0 && length == bytes.len() {
        return (Left::Answer, look(&head));
    }
    (Left::Body(body).after(bytes.len() - length), None)
}

/// Bytes of the body, if that can only be read in one way.
fn body_length(fields: &[Header<'_>]) -> Option<u64> {
    let mut length = None;
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding") || is("upgrade") {
            return None;
        }
        if is("content-length") {
            let digits = !field.value.is_empty() && field.value.iter().all(u8::is_ascii_digit);
            let value = std::str::from_utf8(field.value).ok().filter(|_| digits)?;
            if length.replace(value.parse().ok()?).is_some() {
                return None;
            }
        }
    }
    Some(length.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(bytes: &str) -> Left {
        read(bytes.as_bytes(), |_| None::<()>).0
    }

    #[test]
    fn the_end_of_a_request_is_known_or_nothing_is() {
        assert_eq!(left("GET / HTTP/1.1\r\nhost: a\r\n\r\n"), Left::Answer);
        assert_eq!(left("POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n"), Left::Body(3));
        assert_eq!(left("POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab"), Left::Body(1));
        assert_eq!(left("POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"), Left::Answer);
        assert_eq!(Left::Body(3).after(2), Left::Body(1));
        assert_eq!(Left::Body(1).after(1), Left::Answer);
        for unknown in [
            "GET / HTTP/1.1\r\nhost: a\r\n",
            "GET / HTTP/1.1\r\n\r\nG",
            "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcd",
            "POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
            "POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\nabc",
            "POST / HTTP/1.1\r\ncontent-length:\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
            "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
            "nonsense\r\n\r\n",
        ] {
            assert_eq!(left(unknown), Left::Unknown, "{unknown}");
        }
        assert_eq!(Left::Body(1).after(2), Left::Unknown);
        assert_eq!(Left::Answer.after(1), Left::Unknown);
    }

    #[test]
    fn only_a_request_alone_is_looked_at() {
        let seen = |bytes: &str| read(bytes.as_bytes(), |head| head.path.map(str::to_owned)).1;
        assert_eq!(seen("GET /x HTTP/1.1\r\n\r\n").as_deref(), Some("/x"));
        assert_eq!(seen("GET /x HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\n\r\n"), None);
        assert_eq!(seen("POST /x HTTP/1.1\r\ncontent-length: 1\r\n\r\na"), None);
    }
}
