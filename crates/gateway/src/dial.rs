//! Finds a worker that answers: a second one is dialled beside a first that is slow, and another
//! after one that failed.

use crate::desk::{Checkout, Closed, Desk, Refusal, Seat};
use crate::handshake::{Answer, DialError, dial};
use crate::metrics::GatewayMetrics;
use crate::options::GatewayOptions;
use crate::outline::Outline;
use crate::refusals;
use hyper::header::HeaderValue;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Workers that are dialled for one client at a time.
const DIALS_AT_ONCE: usize = 3;
/// A worker is suspect if it had this many times as long as the one that answered.
const SLOWER_BY: u32 = 3;
/// How long a worker may leave a client alone that then gives up.
const LEFT_ALONE: Duration = Duration::from_secs(1);
/// The desk keeps the deadline by itself and knows more to say about it; this is for one that
/// does not.
const DESK_GRACE: Duration = Duration::from_millis(500);

/// A worker's answer, and the seat it is about.
pub(crate) struct Found<S> {
    pub seat: S,
    pub answer: Answer,
}

/// Everything about one client that looks for a worker.
pub(crate) struct Search<'a, D: Desk> {
    pub desk: &'a D,
    pub options: &'a GatewayOptions,
    pub metrics: &'a GatewayMetrics,
    pub outline: Outline,
    /// Whose `avoid` and `may_wait` are filled in for each try.
    pub ask: Checkout,
}

/// One worker that is being dialled.
struct Attempt<S: Seat> {
    seat: Option<S>,
    began: Instant,
    suspect_after: Duration,
    answer: Pin<Box<dyn Future<Output = Result<Answer, DialError>> + Send>>,
}

impl<D: Desk> Search<'_, D> {
    /// Tries workers until one answers or the client's time is over. Dropping it gives everything
    /// back.
    pub async fn run(self) -> Result<Found<D::Seat>, Refusal> {
        let mut failures = 0;
        let deadline = Instant::from_std(self.ask.deadline);
        loop {
            let checkout = self.desk.checkout(self.ask(&[], true));
            let Ok(seat) = timeout_at(deadline + DESK_GRACE, checkout).await else {
                return Err(refusals::deadline(self.options.connect_deadline, failures));
            };
            let mut attempts = vec![self.attempt(seat?)];
            if let Some(found) = self.race(&mut attempts, &mut failures, deadline).await? {
                return Ok(found);
            }
        }
    }

    /// Waits for the first answer; `None` if every worker that was tried has failed.
    async fn race(
        &self,
        attempts: &mut Vec<Attempt<D::Seat>>,
        failures: &mut usize,
        deadline: Instant,
    ) -> Result<Option<Found<D::Seat>>, Refusal> {
        let hedge_after = self.options.hedge_after;
        let mut another = pin!(self.another(self.beside(attempts), hedge_after));
        loop {
            tokio::select! {
                biased;
                (index, answer) = first_answer(attempts) => {
                    let attempt = attempts.swap_remove(index);
                    match answer {
                        Ok(answer) => {
                            let enough = hedge_after.max(SLOWER_BY * attempt.began.elapsed());
                            attempts.iter_mut().for_each(|one| one.suspect_after = enough);
                            return Ok(self.won(attempt, answer));
                        }
                        Err(error) => self.failed(attempt, &error),
                    }
                    *failures += 1;
                    if attempts.is_empty() {
                        return Ok(None);
                    }
                    // Its place is free for the next one.
                    another.set(self.another(self.beside(attempts), Duration::ZERO));
                }
                seat = another.as_mut() => {
                    self.metrics.hedged();
                    attempts.push(self.attempt(seat));
                    another.set(self.another(self.beside(attempts), hedge_after));
                }
                () = sleep_until(deadline) => {
                    attempts.iter_mut().for_each(|one| one.suspect_after = hedge_after);
                    return Err(refusals::deadline(self.options.connect_deadline, *failures));
                }
            }
        }
    }

    /// What to ask for beside those that are being tried; nothing if they are enough.
    fn beside(&self, attempts: &[Attempt<D::Seat>]) -> Option<Checkout> {
        (attempts.len() < DIALS_AT_ONCE).then(|| self.ask(attempts, false))
    }

    /// One more worker after a while; never if there is none.
    async fn another(&self, ask: Option<Checkout>, after: Duration) -> D::Seat {
        if let Some(ask) = ask {
            sleep(after).await;
            if let Ok(seat) = self.desk.checkout(ask).await {
                return seat;
            }
        }
        std::future::pending().await
    }

    fn ask(&self, attempts: &[Attempt<D::Seat>], may_wait: bool) -> Checkout {
        let workers = attempts.iter().filter_map(|one| Some(one.seat.as_ref()?.worker()));
        Checkout { avoid: workers.collect(), may_wait, ..self.ask.clone() }
    }

    fn attempt(&self, seat: D::Seat) -> Attempt<D::Seat> {
        let session = HeaderValue::from_str(seat.session()).ok();
        let head = self.outline.for_worker(seat.url(), session.as_ref());
        let dialler = self.options.dialler.clone();
        let answer = Box::pin(dial(dialler, seat.url().clone(), head, self.options.dial_limit));
        let suspect_after = self.options.hedge_after.max(LEFT_ALONE);
        Attempt { seat: Some(seat), began: Instant::now(), suspect_after, answer }
    }

    fn won(&self, mut attempt: Attempt<D::Seat>, answer: Answer) -> Option<Found<D::Seat>> {
        self.metrics.dialled(attempt.began.elapsed());
        Some(Found { seat: attempt.seat.take()?, answer })
    }

    fn failed(&self, mut attempt: Attempt<D::Seat>, error: &DialError) {
        self.metrics.dial_failed(error.as_str());
        if let Some(seat) = attempt.seat.take() {
            let (worker, address) = (seat.worker(), seat.url().authority());
            tracing::warn!(worker, address, %error, "a worker gave no session");
            seat.close(Closed::Failed { why: error.to_string() });
        }
    }
}

impl<S: Seat> Drop for Attempt<S> {
    /// Another worker was faster, or the client has left: whoever had time enough is suspect. In a
    /// fleet that is slow as a whole nobody is.
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        let waited = self.began.elapsed();
        seat.close(if waited >= self.suspect_after {
            Closed::Failed { why: format!("it had not answered after {} ms", waited.as_millis()) }
        } else {
            Closed::Unused
        });
    }
}

async fn first_answer<S: Seat>(attempts: &mut [Attempt<S>]) -> (usize, Result<Answer, DialError>) {
    poll_fn(|cx| {
        for (index, attempt) in attempts.iter_mut().enumerate() {
            if let Poll::Ready(answer) = attempt.answer.as_mut().poll(cx) {
                return Poll::Ready((index, answer));
            }
        }
        Poll::Pending
    })
    .await
}
