//! This node and its cluster.
//!
//! ```text
//!   embedded     one process has the database: the node is alone, or one of a demo
//!   PostgreSQL   nodes find each other in the coordination store, and talk over UDP and HTTP
//! ```

mod around;
mod told;

pub use told::NodeCluster;

use crate::node::{Shared, State};
use crate::settings::{ClusterSettings, Host};
use around::{FromNodes, NodeAround};
use rustls::ClientConfig;
use skep_cluster::forward::{self, ForwardOptions};
use skep_cluster::{
    Address, Cluster, ClusterError, ClusterMetrics, ClusterOptions, Discover, PulseError,
    PulseOptions, Secret,
};
use skep_policy::cluster::Options;
use skep_store::{BootClock, Database, WallClock};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a node that stops is still there for those who have not heard that it does.
const FAREWELL: Duration = Duration::from_millis(500);

/// The cluster of a node: nothing while the stores have not been reached, and nothing at all if
/// the database is this process's own.
#[derive(Default)]
pub struct ClusterPlace {
    cluster: OnceLock<Cluster>,
    pub metrics: ClusterMetrics,
    /// Cancelled when somebody wants this node to drain.
    pub drained: CancellationToken,
}

/// A list of peers, and no database that they could share.
#[derive(Debug, thiserror::Error)]
#[error(
    "cluster.peers: {0} other nodes are named, but the embedded database is for one process alone; \
     give all nodes the same database, as in --database postgres://user@host/skep, or leave \
     cluster.peers out"
)]
pub struct NothingShared(usize);

impl ClusterPlace {
    /// The cluster, if the node takes part in one.
    pub fn get(&self) -> Option<&Cluster> {
        self.cluster.get()
    }

    /// Takes part, if there can be others. The stores must be up to date.
    pub async fn join(&self, shared: &Arc<Shared>) -> anyhow::Result<()> {
        let settings = &shared.settings.cluster;
        let has_database_alone = !matches!(shared.stores.database(), Database::Postgres(_));
        // The nodes of a demo share it although it is embedded: they are one process.
        if has_database_alone && !shared.settings.demo.enabled {
            return match settings.peers.0.len() {
                0 => Ok(()),
                peers => Err(NothingShared(peers).into()),
            };
        }
        let around = Arc::new(NodeAround(Arc::downgrade(shared)));
        let discover: Arc<dyn Discover> = Arc::new(FromNodes(Arc::downgrade(shared)));
        let trust = trust(shared)?;
        let bind = |listen| {
            let clocks: (Arc<dyn skep_policy::Clock>, Arc<dyn skep_policy::Clock>) =
                (Arc::new(BootClock), Arc::new(WallClock));
            Cluster::bind(
                options(shared, listen, trust.clone()),
                around.clone(),
                Some(discover.clone()),
                shared.work.pools.clone(),
                self.metrics.clone(),
                clocks,
            )
        };
        let listen = settings.listen_address();
        let cluster = match bind(listen).await {
            // Nodes of one machine that nobody gave ports find each other by their records.
            Err(ClusterError::Pulse(PulseError::Bind { error, .. }))
                if error.kind() == std::io::ErrorKind::AddrInUse && settings.listens_anywhere() =>
            {
                tracing::warn!("cluster.listen: {listen} is in use, so a free port is taken");
                bind(SocketAddr::new(listen.ip(), 0)).await?
            }
            bound => bound?,
        };
        // Nodes of one process share their queues, and with them who waits.
        if let Some(queues) = shared.queues.get().filter(|_| !has_database_alone) {
            queues.on_wake(cluster.waker());
        }
        // Set once, here.
        let _ = self.cluster.set(cluster);
        Ok(())
    }

    /// What other nodes read in this one's record.
    pub fn info(&self, settings: &ClusterSettings) -> Option<serde_json::Value> {
        let udp = self.get()?.udp_address()?;
        Some(serde_json::json!({ "udp": reachable(settings, udp) }))
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        if let Some(cluster) = self.get() {
            cluster.refresh_metrics();
        }
    }
}

