//! Which queues have consumers on which nodes.
//!
//! ```text
//!   pop waits ─► register ─► Table of this node ─┬─► changes, at once ─────────► others
//!                                                ├─► digest, in each heartbeat ─► differs? ask
//!                                                └─► pages, every 10 s or asked ─► others
//!   Tables of the others ─┴─► view: nodes_with(queue), groups_of(queue), without a lock
//! ```
//!
//! Datagrams get lost, so no change is relied on: what a node holds of another is compared by its
//! digest every second, and a page replaces everything in its range of hashes, whatever was missed
//! before. A pop that ends and comes back in a moment is no change at all
//! ([`PresenceOptions::linger`]).

mod local;
mod table;
#[cfg(test)]
mod tests;

use crate::wire::{Line, QUEUE_MAX};
use arc_swap::ArcSwap;
use local::{Local, Registered};
use skep_policy::{Clock, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
pub use table::Page;
use table::Table;
use tokio::sync::Notify;
use xxhash_rust::xxh3::xxh3_64;

/// The queue that stands for all: who waits for any queue registers it.
pub const ANY_QUEUE: &str = "";

/// What presence is told at its start.
#[derive(Clone, Debug)]
pub struct PresenceOptions {
    /// How long a consumer that went is still taken to be there.
    pub linger: Duration,
    /// Queues of one node that are told at most; consumers of more find their messages without.
    pub queues_max: usize,
}

impl Default for PresenceOptions {
    fn default() -> Self {
        PresenceOptions { linger: Duration::from_secs(5), queues_max: 10_000 }
    }
}

/// A node with consumers of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub name: Arc<str>,
    /// The hash of its name.
    pub hash: u64,
}

/// Who has consumers of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The queue.
    pub queue: Arc<str>,
    /// This node has some.
    pub here: bool,
    /// The other nodes that have some, by name.
    pub others: Box<[Holder]>,
    /// Different consumer groups on all nodes together.
    pub groups: u32,
}

/// A queue and the nodes with consumers of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The queue.
    pub queue: Arc<str>,
    /// The nodes, by name.
    pub nodes: Vec<Arc<str>>,
    /// Different consumer groups on all of them.
    pub groups: u32,
}

/// Changes that are told one by one at most.
const CHANGES_MAX: usize = 1_000;

/// Parts of the view: a change copies one of them.
const SHARDS: usize = 256;

type Shard = HashMap<u64, Arc<Held>, BuildHasherDefault<AsItIs>>;

/// Consumers here and elsewhere. Clones are the same.
#[derive(Clone)]
pub struct Presence {
    inner: Arc<Inner>,
}

struct Inner {
    here: Holder,
    options: PresenceOptions,
    clock: Arc<dyn Clock>,
    local: Local,
    state: Mutex<State>,
    view: Box<[ArcSwap<Shard>]>,
    changed: Notify,
    uncounted: AtomicU64,
}

#[derive(Default)]
struct State {
    here: Table,
    others: HashMap<Arc<str>, Table>,
    to_tell: BTreeMap<u64, Arc<str>>,
    /// The digest and number of queues as the others were last told.
    told: (u64, u32),
}

/// A consumer that waits; it has gone when this is dropped.
#[must_use = "the consumer is gone when this is dropped"]
pub struct Waiting {
    place: Option<(Presence, u64, u32)>,
}

impl Presence {
    /// Nobody waits anywhere yet. `here` is the name of this node.
    pub fn new(here: &str, options: PresenceOptions, clock: Arc<dyn Clock>) -> Self {
        let inner = Inner {
            here: Holder { name: here.into(), hash: xxh3_64(here.as_bytes()) },
            options,
            clock,
            local: Local::default(),
            state: Mutex::default(),
            view: (0..SHARDS).map(|_| ArcSwap::default()).collect(),
            changed: Notify::new(),
            uncounted: AtomicU64::new(0),
        };
        Presence { inner: Arc::new(inner) }
    }

