//! Breakers of the other nodes, fed by what came of each exchange.

use crate::counts::ClusterMetrics;
use crate::forward::{Evidence, Witness};
use skep_policy::breaker::{Change, State};
use skep_policy::cluster::{Circuits, Failure};
use skep_policy::rendezvous::hash_of;
use skep_policy::{Clock, Decision, SeededChance, Time};
use skep_pools::{Pools, Task, Tier};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The breakers. Changes run in the critical tier: whoever is gone must be known before the
/// requests that would go there, however busy the node is.
pub(crate) struct Breakers {
    myself: Weak<Breakers>,
    circuits: Mutex<Circuits>,
    /// Whether anybody has failed lately. While nobody has, a good answer changes nothing and is
    /// not written down.
    trouble: AtomicBool,
    pools: Pools,
    clock: Arc<dyn Clock>,
    changed: Arc<Notify>,
    metrics: ClusterMetrics,
    chances: AtomicU64,
}

impl Breakers {
    pub fn new(
        pools: Pools,
        clock: Arc<dyn Clock>,
        changed: Arc<Notify>,
        metrics: ClusterMetrics,
    ) -> Arc<Self> {
        Arc::new_cyclic(|myself| Breakers {
            myself: myself.clone(),
            circuits: Mutex::default(),
            trouble: AtomicBool::new(false),
            pools,
            clock,
            changed,
            metrics,
            chances: AtomicU64::new(0),
        })
    }

    /// Keeps the breakers of these nodes, by the hashes of their names.
    pub fn keep(&self, peers: impl IntoIterator<Item = u64>) {
        self.lock().keep(peers);
    }

    /// A node was started anew: what its last life did says nothing about this one.
    pub fn forget(&self, node: &str) {
        self.lock().forget(hash_of(node));
    }

    /// The state of a node's breaker.
    pub fn state(&self, peer: u64) -> State {
        self.lock().state(peer)
    }

    /// Whether requests may go to a node that does nothing for this one.
    pub fn admits(&self, peer: u64) -> bool {
        self.lock().admits(peer, 0)
    }

    /// Half opens those whose time has come. What a node is called is for those who read the log.
    pub fn pass_time(&self, now: Time, name_of: impl Fn(u64) -> Option<Arc<str>>) {
        let changes = self.lock().pass_time(now);
        for (peer, change) in &changes {
            self.tell(name_of(*peer).as_deref().unwrap_or("unknown"), change);
        }
    }

    /// Nodes that somebody should ask something, to see how they are: see [`Circuits::to_probe`].
    pub fn to_probe(&self, now: Time) -> Vec<u64> {
        self.lock().to_probe(now)
    }

    fn note(&self, peer: &str, began: Time, outcome: Result<(), Failure>) {
        let mut chance = SeededChance::new(self.chances.fetch_add(1, Ordering::Relaxed));
        let now = self.clock.now();
        let mut circuits = self.lock();
        let change = circuits.note(hash_of(peer), now, began, outcome, &mut chance);
        // Of all nodes: one that is well again says nothing about the others.
        self.trouble.store(!circuits.is_calm(), Ordering::Relaxed);
        drop(circuits);
        if let Some(change) = change {
            self.tell(peer, &change);
        }
    }

    fn tell(&self, peer: &str, change: &Decision<Change>) {
        let reason = &change.reason;
        match change.chosen {
            Change::Opened { .. } => {
                tracing::warn!(node = peer, %reason, "a node gets no requests for a while");
            }
            Change::HalfOpened => {
                tracing::info!(node = peer, %reason, "a node gets one request, to see how it goes");
            }
            Change::Closed => tracing::info!(node = peer, %reason, "a node gets requests again"),
        }
        self.metrics.breaker(&change.chosen);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Circuits> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for Breakers {
    fn saw(&self, peer: &str, evidence: Evidence, took: Duration) {
        let outcome = match evidence {
            Evidence::Good if !self.trouble.load(Ordering::Relaxed) => return,
            Evidence::Nothing => return,
            Evidence::Good => Ok(()),
            Evidence::Bad => Err(Failure::Bad),
            Evidence::Gone => Err(Failure::Unreachable),
        };
        if outcome.is_err() {
            self.trouble.store(true, Ordering::Relaxed);
        }
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let began = Time::from_nanos(self.clock.now().as_nanos().saturating_sub(took));
        let (myself, peer): (_, Arc<str>) = (self.myself.clone(), peer.into());
        let name = peer.clone();
        let task = Task::future("cluster-breaker", move |_| {
            let (myself, peer) = (myself.clone(), peer.clone());
            async move {
                if let Some(breakers) = myself.upgrade() {
                    breakers.note(&peer, began, outcome);
                }
                Ok(())
            }
        });
        // Where the pool has no room, the change is made here: it takes no longer than asking.
        if self.pools.try_submit(Tier::Critical, task.retries(0)).is_err() {
            self.note(&name, began, outcome);
        }
    }
}
