//! Carries one request to upstreams until one answers.

use crate::answer::Local;
use crate::attempt::{Answer, Attempt, Broken};
use crate::client::{Client, Io};
use crate::http1::body::Framing;
use crate::http1::buffer::take_head;
use crate::http1::pump::Pump;
use crate::plan::Job;
use crate::pool::{self, Link};
use crate::proxy::Inner;
use crate::refusal::{Refusal, RefusalCode, codes};
use crate::target::Target;
use crate::tunnel;
use skep_policy::routes::guard::is_failure;
use skep_policy::routes::retry::{self, Body, Phase, Verdict};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::{Instant, timeout_at};

/// How a request went, for its record.
pub(crate) struct Outcome {
    pub status: u16,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub tries: u32,
    pub error: &'static str,
    /// Whether an upstream was asked at all.
    pub refused: bool,
    pub detail: Option<String>,
}

/// What a try came to.
enum Tried {
    /// The client has its answer; whether its connection goes on.
    Answered { status: u16, bytes: (u64, u64), goes_on: bool },
    /// The answer broke off when the client had some of it.
    CutShort { status: u16, bytes: (u64, u64), broken: Broken },
    /// Its status says that somebody else may have a better answer, and that one is asked.
    Again,
    /// There is nothing to pass on.
    Failed { broken: Failed, bytes_in: u64, body: Body },
}

/// Why there is no answer.
enum Failed {
    Connect(std::io::Error),
    ConnectTooSlow,
    Link(Broken, bool),
    Status(u16),
}

/// Carries a request; whether the client's connection goes on.
pub(crate) async fn carry<S: Io>(client: &mut Client<S>, proxy: &Inner, mut job: Box<Job>) -> bool {
    let began = Instant::now();
    let route = job.route.clone();
    let open = crate::tally::Open::new(&route.tally);
    route.undeposited.fetch_add(1, Ordering::Relaxed);
    client.buffer.consume(job.length);
    let mut carrier = Carrier {
        deadline: (!route.timeouts.total.is_zero()).then(|| began + route.timeouts.total),
        client: &mut *client,
        proxy,
        job: &job,
        tries: Tries { failed: Vec::new(), count: 0, stale: false },
        last: None,
        lingers: false,
    };
    let (outcome, goes_on) = carrier.run().await;
    let Carrier { last, lingers, .. } = carrier;
    proxy.note(&mut job, &outcome, began.elapsed(), last);
    // The request is over, however long the client takes to hang up.
    drop(open);
    if lingers {
        client.linger().await;
    }
    goes_on
}

struct Carrier<'a, S> {
    client: &'a mut Client<S>,
    proxy: &'a Inner,
    job: &'a Job,
    deadline: Option<Instant>,
    tries: Tries,
    last: Option<Arc<str>>,
    /// Whether the client is waited for, so that it gets to read its answer.
    lingers: bool,
}

/// What has been tried so far.
struct Tries {
    /// Upstreams that have failed this request.
    failed: Vec<u64>,
    count: u32,
    /// Whether a connection has turned out to be closed already.
    stale: bool,
}

impl Tries {
    /// Whether the request is sent again.
    fn go_on(
        &mut self,
        job: &Job,
        proxy: &Inner,
        broken: &Failed,
        body: Body,
        upstream: u64,
    ) -> bool {
        let first = !self.stale;
        self.stale |= broken.is_stale();
        let attempt = retry::Attempt {
            class: job.class,
            phase: broken.phase(first),
            body,
            tries_left: (job.route.tries + 1).saturating_sub(self.count),
        };
        match job.route.may_retry(&attempt, proxy.moment.now()) {
            Verdict::GiveUp => false,
            Verdict::Retry => {
                self.failed.push(upstream);
                job.route.tally.retries.fetch_add(1, Ordering::Relaxed);
                true
            }
            Verdict::RetryFree => {
                self.count -= 1;
                true
            }
        }
    }
}

