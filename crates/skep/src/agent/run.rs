//! The agent at work: one task that decides, others that measure and talk.

use super::buffer::Buffer;
use super::link::{Failure, Fetched, Link};
use super::measure::{Gauge, Probe, result};
use super::pace::Pace;
use super::schedule::Schedule;
use super::wire::{Asked, Assignments, BATCH_MAX, Measured, Receipt};
use super::{AgentError, Options, Tools};
use hyper::header::HeaderValue;
use skep_monitors::measure::{Fault, Found};
use skep_store::wall_ms;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Reports and questions are at least so far apart, whatever the node or the flags say.
const APART_MIN: Duration = Duration::from_secs(1);
const REFRESH_MAX: Duration = Duration::from_secs(3_600);
/// The clock is looked at so often at least, because it may have been set.
const LOOK: Duration = Duration::from_secs(5);
/// How long the last reports may take.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Between two attempts at the end, which have no time for patience.
const END_WAIT: Duration = Duration::from_millis(250);
/// The same trouble is told so often at most.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// How an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Results that no node has.
    pub unreported: usize,
    /// Whether they are there after a restart.
    pub kept: bool,
}

/// A measurement that is over: of which server, when it began, what came of it.
type Over = (Arc<str>, i64, Result<Found, Fault>);

struct Agent {
    link: Arc<Link>,
    gauge: Arc<Gauge>,
    concurrency: usize,
    report_interval: Duration,
    schedule: Schedule,
    probes: HashMap<Arc<str>, (Asked, Arc<Probe>)>,
    measuring: JoinSet<Over>,
    fetching: Option<JoinHandle<Result<Option<Fetched>, Failure>>>,
    fetch_at: Instant,
    fetch_pace: Pace,
    fetched_at: Option<Instant>,
    /// How long assignments are used without asking again.
    refresh: Duration,
    tag: Option<HeaderValue>,
    buffer: Buffer,
    reporting: Option<JoinHandle<Result<Receipt, Failure>>>,
    report_at: Instant,
    report_pace: Pace,
    /// How many results go into one request; fewer while a node takes none with all of them.
    batch: usize,
    reported_at: Option<Instant>,
    said: HashMap<&'static str, Instant>,
}

/// Works until `stop` is cancelled, then reports what it has, for at most five seconds.
///
/// # Errors
/// If it cannot begin, or a measurement panicked.
pub async fn run(options: Options, stop: CancellationToken) -> Result<Ended, AgentError> {
    let Tools { link, gauge, buffer } = Tools::new(&options)?;
    let seed = || uuid::Uuid::new_v4().as_u64_pair().0;
    let (nodes, now) = (link.nodes(), Instant::now());
    let mut agent = Agent {
        link: Arc::new(link),
        gauge: Arc::new(gauge),
        concurrency: options.concurrency.max(1),
        report_interval: options.report_interval.max(APART_MIN),
        schedule: Schedule::default(),
        probes: HashMap::new(),
        measuring: JoinSet::new(),
        fetching: None,
        fetch_at: now,
        fetch_pace: Pace::new(nodes, seed()),
        fetched_at: None,
        refresh: REFRESH_MAX,
        tag: None,
        buffer,
        reporting: None,
        report_at: now,
        report_pace: Pace::new(nodes, seed()),
        batch: BATCH_MAX,
        reported_at: None,
        said: HashMap::new(),
    };
    tracing::info!(nodes, "the agent starts");
    agent.work(&stop).await?;
    Ok(agent.end().await)
}

