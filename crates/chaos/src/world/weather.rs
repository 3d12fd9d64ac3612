//! What whoever breaks nodes tells the actors about it, so that they excuse what is documented as
//! its price, and nothing else.

use crate::common::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Texts that are kept with their times; of more only the first are of use.
const NOTICED_MAX: usize = 1_000;

/// What happened to nodes and stores that no node can make good.
#[derive(Debug, Default)]
pub struct Weather {
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
    fn what_was_noticed_again_was_noticed_the_first_time() {
        let weather = Weather::default();
        assert_eq!(weather.noticed("a double"), None);
        weather.notice("a double");
        let first = weather.noticed("a double");
        weather.notice("a double");
        assert!(first.is_some() && first == weather.noticed("a double"));
    }
}
