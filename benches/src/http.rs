//! A lean HTTP client: the load shares the processors with those it is for.

use crate::Outcome;
use std::ops::Range;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More than the largest answer has.
const ANSWER_MAX: usize = 64 << 20;

/// A kept connection; one request at a time.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer; it lies in the connection until the next request.
pub struct Answer<'connection> {
    pub status: u16,
    head: &'connection str,
    pub body: &'connection str,
}

impl Answer<'_> {
    /// The value of a header, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut fields = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        fields.next().map(|(_, value)| value.trim())
    }
}

impl Connection {
    /// Connects to `HOST:PORT`.
    pub async fn open(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; 64 << 10] })
    }

    /// Sends a whole request and waits for the answer.
    pub async fn ask(&mut self, request: &[u8]) -> Outcome<Answer<'_>> {
        self.stream.write_all(request).await?;
        let mut read = 0;
        let (status, body) = loop {
            if read == self.buffer.len() {
                if read >= ANSWER_MAX {
                    return Err("an answer is larger than any should be".into());
                }
                self.buffer.resize(2 * read, 0);
            }
            let more = self.stream.read(&mut self.buffer[read..]).await?;
            if more == 0 {
                return Err("the server has closed the connection".into());
            }
            read += more;
            let Some((status, body)) = head(&self.buffer[..read])? else { continue };
            if body.end > self.buffer.len() {
                self.buffer.resize(body.end, 0);
            }
            if read < body.end {
                self.stream.read_exact(&mut self.buffer[read..body.end]).await?;
            }
            break (status, body);
        };
        let head = std::str::from_utf8(&self.buffer[..body.start])?;
        Ok(Answer { status, head, body: std::str::from_utf8(&self.buffer[body])? })
    }

    /// As [`Connection::ask`], where only success will do.
    pub async fn succeed(&mut self, request: &[u8]) -> Outcome<Answer<'_>> {
        let answer = self.ask(request).await?;
        if !(200..300).contains(&answer.status) {
            let start: String = answer.body.chars().take(500).collect();
            return Err(format!("status {}: {start}", answer.status).into());
        }
        Ok(answer)
    }
}

/// The status, and where the body is; `None` while the head is not complete.
fn head(read: &[u8]) -> Outcome<Option<(u16, Range<usize>)>> {
    let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&read[..end])?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).ok_or("no status")?.parse()?;
    let mut length = 0;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("the answer comes in chunks, which this client does not read".into());
        }
    }
    Ok(Some((status, end + 4..end + 4 + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_says_where_the_body_is() {
        let answer = b"HTTP/1.1 201 Created\r\nserver: x\r\nContent-Length: 2\r\n\r\n[]";
        let found = head(answer).expect("reads").expect("is complete");
        assert_eq!(found, (201, answer.len() - 2..answer.len()));
        assert!(head(&answer[..40]).expect("reads").is_none());
        let nothing = head(b"HTTP/1.1 204 No Content\r\n\r\n").expect("reads").expect("complete");
        assert_eq!((nothing.0, nothing.1.len()), (204, 0));
    }
}
