//! A lean client of NATS and its JetStream.

use crate::Outcome;
use std::ops::Range;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The stream that keeps everything published to `q.>`.
pub const STREAM: &str = "Q";

/// Unacknowledged messages that the consumer allows; more than all fetches together have.
const ACK_PENDING_MAX: usize = 20_000;

pub struct Nats {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    inbox: String,
    calls: u64,
    out: Vec<u8>,
}

/// A message that came; it lies in the buffer until the next is waited for.
struct Message {
    subject: Range<usize>,
    reply: Range<usize>,
    /// Begins with a status where there is one.
    headers: Range<usize>,
    body: Range<usize>,
}

impl Nats {
    /// Connects, and listens to an inbox of its own.
    pub async fn open(address: &str, name: usize) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let inbox = format!("_INBOX.{name}");
        let buffer = vec![0; 64 << 10];
        let (start, end, calls, out) = (0, 0, 0, Vec::new());
        let mut client = Nats { stream, buffer, start, end, inbox, calls, out };
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\
             \"no_responders\":true}}\r\nSUB {}.> 1\r\n",
            client.inbox
        );
        client.stream.write_all(hello.as_bytes()).await?;
        Ok(client)
    }

    /// The next message; pings are answered.
    async fn next(&mut self) -> Outcome<Message> {
        loop {
            let line = self.line().await?;
            let text = std::str::from_utf8(&self.buffer[line.clone()])?;
            let with_headers = text.starts_with("HMSG ");
            if !with_headers && !text.starts_with("MSG ") {
                if text.starts_with("-ERR") {
                    return Err(format!("nats: {text}").into());
                }
                if text.starts_with("PING") {
                    self.stream.write_all(b"PONG\r\n").await?;
                }
                self.start = line.end + 2;
                continue;
            }
            let words: Vec<&str> = text.split(' ').collect();
            let total: usize = words[words.len() - 1].parse()?;
            let headers: usize = if with_headers { words[words.len() - 2].parse()? } else { 0 };
            let fixed = if with_headers { 5 } else { 4 };
            let place = |word: &str| {
                let at = word.as_ptr() as usize - text.as_ptr() as usize;
                at..at + word.len()
            };
            let subject = place(words[1]);
            let reply = if words.len() > fixed { place(words[3]) } else { 0..0 };
            let head = line.len() + 2;
            self.fill(head + total + 2).await?;
            // Where it is may have changed while the rest was read.
            let from = self.start;
            let moved = |range: Range<usize>| from + range.start..from + range.end;
            self.start += head + total + 2;
            return Ok(Message {
                subject: moved(subject),
                reply: moved(reply),
                headers: moved(head..head + headers),
                body: moved(head + headers..head + total),
            });
        }
    }

    /// Where the next line is, without its end.
    async fn line(&mut self) -> Outcome<Range<usize>> {
        let mut looked = 0;
        loop {
            let fresh = &self.buffer[self.start + looked..self.end];
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let end = self.start + looked + at;
                return Ok(self.start..end.saturating_sub(1).max(self.start));
            }
            looked = self.end - self.start;
            self.fill(looked + 1).await?;
        }
    }

    /// Reads until so many bytes are there.
    async fn fill(&mut self, wanted: usize) -> Outcome<()> {
        if self.start + wanted > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if wanted > self.buffer.len() {
                self.buffer.resize(2 * wanted, 0);
            }
        }
        while self.end - self.start < wanted {
            let read = self.stream.read(&mut self.buffer[self.end..]).await?;
            if read == 0 {
                return Err("nats has closed the connection".into());
            }
            self.end += read;
        }
        Ok(())
    }

    /// Calls JetStream's API; its answer must be a good one.
    async fn call(&mut self, subject: &str, request: &str) -> Outcome<()> {
        self.calls += 1;
        let inbox = format!("{}.api.{}", self.inbox, self.calls);
        let call = format!("PUB {subject} {inbox} {}\r\n{request}\r\n", request.len());
        self.stream.write_all(call.as_bytes()).await?;
        let answer = self.next().await?;
        self.good(&answer)
    }

    fn good(&self, answer: &Message) -> Outcome<()> {
        let body = &self.buffer[answer.body.clone()];
        if !answer.headers.is_empty() || body.windows(8).any(|eight| eight == b"\"error\":") {
            let headers = String::from_utf8_lossy(&self.buffer[answer.headers.clone()]);
            let body = String::from_utf8_lossy(body);
            return Err(format!("nats: {} {body}", headers.trim()).into());
        }
        Ok(())
    }

    /// Makes the stream: kept in files, ordered, one copy.
    pub async fn make_stream(&mut self) -> Outcome<()> {
        let config = format!(
            "{{\"name\":\"{STREAM}\",\"subjects\":[\"q.>\"],\"storage\":\"file\",\
             \"retention\":\"limits\",\"num_replicas\":1,\"allow_atomic\":true}}"
        );
        self.call(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &config).await
    }

    /// Makes a consumer that begins at the first message and wants each acknowledged.
    pub async fn make_consumer(&mut self, name: &str) -> Outcome<()> {
        let config = format!(
            "{{\"stream_name\":\"{STREAM}\",\"config\":{{\"name\":\"{name}\",\
             \"durable_name\":\"{name}\",\"ack_policy\":\"explicit\",\
             \"deliver_policy\":\"all\",\"max_ack_pending\":{ACK_PENDING_MAX}}}}}"
        );
        self.call(&format!("$JS.API.CONSUMER.CREATE.{STREAM}.{name}"), &config).await
    }

    /// Publishes messages one after the other, and waits until each is confirmed.
    pub async fn publish(&mut self, partition: u64, payload: &str, count: usize) -> Outcome<()> {
        self.out.clear();
        for _ in 0..count {
            let line = format!("PUB q.p{partition} {}.ack {}\r\n", self.inbox, payload.len());
            self.out.extend_from_slice(line.as_bytes());
            self.out.extend_from_slice(payload.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&self.out).await?;
        for _ in 0..count {
            let confirmed = self.next().await?;
            self.good(&confirmed)?;
        }
        Ok(())
    }

    /// Publishes messages as one batch that is kept whole or not at all.
    pub async fn publish_batch(
        &mut self,
        partition: u64,
        payload: &str,
        count: usize,
    ) -> Outcome<()> {
        self.out.clear();
        self.calls += 1;
        for number in 1..=count {
            // Only what ends the batch is confirmed.
            let (reply, commit) = match number == count {
                true => (format!(" {}.ack", self.inbox), "Nats-Batch-Commit: 1\r\n"),
                false => (String::new(), ""),
            };
            let headers = format!(
                "NATS/1.0\r\nNats-Batch-Id: {}-{}\r\nNats-Batch-Sequence: {number}\r\n\
                 {commit}\r\n",
                self.inbox, self.calls
            );
            let (head, total) = (headers.len(), headers.len() + payload.len());
            let line = format!("HPUB q.p{partition}{reply} {head} {total}\r\n");
            for piece in [&line, &headers, payload, "\r\n"] {
                self.out.extend_from_slice(piece.as_bytes());
            }
        }
        self.stream.write_all(&self.out).await?;
        let confirmed = self.next().await?;
        self.good(&confirmed)
    }

    /// Fetches messages and acknowledges each; the server confirms the last. Says how many.
    pub async fn fetch(&mut self, consumer: &str, batch: usize) -> Outcome<u64> {
        self.calls += 1;
        let inbox = format!("{}.fetch.{}", self.inbox, self.calls);
        let request = format!("{{\"batch\":{batch},\"no_wait\":true}}");
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer}");
        let call = format!("PUB {subject} {inbox} {}\r\n{request}\r\n", request.len());
        self.stream.write_all(call.as_bytes()).await?;
        let (mut count, mut last) = (0, Vec::new());
        self.out.clear();
        while count < batch {
            let message = self.next().await?;
            if message.reply.is_empty() {
                // A status: there are no more. That of an earlier fetch may come late.
                if self.buffer[message.subject] == *inbox.as_bytes() {
                    break;
                }
                continue;
            }
            if !last.is_empty() {
                acknowledge(&mut self.out, &last, "");
            }
            last.clear();
            last.extend_from_slice(&self.buffer[message.reply]);
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let confirm = format!("{}.done.{} ", self.inbox, self.calls);
        acknowledge(&mut self.out, &last, &confirm);
        self.stream.write_all(&self.out).await?;
        loop {
            let message = self.next().await?;
            if self.buffer[message.subject] == *confirm.trim_end().as_bytes() {
                return Ok(count as u64);
            }
        }
    }
}

fn acknowledge(out: &mut Vec<u8>, to: &[u8], reply: &str) {
    for piece in [b"PUB ", to, b" ", reply.as_bytes(), b"4\r\n+ACK\r\n"] {
        out.extend_from_slice(piece);
    }
}
