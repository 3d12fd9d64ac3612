//! The engine's hands in a real process: threads.
//!
//! A worker is a thread of its own, because only a thread can be given a scheduling priority, can
//! run blocking code, and can be left behind when that code does not return. Critical, high and
//! the helpers that take from them run at the process's priority; normal is a little and low and
//! its helpers are much nicer. Niceness needs no privilege, and cannot be taken back, which is why
//! a helper is born for one class and stays in it.

use crate::engine::{Claim, Ended, Engine, Hands, Next, Worker};
use crate::guard::{drop_quietly, quietly};
use crate::seat::Home;
use crate::sync::{Mutex, lock};
use crate::task::{Started, Work};
use skep_policy::pools::{Class, Tier};
use skep_policy::{Clock, Time};
use std::cell::Cell;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The monotonic clock of the system. Read without the detour over `Instant`, because it is read
/// twice for every task.
pub struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }
}

/// What the threads of one set of pools share.
pub struct Threads {
    engine: Weak<Engine>,
    pub world: Arc<World>,
}

/// What a thread needs beside the engine.
pub struct World {
    pub clock: Arc<dyn Clock>,
    /// Where futures find their timers and sockets.
    pub runtime: Option<Handle>,
    /// Starts a thread; a test can have it fail.
    pub starter: Box<dyn StartThread>,
    parkers: Box<[Mutex<Option<Thread>>]>,
    timer: OnceLock<Thread>,
    /// Rung when a worker has gone.
    pub gone: Notify,
}

/// How threads are started.
pub trait StartThread: Send + Sync {
    /// Starts a thread of this name that runs `body`.
    fn start(&self, name: String, body: Box<dyn FnOnce() + Send>) -> std::io::Result<()>;
}

/// Threads of the system.
pub struct SystemThreads;

impl StartThread for SystemThreads {
    fn start(&self, name: String, body: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
        std::thread::Builder::new().name(name).spawn(body).map(drop)
    }
}

impl World {
    pub fn new(
        clock: Arc<dyn Clock>,
        runtime: Option<Handle>,
        starter: Box<dyn StartThread>,
        seats: usize,
    ) -> Self {
        World {
            clock,
            runtime,
            starter,
            parkers: (0..seats).map(|_| Mutex::new(None)).collect(),
            timer: OnceLock::new(),
            gone: Notify::new(),
        }
    }

    fn park_until(&self, until: Option<Time>) {
        match until {
            None => std::thread::park(),
            Some(until) => {
                let wait = until.since(self.clock.now());
                if !wait.is_zero() {
                    std::thread::park_timeout(wait);
                }
            }
        }
    }
}

impl Threads {
    pub fn new(engine: Weak<Engine>, world: Arc<World>) -> Self {
        Threads { engine, world }
    }
}

/// The name of a worker's thread; the system shows fifteen characters of it.
fn thread_name(worker: usize, home: Home, class: Class) -> String {
    let pool = match (home, class) {
        (Home::Tier(tier), _) => tier.name(),
        (Home::Shared, Class::Express) => "helper",
        (Home::Shared, Class::Background) => "behind",
    };
    format!("{pool}-{worker}")
}

/// How nice a worker is to the rest of the process, and of the machine.
fn niceness(home: Home, class: Class) -> i32 {
    match (home, class) {
        (Home::Tier(Tier::Critical | Tier::High), _) | (Home::Shared, Class::Express) => 0,
        (Home::Tier(Tier::Normal), _) => 5,
        (Home::Tier(Tier::Low), _) | (Home::Shared, Class::Background) => 19,
    }
}

thread_local! {
    /// How much nicer this thread is than the process. A thread that it starts is as nice, and can
    /// never be less nice again.
    static NICER: Cell<i32> = const { Cell::new(0) };
}

/// Makes this thread nicer than the process. If the system refuses, the work still gets done.
fn become_nicer(nice: i32) {
    NICER.set(nice);
    let before = rustix::process::getpriority_process(None).unwrap_or(0);
    let _ = rustix::process::setpriority_process(None, (before + nice).min(19));
}

impl Hands for Threads {
    fn start(&self, worker: usize, home: Home, class: Class) -> std::io::Result<()> {
        let engine = self.engine.upgrade().ok_or(std::io::ErrorKind::NotConnected)?;
        let world = self.world.clone();
        let nice = niceness(home, class);
        let body = Box::new(move || {
            if nice > 0 {
                become_nicer(nice);
            }
            work(&engine, &world, worker);
        });
        self.world.starter.start(thread_name(worker, home, class), body)
    }

    fn can_start(&self, home: Home, class: Class) -> bool {
        NICER.get() <= niceness(home, class)
    }

    fn wake(&self, worker: usize) {
        if let Some(thread) = &*lock(&self.world.parkers[worker]) {
            thread.unpark();
        }
    }

