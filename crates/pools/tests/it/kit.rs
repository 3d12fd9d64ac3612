//! What the tests here share: doors to wait at, small pools, threads that are watched.

use skep_policy::pools::{Ratio, TierRules};
use skep_policy::{Clock, Time, backoff};
use skep_pools::{
    Builder, Monotonic, Options, PoolStats, Pools, Report, StartThread, SystemThreads, Task, Tier,
};
pub use skep_testkit::{PATIENCE, eventually};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that only grows, and that many can wait for.
#[derive(Clone, Default)]
pub struct Count {
    inner: Arc<(Mutex<usize>, Condvar)>,
}

impl Count {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&self) {
        *lock(&self.inner.0) += 1;
        self.inner.1.notify_all();
    }

    pub fn get(&self) -> usize {
        *lock(&self.inner.0)
    }

    /// Waits until it is `wanted`, or more.
    #[track_caller]
    pub fn reach(&self, wanted: usize) {
        assert!(self.reaches(wanted, PATIENCE), "{} instead of {wanted}", self.get());
    }

    /// Waits until it is `wanted` or the time is over; says whether it is.
    pub fn reaches(&self, wanted: usize, limit: Duration) -> bool {
        let below = |count: &mut usize| *count < wanted;
        let wait = self.inner.1.wait_timeout_while(lock(&self.inner.0), limit, below);
        let (_count, waited) = wait.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }
}

/// A door: whoever comes before it is opened waits.
#[derive(Clone, Default)]
pub struct Door(Count);

impl Door {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn open(&self) {
        self.0.add();
    }

    #[track_caller]
    pub fn pass(&self) {
        self.0.reach(1);
    }
}

/// A task that says that it runs, and ends when its door is opened.
pub fn blocker(running: &Count, door: &Door) -> Task {
    let (running, door) = (running.clone(), door.clone());
    Task::blocking("blocker", move |_| {
        running.add();
        door.pass();
        Ok(())
    })
}

/// A task that only counts.
pub fn counting(count: &Count) -> Task {
    let count = count.clone();
    Task::blocking("counting", move |_| {
        count.add();
        Ok(())
    })
}

/// Rules for a fixed number of workers.
pub const fn fixed(workers: u16) -> TierRules {
    TierRules {
        min: workers,
        max: workers,
        up: Ratio::whole(5),
        down: Ratio::whole(2),
        overflow: Ratio::whole(5),
    }
}

/// One worker and four places a tier, no helpers, no reserve, and retries that do not wait long.
pub fn plain() -> Options {
    let mut options = Options::new(2);
    for tier in &mut options.tiers {
        tier.rules = fixed(1);
        tier.queue = 4;
        tier.retries = 2;
        tier.backoff = backoff::Options { base: ms(1), cap: ms(2) };
        tier.task_timeout = PATIENCE;
    }
    options.shared.max = 0;
    options.critical_reserve = 0;
    options
}

/// [`plain`] with these workers and places in the high tier.
pub fn high(workers: u16, queue: usize) -> Options {
    let mut options = plain();
    options.tier_mut(Tier::High).rules = fixed(workers);
    options.tier_mut(Tier::High).queue = queue;
    options
}

pub fn start(options: Options) -> Pools {
    Pools::start(options).expect("starts")
}

pub fn stats_of(pools: &Pools, tier: Tier) -> PoolStats {
    pools.stats().swap_remove(tier.index())
}

/// Waits for a future, but not for ever.
#[track_caller]
pub fn wait<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let limited = async { tokio::time::timeout(PATIENCE, future).await };
    runtime.expect("builds").block_on(limited).expect("it never ended")
}

/// Stops pools, with time for everything.
#[track_caller]
pub fn finish(pools: &Pools) -> Report {
    wait(pools.shutdown(PATIENCE))
}

