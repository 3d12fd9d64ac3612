//! Who is resting, and who gets up for new work.
//!
//! Waking a parked thread costs a hundred times what queueing a task does, so a burst must not wake
//! a worker for each of its tasks. At most one woken worker at a time is *searching*; whoever adds
//! work while somebody searches leaves it to them, and a searcher that finds a task and sees more
//! wakes the next one.
//!
//! No wake-up is lost, because both sides publish before they look: a submitter queues the task and
//! then reads the state here; a worker enters the list of those who rest and then looks at the
//! queue once more. With a fence between the two steps on both sides, at least one sees the other.

use crate::sync::{AtomicUsize, Mutex, Ordering, fence, lock};

const SEARCHING: usize = 1;
const ONE_IDLE: usize = 2;

/// The resting workers of a group that take from the same queues.
pub struct Handoff {
    /// The number of resting workers, and whether somebody is searching.
    state: AtomicUsize,
    /// The resting workers; the one that lay down last gets up first and finds its caches warm.
    resting: Mutex<Vec<usize>>,
}

impl Handoff {
    pub fn new() -> Self {
        Handoff { state: AtomicUsize::new(0), resting: Mutex::new(Vec::new()) }
    }

    /// How many rest.
    pub fn idle(&self) -> usize {
        self.state.load(Ordering::SeqCst) / ONE_IDLE
    }

    /// Work was added (and is visible in the queue): who must be woken for it?
    ///
    /// Whoever is returned has been taken from the list and counts as searching.
    #[must_use = "the worker sleeps until it is woken"]
    pub fn notify(&self) -> Option<usize> {
        fence(Ordering::SeqCst);
        let mut state = self.state.load(Ordering::SeqCst);
        loop {
            if state & SEARCHING != 0 || state < ONE_IDLE {
                return None;
            }
            match self.state.compare_exchange_weak(
                state,
                state | SEARCHING,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let mut resting = lock(&self.resting);
        let worker = resting.pop();
        match worker {
            Some(_) => self.state.fetch_sub(ONE_IDLE, Ordering::SeqCst),
            // Everybody got up by themselves; each looks at the queue before lying down again.
            None => self.state.fetch_and(!SEARCHING, Ordering::SeqCst),
        };
        worker
    }

    /// A worker found nothing and lies down; `false` if `has_work` finds something after all.
    pub fn rest(&self, worker: usize, has_work: impl FnOnce() -> bool) -> bool {
        {
            let mut resting = lock(&self.resting);
            resting.push(worker);
            self.state.fetch_add(ONE_IDLE, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        !(has_work() && self.get_up(worker))
    }

    /// A resting worker gets up by itself; `false` if somebody woke it, so that it is searching.
    pub fn get_up(&self, worker: usize) -> bool {
        let mut resting = lock(&self.resting);
        let Some(place) = resting.iter().position(|&one| one == worker) else { return false };
        resting.remove(place);
        self.state.fetch_sub(ONE_IDLE, Ordering::SeqCst);
        true
    }

    /// A worker found nothing and would keep looking for a moment, because getting up costs so much
    /// more; `true` if nobody else does already. It counts as searching then.
    pub fn search(&self) -> bool {
        self.state.fetch_or(SEARCHING, Ordering::SeqCst) & SEARCHING == 0
    }

    /// The searching worker found a task, or gives up. Afterwards it must look whether there is
    /// more, and [`notify`](Self::notify) if so.
    pub fn settle(&self) {
        self.state.fetch_and(!SEARCHING, Ordering::SeqCst);
    }

    /// Everybody who rests, without waking them.
    pub fn resting(&self) -> Vec<usize> {
        lock(&self.resting).clone()
    }
}

#[cfg(test)]
mod tests;
