//! Carries bytes between two sockets and never looks at them. The client's may be encrypted.
//!
//! Bytes are read into a buffer that belongs to the thread and written on at once. Only what a slow
//! receiver does not take is kept with the session, and nothing more is read for it meanwhile: at
//! most one buffer a direction.
//!
//! A side that says its last ends the session at once, as soon as what it said before was passed
//! on: WebSocket has no half-closed connections, and whoever waited for the other side to notice
//! would hold a slot for somebody who is gone.

use crate::desk::EndedBy;
use crate::front::Io;
use crate::listen::{KEEPALIVE, keep_alive};
use crate::options::GatewayOptions;
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

const BUFFER: usize = 64 * 1_024;

/// A day that never comes, for limits that are off.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

/// Two sockets and what is on its way between them.
pub(crate) struct Relay<C> {
    client: C,
    worker: TcpStream,
    up: Way,
    down: Way,
    limits: Limits,
    began: Instant,
    heard: Instant,
    alarm: Pin<Box<Sleep>>,
    /// Whether the system watches over the worker's socket; sessions that are over before it would
    /// begin to need not be told to it.
    watched: bool,
}

#[derive(Clone, Copy)]
struct Limits {
    idle: Duration,
    duration: Duration,
    stall: Duration,
}

/// One direction.
#[derive(Default)]
struct Way {
    /// What was read and not taken yet, from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    bytes: u64,
    /// Since when the receiver has taken nothing of what is pending.
    stalled: Option<Instant>,
    /// Whether the receiver's side may still hold back what it has taken, as encryption does.
    unflushed: bool,
    ended: bool,
}

/// What became of a direction for now.
enum Step {
    Waiting,
    /// Its sender has said its last, and everything was passed on.
    Over,
    SenderBroke,
    ReceiverBroke,
}

impl<C: Io> Relay<C> {
    /// `early` is what each side has said already.
    pub fn new(
        client: (C, Vec<u8>),
        worker: (TcpStream, Vec<u8>),
        options: &GatewayOptions,
    ) -> Self {
        let or_never = |limit: Duration| if limit.is_zero() { NEVER } else { limit };
        let limits = Limits {
            idle: or_never(options.idle_timeout),
            duration: or_never(options.duration_max),
            stall: or_never(options.stall_max),
        };
        let now = Instant::now();
        let (client, up) = (client.0, Way::starting_with(client.1));
        let (worker, down) = (worker.0, Way::starting_with(worker.1));
        let alarm = Box::pin(sleep_until(now + limits.idle.min(limits.duration).min(KEEPALIVE)));
        Relay { client, worker, up, down, limits, began: now, heard: now, alarm, watched: false }
    }

    /// The client, to be told the end.
    pub fn client(&mut self) -> &mut C {
        &mut self.client
    }

    /// From client to worker.
    pub fn up_bytes(&self) -> u64 {
        self.up.bytes
    }

    /// From worker to client.
    pub fn down_bytes(&self) -> u64 {
        self.down.bytes
    }

    /// Carries what there is to carry; ready when the session is over.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<EndedBy> {
        let now = Instant::now();
        let before = self.up.bytes + self.down.bytes;
        let over = SHARED.with_borrow_mut(|buffer| self.carry(cx, buffer, now));
        if let Some(by) = over {
            return Poll::Ready(by);
        }
        if self.up.bytes + self.down.bytes != before {
            self.heard = now;
        }
        self.poll_limits(cx, now)
    }

    fn carry(&mut self, cx: &mut Context<'_>, buffer: &mut [u8], now: Instant) -> Option<EndedBy> {
        let Relay { client, worker, up, down, .. } = self;
        let up_step = up.carry(cx, client, worker, buffer, now);
        if matches!(up_step, Step::Over | Step::SenderBroke) {
            return Some(EndedBy::Client);
        }
        let down_step = down.carry(cx, worker, client, buffer, now);
        match (up_step, down_step) {
            (_, Step::Over | Step::SenderBroke) | (Step::ReceiverBroke, _) => Some(EndedBy::Worker),
            (_, Step::ReceiverBroke) => Some(EndedBy::Client),
            _ => None,
        }
    }

    fn poll_limits(&mut self, cx: &mut Context<'_>, mut now: Instant) -> Poll<EndedBy> {
        loop {
            let (at, by) = self.next_limit();
            if at <= now {
                return Poll::Ready(by);
            }
            // Limits mostly move away; the alarm then rings too early and is set anew.
            if at < self.alarm.deadline() {
                self.alarm.as_mut().reset(at);
            }
            if self.alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            now = now.max(self.alarm.deadline());
            if at <= now {
                return Poll::Ready(by);
            }
            if !self.watched {
                self.watched = true;
                // A socket that refuses it is broken, and will be read as such.
                let _ = keep_alive(&self.worker);
            }
            self.alarm.as_mut().reset(at);
        }
    }

    fn next_limit(&self) -> (Instant, EndedBy) {
        let mut next = (self.began + self.limits.duration, EndedBy::Duration);
        let mut sooner = |at: Instant, by: EndedBy| {
            if at < next.0 {
                next = (at, by);
            }
        };
        sooner(self.heard + self.limits.idle, EndedBy::Idle);
        if let Some(since) = self.up.stalled {
            sooner(since + self.limits.stall, EndedBy::WorkerStalled);
        }
        if let Some(since) = self.down.stalled {
            sooner(since + self.limits.stall, EndedBy::ClientStalled);
        }
        next
    }
}

