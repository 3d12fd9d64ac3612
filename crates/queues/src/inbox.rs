//! Jobs that wait for the store, and the batches made of them.
//!
//! ```text
//!   callers ─► pops, acks ─┐
//!              pushes ─────┴─► batch ─► store.run ─► each its answer
//! ```
//!
//! A batch is what came while the last one was under way: nobody waits for one to fill. Pops and
//! acks go first, because they make room; pushes wait behind them and are refused when too many do,
//! so that what was taken on is done at the store's full speed however much is offered.
//!
//! What somebody else has locked in the database is put aside by the store. One runner of its own
//! tries that again, until it is done; the others never wait for it.

use crate::metrics::QueuesMetrics;
use crate::options::QueuesOptions;
use crate::parking::Parking;
use crate::store::{Answer, Aside, Job, QueueStore, Ran, Wake, WorkError};
use skep_store::StoreError;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;
use tokio::sync::oneshot;

/// Jobs of one kind in a batch at most.
const BATCH_JOBS_MAX: usize = 1_024;
/// Bytes of messages in a batch, after which it takes no more pushes.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Where jobs wait.
pub(crate) struct Inbox {
    store: QueueStore,
    parking: Arc<Parking>,
    metrics: QueuesMetrics,
    jobs_max: usize,
    bytes_max: usize,
    waiting: Mutex<Waiting>,
    /// Those who tell other processes what came.
    others: RwLock<Vec<Arc<OnWake>>>,
}

/// Hears the name of a queue that something came to. Whether it wants to hear more.
pub(crate) type OnWake = dyn Fn(&str) -> bool + Send + Sync;

#[derive(Default)]
struct Waiting {
    consuming: VecDeque<Job>,
    pushing: VecDeque<(Job, usize)>,
    pushing_bytes: usize,
    runners: usize,
    aside: Vec<Aside>,
    /// Whether somebody tries them again.
    aside_runs: bool,
    /// How many they are, with those that are being tried, and the bytes of their messages.
    aside_jobs: usize,
    aside_bytes: usize,
}

impl Inbox {
    pub(crate) fn new(
        store: QueueStore,
        parking: Arc<Parking>,
        metrics: QueuesMetrics,
        options: &QueuesOptions,
    ) -> Self {
        Inbox {
            store,
            parking,
            metrics,
            jobs_max: options.waiting_max,
            bytes_max: options.waiting_bytes_max,
            waiting: Mutex::default(),
            others: RwLock::default(),
        }
    }

    /// From now on `told` hears what comes, until it wants no more.
    pub(crate) fn on_wake(&self, told: Arc<OnWake>) {
        self.others.write().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    fn tell_others(&self, wakes: &[Wake]) {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        if others.is_empty() {
            return;
        }
        let mut gone: Vec<Arc<OnWake>> = Vec::new();
        let mut last = None;
        for wake in wakes.iter().filter(|wake| last.replace(&wake.queue) != Some(&wake.queue)) {
            gone.extend(others.iter().filter(|told| !told(&wake.queue)).cloned());
        }
        drop(others);
        if !gone.is_empty() {
            let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
            others.retain(|told| !gone.iter().any(|one| Arc::ptr_eq(one, told)));
        }
    }

    /// Takes on a job, or refuses it because too many wait. Must be called inside a tokio runtime.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<(), WorkError> {
        let bytes = job.bytes();
        let mut waiting = self.waiting();
        match bytes {
            Some(bytes) => {
                let room = waiting.pushing.len() < self.jobs_max
                    && (waiting.pushing.is_empty()
                        || waiting.pushing_bytes + bytes <= self.bytes_max);
                if !room {
                    self.metrics.overloaded("push");
                    return Err(WorkError::Overloaded);
                }
                waiting.pushing_bytes += bytes;
                waiting.pushing.push_back((job, bytes));
            }
            None => {
                if waiting.consuming.len() >= self.jobs_max {
                    self.metrics.overloaded("consume");
                    return Err(WorkError::Overloaded);
                }
                waiting.consuming.push_back(job);
            }
        }
        if waiting.runners < self.store.batches_at_once() {
            waiting.runners += 1;
            drop(waiting);
            let runner = Runner { inbox: self.clone() };
            tokio::spawn(async move { runner.run().await });
        }
        Ok(())
    }

    /// Submits a job and waits for its answer.
    pub(crate) async fn ask<T>(
        self: &Arc<Self>,
        job: impl FnOnce(Answer<T>) -> Job,
    ) -> Result<T, WorkError> {
        let (answer, answered) = oneshot::channel();
        self.submit(job(answer))?;
        answered.await.unwrap_or_else(|_| {
            let cause = "the store ended in the middle of a job".to_owned();
            Err(StoreError::Unknown { store: "queues", cause }.into())
        })
    }

