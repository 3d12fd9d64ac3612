//! Server-sent events of a node, one at a time.

use super::client::NodeArgs;
use super::{CliError, Exit};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;

/// A node says something at least this often, if only that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// An event larger than this is not one of a node; messages may be large.
const EVENT_BYTES_MAX: usize = 65 << 20;

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What it is called.
    pub name: String,
    /// What it says.
    pub data: String,
}

/// A stream of events that is being read.
pub struct Events {
    body: Incoming,
    node: NodeArgs,
    text: Reader,
}

impl Events {
    pub fn new(body: Incoming, node: NodeArgs) -> Self {
        Events { body, node, text: Reader::default() }
    }

    /// The next event; `None` when the node has ended the stream.
    pub async fn next(&mut self) -> Result<Option<Event>, CliError> {
        loop {
            if let Some(event) = self.text.take() {
                return Ok(Some(event));
            }
            let url = self.node.shown_url();
            if self.text.waiting.len() > EVENT_BYTES_MAX {
                let message = format!("{url} sends something else than a node would");
                return Err(CliError::new(Exit::Unavailable, message));
            }
            match tokio::time::timeout(SILENCE_MAX, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    self.text.waiting.extend(frame.data_ref().into_iter().flatten());
                }
                Ok(Some(Err(error))) => return Err(self.node.unreachable(&error)),
                Ok(None) => return Ok(None),
                Err(_) => {
                    let message = format!("{url} has said nothing for {SILENCE_MAX:?}");
                    return Err(CliError::new(Exit::Unavailable, message));
                }
            }
        }
    }
}

/// Bytes that become events.
#[derive(Default)]
struct Reader {
    waiting: Vec<u8>,
    /// No event ends in so many of these bytes.
    looked_at: usize,
}

impl Reader {
    /// The first whole event with data.
    fn take(&mut self) -> Option<Event> {
        loop {
            let from = self.looked_at;
            let end = self.waiting[from..].windows(2).position(|two| two == b"\n\n");
            let Some(end) = end.map(|end| from + end) else {
                self.looked_at = self.waiting.len().saturating_sub(1);
                return None;
            };
            self.looked_at = 0;
            let whole: Vec<u8> = self.waiting.drain(..end + 2).collect();
            let mut event = Event::default();
            for line in String::from_utf8_lossy(&whole).lines() {
                if let Some(name) = line.strip_prefix("event:") {
                    event.name = name.trim_start().to_owned();
                } else if let Some(data) = line.strip_prefix("data:") {
                    event.data.push_str(data.trim_start());
                }
            }
            // A comment keeps the connection alive and says nothing.
            if !event.data.is_empty() {
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_from_pieces_and_comments_are_passed_over() {
        let mut reader = Reader::default();
        let mut seen = Vec::new();
        for piece in
            [":\n\nevent: en", "try\ndata: {\"a\":1}\n", "\n: hello\n\nevent:missed\ndata:{}\n\nda"]
        {
            reader.waiting.extend(piece.as_bytes());
            while let Some(event) = reader.take() {
                seen.push((event.name, event.data));
            }
        }
        let pair = |name: &str, data: &str| (name.to_owned(), data.to_owned());
        assert_eq!(seen, [pair("entry", "{\"a\":1}"), pair("missed", "{}")]);
        assert_eq!(reader.waiting, b"da");
    }
}
