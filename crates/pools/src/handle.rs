//! What others hold.

use crate::engine::{Dropped, Engine, Patience, Refusal};
use crate::journal::Scaling;
use crate::later::{Alarm, Due};
use crate::letters::{Letter, LetterBook};
use crate::options::Options;
use crate::stats::{PoolStats, Spans, Stuck};
use crate::sync::{Mutex, lock};
use crate::task::{Failure, Task};
use crate::threads::{Monotonic, StartThread, SystemThreads, Threads, World, start_timer};
use skep_policy::pools::Tier;
use skep_policy::{Clock, Time};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A submitter that may wait lets others run this often before it sleeps: under load a place is
/// free again sooner than a sleeper is awake.
const OFFERS_BEFORE_SLEEP: u32 = 4;
const YIELDS_BEFORE_OFFER: u32 = 8;

/// How long a worker can take from one task to the next, or to its end, on a machine that is very
/// busy.
const LAST_STEPS_MAX: Duration = Duration::from_secs(1);

/// Running pools. Cheap to clone; when the last clone is gone, the pools finish what they have and
/// end.
#[derive(Clone)]
pub struct Pools {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    world: Arc<World>,
    handlers: Mutex<HashMap<&'static str, Handler>>,
}

/// Builds a task anew from its payload, or says why it cannot.
type Handler = Arc<dyn Fn(&[u8]) -> Result<Task, String> + Send + Sync>;

/// The pools cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// These options do not work.
    #[error("the options of the pools: {}", .0.join("; "))]
    Options(Vec<String>),
    /// The system does not start a thread.
    #[error("the pools cannot start a thread: {0}")]
    Threads(#[from] std::io::Error),
}

/// A task was not taken; it comes back.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The tier's queue is full. Try later, or wait with [`Pools::submit`].
    #[error("the queue of the tier is full")]
    Full(Task),
    /// The pools take nothing any more.
    #[error("the pools are stopped")]
    Stopped(Task),
}

/// A dead letter was not tried again; it is still there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    /// There is no such letter.
    #[error("there is no such dead letter")]
    Unknown,
    /// Nobody here can build the task from its payload.
    #[error("no code is registered here for tasks of the kind {0:?}")]
    NoHandler(String),
    /// The payload is not what the code expects.
    #[error("the task cannot be built from its payload: {0}")]
    BadPayload(String),
    /// The tier's queue is full.
    #[error("the queue of the tier is full")]
    Full,
    /// The pools take nothing any more.
    #[error("the pools are stopped")]
    Stopped,
}

/// How the pools ended.
#[derive(Debug, Default)]
pub struct Report {
    /// Tasks that were accepted and not done, in the order of their tiers. Each is a dead letter
    /// too.
    pub dropped: Vec<Dropped>,
    /// Threads that did not end.
    pub left_behind: usize,
}

/// Prepares [`Pools`].
pub struct Builder {
    options: Options,
    clock: Arc<dyn Clock>,
    runtime: Option<Handle>,
    starter: Box<dyn StartThread>,
    seed: u64,
}

impl Builder {
    /// Where futures find their timers and sockets; otherwise the runtime this is called in.
    #[must_use]
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Another clock than the system's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Another way to start threads.
    #[must_use]
    pub fn threads(mut self, starter: Box<dyn StartThread>) -> Self {
        self.starter = starter;
        self
    }

    /// What the waits between attempts and the ids of dead letters are drawn from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Starts the pools.
    pub fn start(self) -> Result<Pools, StartError> {
        let problems = self.options.problems();
        if !problems.is_empty() {
            return Err(StartError::Options(problems));
        }
        let seats = 2
            * (self.options.tiers.iter().map(|tier| usize::from(tier.rules.max))).sum::<usize>()
            + 2 * usize::from(self.options.shared.max);
        let runtime = self.runtime.or_else(|| Handle::try_current().ok());
        let world = Arc::new(World::new(self.clock, runtime, self.starter, seats));
        let engine = Arc::new_cyclic(|engine: &Weak<Engine>| {
            let hands = Threads::new(engine.clone(), world.clone());
            Engine::new(self.options, self.seed, Box::new(hands))
        });
        start_timer(&engine, &world)?;
        engine.open(world.clock.now());
        Ok(Pools { inner: Arc::new(Inner { engine, world, handlers: Mutex::default() }) })
    }
}