/// Waits for the end of a thread, but not for ever.
#[track_caller]
pub fn join<T>(thread: std::thread::JoinHandle<T>) -> T {
    eventually("the end of a thread", || thread.is_finished().then_some(()));
    thread.join().expect("the thread does not panic")
}

/// Checks that nothing is unaccounted for in a tier that rests: everything that was accepted has
/// ended in exactly one way.
#[track_caller]
pub fn adds_up(pools: &Pools, tier: Tier) {
    let stats = stats_of(pools, tier);
    let totals = stats.totals;
    assert_eq!(
        totals.accepted,
        stats.total_processed + stats.total_failed + totals.cancelled,
        "{stats:#?}"
    );
    let (pending, delayed) = (stats.pending_tasks, stats.delayed_tasks);
    assert_eq!((pending, delayed, stats.processing_tasks), (0, 0, 0), "{stats:#?}");
}

/// Panics on purpose say so, and are not printed.
pub const PURPOSE: &str = "on purpose";

pub fn hide_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload_as_str();
            if text.is_some_and(|text| !text.contains(PURPOSE)) {
                before(info);
            }
        }));
    });
}

/// Threads whose starts are counted, can be made to fail, and that are known to the system by id.
#[derive(Clone, Default)]
pub struct Watched {
    fails: Arc<AtomicBool>,
    pub failed: Count,
    pub started: Count,
    pub ended: Count,
    only: &'static str,
    threads: Arc<Mutex<BTreeMap<u32, String>>>,
}

impl Watched {
    pub fn new() -> Self {
        Self::default()
    }

    /// Of these, only those whose names start so can be made to fail.
    pub fn only(name: &'static str) -> Self {
        Watched { only: name, ..Self::default() }
    }

    pub fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    /// The threads there are now, by id.
    pub fn alive(&self) -> BTreeMap<u32, String> {
        lock(&self.threads).clone()
    }

    pub fn builder(&self, options: Options) -> Builder {
        Pools::builder(options).threads(Box::new(self.clone()))
    }
}

impl StartThread for Watched {
    fn start(&self, name: String, body: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
        if self.fails.load(Ordering::SeqCst) && name.starts_with(self.only) {
            self.failed.add();
            return Err(std::io::Error::from_raw_os_error(11));
        }
        let (threads, ended) = (self.threads.clone(), self.ended.clone());
        let known = name.clone();
        let door = Door::new();
        let registered = door.clone();
        let watched = Box::new(move || {
            let id = own_id();
            lock(&threads).insert(id, known);
            registered.open();
            let _end = AtEnd(|| {
                lock(&threads).remove(&id);
                ended.add();
            });
            body();
        });
        SystemThreads.start(name, watched)?;
        door.pass();
        self.started.add();
        Ok(())
    }
}

struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The id of this thread, as the system knows it.
pub fn own_id() -> u32 {
    let own = std::fs::read_link("/proc/thread-self").expect("Linux");
    own.file_name().and_then(|id| id.to_str()?.parse().ok()).expect("ends with the id")
}

/// A clock that panics once, on a worker's thread, when it is armed.
#[derive(Default)]
pub struct Mine {
    armed: AtomicUsize,
}

impl Mine {
    /// Lets the next `times` looks on a worker's thread panic.
    pub fn arm(&self, times: usize) {
        self.armed.store(times, Ordering::SeqCst);
    }
}

impl Clock for Mine {
    fn now(&self) -> Time {
        let thread = std::thread::current();
        let worker = thread.name().is_some_and(|name| {
            ["critical-", "high-", "normal-", "low-", "helper-", "behind-"]
                .iter()
                .any(|pool| name.starts_with(pool))
        });
        let one_less = |armed: usize| armed.checked_sub(1);
        let ordering = Ordering::SeqCst;
        if worker && self.armed.fetch_update(ordering, ordering, one_less).is_ok() {
            panic!("the clock stopped {PURPOSE}");
        }
        Monotonic.now()
    }
}

/// Keeps a processor busy for about this long.
pub fn spin(span: Duration) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
