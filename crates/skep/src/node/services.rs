//! One place that starts and stops what runs inside a node.
//!
//! Services stop in the reverse of the order in which they were started, each within its limit: the
//! listener, started last, stops first, and the stores outlive everybody who uses them. A service
//! that ends by itself, by an error or a panic, takes the others down with it: half a node is worse
//! than none, because nobody restarts it.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The services of a node.
#[derive(Default)]
pub struct Services {
    tasks: JoinSet<anyhow::Result<()>>,
    /// In the order of starting.
    started: Vec<Service>,
}

struct Service {
    name: &'static str,
    task: AbortHandle,
    stop: CancellationToken,
    stop_limit: Duration,
}

/// Why a node ended although nobody asked it to, or did not end well.
#[derive(Debug)]
pub struct Failure {
    /// The service at fault.
    pub service: &'static str,
    /// What it did.
    pub cause: Cause,
}

/// What a service did.
#[derive(Debug)]
pub enum Cause {
    /// It returned this error.
    Failed(anyhow::Error),
    /// It panicked with this message.
    Panicked(String),
    /// It returned although nobody had asked it to stop.
    Ended,
    /// It was asked to stop and had not done so after this time.
    Stuck(Duration),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = self.service;
        match &self.cause {
            Cause::Failed(error) => write!(f, "{service}: {error:#}"),
            Cause::Panicked(message) => {
                write!(f, "{service} panicked, which is a bug: {message}")
            }
            Cause::Ended => write!(f, "{service} ended by itself, which is a bug"),
            Cause::Stuck(limit) => {
                write!(f, "{service} had not stopped after {limit:?} and was ended")
            }
        }
    }
}

impl std::error::Error for Failure {}

impl Services {
    /// Starts a service. It runs until the token it is given is cancelled, and then has
    /// `stop_limit` to return.
    pub fn start<F>(
        &mut self,
        name: &'static str,
        stop_limit: Duration,
        service: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let task = self.tasks.spawn(service(stop.clone()));
        self.started.push(Service { name, task, stop, stop_limit });
    }

    /// Runs until `stop` is cancelled or a service fails; then stops all of them, calling
    /// `on_stop` first. Returns the first failure.
    pub async fn run(
        mut self,
        stop: &CancellationToken,
        on_stop: impl FnOnce(),
    ) -> Result<(), Failure> {
        let mut ended = HashSet::new();
        let first = tokio::select! {
            () = stop.cancelled() => None,
            Some(result) = self.tasks.join_next_with_id() => {
                let (task, outcome) = outcome(result);
                ended.insert(task);
                Some(self.failure(task, outcome.unwrap_or(Cause::Ended)))
            }
        };
        on_stop();
        let later = self.stop_all(&mut ended).await;
        match first.or(later) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    async fn stop_all(&mut self, ended: &mut HashSet<Id>) -> Option<Failure> {
        let mut first = None;
        for service in self.started.iter().rev() {
            service.stop.cancel();
            let waiting = async {
                while !ended.contains(&service.task.id()) {
                    let Some(result) = self.tasks.join_next_with_id().await else { return };
                    let (task, outcome) = outcome(result);
                    ended.insert(task);
                    if let (Some(cause), None) = (outcome, &first) {
                        first = Some((task, cause));
                    }
                }
            };
            if tokio::time::timeout(service.stop_limit, waiting).await.is_err() {
                first.get_or_insert((service.task.id(), Cause::Stuck(service.stop_limit)));
                // Before those are stopped that it uses.
                service.task.abort();
                ended.insert(service.task.id());
            }
        }
        self.tasks.abort_all();
        first.map(|(task, cause)| self.failure(task, cause))
    }

    fn failure(&self, task: Id, cause: Cause) -> Failure {
        let service = self.started.iter().find(|service| service.task.id() == task);
        Failure { service: service.map_or("a service", |service| service.name), cause }
    }
}

fn outcome(result: Result<(Id, anyhow::Result<()>), JoinError>) -> (Id, Option<Cause>) {
    match result {
        Ok((task, Ok(()))) => (task, None),
        Ok((task, Err(error))) => (task, Some(Cause::Failed(error))),
        Err(error) => {
            let task = error.id();
            let cause = match error.try_into_panic() {
                Ok(panic) => Cause::Panicked(panic_message(panic.as_ref())),
                Err(_) => Cause::Ended,
            };
            (task, Some(cause))
        }
    }
}

/// What a panic said, if it said something.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const LIMIT: Duration = Duration::from_secs(5);

    async fn until(stop: CancellationToken) -> anyhow::Result<()> {
        stop.cancelled().await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn services_stop_in_the_reverse_of_their_order() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut services = Services::default();
        for name in ["stores", "pools", "listener"] {
            let order = order.clone();
            services.start(name, LIMIT, |stop| async move {
                stop.cancelled().await;
                // Whoever would stop the next one early would be seen here.
                tokio::time::sleep(Duration::from_secs(1)).await;
                order.lock().expect("no panic").push(name);
                Ok(())
            });
        }
        let stop = CancellationToken::new();
        stop.cancel();
        services.run(&stop, || {}).await.expect("all stop");
        assert_eq!(*order.lock().expect("no panic"), ["listener", "pools", "stores"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_one_service_stops_the_others_and_is_named() {
        let stopped = Arc::new(Mutex::new(false));
        let seen = stopped.clone();
        let mut services = Services::default();
        services.start("stores", LIMIT, |stop| async move {
            stop.cancelled().await;
            *seen.lock().expect("no panic") = true;
            Ok(())
        });
        services.start("poller", LIMIT, |_| async { panic!("no endpoint {}", 7) });
        let failure = services.run(&CancellationToken::new(), || {}).await.expect_err("fails");
        assert_eq!(failure.to_string(), "poller panicked, which is a bug: no endpoint 7");
        assert!(*stopped.lock().expect("no panic"), "the other one was stopped in order");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_and_an_end_by_itself_are_told_apart() {
        let mut services = Services::default();
        services.start("stores", LIMIT, until);
        services.start("poller", LIMIT, |_| async { Err(anyhow::anyhow!("no route")) });
        let failure = services.run(&CancellationToken::new(), || {}).await.expect_err("fails");
        assert_eq!(failure.to_string(), "poller: no route");
        let mut services = Services::default();
        services.start("poller", LIMIT, |_| async { Ok(()) });
        let failure = services.run(&CancellationToken::new(), || {}).await.expect_err("fails");
        assert_eq!(failure.to_string(), "poller ended by itself, which is a bug");
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_will_not_stop_is_ended_at_its_limit() {
        let mut services = Services::default();
        services.start("stores", LIMIT, until);
        services.start("deaf", LIMIT, |_| std::future::pending());
        let stop = CancellationToken::new();
        stop.cancel();
        let failure = services.run(&stop, || {}).await.expect_err("it is stuck");
        assert_eq!(failure.to_string(), "deaf had not stopped after 5s and was ended");
    }
}
