//! The monitors of a node: reviews, tidying, and what is told of them.

use crate::fleet;
use crate::node::Shared;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Cares for the monitors while the node lives.
pub async fn run(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    if let Some(fleet) = fleet::when_ready(&shared, &stop).await {
        let (monitors, pools) = (fleet.monitors.clone(), shared.work.pools.clone());
        skep_monitors::run(monitors, pools, shared.settings.monitors.enabled, stop).await;
    }
    Ok(())
}