/// Whom other nodes must be certified by. A node that speaks plainly itself and was told nobody
/// forwards to those who do too.
fn trust(shared: &Shared) -> Result<Option<Arc<ClientConfig>>, ClusterError> {
    let file = shared.settings.cluster.ca.as_deref();
    if file.is_none() && shared.certificate.is_none() {
        return Ok(None);
    }
    match forward::trust(file) {
        Ok(trust) => Ok(Some(trust)),
        Err(cause) if file.is_some() => Err(ClusterError::Trust(cause)),
        Err(cause) => {
            tracing::warn!(cause, "nothing is forwarded to nodes that speak TLS; set cluster.ca");
            Ok(None)
        }
    }
}

fn options(
    shared: &Shared,
    listen: SocketAddr,
    trust: Option<Arc<ClientConfig>>,
) -> ClusterOptions {
    let settings = &shared.settings.cluster;
    let mut pulse = PulseOptions::new(shared.name.as_str(), listen);
    pulse.secret = settings.secret.as_ref().and_then(|secret| Secret::new(&secret.0).ok());
    pulse.realm = shared.installation.get().map(|one| one.id.to_string()).unwrap_or_default();
    pulse.peers = settings.peers.0.iter().filter_map(|peer| peer.show().parse().ok()).collect();
    let scheme = if shared.certificate.is_some() { "https" } else { "http" };
    pulse.api = format!("{scheme}://{}", reachable(settings, shared.address));
    pulse.udp = Some(reachable(settings, listen)).filter(|udp| udp.parse::<Address>().is_ok());
    pulse.zone = settings.zone.as_ref().map(ToString::to_string).unwrap_or_default();
    pulse.heartbeat = settings.heartbeat;
    pulse.dead_after = settings.dead_after;
    let forward = ForwardOptions {
        forwards_max: u32::try_from(settings.forwards_max).unwrap_or(u32::MAX),
        connect: settings.connect_timeout,
        total: settings.forward_timeout,
        body_max: shared.settings.api.body_max.0,
        trust,
        ..ForwardOptions::default()
    };
    let policy = Options {
        forward_threshold: settings.forward_threshold,
        affinity_ttl: settings.affinity_ttl,
        key_cooldown: Options::default().key_cooldown.min(settings.affinity_ttl / 2),
        migrate_threshold: settings.affinity_migrate_threshold,
        break_threshold: settings.affinity_break_threshold,
        min_improvement: settings.affinity_migrate_min_improvement,
        groups_max: u32::try_from(settings.queue_affinity_threshold).unwrap_or(u32::MAX),
        heartbeat: settings.heartbeat,
        dead_after: settings.dead_after,
        ..Options::default()
    };
    ClusterOptions {
        pulse,
        forward,
        policy,
        forwarding: settings.forwarding,
        writes: settings.forward_writes,
    }
}

/// Host and port as other nodes reach an address of this one.
fn reachable(settings: &ClusterSettings, address: SocketAddr) -> String {
    let bracketed = |ip: IpAddr| SocketAddr::new(ip, address.port()).to_string();
    match &settings.advertise {
        Some(Host::Address(ip)) => bracketed(*ip),
        Some(Host::Name(name)) => format!("{name}:{}", address.port()),
        None if address.ip().is_unspecified() => {
            let host = rustix::system::uname();
            format!("{}:{}", host.nodename().to_string_lossy(), address.port())
        }
        None => bracketed(address.ip()),
    }
}

/// Takes part while the node lives. Stops before everything else: the others should send nothing
/// more, and those who have not heard it yet are still answered for a moment.
pub async fn run(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    let mut state = shared.state.clone();
    let ready = state.wait_for(|state| *state == State::Ready);
    if stop.run_until_cancelled(ready).await.is_none() {
        return Ok(());
    }
    let Some(cluster) = shared.cluster.get() else {
        stop.cancelled().await;
        return Ok(());
    };
    let ends = CancellationToken::new();
    let farewell = async {
        stop.cancelled().await;
        cluster.drain();
        if cluster.has_others() {
            tokio::time::sleep(FAREWELL).await;
        }
        ends.cancel();
    };
    tokio::join!(skep_cluster::run(cluster.clone(), ends.clone()), farewell);
    Ok(())
}
