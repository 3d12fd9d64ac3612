//! The table in this process, for the gateways that live in it.

use super::Hints;
use super::hints::HINTS_MAX;
use skep_policy::sessions::{Ask, Fleet, Hint, Reply};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::broadcast;

pub(super) const NAME: &str = "memory";

/// The table in this process. Clones share it.
#[derive(Clone)]
pub struct MemoryTable {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    began: Instant,
    began_ms: u64,
    hints: broadcast::Sender<Hint>,
}

struct State {
    fleet: Fleet,
    /// The latest time of a step; none is taken before it.
    latest: u64,
}

impl MemoryTable {
    /// A table that knows nobody. Its clock shows the wall's time at its start and never goes back.
    pub fn new() -> Self {
        let shared = Shared {
            state: Mutex::new(State { fleet: Fleet::new(), latest: 0 }),
            began: Instant::now(),
            began_ms: u64::try_from(skep_store::wall_ms()).unwrap_or(0),
            hints: broadcast::Sender::new(HINTS_MAX),
        };
        MemoryTable { shared: Arc::new(shared) }
    }

    /// Changes the table itself, for tests: a loss.
    pub fn change(&self, change: impl FnOnce(&mut Fleet)) {
        change(&mut self.state().fleet);
    }

    pub(crate) fn step(&self, ask: &Ask, now_ms: Option<u64>) -> Reply {
        let mut state = self.state();
        let now = now_ms.unwrap_or_else(|| self.shared.now_ms());
        state.latest = state.latest.max(now);
        let now = state.latest;
        let reply = state.fleet.apply(now, ask);
        for &hint in &reply.hints {
            // Nobody listening is no fault.
            let _ = self.shared.hints.send(hint);
        }
        reply
    }

    pub(super) fn hints(&self) -> Hints {
        Hints::from_memory(self.shared.hints.subscribe())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn now_ms(&self) -> u64 {
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.began_ms.saturating_add(elapsed)
    }
}

impl Default for MemoryTable {
    fn default() -> Self {
        MemoryTable::new()
    }
}
