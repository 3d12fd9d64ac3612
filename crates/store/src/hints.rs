//! Hints that something changed elsewhere, from a connection that comes back by itself.
//!
//! A hint is never the only way to learn of a change: whoever was away has missed it. So each new
//! connection is told too ([`Heard::Reconnected`]), and the owner then looks for itself.

use skep_policy::{SeededChance, backoff};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Waits between attempts to connect.
const RETRY: backoff::Options =
    backoff::Options { base: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// A connection is asked so often whether it is still one: nobody would notice the silence of a
/// peer that has nothing to say.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(5);

/// Hints that may wait for their owner. One that is further behind has to look for itself.
const WAITING_MAX: usize = 1_024;

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Somebody said something.
    Notice {
        /// Where.
        channel: String,
        /// What.
        payload: String,
    },
    /// From now on notices are heard, and some may have been lost before: the connection is new,
    /// or more came than were fetched. The owner has to look for itself.
    Reconnected,
    /// The connection is lost, and nothing is heard until [`Heard::Reconnected`]. Said once.
    Lost,
}

/// Hints from one connection of its own, which is made anew whenever it is lost. Dropping it closes
/// the connection.
pub struct Hints {
    inbox: Arc<Inbox>,
    task: AbortHandle,
}

impl Hints {
    /// Keeps `connect` running, again and again: it connects, calls [`Inbox::connected`], puts what
    /// it hears, and ends when the connection is lost. Must be called inside a tokio runtime.
    pub(crate) fn start<F>(connect: impl Fn(Arc<Inbox>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let inbox = Arc::new(Inbox::default());
        let task = tokio::spawn(keep_connected(connect, inbox.clone()));
        Hints { inbox, task: task.abort_handle() }
    }

    /// Waits for the next thing to hear. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Heard {
        loop {
            let came = self.inbox.came.notified();
            if let Some(heard) = self.inbox.waiting().queue.pop_front() {
                return heard;
            }
            came.await;
        }
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_connected<F: Future<Output = ()>>(
    connect: impl Fn(Arc<Inbox>) -> F,
    inbox: Arc<Inbox>,
) {
    let mut chance = SeededChance::new(uuid::Uuid::new_v4().as_u64_pair().1);
    let mut attempt = 0;
    loop {
        let started = Instant::now();
        connect(inbox.clone()).await;
        inbox.lost();
        // A server that ends each connection at once is not asked ever faster.
        attempt = if started.elapsed() > RETRY.cap { 1 } else { attempt + 1 };
        tokio::time::sleep(backoff::wait_before_attempt(attempt, &RETRY, &mut chance).chosen).await;
    }
}

/// What was heard and not fetched yet. Putting never waits: a listener that stops reading would
/// hold up the server.
#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    came: Notify,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Heard>,
    connected: bool,
}

impl Inbox {
    /// Notices are heard from now on.
    pub(crate) fn connected(&self) {
        self.waiting().connected = true;
        self.put(Heard::Reconnected);
    }

    /// Somebody said something.
    pub(crate) fn notice(&self, channel: &str, payload: String) {
        self.put(Heard::Notice { channel: channel.to_owned(), payload });
    }

    fn lost(&self) {
        if std::mem::take(&mut self.waiting().connected) {
            self.put(Heard::Lost);
        }
    }

    fn put(&self, heard: Heard) {
        let mut waiting = self.waiting();
        if waiting.queue.len() < WAITING_MAX {
            waiting.queue.push_back(heard);
        } else {
            let sum = if waiting.connected { Heard::Reconnected } else { Heard::Lost };
            waiting.queue.clear();
            waiting.queue.push_back(sum);
        }
        drop(waiting);
        self.came.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_owner_that_is_too_far_behind_is_told_to_look_for_itself() {
        let mut hints = Hints::start(|inbox| async move {
            inbox.connected();
            for number in 0..WAITING_MAX {
                inbox.notice("jar", number.to_string());
            }
            std::future::pending().await
        });
        assert_eq!(hints.next().await, Heard::Reconnected);
        hints.inbox.notice("jar", "later".to_owned());
        let later = Heard::Notice { channel: "jar".to_owned(), payload: "later".to_owned() };
        assert_eq!(hints.next().await, later);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_is_said_once_however_often_connecting_fails() {
        let attempts = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = attempts.clone();
        let mut hints = Hints::start(move |inbox| {
            let number = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move {
                if number % 10 == 5 {
                    inbox.connected();
                }
            }
        });
        for _ in 0..3 {
            assert_eq!(hints.next().await, Heard::Reconnected);
            assert_eq!(hints.next().await, Heard::Lost);
        }
        assert!(attempts.load(std::sync::atomic::Ordering::Relaxed) >= 26);
    }
}
