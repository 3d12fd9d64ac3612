//! One request to another node and its answer, from its place in the count to its evidence.

use super::body::{BodyFault, Sending};
use super::failed::{Evidence, Failed, FailedKind, Witness};
use super::link::{Broken, Link};
use super::options::{ForwardOptions, Limits};
use super::peer::{Peer, Target};
use super::tls::Stream;
use bytes::Bytes;
use hyper::body::SizeHint;
use hyper::{Request, Response};
use std::error::Error;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Longer than anything waits; a sum of times must not run over.
const TOTAL_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A request on its way. Whatever ends it, dropping included, closes its connection unless it is
/// free again, gives its place back, and tells the witness.
pub(super) struct Exchange {
    peer: Peer,
    link: Option<Link>,
    began: Instant,
    deadline: Instant,
    options: Arc<ForwardOptions>,
    witness: Arc<dyn Witness>,
    evidence: Evidence,
}

/// A request that got no answer, and the request if nothing of it was used.
pub(super) type Unanswered = (Failed, Option<Request<Sending>>);

/// What came of asking on one connection.
enum Asked {
    Answered(Response<()>),
    /// Surely not sent; the request is as it was.
    Untouched(Request<Sending>, String),
    Failed(Failed),
}

impl Exchange {
    /// None if there are as many as may be.
    pub fn begin(
        peer: &Peer,
        limits: Limits,
        options: &Arc<ForwardOptions>,
        witness: &Arc<dyn Witness>,
    ) -> Option<Self> {
        if !peer.enter(options.forwards_max) {
            return None;
        }
        let began = Instant::now();
        let total = limits.total.min(TOTAL_MAX);
        Some(Exchange {
            peer: peer.clone(),
            link: None,
            began,
            deadline: began + total,
            options: options.clone(),
            witness: witness.clone(),
            evidence: Evidence::Nothing,
        })
    }

    /// Counts the hop, given what the other node needed by its own account.
    pub fn note_hop(&self, served: Duration) {
        self.peer.note_hop(self.began.elapsed().saturating_sub(served));
    }

    /// Sends the request; the answer's head.
    pub async fn ask(
        &mut self,
        mut request: Request<Sending>,
        target: &Target,
        connect: Duration,
    ) -> Result<Response<()>, Box<Unanswered>> {
        loop {
            let (link, reused) = match self.peer.take(self.options.idle_limit) {
                Some(link) => (link, true),
                None => match self.connect(target, connect).await {
                    Ok(link) => (link, false),
                    Err(failed) => return Err(Box::new((self.fail(failed), Some(request)))),
                },
            };
            self.link = Some(link);
            match self.ask_on_link(request).await {
                Asked::Answered(response) => {
                    self.evidence = Evidence::of_status(response.status());
                    self.peer.note_answer();
                    return Ok(response);
                }
                // A free connection that had just been closed says nothing; there is another.
                Asked::Untouched(unused, _) if reused => request = unused,
                Asked::Untouched(unused, why) => {
                    let failed = Failed::new(FailedKind::NotSent, why);
                    return Err(Box::new((self.fail(failed), Some(unused))));
                }
                Asked::Failed(failed) => return Err(Box::new((self.fail(failed), None))),
            }
        }
    }

    /// Notes a failure.
    pub fn fail(&mut self, failed: Failed) -> Failed {
        self.evidence = failed.evidence();
        self.link = None;
        self.peer.note_failure();
        failed
    }

    async fn connect(&mut self, target: &Target, limit: Duration) -> Result<Link, Failed> {
        self.peer.note_connect();
        let not_sent = |why: String| Failed::new(FailedKind::NotSent, why);
        let (name, url) = (self.peer.name(), &target.url);
        let failed = |error: &dyn Error| not_sent(format!("node {name} at {url}: {error}"));
        let connecting = async {
            let stream = TcpStream::connect((target.host.as_str(), target.port)).await;
            let stream = stream.map_err(|error| failed(&error))?;
            // Requests and answers are written whole; waiting for more to send would delay them.
            let _ = stream.set_nodelay(true);
            let stream: Box<dyn Stream> = match &target.tls {
                None => Box::new(stream),
                Some(tls) => Box::new(tls.secure(stream).await.map_err(|error| failed(&error))?),
            };
            Ok(Link::new(stream, target.generation, self.deadline))
        };
        let limit = limit.min(self.deadline.saturating_duration_since(Instant::now()));
        tokio::time::timeout(limit, connecting).await.unwrap_or_else(|_| {
            Err(not_sent(format!("node {name} at {url} was not connected within {limit:.1?}")))
        })
    }

    async fn ask_on_link(&mut self, mut request: Request<Sending>) -> Asked {
        let Exchange { link, deadline, peer, .. } = self;
        let Some(link) = link else { unreachable!("a connection was just taken") };
        let before = link.written();
        link.begin(&mut request);
        let answered = poll_fn(|cx| {
            if let Poll::Ready(answered) = link.poll_head(cx) {
                return Poll::Ready(Some(answered));
            }
            ready!(link.poll_deadline(cx, *deadline));
            Poll::Ready(None)
        })
        .await;
        let sent = link.written() != before;
        let name = peer.name();
        match answered {
            Some(Ok(response)) => Asked::Answered(response),
            Some(Err(Broken::Fault(fault))) => {
                let kind = match fault {
                    BodyFault::TooLarge(_) => FailedKind::TooLarge,
                    BodyFault::Client(_) => FailedKind::ClientGone,
                };
                Asked::Failed(Failed::new(kind, fault.to_string()))
            }
            Some(Err(broken)) if !sent => {
                link.give_back(&mut request);
                Asked::Untouched(request, format!("node {name}: {broken}"))
            }
            Some(Err(broken)) => {
                Asked::Failed(Failed::new(FailedKind::AnswerLost, format!("node {name}: {broken}")))
            }
            None => {
                let kind = if sent { FailedKind::Deadline } else { FailedKind::NotSent };
                Asked::Failed(Failed::new(kind, format!("node {name} did not answer in time")))
            }
        }
    }

    /// The next of the answer's body; nothing at its end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        match &mut self.link {
            Some(link) => link.poll_data(cx),
            None => Poll::Ready(None),
        }
    }

    /// What is known of how much of the answer's body is still to come.
    pub fn hint(&self) -> SizeHint {
        self.link.as_ref().map_or(SizeHint::with_exact(0), Link::hint)
    }

    /// Ready when the time is up.
    pub fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.link {
            Some(link) => link.poll_deadline(cx, self.deadline),
            None => Poll::Ready(()),
        }
    }

    /// The answer is over; the connection is free.
    pub fn complete(&mut self) {
        if let Some(link) = self.link.take() {
            self.peer.put(link, &self.options);
        }
    }

    /// The answer is of no use, which is not the other node's fault.
    pub fn give_up(&mut self) {
        self.link = None;
    }

    /// The other node broke off.
    pub fn condemn(&mut self) {
        self.evidence = Evidence::Bad;
        self.link = None;
        self.peer.note_failure();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.peer.leave();
        self.witness.saw(self.peer.name().as_str(), self.evidence, self.began.elapsed());
    }
}
