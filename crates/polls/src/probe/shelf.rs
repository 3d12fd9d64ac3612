//! Connections that wait to be used again.

use super::link::Link;
use super::prepared::Key;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Many servers close a connection that was idle for five seconds. One that is used a moment
/// before that fails through nobody's fault, so none is used that late.
const IDLE: Duration = Duration::from_secs(4);

/// An older connection is not kept, so that a new address or certificate is noticed even if an
/// endpoint is polled every second.
const AGE: Duration = Duration::from_secs(60);

/// The idle connections, by where they lead.
pub(super) struct Shelf {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order in which they were put aside, the one idle longest first.
    idle: BTreeMap<u64, Idle>,
    by_key: HashMap<Arc<Key>, VecDeque<u64>>,
    next: u64,
    sweeper: Option<JoinHandle<()>>,
}

struct Idle {
    link: Link,
    key: Arc<Key>,
    since: Instant,
}

impl Shelf {
    pub fn new(most: usize) -> Self {
        Shelf { most, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that was used a moment ago and is still open.
    pub async fn take(&self, key: &Key) -> Option<Link> {
        let mut link = self.pop(key)?;
        // Lets the runtime hear from the sockets, so that one that was closed is known to be.
        tokio::task::yield_now().await;
        while !link.is_idle().await {
            link = self.pop(key)?;
        }
        Some(link)
    }

    fn pop(&self, key: &Key) -> Option<Link> {
        let mut state = self.state();
        let numbers = state.by_key.get_mut(key)?;
        let newest = numbers.pop_back();
        if numbers.is_empty() {
            state.by_key.remove(key);
        }
        let idle = state.idle.remove(&newest?)?;
        (idle.since.elapsed() < IDLE).then_some(idle.link)
    }

    /// Puts a connection aside, if it can be used again.
    pub fn put(self: &Arc<Self>, key: &Arc<Key>, mut link: Link) {
        let now = Instant::now();
        if self.most == 0 || now.duration_since(link.born) >= AGE || !link.settle() {
            return;
        }
        let mut state = self.state();
        let dropped = if state.idle.len() >= self.most { state.oldest() } else { None };
        let number = state.next;
        state.next += 1;
        state.by_key.entry(key.clone()).or_default().push_back(number);
        state.idle.insert(number, Idle { link, key: key.clone(), since: now });
        // It is finished without having said so if its runtime is gone.
        if state.sweeper.as_ref().is_none_or(JoinHandle::is_finished) {
            state.sweeper = Some(tokio::spawn(sweep(Arc::downgrade(self))));
        }
        drop(state);
        // Closing takes a while, so it is done without the lock.
        drop(dropped);
    }

    /// Closes what has been idle for too long. When to come again; never if nothing is left.
    fn sweep(&self) -> Option<Instant> {
        let mut dropped = Vec::new();
        let mut state = self.state();
        let next = loop {
            match state.idle.first_key_value() {
                None => break None,
                Some((_, idle)) if idle.since.elapsed() < IDLE => break Some(idle.since + IDLE),
                Some(_) => dropped.extend(state.oldest()),
            }
        };
        if next.is_none() {
            state.sweeper = None;
        }
        drop(state);
        next
    }
}

impl State {
    /// Takes out the one that has been idle longest.
    fn oldest(&mut self) -> Option<Idle> {
        let (number, idle) = self.idle.pop_first()?;
        if let Some(numbers) = self.by_key.get_mut(&idle.key) {
            numbers.retain(|one| *one != number);
            if numbers.is_empty() {
                self.by_key.remove(&idle.key);
            }
        }
        Some(idle)
    }
}

/// Runs while connections are idle, so that none stays open for want of polls.
async fn sweep(shelf: std::sync::Weak<Shelf>) {
    while let Some(next) = shelf.upgrade().and_then(|shelf| shelf.sweep()) {
        tokio::time::sleep_until(next.into()).await;
    }
}
