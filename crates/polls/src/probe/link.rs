//! A connection that HTTP is spoken over.

use super::outcome::{Fault, Verdict};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};

/// An answer's head that is longer than this is an error.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// What bytes go through: a socket, with TLS or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection and hyper's two halves of it. Nothing is spawned: whoever waits for an answer
/// drives the connection, so that dropping the poll closes its socket, and a poll is one task.
pub(super) struct Link {
    pub sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>,
    ended: bool,
    pub born: Instant,
    /// When the certificate that was seen expires.
    pub expires_at_ms: Option<i64>,
}

impl Link {
    pub async fn new(stream: Box<dyn Stream>, expires_at_ms: Option<i64>) -> Result<Self, Fault> {
        let (sender, connection) = Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Fault::new(Verdict::Protocol, error.to_string()))?;
        Ok(Link { sender, connection, ended: false, born: Instant::now(), expires_at_ms })
    }

    /// Waits for something that needs the connection to go on.
    pub async fn drive<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        let mut wanted = pin!(wanted);
        poll_fn(|context| {
            if let Poll::Ready(done) = wanted.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            if self.step(context) { wanted.as_mut().poll(context) } else { Poll::Pending }
        })
        .await
    }

    /// Lets the connection do what it can. `false` if it had ended before.
    fn step(&mut self, context: &mut Context<'_>) -> bool {
        if self.ended {
            return false;
        }
        // Its error, if any, reaches whoever waits for the answer.
        self.ended = Pin::new(&mut self.connection).poll(context).is_ready();
        true
    }

    /// Whether another request can be sent now, as far as is known here.
    pub async fn is_idle(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(self.look(context))).await
    }

    /// The same for one that is put aside. Forgets who waited for it.
    pub fn settle(&mut self) -> bool {
        self.look(&mut Context::from_waker(Waker::noop()))
    }

    fn look(&mut self, context: &mut Context<'_>) -> bool {
        self.step(context);
        !self.ended && self.sender.is_ready()
    }
}
