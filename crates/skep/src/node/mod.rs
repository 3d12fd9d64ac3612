//! A node as an object: several can run in one process, each with its own port, metrics and end.

mod chores;
mod keeper;
mod metrics;
mod services;

pub use keeper::{Exposed, StoreEnded};
pub use metrics::{Metrics, ProcessNow, process_now};
pub use services::{Cause, Failure, Services, panic_message};

use crate::access::Access;
use crate::cluster::ClusterPlace;
use crate::demo::DemoPlace;
use crate::fleet::{self, Fleet, FleetMetrics, NodeDesk};
use crate::http::{Certificate, CertificateFiles, OverviewBook, Point, Traffic};
use crate::queues::NodeQueues;
use crate::routes::{NodeFront, NodeRoutes};
use crate::settings::Settings;
use crate::work::Work;
use anyhow::Context;
use axum::http::HeaderValue;
use keeper::StoreKeeper;
use serde::Serialize;
use skep_gateway::Gateway;
use skep_policy::{Clock, Name, Time};
use skep_store::{Health, Installation, SCHEMA, Schema, Stores};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

/// The tables of all parts. A part that keeps something adds its own.
pub const SCHEMAS: &[Schema] = &[
    SCHEMA,
    crate::access::SCHEMA,
    crate::work::SCHEMA,
    skep_nodes::SCHEMA,
    skep_polls::SCHEMA,
    skep_monitors::SCHEMA,
    skep_sessions::SCHEMA,
    skep_routes::store::SCHEMA,
    skep_queues::store::SCHEMA,
];

/// How long one look at the stores serves everybody who asks for it.
const HEALTH_MAX_AGE: Duration = Duration::from_secs(1);