impl Agent {
    async fn work(&mut self, stop: &CancellationToken) -> Result<(), AgentError> {
        loop {
            self.measure_due();
            self.ask_if_due();
            self.report_if_due();
            let wake = self.wake_at();
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(over) = self.measuring.join_next() => {
                    let (server, at, measured) = over.map_err(bug)?;
                    self.measured(&server, at, measured);
                }
                fetched = finished(&mut self.fetching) => self.fetched(fetched.map_err(bug)?),
                reported = finished(&mut self.reporting) => self.reported(reported.map_err(bug)?),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// When there is something to do if nothing happens before.
    fn wake_at(&self) -> Instant {
        let now = Instant::now();
        let mut wake = now + LOOK;
        if let Some(at_ms) = self.schedule.next_at()
            && self.measuring.len() < self.concurrency
        {
            let wait = u64::try_from(at_ms.saturating_sub(wall_ms())).unwrap_or(0);
            wake = wake.min(now + Duration::from_millis(wait));
        }
        if self.fetching.is_none() {
            wake = wake.min(self.fetch_at);
        }
        if self.reporting.is_none() && !self.buffer.is_empty() {
            wake = wake.min(self.report_from());
        }
        wake
    }

    fn measure_due(&mut self) {
        while self.measuring.len() < self.concurrency {
            let at = wall_ms();
            let Some(server) = self.schedule.take(at) else { return };
            let Some((_, probe)) = self.probes.get(&server) else {
                self.schedule.done(&server, at);
                continue;
            };
            let (gauge, probe) = (self.gauge.clone(), probe.clone());
            self.measuring.spawn(async move {
                let measured = gauge.measure(&probe).await;
                (server, at, measured)
            });
        }
    }

    fn measured(&mut self, server: &str, at: i64, measured: Result<Found, Fault>) {
        if !self.schedule.done(server, wall_ms()) {
            return;
        }
        match result(server, at, measured) {
            Ok(result) => {
                tracing::debug!(
                    server,
                    rtt_ms = result.rtt_ms,
                    offset_ms = result.offset_ms,
                    error = result.error.as_deref(),
                    "measured"
                );
                self.keep(result);
            }
            Err(why) => {
                if self.may_say("local") {
                    tracing::warn!(server, "nothing can be measured from here now: {why}");
                }
            }
        }
    }

    fn keep(&mut self, result: Measured) {
        let kept = self.buffer.push(result);
        self.say_if_unkept(kept);
        if self.buffer.dropped() > 0 && self.may_say("dropped") {
            let dropped = self.buffer.take_dropped();
            tracing::warn!(dropped, "more results wait than --buffer-max; the oldest are gone");
        }
    }

    fn say_if_unkept(&mut self, kept: std::io::Result<()>) {
        if let Err(error) = kept
            && self.may_say("buffer")
        {
            tracing::warn!("the results are in memory alone, --buffer cannot be written: {error}");
        }
    }

    /// Whether this was not said a moment ago.
    fn may_say(&mut self, what: &'static str) -> bool {
        let now = Instant::now();
        let may = self.said.get(what).is_none_or(|last| now - *last >= SAY_AGAIN);
        if may {
            self.said.insert(what, now);
        }
        may
    }

    fn ask_if_due(&mut self) {
        if self.fetching.is_some() || Instant::now() < self.fetch_at {
            return;
        }
        let (link, tag) = (self.link.clone(), self.tag.clone());
        self.fetching = Some(tokio::spawn(async move { link.assignments(tag.as_ref()).await }));
        self.fetched_at = Some(Instant::now());
    }

    fn fetched(&mut self, answer: Result<Option<Fetched>, Failure>) {
        self.fetching = None;
        let now = Instant::now();
        match answer {
            Ok(fetched) => {
                if self.fetch_pace.answered() {
                    tracing::info!("a node answers again");
                }
                if let Some((assignments, tag)) = fetched {
                    self.tag = tag;
                    self.refresh = refresh(&assignments);
                    self.assign(assignments);
                }
                self.fetch_at = now + self.fetch_pace.about(self.refresh);
            }
            Err(failure) => {
                self.fetch_at = now + self.fetch_pace.failed(&failure);
                if self.fetch_pace.is_news(&failure) {
                    tracing::warn!("no assignments: {}", failure.text());
                }
            }
        }
    }

    fn assign(&mut self, assignments: Assignments) {
        let mut probes = HashMap::with_capacity(assignments.servers.len());
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut intervals = Vec::with_capacity(assignments.servers.len());
        for one in assignments.servers {
            let known = self.probes.remove(one.server.as_str());
            let probe = match known {
                Some((asked, probe)) if asked == one.probe => probe,
                _ => match Probe::new(&one.server, &one.probe) {
                    Ok(probe) => Arc::new(probe),
                    Err(why) => {
                        tracing::warn!(server = one.server, "cannot be measured: {why}");
                        continue;
                    }
                },
            };
            *counts.entry(one.status).or_default() += 1;
            let server: Arc<str> = one.server.into();
            intervals.push((server.clone(), Duration::from_millis(one.interval_ms.max(1))));
            probes.insert(server, (one.probe, probe));
        }
        let (monitor, status) = (&assignments.monitor, &assignments.status);
        let each: Vec<String> =
            counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
        tracing::info!(monitor, status, servers = probes.len(), "assigned: {}", each.join(", "));
        let servers = intervals.iter().map(|(server, interval)| (&**server, *interval));
        self.schedule.assign(monitor, servers, wall_ms());
        self.probes = probes;
    }

    /// From when on results may be reported.
    fn report_from(&self) -> Instant {
        let full = self.buffer.len() >= self.batch;
        let apart = if full { APART_MIN } else { self.report_interval };
        let after = self.reported_at.map_or(self.report_at, |last| last + apart);
        after.max(self.report_at)
    }

    fn report_if_due(&mut self) {
        let now = Instant::now();
        if self.reporting.is_some() || self.buffer.is_empty() || now < self.report_from() {
            return;
        }
        let (link, results) = (self.link.clone(), self.buffer.send(self.batch));
        self.reporting = Some(tokio::spawn(async move { link.report(&results).await }));
        self.reported_at = Some(now);
    }

    fn reported(&mut self, answer: Result<Receipt, Failure>) {
        self.reporting = None;
        match answer {
            Ok(receipt) => {
                if self.report_pace.answered() {
                    tracing::info!(waiting = self.buffer.len(), "results are taken again");
                }
                self.batch = (self.batch * 2).min(BATCH_MAX);
                let settled = self.buffer.settled();
                self.say_if_unkept(settled);
                self.heed(&receipt);
            }
            Err(Failure::Refused(text)) => self.halve(&text),
            Err(failure) => {
                self.buffer.unsent();
                let wait = self.report_pace.failed(&failure);
                self.report_at = Instant::now() + wait;
                if wait.is_zero() {
                    // Another node has not been tried yet.
                    self.reported_at = None;
                }
                if self.report_pace.is_news(&failure) {
                    let waiting = self.buffer.len();
                    tracing::warn!(waiting, "results wait: {}", failure.text());
                }
            }
        }
    }

    /// Says what a node will never take; those are gone.
    fn heed(&mut self, receipt: &Receipt) {
        let (accepted, known) = (receipt.accepted, receipt.known);
        tracing::debug!(accepted, known, refused = receipt.refused.len(), "reported");
        let Some(first) = receipt.refused.first() else { return };
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        receipt.refused.iter().for_each(|one| *reasons.entry(&one.reason).or_default() += 1);
        for (reason, count) in reasons {
            let (server, at) = (&first.server, first.at);
            tracing::warn!(count, server, at, "results were refused and are gone: {reason}");
        }
        // What is measured here may not be what is assigned any more.
        let last = self.fetched_at.map_or(self.fetch_at, |last| last + APART_MIN);
        self.fetch_at = self.fetch_at.min(last.max(Instant::now()));
    }

    /// A node takes nothing with all of these: the one that is wrong is found by halving.
    fn halve(&mut self, text: &str) {
        if self.batch > 1 {
            self.batch = self.batch.min(self.buffer.len()).div_ceil(2);
            self.buffer.unsent();
            tracing::warn!(batch = self.batch, "fewer results at a time: {text}");
            (self.report_at, self.reported_at) = (Instant::now(), None);
        } else {
            let lost = self.buffer.send(1);
            let settled = self.buffer.settled();
            self.say_if_unkept(settled);
            if let Some(lost) = lost.first() {
                let (server, at) = (&lost.server, lost.at);
                tracing::warn!(server, at, "a result was refused and is gone: {text}");
            }
            self.report_at = Instant::now() + APART_MIN;
        }
    }

    /// Reports what there is, and gives up after a while.
    async fn end(mut self) -> Ended {
        while let Some(Ok((server, at, measured))) = self.measuring.try_join_next() {
            self.measured(&server, at, measured);
        }
        self.measuring.abort_all();
        if let Some(fetching) = self.fetching.take() {
            fetching.abort();
        }
        let reporting = tokio::time::timeout(END_LIMIT, self.report_all());
        if reporting.await.is_err() {
            self.buffer.unsent();
        }
        let saved = self.buffer.save().await;
        self.say_if_unkept(saved);
        let dropped = self.buffer.take_dropped();
        if dropped > 0 {
            tracing::warn!(dropped, "more results waited than --buffer-max; the oldest are gone");
        }
        Ended { unreported: self.buffer.len(), kept: self.buffer.is_durable() }
    }

    async fn report_all(&mut self) {
        loop {
            if self.reporting.is_none() {
                if self.buffer.is_empty() {
                    return;
                }
                let (link, results) = (self.link.clone(), self.buffer.send(self.batch));
                self.reporting = Some(tokio::spawn(async move { link.report(&results).await }));
            }
            let Ok(answer) = finished(&mut self.reporting).await else { return };
            let denied = matches!(answer, Err(Failure::Denied(_)));
            let failed = matches!(answer, Err(Failure::Away(_)));
            self.reported(answer);
            if denied {
                return;
            }
            if failed {
                tokio::time::sleep(END_WAIT).await;
            }
        }
    }
}

/// How long the node wants assignments to be used without asking again.
fn refresh(assignments: &Assignments) -> Duration {
    Duration::from_millis(assignments.refresh_ms).clamp(APART_MIN, REFRESH_MAX)
}

/// Waits for the end of something that may not be under way.
async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

fn bug(error: JoinError) -> AgentError {
    AgentError::Bug(error.to_string())
}