impl Pools {
    /// Prepares pools with these options.
    pub fn builder(options: Options) -> Builder {
        Builder {
            options,
            clock: Arc::new(Monotonic),
            runtime: None,
            starter: Box::new(SystemThreads),
            seed: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
        }
    }

    /// Starts pools with these options.
    pub fn start(options: Options) -> Result<Self, StartError> {
        Self::builder(options).start()
    }

    fn offer(&self, tier: Tier, task: Task, patience: Patience) -> Result<u64, SubmitError> {
        let now = self.now();
        self.inner.engine.offer(tier, task, now, patience).map_err(|(why, task)| match why {
            Refusal::Full => SubmitError::Full(task),
            Refusal::Stopped => SubmitError::Stopped(task),
        })
    }

    /// Submits a task, or says at once that there is no room. Returns the task's id.
    pub fn try_submit(&self, tier: Tier, task: Task) -> Result<u64, SubmitError> {
        self.offer(tier, task, Patience::None)
    }

    /// Submits a task; waits until there is room. Fails only with [`SubmitError::Stopped`].
    pub async fn submit(&self, tier: Tier, mut task: Task) -> Result<u64, SubmitError> {
        let room = &self.inner.engine.lane(tier).room;
        loop {
            task = match self.offer(tier, task, Patience::Waits) {
                Err(SubmitError::Full(task)) => task,
                other => return other,
            };
            let mut bell = pin!(room.bell.notified());
            bell.as_mut().enable();
            room.waiting.fetch_add(1, Ordering::SeqCst);
            let _counted = Leaving(&room.waiting);
            // Once more, now that whoever takes a task knows that somebody waits.
            task = match self.offer(tier, task, Patience::Waits) {
                Err(SubmitError::Full(task)) => task,
                other => return other,
            };
            bell.await;
        }
    }

    /// Submits a task from a thread that may wait.
    pub fn submit_blocking(&self, tier: Tier, task: Task) -> Result<u64, SubmitError> {
        let lane = self.inner.engine.lane(tier);
        let mut task = task;
        for _ in 0..OFFERS_BEFORE_SLEEP {
            task = match self.offer(tier, task, Patience::Waits) {
                Err(SubmitError::Full(task)) => task,
                other => return other,
            };
            for _ in 0..YIELDS_BEFORE_OFFER {
                if !lane.is_full() {
                    break;
                }
                std::thread::yield_now();
            }
        }
        wait_for(self.submit(tier, task), None)
            .unwrap_or_else(|| unreachable!("it waits without a limit"))
    }

    /// Submits a task from a thread that may wait for some time; [`SubmitError::Full`] after it.
    pub fn submit_timeout(
        &self,
        tier: Tier,
        task: Task,
        limit: Duration,
    ) -> Result<u64, SubmitError> {
        let task = match self.offer(tier, task, Patience::Waits) {
            Err(SubmitError::Full(task)) => task,
            other => return other,
        };
        let Some(deadline) = Instant::now().checked_add(limit) else {
            return self.submit_blocking(tier, task);
        };
        let room = &self.inner.engine.lane(tier).room;
        let mut task = task;
        loop {
            let mut bell = pin!(room.bell.notified());
            bell.as_mut().enable();
            room.waiting.fetch_add(1, Ordering::SeqCst);
            let _counted = Leaving(&room.waiting);
            let last = Instant::now() >= deadline;
            let patience = if last { Patience::None } else { Patience::Waits };
            task = match self.offer(tier, task, patience) {
                Err(SubmitError::Full(task)) if !last => task,
                other => return other,
            };
            wait_for(bell, Some(deadline));
        }
    }