/// A store that has not answered after this time is not well.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a service that has nothing to finish may take to stop.
const CHORE_STOP_LIMIT: Duration = Duration::from_secs(2);

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
    /// The same, as answers have it.
    pub name_header: HeaderValue,
    pub address: SocketAddr,
    pub settings: Settings,
    pub stores: Stores,
    pub metrics: Metrics,
    pub traffic: Traffic,
    pub access: Access,
    pub work: Arc<Work>,
    pub routes: Arc<NodeRoutes>,
    pub queues: NodeQueues,
    pub cluster: ClusterPlace,
    /// What it has of the demo that it belongs to.
    pub demo: Option<DemoPlace>,
    /// What the port is encrypted with, if it is.
    pub certificate: Option<Arc<Certificate>>,
    /// The last second of the port's life.
    pub latest_point: watch::Receiver<Point>,
    pub state: watch::Receiver<State>,
    pub installation: OnceLock<Installation>,
    /// Where clients connect to for a session, if there is a gateway.
    pub gateway_address: OnceLock<SocketAddr>,
    /// The same for those who speak TLS.
    pub gateway_tls_address: OnceLock<SocketAddr>,
    /// What was last seen to be wrong.
    pub overview: OverviewBook,
    fleet: OnceLock<Fleet>,
    fleet_metrics: FleetMetrics,
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

    /// This node among the others; nothing while the stores have not been reached yet.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.fleet.get()
    }

    /// What the gateway counts.
    pub fn gateway_metrics(&self) -> &skep_gateway::GatewayMetrics {
        &self.fleet_metrics.gateway
    }

    /// Everything the node counts, as text.
    pub fn render_metrics(&self) -> String {
        if let Some(fleet) = self.fleet() {
            fleet.refresh_metrics();
        }
        self.queues.refresh_metrics();
        self.cluster.refresh_metrics();
        let expires = self.certificate.as_ref().map(|one| one.expires_at_ms());
        self.metrics.render(self.uptime(), &self.stores, expires)
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
        let certificate = load_certificate(&settings)?;
        let (set_state, state) = watch::channel(State::Starting("opening the stores".to_owned()));
        let (set_point, latest_point) = watch::channel(Point::default());
        let traffic = Traffic::new();
        let name = settings.node.name.clone().unwrap_or_else(|| default_name(address));
        let work = Arc::new(Work::start(&settings, &stores, name.as_str(), &state)?);
        let routes = NodeRoutes::start(&settings, name.as_str(), &work, &stores, &state)?;
        let queues = NodeQueues::new(&settings, &stores);
        let cluster = ClusterPlace::default();
        let fleet_metrics = FleetMetrics::default();
        let shared = Arc::new(Shared {
            name_header: HeaderValue::from_str(name.as_str())?,
            name,
            address,
            metrics: Metrics::new(
                &stores,
                &traffic,
                &work,
                &fleet_metrics,
                &routes,
                (&queues, &cluster),
            ),
            cluster,
            demo: settings.demo.enabled.then(DemoPlace::new),
            fleet: OnceLock::new(),
            fleet_metrics,
            work,
            routes,
            queues,
            traffic,
            access: Access::new(clock.clone()),
            certificate,
            latest_point,
            stores,
            state,
            installation: OnceLock::new(),
            gateway_address: OnceLock::new(),
            gateway_tls_address: OnceLock::new(),
            started: clock.now(),
            clock,
            health: HealthBook::default(),
            overview: OverviewBook::default(),
            settings,
        });
        let gateway = match shared.settings.gateway.enabled {
            true => Some(fleet::bind_gateway(&shared)?),
            false => None,
        };
        if let Some(gateway) = &gateway {
            // Set once, here.
            let _ = shared.gateway_address.set(gateway.address());
            if let Some(address) = gateway.tls_address() {
                let _ = shared.gateway_tls_address.set(address);
            }
        }
        // Whoever drains the node stops it.
        let stop = shared.cluster.drained.clone();
        let ports = (listener, gateway);
        let ended = tokio::spawn(run(shared.clone(), ports, (set_state, set_point), stop.clone()));
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

    /// Cuts the node off as if its process had died. Nothing is finished, handed over or told: its
    /// ports close, its connections break, what waits in its pools is gone, and what it held is
    /// left to run out. What it has in common with other nodes of this process lives on.
    pub async fn kill(mut self) {
        self.ended.abort();
        // With it go all services, and with these their connections and threads.
        let _ = (&mut self.ended).await;
        let pools = self.shared.work.pools.clone();
        // Takes as long as what runs just now does; nobody has to wait for that.
        tokio::spawn(async move { pools.shutdown(Duration::ZERO).await });
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
    (listener, gateway): (TcpListener, Option<Gateway<NodeDesk, NodeFront>>),
    (set_state, set_point): (watch::Sender<State>, watch::Sender<Point>),
    stop: CancellationToken,
) -> Result<(), Failure> {
    let set_state = Arc::new(set_state);
    let mut services = Services::default();
    let keeper = StoreKeeper::new(shared.clone(), set_state.clone(), stop.clone());
    services.start("stores", CHORE_STOP_LIMIT, |stop| keeper.run(stop));
    let chore = shared.clone();
    services.start("access", CHORE_STOP_LIMIT, |stop| chores::renew_keys(chore, stop));
    let chore = shared.clone();
    services
        .start("traffic", CHORE_STOP_LIMIT, |stop| chores::count_seconds(chore, set_point, stop));
    if let Some(certificate) = shared.certificate.clone() {
        let chore = shared.clone();
        services.start("certificate", CHORE_STOP_LIMIT, |stop| {
            chores::watch_certificate(chore, certificate, stop)
        });
    }
    let drain_limit = shared.settings.shutdown.drain_timeout + CHORE_STOP_LIMIT;
    // Stops after the port, whose last requests it writes down, and before the stores.
    let chore = shared.clone();
    let work_limit = 2 * drain_limit + crate::work::LAST_WRITES_LIMIT;
    services.start("work", work_limit, |stop| crate::work::run(chore, stop));
    // Until the nodes have left there is something to finish, so polls stop after them.
    let chore = shared.clone();
    services.start("polls", fleet::LAST_RESULTS_LIMIT, |stop| fleet::run_polls(chore, stop));
    // Stops before the pools, in which it reviews.
    let chore = shared.clone();
    services.start("monitors", CHORE_STOP_LIMIT, |stop| crate::monitors::run(chore, stop));
    let chore = shared.clone();
    services.start("sessions", fleet::LEAVE_LIMIT, |stop| fleet::run_sessions(chore, stop));
    // Stops after the gateway, whose requests it counts.
    let chore = shared.clone();
    let routes_limit = crate::routes::STOP_LIMIT;
    services.start("routes", routes_limit, |stop| crate::routes::run(chore, stop));
    let others = shared.clone();
    let chore = shared.clone();
    services.start("http", drain_limit, |stop| crate::http::serve(listener, chore, stop));
    // Stops before the port, which would wait for the pops that wait.
    let chore = shared.clone();
    services.start("queues", CHORE_STOP_LIMIT, |stop| crate::queues::run(chore, stop));
    // Stops before the port, at which workers say that they live while sessions end.
    if let Some(gateway) = gateway {
        let chore = shared.clone();
        let limit = shared.settings.gateway.drain_timeout + CHORE_STOP_LIMIT;
        services.start("gateway", limit, |stop| fleet::run_gateway(chore, gateway, stop));
    }
    // Started last and stopped first: the others should not wait for what this node owns.
    let chore = shared.clone();
    services.start("nodes", fleet::LEAVE_LIMIT, |stop| fleet::run_nodes(others, stop));
    // The others should send nothing more before anything here ends.
    services.start("cluster", CHORE_STOP_LIMIT, |stop| crate::cluster::run(chore, stop));
    services.run(&stop, || drop(set_state.send_replace(State::Draining))).await
}

fn load_certificate(settings: &Settings) -> anyhow::Result<Option<Arc<Certificate>>> {
    let (Some(certificate), Some(key)) =
        (settings.api.tls_certificate.clone(), settings.api.tls_key.clone())
    else {
        return Ok(None);
    };
    let loaded = Certificate::load(CertificateFiles { certificate, key });
    Ok(Some(Arc::new(loaded.map_err(BadCertificate)?)))
}

/// The listener's certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("api.tls_certificate and api.tls_key: {0}")]
pub struct BadCertificate(String);

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
