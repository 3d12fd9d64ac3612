//! A node as an object: several can run in one process, each with its own port, metrics and end.

mod metrics;
mod services;

pub use metrics::Metrics;
pub use services::{Cause, Failure, Services};

use crate::settings::Settings;
use anyhow::Context;
use serde::Serialize;
use skep_policy::{Clock, Decision, DecisionId, Name, SeededChance, Time, backoff};
use skep_store::{Health, Installation, MigrateError, SCHEMA, Schema, StoreError, Stores};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

/// The tables of all parts. A part that keeps something adds its own.
pub const SCHEMAS: &[Schema] = &[SCHEMA];

/// How long one look at the stores serves everybody who asks for it.
const HEALTH_MAX_AGE: Duration = Duration::from_secs(1);

/// A store that has not answered after this time is not well.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the part that watches the stores may take to stop; it has nothing to finish.
const WATCH_STOP_LIMIT: Duration = Duration::from_secs(2);

/// What a node is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "detail", rename_all = "lowercase")]
pub enum State {
    /// It listens and waits for this.
    Starting(String),
    /// It works.
    Ready,
    /// It finishes what it has and takes nothing new.
    Draining,
}

/// What everybody inside a node can look at.
pub struct Shared {
    pub name: Name,
    pub address: SocketAddr,
    pub settings: Settings,
    pub stores: Stores,
    pub metrics: Metrics,
    pub state: watch::Receiver<State>,
    pub installation: OnceLock<Installation>,
    clock: Arc<dyn Clock>,
    started: Time,
    health: HealthBook,
}

/// The last look at the stores, and the right to look again.
#[derive(Default)]
struct HealthBook {
    last: std::sync::Mutex<Option<(Time, Arc<[Health]>)>>,
    looking: Mutex<()>,
}

impl Shared {
    /// How long the node has been running.
    pub fn uptime(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    /// How the stores are doing, asked at most once a second however many want to know. While
    /// somebody asks and the answer is slow, the others get the last one.
    pub async fn store_health(&self) -> Arc<[Health]> {
        let (last, fresh) = self.last_health();
        if fresh {
            return last.unwrap_or_default();
        }
        let _looking = match (last, self.health.looking.try_lock()) {
            (_, Ok(looking)) => looking,
            (Some(last), Err(_)) => return last,
            (None, Err(_)) => self.health.looking.lock().await,
        };
        if let (Some(last), true) = self.last_health() {
            return last;
        }
        let health: Arc<[Health]> = self.stores.health(HEALTH_TIMEOUT).await.into();
        *self.health.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((self.clock.now(), health.clone()));
        health
    }

    fn last_health(&self) -> (Option<Arc<[Health]>>, bool) {
        let last = self.health.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((asked, health)) => {
                (Some(health.clone()), self.clock.now().since(*asked) < HEALTH_MAX_AGE)
            }
            None => (None, false),
        }
    }
}

/// A running node.
pub struct Node {
    shared: Arc<Shared>,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<Result<(), Failure>>,
}

impl Node {
    /// Binds the node's port and starts it. The stores may still be away: the node listens and
    /// says so until they are there, see [`Node::ready`].
    pub async fn start(
        settings: Settings,
        stores: Stores,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let wanted = settings.api.listen;
        let listener = TcpListener::bind(wanted).await.with_context(|| {
            format!(
                "cannot listen on {wanted}; another program may have the port: choose one with \
                 --listen, for example --listen 127.0.0.1:0"
            )
        })?;
        let address = listener.local_addr().context("a bound listener has an address")?;
        let (set_state, state) = watch::channel(State::Starting("opening the stores".to_owned()));
        let shared = Arc::new(Shared {
            name: settings.node.name.clone().unwrap_or_else(|| default_name(address)),
            address,
            metrics: Metrics::new(&stores),
            stores,
            state,
            installation: OnceLock::new(),
            started: clock.now(),
            clock,
            health: HealthBook::default(),
            settings,
        });
        let stop = CancellationToken::new();
        let ended = tokio::spawn(run(shared.clone(), listener, set_state, stop.clone()));
        Ok(Node { shared, stop, ended })
    }

    /// What can be looked at.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Waits until the node works; `false` if it ended before.
    pub async fn ready(&self) -> bool {
        self.shared.state.clone().wait_for(|state| *state == State::Ready).await.is_ok()
    }

