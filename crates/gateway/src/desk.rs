//! What the gateway needs of the rest: somebody who knows the workers.
//!
//! The gateway knows sockets and bytes. A [`Desk`] knows who may come in, which worker is free and
//! who is next in line; a [`Seat`] is the slot of a worker that it gives out for one session.

use crate::body::Body;
use crate::url::WorkerUrl;
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// Who decides about sessions. Its methods are called from the gateway's own threads and must not
/// block them.
pub trait Desk: Send + Sync + 'static {
    /// What it gives out.
    type Seat: Seat;

    /// Says who this is, without asking anybody else.
    fn admit(&self, who: &Credentials<'_>) -> Result<Caller, Refusal>;

    /// A slot of a worker. It waits in line if it may, until the deadline at most; dropping the
    /// future gives up the place in the line.
    fn checkout(&self, ask: Checkout) -> impl Future<Output = Result<Self::Seat, Refusal>> + Send;

    /// Answers everything that is no WebSocket upgrade. Limits on the body are its own.
    fn plain(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// A worker's slot, taken for one session. Dropping it means [`Closed::Unused`].
pub trait Seat: Send + Sync + 'static {
    /// The session's name; it goes to worker and client as `X-Skep-Session`.
    fn session(&self) -> &str;

    /// The worker's number, to ask for another one beside it.
    fn worker(&self) -> u64;

    /// Where the worker listens.
    fn url(&self) -> &WorkerUrl;

    /// Ends when the session must: an operator said so, the worker died, its drain is over. It
    /// says why.
    fn told_to_end(&self) -> impl Future<Output = Arc<str>> + Send;

    /// The worker has answered 101: the session has begun.
    fn opened(&self);

    /// Gives the slot back. Never blocks.
    fn close(self, how: Closed);
}

/// What somebody showed at the door.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// From `Authorization: Bearer`, `X-API-Key` or `?token=`; never logged.
    pub key: Option<&'a str>,
    /// All headers, for whoever trusts some clients without a key.
    pub headers: &'a HeaderMap,
    /// Where the connection comes from.
    pub peer: IpAddr,
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.map(|_| "hidden");
        f.debug_struct("Credentials").field("key", &key).field("peer", &self.peer).finish()
    }
}

/// Somebody who may come in.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The name of the key that was shown; `None` where none is needed.
    pub key: Option<Arc<str>>,
    /// Where the connection comes from.
    pub peer: IpAddr,
}

/// What kind of worker a client wants. What is not said does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// From `?kind=` or `?browser=`.
    pub kind: Option<String>,
    /// All of these, from `?label=`.
    pub labels: Vec<String>,
    /// Major and minor, from `?version=` or the client's `User-Agent`.
    pub version: Option<(u32, u32)>,
}

/// A request for a slot.
#[derive(Clone, Debug)]
pub struct Checkout {
    /// Who asks.
    pub caller: Caller,
    /// What for.
    pub wanted: Wanted,
    /// Workers that are being tried for the same client already; none of them will do.
    pub avoid: Vec<u64>,
    /// Whether to wait in line; otherwise it is now or not at all.
    pub may_wait: bool,
    /// When the client's patience is over.
    pub deadline: Instant,
}

/// Why somebody gets no session, as `application/problem+json` says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer, 400 to 599.
    pub status: u16,
    /// The kind of error; stable.
    pub code: &'static str,
    /// The kind in words.
    pub title: &'static str,
    /// What is wrong this time and what would be right.
    pub message: String,
    /// When trying again makes sense.
    pub retry_after_s: Option<u32>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.title, self.message)
    }
}

/// How a slot comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// A session took place.
    Ended {
        /// Who or what ended it.
        by: EndedBy,
        /// From client to worker.
        up_bytes: u64,
        /// From worker to client.
        down_bytes: u64,
    },
    /// There was no session, and the worker is to blame: have a look at it before it is given out
    /// again.
    Failed {
        /// What it did.
        why: String,
    },
    /// There was no session, and the worker is not to blame.
    Unused,
}

/// Who or what ended a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The client hung up.
    Client,
    /// The worker hung up.
    Worker,
    /// Nobody said anything for `idle_timeout`.
    Idle,
    /// It had lasted for `duration_max`.
    Duration,
    /// The client took nothing for `stall_max`.
    ClientStalled,
    /// The worker took nothing for `stall_max`.
    WorkerStalled,
    /// The seat was told to, with this reason.
    Told(Arc<str>),
    /// The gateway stopped, and `drain_limit` was over.
    Drain,
}

impl EndedBy {
    /// One word, for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            EndedBy::Client => "client",
            EndedBy::Worker => "worker",
            EndedBy::Idle => "idle",
            EndedBy::Duration => "duration",
            EndedBy::ClientStalled => "client_stalled",
            EndedBy::WorkerStalled => "worker_stalled",
            EndedBy::Told(_) => "told",
            EndedBy::Drain => "drain",
        }
    }
}
