//! The pools without their threads.
//!
//! Everything that happens to a task or a worker is a call here, with the time as an argument; the
//! engine never waits and never starts anything by itself. What must be done in the world (start a
//! thread, wake one) it asks of its [`Hands`]. In a node those are threads; in the simulator they
//! are entries in a list, and the same engine runs a hundred million events from a seed.
//!
//! ```text
//!   offer ──► ring ──► next ──► (a worker runs it) ──► ended ──► done
//!               ▲                        │                │
//!               │                     timed out, died     ├──► later ──► put back (retry)
//!               └── put back ◄───────────┘                └──► dead letter
//! ```

mod close;
mod scaling;
mod time;
mod work;

pub use crate::seat::Home;
pub use close::Dropped;
pub use work::{Claim, Ended, Next, Worker};

use crate::handoff::Handoff;
use crate::journal::Journal;
use crate::lane::{Lane, count};
use crate::later::Later;
use crate::letters::Letters;
use crate::options::Options;
use crate::seat::Seat;
use crate::sync::Mutex;
use crate::task::Task;
use crossbeam_utils::CachePadded;
use skep_policy::pools::{Class, Tier, TierNow, TierRules};
use skep_policy::{SeededChance, Time};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// What the engine asks of the world.
pub trait Hands: Send + Sync {
    /// Starts a worker on a seat. It calls [`Engine::next`] until that says to leave.
    fn start(&self, worker: usize, home: Home, class: Class) -> std::io::Result<()>;

    /// Whether this is the place to start such a worker. If not, the timer does it.
    fn can_start(&self, _home: Home, _class: Class) -> bool {
        true
    }

    /// Wakes a worker that rests.
    fn wake(&self, worker: usize);

    /// Wakes the timer, so that it calls [`Engine::tick`] now.
    fn wake_timer(&self);
}

/// Takes new tasks.
pub(crate) const OPEN: u8 = 0;
/// Takes no new tasks and finishes those it has.
pub(crate) const DRAINING: u8 = 1;
/// Has ended; what is left is dropped.
pub(crate) const STOPPED: u8 = 2;

/// Whether a submitter would wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It wants to know at once: a full critical tier gives it one of its few places beyond the
    /// queue, and a refusal counts as one.
    None,
    /// It waits for room.
    Waits,
}

/// Why a task was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Full,
    Stopped,
}

pub struct Engine {
    pub options: Options,
    pub(crate) rules: [TierRules; 4],
    pub(crate) lanes: [Lane; 4],
    pub(crate) shared: Shared,
    pub(crate) seats: Box<[CachePadded<Seat>]>,
    pub(crate) later: Later,
    pub letters: Letters,
    pub journal: Journal,
    pub(crate) phase: AtomicU8,
    /// What was accepted and not done, because the pools stopped.
    dropped: Mutex<Vec<Dropped>>,
    /// Those who have tasks in their hands that came too late.
    sweeping: AtomicU32,
    finished: AtomicBool,
    /// Those who are shutting the pools down; the timer keeps their limits.
    closers: AtomicU32,
    pub(crate) chance: Mutex<SeededChance>,
    hands: Box<dyn Hands>,
}

/// The shared pool.
pub(crate) struct Shared {
    /// Those who rest, by class.
    pub handoffs: [Handoff; 2],
    /// Workers by class, starting ones included, abandoned ones not.
    pub workers: [AtomicU32; 2],
    pub abandoned: AtomicU32,
    /// Background tasks that keep a processor busy.
    pub busy: AtomicU32,
    pub control: Mutex<crate::lane::Control>,
    pub counts: crate::lane::Counts,
}

impl Shared {
    pub fn workers_of(&self, class: Class) -> u32 {
        self.workers[class as usize].load(Ordering::SeqCst)
    }

    pub fn handoff(&self, class: Class) -> &Handoff {
        &self.handoffs[class as usize]
    }
}

