//! Beneath HTTP: a connection from which requests for other nodes are taken before anything else
//! reads them.
//!
//! ```text
//!   client ─► Lane ── a request for another node ─► Early ─► its answer, written here
//!               └──── everything else ───────────► hyper ─► guard ─► relay ─► routes
//! ```
//!
//! A request is only taken where it surely begins: all before it is accounted for, byte by byte,
//! and answered. With the first that is not as plain as that, a connection is hyper's for good. So
//! whoever mixes two requests into one finds nothing here that reads them otherwise.

mod answer;
mod head;
mod turn;

pub use turn::Turn;

use super::guard::Needs;
use super::relay::Early;
use crate::node::Shared;
use answer::Telling;
use axum::Router;
use axum::response::Response;
use head::Left;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What lanes need to know.
pub struct Lanes {
    pub shared: Arc<Shared>,
    pub needs: Arc<Needs>,
    pub router: Router,
    /// Whether answers need nothing but what the guard gives them.
    pub plain: bool,
}

/// A request that is served from here.
enum Doing {
    Asking(Pin<Box<dyn Future<Output = Response> + Send>>),
    Telling(Telling),
}

/// A client's connection.
pub struct Lane<S> {
    stream: S,
    address: SocketAddr,
    lanes: Arc<Lanes>,
    turn: Arc<Turn>,
    left: Left,
    /// The number of the last request that was passed on whole.
    passed: u32,
    doing: Option<Doing>,
    /// What came while a request was served from here.
    ahead: Vec<u8>,
    over: bool,
    /// Since when the next head is awaited, and how many requests there were before it.
    awaited: Option<(u32, Instant)>,
    watch: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lane<S> {
    pub fn new(stream: S, address: SocketAddr, lanes: Arc<Lanes>, turn: Arc<Turn>) -> Self {
        let left = match lanes.plain && lanes.shared.cluster.get().is_some() {
            true => Left::Head,
            false => Left::Unknown,
        };
        Lane {
            stream,
            address,
            lanes,
            turn,
            left,
            passed: 0,
            doing: None,
            ahead: Vec::new(),
            over: false,
            awaited: None,
            watch: None,
        }
    }

    /// Accounts for what has come; a request that is for another node is taken.
    fn look(&mut self, bytes: &[u8]) -> Option<Early> {
        if self.left != Left::Head {
            self.left = self.left.after(bytes.len());
            return None;
        }
        let Lanes { shared, needs, .. } = &*self.lanes;
        let (left, early) = head::read(bytes, |head| Early::of(shared, needs, head, self.address));
        if early.is_none() {
            self.left = left;
            self.passed = self.turn.begun().wrapping_add(1);
        }
        early
    }

    /// Serves the request that was taken. True if there may be another.
    fn poll_doing(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        loop {
            match &mut self.doing {
                None => return Poll::Ready(Ok(true)),
                Some(Doing::Asking(asking)) => match asking.as_mut().poll(cx) {
                    Poll::Ready(response) => {
                        self.doing = Some(Doing::Telling(Telling::new(response)?));
                    }
                    Poll::Pending => {
                        ready!(self.poll_gone(cx, buffer))?;
                        // Nobody waits for the answer any more.
                        self.doing = None;
                        return Poll::Ready(Ok(false));
                    }
                },
                Some(Doing::Telling(telling)) => {
                    ready!(telling.poll_write(cx, &mut self.stream))?;
                    let goes_on = !telling.closes();
                    self.doing = None;
                    return Poll::Ready(Ok(goes_on));
                }
            }
        }
    }

    /// Ready when the client has gone. What it sends instead is kept for later.
    fn poll_gone(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let came = &buffer.filled()[before..];
        if came.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.ahead = came.to_vec();
        buffer.set_filled(before);
        Poll::Pending
    }

    /// What came ahead of its time, or what comes now.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        // Whoever sends the next request before it has the answer to the last has no lane.
        self.left = Left::Unknown;
        let rest = self.ahead.split_off(buffer.remaining().min(self.ahead.len()));
        buffer.put_slice(&self.ahead);
        self.ahead = rest;
        Poll::Ready(Ok(()))
    }

    /// Nothing comes. Ready when the next head has been awaited for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.turn.is_idle() || self.turn.is_upgraded() {
            return Poll::Pending;
        }
        let limit = self.lanes.shared.settings.api.idle_timeout;
        let begun = self.turn.begun();
        let since = match self.awaited {
            Some((before, since)) if before == begun => since,
            _ => Instant::now(),
        };
        self.awaited = Some((begun, since));
        let deadline = since + limit;
        let watch = self.watch.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        // Setting a timer costs more than letting it ring for nothing once in a while.
        loop {
            ready!(watch.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            watch.as_mut().reset(deadline);
        }
    }

    fn end(&mut self) -> Poll<io::Result<()>> {
        self.over = true;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Lane<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let lane = self.get_mut();
        while !lane.over {
            if lane.doing.is_some() {
                let goes_on = ready!(lane.poll_doing(cx, buffer));
                lane.turn.set_in_lane(false);
                if !goes_on? {
                    return lane.end();
                }
            }
            if lane.left == Left::Answer && lane.turn.is_answered(lane.passed) {
                lane.left = Left::Head;
            }
            let before = buffer.filled().len();
            match lane.poll_next(cx, buffer) {
                Poll::Ready(read) => read?,
                Poll::Pending => return lane.poll_idle(cx),
            }
            let came = &buffer.filled()[before..];
            let taken = if came.is_empty() { None } else { lane.look(came) };
            let Some(early) = taken else { return Poll::Ready(Ok(())) };
            buffer.set_filled(before);
            let Lanes { shared, router, .. } = &*lane.lanes;
            let asking = Box::pin(early.serve(shared.clone(), router.clone()));
            lane.doing = Some(Doing::Asking(asking));
            lane.awaited = None;
            lane.turn.set_in_lane(true);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lane<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let lane = self.get_mut();
        ready!(Pin::new(&mut lane.stream).poll_flush(cx))?;
        lane.turn.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
