//! A client's connection: one request after the other.

use crate::answer::Local;
use crate::carry::carry;
use crate::http1::buffer::Buffer;
use crate::plan::{Origin, Plan, Refused, plan};
use crate::proxy::Inner;
use crate::refusal::codes;
use crate::watch::Watch;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// What is read of a request that was refused, so that its sender gets to read the answer.
const LINGER_MAX: usize = 256 * 1_024;
const LINGER_LIMIT: Duration = Duration::from_secs(1);

/// Both directions of a connection.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for S {}

/// A connection that is being served.
pub(crate) struct Client<S> {
    pub io: S,
    pub buffer: Buffer,
    pub origin: Origin,
    pub watch: Watch,
    pub stop: Stop,
}

/// Whether nothing new may begin.
pub(crate) struct Stop {
    token: CancellationToken,
    /// Made when first waited for. One registration is enough: a connection is one task, and
    /// whoever wakes it makes it look again.
    waiting: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Stop {
    pub fn new(token: CancellationToken) -> Self {
        Stop { token, waiting: None }
    }

    pub fn is_near(&self) -> bool {
        self.token.is_cancelled()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.token.is_cancelled() {
            return Poll::Ready(());
        }
        if self.waiting.is_some() {
            return Poll::Pending;
        }
        let waiting = Box::pin(self.token.clone().cancelled_owned());
        self.waiting.insert(waiting).as_mut().poll(cx)
    }
}

/// How serving a connection ended.
pub(crate) enum End {
    /// It is over.
    Over,
    /// The next request belongs to somebody else.
    NotOurs,
    /// It speaks HTTP/2.
    Http2,
}

/// What came of waiting for more of a request.
enum More {
    Some,
    Gone,
    TooSlow,
    TooLarge,
}

impl<S: Io> Client<S> {
    pub fn new(io: S, origin: Origin, stop: CancellationToken, idle: Duration) -> Self {
        Client {
            io,
            buffer: Buffer::default(),
            origin,
            watch: Watch::new(idle),
            stop: Stop::new(stop),
        }
    }

    /// Serves requests for as long as they are ours.
    pub async fn serve(&mut self, proxy: &Inner) -> End {
        let mut first = true;
        loop {
            if self.buffer.is_empty() {
                self.buffer.rest();
                let idle = if first { proxy.options.head_limit } else { proxy.options.idle_limit };
                self.watch.set(Instant::now(), idle);
                if !matches!(self.more(proxy, true).await, More::Some) {
                    return End::Over;
                }
            }
            first = false;
            match self.next_plan(proxy).await {
                Plan::Forward(job) => {
                    if !carry(self, proxy, job).await {
                        return End::Over;
                    }
                }
                Plan::Refuse(refused) => {
                    if !self.refuse(proxy, *refused).await {
                        return End::Over;
                    }
                }
                Plan::NotOurs => return End::NotOurs,
                Plan::Http2 => return End::Http2,
                Plan::More => return End::Over,
            }
        }
    }

    /// Reads until a head is whole; [`Plan::More`] if there will be none.
    async fn next_plan(&mut self, proxy: &Inner) -> Plan {
        self.watch.set(Instant::now(), proxy.options.head_limit);
        let mut seen = 0;
        loop {
            // A head can only have become whole with a line.
            if self.buffer.data()[seen..].contains(&b'\n') {
                let live = proxy.live.load();
                let (origin, options) = (&self.origin, &proxy.options);
                match plan(self.buffer.data(), origin, &live, options, &proxy.moment) {
                    Plan::More => {}
                    plan => return plan,
                }
            }
            seen = self.buffer.len();
            let refusal = match self.more(proxy, false).await {
                More::Some => continue,
                More::Gone => return Plan::More,
                More::TooLarge => {
                    let most = proxy.options.head_max;
                    codes::E_HEAD_TOO_LARGE.because(format!("it may have {most} bytes"))
                }
                More::TooSlow => {
                    let limit = proxy.options.head_limit;
                    codes::E_HEAD_TOO_SLOW.because(format!("it may take {limit:?}"))
                }
            };
            return Plan::Refuse(Box::new(Refused::unread(refusal, &self.origin)));
        }
    }

    /// Waits for more bytes. Between requests, the end of the proxy is an end too.
    async fn more(&mut self, proxy: &Inner, between: bool) -> More {
        let max = proxy.options.head_max;
        poll_fn(|cx| {
            if self.buffer.len() >= max {
                return Poll::Ready(More::TooLarge);
            }
            if between && self.stop.poll(cx).is_ready() {
                return Poll::Ready(More::Gone);
            }
            if let Poll::Ready(read) = self.buffer.poll_fill(cx, &mut self.io, max) {
                let some = read.is_ok_and(|count| count > 0);
                return Poll::Ready(if some { More::Some } else { More::Gone });
            }
            ready!(self.watch.poll(cx));
            Poll::Ready(if between { More::Gone } else { More::TooSlow })
        })
        .await
    }

    /// Answers a request here; whether the connection goes on.
    async fn refuse(&mut self, proxy: &Inner, refused: Refused) -> bool {
        let goes_on = refused.goes_on.filter(|_| !self.stop.is_near());
        let page = refused.route.as_ref().and_then(|route| route.page(&refused.refusal));
        let local = Local {
            refusal: &refused.refusal,
            request_id: &refused.meta.request_id,
            to_head: refused.meta.method == "HEAD",
            closes: goes_on.is_none(),
            location: refused.location.as_deref(),
            page,
        };
        let bytes = local.bytes();
        proxy.note_refused(&refused);
        if let Some(length) = goes_on {
            self.buffer.consume(length);
        }
        self.say(&bytes, goes_on.is_some()).await
    }

    /// Answers a request that belongs to no route, where nobody else can be asked.
    pub async fn refuse_unclaimed(&mut self, proxy: &Inner) {
        let refusal = codes::E_NO_ROUTE.because("no route has its host and path");
        self.refuse(proxy, Refused::unread(refusal, &self.origin)).await;
    }

    /// Sends an answer that was made here, and sees to it that it is read; whether the connection
    /// goes on.
    pub async fn say(&mut self, bytes: &[u8], goes_on: bool) -> bool {
        let saying = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        let said = tokio::time::timeout(LINGER_LIMIT, saying).await;
        if !matches!(said, Ok(Ok(()))) {
            return false;
        }
        if !goes_on {
            self.linger().await;
        }
        goes_on
    }

    /// Closing with something unread would tear down the connection, and the answer with it.
    pub async fn linger(&mut self) {
        let lingering = async {
            self.io.shutdown().await?;
            let mut left = LINGER_MAX;
            self.buffer.consume(usize::MAX);
            while left > 0 {
                let read =
                    poll_fn(|cx| self.buffer.poll_fill(cx, &mut self.io, LINGER_MAX)).await?;
                if read == 0 {
                    break;
                }
                self.buffer.consume(usize::MAX);
                left = left.saturating_sub(read);
            }
            std::io::Result::Ok(())
        };
        // Whoever does not hang up by then is hung up on.
        let _ = tokio::time::timeout(LINGER_LIMIT, lingering).await;
    }
}
