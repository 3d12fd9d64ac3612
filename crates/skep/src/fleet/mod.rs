//! This node among the others: who is there, who owns what, and the polls.

use crate::node::{Shared, State};
use crate::settings::Settings;
use anyhow::Context;
use skep_nodes::{MemoryTable, Nodes, NodesMetrics, PostgresTable, RedisTable, TableStore};
use skep_policy::Clock;
use skep_polls::{Hub, Polls, PollsMetrics, Prober};
use skep_store::{Database, StoreError, Stores};
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
}

/// What a node counts about the fleet; there from the start, because a scrape may come before the
/// stores.
#[derive(Clone, Default)]
pub struct FleetMetrics {
    pub nodes: NodesMetrics,
    pub polls: PollsMetrics,
}

/// What the nodes of one process over one embedded database have in common.
#[derive(Default)]
struct Common {
    table: OnceCell<MemoryTable>,
    hub: Arc<Hub>,
}

impl Fleet {
    /// Takes part in the installation that the stores hold. They must be up to date.
    pub async fn join(
        name: &str,
        settings: &Settings,
        info: &serde_json::Value,
        stores: &Stores,
        metrics: &FleetMetrics,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let common = stores.common::<Common>();
        let options = settings.nodes.options(name, info);
        let table = table(stores, &common).await?;
        let nodes = Nodes::new(options, table, metrics.nodes.clone(), clock.clone());
        let prober = Prober::new().context("polls cannot be made")?;
        let polls = Polls::new(
            stores.database().clone(),
            nodes.clone(),
            common.hub.clone(),
            prober,
            None,
            settings.polls.options(),
            metrics.polls.clone(),
            clock,
        );
        Ok(Fleet { nodes, polls })
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        self.nodes.refresh_metrics();
        self.polls.refresh_metrics();
    }
}

/// The table lives where nodes agree: in Redis if there is one, else in the database; and where the
/// database is embedded there is only this process, whose memory will do.
async fn table(stores: &Stores, common: &Common) -> Result<TableStore, StoreError> {
    if let Some(redis) = stores.redis() {
        let installation = stores.installation().await?;
        let table = RedisTable::new(redis, &installation.id.to_string());
        return Ok(TableStore::Redis(table));
    }
    match stores.database() {
        Database::Postgres(postgres) => Ok(TableStore::Postgres(PostgresTable::new(postgres))),
        database @ Database::Sqlite(_) => {
            let begin = async || {
                let epoch = skep_polls::store::next_epoch(database).await?;
                Ok::<_, StoreError>(MemoryTable::embedded(epoch))
            };
            let table = common.table.get_or_try_init(begin).await?;
            Ok(TableStore::Memory(table.clone()))
        }
    }
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

async fn when_ready<'a>(shared: &'a Shared, stop: &CancellationToken) -> Option<&'a Fleet> {
    let mut state = shared.state.clone();
    let ready = state.wait_for(|state| *state == State::Ready);
    stop.run_until_cancelled(ready).await?.ok()?;
    let fleet = shared.fleet();
    if fleet.is_none() {
        stop.cancelled().await;
    }
    fleet
}
