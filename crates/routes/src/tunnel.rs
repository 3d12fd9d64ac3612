//! What comes after 101: bytes in both directions, which are nobody's business here.

use crate::client::{Client, Io};
use crate::http1::body::Framing;
use crate::http1::buffer::Buffer;
use crate::http1::pump::Pump;
use crate::pool::Link;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// One direction.
struct Lane {
    pump: Pump,
    /// Whether the receiver was told that nothing more will come.
    closed: bool,
}

impl Lane {
    fn new() -> Self {
        Lane { pump: Pump::new(Vec::new(), Framing::UntilClose, false, u64::MAX), closed: false }
    }

    /// Ready when there is nothing more to carry; an error ends the tunnel.
    fn poll<R: Io, W: Io>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        buffer: &mut Buffer,
        to: &mut W,
    ) -> Poll<Result<(), ()>> {
        if self.closed {
            return Poll::Ready(Ok(()));
        }
        ready!(self.pump.poll(cx, from, buffer, to)).map_err(drop)?;
        ready!(Pin::new(to).poll_shutdown(cx)).map_err(drop)?;
        self.closed = true;
        Poll::Ready(Ok(()))
    }
}

/// Carries bytes until both sides have ended, one breaks, or nothing moves for `idle`. Gives how
/// many went up and down.
pub(crate) async fn run<S: Io>(
    client: &mut Client<S>,
    mut link: Link,
    idle: Duration,
) -> (u64, u64) {
    let (mut up, mut down) = (Lane::new(), Lane::new());
    let mut moved = u64::MAX;
    poll_fn(|cx| {
        let one = up.poll(cx, &mut client.io, &mut client.buffer, &mut link.stream);
        let other = down.poll(cx, &mut link.stream, &mut link.buffer, &mut client.io);
        match (one, other) {
            (Poll::Ready(Err(())), _) | (_, Poll::Ready(Err(()))) => return Poll::Ready(()),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(()),
            _ => {}
        }
        let now_moved = up.pump.moved() + down.pump.moved();
        if moved != now_moved {
            moved = now_moved;
            client.watch.set(Instant::now(), idle);
        }
        client.watch.poll(cx)
    })
    .await;
    (up.pump.moved(), down.pump.moved())
}
