//! One session, from the upgrade of the client's connection to its end.

use crate::desk::{Closed, EndedBy, Seat};
use crate::metrics::GatewayMetrics;
use crate::options::GatewayOptions;
use crate::places::Place;
use crate::relay::Relay;
use crate::rewound::Rewound;
use crate::tls::Carried;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes after which they are counted, so that a long session shows while it lasts.
const COUNT_EVERY: u64 = 256 * 1_024;

/// A worker that has answered, and a client that is about to hear so.
pub(crate) struct Session<S: Seat, C> {
    pub seat: S,
    pub client: OnUpgrade,
    /// What carries the client's bytes, below what was read ahead.
    pub carried_by: PhantomData<fn() -> C>,
    pub worker: (TcpStream, Vec<u8>),
    /// The client's place among the connections, until the end.
    pub place: Arc<Place>,
    /// Cancelled when the time for draining is over.
    pub cut: CancellationToken,
    pub options: Arc<GatewayOptions>,
    pub metrics: GatewayMetrics,
}

impl<S: Seat, C: Carried> Session<S, C> {
    /// Carries it to its end.
    pub async fn run(self) {
        let Session { seat, client, worker, place, cut, options, metrics, .. } = self;
        let began = Instant::now();
        metrics.sessions.inc();
        let client = client.await.ok().and_then(take_back::<C>);
        let (by, up_bytes, down_bytes) = match client {
            Some(client) => {
                carry(&seat, Relay::new(client, worker, &options), &cut, &metrics).await
            }
            // It hung up before it had heard the answer.
            None => (EndedBy::Client, 0, 0),
        };
        drop(place);
        metrics.sessions.dec();
        metrics.ended(&by);
        tracing::debug!(
            session = seat.session(),
            worker = seat.worker(),
            by = by.as_str(),
            up_bytes,
            down_bytes,
            lasted = ?began.elapsed(),
            "a session ended"
        );
        seat.close(Closed::Ended { by, up_bytes, down_bytes });
    }
}

/// The connection itself, and everything that was read of it and not used.
fn take_back<C: Carried>(upgraded: Upgraded) -> Option<(C, Vec<u8>)> {
    match upgraded.downcast::<TokioIo<C>>() {
        Ok(parts) => Some((parts.io.into_inner(), parts.read_buf.to_vec())),
        Err(upgraded) => {
            let parts = upgraded.downcast::<TokioIo<Rewound<C>>>().ok()?;
            let (stream, rest) = parts.io.into_inner().into_parts();
            let mut early = parts.read_buf.to_vec();
            early.extend_from_slice(&rest);
            Some((stream, early))
        }
    }
}

async fn carry<S: Seat, C: Carried>(
    seat: &S,
    mut relay: Relay<C>,
    cut: &CancellationToken,
    metrics: &GatewayMetrics,
) -> (EndedBy, u64, u64) {
    let mut told = pin!(seat.told_to_end());
    let mut cut = pin!(cut.cancelled());
    let (mut up_counted, mut down_counted) = (0, 0);
    let by = poll_fn(|cx| {
        if let Poll::Ready(by) = relay.poll(cx) {
            return Poll::Ready(by);
        }
        let (up, down) = (relay.up_bytes() - up_counted, relay.down_bytes() - down_counted);
        if up + down >= COUNT_EVERY {
            metrics.carried(up, down);
            (up_counted, down_counted) = (relay.up_bytes(), relay.down_bytes());
        }
        if let Poll::Ready(why) = told.as_mut().poll(cx) {
            return Poll::Ready(EndedBy::Told(why));
        }
        cut.as_mut().poll(cx).map(|()| EndedBy::Drain)
    })
    .await;
    if C::SAYS_ITS_END {
        // As far as it can be said without waiting: a client that takes nothing more is not owed
        // a slot for it.
        let mut nobody = Context::from_waker(Waker::noop());
        let _ = Pin::new(relay.client()).poll_shutdown(&mut nobody);
    }
    metrics.carried(relay.up_bytes() - up_counted, relay.down_bytes() - down_counted);
    (by, relay.up_bytes(), relay.down_bytes())
}
