//! A place for a worker: who sits there, and what they do.

use crate::sync::{Mutex, MutexGuard, lock};
use crate::tally::Tally;
use crate::task::Record;
use skep_policy::Time;
use skep_policy::pools::{Class, Tier};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// Whose worker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A tier's own.
    Tier(Tier),
    /// The shared pool's.
    Shared,
}

/// A place for one worker. There are as many as there can be workers, abandoned ones included, so
/// that nothing here ever grows.
pub struct Seat {
    pub home: Home,
    /// Attempts up to this generation shall stop.
    pub cancelled: Arc<AtomicU64>,
    state: Mutex<State>,
    /// By tier; a shared worker works for two, and after it perhaps one of the other two.
    tallies: [OnceLock<Box<Tally>>; 4],
}

pub struct State {
    pub class: Class,
    /// Counts the attempts on this seat. A worker that comes back from an attempt of an earlier
    /// generation learns that it was given up.
    pub generation: u64,
    pub occupant: Occupant,
}

/// What happens on a seat.
pub enum Occupant {
    /// Nobody sits there.
    Nobody,
    /// A worker that has nothing in hand.
    Worker,
    /// A worker with a task.
    Running(Running),
    /// A thread that did not come back in time. The task is kept until the thread ends, unless
    /// another attempt may run beside it.
    Abandoned { running: Running },
}

/// A task in somebody's hands.
pub struct Running {
    /// Gone where another attempt has taken over.
    pub record: Option<Record>,
    pub id: u64,
    pub kind: &'static str,
    pub attempt: u32,
    pub tier: Tier,
    pub started: Time,
    pub deadline: Time,
    /// It counts as a busy background task until its thread is back, or is no more.
    pub busy: bool,
    /// Whether it was told to stop.
    pub told: bool,
}

impl Seat {
    pub fn new(home: Home, class: Class) -> Self {
        Seat {
            home,
            cancelled: Arc::new(AtomicU64::new(0)),
            state: Mutex::new(State { class, generation: 0, occupant: Occupant::Nobody }),
            tallies: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The counters for a tier.
    pub fn tally(&self, tier: Tier) -> &Tally {
        self.tallies[tier.index()].get_or_init(|| Box::new(Tally::new()))
    }

    /// The counters for a tier, if anybody has used them.
    pub fn tally_of(&self, tier: Tier) -> Option<&Tally> {
        self.tallies[tier.index()].get().map(|tally| &**tally)
    }
}
