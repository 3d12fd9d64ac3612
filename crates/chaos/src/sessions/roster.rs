//! Where everybody is now, and what went wrong, for threads that all look at it.

use skep_testkit::pause;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Troubles that are kept; of more only the first are of use.
const TROUBLES_MAX: usize = 50;
/// How long somebody rests who finds nobody there.
const REST: Duration = Duration::from_millis(20);

/// What clients, workers and checks share.
pub struct Roster {
    nodes: Mutex<Vec<Address>>,
    troubles: Mutex<Vec<String>>,
    /// Even in good weather, odd from a fault on until everything is well again.
    weather: AtomicU64,
    /// How often gateways were cut off for longer than their lease, so that their slots may have
    /// been given away and workers sent away with their sessions.
    pub cut_offs: AtomicU64,
    /// Whether clients may open and close sessions.
    pub moving: AtomicBool,
    /// Whether clients are to go.
    pub closing: AtomicBool,
    /// Whether everything ends.
    pub over: AtomicBool,
}

/// Where a node is.
#[derive(Clone, Debug, Default)]
pub struct Address {
    /// The API's URL.
    pub api: String,
    /// The gateway's host and port.
    pub gateway: String,
    /// Whether it is of no use to ask it.
    pub away: bool,
}

impl Roster {
    pub fn new() -> Self {
        Roster {
            nodes: Mutex::default(),
            troubles: Mutex::default(),
            weather: AtomicU64::new(1),
            cut_offs: AtomicU64::new(0),
            moving: AtomicBool::new(true),
            closing: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// A node is here now.
    pub fn set(&self, number: usize, address: Address) {
        let mut nodes = lock(&self.nodes);
        if nodes.len() <= number {
            nodes.resize(number + 1, Address::default());
        }
        nodes[number] = address;
    }

    /// A node is of no use, or is again.
    pub fn set_away(&self, number: usize, away: bool) {
        if let Some(node) = lock(&self.nodes).get_mut(number) {
            node.away = away;
        }
    }

    /// A node, present or not.
    pub fn node(&self, turn: usize) -> Address {
        let nodes = lock(&self.nodes);
        nodes.get(turn % nodes.len().max(1)).cloned().unwrap_or_default()
    }

    /// A node that can be asked; waits until there is one, or everything is over.
    pub fn present(&self, turn: usize) -> Option<Address> {
        while !self.over.load(Ordering::SeqCst) {
            let nodes = lock(&self.nodes).clone();
            let count = nodes.len().max(1);
            let in_turn = (0..count).filter_map(|step| nodes.get((turn + step) % count));
            if let Some(found) = in_turn.into_iter().find(|node| !node.away) {
                return Some(found.clone());
            }
            pause(REST);
        }
        None
    }

    /// The weather now; see [`Roster::was_calm_since`].
    pub fn weather(&self) -> u64 {
        self.weather.load(Ordering::SeqCst)
    }

    /// Whether nothing has happened since `weather`, so that nobody had a reason to fail.
    pub fn was_calm_since(&self, weather: u64) -> bool {
        weather.is_multiple_of(2) && weather == self.weather()
    }

    /// A fault comes, or everything is well again.
    pub fn set_calm(&self, calm: bool) {
        if self.weather().is_multiple_of(2) != calm {
            self.weather.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until clients may move; whether they still should.
    pub fn may_move(&self) -> bool {
        while !self.moving.load(Ordering::SeqCst) && !self.closing.load(Ordering::SeqCst) {
            pause(REST / 4);
        }
        !self.closing.load(Ordering::SeqCst)
    }

    /// Lets a client rest, unless it is to go.
    pub fn rest(&self, span: Duration) {
        let until = Instant::now() + span;
        while !self.closing.load(Ordering::SeqCst)
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            pause(left.min(REST));
        }
    }

    /// Something that should never be.
    pub fn trouble(&self, text: String) {
        let mut troubles = lock(&self.troubles);
        if troubles.len() < TROUBLES_MAX {
            troubles.push(text);
        }
    }

    pub fn troubles(&self) -> Vec<String> {
        lock(&self.troubles).clone()
    }
}

/// Locks what somebody may have broken off with: the value is as good as it was.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