    /// Registers how tasks of a kind are built from their payload, so that dead letters of it can
    /// be tried again after a restart.
    pub fn register(
        &self,
        kind: &'static str,
        handler: impl Fn(&[u8]) -> Result<Task, String> + Send + Sync + 'static,
    ) {
        lock(&self.inner.handlers).insert(kind, Arc::new(handler));
    }

    /// Sets who keeps dead letters beyond the life of the process, until the pools are shut down.
    pub fn keep_letters_in(&self, book: Arc<dyn LetterBook>) {
        self.inner.engine.letters.keep_in(Some(book));
    }

    /// The pools, without keeping them running.
    pub(crate) fn downgrade(&self) -> WeakPools {
        WeakPools { inner: Arc::downgrade(&self.inner), world: self.inner.world.clone() }
    }

    /// The dead letters of a tier, the oldest first.
    pub fn letters(&self, tier: Tier) -> Vec<Letter> {
        self.inner.engine.letters.of(tier)
    }

    /// Tries a dead letter of this process again. It is gone, and comes back if it fails again.
    pub fn retry(&self, letter: u64) -> Result<u64, RetryError> {
        let letter = self.inner.engine.letters.take(letter).ok_or(RetryError::Unknown)?;
        self.try_submit(letter.tier, letter.clone().task()).map_err(|error| {
            let why = match error {
                SubmitError::Full(_) => RetryError::Full,
                SubmitError::Stopped(_) => RetryError::Stopped,
            };
            self.inner.engine.letters.put_back(letter);
            why
        })
    }

    /// Tries a task again that became a dead letter in an earlier life of the process.
    pub fn retry_payload(
        &self,
        letter: u64,
        tier: Tier,
        kind: &str,
        payload: &[u8],
    ) -> Result<u64, RetryError> {
        let handler = lock(&self.inner.handlers).get(kind).cloned();
        let handler = handler.ok_or_else(|| RetryError::NoHandler(kind.to_owned()))?;
        let task = handler(payload).map_err(RetryError::BadPayload)?;
        let task = task.payload(payload);
        task.record.set_letter(letter);
        self.try_submit(tier, task).map_err(|error| match error {
            SubmitError::Full(_) => RetryError::Full,
            SubmitError::Stopped(_) => RetryError::Stopped,
        })
    }

    /// Forgets a dead letter of this process; `false` if there is none.
    pub fn discard(&self, letter: u64) -> bool {
        let letter = self.inner.engine.letters.take(letter);
        let found = letter.is_some();
        crate::guard::drop_quietly(letter);
        found
    }

    /// Whether this process still has the code of a dead letter.
    pub fn has_letter(&self, letter: u64) -> bool {
        let letters = &self.inner.engine.letters;
        Tier::ALL.iter().any(|tier| letters.of(*tier).iter().any(|one| one.id == letter))
    }

    /// The pools as they are: the four tiers and the shared one.
    pub fn stats(&self) -> Vec<PoolStats> {
        self.inner.engine.stats()
    }

    /// The histograms of a tier.
    pub fn spans(&self, tier: Tier) -> Spans {
        self.inner.engine.spans(tier)
    }

    /// What has been running for longer than it may.
    pub fn stuck(&self) -> Vec<Stuck> {
        self.inner.engine.stuck(self.now())
    }

    /// The scaling decisions after the one of this number, the oldest first.
    pub fn scaling_since(&self, number: u64) -> Vec<Scaling> {
        self.inner.engine.journal.since(number)
    }

    /// The options the pools were started with.
    pub fn options(&self) -> &Options {
        &self.inner.engine.options
    }

    /// Now, on the clock of the pools.
    pub fn now(&self) -> Time {
        self.inner.world.clock.now()
    }

    /// Whether the pools finish what they have and take nothing new.
    pub fn is_stopping(&self) -> bool {
        self.inner.engine.is_closed()
    }

