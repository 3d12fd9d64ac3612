//! HTTP/1.1 as two nodes speak it: the head of a request, the head of an answer, and how a body
//! comes. Whatever can be read in two ways is not read at all.

use super::body::Sending;
use bytes::Bytes;
use httparse::{Header, ParserConfig, Status};
use hyper::body::Body;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use std::mem::MaybeUninit;

/// Fields of an answer's head at most.
const FIELDS_MAX: usize = 100;

/// A line with the length of a chunk is much shorter.
const CHUNK_LINE_MAX: usize = 64;

/// Why an answer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("its answer is not HTTP/1.1")]
    Head,
    #[error("its answer does not say plainly where it ends")]
    Length,
    #[error("a chunk of its answer does not say plainly where it ends")]
    Chunk,
}

/// How the rest of a body comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// All of it is here.
    Over,
    /// So many bytes more.
    Length(u64),
    /// In chunks; what is awaited of them.
    Chunked(Chunk),
    /// Until the connection ends.
    Close,
}

/// What comes next of a body in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// The line with a length.
    Line,
    /// So many bytes.
    Data(u64),
    /// The end of the line that the bytes are.
    End,
    /// What follows the last chunk.
    Trailer,
}

/// How the body of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// Its bytes as they are.
    Plain,
    Chunked,
}

/// Writes a request's head, and says how its body follows.
pub(super) fn write_head(request: &Request<Sending>, out: &mut Vec<u8>) -> Going {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    for part in [request.method().as_str(), " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in request.headers() {
        write_field(name.as_str(), value.as_bytes(), out);
    }
    let going = match request.body().size_hint().exact() {
        Some(0) if matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE) => {
            Going::Plain
        }
        Some(length) => {
            let mut digits = [0; 20];
            write_field(header::CONTENT_LENGTH.as_str(), decimal(length, &mut digits), out);
            Going::Plain
        }
        None => {
            write_field(header::TRANSFER_ENCODING.as_str(), b"chunked", out);
            Going::Chunked
        }
    };
    out.extend_from_slice(b"\r\n");
    going
}

fn write_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

impl Going {
    /// Writes some of a body.
    pub fn write(self, data: &Bytes, out: &mut Vec<u8>) {
        if self == Going::Chunked && !data.is_empty() {
            out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
            out.extend_from_slice(data);
            out.extend_from_slice(b"\r\n");
        } else {
            out.extend_from_slice(data);
        }
    }

    /// Writes the end of a body.
    pub fn end(self, out: &mut Vec<u8>) {
        if self == Going::Chunked {
            out.extend_from_slice(b"0\r\n\r\n");
        }
    }
}

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub response: Response<()>,
    pub framing: Framing,
    /// Whether the connection can be used again after it.
    pub keeps: bool,
}

/// Reads the head of an answer, and says how long it is. Those that only announce another one are
/// left out. Nothing while it is not complete.
pub(super) fn read_head(bytes: &[u8], to_head: bool) -> Result<Option<(Head, usize)>, Unreadable> {
    let mut skipped = 0;
    loop {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let config = ParserConfig::default();
        let read =
            config.parse_response_with_uninit_headers(&mut parsed, &bytes[skipped..], &mut room);
        let length = match read {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err(Unreadable::Head),
        };
        skipped += length;
        match parsed.code {
            // Nobody asked for another protocol.
            Some(101) | None => return Err(Unreadable::Head),
            Some(100..200) => continue,
            Some(_) => return Ok(Some((head(&parsed, to_head)?, skipped))),
        }
    }
}

fn head(parsed: &httparse::Response<'_, '_>, to_head: bool) -> Result<Head, Unreadable> {
    let status = StatusCode::from_u16(parsed.code.unwrap_or_default());
    let mut response = Response::new(());
    *response.status_mut() = status.map_err(|_| Unreadable::Head)?;
    let headers = response.headers_mut();
    headers.reserve(parsed.headers.len());
    for field in &*parsed.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Unreadable::Head)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| Unreadable::Head)?;
        headers.append(name, value);
    }
    let status = response.status();
    let bodyless =
        to_head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let framing = if bodyless { Framing::Over } else { framing(response.headers())? };
    let closes = response.headers().get_all(header::CONNECTION).iter().any(|value| {
        let words = value.as_bytes().split(|byte| *byte == b',');
        words.map(<[u8]>::trim_ascii).any(|word| word.eq_ignore_ascii_case(b"close"))
    });
    let keeps = parsed.version == Some(1) && !closes && framing != Framing::Close;
    Ok(Head { response, framing, keeps })
}

