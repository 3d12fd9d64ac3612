//! What came of an exchange with another node, and what that says about the node.

use super::forwarder::Outgoing;
use hyper::StatusCode;
use std::fmt;
use std::time::Duration;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedKind {
    /// As many requests as may be are on their way to that node.
    Busy,
    /// Surely nothing of the request has left this node.
    NotSent,
    /// Some of it has, and what came of it is not known.
    AnswerLost,
    /// As [`FailedKind::AnswerLost`], because the time was up.
    Deadline,
    /// The request's body has more bytes than may be.
    TooLarge,
    /// The client did not send all of its request.
    ClientGone,
}

/// An exchange without an answer.
pub struct Failed {
    /// Why, for whoever decides what follows.
    pub kind: FailedKind,
    /// Why, for people.
    pub why: String,
    /// The request as it was given, if nothing of it was used.
    pub unsent: Option<Box<Outgoing>>,
}

impl Failed {
    pub(super) fn new(kind: FailedKind, why: impl Into<String>) -> Self {
        Failed { kind, why: why.into(), unsent: None }
    }

    /// What it says about the node.
    pub const fn evidence(&self) -> Evidence {
        match self.kind {
            FailedKind::NotSent => Evidence::Gone,
            FailedKind::AnswerLost | FailedKind::Deadline => Evidence::Bad,
            FailedKind::Busy | FailedKind::TooLarge | FailedKind::ClientGone => Evidence::Nothing,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.why)
    }
}

impl std::error::Error for Failed {}

/// What an exchange says about the node it was with, for its breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It answered.
    Good,
    /// It broke off, missed the deadline, or answered 502, 503 or 504.
    Bad,
    /// It could not be reached.
    Gone,
    /// Nothing: it was not asked, or the client went away. Told nevertheless, because a breaker
    /// that lets one request through to see must hear that it saw nothing.
    Nothing,
}

impl Evidence {
    /// What an answer with this status says about the node that gave it. A client's mistake is
    /// none of the node's, and an empty answer after a long wait is a good one.
    pub const fn of_status(status: StatusCode) -> Evidence {
        match status.as_u16() {
            502..=504 => Evidence::Bad,
            _ => Evidence::Good,
        }
    }
}

/// Who hears what came of exchanges.
pub trait Witness: Send + Sync {
    /// An exchange with this node that began `took` ago is over. Called exactly once for each, in
    /// the task of the request: it must not wait.
    fn saw(&self, peer: &str, evidence: Evidence, took: Duration);
}

/// Nobody needs to know.
impl Witness for () {
    fn saw(&self, _: &str, _: Evidence, _: Duration) {}
}
