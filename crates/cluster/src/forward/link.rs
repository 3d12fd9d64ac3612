//! One connection to another node.
//!
//! It is read and written by whoever uses it, in the task of that request, and by nobody while it
//! is free. HTTP is spoken here and not by a library that does it for everybody, because a hop is
//! cheap where little code runs for it.

use super::body::{BodyFault, Sending};
use super::http1::{self, Framing, Going, Piece, Unreadable};
use super::tls::Stream;
use bytes::Bytes;
use hyper::body::{Body, SizeHint};
use hyper::{Method, Request, Response};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// As much is read at a time. The head of an answer must fit in.
const BUFFER_BYTES: usize = 16 << 10;

/// As much of a body in memory is copied to its head, to leave in one piece.
const GATHER_BYTES: usize = 64 << 10;

/// Why there is no answer, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the connection was closed")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    /// The request's own body broke.
    #[error("{0}")]
    Fault(#[from] BodyFault),
}

/// What is still to be sent of a request.
struct Outlet {
    out: Vec<u8>,
    sent: usize,
    body: Option<Sending>,
    going: Going,
}

/// A connection.
pub(super) struct Link {
    stream: Box<dyn Stream>,
    outlet: Option<Outlet>,
    written: u64,
    buffer: Box<[u8]>,
    /// What was read and not used yet is from here.
    start: usize,
    /// And to here.
    end: usize,
    to_head: bool,
    framing: Framing,
    /// Whether the next request can go on it.
    keeps: bool,
    watch: Pin<Box<Sleep>>,
    /// Which address of the node it goes to.
    pub generation: u64,
    /// When it became free.
    pub free_since: Instant,
}

impl Link {
    /// On a fresh connection.
    pub fn new(stream: Box<dyn Stream>, generation: u64, deadline: Instant) -> Self {
        Link {
            stream,
            outlet: None,
            written: 0,
            buffer: vec![0; BUFFER_BYTES].into(),
            start: 0,
            end: 0,
            to_head: false,
            framing: Framing::Over,
            keeps: true,
            watch: Box::pin(tokio::time::sleep_until(deadline)),
            generation,
            free_since: Instant::now(),
        }
    }

    /// Bytes written to it so far: the difference between a request that surely was not sent and
    /// one that may have been.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Takes a request that is to be sent next. A body that is a stream leaves it.
    pub fn begin(&mut self, request: &mut Request<Sending>) {
        let mut out = Vec::with_capacity(1 << 10);
        let going = http1::write_head(request, &mut out);
        let copy = request.body().again();
        let mut body = Some(copy.unwrap_or_else(|| std::mem::take(request.body_mut())));
        if let Some(bytes) = body.as_ref().and_then(Sending::in_memory)
            && bytes.len() <= GATHER_BYTES
        {
            going.write(bytes, &mut out);
            body = None;
        }
        self.to_head = request.method() == Method::HEAD;
        self.keeps = false;
        self.outlet = Some(Outlet { out, sent: 0, body, going });
    }

    /// Gives a stream back that nothing was read of, because nothing was sent.
    pub fn give_back(&mut self, request: &mut Request<Sending>) {
        let body = self.outlet.take().and_then(|outlet| outlet.body);
        if let Some(body) = body.filter(|body| body.again().is_none()) {
            *request.body_mut() = body;
        }
    }

