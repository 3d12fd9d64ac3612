//! A node as an object: several can run in one process, each with its own port, metrics and end.

mod metrics;
mod services;

pub use metrics::Metrics;
pub use services::{Cause, Failure, Services};

use crate::settings::Settings;
use anyhow::Context;
use serde::Serialize;
use skep_policy::{Clock, DecisionId, Name, SeededChance, Time};
use skep_store::{Health, Installation, MigrateError, SCHEMA, Schema, Stores};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

/// The tables of all parts. A part that keeps something adds its own.
pub const SCHEMAS: &[Schema] = &[SCHEMA];

/// How long one look at the stores serves everybody who asks for it.
const HEALTH_MAX_AGE: Duration = Duration::from_secs(1);

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
    health: Mutex<Option<(Time, Arc<[Health]>)>>,
}

impl Shared {
    /// How long the node has been running.
    pub fn uptime(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    /// How the stores are doing, asked at most once a second however many want to know.
    pub async fn store_health(&self) -> Arc<[Health]> {
        let mut last = self.health.lock().await;
        let now = self.clock.now();
        if let Some((asked, health)) = &*last
            && now.since(*asked) < HEALTH_MAX_AGE
        {
            return health.clone();
        }
        let health: Arc<[Health]> = self.stores.health().await.into();
        *last = Some((now, health.clone()));
        health
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
            health: Mutex::new(None),
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
    let (watched, state) = (shared.clone(), set_state.clone());
    services.start("stores", WATCH_STOP_LIMIT, |stop| keep_stores(watched, state, stop));
    let drain_limit = shared.settings.shutdown.drain_timeout + WATCH_STOP_LIMIT;
    services.start("http", drain_limit, |stop| crate::http::serve(listener, shared, stop));
    services.run(&stop, || drop(set_state.send_replace(State::Draining))).await
}

/// Waits for the stores, brings them up to date, says that the node is ready, and then watches that
/// the embedded one stays alive.
async fn keep_stores(
    shared: Arc<Shared>,
    state: Arc<watch::Sender<State>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        prepare(&shared, &state, &stop).await?;
        if stop.is_cancelled() {
            return Ok(());
        }
        match bring_up_to_date(&shared).await {
            Ok(()) => break,
            // It was there a moment ago; wait for it again.
            Err(MigrateError::Store(error)) if error.is_temporary() => {
                tracing::warn!(%error, "a store went away while it was being prepared");
            }
            Err(error) => return Err(error.into()),
        }
    }
    state.send_if_modified(|state| {
        let starting = matches!(state, State::Starting(_));
        if starting {
            *state = State::Ready;
        }
        starting
    });
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        () = shared.stores.failed() => Err(anyhow::anyhow!(
            "the embedded database's writer ended; restart the node, nothing acknowledged is lost"
        )),
    }
}

async fn prepare(
    shared: &Shared,
    state: &watch::Sender<State>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut chance = SeededChance::new(shared.clock.now().as_nanos());
    let reached = shared
        .stores
        .wait_until_reachable(stop, |error, wait| {
            let decision = DecisionId::new(shared.clock.now(), &mut chance);
            let (reason, seconds) = (&wait.reason, wait.chosen.as_secs_f64());
            tracing::warn!(%error, %decision, %reason, "trying again in {seconds:.1} s");
            state.send_replace(State::Starting(error.to_string()));
        })
        .await;
    match reached {
        Err(_) if stop.is_cancelled() => Ok(()),
        other => other.map_err(anyhow::Error::from),
    }
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
