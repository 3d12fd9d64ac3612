//! The proxy as its users hold it.

use crate::carry::Outcome;
use crate::client::{Client, End, Io};
use crate::h2::{H2Limits, serve_h2};
use crate::moment::{Moment, wall_ms};
use crate::options::ProxyOptions;
use crate::plan::{Job, Origin, Refused};
use crate::pool::Keep;
use crate::record::{Event, Journal, Record};
use crate::route::Live;
use crate::spec::RouteSpec;
use crate::upstream::Upstream;
use crate::workers::Workers;
use arc_swap::ArcSwap;
use skep_policy::Decision;
use skep_policy::routes::guard::{Options, Standing};
use skep_policy::routes::rollup::{Ending, Exchange};
use skep_pools::{Pools, Task, Tier};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Workers whose connections are known by their address; those that are idle make room.
const WORKERS_MAX: usize = 10_000;

/// A reverse proxy. Cheap to clone.
#[derive(Clone)]
pub struct Proxy {
    pub(crate) inner: Arc<Inner>,
}

/// What a proxy needs of the rest.
pub struct Parts {
    /// Where changes of upstreams are dealt with.
    pub pools: Pools,
    /// Who writes down what happened.
    pub journal: Arc<dyn Journal>,
    /// Who gives out workers, for routes that ask for some.
    pub workers: Option<Arc<dyn Workers>>,
}

pub(crate) struct Inner {
    pub options: ProxyOptions,
    pub keep: Keep,
    pub live: ArcSwap<Live>,
    pub moment: Moment,
    pub workers: Option<Arc<dyn Workers>>,
    known_workers: Mutex<HashMap<Box<str>, Arc<Upstream>>>,
    pub pools: Pools,
    pub journal: Arc<dyn Journal>,
    /// Rung when routes have changed.
    pub changed: Notify,
}

/// A connection that came in.
pub struct Arrival<S> {
    /// Both directions.
    pub stream: S,
    /// Where it comes from.
    pub peer: IpAddr,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Whether HTTP/2 was agreed on.
    pub http2: bool,
    /// Nothing new may begin.
    pub stop: CancellationToken,
}

/// A connection whose next request is not ours, with what was read of it.
pub struct Unclaimed<S> {
    /// Both directions.
    pub stream: S,
    /// What comes before the rest.
    pub read: Vec<u8>,
}

impl Proxy {
    /// A proxy without routes.
    pub fn new(options: ProxyOptions, parts: Parts) -> Self {
        let moment = Moment::new();
        let keep = Keep { most: options.free_max, time: options.free_limit };
        let inner = Inner {
            options,
            keep,
            live: ArcSwap::from_pointee(Live::new(&[], None, &moment)),
            moment,
            workers: parts.workers,
            known_workers: Mutex::default(),
            pools: parts.pools,
            journal: parts.journal,
            changed: Notify::new(),
        };
        Proxy { inner: Arc::new(inner) }
    }

    /// Whether there is any route.
    pub fn has_routes(&self) -> bool {
        !self.inner.live.load().routes.is_empty()
    }

    /// Takes other routes from now on. Requests on their way go on as they began.
    pub fn apply(&self, specs: &[Arc<RouteSpec>]) {
        let before = self.inner.live.load_full();
        let live = Live::new(specs, Some(&before), &self.inner.moment);
        self.inner.live.store(Arc::new(live));
        self.inner.changed.notify_one();
    }

    /// Serves a connection's requests, up to the first that belongs to no route.
    pub async fn serve<S: Io>(&self, arrival: Arrival<S>) -> Option<Unclaimed<S>> {
        let Arrival { stream, peer, encrypted, http2, stop } = arrival;
        let origin = Origin::new(peer, encrypted);
        let inner = &*self.inner;
        if http2 {
            self.serve_streams(stream, Vec::new(), origin, &stop).await;
            return None;
        }
        let mut client =
            Client::new(stream, origin.clone(), stop.clone(), inner.options.head_limit);
        match client.serve(inner).await {
            End::Over => None,
            End::NotOurs => Some(Unclaimed { read: client.buffer.take(), stream: client.io }),
            End::Http2 => {
                let read = client.buffer.take();
                Box::pin(self.serve_streams(client.io, read, origin, &stop)).await;
                None
            }
        }
    }

    /// Serves a connection of HTTP/2, each stream as a connection of its own.
    async fn serve_streams<S: Io>(
        &self,
        stream: S,
        read: Vec<u8>,
        origin: Origin,
        stop: &CancellationToken,
    ) {
        let limits = H2Limits { idle: self.inner.options.idle_limit, ..H2Limits::default() };
        let origin = Origin { protocol: Some("2"), ..origin };
        let inner = self.inner.clone();
        let serve_one = move |stream| {
            let (inner, origin) = (inner.clone(), origin.clone());
            async move {
                // What has begun may end; that nothing new begins is seen to outside.
                let stop = CancellationToken::new();
                let mut client = Client::new(stream, origin, stop, inner.options.head_limit);
                if let End::NotOurs = client.serve(&inner).await {
                    client.refuse_unclaimed(&inner).await;
                }
            }
        };
        // Whoever ends it at once drops it.
        let cut = CancellationToken::new();
        serve_h2((stream, read), (stop, &cut), &limits, serve_one).await;
    }
}

