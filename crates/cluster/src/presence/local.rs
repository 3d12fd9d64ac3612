//! Who waits on this node, counted.

use crate::wire::Groups;
use skep_policy::Time;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SHARDS: usize = 16;

/// Consumer groups of one queue that are counted at most.
const GROUPS_COUNTED: usize = 1_024;

/// Consumers by queue and group. One that goes and comes back soon has never been away.
#[derive(Default)]
pub struct Local {
    shards: [Mutex<HashMap<u64, Queue>>; SHARDS],
}

struct Queue {
    name: Arc<str>,
    groups: HashMap<u32, Seat>,
}

/// How many of a group wait, and since when none does.
struct Seat {
    waiting: u32,
    idle_since: Time,
}

/// What registering a consumer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The group was there already.
    Known,
    /// It is new, and the others want to know.
    New,
    /// It was not counted: there are as many queues or groups as may be.
    Full,
}

impl Local {
    pub fn register(&self, hash: u64, queue: &str, print: u32, queues_max: usize) -> Registered {
        let mut shard = self.shard(hash);
        if shard.len() >= queues_max.div_ceil(SHARDS) && !shard.contains_key(&hash) {
            return Registered::Full;
        }
        let new = || Queue { name: queue.into(), groups: HashMap::new() };
        let queue = shard.entry(hash).or_insert_with(new);
        if let Some(seat) = queue.groups.get_mut(&print) {
            seat.waiting = seat.waiting.saturating_add(1);
            return Registered::Known;
        }
        if queue.groups.len() >= GROUPS_COUNTED {
            return Registered::Full;
        }
        queue.groups.insert(print, Seat { waiting: 1, idle_since: Time::ZERO });
        Registered::New
    }

    pub fn unregister(&self, hash: u64, print: u32, now: Time) {
        let mut shard = self.shard(hash);
        let seat = shard.get_mut(&hash).and_then(|queue| queue.groups.get_mut(&print));
        if let Some(seat) = seat {
            seat.waiting = seat.waiting.saturating_sub(1);
            seat.idle_since = now;
        }
    }

    /// The groups of a queue, with those that only just went.
    pub fn groups(&self, hash: u64) -> Groups {
        let shard = self.shard(hash);
        let prints = shard.get(&hash).map(|queue| queue.groups.keys().copied().collect());
        Groups::of(prints.unwrap_or_default())
    }

    /// Forgets who has been away for `linger`; gives the queues that this changes.
    pub fn sweep(&self, now: Time, linger: Duration) -> Vec<(u64, Arc<str>)> {
        let mut changed = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.retain(|hash, queue| {
                let before = queue.groups.len();
                let stays = |seat: &Seat| seat.waiting > 0 || now.since(seat.idle_since) < linger;
                queue.groups.retain(|_, seat| stays(seat));
                if queue.groups.len() != before {
                    changed.push((*hash, queue.name.clone()));
                }
                !queue.groups.is_empty()
            });
        }
        changed
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, HashMap<u64, Queue>> {
        lock(&self.shards[(hash >> 60) as usize % SHARDS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
