//! What is to be done, and how it ends.

use crate::sync::{Mutex, MutexGuard, lock};
use skep_policy::Time;
use skep_policy::pools::Tier;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What a task comes to: done, or why not.
pub type Outcome = Result<(), Failure>;

/// Why an attempt failed, and whether another may help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub message: String,
    /// Whether to try again, as often as the task's retries allow.
    pub retry: bool,
}

impl Failure {
    /// It may go better next time.
    pub fn retryable(message: impl fmt::Display) -> Self {
        Failure { message: message.to_string(), retry: true }
    }

    /// It will never go better: straight to the dead letters.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Failure { message: message.to_string(), retry: false }
    }
}

/// Errors met with `?` count as retryable.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::retryable(error)
    }
}

/// What a running task can know about itself.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) id: u64,
    pub(crate) tier: Tier,
    pub(crate) attempt: u32,
    pub(crate) deadline: Time,
    pub(crate) generation: u64,
    pub(crate) cancelled: Arc<AtomicU64>,
    pub(crate) token: Option<CancellationToken>,
}

impl Context {
    /// The task's id, the same in every attempt.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The tier it was submitted to.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Which attempt this is; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the attempt must have ended, on the clock of the pools.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Whether the attempt should stop: its time is over, or somebody cancelled the task. A future
    /// is dropped then; blocking code has to look here now and then.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) >= self.generation
            || self.token.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A task's code. It can be called again for a retry.
pub(crate) trait Job: Send + Sync {
    /// Does it, or returns the future that does.
    fn start(&self, context: &Context) -> Started;

    /// Whether it keeps a processor busy. Blocking code is supposed to, a future not.
    fn is_busy(&self) -> bool;
}

pub(crate) enum Started {
    Ended(Outcome),
    Future(Work),
}

struct Blocking<F>(F);

impl<F: Fn(&Context) -> Outcome + Send + Sync> Job for Blocking<F> {
    fn start(&self, context: &Context) -> Started {
        Started::Ended((self.0)(context))
    }

    fn is_busy(&self) -> bool {
        true
    }
}

struct Once<F>(Mutex<Option<F>>);

impl<F: FnOnce(&Context) -> Outcome + Send> Job for Once<F> {
    fn start(&self, context: &Context) -> Started {
        let code = lock(&self.0).take();
        let called_twice = || Err(Failure::permanent("it can be called only once"));
        Started::Ended(code.map_or_else(called_twice, |code| code(context)))
    }

    fn is_busy(&self) -> bool {
        true
    }
}

struct Asynchronous<F>(F);

impl<F, W> Job for Asynchronous<F>
where
    F: Fn(Context) -> W + Send + Sync,
    W: Future<Output = Outcome> + Send + 'static,
{
    fn start(&self, context: &Context) -> Started {
        Started::Future(Box::pin((self.0)(context.clone())))
    }

    fn is_busy(&self) -> bool {
        false
    }
}

/// A piece of work for a pool.
///
/// ```
/// use skep_pools::{Failure, Task};
/// use std::time::Duration;
///
/// let task = Task::blocking("thumbnail", |context| {
///     if context.is_cancelled() {
///         return Err(Failure::retryable("stopped"));
///     }
///     Ok(())
/// })
/// .timeout(Duration::from_secs(2))
/// .retries(1);
/// assert_eq!(task.kind(), "thumbnail");
/// ```
pub struct Task {
    pub(crate) record: Record,
}

/// What few tasks ask for. Most do not, and pay nothing for it.
#[derive(Clone, Default)]
pub(crate) struct Wishes {
    pub timeout: Option<Duration>,
    pub retries: Option<u32>,
    pub start_within: Option<Duration>,
    pub serial_key: Option<u64>,
    pub idempotent: bool,
    pub busy: Option<bool>,
    pub payload: Option<Arc<[u8]>>,
    pub token: Option<CancellationToken>,
}

impl Task {
    fn new(kind: &'static str, job: impl Job + 'static) -> Self {
        Task {
            record: Arc::new(Sheet {
                id: AtomicU64::new(0),
                queued_at: AtomicU64::new(0),
                kind,
                wishes: None,
                history: OnceLock::new(),
                job,
            }),
        }
    }

    /// A task of blocking code.
    pub fn blocking(
        kind: &'static str,
        code: impl Fn(&Context) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        Task::new(kind, Blocking(code))
    }

    /// A task of blocking code that can be called only once; it is never retried.
    pub fn once(
        kind: &'static str,
        code: impl FnOnce(&Context) -> Outcome + Send + 'static,
    ) -> Self {
        Task::new(kind, Once(Mutex::new(Some(code)))).retries(0)
    }

    /// A task that makes a future for each attempt.
    pub fn future<W>(
        kind: &'static str,
        code: impl Fn(Context) -> W + Send + Sync + 'static,
    ) -> Self
    where
        W: Future<Output = Outcome> + Send + 'static,
    {
        Task::new(kind, Asynchronous(code))
    }

    /// What kind of task it is, for metrics and dead letters.
    pub fn kind(&self) -> &'static str {
        self.record.kind
    }