    /// Sends as much as can be sent now.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        let Link { outlet: Some(outlet), stream, written, .. } = self else { return Ok(()) };
        loop {
            while let left @ [_, ..] = &outlet.out[outlet.sent..] {
                match Pin::new(&mut *stream).poll_write(cx, left)? {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                    Poll::Ready(bytes) => {
                        outlet.sent += bytes;
                        *written += bytes as u64;
                    }
                }
            }
            outlet.out.clear();
            outlet.sent = 0;
            let Some(body) = &mut outlet.body else { break };
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(frame)) => {
                    if let Ok(data) = frame?.into_data() {
                        outlet.going.write(&data, &mut outlet.out);
                    }
                }
                Poll::Ready(None) => {
                    outlet.going.end(&mut outlet.out);
                    outlet.body = None;
                }
            }
        }
        let whole = outlet.body.is_none();
        if Pin::new(&mut *stream).poll_flush(cx)?.is_ready() && whole {
            self.outlet = None;
        }
        Ok(())
    }

    /// The head of the answer, while the request is sent.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, Broken>> {
        let sent = self.send(cx);
        if let Err(Broken::Fault(fault)) = sent {
            return Poll::Ready(Err(fault.into()));
        }
        loop {
            let read = http1::read_head(&self.buffer[self.start..self.end], self.to_head)?;
            if let Some((head, length)) = read {
                self.start += length;
                self.framing = head.framing;
                self.keeps = head.keeps;
                return Poll::Ready(Ok(head.response));
            }
            match (self.poll_fill(cx)?, &sent) {
                (Poll::Ready(0), Err(_)) | (Poll::Pending, Err(_)) => {
                    return Poll::Ready(sent.and(Err(Broken::Closed)));
                }
                (Poll::Ready(0), Ok(())) => return Poll::Ready(Err(Broken::Closed)),
                (Poll::Ready(_), _) => {}
                (Poll::Pending, Ok(())) => return Poll::Pending,
            }
        }
    }

    /// The next of the answer's body; nothing at its end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        // Whatever hinders it from being sent, the answer is on its way.
        if self.outlet.is_some() && self.send(cx).is_err() {
            self.outlet = None;
            self.keeps = false;
        }
        loop {
            let mut come = &self.buffer[self.start..self.end];
            let piece = match self.framing.next(&mut come) {
                Ok(piece) => piece,
                Err(unreadable) => return Poll::Ready(Some(Err(unreadable.into()))),
            };
            self.start = self.end - come.len();
            match piece {
                Piece::End => return Poll::Ready(None),
                Piece::Data(length) => {
                    let data = Bytes::copy_from_slice(&come[..length]);
                    self.start += length;
                    return Poll::Ready(Some(Ok(data)));
                }
                Piece::More => match ready!(self.poll_fill(cx)) {
                    Ok(0) if self.framing == Framing::Close => {
                        self.framing = Framing::Over;
                        return Poll::Ready(None);
                    }
                    Ok(0) => return Poll::Ready(Some(Err(Broken::Closed))),
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                },
            }
        }
    }

    /// Reads more; how many bytes, and none at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            let why = "more came than there is room for";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let mut room = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        let bytes = room.filled().len();
        self.end += bytes;
        Poll::Ready(Ok(bytes))
    }

    /// What is known of how much is still to come.
    pub fn hint(&self) -> SizeHint {
        match self.framing {
            Framing::Over => SizeHint::with_exact(0),
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Chunked(_) | Framing::Close => SizeHint::default(),
        }
    }

    /// Whether all of the answer was read.
    pub fn is_over(&self) -> bool {
        self.framing == Framing::Over
    }

    /// Ready when this point in time is over. Setting a timer wakes the runtime's, so it is only
    /// set anew if it would ring too late, or has rung: about once in many requests.
    pub fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        if self.watch.deadline() > deadline {
            self.watch.as_mut().reset(deadline);
        }
        loop {
            ready!(self.watch.as_mut().poll(cx));
            if self.watch.deadline() >= deadline || Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.watch.as_mut().reset(deadline);
        }
    }

    /// Whether its answer is over, so that the next request can go on it. Whatever happens to
    /// a free connection wakes nobody.
    pub fn is_free(&mut self) -> bool {
        let done = self.keeps && self.is_over() && self.outlet.is_none();
        done && self.start == self.end && self.is_quiet()
    }

    /// The same, and whether the other side has not closed it, as far as the system knows. The
    /// runtime only knows what it has been told, and on a busy thread that may be a while ago.
    pub fn is_fresh(&mut self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.is_free()
            && matches!(
                rustix::net::recv(self.stream.socket(), &mut [0], flags),
                Err(Errno::AGAIN | Errno::INTR)
            )
    }

    /// Whether nothing comes: neither the end, nor what nobody asked for.
    fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut room = ReadBuf::new(&mut byte);
        let mut nobody = Context::from_waker(Waker::noop());
        Pin::new(&mut self.stream).poll_read(&mut nobody, &mut room).is_pending()
    }
}