    fn wake_timer(&self) {
        if let Some(timer) = self.world.timer.get() {
            timer.unpark();
        }
    }
}

/// Notices the end of a worker's thread, however it ends.
struct Life<'a> {
    engine: &'a Engine,
    world: &'a World,
    worker: Worker,
    now: Time,
    leaves: bool,
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        if !self.leaves {
            self.engine.died(&mut self.worker, self.now);
        }
        self.world.gone.notify_waiters();
        if let Some(timer) = self.world.timer.get() {
            timer.unpark();
        }
    }
}

/// Looks of a worker without work before it rests, with longer and longer pauses between them; and
/// so many more after a streak of tasks, with the processor left to others.
const LOOKS: u32 = 8;
const LOOKS_YIELDING: u32 = 8;

/// Keeps looking for a few microseconds, a tenth of what waking a thread costs. In a streak the
/// submitters may wait for this processor; they get it, and the next task is there without anybody
/// sleeping. Otherwise nothing is given away: whoever would get it, a flood of background work for
/// example, could keep it for milliseconds.
fn linger(streak: bool, found: impl Fn() -> bool) {
    let looks = if streak { LOOKS + LOOKS_YIELDING } else { LOOKS };
    for look in 0..looks {
        if found() {
            return;
        }
        match look {
            0..LOOKS => (0..1 << look).for_each(|_| std::hint::spin_loop()),
            _ => std::thread::yield_now(),
        }
    }
}

/// A worker's life.
fn work(engine: &Arc<Engine>, world: &World, index: usize) {
    *lock(&world.parkers[index]) = Some(std::thread::current());
    let _inside = world.runtime.as_ref().map(Handle::enter);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let worker = Worker::new(index);
    let mut life = Life { engine, world, worker, now: Time::ZERO, leaves: false };
    life.now = world.clock.now();
    while !life.leaves {
        life.leaves = match engine.next(&mut life.worker, life.now) {
            Next::Run(claim) => {
                let ended = run(&claim, world, &waker);
                life.now = world.clock.now();
                engine.ended(&mut life.worker, claim, ended, life.now)
            }
            Next::Linger { streak } => {
                linger(streak, || engine.can_take(index));
                false
            }
            Next::Rest(until) => {
                world.park_until(until);
                life.now = world.clock.now();
                engine.rested(&mut life.worker, life.now)
            }
            Next::Leave => true,
        };
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs an attempt to its end, its deadline or its cancellation.
fn run(claim: &Claim, world: &World, waker: &Waker) -> Ended {
    match quietly(|| claim.record.job.start(&claim.context)) {
        Err(panic) => Ended::Panicked(panic),
        Ok(Started::Future(work)) => drive(work, claim, world, waker),
        Ok(Started::Ended(Ok(()))) => Ended::Returned(Ok(())),
        // Code that stopped because it was told to has not failed by itself.
        Ok(Started::Ended(Err(_))) if claim.context.is_cancelled() => stopped(claim, world),
        Ok(Started::Ended(outcome)) => Ended::Returned(outcome),
    }
}

fn stopped(claim: &Claim, world: &World) -> Ended {
    if world.clock.now() >= claim.context.deadline { Ended::TimedOut } else { Ended::Cancelled }
}

fn drive(mut work: Work, claim: &Claim, world: &World, waker: &Waker) -> Ended {
    let mut cx = Context::from_waker(waker);
    let token = claim.context.token.clone();
    let mut cancelled = pin!(async {
        match token {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    });
    let ended = loop {
        match quietly(|| work.as_mut().poll(&mut cx)) {
            Err(panic) => break Ended::Panicked(panic),
            Ok(Poll::Ready(outcome)) => break Ended::Returned(outcome),
            Ok(Poll::Pending) => {}
        }
        let asked_to_stop = cancelled.as_mut().poll(&mut cx).is_ready();
        let deadline = claim.context.deadline;
        if asked_to_stop || claim.context.is_cancelled() || world.clock.now() >= deadline {
            break stopped(claim, world);
        }
        world.park_until(Some(deadline));
    };
    if drop_quietly(work) && ended == Ended::Returned(Ok(())) {
        return Ended::Panicked("panicked while it was dropped".to_owned());
    }
    ended
}

/// The timer: the one thread that wakes up by itself, and only when something is due.
pub fn start_timer(engine: &Arc<Engine>, world: &Arc<World>) -> std::io::Result<()> {
    let (engine, timed) = (engine.clone(), world.clone());
    let body = Box::new(move || {
        let _ = timed.timer.set(std::thread::current());
        while !engine.is_over() {
            let next = engine.tick(timed.clock.now());
            if engine.is_closed() {
                // What the timer had in its hands, it has no more.
                timed.gone.notify_waiters();
            }
            if engine.is_over() {
                break;
            }
            timed.park_until(next);
        }
        engine.later.clear();
    });
    world.starter.start("pools-timer".to_owned(), body)
}