    /// Asks the node to finish what it has and stop. Returns at once.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the node's end, asked for or not.
    pub async fn ended(&mut self) -> Result<(), Failure> {
        match (&mut self.ended).await {
            Ok(outcome) => outcome,
            Err(error) => {
                Err(Failure { service: "node", cause: Cause::Panicked(error.to_string()) })
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn run(
    shared: Arc<Shared>,
    listener: TcpListener,
    set_state: watch::Sender<State>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let set_state = Arc::new(set_state);
    let mut services = Services::default();
    let keeper =
        StoreKeeper { shared: shared.clone(), state: set_state.clone(), node_stop: stop.clone() };
    services.start("stores", WATCH_STOP_LIMIT, |stop| keeper.run(stop));
    let drain_limit = shared.settings.shutdown.drain_timeout + WATCH_STOP_LIMIT;
    services.start("http", drain_limit, |stop| crate::http::serve(listener, shared, stop));
    services.run(&stop, || drop(set_state.send_replace(State::Draining))).await
}

/// Waits for the stores, brings them up to date, says that the node is ready, and then watches that
/// the embedded one stays alive.
struct StoreKeeper {
    shared: Arc<Shared>,
    state: Arc<watch::Sender<State>>,
    /// The node was asked to stop. Services stop one after the other, but from then on no store is
    /// waited for and none is changed.
    node_stop: CancellationToken,
}

impl StoreKeeper {
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let ready = self.node_stop.run_until_cancelled(self.prepare()).await;
        match ready {
            Some(Err(error)) => return Err(error),
            Some(Ok(())) => self.set_state(State::Ready),
            None => {}
        }
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            () = self.shared.stores.failed() => Err(StoreEnded.into()),
        }
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        let mut chance = SeededChance::new(uuid::Uuid::new_v4().as_u64_pair().1);
        let retry = self.shared.stores.retry();
        for attempt in 1.. {
            let stores = &self.shared.stores;
            let reached = stores.wait_until_reachable(|error, wait| {
                self.tell(error, wait, DecisionId::new(wall_clock(), &mut chance));
            });
            reached.await?;
            match bring_up_to_date(&self.shared).await {
                Ok(()) => break,
                // It was there a moment ago, or has no room now.
                Err(MigrateError::Store(error)) if error.is_temporary() => {
                    let wait = backoff::wait_before_attempt(attempt, &retry, &mut chance);
                    self.tell(&error, &wait, DecisionId::new(wall_clock(), &mut chance));
                    tokio::time::sleep(wait.chosen).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn tell(&self, error: &StoreError, wait: &Decision<Duration>, decision: DecisionId) {
        let (reason, seconds) = (&wait.reason, wait.chosen.as_secs_f64());
        tracing::warn!(%error, %decision, %reason, "trying again in {seconds:.1} s");
        self.set_state(State::Starting(error.to_string()));
    }

    /// A node that is draining stays so.
    fn set_state(&self, new: State) {
        self.state.send_if_modified(|state| {
            let starting = matches!(state, State::Starting(_));
            if starting {
                *state = new;
            }
            starting
        });
    }
}

/// The embedded store's writer ended although nobody had closed it.
#[derive(Debug, thiserror::Error)]
#[error("the embedded database's writer ended; restart the node, nothing acknowledged is lost")]
pub struct StoreEnded;

/// Now, for ids that people sort by time across nodes and restarts; never for deciding.
fn wall_clock() -> Time {
    let now = jiff::Timestamp::now().as_millisecond();
    Time::from_millis(u64::try_from(now).unwrap_or(0))
}

async fn bring_up_to_date(shared: &Shared) -> Result<(), MigrateError> {
    for applied in shared.stores.migrate(SCHEMAS).await? {
        let (part, name) = (&applied.part, &applied.name);
        tracing::info!(part, migration = name, "database brought up to date");
    }
    let installation = shared.stores.installation().await?;
    // Set before only by an earlier round of this same loop, to the same value.
    let _ = shared.installation.set(installation);
    Ok(())
}

/// `<hostname>-<port>`, without the characters that a name cannot hold.
fn default_name(address: SocketAddr) -> Name {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let host: String = host.chars().filter(fits).take(100).collect();
    let host = host.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let name = format!("{}-{}", if host.is_empty() { "node" } else { host }, address.port());
    name.parse().unwrap_or_else(|error| unreachable!("{name:?} is a name: {error}"))
}
