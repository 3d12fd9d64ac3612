//! Where everybody is now, and what went wrong, for threads that all look at it.

use crate::common::lock;
use skep_testkit::pause;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Troubles that are kept; of more only the first are of use.
const TROUBLES_MAX: usize = 50;
/// How long somebody rests who finds nobody there.
const REST: Duration = Duration::from_millis(20);
/// So long after the table has forgotten who may restart, an order from before may still be heard.
const ORDERS_LATE: Duration = Duration::from_secs(10);

/// What clients ask for.
pub const KIND: &str = "echo";
/// Sessions at once on a worker.
pub const SLOTS: usize = 4;

/// How clients and workers behave.
#[derive(Clone, Debug)]
pub struct Manners {
    /// Clients at once: fewer than there are slots, so that nobody has to wait for long.
    pub clients: usize,
    /// The longest time that a session is kept.
    pub kept_max: Duration,
    /// How long a worker is away when it restarts.
    pub restart_takes: Duration,
    /// How many may restart at once, if that is to be checked.
    pub budget: Option<usize>,
    /// What nodes want to see.
    pub key: Option<String>,
}

/// What clients, workers and checks share.
pub struct Roster {
    pub manners: Manners,
    nodes: Mutex<Vec<Address>>,
    troubles: Mutex<Vec<String>>,
    /// Even in good weather, odd from a fault on until everything is well again.
    weather: AtomicU64,
    /// How often gateways were cut off for longer than their lease, so that their slots may have
    /// been given away and workers sent away with their sessions.
    pub cut_offs: AtomicU64,
    /// Workers that were told to restart and are not back.
    restarting: AtomicUsize,
    /// When the table forgot everything, the last time.
    forgotten: Mutex<Option<Instant>>,
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
    pub fn new(manners: Manners) -> Self {
        Roster {
            manners,
            nodes: Mutex::default(),
            troubles: Mutex::default(),
            weather: AtomicU64::new(1),
            cut_offs: AtomicU64::new(0),
            restarting: AtomicUsize::new(0),
            forgotten: Mutex::default(),
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

    /// A node that can be asked now, if there is one.
    pub fn any(&self, turn: usize) -> Option<Address> {
        let nodes = lock(&self.nodes);
        let count = nodes.len().max(1);
        let mut in_turn = (0..count).filter_map(|step| nodes.get((turn + step) % count));
        in_turn.find(|node| !node.away).cloned()
    }

    /// A node that can be asked; waits until there is one, or everything is over.
    pub fn present(&self, turn: usize) -> Option<Address> {
        while !self.over.load(Ordering::SeqCst) {
            if let Some(found) = self.any(turn) {
                return Some(found);
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

    /// The header with the key, if nodes want one.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let key = self.manners.key.iter();
        key.map(|key| ("authorization", format!("Bearer {key}"))).collect()
    }

    /// The table forgets everything about now.
    pub fn forget(&self) {
        *lock(&self.forgotten) = Some(Instant::now());
    }

    /// A worker was told to restart.
    pub fn goes(&self, name: &str) {
        let out = self.restarting.fetch_add(1, Ordering::SeqCst) + 1;
        let forgotten = lock(&self.forgotten).is_some_and(|at| at.elapsed() < ORDERS_LATE);
        if let Some(budget) = self.manners.budget.filter(|budget| out > *budget && !forgotten) {
            let text = format!("{name} was told to restart while {} were out", out - 1);
            self.trouble(format!("{text}, and no more than {budget} may be at once"));
        }
    }

    /// It is back, before anybody has heard of that.
    pub fn comes(&self) {
        self.restarting.fetch_sub(1, Ordering::SeqCst);
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
