//! One stream of HTTP/2 as an exchange of HTTP/1, over a connection in memory.

use super::streams::Open;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long whoever served an exchange may take to put things in order after its answer was taken.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Drives both ends. `taken` says that the whole answer was; without that word its receiver has
/// gone, and both ends are dropped as they are.
pub(super) async fn drive(
    serving: impl Future<Output = ()>,
    connection: impl Future<Output = hyper::Result<()>>,
    mut taken: oneshot::Receiver<()>,
) {
    let mut serving = pin!(serving);
    let mut served = false;
    let whole = {
        let mut connection = pin!(connection);
        let mut closed = false;
        loop {
            tokio::select! {
                biased;
                word = &mut taken => break word.is_ok(),
                _ = connection.as_mut(), if !closed => closed = true,
                () = serving.as_mut(), if !served => served = true,
            }
        }
    };
    // The other end has seen its client hang up.
    if whole && !served {
        let _ = timeout(AFTERWARDS, serving).await;
    }
}

/// Holds an exchange open until its answer was taken, or its receiver has gone.
pub(super) struct Taking {
    taken: Option<oneshot::Sender<()>>,
    _open: Open,
}

impl Taking {
    pub fn new(taken: oneshot::Sender<()>, open: Open) -> Self {
        Taking { taken: Some(taken), _open: open }
    }

    fn is_whole(&mut self) {
        if let Some(taken) = self.taken.take() {
            // Nobody waits for it if the node ends meanwhile.
            let _ = taken.send(());
        }
    }
}

/// The body of an answer, which says when it was taken.
pub(super) struct Returned {
    body: Incoming,
    taking: Taking,
}

impl Returned {
    pub fn new(body: Incoming, taking: Taking) -> Self {
        Returned { body, taking }
    }
}

impl Body for Returned {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.taking.is_whole();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        // Who knows the length does not ask for an end after it.
        if self.body.is_end_stream() {
            self.taking.is_whole();
        }
    }
}

/// The client's end. Where nobody takes the rest of a request it goes nowhere, as an answer that
/// was given before it ended can still be read.
pub(super) struct NearEnd(pub DuplexStream);

impl AsyncRead for NearEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for NearEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(Pin::new(&mut self.0).poll_write(cx, bytes)) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Poll::Ready(Ok(bytes.len())),
            written => Poll::Ready(written),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
