//! A tier's queue, its workers and its counters.

use crate::handoff::Handoff;
use crate::options::TierOptions;
use crate::sync::{Mutex, lock};
use crate::task::Record;
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use skep_policy::Time;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// A tier's queue and what belongs to it. What submitters write, what workers write and what seldom
/// changes are on cache lines of their own.
pub struct Lane {
    pub options: TierOptions,
    /// New tasks. The task's record itself is in the ring; there is no other table of tasks.
    ring: ArrayQueue<Record>,
    /// Tasks that are due again, or whose key has become free. They are older than those in the
    /// ring and go first.
    returned: Mutex<VecDeque<Record>>,
    returned_len: AtomicUsize,
    /// Accepted tasks that are neither in the ring nor running: waiting for a retry, for their key,
    /// or in `returned`. They keep their place, so that a task that was accepted is never refused
    /// later.
    held: AtomicUsize,
    keys: Mutex<HashMap<u64, VecDeque<Record>>>,
    pub handoff: CachePadded<Handoff>,
    /// Workers, starting ones included, abandoned ones not.
    pub workers: AtomicU32,
    pub abandoned: AtomicU32,
    pub control: Mutex<Control>,
    /// When it last got one more worker.
    pub grown_at: AtomicU64,
    /// The timer will look whether a worker is missing.
    pub is_to_be_checked: AtomicBool,
    pub room: CachePadded<Room>,
    /// Tasks that were offered; each gets its number from here.
    sequence: CachePadded<AtomicU64>,
    /// At least this many of them are no longer waiting. How long the queue is exactly can only be
    /// seen by touching what the other side is writing, which costs more than everything else a
    /// submission does; how long it is at most is told by the task's number and this.
    gone_at_least: CachePadded<AtomicU64>,
    pub counts: CachePadded<Counts>,
}

/// What may only be changed by one at a time.
pub struct Control {
    /// Seats that nobody sits on.
    pub free: Vec<usize>,
    /// A thread could not be started: not before this time again.
    pub no_start_before: Time,
    pub start_failures: u32,
}

/// Those who wait until there is room.
#[derive(Default)]
pub struct Room {
    pub waiting: AtomicUsize,
    pub bell: Notify,
}

