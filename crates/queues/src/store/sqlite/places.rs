//! Where partitions are, by their numbers.

use super::SqliteQueues;
use super::rows;
use crate::ids::PartitionId;
use crate::store::places::PartitionPlace;
use rusqlite::Connection;
use skep_store::StoreError;
use std::collections::HashMap;

impl SqliteQueues {
    /// Where partitions are.
    pub async fn partition_places(
        &self,
        partitions: Vec<PartitionId>,
    ) -> Result<HashMap<PartitionId, PartitionPlace>, StoreError> {
        let read = move |db: &Connection| {
            let mut places = HashMap::new();
            for id in partitions {
                let Some((_, row)) = rows::partition_by_id(db, id)? else { continue };
                if let Some(queue) = rows::queue_by_id(db, row.queue)? {
                    let place = PartitionPlace { queue: queue.info.name, partition: row.name };
                    places.insert(id, place);
                }
            }
            Ok::<_, StoreError>(places)
        };
        self.sqlite.read(read).await
    }
}
