//! This node among the others: who is there, who owns what, the polls and the sessions.

mod desk;

pub use desk::{NodeDesk, bind_gateway, run_gateway};

use crate::node::{Shared, State};
use crate::settings::Settings;
use anyhow::Context;
use skep_dial::Dials;
use skep_gateway::GatewayMetrics;
use skep_monitors::{Monitors, MonitorsMetrics};
use skep_nodes::{MemoryTable, Nodes, NodesMetrics, PostgresTable, RedisTable, TableStore};
use skep_policy::Clock;
use skep_polls::{Hub, Polls, PollsMetrics, ProbeOptions, Prober, Publish};
use skep_sessions::{Sessions, SessionsMetrics};
use skep_store::{Agreement, StoreError, Stores};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// How long a node may take to give away what it owns when it stops.
pub const LEAVE_LIMIT: Duration = Duration::from_secs(6);

/// How long the last results may take to be written.
pub const LAST_RESULTS_LIMIT: Duration = Duration::from_secs(10);

/// What a node has once its stores are there.
pub struct Fleet {
    pub nodes: Nodes,
    pub polls: Polls,
    pub monitors: Monitors,
    pub sessions: Sessions,
}

/// What a node counts about the fleet; there from the start, because a scrape may come before the
/// stores.
#[derive(Clone, Default)]
pub struct FleetMetrics {
    pub nodes: NodesMetrics,
    pub polls: PollsMetrics,
    pub monitors: MonitorsMetrics,
    pub sessions: SessionsMetrics,
    pub gateway: GatewayMetrics,
}

/// What the nodes of one process over one embedded database have in common.
#[derive(Default)]
struct Common {
    table: OnceCell<MemoryTable>,
    hub: Arc<Hub>,
    sessions: skep_sessions::MemoryTable,
}

impl Fleet {
    /// Takes part in the installation that the stores hold. They must be up to date.
    pub async fn join(
        name: &str,
        settings: &Settings,
        info: &serde_json::Value,
        stores: &Stores,
        publish: Option<Arc<dyn Publish>>,
        (metrics, dials): (&FleetMetrics, &Dials),
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let common = stores.common::<Common>();
        let last_epoch = skep_polls::store::last_epoch(stores.database()).await?;
        let table = table(stores, &common, last_epoch).await?;
        // All that can fail for a while comes first: whoever tries again finds nothing half made.
        let sessions_table = sessions_table(stores, &common).await?;
        let mut options = settings.nodes.options(name, info);
        if !matches!(table, TableStore::Memory(_)) {
            options.epoch = last_epoch;
        }
        let nodes = Nodes::new(options, table, metrics.nodes.clone(), clock.clone());
        let probing = ProbeOptions { dialler: dials.dialler("poll"), ..ProbeOptions::default() };
        let prober = Prober::with(&probing).context("polls cannot be made")?;
        let polls = Polls::new(
            stores.database().clone(),
            nodes.clone(),
            common.hub.clone(),
            prober,
            publish,
            settings.polls.options(),
            metrics.polls.clone(),
            clock,
        );
        // Leases and samples are about one clock, which is that of the store in which nodes agree.
        let agreed = nodes.clone();
        let monitors = Monitors::new(
            stores.database().clone(),
            name,
            settings.monitors.options(),
            metrics.monitors.clone(),
            Arc::new(move || agreed.store_ms()),
        );
        let sessions = Sessions::new(
            settings.sessions.options(name),
            sessions_table,
            Box::new(desk::WorkerProber {
                limit: settings.gateway.dial_timeout,
                dialler: dials.dialler("session"),
            }),
            metrics.sessions.clone(),
        );
        Ok(Fleet { nodes, polls, monitors, sessions })
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        self.nodes.refresh_metrics();
        self.polls.refresh_metrics();
        self.monitors.refresh_metrics();
    }
}

/// The table lives where nodes agree; where that is this process, its memory will do.
async fn table(
    stores: &Stores,
    common: &Common,
    last_epoch: u64,
) -> Result<TableStore, StoreError> {
    match stores.agreement() {
        Agreement::Redis(redis) => {
            let installation = stores.installation().await?;
            Ok(TableStore::Redis(RedisTable::new(redis, &installation.id.to_string())))
        }
        Agreement::Postgres(postgres) => Ok(TableStore::Postgres(PostgresTable::new(postgres))),
        Agreement::Embedded => {
            let begin = async || {
                let next = skep_polls::store::next_epoch(stores.database()).await?;
                Ok::<_, StoreError>(MemoryTable::embedded(next.max(last_epoch + 1)))
            };
            let table = common.table.get_or_try_init(begin).await?;
            Ok(TableStore::Memory(table.clone()))
        }
    }
}

/// The table of sessions lives where nodes agree too.
async fn sessions_table(
    stores: &Stores,
    common: &Common,
) -> Result<skep_sessions::TableStore, StoreError> {
    use skep_sessions::TableStore;
    match stores.agreement() {
        Agreement::Redis(redis) => {
            let installation = stores.installation().await?.id.to_string();
            Ok(TableStore::Redis(skep_sessions::RedisTable::new(redis, &installation)))
        }
        Agreement::Postgres(postgres) => {
            Ok(TableStore::Postgres(skep_sessions::PostgresTable::new(postgres)))
        }
        Agreement::Embedded => Ok(TableStore::Memory(common.sessions.clone())),
    }
}

/// Takes part in giving sessions their workers. Stops after the gateway, whose sessions it counts.
pub async fn run_sessions(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    if let Some(fleet) = when_ready(&shared, &stop).await {
        skep_sessions::run(fleet.sessions.clone(), stop).await;
    }
    Ok(())
}

/// Polls while the node lives. Stops after the nodes have left, because until then there is
/// something to finish.
pub async fn run_polls(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    if let Some(fleet) = when_ready(&shared, &stop).await {
        skep_polls::run(fleet.polls.clone(), stop).await;
    }
    Ok(())
}

/// Takes part while the node lives, and leaves first of all.
pub async fn run_nodes(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    if let Some(fleet) = when_ready(&shared, &stop).await {
        skep_nodes::run(fleet.nodes.clone(), stop).await?;
    }
    Ok(())
}

/// The fleet, once the node is ready; nothing if it stops before.
pub async fn when_ready<'a>(shared: &'a Shared, stop: &CancellationToken) -> Option<&'a Fleet> {
    let mut state = shared.state.clone();
    let ready = state.wait_for(|state| *state == State::Ready);
    stop.run_until_cancelled(ready).await?.ok()?;
    let fleet = shared.fleet();
    if fleet.is_none() {
        stop.cancelled().await;
    }
    fleet
}
