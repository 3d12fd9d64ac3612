//! A desk of the tests' own: a list of workers, a line, and a book of everything that happened.

use hyper::body::Incoming;
use hyper::{Request, Response};
use skep_gateway::{
    Body, Caller, Checkout, Closed, Credentials, Desk, Refusal, Seat, WorkerUrl, full,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Clones are the same desk.
#[derive(Clone, Default)]
pub struct Book {
    state: Arc<Mutex<State>>,
    free: Arc<Notify>,
}

#[derive(Default)]
pub struct State {
    pub workers: Vec<Worker>,
    pub asked: Vec<Checkout>,
    pub waiting: usize,
    pub opened: Vec<u64>,
    pub closed: Vec<(u64, Closed)>,
    pub keys: Vec<Option<String>>,
    sessions: u64,
}

pub struct Worker {
    url: Arc<WorkerUrl>,
    pub slots: usize,
    pub suspect: bool,
    told: CancellationToken,
}

pub struct TestSeat {
    book: Book,
    session: String,
    worker: u64,
    url: Arc<WorkerUrl>,
    told: CancellationToken,
    closed: bool,
}

impl Book {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a worker; its number is its place in the list.
    pub fn add(&self, url: &str, slots: usize) {
        let url = Arc::new(url.parse().expect("is a worker's URL"));
        let worker = Worker { url, slots, suspect: false, told: CancellationToken::new() };
        self.state().workers.push(worker);
        self.free.notify_waiters();
    }

    /// Tells the sessions of a worker to end.
    pub fn end_sessions_of(&self, worker: usize) {
        self.state().workers[worker].told.cancel();
    }

    fn take(&self, ask: &Checkout) -> Option<TestSeat> {
        let mut state = self.state();
        let fits = |(number, worker): &(usize, &mut Worker)| {
            worker.slots > 0 && !worker.suspect && !ask.avoid.contains(&(*number as u64))
        };
        let (number, worker) = state.workers.iter_mut().enumerate().find(fits)?;
        worker.slots -= 1;
        let (url, told) = (worker.url.clone(), worker.told.clone());
        state.sessions += 1;
        let session = format!("session-{}", state.sessions);
        let worker = number as u64;
        Some(TestSeat { book: self.clone(), session, worker, url, told, closed: false })
    }

    fn note(&self, worker: u64, how: Closed) {
        let mut state = self.state();
        let place = &mut state.workers[worker as usize];
        place.slots += 1;
        place.suspect |= matches!(how, Closed::Failed { .. });
        state.closed.push((worker, how));
        drop(state);
        self.free.notify_waiters();
    }
}

impl Desk for Book {
    type Seat = TestSeat;

    fn admit(&self, who: &Credentials<'_>) -> Result<Caller, Refusal> {
        self.state().keys.push(who.key.map(str::to_owned));
        if who.key == Some("wrong") {
            return Err(Refusal {
                status: 401,
                code: "E_KEY_WRONG",
                title: "The key is not known here",
                message: "give another one".to_owned(),
                retry_after_s: None,
            });
        }
        Ok(Caller { key: who.key.map(Arc::from), peer: who.peer })
    }

    async fn checkout(&self, ask: Checkout) -> Result<TestSeat, Refusal> {
        self.state().asked.push(ask.clone());
        let full = || Refusal {
            status: 503,
            code: "E_NO_WORKER",
            title: "No worker is free",
            message: "try again".to_owned(),
            retry_after_s: Some(3),
        };
        if !ask.may_wait {
            return self.take(&ask).ok_or_else(full);
        }
        self.state().waiting += 1;
        let _leaving = Leaving(self);
        let line = async {
            loop {
                let freed = self.free.notified();
                if let Some(seat) = self.take(&ask) {
                    return seat;
                }
                freed.await;
            }
        };
        tokio::time::timeout_at(ask.deadline.into(), line).await.map_err(|_| full())
    }

    async fn plain(&self, request: Request<Incoming>, _: SocketAddr) -> Response<Body> {
        Response::new(full(format!("plain {}", request.uri().path())))
    }
}

/// Takes somebody out of the line, whatever the reason.
struct Leaving<'a>(&'a Book);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Seat for TestSeat {
    fn session(&self) -> &str {
        &self.session
    }

    fn worker(&self) -> u64 {
        self.worker
    }

    fn url(&self) -> &WorkerUrl {
        &self.url
    }

    async fn told_to_end(&self) -> Arc<str> {
        self.told.cancelled().await;
        Arc::from("an operator said so")
    }

    fn opened(&self) {
        self.book.state().opened.push(self.worker);
    }

    fn close(mut self, how: Closed) {
        self.closed = true;
        self.book.note(self.worker, how);
    }
}

impl Drop for TestSeat {
    fn drop(&mut self) {
        if !self.closed {
            self.book.note(self.worker, Closed::Unused);
        }
    }
}
