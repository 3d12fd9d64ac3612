//! Workers of sessions for routes: each request is a session of its own.

use crate::node::State;
use hyper::Uri;
use skep_gateway::WorkerUrl;
use skep_policy::sessions::{Close, Want};
use skep_routes::{NoSeat, Seat, Seating, Workers};
use skep_sessions::{Placed, Sessions, Wish};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// When it is worth asking again while the node starts.
const STARTING_RETRY: Duration = Duration::from_secs(5);

/// Gives out workers once the node has joined the others.
pub struct NodeWorkers {
    sessions: Arc<OnceLock<Sessions>>,
    state: watch::Receiver<State>,
    wait_max: Duration,
}

impl NodeWorkers {
    pub fn new(state: &watch::Receiver<State>, wait_max: Duration) -> Self {
        NodeWorkers { sessions: Arc::default(), state: state.clone(), wait_max }
    }

    /// From now on there are sessions. Called once.
    pub fn join(&self, sessions: &Sessions) {
        let _ = self.sessions.set(sessions.clone());
    }
}

impl Workers for NodeWorkers {
    fn seat(&self, kind: &Arc<str>) -> Seating {
        let (sessions, mut state) = (self.sessions.clone(), self.state.clone());
        let deadline = Instant::now() + self.wait_max;
        let kind = kind.to_string();
        Box::pin(async move {
            let ready = state.wait_for(|state| !matches!(state, State::Starting(_)));
            let _ = tokio::time::timeout_at(deadline.into(), ready).await;
            let Some(sessions) = sessions.get() else {
                let message = "the stores were not reached yet".to_owned();
                return Err(NoSeat { message, retry_after: Some(STARTING_RETRY) });
            };
            let wish = Wish {
                kind: Some(kind),
                want: Want::default(),
                key: "".into(),
                avoid: None,
                wait: true,
                deadline,
            };
            let placed = sessions.checkout(&wish).await.map_err(|refused| NoSeat {
                message: refused.to_string(),
                retry_after: refused.retry_after(),
            })?;
            match WorkerSeat::new(placed) {
                Ok(seat) => Ok(Box::new(seat) as Box<dyn Seat>),
                Err(message) => Err(NoSeat { message, retry_after: None }),
            }
        })
    }
}

/// A slot of a worker, for one request.
struct WorkerSeat {
    placed: Placed,
    authority: String,
    base: String,
    answered: bool,
}

impl WorkerSeat {
    fn new(placed: Placed) -> Result<Self, String> {
        // It was checked when the worker registered.
        let url = &placed.seat().url;
        let authority = url.parse::<WorkerUrl>().map_err(|error| error.to_string())?;
        let uri: Uri = url.parse().map_err(|_| "the worker's address is no URL".to_owned())?;
        let base = uri.path().trim_end_matches('/').to_owned();
        let authority = match uri.port() {
            Some(_) => authority.authority().to_owned(),
            None => format!("{}:{}", authority.authority(), authority.port()),
        };
        Ok(WorkerSeat { placed, authority, base, answered: false })
    }
}

impl Seat for WorkerSeat {
    fn authority(&self) -> &str {
        &self.authority
    }

    fn base(&self) -> &str {
        &self.base
    }

    fn answered(&mut self) {
        self.answered = true;
    }

    fn close(self: Box<Self>, failed: Option<String>) {
        let WorkerSeat { placed, answered, .. } = *self;
        let how = match failed {
            Some(why) => {
                let worker = placed.seat().worker;
                tracing::warn!(session = placed.id(), worker, why, "did not answer");
                Close::Failed
            }
            None if answered => Close::Ended,
            None => Close::Unused,
        };
        placed.close(how);
    }
}