impl Way {
    fn starting_with(early: Vec<u8>) -> Self {
        Way { bytes: early.len() as u64, pending: early, ..Way::default() }
    }

    fn carry(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl Io,
        to: &mut impl Io,
        buffer: &mut [u8],
        now: Instant,
    ) -> Step {
        loop {
            if !self.pending.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, &self.pending[self.sent..]) {
                    Poll::Ready(Ok(taken)) if taken > 0 => self.taken(taken),
                    Poll::Ready(_) => return Step::ReceiverBroke,
                    Poll::Pending => {
                        self.stalled.get_or_insert(now);
                        return Step::Waiting;
                    }
                }
                continue;
            }
            if self.unflushed {
                match Pin::new(&mut *to).poll_flush(cx) {
                    Poll::Ready(Ok(())) => (self.unflushed, self.stalled) = (false, None),
                    Poll::Ready(Err(_)) => return Step::ReceiverBroke,
                    Poll::Pending => {
                        self.stalled.get_or_insert(now);
                        return Step::Waiting;
                    }
                }
            }
            if self.ended {
                return Step::Over;
            }
            let mut room = ReadBuf::new(buffer);
            match Pin::new(&mut *from).poll_read(cx, &mut room) {
                Poll::Pending => return Step::Waiting,
                Poll::Ready(Err(_)) => return Step::SenderBroke,
                Poll::Ready(Ok(())) if room.filled().is_empty() => self.ended = true,
                Poll::Ready(Ok(())) => {
                    let read = room.filled();
                    self.bytes += read.len() as u64;
                    match Pin::new(&mut *to).poll_write(cx, read) {
                        Poll::Ready(Ok(taken)) if taken == read.len() => self.unflushed = true,
                        Poll::Ready(Ok(taken)) if taken > 0 => {
                            self.pending = read[taken..].to_vec()
                        }
                        Poll::Ready(_) => return Step::ReceiverBroke,
                        Poll::Pending => self.pending = read.to_vec(),
                    }
                }
            }
        }
    }

    /// The receiver has taken some of what was pending; the memory is given back with the last.
    fn taken(&mut self, taken: usize) {
        self.sent += taken;
        self.stalled = None;
        self.unflushed = true;
        if self.sent == self.pending.len() {
            self.pending = Vec::new();
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::task::Waker;
    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

    /// Takes everything, and lets it go only when it is flushed and may; as encryption does.
    #[derive(Default)]
    struct HoldsBack {
        held: Vec<u8>,
        gone: Vec<u8>,
        may: bool,
    }

    impl AsyncRead for HoldsBack {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for HoldsBack {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.held.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if !self.may {
                return Poll::Pending;
            }
            let held = std::mem::take(&mut self.held);
            self.gone.extend_from_slice(&held);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_a_receiver_holds_back_is_waited_for_before_more_is_read() {
        let (mut sender, mut from) = tokio::io::duplex(64);
        let (mut way, mut to) = (Way::default(), HoldsBack::default());
        let (mut cx, mut buffer) = (Context::from_waker(Waker::noop()), [0; 64]);
        let now = Instant::now();
        sender.write_all(b"one").await.expect("writes");
        assert!(matches!(way.carry(&mut cx, &mut from, &mut to, &mut buffer, now), Step::Waiting));
        sender.write_all(b"two").await.expect("writes");
        assert!(matches!(way.carry(&mut cx, &mut from, &mut to, &mut buffer, now), Step::Waiting));
        assert_eq!((to.held.as_slice(), way.stalled), (&b"one"[..], Some(now)));
        to.may = true;
        drop(sender);
        assert!(matches!(way.carry(&mut cx, &mut from, &mut to, &mut buffer, now), Step::Over));
        assert_eq!((to.gone.as_slice(), way.stalled), (&b"onetwo"[..], None));
    }
}
