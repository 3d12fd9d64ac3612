//! The streams of one connection of HTTP/2: their tasks, how many are open, and their end.

use hyper::rt::Executor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Clones are the same.
#[derive(Clone)]
pub(super) struct Streams(Arc<Mutex<State>>);

struct State {
    tasks: JoinSet<()>,
    open: usize,
    /// When the last one ended that was open.
    quiet_since: Instant,
}

/// A stream that is open.
pub(super) struct Open(Streams);

impl Streams {
    pub fn new() -> Self {
        let (tasks, quiet_since) = (JoinSet::new(), Instant::now());
        Streams(Arc::new(Mutex::new(State { tasks, open: 0, quiet_since })))
    }

    pub fn open(&self) -> Open {
        self.state().open += 1;
        Open(self.clone())
    }

    /// Since when none is open.
    pub fn quiet_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.open == 0).then_some(state.quiet_since)
    }

    pub fn take_tasks(&self) -> JoinSet<()> {
        std::mem::take(&mut self.state().tasks)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, task: F) {
        let mut state = self.state();
        while state.tasks.try_join_next().is_some() {}
        state.tasks.spawn(task);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.quiet_since = Instant::now();
    }
}

/// Ends all of them when dropped: tasks know each other, so that none would end by itself.
pub(super) struct EndAll(pub Streams);

impl Drop for EndAll {
    fn drop(&mut self) {
        // Outside of the lock, which what they drop may need.
        drop(self.0.take_tasks());
    }
}