    /// A consumer of `group` begins to wait for messages of `queue`, or of [`ANY_QUEUE`].
    pub fn register(&self, queue: &str, group: &str) -> Waiting {
        let inner = &self.inner;
        let hash = xxh3_64(queue.as_bytes());
        let print = xxh3_64(group.as_bytes()) as u32;
        let registered = if queue.len() > QUEUE_MAX {
            Registered::Full
        } else {
            inner.local.register(hash, queue, print, inner.options.queues_max)
        };
        match registered {
            Registered::Known => {}
            Registered::New => self.publish(&[(hash, queue.into())]),
            Registered::Full => {
                inner.uncounted.fetch_add(1, Ordering::Relaxed);
                return Waiting { place: None };
            }
        }
        Waiting { place: Some((self.clone(), hash, print)) }
    }

    /// Calls `look` with who has consumers of a queue, if anybody has. Takes no lock.
    pub fn look<R>(&self, queue: &str, look: impl FnOnce(&Held) -> R) -> Option<R> {
        let hash = xxh3_64(queue.as_bytes());
        let shard = self.inner.view[shard_of(hash)].load();
        shard.get(&hash).filter(|held| *held.queue == *queue).map(|held| look(held))
    }

    /// The nodes with consumers of a queue, this one included, by name.
    pub fn nodes_with(&self, queue: &str) -> Vec<Arc<str>> {
        self.look(queue, |held| held.nodes(&self.inner.here)).unwrap_or_default()
    }

    /// Different consumer groups of a queue on all nodes together.
    pub fn groups_of(&self, queue: &str) -> u32 {
        self.look(queue, |held| held.groups).unwrap_or(0)
    }

    /// At most `limit` queues with consumers by name, and how many there are.
    pub fn list(&self, limit: usize) -> (Vec<Listed>, usize) {
        let mut all: Vec<Arc<Held>> = self
            .inner
            .view
            .iter()
            .flat_map(|shard| Vec::from_iter(shard.load().values().cloned()))
            .collect();
        let total = all.len();
        all.sort_unstable_by(|a, b| a.queue.cmp(&b.queue));
        let listed = |held: &Arc<Held>| Listed {
            queue: held.queue.clone(),
            nodes: held.nodes(&self.inner.here),
            groups: held.groups,
        };
        (all.iter().take(limit).map(listed).collect(), total)
    }

    /// Consumers that the others were not told of, because there are too many.
    pub fn uncounted(&self) -> u64 {
        self.inner.uncounted.load(Ordering::Relaxed)
    }

    /// Resolves when there is something to tell the others.
    pub(crate) async fn changed(&self) {
        self.inner.changed.notified().await;
    }

    /// The digest of this node's queues, and how many there are, as the others were told last:
    /// with what they are yet to be told they would ask for it.
    pub(crate) fn told(&self) -> (u64, u32) {
        self.lock().told
    }

    /// What changed on this node since this was last called. None if that is more than
    /// [`CHANGES_MAX`] queues; pages tell it better.
    pub(crate) fn take_changes(&self) -> Option<(u64, Vec<Line>)> {
        let mut state = self.lock();
        let hashes = std::mem::take(&mut state.to_tell);
        let queues = u32::try_from(state.here.len()).unwrap_or(u32::MAX);
        state.told = (state.here.digest(), queues);
        if hashes.len() > CHANGES_MAX {
            return None;
        }
        let now = |(hash, queue)| {
            let groups = state.here.groups(hash).map(|(_, groups)| groups.clone());
            Line { queue, groups: groups.unwrap_or_default() }
        };
        let lines = hashes.into_iter().map(now).collect();
        Some((state.here.number(), lines))
    }

    /// A page of this node's queues.
    pub(crate) fn page(&self, first: u64, room: usize) -> Page {
        self.lock().here.page(first, room)
    }

    /// Forgets consumers that have been away long enough.
    pub(crate) fn sweep(&self) {
        let inner = &self.inner;
        let gone = inner.local.sweep(inner.clock.now(), inner.options.linger);
        if !gone.is_empty() {
            self.publish(&gone);
        }
    }

    /// Another node told some of its queues.
    pub(crate) fn apply(&self, node: &Arc<str>, number: u64, lines: Vec<Line>) {
        let mut state = self.lock();
        let table = state.others.entry(node.clone()).or_default();
        let changed = table.apply(number, lines, self.inner.options.queues_max);
        self.renew(&state, changed);
    }

