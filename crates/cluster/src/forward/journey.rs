//! A request from the node it came to, through as many exchanges as it takes, to its answer.

use super::body::Answer;
use super::failed::{Failed, FailedKind};
use super::forwarder::{Forwarder, Outgoing};
use super::options::Limits;
use super::peer::Peer;
use super::plan::{self, Next, SoFar, Trouble, Work};
use hyper::Response;
use tokio::time::Instant;

/// How it ended.
pub enum Journey {
    /// A node answered.
    Answered(Box<Response<Answer>>),
    /// This node serves the request.
    Here {
        /// As it came.
        request: Box<Outgoing>,
        /// Why, as in `X-Fallback`.
        why: Trouble,
    },
    /// It is answered as a pop that found nothing.
    Empty {
        /// Why.
        why: Trouble,
    },
    /// Its body has more bytes than may be forwarded.
    TooLarge(String),
    /// The client did not send all of it; nobody reads the answer.
    ClientGone,
    /// What came of it is not known, and it cannot be repeated, because its body was a stream.
    Lost(String),
}

impl Forwarder {
    /// Sends a request to the node that should serve it, and does what [`plan::next`] says if that
    /// does not answer. `other` is asked for the next best node when it comes to that. All of it
    /// has the time of one exchange.
    pub async fn send(
        &self,
        to: &Peer,
        other: impl FnOnce() -> Option<Peer>,
        work: Work,
        request: Outgoing,
        limits: Limits,
    ) -> Journey {
        let began = Instant::now();
        let mut other = Some(other);
        let mut peer = to.clone();
        let mut so_far = SoFar { nodes: 1, ..SoFar::default() };
        let mut left_open: Option<(Instant, Trouble)> = None;
        let mut request = request;
        loop {
            let left = limits.total.saturating_sub(began.elapsed());
            let (trouble, why, same) = if left.is_zero() {
                (Trouble::Deadline, "the time is up".to_owned(), Some(request))
            } else {
                let copy = request.again();
                match self.forward(&peer, request, Limits { total: left, ..limits }).await {
                    Ok(answer) => match Trouble::of_status(answer.status().as_u16()) {
                        None => return Journey::Answered(Box::new(answer)),
                        Some(trouble) => (trouble, format!("node {} refused", peer.name()), copy),
                    },
                    Err(Failed { kind, why, unsent }) => match trouble_of(kind) {
                        Ok(trouble) => (trouble, why, copy.or(unsent.map(|same| *same))),
                        Err(FailedKind::TooLarge) => return Journey::TooLarge(why),
                        Err(_) => return Journey::ClientGone,
                    },
                }
            };
            so_far.open_since = left_open.map(|(since, _)| since.elapsed());
            let next = plan::next(work, trouble, so_far);
            if matches!(next, Next::Again(_)) {
                left_open.get_or_insert_with(|| (Instant::now(), trouble));
            }
            // What left it open is the reason, whatever came of asking again.
            let reason = left_open.map_or(trouble, |(_, first)| first);
            if next == Next::Empty {
                to.note_fall_back();
                return Journey::Empty { why: reason };
            }
            let Some(same) = same else { return Journey::Lost(why) };
            request = same;
            let next_peer = match next {
                Next::Again(pause) => {
                    so_far.again += 1;
                    let left = limits.total.saturating_sub(began.elapsed());
                    tokio::time::sleep(pause.min(left)).await;
                    Some(peer)
                }
                Next::NextNode => {
                    so_far.nodes += 1;
                    let other = other.take().and_then(|other| other());
                    other.filter(|other| other.name() != peer.name())
                }
                Next::Here | Next::Empty => None,
            };
            let Some(next_peer) = next_peer else {
                to.note_fall_back();
                return Journey::Here { request: Box::new(request), why: reason };
            };
            peer = next_peer;
        }
    }
}

/// What follows is for the plan to say, unless it is the client's doing.
fn trouble_of(kind: FailedKind) -> Result<Trouble, FailedKind> {
    match kind {
        FailedKind::Busy => Ok(Trouble::Busy),
        FailedKind::NotSent => Ok(Trouble::NotSent),
        FailedKind::AnswerLost => Ok(Trouble::AnswerLost),
        FailedKind::Deadline => Ok(Trouble::Deadline),
        FailedKind::TooLarge | FailedKind::ClientGone => Err(kind),
    }
}
