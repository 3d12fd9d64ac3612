//! Tells other nodes that their consumers have something to pop.
//!
//! A wake is a hint: it may be lost, come twice or come for nothing, and whoever waits looks by
//! itself now and then. So wakes wait in a small, bounded place, one for each queue and node
//! however many messages were pushed, and what does not fit is dropped and counted.

use crate::metrics::PulseMetrics;
use crate::presence::{ANY_QUEUE, Held, Presence};
use crate::wire::QUEUE_MAX;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Queues that wait to be told to one node at most.
pub const WAITING_MAX: usize = 1_024;

/// Wakes on their way out. Clones are the same.
#[derive(Clone)]
pub struct Wakes {
    inner: Arc<Inner>,
}

struct Inner {
    presence: Presence,
    metrics: PulseMetrics,
    waiting: Mutex<Batch>,
    some: Notify,
}

/// The queues that each node is to be told of.
pub(crate) type Batch = HashMap<Arc<str>, BTreeSet<Arc<str>>>;

impl Wakes {
    /// Wakes for the consumers that `presence` knows.
    pub(crate) fn new(presence: Presence, metrics: PulseMetrics) -> Self {
        let inner = Inner { presence, metrics, waiting: Mutex::default(), some: Notify::new() };
        Wakes { inner: Arc::new(inner) }
    }

    /// There is something new in `queue`: tells every other node with consumers of it, soon. Never
    /// waits, and takes no lock if there are none.
    pub fn wake(&self, queue: &str) {
        if queue.len() > QUEUE_MAX {
            return;
        }
        let presence = &self.inner.presence;
        let of_queue = presence.look(queue, |held| self.put(&held.queue, held));
        let of_any = presence.look(ANY_QUEUE, |held| {
            let is_elsewhere = !held.others.is_empty();
            is_elsewhere && self.put(&queue.into(), held)
        });
        if of_queue == Some(true) || of_any == Some(true) {
            self.inner.some.notify_one();
        }
    }

    /// Resolves when there is something to tell.
    pub(crate) async fn some(&self) {
        self.inner.some.notified().await;
    }

    /// Everything that waits.
    pub(crate) fn take(&self) -> Batch {
        std::mem::take(&mut *self.lock())
    }

    fn put(&self, queue: &Arc<str>, held: &Held) -> bool {
        if held.others.is_empty() {
            return false;
        }
        let mut waiting = self.lock();
        for holder in &held.others {
            let queues = match waiting.get_mut(&holder.name) {
                Some(queues) => queues,
                None => waiting.entry(holder.name.clone()).or_default(),
            };
            if queues.len() < WAITING_MAX {
                queues.insert(queue.clone());
            } else if !queues.contains(queue) {
                self.inner.metrics.wakes_dropped.inc();
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
