//! What whoever breaks nodes tells the actors about it, so that they excuse what is documented as
//! its price, and nothing else.

use crate::common::lock;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Texts that are kept with their times; of more only the first are of use.
const NOTICED_MAX: usize = 1_000;

/// Who can be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Node(usize),
    /// The server of the database, for all nodes.
    Database,
    /// All servers that a route leads to.
    Route(usize),
}

/// How somebody goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Killed: whatever it had in memory is gone.
    Killed,
    /// Asked to stop: whatever it had in memory is finished or written down.
    Stopped,
    /// It stands still, and goes on as if nothing had been.
    Paused,
}

#[derive(Debug)]
struct Absence {
    who: Who,
    how: Leave,
    to: Option<Instant>,
}

/// What a node that was asked to stop has left about its tasks.
#[derive(Clone, Debug)]
pub struct Account {
    pub node: usize,
    /// As the node wrote it.
    pub told: Value,
    /// Whether the database was away while it stopped, so that it may not have written everything.
    pub excused: bool,
}

/// What happened to nodes and stores that no node can make good.
#[derive(Debug, Default)]
pub struct Weather {
    absences: Mutex<Vec<Absence>>,
    accounts: Mutex<Vec<Account>>,
    cut_offs: AtomicU64,
    forgotten: AtomicU64,
    resumed: Mutex<Vec<Instant>>,
    noticed: Mutex<HashMap<String, Instant>>,
}

impl Weather {
    /// A node has not reached the table of sessions for so long that others may think it dead: what
    /// it carries may be given away, and workers sent away with it.
    pub fn cut_off(&self) {
        self.cut_offs.fetch_add(1, Ordering::SeqCst);
    }

    /// How often that was.
    pub fn cut_offs(&self) -> u64 {
        self.cut_offs.load(Ordering::SeqCst)
    }

    /// Where nodes agree everything was forgotten.
    pub fn forgotten(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }

    /// How often that was.
    pub fn times_forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// A node that was stopped (SIGSTOP) goes on now. Call it before it does.
    pub fn resumes(&self) {
        lock(&self.resumed).push(Instant::now());
    }

    /// When nodes that were stopped went on.
    pub fn resumed(&self) -> Vec<Instant> {
        lock(&self.resumed).clone()
    }

    /// Somebody goes. Call it before.
    pub fn leaves(&self, who: Who, how: Leave) {
        lock(&self.absences).push(Absence { who, how, to: None });
    }

    /// Somebody is back. Call it afterwards.
    pub fn returns(&self, who: Who) {
        let now = Some(Instant::now());
        let mut absences = lock(&self.absences);
        let of_it = absences.iter_mut().filter(|one| one.who == who && one.to.is_none());
        of_it.for_each(|one| one.to = now);
    }

    /// Whether somebody was away at any time from then on.
    pub fn was_away(&self, who: Who, since: Instant) -> bool {
        let absences = lock(&self.absences);
        let mut of_it = absences.iter().rev().filter(|one| one.who == who);
        of_it.any(|one| one.to.is_none_or(|to| to >= since))
    }

    /// Whether somebody is away now.
    pub fn is_away(&self, who: Who) -> bool {
        lock(&self.absences).iter().any(|one| one.who == who && one.to.is_none())
    }

    /// How often somebody went so.
    pub fn times(&self, who: Who, how: Leave) -> usize {
        lock(&self.absences).iter().filter(|one| one.who == who && one.how == how).count()
    }

    /// How often a node's process was ended, killed or not.
    pub fn ends(&self, node: usize) -> usize {
        let who = Who::Node(node);
        self.times(who, Leave::Killed) + self.times(who, Leave::Stopped)
    }

    /// What a node that stopped has left.
    pub fn left(&self, account: Account) {
        lock(&self.accounts).push(account);
    }

    /// What all of them have left.
    pub fn accounts(&self) -> Vec<Account> {
        lock(&self.accounts).clone()
    }

    /// Something that should never be was noticed by an actor, just now or lately. The verdict at
    /// the end says it too; this is for when it was.
    pub fn notice(&self, text: &str) {
        let mut noticed = lock(&self.noticed);
        if noticed.len() < NOTICED_MAX && !noticed.contains_key(text) {
            noticed.insert(text.to_owned(), Instant::now());
        }
    }

    /// When that was.
    pub fn noticed(&self, text: &str) -> Option<Instant> {
        lock(&self.noticed).get(text).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_away_since_then_is_told_and_nobody_else() {
        let weather = Weather::default();
        let (one, other) = (Who::Node(1), Who::Node(2));
        let before = Instant::now();
        weather.leaves(one, Leave::Paused);
        assert!(weather.is_away(one) && weather.was_away(one, Instant::now()));
        weather.returns(one);
        assert!(!weather.is_away(one) && weather.was_away(one, before));
        assert!(!weather.was_away(other, before) && !weather.was_away(Who::Database, before));
        let later = Instant::now() + std::time::Duration::from_secs(1);
        assert!(!weather.was_away(one, later));
        assert_eq!(weather.ends(1), 0, "who stands still has not ended");
        weather.leaves(one, Leave::Killed);
        weather.leaves(other, Leave::Stopped);
        assert_eq!((weather.ends(1), weather.ends(2)), (1, 1));
        assert_eq!(weather.times(one, Leave::Killed), 1);
    }

    #[test]
    fn what_was_noticed_again_was_noticed_the_first_time() {
        let weather = Weather::default();
        assert_eq!(weather.noticed("a double"), None);
        weather.notice("a double");
        let first = weather.noticed("a double");
        weather.notice("a double");
        assert!(first.is_some() && first == weather.noticed("a double"));
    }
}