/// What happens rarely enough to be counted in one place.
#[derive(Default)]
pub struct Counts {
    pub rejected: AtomicU64,
    /// Numbers that were given to tasks that were then not accepted.
    pub unused_numbers: AtomicU64,
    pub over_capacity: AtomicU64,
    pub failed_attempts: AtomicU64,
    pub retried: AtomicU64,
    pub dead: AtomicU64,
    pub timed_out: AtomicU64,
    pub panicked: AtomicU64,
    pub died: AtomicU64,
    pub expired: AtomicU64,
    pub cancelled: AtomicU64,
    pub dropped: AtomicU64,
    pub late: AtomicU64,
    pub spawned: AtomicU64,
    pub retired: AtomicU64,
    pub start_failed: AtomicU64,
    pub abandoned: AtomicU64,
}

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Lane {
    pub fn new(options: TierOptions, reserve: usize, seats: std::ops::Range<usize>) -> Self {
        Lane {
            options,
            ring: ArrayQueue::new(options.queue + reserve),
            returned: Mutex::new(VecDeque::new()),
            returned_len: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            keys: Mutex::new(HashMap::new()),
            handoff: CachePadded::new(Handoff::new()),
            workers: AtomicU32::new(0),
            abandoned: AtomicU32::new(0),
            control: Mutex::new(Control {
                free: seats.rev().collect(),
                no_start_before: Time::ZERO,
                start_failures: 0,
            }),
            grown_at: AtomicU64::new(0),
            is_to_be_checked: AtomicBool::new(false),
            room: CachePadded::default(),
            sequence: CachePadded::default(),
            gone_at_least: CachePadded::default(),
            counts: CachePadded::default(),
        }
    }

    /// A number for a task, unique within the tier.
    pub fn next_number(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Tasks that were accepted so far.
    pub fn accepted(&self) -> u64 {
        let offered = self.sequence.load(Ordering::Relaxed);
        offered.saturating_sub(self.counts.unused_numbers.load(Ordering::Relaxed))
    }

    /// Tasks that a worker could start now.
    pub fn ready(&self) -> usize {
        let offered = self.sequence.load(Ordering::Relaxed);
        let ready = self.ring.len() + self.returned_len.load(Ordering::SeqCst);
        self.gone_at_least.store(offered.saturating_sub(ready as u64), Ordering::Relaxed);
        ready
    }

    /// How many tasks a worker could start at most, as the one who submitted task `number` sees it.
    pub fn ready_at_most(&self, number: u64) -> u64 {
        number.saturating_sub(self.gone_at_least.load(Ordering::Relaxed))
    }

    /// Tasks that have a place in the queue.
    pub fn waiting(&self) -> usize {
        self.ring.len() + self.held.load(Ordering::SeqCst)
    }

    pub fn is_full(&self) -> bool {
        self.waiting() >= self.options.queue
    }

    /// Tasks that wait for a retry or for their key.
    pub fn delayed(&self) -> usize {
        let held = self.held.load(Ordering::SeqCst);
        held.saturating_sub(self.returned_len.load(Ordering::SeqCst))
    }

    pub fn has_work(&self) -> bool {
        !self.ring.is_empty() || self.returned_len.load(Ordering::SeqCst) > 0
    }

    /// Takes a task in, if fewer than `limit` have a place.
    pub fn admit(&self, record: Record, limit: usize) -> Result<(), Record> {
        let Some(key) = record.serial_key() else {
            // With nothing held and no reserve the ring itself is the limit.
            let ring_decides =
                limit == self.ring.capacity() && self.held.load(Ordering::SeqCst) == 0;
            let full = !ring_decides && self.waiting() >= limit;
            return if full { Err(record) } else { self.ring.push(record) };
        };
        let mut keys = lock(&self.keys);
        // One after the other, because nothing else limits what waits for a key.
        if self.waiting() >= limit {
            return Err(record);
        }
        if let Some(queue) = keys.get_mut(&key) {
            queue.push_back(record);
            self.held.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        self.ring.push(record)?;
        keys.insert(key, VecDeque::new());
        Ok(())
    }

    /// The next task to start.
    pub fn take(&self) -> Option<Record> {
        if self.returned_len.load(Ordering::SeqCst) > 0 {
            let record = lock(&self.returned).pop_front();
            if record.is_some() {
                self.returned_len.fetch_sub(1, Ordering::SeqCst);
                self.held.fetch_sub(1, Ordering::SeqCst);
                return record;
            }
        }
        self.ring.pop()
    }

    /// A task that ran gets its place back, because it will run again.
    pub fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
    }

    /// A task that was held will not run again.
    pub fn let_go(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// A held task can start now.
    pub fn put_back(&self, record: Record) {
        let mut returned = lock(&self.returned);
        returned.push_back(record);
        self.returned_len.fetch_add(1, Ordering::SeqCst);
    }

    /// A task with this key has ended for good; `true` if the next one can start.
    pub fn release_key(&self, key: u64) -> bool {
        let mut keys = lock(&self.keys);
        let next = keys.get_mut(&key).and_then(VecDeque::pop_front);
        match next {
            Some(record) => {
                self.put_back(record);
                true
            }
            None => {
                keys.remove(&key);
                false
            }
        }
    }

    /// Takes everything out that waits here, also behind keys.
    pub fn empty(&self) -> Vec<Record> {
        // Those behind keys first, so that none of them becomes the next one meanwhile.
        let mut keys = lock(&self.keys);
        let mut behind: Vec<Record> = keys.drain().flat_map(|(_, queue)| queue).collect();
        self.held.fetch_sub(behind.len(), Ordering::SeqCst);
        behind.sort_by_key(|record| record.id());
        let mut all: Vec<Record> = std::iter::from_fn(|| self.take()).collect();
        all.append(&mut behind);
        all
    }

    /// Lets somebody in who waits for room. They are let in when a quarter of the queue is free
    /// rather than at each task: a thread woken for one place would fill it and sleep again. Where
    /// the rest waits for a retry or a key, and nothing can be started, any place will do.
    pub fn let_in(&self) {
        if self.room.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let full = self.options.queue;
        if self.waiting() <= full - (full / 4).max(1) || !self.has_work() {
            self.room.bell.notify_one();
        }
    }
}