fn framing(headers: &HeaderMap) -> Result<Framing, Unreadable> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let length = lengths.next();
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (encodings.next(), length, lengths.next(), encodings.next()) {
        (None, None, ..) => Ok(Framing::Close),
        (None, Some(length), None, _) => match plain_number(length.as_bytes()) {
            Some(0) => Ok(Framing::Over),
            Some(length) => Ok(Framing::Length(length)),
            None => Err(Unreadable::Length),
        },
        (Some(encoding), None, _, None) if encoding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Ok(Framing::Chunked(Chunk::Line))
        }
        _ => Err(Unreadable::Length),
    }
}

fn plain_number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// What is next in the bytes of a body that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// More must come.
    More,
    /// So many bytes are the body's.
    Data(usize),
    /// The body is over.
    End,
}

impl Framing {
    /// Looks at what has come, and says what it is. Bytes that only say how the body comes are
    /// taken off its front.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Piece, Unreadable> {
        loop {
            match self {
                Framing::Over => return Ok(Piece::End),
                Framing::Close if bytes.is_empty() => return Ok(Piece::More),
                Framing::Close => return Ok(Piece::Data(bytes.len())),
                Framing::Length(left) | Framing::Chunked(Chunk::Data(left)) => {
                    if bytes.is_empty() {
                        return Ok(Piece::More);
                    }
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    match self {
                        Framing::Length(0) => *self = Framing::Over,
                        Framing::Chunked(chunk @ Chunk::Data(0)) => *chunk = Chunk::End,
                        _ => {}
                    }
                    return Ok(Piece::Data(taken));
                }
                Framing::Chunked(chunk) => match chunk.step(bytes)? {
                    None => return Ok(Piece::More),
                    Some(Some(next)) => *chunk = next,
                    Some(None) => *self = Framing::Over,
                },
            }
        }
    }
}

