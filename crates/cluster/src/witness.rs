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

const PLACES: usize = 64;

/// The breakers. Changes run in the critical tier: whoever is gone must be known before the
/// requests that would go there, however busy the node is.
pub(crate) struct Breakers {
    myself: Weak<Breakers>,
    circuits: Mutex<Circuits>,
    /// Who has failed lately, by the hash of the name. Of others a good answer changes nothing and
    /// is not written down. Nodes that share a place are written down more than they need.
    trouble: [AtomicBool; PLACES],
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
            trouble: std::array::from_fn(|_| AtomicBool::new(false)),
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

    /// The state of a node's breaker.
    pub fn state(&self, peer: u64) -> State {
        self.lock().state(peer)
    }

    /// Whether requests may go to a node that does nothing for this one.
    pub fn admits(&self, peer: u64) -> bool {
        self.lock().admits(peer, 0)
    }

    /// Half opens those whose time has come.
    pub fn pass_time(&self, now: Time) {
        let changes = self.lock().pass_time(now);
        for (peer, change) in &changes {
            self.tell(&format!("#{peer:016x}"), change);
        }
    }

    fn note(&self, peer: &str, began: Time, outcome: Result<(), Failure>) {
        let mut chance = SeededChance::new(self.chances.fetch_add(1, Ordering::Relaxed));
        let (now, hash) = (self.clock.now(), hash_of(peer));
        let mut circuits = self.lock();
        let change = circuits.note(hash, now, began, outcome, &mut chance);
        if outcome.is_ok() && circuits.state(hash) == State::Closed {
            self.trouble(hash).store(false, Ordering::Relaxed);
        }
        drop(circuits);
        if let Some(change) = change {
            self.tell(peer, &change);
        }
    }

    fn trouble(&self, peer: u64) -> &AtomicBool {
        &self.trouble[peer as usize % PLACES]
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
        let trouble = self.trouble(hash_of(peer));
        let outcome = match evidence {
            Evidence::Good if !trouble.load(Ordering::Relaxed) => return,
            Evidence::Nothing => return,
            Evidence::Good => Ok(()),
            Evidence::Bad => Err(Failure::Bad),
            Evidence::Gone => Err(Failure::Unreachable),
        };
        if outcome.is_err() {
            trouble.store(true, Ordering::Relaxed);
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
