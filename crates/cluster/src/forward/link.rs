//! One connection to another node.

use super::bell::Bell;
use super::body::Sending;
use super::tls::Stream;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use tokio::time::{Instant, Sleep};

/// How often a connection is looked at before others have their turn.
const LOOKS_MAX: usize = 4;

/// A socket that counts what was written to it: the difference between a request that surely was
/// not sent and one that may have been.
struct Counted {
    io: TokioIo<Box<dyn Stream>>,
    seen: Arc<Seen>,
}

/// What a link knows of its socket.
#[derive(Default)]
struct Seen {
    written: AtomicU64,
    /// Whether the system is to be asked if anything has come. The runtime only knows what it has
    /// been told, and on a busy thread that may be a while ago.
    ask: AtomicBool,
}

impl Read for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if read.is_pending() && self.seen.ask.load(Ordering::Relaxed) {
            return self.peek();
        }
        read
    }
}

impl Counted {
    /// The end of the connection, if it is there; nothing may come on one that is free.
    fn peek(&self) -> Poll<io::Result<()>> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self.io.inner().socket(), &mut [0], flags) {
            Err(Errno::AGAIN | Errno::INTR) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error.into())),
            Ok((_, 0)) => Poll::Ready(Ok(())),
            Ok(_) => Poll::Ready(Err(io::Error::other("something came that was not asked for"))),
        }
    }

    fn count(&self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &wrote {
            self.seen.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        wrote
    }
}

impl Write for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.count(wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.count(wrote)
    }
}

/// A connection, driven by whoever uses it and by nobody while it is free.
pub(super) struct Link {
    pub sender: SendRequest<Sending>,
    connection: Box<Connection<Counted, Sending>>,
    seen: Arc<Seen>,
    over: bool,
    error: Option<hyper::Error>,
    bell: Bell,
    watch: Pin<Box<Sleep>>,
    /// Which address of the node it goes to.
    pub generation: u64,
    /// When it became free.
    pub free_since: Instant,
}

impl Link {
    /// Speaks HTTP on a fresh connection.
    pub async fn new(
        stream: Box<dyn Stream>,
        generation: u64,
        deadline: Instant,
    ) -> hyper::Result<Self> {
        let seen = Arc::new(Seen::default());
        let io = Counted { io: TokioIo::new(stream), seen: seen.clone() };
        let (sender, connection) = Builder::new().handshake(io).await?;
        Ok(Link {
            sender,
            connection: Box::new(connection),
            seen,
            over: false,
            error: None,
            bell: Bell::default(),
            watch: Box::pin(tokio::time::sleep_until(deadline)),
            generation,
            free_since: Instant::now(),
        })
    }

    /// Bytes written to it so far.
    pub fn written(&self) -> u64 {
        self.seen.written.load(Ordering::Relaxed)
    }

    /// Looks for something until there is something, or really nothing, while the connection reads
    /// and writes. What `look` asks may wake nobody: it gets what it has from the connection.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        for _ in 0..LOOKS_MAX {
            self.drive();
            let found = look(self, &mut Context::from_waker(Waker::noop()));
            if found.is_ready() || !self.bell.leave(cx) {
                return found;
            }
        }
        // Others want their turn too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Lets it read and write. From here on it wakes nobody.
    fn drive(&mut self) {
        self.bell.enter();
        let waker = self.bell.waker();
        if !self.over
            && let Poll::Ready(ended) =
                Pin::new(&mut *self.connection).poll(&mut Context::from_waker(&waker))
        {
            self.over = true;
            self.error = ended.err();
        }
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
        self.drive();
        !self.over && self.sender.is_ready()
    }

    /// The same, and whether the other side has not closed it, as far as the system knows.
    pub fn is_fresh(&mut self) -> bool {
        self.seen.ask.store(true, Ordering::Relaxed);
        let fresh = self.is_free();
        self.seen.ask.store(false, Ordering::Relaxed);
        fresh
    }

    /// Whether it has ended.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Why it ended, if it ended badly.
    pub fn take_error(&mut self) -> Option<hyper::Error> {
        self.error.take()
    }
}
