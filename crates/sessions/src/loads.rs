//! What workers say they hold, for people who look.

use crate::handle::Sessions;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Workers whose load is remembered; past that those with the first names are forgotten.
const LOADS_MAX: usize = 10_000;

/// What a worker's programs hold, as it last told this node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    pub rss_bytes: Option<u64>,
    pub cpu_percent: Option<f64>,
}

#[derive(Default)]
pub(crate) struct Loads {
    by_name: Mutex<BTreeMap<String, Load>>,
}

impl Sessions {
    /// Remembers what a worker told this node about its load.
    pub fn note_load(&self, name: &str, load: Load) {
        let loads = &self.shared.loads.by_name;
        let mut loads = loads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = loads.get_mut(name) {
            *known = load;
            return;
        }
        if loads.len() >= LOADS_MAX {
            loads.pop_first();
        }
        loads.insert(name.to_owned(), load);
    }

    /// What a worker told this node about its load; nothing if it speaks to another.
    pub fn load_of(&self, name: &str) -> Load {
        let loads = &self.shared.loads.by_name;
        let loads = loads.lock().unwrap_or_else(PoisonError::into_inner);
        loads.get(name).copied().unwrap_or_default()
    }
}
