//! Where partitions are, by their numbers, and telling other nodes to look.

use super::QueueStore;
use super::either::either;
use crate::ids::PartitionId;
use skep_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;

/// The queue and the name of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionPlace {
    /// Of which queue.
    pub queue: Arc<str>,
    /// Its name there.
    pub partition: Arc<str>,
}

impl QueueStore {
    /// Where partitions are. Those of queues that are gone are left out.
    pub async fn partition_places(
        &self,
        mut partitions: Vec<PartitionId>,
    ) -> Result<HashMap<PartitionId, PartitionPlace>, StoreError> {
        partitions.sort_unstable();
        partitions.dedup();
        either!(self, store => store.partition_places(partitions).await)
    }

    /// Lets other nodes look at what was changed for all of them. One that does not hear it looks
    /// a little later by itself.
    pub async fn announce(&self) -> Result<(), StoreError> {
        match self {
            // There are no others.
            QueueStore::Sqlite(_) => Ok(()),
            QueueStore::Postgres(store) => store.announce().await,
        }
    }
}
