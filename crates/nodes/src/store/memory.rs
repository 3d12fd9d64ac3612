//! The table in this process, for nodes that live in it.

use super::Hints;
use skep_policy::ownership::{Hint, Reply, Request, Table};
use skep_store::wall_ms;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Notify;

pub(super) const NAME: &str = "memory";

/// The table in this process. Clones share it.
#[derive(Clone)]
pub struct MemoryTable {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    calls: AtomicU64,
}

struct State {
    table: Table,
    listeners: Vec<Listener>,
}

struct Listener {
    name: Box<str>,
    /// Holds at most one wake-up, however many came; gone when its owner is.
    wake: Weak<Notify>,
}

impl MemoryTable {
    /// A table for the nodes of this process. `epoch` must be higher than that of any earlier
    /// process with the same data.
    pub fn embedded(epoch: u64) -> Self {
        MemoryTable::of(Table::embedded(epoch))
    }

    /// Any table, for tests.
    pub fn of(table: Table) -> Self {
        let state = Mutex::new(State { table, listeners: Vec::new() });
        MemoryTable { shared: Arc::new(Shared { state, calls: AtomicU64::new(0) }) }
    }

    /// How often it was asked.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Changes the table itself, for tests: a restart, a loss.
    pub fn change(&self, change: impl FnOnce(&mut Table)) {
        change(&mut self.state().table);
    }

    pub(super) fn ask(&self, request: &Request) -> Reply {
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        let (reply, hint) = state.table.apply(request, wall_ms());
        state.tell(&hint);
        reply
    }

    pub(super) fn hints(&self, name: &str) -> Hints {
        let wake = Arc::new(Notify::new());
        let mut state = self.state();
        state.listeners.retain(|listener| listener.wake.strong_count() > 0);
        state.listeners.push(Listener { name: name.into(), wake: Arc::downgrade(&wake) });
        // As on a server: whoever has just begun to listen looks first.
        wake.notify_one();
        Hints::from_memory(wake)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tell(&self, hint: &Hint) {
        let concerns = |listener: &&Listener| match hint {
            Hint::Nobody => false,
            Hint::All => true,
            Hint::Nodes(names) => names.iter().any(|name| **name == *listener.name),
        };
        for wake in self.listeners.iter().filter(concerns).filter_map(|one| one.wake.upgrade()) {
            wake.notify_one();
        }
    }
}