impl Engine {
    /// An engine with these options, which must be without [problems](Options::problems).
    pub fn new(options: Options, seed: u64, hands: Box<dyn Hands>) -> Self {
        let mut seats = Vec::new();
        // Twice as many seats as workers: each may be left behind by one abandoned thread.
        let lanes = Tier::ALL.map(|tier| {
            let own = *options.tier(tier);
            let first = seats.len();
            let more = (0..2 * own.rules.max)
                .map(|_| CachePadded::new(Seat::new(Home::Tier(tier), tier.class())));
            seats.extend(more);
            let reserve = if tier == Tier::Critical { options.critical_reserve } else { 0 };
            Lane::new(own, reserve, first..seats.len())
        });
        let first = seats.len();
        let helper = |_| CachePadded::new(Seat::new(Home::Shared, Class::Express));
        seats.extend((0..2 * options.shared.max).map(helper));
        let shared = Shared {
            handoffs: [Handoff::new(), Handoff::new()],
            workers: [AtomicU32::new(0), AtomicU32::new(0)],
            abandoned: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            control: Mutex::new(crate::lane::Control {
                free: (first..seats.len()).rev().collect(),
                no_start_before: Time::ZERO,
                start_failures: 0,
            }),
            counts: crate::lane::Counts::default(),
        };
        Engine {
            rules: options.rules(),
            lanes,
            shared,
            seats: seats.into(),
            later: Later::new(),
            letters: Letters::new(options.dead_letters_max),
            journal: Journal::default(),
            phase: AtomicU8::new(OPEN),
            dropped: Mutex::default(),
            sweeping: AtomicU32::new(0),
            finished: AtomicBool::new(false),
            closers: AtomicU32::new(0),
            chance: Mutex::new(SeededChance::new(seed)),
            hands,
            options,
        }
    }

    /// Starts the workers that are always there.
    pub fn open(&self, now: Time) {
        for tier in Tier::ALL {
            self.grow(tier, now);
        }
        self.keep_helpers(now);
    }

    pub(crate) fn lane(&self, tier: Tier) -> &Lane {
        &self.lanes[tier.index()]
    }

    pub(crate) fn phase(&self) -> u8 {
        self.phase.load(Ordering::SeqCst)
    }

    /// Offers a task.
    pub fn offer(
        &self,
        tier: Tier,
        task: Task,
        now: Time,
        patience: Patience,
    ) -> Result<u64, (Refusal, Task)> {
        let lane = self.lane(tier);
        if self.phase() != OPEN {
            return Err((Refusal::Stopped, task));
        }
        let number = lane.next_number();
        let id = number << 2 | tier.index() as u64;
        let limit = lane.options.queue;
        let record = task.record;
        record.submitted(id, now);
        let admitted = lane.admit(record, limit);
        let admitted = match admitted {
            Err(record) if patience == Patience::None && tier == Tier::Critical => {
                let admitted = lane.admit(record, limit + self.options.critical_reserve);
                if admitted.is_ok() {
                    count(&lane.counts.over_capacity);
                }
                admitted
            }
            other => other,
        };
        if let Err(record) = admitted {
            count(&lane.counts.unused_numbers);
            if patience == Patience::None {
                count(&lane.counts.rejected);
                // A queue that is full and does not move may be one that has too few workers.
                self.evaluate(tier, now);
            }
            return Err((Refusal::Full, Task { record }));
        }
        self.wake_for(tier);
        if lane.ready_at_most(number) > self.quiet_up_to(tier) {
            self.evaluate(tier, now);
        }
        if self.phase() == STOPPED {
            let own = self.sweep(Some(id), now);
            // Whoever stopped the pools may wait until nothing is there any more.
            self.hands.wake_timer();
            if let Some(record) = own {
                count(&lane.counts.unused_numbers);
                return Err((Refusal::Stopped, Task { record }));
            }
        }
        Ok(id)
    }

    /// A tier as the policy sees it.
    pub fn tier_now(&self, tier: Tier) -> TierNow {
        let lane = self.lane(tier);
        let workers = lane.workers.load(Ordering::SeqCst);
        TierNow {
            queue: u32::try_from(lane.ready()).unwrap_or(u32::MAX),
            workers: u16::try_from(workers).unwrap_or(u16::MAX),
            idle: u16::try_from(lane.handoff.idle()).unwrap_or(u16::MAX),
        }
    }

    /// Something can be started in a tier: wakes one of its workers, if one rests and none is
    /// looking already.
    pub(crate) fn wake_for(&self, tier: Tier) {
        if let Some(worker) = self.lane(tier).handoff.notify() {
            self.hands.wake(worker);
        }
    }

    pub(crate) fn wake(&self, worker: usize) {
        self.hands.wake(worker);
    }

    /// Makes sure that the timer looks at `at`.
    pub(crate) fn remember(&self, at: Time) {
        if self.later.would_sleep_past(at) {
            self.hands.wake_timer();
        }
    }
}
