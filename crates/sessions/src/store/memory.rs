//! The table in this process, for the gateways that live in it.

use super::{HINTS_MAX, Hints};
use skep_policy::sessions::{Answer, Ask, Fleet, Hint};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::broadcast;

pub(super) const NAME: &str = "memory";

/// The table in this process. Clones share it.
#[derive(Clone)]
pub struct MemoryTable {
    shared: Arc<Shared>,
}

struct Shared {
    fleet: Mutex<Fleet>,
    began: Instant,
    began_ms: u64,
    hints: broadcast::Sender<Hint>,
}

impl MemoryTable {
    /// A table that knows nobody. Its clock shows the wall's time at its start and never goes back.
    pub fn new() -> Self {
        let shared = Shared {
            fleet: Mutex::new(Fleet::new()),
            began: Instant::now(),
            began_ms: u64::try_from(skep_store::wall_ms()).unwrap_or(0),
            hints: broadcast::Sender::new(HINTS_MAX),
        };
        MemoryTable { shared: Arc::new(shared) }
    }

    pub(crate) fn ask(&self, ask: &Ask) -> Answer {
        let elapsed = u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let reply = {
            let mut fleet = self.shared.fleet.lock().unwrap_or_else(PoisonError::into_inner);
            fleet.apply(self.shared.began_ms.saturating_add(elapsed), ask)
        };
        for hint in reply.hints {
            // Nobody listening is no fault.
            let _ = self.shared.hints.send(hint);
        }
        reply.answer
    }

    pub(super) fn hints(&self) -> Hints {
        Hints { source: self.shared.hints.subscribe() }
    }
}

impl Default for MemoryTable {
    fn default() -> Self {
        MemoryTable::new()
    }
}
