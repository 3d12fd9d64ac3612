//! Asking an endpoint once.

mod http;
mod link;
mod needle;
mod outcome;
mod prepared;
mod shelf;
mod tcp;
mod tls;

pub use outcome::{Outcome, Verdict};
pub use prepared::{PrepareError, Prepared};

use crate::spec::{Spec, write_span};
use hyper::header::{HeaderName, HeaderValue};
use outcome::{Fault, Phase};
use prepared::{Ask, Ready};
use rustls::pki_types::CertificateDer;
use skep_dial::Dialler;
use skep_policy::reach::Reach;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How a prober works.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// At most so many idle connections are kept for a few seconds; each is an open file.
    pub idle_max: usize,
    /// At most so many names are resolved at once; each takes a thread of the system's resolver.
    pub resolving_max: usize,
    /// Authorities to trust besides the system's.
    pub roots: Vec<CertificateDer<'static>>,
    /// Connects to endpoints.
    pub dialler: Dialler,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        ProbeOptions {
            idle_max: 1_024,
            resolving_max: 32,
            roots: Vec::new(),
            dialler: Dialler::default(),
        }
    }
}

/// Why there can be no prober: an authority that is none, or a TLS library that offers nothing.
#[derive(Debug, thiserror::Error)]
#[error("polls cannot use TLS: {0}")]
pub struct ProbeError(#[source] rustls::Error);

/// Asks endpoints. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Prober(Arc<Inner>);

struct Inner {
    tls: tls::Tls,
    shelf: Arc<shelf::Shelf>,
    resolving: Arc<Semaphore>,
    dialler: Dialler,
}

impl std::fmt::Debug for Prober {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prober")
    }
}

impl Prober {
    /// A prober with the default options. Reads the system's certificates, which takes its time.
    ///
    /// # Errors
    /// If TLS cannot be used.
    pub fn new() -> Result<Self, ProbeError> {
        Self::with(&ProbeOptions::default())
    }

    /// A prober with these options.
    ///
    /// # Errors
    /// If TLS cannot be used.
    pub fn with(options: &ProbeOptions) -> Result<Self, ProbeError> {
        Ok(Prober(Arc::new(Inner {
            tls: tls::Tls::new(options)?,
            shelf: Arc::new(shelf::Shelf::new(options.idle_max)),
            resolving: Arc::new(Semaphore::new(options.resolving_max.max(1))),
            dialler: options.dialler.clone(),
        })))
    }

    /// What may be polled.
    pub fn reach(&self) -> &Reach {
        self.0.dialler.reach()
    }

    /// Makes an endpoint ready, so that its polls parse nothing.
    ///
    /// # Errors
    /// If it cannot be polled; those that were checked when they were written can.
    pub fn prepare(spec: &Spec) -> Result<Prepared, PrepareError> {
        Prepared::new(spec)
    }

    /// Asks an endpoint once, within `limit` and its own timeout, whichever is shorter: that is for
    /// everything, from the host's name to the answer's body. `extra` headers replace the
    /// endpoint's own of the same name.
    ///
    /// Needs a tokio runtime. Dropping the future closes the connection and ends the poll.
    pub async fn probe(
        &self,
        endpoint: &Prepared,
        limit: Duration,
        extra: &[(HeaderName, HeaderValue)],
    ) -> Outcome {
        self.probe_unless(endpoint, limit, extra, &|| false).await
    }

    /// Like [`Prober::probe`], but once `over` is true no further step is made, as if the time had
    /// run out. It is asked before every step, and nothing is woken for it.
    pub async fn probe_unless(
        &self,
        endpoint: &Prepared,
        limit: Duration,
        extra: &[(HeaderName, HeaderValue)],
        over: &(dyn Fn() -> bool + Sync),
    ) -> Outcome {
        let ready = &*endpoint.0;
        let limit = limit.min(ready.timeout);
        let mut notes = Notes::new(limit);
        let asked = {
            let mut asking = pin!(tokio::time::timeout(limit, self.ask(ready, extra, &mut notes)));
            poll_fn(|context| match over() {
                true => Poll::Ready(None),
                false => asking.as_mut().poll(context).map(Result::ok),
            })
            .await
        };
        let judged = match (notes.judged.take(), asked) {
            (Some(judged), _) | (None, Some(judged)) => judged,
            (None, None) => {
                let limit = write_span(Duration::from_millis(limit.as_millis() as u64));
                let detail = format!("time ran out after {limit}, {}", notes.phase.as_str());
                Err(Fault::new(Verdict::Timeout, detail))
            }
        };
        let Fault { verdict, detail } =
            judged.err().unwrap_or(Fault { verdict: Verdict::Ok, detail: String::new() });
        Outcome {
            ok: verdict == Verdict::Ok,
            verdict,
            latency: notes.latency.unwrap_or_else(|| notes.started.elapsed()),
            status: notes.status,
            detail,
            certificate_expires_at_ms: notes.expires_at_ms,
        }
    }

    async fn ask(
        &self,
        ready: &Ready,
        extra: &[(HeaderName, HeaderValue)],
        notes: &mut Notes,
    ) -> Result<(), Fault> {
        let (inner, place) = (&*self.0, &ready.place);
        match &ready.ask {
            Ask::Web(question) => http::ask(inner, place, question, extra, notes).await,
            Ask::Port => {
                let stream = tcp::connect(inner, place, notes).await?;
                let Some((name, asked)) = &place.tls else { return Ok(()) };
                let shaking = tls::shake(&inner.tls, stream, name, asked, place.web, notes);
                let stream = Box::pin(shaking).await?;
                // Also without `expires_in` and without `verify`: an expired certificate is what
                // such an endpoint is polled for.
                let good = tls::good_for(notes.expires_at_ms, asked.expires_in);
                notes.judge(good);
                drop(stream);
                Ok(())
            }
        }
    }
}

/// What is known so far of a poll that is under way.
struct Notes {
    started: Instant,
    deadline: Instant,
    phase: Phase,
    status: Option<u16>,
    expires_at_ms: Option<i64>,
    /// The judgement, when there is one; what follows is tidying up.
    judged: Option<Result<(), Fault>>,
    latency: Option<Duration>,
}

impl Notes {
    fn new(limit: Duration) -> Self {
        let started = Instant::now();
        Notes {
            started,
            deadline: started + limit,
            phase: Phase::Connecting,
            status: None,
            expires_at_ms: None,
            judged: None,
            latency: None,
        }
    }

    fn judge(&mut self, judged: Result<(), Fault>) {
        self.latency = Some(self.started.elapsed());
        self.judged = Some(judged);
    }
}
