//! The head of an upstream's answer.

use super::body::{Framing, Unframed, collect};
use super::fields::{Connection, lines_are_clean};
use super::request::Room;
use httparse::{Header, ParserConfig, Status};

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Response<'h, 'b> {
    pub status: u16,
    pub reason: &'b str,
    pub fields: &'h [Header<'b>],
    pub connection: Connection<'b>,
    pub framing: Framing,
    /// Whether the connection may serve another request after it.
    pub keeps_alive: bool,
    /// Bytes of the head.
    pub length: usize,
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadAnswer(pub &'static str);

/// Reads a head; `None` if it is not all there yet. The answer to a HEAD has no body whatever it
/// says.
pub(crate) fn parse<'h, 'b>(
    bytes: &'b [u8],
    room: &'h mut Room<'b>,
    to_head: bool,
) -> Result<Option<Response<'h, 'b>>, BadAnswer> {
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut parsed, bytes, room) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(BadAnswer("it has too many header fields"));
        }
        Err(_) => return Err(BadAnswer("it is not HTTP/1")),
    };
    if !lines_are_clean(&bytes[..length]) {
        return Err(BadAnswer("a line of its head does not end with CR LF"));
    }
    let (Some(status), Some(version)) = (parsed.code, parsed.version) else {
        return Err(BadAnswer("it has no status"));
    };
    if !(100..=599).contains(&status) {
        return Err(BadAnswer("its status is not from 100 to 599"));
    }
    let fields: &'h [Header<'b>] = parsed.headers;
    let (declared, connection) = collect(fields).map_err(|why| match why {
        Unframed::Ambiguous(message) => BadAnswer(message),
        Unframed::Unknown => BadAnswer("its Transfer-Encoding is not `chunked`"),
    })?;
    let framing = match (declared.chunked, declared.length) {
        _ if to_head || status < 200 || status == 204 || status == 304 => Framing::Empty,
        (true, _) if version == 0 => {
            return Err(BadAnswer("HTTP/1.0 has no Transfer-Encoding"));
        }
        (true, _) => Framing::Chunked,
        (false, Some(0)) => Framing::Empty,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    };
    let keeps_alive = framing != Framing::UntilClose
        && !connection.close
        && (version == 1 || connection.keep_alive);
    let reason = parsed.reason.unwrap_or_default();
    Ok(Some(Response { status, reason, fields, connection, framing, keeps_alive, length }))
}

#[cfg(test)]
mod tests {
    use super::super::request::room;
    use super::*;

    fn framing(head: &str, to_head: bool) -> (Framing, bool) {
        let mut room = room();
        let read = parse(head.as_bytes(), &mut room, to_head).expect("is good").expect("is whole");
        (read.framing, read.keeps_alive)
    }

    #[test]
    fn where_the_body_ends_follows_from_status_method_and_fields() {
        let ok = "HTTP/1.1 200 OK\r\n";
        for (head, to_head, expected) in [
            (format!("{ok}Content-Length: 7\r\n\r\n"), false, (Framing::Length(7), true)),
            (format!("{ok}Content-Length: 7\r\n\r\n"), true, (Framing::Empty, true)),
            (format!("{ok}Transfer-Encoding: chunked\r\n\r\n"), false, (Framing::Chunked, true)),
            (format!("{ok}\r\n"), false, (Framing::UntilClose, false)),
            (
                format!("{ok}Connection: close\r\nContent-Length: 7\r\n\r\n"),
                false,
                (Framing::Length(7), false),
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n".to_owned(),
                false,
                (Framing::Length(7), false),
            ),
            (
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n".to_owned(),
                false,
                (Framing::Empty, true),
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), false, (Framing::Empty, true)),
            ("HTTP/1.1 100 Continue\r\n\r\n".to_owned(), false, (Framing::Empty, true)),
        ] {
            assert_eq!(framing(&head, to_head), expected, "{head:?}");
        }
    }

    #[test]
    fn answers_that_can_be_read_in_two_ways_are_refused() {
        for bad in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
            "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
            "HTTP/1.1 099 Low\r\n\r\n",
            "HTTP/1.1 999 High\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            assert!(parse(bad.as_bytes(), &mut room(), false).is_err(), "{bad:?}");
        }
    }
}