impl Chunk {
    /// What comes after what lies between the bytes of chunks, and nothing after the last. Nothing
    /// at all while it is not complete.
    fn step(self, bytes: &mut &[u8]) -> Result<Option<Option<Chunk>>, Unreadable> {
        match self {
            Chunk::Line => match httparse::parse_chunk_size(bytes) {
                Ok(Status::Complete((length, size))) => {
                    *bytes = &bytes[length..];
                    let next = if size == 0 { Chunk::Trailer } else { Chunk::Data(size) };
                    Ok(Some(Some(next)))
                }
                Ok(Status::Partial) if bytes.len() < CHUNK_LINE_MAX => Ok(None),
                _ => Err(Unreadable::Chunk),
            },
            Chunk::Data(_) | Chunk::End => match bytes {
                [b'\r', b'\n', rest @ ..] => {
                    *bytes = rest;
                    Ok(Some(Some(Chunk::Line)))
                }
                [] | [b'\r'] => Ok(None),
                _ => Err(Unreadable::Chunk),
            },
            // Trailers are about the connection they came on, and other nodes send none.
            Chunk::Trailer => match bytes {
                [b'\r', b'\n', rest @ ..] => {
                    *bytes = rest;
                    Ok(Some(None))
                }
                [] | [b'\r'] => Ok(None),
                _ => Err(Unreadable::Chunk),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<(Head, usize)>, Unreadable> {
        read_head(text.as_bytes(), false)
    }

    fn framing_of(fields: &str) -> Result<(Framing, bool), Unreadable> {
        let read = read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"))?.expect("is complete");
        Ok((read.0.framing, read.0.keeps))
    }

    #[test]
    fn a_head_says_how_its_body_comes_and_what_follows_it() {
        assert_eq!(framing_of("content-length: 7\r\n"), Ok((Framing::Length(7), true)));
        assert_eq!(framing_of("Content-Length: 0\r\n"), Ok((Framing::Over, true)));
        let chunked = Framing::Chunked(Chunk::Line);
        assert_eq!(framing_of("transfer-encoding: Chunked\r\n"), Ok((chunked, true)));
        assert_eq!(framing_of(""), Ok((Framing::Close, false)));
        let closes = "content-length: 7\r\nconnection: x, Close\r\n";
        assert_eq!(framing_of(closes), Ok((Framing::Length(7), false)));
        let (head, length) = read("HTTP/1.1 204 No Content\r\na: b\r\n\r\nrest")
            .expect("reads")
            .expect("is complete");
        assert_eq!((head.framing, head.keeps, length), (Framing::Over, true, 33));
        assert_eq!(head.response.headers()["a"], "b");
        let (head, _) = read_head(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", true)
            .expect("reads")
            .expect("is complete");
        assert_eq!(head.framing, Framing::Over, "the answer to HEAD has no body");
        let later =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n";
        let (head, length) = read(later).expect("reads").expect("is complete");
        assert_eq!((head.response.status().as_u16(), length), (201, later.len()));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not_read() {
        for fields in [
            "content-length: 7\r\ncontent-length: 7\r\n",
            "content-length: +7\r\n",
            "content-length: 7, 7\r\n",
            "content-length:\r\n",
            "content-length: 99999999999999999999\r\n",
            "content-length: 7\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        ] {
            assert_eq!(framing_of(fields), Err(Unreadable::Length), "{fields:?}");
        }
        for head in ["no HTTP\r\n\r\n", "HTTP/1.1 101 Up\r\n\r\n", "HTTP/1.1 20 x\r\n\r\n"] {
            assert_eq!(read(head).err(), Some(Unreadable::Head), "{head:?}");
        }
    }

    /// The body in these bytes, which come in pieces of this size, and how many were used.
    fn body(
        mut framing: Framing,
        bytes: &[u8],
        step: usize,
    ) -> Result<(Vec<u8>, usize), Unreadable> {
        let (mut found, mut used, mut came) = (Vec::new(), 0, 0);
        loop {
            let mut window = &bytes[used..came];
            let piece = framing.next(&mut window)?;
            used = came - window.len();
            match piece {
                Piece::End => return Ok((found, used)),
                Piece::Data(length) => {
                    found.extend_from_slice(&bytes[used..used + length]);
                    used += length;
                }
                Piece::More if came == bytes.len() => return Ok((found, usize::MAX)),
                Piece::More => came = (came + step).min(bytes.len()),
            }
        }
    }

    #[test]
    fn chunks_are_put_together_however_they_come() {
        let bytes = b"3\r\none\r\n6;x=y\r\ntwenty\r\n0\r\n\r\nnext";
        for step in 1..bytes.len() {
            let (found, used) = body(Framing::Chunked(Chunk::Line), bytes, step).expect("reads");
            assert_eq!((found.as_slice(), &bytes[used..]), (&b"onetwenty"[..], &b"next"[..]));
        }
        for bad in ["x\r\n", "3\r\noneX", "0\r\ntrailer: 1\r\n\r\n", &"0".repeat(80)] {
            let read = body(Framing::Chunked(Chunk::Line), bad.as_bytes(), 1);
            assert_eq!(read, Err(Unreadable::Chunk), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            step in 1..50_usize,
            start in prop::sample::select(vec!["", "HTTP/1.1 200 OK\r\n", "3\r\n", "0\r\n"]),
        ) {
            let bytes = [start.as_bytes(), &bytes].concat();
            let _ = read_head(&bytes, false);
            for framing in [Framing::Chunked(Chunk::Line), Framing::Length(99), Framing::Close] {
                if let Ok((found, _)) = body(framing, &bytes, step) {
                    prop_assert!(found.len() <= bytes.len());
                }
            }
        }

        #[test]
        fn a_body_that_is_written_in_chunks_is_read_again(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10),
            step in 1..50_usize,
        ) {
            let mut out = Vec::new();
            for piece in &pieces {
                Going::Chunked.write(&Bytes::from(piece.clone()), &mut out);
            }
            Going::Chunked.end(&mut out);
            let read = body(Framing::Chunked(Chunk::Line), &out, step);
            prop_assert_eq!(read, Ok((pieces.concat(), out.len())));
        }
    }
}