    /// Makes a dead letter of something that never was a task, for example of one entry of a batch.
    pub fn bury(&self, tier: Tier, kind: &'static str, error: &str, payload: Option<Vec<u8>>) {
        let task = Task::once(kind, |_| Err(Failure::permanent("it was never a task")));
        let task = match payload {
            Some(payload) => task.payload(payload),
            None => task,
        };
        self.inner.engine.bury_stranger(tier, task, error, self.now());
    }

    pub(crate) fn alarm(&self, at: Time, alarm: Arc<dyn Alarm>) {
        let engine = &self.inner.engine;
        engine.later.add(at, Due::Alarm(alarm));
        engine.remember(at);
        if engine.is_over() {
            // There may be no timer any more.
            engine.later.clear();
        }
    }

    /// Takes nothing new, finishes what there is, the most urgent first, and after `limit` drops
    /// what is left and says what that was.
    pub async fn shutdown(&self, limit: Duration) -> Report {
        let engine = &self.inner.engine;
        let _closer = engine.closer();
        engine.drain(self.now());
        let drained = self.until(|| {
            let deserted = engine.is_deserted();
            if !deserted && engine.workers() == 0 {
                // Something came between the last worker's look and its end.
                engine.look_at_all(self.now());
            }
            deserted
        });
        self.within(limit, drained).await;
        engine.stop(self.now());
        let ended = self.until(|| engine.workers() == 0 && engine.is_empty());
        self.within(engine.options.grace.saturating_mul(2), ended).await;
        // Those who are between two tasks still have one to put down, perhaps.
        self.within(LAST_STEPS_MAX, self.until(|| engine.is_left_alone())).await;
        engine.give_up_running(self.now());
        engine.finish();
        self.inner.world.gone.notify_waiters();
        Report { dropped: engine.take_dropped(), left_behind: engine.still_there() }
    }

    /// Waits until `ready`, asked again whenever a worker has gone, or until somebody else has shut
    /// the pools down: then there is no timer any more.
    async fn until(&self, mut ready: impl FnMut() -> bool) {
        loop {
            let mut gone = pin!(self.inner.world.gone.notified());
            gone.as_mut().enable();
            if ready() || self.inner.engine.is_finished() {
                return;
            }
            gone.await;
        }
    }

    /// Waits for `future`, but not for longer than `limit`. The limit is kept by the timer of the
    /// pools, so that no other is needed.
    async fn within(&self, limit: Duration, future: impl Future<Output = ()>) {
        let bell = Arc::new(Bell(Notify::new()));
        self.alarm(self.now() + limit, bell.clone());
        let mut over = pin!(bell.0.notified());
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            let done = future.as_mut().poll(cx).is_ready();
            if done || over.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

struct Bell(Notify);

impl Alarm for Bell {
    fn ring(&self, _now: Time) {
        self.0.notify_one();
    }
}

/// Pools that run only as long as somebody else holds them.
pub(crate) struct WeakPools {
    inner: Weak<Inner>,
    world: Arc<World>,
}

impl WeakPools {
    pub fn upgrade(&self) -> Option<Pools> {
        self.inner.upgrade().map(|inner| Pools { inner })
    }

    pub fn now(&self) -> Time {
        self.world.clock.now()
    }

    /// Whether somebody has shut them down.
    pub fn are_finished(&self) -> bool {
        self.inner.upgrade().is_some_and(|inner| inner.engine.is_finished())
    }

    /// Rung when a worker has gone, and when they are finished.
    pub fn gone(&self) -> Notified<'_> {
        self.world.gone.notified()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.drain(self.world.clock.now());
    }
}

struct Leaving<'a>(&'a std::sync::atomic::AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread; `None` after the deadline.
fn wait_for<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return Some(value);
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => std::thread::park(),
            Some(Duration::ZERO) => return None,
            Some(wait) => std::thread::park_timeout(wait),
        }
    }
}
