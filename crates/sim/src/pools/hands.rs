//! The engine's hands in a virtual world: they write down what is asked of them.

use skep_policy::pools::{Class, Tier};
use skep_policy::{Chance, SeededChance};
use skep_pools::engine::{Hands, Home};
use skep_pools::{Cause, Letter, LetterBook};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the engine did to the world in one call.
#[derive(Default)]
pub(crate) struct Mail {
    pub starts: Vec<(usize, Home, Class)>,
    /// Pools for which a thread could not be started.
    pub refused: Vec<Home>,
    /// Pools for which a thread is left to the timer to start.
    pub deferred: Vec<Home>,
    pub wakes: Vec<usize>,
    pub wakes_timer: bool,
    pub letters: Vec<Buried>,
    /// The ledger's slots of tasks whose code is gone.
    pub dropped: Vec<u32>,
    any: bool,
}

/// A task became a dead letter.
pub(crate) struct Buried {
    pub task: u64,
    pub cause: Cause,
    pub attempts: u32,
}

/// Where the engine's wishes and the ends of tasks arrive.
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    /// How nice the thread is that calls the engine: it cannot start one that is less nice.
    caller: AtomicU8,
}

struct Inner {
    mail: Mail,
    chance: SeededChance,
    /// Of 1024 starts of a thread, so many fail.
    refuses: u64,
}

impl Mailbox {
    pub fn new(seed: u64) -> Arc<Self> {
        let inner = Inner { mail: Mail::default(), chance: SeededChance::new(seed), refuses: 0 };
        Arc::new(Mailbox { inner: Mutex::new(inner), caller: AtomicU8::new(0) })
    }

    /// A thread with this niceness is going to call the engine.
    pub fn called_by(&self, niceness: u8) {
        self.caller.store(niceness, Ordering::Relaxed);
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `of_1024` starts fail.
    pub fn refuse(&self, of_1024: u64) {
        self.open().refuses = of_1024;
    }

    /// Exchanges the mail that has come for an empty one; `false` if none has.
    pub fn swap(&self, emptied: &mut Mail) -> bool {
        let mut inner = self.open();
        let any = inner.mail.any;
        if any {
            inner.mail.any = false;
            std::mem::swap(&mut inner.mail, emptied);
        }
        any
    }
}

impl Mail {
    /// Keeps the memory, for the next exchange.
    pub fn clear(&mut self) {
        self.starts.clear();
        self.refused.clear();
        self.deferred.clear();
        self.wakes.clear();
        self.wakes_timer = false;
        self.letters.clear();
        self.dropped.clear();
    }
}

/// How nice a worker is to the others, as in a real process.
pub(crate) fn niceness(home: Home, class: Class) -> u8 {
    match (home, class) {
        (Home::Tier(Tier::Critical | Tier::High), _) | (Home::Shared, Class::Express) => 0,
        (Home::Tier(Tier::Normal), _) => 5,
        (Home::Tier(Tier::Low), _) | (Home::Shared, Class::Background) => 19,
    }
}

/// What the engine gets as its hands.
pub(crate) struct VirtualHands(pub Arc<Mailbox>);

impl Hands for VirtualHands {
    fn start(&self, worker: usize, home: Home, class: Class) -> io::Result<()> {
        let mut inner = self.0.open();
        inner.mail.any = true;
        if inner.refuses > 0 && inner.chance.up_to(1_023) < inner.refuses {
            inner.mail.refused.push(home);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        inner.mail.starts.push((worker, home, class));
        Ok(())
    }

    fn can_start(&self, home: Home, class: Class) -> bool {
        let can = self.0.caller.load(Ordering::Relaxed) <= niceness(home, class);
        if !can {
            let mut inner = self.0.open();
            inner.mail.any = true;
            inner.mail.deferred.push(home);
        }
        can
    }

    fn wake(&self, worker: usize) {
        let mut inner = self.0.open();
        inner.mail.any = true;
        inner.mail.wakes.push(worker);
    }

    fn wake_timer(&self) {
        let mut inner = self.0.open();
        inner.mail.any = true;
        inner.mail.wakes_timer = true;
    }
}

/// What the engine gets to keep its dead letters in.
pub(crate) struct Book(pub Arc<Mailbox>);

impl LetterBook for Book {
    fn died(&self, letter: &Letter) {
        let mut inner = self.0.open();
        inner.mail.any = true;
        let buried = Buried { task: letter.task, cause: letter.cause, attempts: letter.attempts };
        inner.mail.letters.push(buried);
    }

    fn done_after_all(&self, _letter: u64) {}
}

/// Is part of a task's code, and tells when that is gone for good: a task that vanishes without an
/// end is noticed in the instant in which it happens.
pub(crate) struct Guard {
    pub slot: u32,
    pub mailbox: Arc<Mailbox>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut inner = self.mailbox.open();
        inner.mail.any = true;
        inner.mail.dropped.push(self.slot);
    }
}
