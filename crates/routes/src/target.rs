//! Where a request goes this time: an upstream of the route, or a worker.

use crate::plan::Job;
use crate::proxy::Inner;
use crate::refusal::{Refusal, codes};
use crate::upstream::{Busy, Upstream};
use crate::workers::Seat;
use skep_policy::routes::choose::Pick;
use std::sync::Arc;
use tokio::time::Instant;

/// Somebody who was chosen. Counts as busy until it is closed.
pub(crate) struct Target {
    pub upstream: Arc<Upstream>,
    route: Arc<str>,
    busy: Option<Busy>,
    seat: Option<Box<dyn Seat>>,
}

impl Target {
    /// Chooses. Workers may have to be waited for.
    pub async fn choose(proxy: &Inner, job: &Job, tried: &[u64]) -> Result<Self, Refusal> {
        if let Some(kind) = &job.route.workers {
            return Self::worker(proxy, job, kind).await;
        }
        match job.route.pick(proxy.moment.now(), tried) {
            Pick::One { index, .. } => {
                let upstream = job.route.upstreams[index].clone();
                Ok(Target::new(job, upstream, None))
            }
            Pick::Busy { retry_after } => {
                let message = "all upstreams have failed, and enough requests wait for them";
                Err(codes::E_UPSTREAMS_BUSY.because(message).retry_after(retry_after))
            }
            Pick::None => Err(codes::E_UPSTREAMS_BUSY.because("the route has no upstream")),
        }
    }

    async fn worker(proxy: &Inner, job: &Job, kind: &Arc<str>) -> Result<Self, Refusal> {
        let Some(workers) = &proxy.workers else {
            return Err(codes::E_WORKERS_AWAY.because("this node has no sessions"));
        };
        let seat = workers.seat(kind).await.map_err(|none| {
            let refusal = codes::E_WORKERS_AWAY.because(none.message);
            Refusal { retry_after: none.retry_after, ..refusal }
        })?;
        let upstream = proxy.worker(seat.authority());
        Ok(Target::new(job, upstream, Some(seat)))
    }

    fn new(job: &Job, upstream: Arc<Upstream>, seat: Option<Box<dyn Seat>>) -> Self {
        let (busy, route) = (Some(upstream.begin()), job.route.name.clone());
        Target { upstream, route, busy, seat }
    }

    /// What its paths begin with.
    pub fn base(&self) -> &str {
        self.seat.as_ref().map_or("", |seat| seat.base())
    }

    /// The head of an answer has come.
    pub fn answered(&mut self) {
        if let Some(busy) = &mut self.busy {
            busy.answered();
        }
        if let Some(seat) = &mut self.seat {
            seat.answered();
        }
    }

    /// The try is over; `ok` unless the upstream is to blame.
    pub fn close(&mut self, proxy: &Inner, asked: Instant, ok: bool, why: Option<&'static str>) {
        self.busy = None;
        match self.seat.take() {
            Some(seat) => {
                let failed = why.filter(|_| !ok);
                seat.close(failed.map(|why| format!("a request of a route failed: {why}")));
            }
            None => proxy.judge(&self.route, &self.upstream, asked, ok),
        }
    }
}
