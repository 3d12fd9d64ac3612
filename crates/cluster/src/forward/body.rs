//! Bodies on their way to another node and back.

use super::exchange::Exchange;
use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

type Boxed =
    Pin<Box<dyn Body<Data = Bytes, Error = Box<dyn std::error::Error + Send + Sync>> + Send>>;

/// Why the body of a request ended before its end. Not the fault of the node it was for.
#[derive(Debug, thiserror::Error)]
pub enum BodyFault {
    /// It has more bytes than may be forwarded.
    #[error("the body has more than {0} bytes")]
    TooLarge(u64),
    /// Its sender broke off.
    #[error("the client did not send all of its request: {0}")]
    Client(Box<dyn std::error::Error + Send + Sync>),
}

/// The body of a request. One that is in memory can be sent again; a stream only if nothing of it
/// was read.
#[derive(Default)]
pub struct Sending(Source);

#[derive(Default)]
enum Source {
    #[default]
    Empty,
    Whole(Bytes),
    Stream {
        body: Boxed,
        most: u64,
        passed: u64,
    },
}

impl Sending {
    /// None.
    pub fn empty() -> Self {
        Sending(Source::Empty)
    }

    /// One that is in memory.
    pub fn whole(bytes: Bytes) -> Self {
        if bytes.is_empty() { Sending::empty() } else { Sending(Source::Whole(bytes)) }
    }

    /// One that still comes in, of at most this many bytes.
    pub fn stream<B>(body: B, most: u64) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        use http_body_util::BodyExt;
        if body.is_end_stream() {
            return Sending::empty();
        }
        let body = Box::pin(body.map_err(Into::into));
        Sending(Source::Stream { body, most, passed: 0 })
    }

    /// The same once more, unless it is a stream.
    pub fn again(&self) -> Option<Self> {
        match &self.0 {
            Source::Empty => Some(Sending::empty()),
            Source::Whole(bytes) => Some(Sending(Source::Whole(bytes.clone()))),
            Source::Stream { .. } => None,
        }
    }
}

impl Sending {
    /// All of it, unless it is a stream.
    pub(super) fn in_memory(&self) -> Option<&Bytes> {
        static NONE: Bytes = Bytes::new();
        match &self.0 {
            Source::Empty => Some(&NONE),
            Source::Whole(bytes) => Some(bytes),
            Source::Stream { .. } => None,
        }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match &mut self.0 {
            Source::Empty => Poll::Ready(None),
            Source::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Source::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Source::Stream { body, most, passed } => {
                let frame = match ready!(body.as_mut().poll_frame(cx)) {
                    None => return Poll::Ready(None),
                    Some(frame) => frame.map_err(BodyFault::Client)?,
                };
                *passed += frame.data_ref().map_or(0, |data| data.len() as u64);
                if *passed > *most {
                    return Poll::Ready(Some(Err(BodyFault::TooLarge(*most))));
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Empty => true,
            Source::Whole(_) => false,
            Source::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Empty => SizeHint::with_exact(0),
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Stream { body, .. } => body.size_hint(),
        }
    }
}

/// Why an answer ended before its end. Its head was passed on, so all that is left is to break off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The other node broke off.
    #[error("the other node broke off its answer: {0}")]
    Broken(String),
    /// The time is up.
    #[error("the other node's answer was not over in time")]
    Deadline,
    /// It has more bytes than may be.
    #[error("the other node's answer has more than {0} bytes")]
    TooLarge(u64),
}

/// The body of an answer: what was read ahead, and the rest as it comes. Dropping it before its end
/// closes the connection it comes on.
pub struct Answer {
    pub(super) ahead: Bytes,
    pub(super) rest: Option<Rest>,
}

/// What is still to come of an answer.
pub(super) struct Rest {
    pub exchange: Exchange,
    pub most: u64,
    pub passed: u64,
}

impl Answer {
    /// All of it is here.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Answer { ahead: bytes, rest: None }
    }

    /// Whether all of it is here.
    pub const fn is_whole(&self) -> bool {
        self.rest.is_none()
    }
}

impl Rest {
    /// The next bytes. `Ready(None)` at the end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, AnswerError>>> {
        match self.exchange.poll_data(cx) {
            Poll::Ready(None) => {
                self.exchange.complete();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(data))) => {
                self.passed += data.len() as u64;
                if self.passed > self.most {
                    self.exchange.give_up();
                    return Poll::Ready(Some(Err(AnswerError::TooLarge(self.most))));
                }
                Poll::Ready(Some(Ok(data)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.exchange.condemn();
                Poll::Ready(Some(Err(AnswerError::Broken(error.to_string()))))
            }
            Poll::Pending => {
                ready!(self.exchange.poll_deadline(cx));
                self.exchange.condemn();
                Poll::Ready(Some(Err(AnswerError::Deadline)))
            }
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        if self.ahead.has_remaining() {
            let ahead = std::mem::take(&mut self.ahead);
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let data = ready!(rest.poll_data(cx));
        if !matches!(data, Some(Ok(_))) {
            self.rest = None;
        }
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.len() as u64;
        let Some(rest) = &self.rest else { return SizeHint::with_exact(ahead) };
        let of_rest = rest.exchange.hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = of_rest.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint.set_lower(of_rest.lower().saturating_add(ahead));
        hint
    }
}

/// Bytes that were read of a body, whole or the first of them.
#[derive(Default)]
pub(super) struct Collected {
    first: Bytes,
    more: Option<BytesMut>,
}

impl Collected {
    /// Adds some. The first piece, mostly the only one, is not copied.
    pub fn add(&mut self, data: Bytes) {
        match &mut self.more {
            Some(more) => more.extend_from_slice(&data),
            None if self.first.is_empty() => self.first = data,
            None => {
                let mut more = BytesMut::with_capacity(2 * (self.first.len() + data.len()));
                more.extend_from_slice(&self.first);
                more.extend_from_slice(&data);
                self.more = Some(more);
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.more.as_ref().map_or(self.first.len(), BytesMut::len)
    }

    /// All of them.
    pub fn into_bytes(self) -> Bytes {
        self.more.map_or(self.first, BytesMut::freeze)
    }
}