impl<S: Io> Carrier<'_, S> {
    async fn run(&mut self) -> (Outcome, bool) {
        loop {
            let mut target = match Target::choose(self.proxy, self.job, &self.tries.failed).await {
                Ok(target) => target,
                Err(refusal) => return self.refuse(refusal, 0, "no-upstream", true).await,
            };
            self.last = Some(target.upstream.address.clone());
            self.tries.count += 1;
            let asked = Instant::now();
            match self.attempt(&mut target).await {
                Tried::Answered { status, bytes, goes_on } => {
                    let ok = !is_failure(status);
                    target.close(self.proxy, asked, ok, None);
                    self.lingers = !goes_on && status != 101;
                    return (self.outcome(status, bytes, ""), goes_on);
                }
                Tried::CutShort { status, bytes, broken } => {
                    let client = is_the_clients(broken);
                    target.close(self.proxy, asked, client, Some(broken.word()));
                    let mut outcome = self.outcome(status, bytes, broken.word());
                    outcome.detail = (!client).then(|| broken.message());
                    return (outcome, false);
                }
                Tried::Again => target.close(self.proxy, asked, false, Some("status")),
                Tried::Failed { broken, bytes_in, body } => {
                    let ours = !broken.is_the_clients();
                    // A connection that had been closed already says nothing about the upstream.
                    let blamed = ours && !broken.is_stale();
                    target.close(self.proxy, asked, !blamed, Some(broken.word()));
                    if ours && self.goes_elsewhere(&broken, body, &target) {
                        continue;
                    }
                    let (refusal, word) = broken.refusal(&target.upstream.address);
                    return match refusal {
                        Some(refusal) => self.refuse(refusal, bytes_in, word, false).await,
                        None => (self.outcome(499, (bytes_in, 0), word), false),
                    };
                }
            }
        }
    }

    fn goes_elsewhere(&mut self, broken: &Failed, body: Body, target: &Target) -> bool {
        let in_time = self.deadline.is_none_or(|deadline| Instant::now() < deadline);
        in_time && self.tries.go_on(self.job, self.proxy, broken, body, target.upstream.id)
    }

    fn outcome(&self, status: u16, bytes: (u64, u64), error: &'static str) -> Outcome {
        let (bytes_in, bytes_out) = bytes;
        let (tries, refused, detail) = (self.tries.count, false, None);
        Outcome { status, bytes_in, bytes_out, tries, error, refused, detail }
    }

    async fn refuse(
        &mut self,
        refusal: Refusal,
        bytes_in: u64,
        error: &'static str,
        refused: bool,
    ) -> (Outcome, bool) {
        let whole = self.job.framing == Framing::Empty;
        let goes_on = whole && self.job.keeps_alive && !self.client.stop.is_near();
        let local = Local {
            refusal: &refusal,
            request_id: &self.job.meta.request_id,
            to_head: self.job.to_head,
            closes: !goes_on,
            location: None,
            page: None,
        };
        let said = self.client.say(&local.bytes(), true).await;
        self.lingers = said && !goes_on;
        let goes_on = said && goes_on;
        let mut outcome = self.outcome(refusal.status, (bytes_in, 0), error);
        outcome.refused = refused;
        outcome.detail = Some(refusal.message);
        (outcome, goes_on)
    }

    async fn attempt(&mut self, target: &mut Target) -> Tried {
        let body = if self.job.framing == Framing::Empty { Body::None } else { Body::Unsent };
        let link = match self.connect(target).await {
            Ok(link) => link,
            Err(broken) => return Tried::Failed { broken, bytes_in: 0, body },
        };
        let reused = link.reused;
        let mut head = take_head();
        self.job.write_head(&target.upstream.address, target.base(), &mut head);
        let chunked = self.job.framing == Framing::Chunked;
        let request = Pump::new(head, self.job.framing, chunked, self.job.route.body_max);
        let closes = !self.job.keeps_alive || self.client.stop.is_near();
        let (job, proxy, deadline) = (self.job, self.proxy, self.deadline);
        let head_max = proxy.options.head_max;
        let client = &mut *self.client;
        let mut attempt = Attempt {
            client,
            link,
            job,
            request,
            deadline,
            refused_body: false,
            is_invited: false,
            head_max,
        };
        let asked = attempt.ask(closes).await;
        let bytes_in = attempt.request.moved();
        let body = if attempt.request.has_begun() { Body::Started } else { body };
        match asked {
            Err(broken) => {
                let broken = Failed::Link(broken, reused);
                Tried::Failed { broken, bytes_in, body }
            }
            Ok(answer) => {
                let bad = self.job.route.retry.statuses.contains(&answer.status)
                    && self.job.route.has_others(target.upstream.id, &self.tries.failed);
                let failed = Failed::Status(answer.status);
                let upstream = target.upstream.id;
                if bad && self.tries.go_on(job, proxy, &failed, body, upstream) {
                    return Tried::Again;
                }
                target.answered();
                pass_on(attempt, answer, target, proxy).await
            }
        }
    }

    async fn connect(&mut self, target: &Target) -> Result<Link, Failed> {
        // One that is sent once only gets a connection that nobody can have closed meanwhile, if
        // the last one was.
        if !self.tries.stale
            && let Some(link) = pool::take(target.upstream.id)
        {
            return Ok(link);
        }
        let limit = Instant::now() + self.job.route.timeouts.connect;
        let limit = self.deadline.map_or(limit, |deadline| deadline.min(limit));
        let (moment, dialler) = (&self.proxy.moment, &self.proxy.options.dialler);
        match timeout_at(limit, target.upstream.connect(moment, dialler)).await {
            Ok(Ok(stream)) => Ok(Link { stream, buffer: Default::default(), reused: false }),
            Ok(Err(error)) => Err(Failed::Connect(error)),
            Err(_) => Err(Failed::ConnectTooSlow),
        }
    }
}

