//! Where partitions are, by their numbers, and telling other nodes to look.

use super::write::NOTIFY;
use super::{CHANNEL, PostgresQueues};
use crate::ids::PartitionId;
use crate::store::places::PartitionPlace;
use skep_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) const PLACES: &str = "
    SELECT p.id, q.name, p.name FROM skep_queue_partitions p
    JOIN skep_queues q ON q.id = p.queue AND NOT q.deleted
    WHERE p.id = ANY($1)";

impl PostgresQueues {
    /// Where partitions are.
    pub async fn partition_places(
        &self,
        partitions: Vec<PartitionId>,
    ) -> Result<HashMap<PartitionId, PartitionPlace>, StoreError> {
        let ids: Vec<i64> = partitions.into_iter().map(|id| id.0).collect();
        let rows = self.shared.ask(PLACES, &[&ids]).await?;
        let place = |row: &tokio_postgres::Row| {
            let (queue, partition) = (Arc::from(row.get::<_, &str>(1)), row.get::<_, &str>(2));
            let place = PartitionPlace { queue, partition: partition.into() };
            (PartitionId(row.get(0)), place)
        };
        Ok(rows.iter().map(place).collect())
    }

    /// Lets other nodes look at everything.
    pub async fn announce(&self) -> Result<(), StoreError> {
        self.shared.ask(NOTIFY, &[&CHANNEL, &""]).await?;
        Ok(())
    }
}