impl Inner {
    /// A worker as an upstream, for its connections.
    pub fn worker(&self, authority: &str) -> Arc<Upstream> {
        let mut known = self.known_workers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = known.get(authority) {
            return worker.clone();
        }
        if known.len() >= WORKERS_MAX {
            known.retain(|_, worker| worker.active() > 0);
        }
        let worker = Arc::new(Upstream::new(authority, 1, Options::default()));
        known.insert(authority.into(), worker.clone());
        worker
    }

    /// Takes in how a try went. What may change an upstream's standing is for the critical pool,
    /// one after the other for each upstream.
    pub fn judge(&self, route: &Arc<str>, upstream: &Arc<Upstream>, asked: Instant, ok: bool) {
        if ok {
            if !upstream.note_good() {
                return;
            }
        } else {
            upstream.note_failed();
        }
        let (began, now) = (self.moment.at(asked), self.moment.now());
        self.change(route, upstream, move |upstream| upstream.tell_answer(now, began, ok));
    }

    /// Lets an upstream see the time.
    pub fn pass_time(&self, route: &Arc<str>, upstream: &Arc<Upstream>) {
        let now = self.moment.now();
        self.change(route, upstream, move |upstream| upstream.pass_time(now));
    }

    /// Changes an upstream's standing in the critical pool, one after the other for each.
    fn change(
        &self,
        route: &Arc<str>,
        upstream: &Arc<Upstream>,
        change: impl Fn(&Upstream) -> Option<Decision<Standing>> + Clone + Send + Sync + 'static,
    ) {
        let key = upstream.id;
        let change = {
            let (upstream, journal) = (upstream.clone(), self.journal.clone());
            let route = route.clone();
            move || {
                if let Some(decision) = change(&upstream) {
                    tell(&*journal, &route, &upstream, "breaker", &decision);
                }
            }
        };
        let later = change.clone();
        let task = Task::once("breaker", move |_| {
            later();
            Ok(())
        });
        // What is full cannot be waited for here, and the breaker must hear of it.
        if self.pools.try_submit(Tier::Critical, task.serial_key(key)).is_err() {
            change();
        }
    }

    /// Writes down a request that is over.
    pub fn note(&self, job: &mut Job, outcome: &Outcome, took: Duration, last: Option<Arc<str>>) {
        let meta = std::mem::take(&mut job.meta);
        let route = &job.route;
        let ending =
            if outcome.refused { Ending::Refused } else { Ending::Answered(outcome.status, took) };
        let (bytes_in, bytes_out) = (outcome.bytes_in, outcome.bytes_out);
        route.tally.note(&Exchange { ending, bytes_in, bytes_out });
        if outcome.status >= 500 || outcome.detail.is_some() {
            let kind = if outcome.refused { "refused" } else { "error" };
            let detail = outcome.detail.clone();
            let detail = detail.unwrap_or_else(|| "the upstream answered so".to_owned());
            self.journal.tell(Event {
                at_ms: wall_ms(),
                route: route.name.clone(),
                kind,
                upstream: last.clone(),
                status: Some(outcome.status),
                detail,
            });
        }
        if route.logs {
            self.journal.note(Record {
                at_ms: wall_ms(),
                route: route.name.clone(),
                upstream: last,
                method: meta.method,
                host: meta.host,
                path: meta.path,
                status: outcome.status,
                duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                bytes_in,
                bytes_out,
                address: meta.address,
                protocol: meta.protocol,
                tries: outcome.tries,
                request_id: meta.request_id,
                error: outcome.error,
            });
        }
    }

    /// Writes down a request that was answered here.
    pub fn note_refused(&self, refused: &Refused) {
        let name = refused.route.as_ref().map(|route| route.name.clone());
        let name = name.unwrap_or_else(|| Arc::from(""));
        let refusal = &refused.refusal;
        if let Some(route) = &refused.route {
            let exchange = Exchange { ending: Ending::Refused, bytes_in: 0, bytes_out: 0 };
            route.tally.note(&exchange);
        }
        let limited = refusal.code == crate::refusal::codes::E_RATE_LIMITED.name;
        self.journal.tell(Event {
            at_ms: wall_ms(),
            route: name.clone(),
            kind: if limited { "rate-limited" } else { "refused" },
            upstream: None,
            status: Some(refusal.status),
            detail: format!("{}: {}", refusal.title, refusal.message),
        });
        if refused.route.as_ref().is_none_or(|route| route.logs) {
            let meta = &refused.meta;
            self.journal.note(Record {
                at_ms: wall_ms(),
                route: name,
                upstream: None,
                method: meta.method.clone(),
                host: meta.host.clone(),
                path: meta.path.clone(),
                status: refusal.status,
                duration_us: 0,
                bytes_in: 0,
                bytes_out: 0,
                address: meta.address,
                protocol: meta.protocol,
                tries: 0,
                request_id: meta.request_id.clone(),
                error: refusal.code,
            });
        }
    }
}

/// Says that an upstream is used otherwise than before.
pub(crate) fn tell(
    journal: &dyn Journal,
    route: &Arc<str>,
    upstream: &Upstream,
    kind: &'static str,
    decision: &Decision<Standing>,
) {
    let (address, standing) = (&*upstream.address, decision.chosen.as_str());
    let reason = &decision.reason;
    tracing::info!(route = &**route, upstream = address, standing, %reason, "an upstream changed");
    journal.tell(Event {
        at_ms: wall_ms(),
        route: route.clone(),
        kind,
        upstream: Some(upstream.address.clone()),
        status: None,
        detail: format!("{standing}: {reason}"),
    });
}
