//! The gateway's own handshake with a worker.

use crate::outline::without_hops;
use crate::url::WorkerUrl;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use skep_dial::Dialler;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The head of a worker's answer, at most.
const HEAD_MAX: usize = 64 * 1_024;
const HEADERS_MAX: usize = 100;
/// What is handed on of a refusal's body, at most, and how long is waited for it.
const BODY_MAX: usize = 64 * 1_024;
const BODY_LIMIT: Duration = Duration::from_secs(2);
/// Room for an answer as workers give it; more is made if need be.
const USUAL_HEAD: usize = 1_024;

/// What a worker answered.
pub(crate) enum Answer {
    /// 101: from here on it speaks WebSocket.
    Upgraded {
        stream: TcpStream,
        headers: HeaderMap,
        /// What it said right after the head.
        early: Vec<u8>,
    },
    /// 4xx: the client has asked for something wrong, and the worker says what.
    Refused { status: StatusCode, headers: HeaderMap, body: Bytes },
}

/// Why a worker is to blame that there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("it cannot be connected to: {0}")]
    Connect(#[source] io::Error),
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    #[error("it hung up before it had answered")]
    HungUp,
    #[error("its answer makes no sense: {0}")]
    Garbage(String),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("it did not answer within {0:?}")]
    Silent(Duration),
}

impl DialError {
    /// One word, for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            DialError::Connect(_) => "connect",
            DialError::Broken(_) => "broken",
            DialError::HungUp => "hung_up",
            DialError::Garbage(_) => "garbage",
            DialError::Status(_) => "status",
            DialError::Silent(_) => "silent",
        }
    }
}

/// Connects, sends the head and waits for the answer; for `limit` at most.
pub(crate) async fn dial(
    dialler: Dialler,
    url: WorkerUrl,
    head: Vec<u8>,
    limit: Duration,
) -> Result<Answer, DialError> {
    match timeout(limit, converse(dialler, url, head)).await {
        Ok(answer) => answer,
        Err(_) => Err(DialError::Silent(limit)),
    }
}

async fn converse(dialler: Dialler, url: WorkerUrl, head: Vec<u8>) -> Result<Answer, DialError> {
    let mut stream = url.connect(&dialler).await.map_err(DialError::Connect)?;
    stream.set_nodelay(true).map_err(DialError::Connect)?;
    stream.write_all(&head).await.map_err(DialError::Broken)?;
    let mut buffer = Vec::with_capacity(USUAL_HEAD);
    let (status, headers) = loop {
        if let Some((head, length)) = parse(&buffer)? {
            buffer.drain(..length);
            // 100 and 103 only announce an answer.
            match head {
                (status, _) if status.is_informational() && status.as_u16() != 101 => continue,
                head => break head,
            }
        }
        read_more(&mut stream, &mut buffer).await?;
    };
    match status.as_u16() {
        101 => upgraded(stream, headers, buffer),
        400..=499 => Ok(refused(stream, status, headers, buffer).await),
        _ => Err(DialError::Status(status)),
    }
}

async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(), DialError> {
    if buffer.len() >= HEAD_MAX {
        return Err(DialError::Garbage("a head of more than 64 KiB".to_owned()));
    }
    match stream.read_buf(buffer).await {
        Ok(0) => Err(DialError::HungUp),
        Ok(_) => Ok(()),
        Err(error) => Err(DialError::Broken(error)),
    }
}

type Head = (StatusCode, HeaderMap);

/// The first head in `bytes` and its length; `None` if it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, DialError> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut lines);
    let garbage = |why: String| DialError::Garbage(why);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(garbage(error.to_string())),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default())
        .map_err(|error| garbage(error.to_string()))?;
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    for line in response.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let value = HeaderValue::from_bytes(line.value);
        match (name, value) {
            (Ok(name), Ok(value)) => headers.append(name, value),
            _ => return Err(garbage(format!("a header {:?}", line.name))),
        };
    }
    Ok(Some(((status, headers), length)))
}

fn upgraded(
    stream: TcpStream,
    mut headers: HeaderMap,
    early: Vec<u8>,
) -> Result<Answer, DialError> {
    let protocol = headers.get(header::UPGRADE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !protocol.eq_ignore_ascii_case(b"websocket") {
        return Err(DialError::Garbage("101 without Upgrade: websocket".to_owned()));
    }
    without_hops(&mut headers);
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    Ok(Answer::Upgraded { stream, headers, early })
}

async fn refused(
    mut stream: TcpStream,
    status: StatusCode,
    mut headers: HeaderMap,
    mut buffer: Vec<u8>,
) -> Answer {
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let chunked = headers.contains_key(header::TRANSFER_ENCODING);
    let body = if chunked {
        read_until(&mut stream, &mut buffer, 2 * BODY_MAX, |bytes| unchunk(bytes).1).await;
        unchunk(&buffer).0
    } else {
        let most = length.unwrap_or(BODY_MAX).min(BODY_MAX);
        read_until(&mut stream, &mut buffer, most, |_| false).await;
        buffer.truncate(most);
        buffer
    };
    without_hops(&mut headers);
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Answer::Refused { status, headers, body: Bytes::from(body) }
}

/// Reads up to `most` bytes; what came until the end, an error or the time limit must do.
async fn read_until(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    most: usize,
    mut complete: impl FnMut(&[u8]) -> bool,
) {
    let reading = async {
        while buffer.len() < most && !complete(buffer) {
            if !stream.read_buf(buffer).await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    };
    // A worker that does not come to an end has still said its status.
    let _ = timeout(BODY_LIMIT, reading).await;
}

/// The content of a chunked body as far as it is there, and whether that is all.
fn unchunk(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    while let Ok(httparse::Status::Complete((start, size))) = httparse::parse_chunk_size(bytes) {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size == 0 {
            return (content, true);
        }
        let rest = &bytes[start..];
        content.extend_from_slice(&rest[..size.min(rest.len())]);
        if content.len() >= BODY_MAX {
            content.truncate(BODY_MAX);
            return (content, true);
        }
        // The line break after a chunk.
        bytes = rest.get(size.saturating_add(2)..).unwrap_or_default();
    }
    (content, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_is_put_together() {
        assert_eq!(unchunk(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), (b"abcde".to_vec(), true));
        assert_eq!(unchunk(b"3\r\nabc\r\n5\r\nde"), (b"abcde".to_vec(), false));
        assert_eq!(unchunk(b"ffffffffffffffff\r\nx"), (b"x".to_vec(), false));
        assert_eq!(unchunk(b"nonsense"), (Vec::new(), false));
    }

    #[test]
    fn a_head_is_read_when_it_is_complete() {
        let head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x00";
        assert!(parse(&head[..20]).expect("is no garbage").is_none());
        let ((status, headers), length) = parse(head).expect("is no garbage").expect("is complete");
        assert_eq!(status.as_u16(), 101);
        assert_eq!(headers["upgrade"], "websocket");
        assert_eq!(&head[length..], b"\x81\x00");
        assert!(parse(b"SSH-2.0-OpenSSH_9\r\n").is_err());
        assert!(parse(b"HTTP/1.1 99 x\r\n\r\n").is_err());
    }
}
