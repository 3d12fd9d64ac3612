//! Answers, written as they are.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{StatusCode, header};
use axum::response::Response;
use jiff::Timestamp;
use std::cell::RefCell;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// As much is gathered before it is written.
const GATHER_BYTES: usize = 64 << 10;

/// Room for a head, and a short body.
const HEAD_BYTES: usize = 1 << 10;

thread_local! {
    /// The second, and the field that says it: thousands of answers are of the same one.
    static DATE: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

fn write_date(out: &mut Vec<u8>) {
    let now = Timestamp::now();
    DATE.with_borrow_mut(|(second, field)| {
        if *second != now.as_second() {
            let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT");
            (*second, *field) = (now.as_second(), format!("date: {date}\r\n"));
        }
        out.extend_from_slice(field.as_bytes());
    });
}

/// An answer on its way to the client.
pub struct Telling {
    out: Vec<u8>,
    written: usize,
    body: Option<Body>,
    chunked: bool,
    closes: bool,
}

impl Telling {
    /// Of this answer.
    pub fn new(response: Response) -> io::Result<Telling> {
        let (parts, body) = response.into_parts();
        let length = body.size_hint().exact();
        let bodyless = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let mut out = Vec::with_capacity(HEAD_BYTES);
        let reason = parts.status.canonical_reason().unwrap_or_default();
        write!(out, "HTTP/1.1 {} {reason}\r\n", parts.status.as_str())?;
        let mut closes = false;
        for (name, value) in &parts.headers {
            if *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING {
                continue;
            }
            closes |= *name == header::CONNECTION && value == "close";
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        if !parts.headers.contains_key(header::DATE) {
            write_date(&mut out);
        }
        match length {
            _ if bodyless => {}
            Some(length) => write!(out, "content-length: {length}\r\n")?,
            None => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        out.extend_from_slice(b"\r\n");
        let body = (!bodyless && !body.is_end_stream()).then_some(body);
        let chunked = length.is_none() && body.is_some();
        if length.is_none() && !bodyless && body.is_none() {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        Ok(Telling { out, written: 0, body, chunked, closes })
    }

    /// Whether the connection is over with it.
    pub const fn closes(&self) -> bool {
        self.closes
    }

    /// What is to be written next: all that is there, and nothing only at the end.
    pub fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        while self.out.len() < GATHER_BYTES
            && let Some(body) = &mut self.body
        {
            let frame = match Pin::new(body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending if self.written < self.out.len() => break,
                Poll::Pending => return Poll::Pending,
            };
            match frame.transpose().map_err(io::Error::other)? {
                None => {
                    self.body = None;
                    if self.chunked {
                        self.out.extend_from_slice(b"0\r\n\r\n");
                    }
                }
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.add(&data)?;
                    }
                }
            }
        }
        Poll::Ready(Ok(&self.out[self.written..]))
    }

    /// So much of it was written.
    pub fn advance(&mut self, bytes: usize) {
        self.written += bytes;
    }

    fn add(&mut self, data: &Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if self.chunked {
            write!(self.out, "{:x}\r\n", data.len())?;
        }
        self.out.extend_from_slice(data);
        if self.chunked {
            self.out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Writes it all.
    pub fn poll_write<S: tokio::io::AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<io::Result<()>> {
        loop {
            let left = ready!(self.poll_left(cx))?;
            if left.is_empty() {
                return Pin::new(stream).poll_flush(cx);
            }
            let bytes = ready!(Pin::new(&mut *stream).poll_write(cx, left))?;
            if bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use std::future::poll_fn;

    async fn written(response: Response) -> String {
        let mut telling = Telling::new(response).expect("is written to memory");
        let mut stream = io::Cursor::new(Vec::new());
        poll_fn(|cx| telling.poll_write(cx, &mut stream)).await.expect("memory takes it");
        String::from_utf8(stream.into_inner()).expect("is text")
    }

    #[tokio::test]
    async fn an_answer_says_how_long_it_is_and_when_it_was() {
        let mut response =
            (StatusCode::OK, [("x-a", "b"), ("content-length", "7")], "seven b").into_response();
        response.headers_mut().remove(header::CONTENT_TYPE);
        let text = written(response).await;
        let (head, body) = text.split_once("\r\n\r\n").expect("a head ends");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nx-a: b\r\ndate: "), "{head}");
        assert!(head.ends_with(" GMT\r\ncontent-length: 7"), "{head}");
        assert_eq!(body, "seven b");
        let text = written((StatusCode::NO_CONTENT, [("date", "now")]).into_response()).await;
        assert_eq!(text, "HTTP/1.1 204 No Content\r\ndate: now\r\n\r\n");
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_comes_in_chunks() {
        let pieces = ["one", "", "twenty"].map(|piece| Ok::<_, io::Error>(Bytes::from(piece)));
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let text = written(([("date", "now")], body).into_response()).await;
        let head = "HTTP/1.1 200 OK\r\ndate: now\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(text, format!("{head}3\r\none\r\n6\r\ntwenty\r\n0\r\n\r\n"));
    }
}