    /// How long an attempt may run, instead of what the tier says.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.wish(|wishes| wishes.timeout = Some(timeout))
    }

    /// How often it is tried again after a failure, instead of what the tier says.
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        self.wish(|wishes| wishes.retries = Some(retries))
    }

    /// If it has not started after this time, it goes to the dead letters instead.
    #[must_use]
    pub fn start_within(self, time: Duration) -> Self {
        self.wish(|wishes| wishes.start_within = Some(time))
    }

    /// Of the tasks with the same key in a tier, only one runs at a time, and the next one starts
    /// when it has ended for good, its retries included: first come, first served.
    #[must_use]
    pub fn serial_key(self, key: u64) -> Self {
        self.wish(|wishes| wishes.serial_key = Some(key))
    }

    /// Two attempts may run at once without harm. Blocking code that does not end in its time is
    /// then tried again at once; otherwise not before it has ended.
    #[must_use]
    pub fn idempotent(self) -> Self {
        self.wish(|wishes| wishes.idempotent = true)
    }

    /// Whether it keeps a processor busy; blocking code is supposed to, a future not. Not more
    /// busy tasks of the normal and low tiers run at once than there are processors.
    #[must_use]
    pub fn busy(self, busy: bool) -> Self {
        self.wish(|wishes| wishes.busy = Some(busy))
    }

    /// What is needed to build the task anew. It is kept with the dead letter, so that the task can
    /// be tried again after a restart, see [`Pools::register`](crate::Pools::register).
    #[must_use]
    pub fn payload(self, payload: impl Into<Arc<[u8]>>) -> Self {
        let payload = payload.into();
        self.wish(|wishes| wishes.payload = Some(payload))
    }

    /// Cancels the task when the token is cancelled: before it starts, and while it runs.
    #[must_use]
    pub fn cancel_with(self, token: CancellationToken) -> Self {
        self.wish(|wishes| wishes.token = Some(token))
    }

    fn wish(mut self, set: impl FnOnce(&mut Wishes)) -> Self {
        // A task that comes from a dead letter may share its record; then it has its wishes.
        if let Some(sheet) = Arc::get_mut(&mut self.record) {
            set(sheet.wishes.get_or_insert_default());
        }
        self
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("kind", &self.kind()).finish_non_exhaustive()
    }
}

/// A task on its way through the pools: its record and its code in one piece of memory, which is
/// all that a queue, a worker or the timer ever hands on. Looking a task up in a table beside the
/// queue would cost more than queueing it.
pub(crate) type Record = Arc<Sheet<dyn Job>>;

pub(crate) struct Sheet<J: ?Sized> {
    id: AtomicU64,
    /// When it was submitted, or became due again.
    queued_at: AtomicU64,
    pub kind: &'static str,
    pub wishes: Option<Box<Wishes>>,
    /// Nothing has gone wrong with most tasks.
    history: OnceLock<Box<Mutex<History>>>,
    pub job: J,
}

/// What has gone wrong with a task.
#[derive(Clone, Default)]
pub(crate) struct History {
    pub submitted_at: Time,
    pub failed_attempts: u32,
    pub errors: Vec<String>,
    /// The dead letter that it was before it was tried again.
    pub letter: Option<u64>,
}

/// Errors that are kept of a task.
pub(crate) const ERRORS_KEPT_MAX: usize = 10;
/// Characters that are kept of an error.
const ERROR_LENGTH_MAX: usize = 1_000;

impl<J: ?Sized + Job> Sheet<J> {
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    pub fn submitted(&self, id: u64, now: Time) {
        self.id.store(id, Ordering::Relaxed);
        self.queued_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub fn queued_at(&self) -> Time {
        Time::from_nanos(self.queued_at.load(Ordering::Relaxed))
    }

    pub fn queued_again(&self, now: Time) {
        self.queued_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub fn history(&self) -> Option<History> {
        self.history.get().map(|history| lock(history).clone())
    }

    pub fn failed_attempts(&self) -> u32 {
        self.history.get().map_or(0, |history| lock(history).failed_attempts)
    }

    pub fn serial_key(&self) -> Option<u64> {
        self.wishes.as_ref().and_then(|wishes| wishes.serial_key)
    }

    pub fn is_busy(&self) -> bool {
        let wish = self.wishes.as_ref().and_then(|wishes| wishes.busy);
        wish.unwrap_or_else(|| self.job.is_busy())
    }

    pub fn is_idempotent(&self) -> bool {
        self.wishes.as_ref().is_some_and(|wishes| wishes.idempotent)
    }

    fn open_history(&self) -> MutexGuard<'_, History> {
        let fresh = || {
            let submitted_at = self.queued_at();
            Box::new(Mutex::new(History { submitted_at, ..History::default() }))
        };
        lock(self.history.get_or_init(fresh))
    }

    /// It is, or was, the dead letter of this id: it keeps the id if it fails again.
    pub fn set_letter(&self, letter: u64) {
        self.open_history().letter = Some(letter);
    }

    pub fn letter(&self) -> Option<u64> {
        self.history.get().and_then(|history| lock(history).letter)
    }

    /// Writes down a failed attempt. Returns how many there are.
    pub fn note_failure(&self, message: &str) -> u32 {
        let mut history = self.open_history();
        history.failed_attempts += 1;
        if history.errors.len() == ERRORS_KEPT_MAX {
            // The first one often says most, so the second goes.
            history.errors.remove(1);
        }
        history.errors.push(message.chars().take(ERROR_LENGTH_MAX).collect());
        history.failed_attempts
    }

    /// A task that is tried again after it was given up starts over.
    pub fn forget_failures(&self) {
        let mut history = self.open_history();
        history.failed_attempts = 0;
        history.errors.clear();
    }
}
