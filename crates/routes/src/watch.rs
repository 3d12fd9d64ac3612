//! One timer a connection, for whatever it waits for at the moment.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// A deadline that moves all the time. The timer behind it is touched only if the deadline comes
/// closer than it is set; one that has moved away is noticed when the timer goes off.
pub(crate) struct Watch {
    timer: Pin<Box<Sleep>>,
    deadline: Option<Instant>,
}

impl Watch {
    pub fn new(first: Duration) -> Self {
        let deadline = Instant::now() + first;
        Watch { timer: Box::pin(sleep_until(deadline)), deadline: Some(deadline) }
    }

    /// What is waited for from now on may take this long; zero is any time.
    pub fn set(&mut self, now: Instant, span: Duration) {
        self.set_at((!span.is_zero()).then(|| now + span));
    }

    /// The same, with the end itself.
    pub fn set_at(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
        if let Some(deadline) = deadline
            && deadline < self.timer.deadline()
        {
            self.timer.as_mut().reset(deadline);
        }
    }

    /// Ready when the deadline has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_may_come_closer_and_move_away() {
        let start = Instant::now();
        let mut watch = Watch::new(Duration::from_secs(60));
        watch.set(Instant::now(), Duration::from_secs(10));
        poll_fn(|cx| watch.poll(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 10);
        watch.set(Instant::now(), Duration::from_secs(5));
        watch.set(Instant::now(), Duration::from_secs(30));
        poll_fn(|cx| watch.poll(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn no_deadline_never_comes() {
        let mut watch = Watch::new(Duration::from_secs(1));
        watch.set(Instant::now(), Duration::ZERO);
        let waited = tokio::time::timeout(Duration::from_secs(99), poll_fn(|cx| watch.poll(cx)));
        assert!(waited.await.is_err());
    }
}