/// Passes an answer on to the client.
async fn pass_on<S: Io>(
    mut attempt: Attempt<'_, S>,
    answer: Answer,
    target: &Target,
    proxy: &Inner,
) -> Tried {
    let job = attempt.job;
    let in_chunks = job.wants_chunks(answer.framing);
    let closes = answer.closes;
    let mut pump = Pump::new(answer.head, answer.framing, in_chunks, u64::MAX);
    let status = answer.status;
    let passed = attempt.pass_on(&mut pump).await;
    let bytes = (attempt.request.moved(), pump.moved());
    if let Err(broken) = passed {
        return Tried::CutShort { status, bytes, broken };
    }
    if status == 101 {
        let bytes = tunnel::run(attempt.client, attempt.link, job.route.timeouts.tunnel).await;
        return Tried::Answered { status, bytes, goes_on: false };
    }
    let all_sent = attempt.request.is_done() && !attempt.refused_body;
    if all_sent && answer.keeps_alive {
        pool::put(target.upstream.id, attempt.link, Instant::now(), proxy.keep);
    }
    Tried::Answered { status, bytes, goes_on: all_sent && !closes }
}

fn is_the_clients(broken: Broken) -> bool {
    use Broken::{ClientLeft, ClientSenseless, ClientSlow, ClientTooLong};
    matches!(broken, ClientLeft | ClientSlow | ClientSenseless(_) | ClientTooLong)
}

impl Failed {
    fn is_the_clients(&self) -> bool {
        matches!(self, Failed::Link(broken, _) if is_the_clients(*broken))
    }

    /// Whether the connection had been closed before the request came.
    fn is_stale(&self) -> bool {
        matches!(self, Failed::Link(Broken::Closed(_), true))
    }

    fn phase(&self, first: bool) -> Phase {
        match self {
            Failed::Connect(_) | Failed::ConnectTooSlow => Phase::Connect,
            Failed::Status(status) => Phase::Status(*status),
            Failed::Link(..) if self.is_stale() => Phase::Stale { first },
            Failed::Link(..) => Phase::Sent,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Failed::Connect(_) | Failed::ConnectTooSlow => "connect",
            Failed::Status(_) => "status",
            Failed::Link(broken, _) => broken.word(),
        }
    }

    /// What the client is told; nothing if it has left.
    fn refusal(&self, address: &str) -> (Option<Refusal>, &'static str) {
        let told = |code: RefusalCode, message: String| Some(code.because(message));
        let refusal = match self {
            Failed::Connect(error) => {
                told(codes::E_UPSTREAM_AWAY, format!("no connection to {address}: {error}"))
            }
            Failed::ConnectTooSlow => {
                let message = format!("{address} did not take the connection in time");
                told(codes::E_UPSTREAM_AWAY, message)
            }
            Failed::Status(status) => {
                told(codes::E_UPSTREAM_BROKE, format!("{address} answered {status}"))
            }
            Failed::Link(Broken::ClientLeft, _) => None,
            Failed::Link(broken, _) => {
                let message = broken.message();
                match broken {
                    Broken::Slow | Broken::SlowToTake => {
                        told(codes::E_UPSTREAM_SLOW, format!("{address}: {message}"))
                    }
                    Broken::Senseless(_) | Broken::TooLarge => {
                        told(codes::E_UPSTREAM_ANSWER, format!("{address}: {message}"))
                    }
                    Broken::ClientSlow => told(codes::E_PROXY_BODY_TOO_SLOW, message),
                    Broken::ClientSenseless(_) => told(codes::E_REQUEST_INVALID, message),
                    Broken::ClientTooLong => told(codes::E_PROXY_BODY_TOO_LARGE, message),
                    _ => told(codes::E_UPSTREAM_BROKE, format!("{address}: {message}")),
                }
            }
        };
        (refusal, self.word())
    }
}

impl Broken {
    /// One word for the log.
    pub fn word(self) -> &'static str {
        match self {
            Broken::Closed(_) => "closed",
            Broken::CutShort(_) => "cut-short",
            Broken::Senseless(_) | Broken::TooLarge => "senseless",
            Broken::Slow => "slow",
            Broken::SlowToTake => "slow-to-take",
            Broken::ClientLeft => "client-left",
            Broken::ClientSlow => "client-slow",
            Broken::ClientSenseless(_) => "client-senseless",
            Broken::ClientTooLong => "client-too-long",
        }
    }

    fn message(self) -> String {
        match self {
            Broken::Closed(kind) => format!("it closed the connection without an answer ({kind})"),
            Broken::CutShort(kind) => format!("its answer broke off ({kind})"),
            Broken::Senseless(why) => format!("its answer makes no sense: {why}"),
            Broken::TooLarge => "the head of its answer is too large".to_owned(),
            Broken::Slow => "it did not answer in time".to_owned(),
            Broken::SlowToTake => "it did not take the body in time".to_owned(),
            Broken::ClientLeft => "the client left".to_owned(),
            Broken::ClientSlow => "the body did not come in time".to_owned(),
            Broken::ClientSenseless(why) => format!("the body makes no sense: {why}"),
            Broken::ClientTooLong => "the body is longer than the route takes".to_owned(),
        }
    }
}