    /// Jobs that wait to be taken up, and the bytes of their messages.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let waiting = self.waiting();
        let jobs = waiting.consuming.len() + waiting.pushing.len() + waiting.aside_jobs;
        (jobs, waiting.pushing_bytes + waiting.aside_bytes)
    }

    /// What came of a batch.
    fn ran(self: &Arc<Self>, ran: Ran) {
        for wake in &ran.wakes {
            self.parking.wake(wake);
        }
        self.tell_others(&ran.wakes);
        if !ran.aside.is_empty() {
            self.put_aside(ran.aside);
        }
    }

    /// Keeps jobs that somebody else is in the way of, as many as may wait otherwise.
    fn put_aside(self: &Arc<Self>, jobs: Vec<Aside>) {
        let mut refused = Vec::new();
        let mut waiting = self.waiting();
        for one in jobs {
            let bytes = one.job.bytes().unwrap_or(0);
            let room = waiting.aside_jobs == 0
                || waiting.aside_jobs < self.jobs_max
                    && waiting.aside_bytes + bytes <= self.bytes_max;
            if room {
                waiting.aside_jobs += 1;
                waiting.aside_bytes += bytes;
                waiting.aside.push(one);
            } else {
                refused.push(one.job);
            }
        }
        let runs = std::mem::replace(&mut waiting.aside_runs, true);
        drop(waiting);
        for job in refused {
            self.metrics.overloaded(if job.bytes().is_some() { "push" } else { "consume" });
            job.refuse(WorkError::Overloaded);
        }
        if !runs {
            let runner = AsideRunner { inbox: self.clone() };
            tokio::spawn(async move { runner.run().await });
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn take_batch(&mut self) -> Vec<Job> {
        let consuming = self.consuming.len().min(BATCH_JOBS_MAX);
        let mut batch: Vec<Job> = self.consuming.drain(..consuming).collect();
        let (mut pushing, mut bytes) = (0, 0);
        while pushing < BATCH_JOBS_MAX && bytes < BATCH_BYTES_MAX {
            let Some((job, size)) = self.pushing.pop_front() else { break };
            batch.push(job);
            pushing += 1;
            bytes += size;
        }
        self.pushing_bytes -= bytes;
        batch
    }
}

/// One that hands batches to the store, until there is nothing left. However it ends, it makes
/// room for the next.
struct Runner {
    inbox: Arc<Inbox>,
}

impl Runner {
    async fn run(self) {
        loop {
            let batch = self.inbox.waiting().take_batch();
            if batch.is_empty() {
                // Looked at once more under the lock that callers add under: see `drop`.
                return;
            }
            let (jobs, started) = (batch.len(), Instant::now());
            let ran = self.inbox.store.start(batch).await;
            self.inbox.metrics.batch(jobs, started.elapsed());
            self.inbox.ran(ran);
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let mut waiting = self.inbox.waiting();
        let left = !waiting.consuming.is_empty() || !waiting.pushing.is_empty();
        if !left {
            waiting.runners -= 1;
            return;
        }
        drop(waiting);
        // Something came between the last look and here, or the store panicked.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let runner = Runner { inbox: self.inbox.clone() };
            runtime.spawn(async move { runner.run().await });
        }
    }
}

/// The one that tries again what was put aside, until there is nothing left.
struct AsideRunner {
    inbox: Arc<Inbox>,
}

impl AsideRunner {
    async fn run(self) {
        loop {
            let mut jobs = std::mem::take(&mut self.inbox.waiting().aside);
            if jobs.is_empty() {
                return;
            }
            // As they came.
            jobs.sort_by_key(|one| one.since);
            let bytes = jobs.iter().filter_map(|one| one.job.bytes()).sum();
            let tried = Tried { inbox: &self.inbox, jobs: jobs.len(), bytes };
            let ran = self.inbox.store.again(jobs).await;
            drop(tried);
            self.inbox.ran(ran);
        }
    }
}

/// Jobs that are being tried again: however that ends, they do not count any more.
struct Tried<'inbox> {
    inbox: &'inbox Inbox,
    jobs: usize,
    bytes: usize,
}

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        let mut waiting = self.inbox.waiting();
        waiting.aside_jobs -= self.jobs;
        waiting.aside_bytes -= self.bytes;
    }
}

impl Drop for AsideRunner {
    fn drop(&mut self) {
        let mut waiting = self.inbox.waiting();
        waiting.aside_runs = !waiting.aside.is_empty();
        if !waiting.aside_runs {
            return;
        }
        drop(waiting);
        // Something came between the last look and here, or the store panicked.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let runner = AsideRunner { inbox: self.inbox.clone() };
            runtime.spawn(async move { runner.run().await });
        }
    }
}