    /// Another node told a page.
    pub(crate) fn replace(&self, node: &Arc<str>, page: Page) {
        let mut state = self.lock();
        let table = state.others.entry(node.clone()).or_default();
        let Page { number, first, last, lines, .. } = page;
        let changed = table.replace(number, first..=last, lines, self.inner.options.queues_max);
        self.renew(&state, changed);
    }

    /// Whether what is known of another node adds up to this digest.
    pub(crate) fn agrees(&self, node: &str, digest: u64) -> bool {
        self.lock().others.get(node).map_or(0, Table::digest) == digest
    }

    /// Another node has gone, or begun anew.
    pub(crate) fn forget(&self, node: &str) {
        let mut state = self.lock();
        if let Some(table) = state.others.remove(node) {
            let hashes = table.hashes().collect();
            self.renew(&state, hashes);
        }
    }

    /// Only these nodes are still there. A node can die while its last words are being read.
    pub(crate) fn forget_all_but(&self, is_there: impl Fn(&str) -> bool) {
        let mut state = self.lock();
        let gone = state.others.extract_if(|node, _| !is_there(node));
        let hashes: Vec<u64> = gone.flat_map(|(_, table)| Vec::from_iter(table.hashes())).collect();
        self.renew(&state, hashes);
    }

    /// Brings this node's table in line with who waits.
    fn publish(&self, queues: &[(u64, Arc<str>)]) {
        let mut state = self.lock();
        let mut changed = Vec::new();
        for (hash, queue) in queues {
            // Read under the lock, so that of two who publish the later says what is newer.
            let groups = self.inner.local.groups(*hash);
            if state.here.set(Line { queue: queue.clone(), groups }) {
                if state.to_tell.len() <= CHANGES_MAX {
                    state.to_tell.insert(*hash, queue.clone());
                }
                changed.push(*hash);
            }
        }
        if changed.is_empty() {
            return;
        }
        self.renew(&state, changed);
        drop(state);
        self.inner.changed.notify_one();
    }

    /// Makes the view of these queues anew.
    fn renew(&self, state: &State, mut hashes: Vec<u64>) {
        hashes.sort_unstable_by_key(|hash| (shard_of(*hash), *hash));
        for same in hashes.chunk_by(|a, b| shard_of(*a) == shard_of(*b)) {
            let place = &self.inner.view[shard_of(same[0])];
            let mut shard = Shard::clone(&place.load());
            for hash in same {
                match state.held(*hash) {
                    Some(held) => shard.insert(*hash, Arc::new(held)),
                    None => shard.remove(hash),
                };
            }
            place.store(Arc::new(shard));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn held(&self, hash: u64) -> Option<Held> {
        let here = self.here.groups(hash);
        let mut others = Vec::new();
        let mut most = here.map_or(0, |(_, groups)| groups.total);
        let mut prints: BTreeSet<u32> =
            here.iter().flat_map(|(_, groups)| groups.prints.iter().copied()).collect();
        let mut queue = here.map(|(queue, _)| queue.clone());
        for (name, table) in &self.others {
            let Some((found, groups)) = table.groups(hash) else { continue };
            others.push(Holder { name: name.clone(), hash: xxh3_64(name.as_bytes()) });
            most = most.max(groups.total);
            prints.extend(groups.prints.iter().copied());
            queue.get_or_insert_with(|| found.clone());
        }
        others.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // Groups beyond those that are told one by one may be the same on every node.
        let groups = most.max(u32::try_from(prints.len()).unwrap_or(u32::MAX));
        Some(Held { queue: queue?, here: here.is_some(), others: others.into(), groups })
    }
}

impl Held {
    fn nodes(&self, here: &Holder) -> Vec<Arc<str>> {
        let here = self.here.then(|| here.name.clone());
        let mut nodes: Vec<Arc<str>> =
            self.others.iter().map(|holder| holder.name.clone()).chain(here).collect();
        nodes.sort_unstable();
        nodes
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((presence, hash, print)) = self.place.take() {
            let now: Time = presence.inner.clock.now();
            presence.inner.local.unregister(hash, print, now);
        }
    }
}

fn shard_of(hash: u64) -> usize {
    (hash >> 56) as usize % SHARDS
}

/// Keys are hashes already.
#[derive(Clone, Copy, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
